/*
 * In the shape of the newer fusion samples: bf16, NHWC, 4 groups, arguments before the compile, the bias with
 * beta 1, the second execute call without a workspace, and the plan left to the end of the process.
 */
#include <stdint.h>

#include "client.h"

/* To bf16 and back; the values used here have few enough bits. */
static uint16_t narrow(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return (uint16_t)(bits >> 16);
}

static float widen(uint16_t value) {
    uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, 4);
    return result;
}

static uint16_t* narrow_all(const float* values, size_t count) {
    uint16_t* data = (uint16_t*)allocate(count * 2);
    for (size_t i = 0; i < count; i++) data[i] = narrow(values[i]);
    return data;
}

int main(void) {
    shape_t p = {4, 8, 20, 20, 16, 3, 3, 0, 2, 1, 4, 1};
    int pads[2] = {0, 0}, strides[2] = {2, 2}, dilations[2] = {1, 1}, dims = 0, lens[5];
    float one = 1, zero = 0;
    miopenHandle_t handle;
    miopenFusionPlanDescriptor_t plan;
    miopenFusionOpDescriptor_t ops[3];
    miopenOperatorArgs_t args;
    miopenConvolutionDescriptor_t conv;
    miopenActivationDescriptor_t relu;
    miopenTensorDescriptor_t xd = tensor_nhwc(miopenBFloat16, p.n, p.c, p.h, p.w), yd;
    miopenTensorDescriptor_t wd = tensor_nhwc(miopenBFloat16, p.k, p.c / p.groups, p.r, p.s);
    miopenTensorDescriptor_t bd = tensor_nhwc(miopenBFloat16, 1, p.k, 1, 1);
    float *x = whole(in_count(&p), 1, 2), *w = whole(filter_count(&p), 2, 1), *b = whole(16, 3, 9);
    uint16_t *x16 = narrow_all(x, in_count(&p)), *w16 = narrow_all(w, filter_count(&p)), *b16 = narrow_all(b, 16);
    uint16_t* y16 = (uint16_t*)poisoned(out_count(&p));
    double* expected = oracle_conv(&p, x, w);

    OK(miopenCreate(&handle));
    OK(miopenSetStream(handle, NULL));
    OK(miopenCreateConvolutionDescriptor(&conv));
    OK(miopenInitConvolutionNdDescriptor(conv, 2, pads, strides, dilations, miopenConvolution));
    OK(miopenSetConvolutionGroupCount(conv, p.groups));
    OK(miopenGetConvolutionNdForwardOutputDim(conv, xd, wd, &dims, lens));
    CHECK(dims == 4 && lens[0] == p.n && lens[1] == p.k && lens[2] == out_h(&p) && lens[3] == out_w(&p));
    yd = tensor_nhwc(miopenBFloat16, lens[0], lens[1], lens[2], lens[3]);
    OK(miopenCreateActivationDescriptor(&relu));
    OK(miopenSetActivationDescriptor(relu, miopenActivationRELU, 0.5, 0.5, 0.5));

    OK(miopenCreateFusionPlan(&plan, miopenVerticalFusion, xd));
    OK(miopenCreateOperatorArgs(&args));
    OK(miopenCreateOpConvForward(plan, &ops[0], conv, wd));
    OK(miopenSetOpArgsConvForward(args, ops[0], &one, &zero, w16));
    OK(miopenCreateOpBiasForward(plan, &ops[1], bd));
    OK(miopenSetOpArgsBiasForward(args, ops[1], &one, &one, b16));
    OK(miopenCreateOpActivationForward(plan, &ops[2], miopenActivationRELU));
    OK(miopenSetOpArgsActivForward(args, ops[2], &one, &zero, 0.5, 0.5, 0.5));
    OK(miopenCompileFusionPlan(handle, plan));
    OK(miopenExecuteFusionPlan_v2(handle, plan, xd, x16, yd, y16, args, NULL, 0));

    oracle_bias(&p, expected, b);
    oracle_activate(miopenActivationRELU, expected, out_count(&p), 0, 0);
    for (size_t i = 0; i < out_count(&p); i++) {
        /* |y| is at most 2 * 18 + 9, so that even 8 bits of mantissa hold it exactly. */
        if (widen(y16[i]) != expected[i]) FAIL("element %zu is %g, expected %g", i, widen(y16[i]), expected[i]);
    }

    OK(miopenDestroyActivationDescriptor(relu));
    OK(miopenDestroyOperatorArgs(args));
    OK(miopenDestroyConvolutionDescriptor(conv));
    OK(miopenDestroyTensorDescriptor(xd));
    OK(miopenDestroyTensorDescriptor(wd));
    OK(miopenDestroyTensorDescriptor(bd));
    OK(miopenDestroyTensorDescriptor(yd));
    OK(miopenDestroy(handle));
    free(x), free(w), free(b), free(x16), free(w16), free(b16), free(y16), free(expected);
    return 0;
}
