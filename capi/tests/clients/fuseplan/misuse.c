/*
 * What a program does wrong with fuseplan.h: every wrong handle is an error with a reason, and nothing crashes, leaks or is
 * written. Handles of libMIOpen's are none of libfuseplan's, in one program with both.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fuseplan.h>
#include <miopen/fuseplan.h>
#include <miopen/miopen.h>

#define FAIL(...)                                       \
    do {                                                \
        fprintf(stdout, "%s:%d: ", __FILE__, __LINE__); \
        fprintf(stdout, __VA_ARGS__);                   \
        fprintf(stdout, "\n");                          \
        exit(1);                                        \
    } while (0)

#define EXPECT(status, call)                                                                      \
    do {                                                                                          \
        fuseplan_status_t found_ = (call);                                                        \
        if (found_ != (status))                                                                   \
            FAIL("%s gave %s (%s)", #call, fuseplan_status_string(found_), fuseplan_last_error()); \
    } while (0)

#define OK(call) EXPECT(FUSEPLAN_SUCCESS, call)

/* The call is refused with a reason that has these words. */
#define REFUSED(words, call)                                                                              \
    do {                                                                                                  \
        EXPECT(FUSEPLAN_INVALID_ARGUMENT, call);                                                          \
        if (!strstr(fuseplan_last_error(), words)) FAIL("%s: %s", #call, fuseplan_last_error());           \
    } while (0)

/* Every function that takes a plan. */
static void try_plan(fuseplan_plan_t wrong, const char* words, fuseplan_handle_t handle, fuseplan_tensor_t tensor) {
    size_t op = 77, size = 77;
    fuseplan_compiled_t compiled = NULL;
    fuseplan_binary_t binary     = NULL;
    fuseplan_tensor_t output     = NULL;
    fuseplan_args_t args         = NULL;
    REFUSED(words, fuseplan_plan_append_convolution(wrong, tensor, NULL, NULL, NULL, NULL, 1, &op));
    REFUSED(words, fuseplan_plan_append_bias(wrong, FUSEPLAN_F32, &op));
    REFUSED(words, fuseplan_plan_append_residual(wrong, tensor, &op));
    REFUSED(words, fuseplan_plan_append_batch_norm(wrong, FUSEPLAN_BATCH_NORM_SPATIAL, FUSEPLAN_F32, &op));
    REFUSED(words, fuseplan_plan_append_activation(wrong, FUSEPLAN_RELU, 0, 0, 0, &op));
    REFUSED(words, fuseplan_plan_append_batch_norm_training(wrong, FUSEPLAN_BATCH_NORM_SPATIAL, 0, &op));
    REFUSED(words, fuseplan_plan_append_batch_norm_backward(wrong, FUSEPLAN_BATCH_NORM_SPATIAL, &op));
    REFUSED(words, fuseplan_plan_append_activation_backward(wrong, FUSEPLAN_RELU, 0, 0, 0, &op));
    REFUSED(words, fuseplan_plan_output(wrong, &output));
    REFUSED(words, fuseplan_plan_compile(wrong, handle, 0, &compiled));
    REFUSED(words, fuseplan_plan_explain(wrong, handle, 0, NULL, &size));
    REFUSED(words, fuseplan_plan_compile_binary(wrong, handle, 0, &binary));
    REFUSED(words, fuseplan_plan_load(wrong, handle, 0, "bytes", 5, &compiled));
    REFUSED(words, fuseplan_args_create(&args, wrong));
    if (op != 77 || size != 77 || compiled || binary || output || args) FAIL("a call that failed wrote");
}

int main(void) {
    fuseplan_handle_t handle;
    fuseplan_tensor_t x;
    fuseplan_plan_t plan, destroyed;
    const size_t lens[4] = {1, 4, 5, 5};
    if (strcmp(fuseplan_last_error(), "") != 0) FAIL("an error before the first call: %s", fuseplan_last_error());
    OK(fuseplan_handle_create(&handle, "cpu", FUSEPLAN_CURRENT_DEVICE));
    OK(fuseplan_tensor_create(&x, FUSEPLAN_F32, FUSEPLAN_CHANNELS_LAST, 4, lens));
    OK(fuseplan_plan_create(&plan, handle, x));
    OK(fuseplan_plan_create(&destroyed, NULL, x));
    OK(fuseplan_plan_destroy(destroyed));
    OK(fuseplan_plan_destroy(NULL));
    REFUSED("destroyed", fuseplan_plan_destroy(destroyed));

    try_plan(NULL, "the fusion plan is NULL", handle, x);
    try_plan(destroyed, "the fusion plan was destroyed", handle, x);
    try_plan((fuseplan_plan_t)(uintptr_t)0xdeadbeef, "is no fusion plan of this library", handle, x);
    try_plan((fuseplan_plan_t)(void*)x, "a handle of another kind: tensor descriptor", handle, x);

    /* A handle of the other library is none of this one, and the other way round. */
    miopenTensorDescriptor_t other;
    size_t bytes;
    if (miopenCreateTensorDescriptor(&other) != miopenStatusSuccess) FAIL("%s", fuseplanGetLastErrorString());
    REFUSED("is no tensor descriptor of this library", fuseplan_tensor_bytes((fuseplan_tensor_t)(void*)other, &bytes));
    if (miopenDestroyTensorDescriptor((miopenTensorDescriptor_t)(void*)x) != miopenStatusBadParm)
        FAIL("libMIOpen destroyed a tensor of libfuseplan");
    if (miopenDestroyTensorDescriptor(other) != miopenStatusSuccess) FAIL("%s", fuseplanGetLastErrorString());

    /* What is compiled and what is set outlives its plan. */
    float data[100], doubled[100];
    fuseplan_compiled_t compiled;
    fuseplan_args_t args;
    size_t op;
    for (int i = 0; i < 100; i++) data[i] = (float)(i - 50);
    OK(fuseplan_plan_append_residual(plan, NULL, &op));
    OK(fuseplan_plan_compile(plan, handle, 0, &compiled));
    OK(fuseplan_args_create(&args, plan));
    OK(fuseplan_plan_destroy(plan));
    OK(fuseplan_tensor_destroy(x));
    REFUSED("operator 0", fuseplan_execute(handle, compiled, args, data, doubled, NULL, 0));
    OK(fuseplan_args_set_operand(args, op, "bias", data));
    OK(fuseplan_execute(handle, compiled, args, data, doubled, NULL, 0));
    for (int i = 0; i < 100; i++)
        if (doubled[i] != 2 * data[i]) FAIL("element %d is %g", i, doubled[i]);
    REFUSED("the input", fuseplan_execute(handle, compiled, args, NULL, doubled, NULL, 0));
    REFUSED("overlap", fuseplan_execute(handle, compiled, args, data, data + 1, NULL, 0));

    OK(fuseplan_args_destroy(args));
    OK(fuseplan_compiled_destroy(compiled));
    OK(fuseplan_handle_destroy(handle));
    return 0;
}
