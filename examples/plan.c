/*
 * Convolution + bias + ReLU as one kernel, from C: fuseplan's own interface, step by step. cba.c is the same with MIOpen's.
 *
 *     capi/install.sh --prefix /opt/fuseplan
 *     cc examples/plan.c -o plan $(PKG_CONFIG_PATH=/opt/fuseplan/lib/pkgconfig pkg-config --cflags --libs fuseplan)
 *     LD_LIBRARY_PATH=/opt/fuseplan/lib ./plan
 *
 * Data lies in the memory of the handle's device, which is the host's for the CPU that is asked for here.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <fuseplan.h>

/* Ends the program with the reason. */
static void check(fuseplan_status_t status) {
    if (status == FUSEPLAN_SUCCESS) return;
    fprintf(stderr, "%s\n", fuseplan_last_error());
    exit(EXIT_FAILURE);
}

enum { N = 4, C = 32, H = 16, W = 16, K = 8, TAPS = 3 };

/* Small whole numbers, so that a sum with a wrong product is off by 1 or more; f32's rounding moves it by less than 0.01. */
static float* numbers(size_t count, size_t step) {
    float* data = malloc(count * sizeof *data);
    if (!data) exit(EXIT_FAILURE);
    for (size_t i = 0; i < count; i++) data[i] = (float)((int)(i * step % 7) - 3);
    return data;
}

int main(void) {
    /* 1. A handle, and what the tensors are. */
    fuseplan_handle_t handle;
    fuseplan_tensor_t x, w;
    const size_t x_lens[4] = {N, C, H, W}, w_lens[4] = {K, C, TAPS, TAPS}, pads[2] = {1, 1};
    check(fuseplan_handle_create(&handle, "cpu", FUSEPLAN_CURRENT_DEVICE));
    check(fuseplan_tensor_create(&x, FUSEPLAN_F32, FUSEPLAN_CHANNELS_FIRST, 4, x_lens));
    check(fuseplan_tensor_create(&w, FUSEPLAN_F32, FUSEPLAN_CHANNELS_FIRST, 4, w_lens));

    /* 2. The plan: operators in the order in which they are applied. What does not fit is refused here. */
    fuseplan_plan_t plan;
    size_t conv, bias;
    check(fuseplan_plan_create(&plan, handle, x));
    check(fuseplan_plan_append_convolution(plan, w, NULL, NULL, pads, NULL, 1, &conv));
    check(fuseplan_plan_append_bias(plan, FUSEPLAN_F32, &bias));
    check(fuseplan_plan_append_activation(plan, FUSEPLAN_RELU, 0, 0, 0, NULL));
    if (fuseplan_plan_append_convolution(plan, w, NULL, NULL, pads, NULL, 1, NULL) != FUSEPLAN_UNSUPPORTED) return EXIT_FAILURE;
    printf("%s\n", fuseplan_last_error());

    /* 3. Compile: one kernel for all three. */
    fuseplan_compiled_t compiled;
    check(fuseplan_plan_compile(plan, handle, 0, &compiled));

    /* 4. Arguments, and execute. The weights do not change, so they are prepared once. */
    float *input = numbers((size_t)N * C * H * W, 3), *weights = numbers((size_t)K * C * TAPS * TAPS, 5);
    float *shift = numbers(K, 1), *output = numbers((size_t)N * K * H * W, 1);
    fuseplan_args_t args;
    check(fuseplan_args_create(&args, plan));
    check(fuseplan_args_set_constant_operand(args, conv, "weights", weights));
    check(fuseplan_args_set_constant_operand(args, bias, "bias", shift));
    for (int run = 0; run < 3; run++) check(fuseplan_execute(handle, compiled, args, input, output, NULL, 0));

    /* 5. Plain loops say the same. */
    for (int i = 0; i < N * K * H * W; i++) {
        const int n = i / (K * H * W), k = i / (H * W) % K, row = i / W % H, column = i % W;
        double sum = shift[k];
        for (int c = 0; c < C; c++)
            for (int r = row - 1; r <= row + 1; r++)
                for (int s = column - 1; s <= column + 1; s++)
                    if (r >= 0 && r < H && s >= 0 && s < W)
                        sum += (double)input[((n * C + c) * H + r) * W + s] *
                               weights[((k * C + c) * TAPS + r - row + 1) * TAPS + s - column + 1];
        const double expected = sum > 0 ? sum : 0;
        if (!(fabs(output[i] - expected) <= 0.01)) {
            fprintf(stderr, "element %d is %g, plain loops give %g\n", i, output[i], expected);
            return EXIT_FAILURE;
        }
    }
    printf("%d outputs, as plain loops have them\n", N * K * H * W);

    check(fuseplan_args_destroy(args));
    check(fuseplan_compiled_destroy(compiled));
    check(fuseplan_plan_destroy(plan));
    check(fuseplan_tensor_destroy(w));
    check(fuseplan_tensor_destroy(x));
    check(fuseplan_handle_destroy(handle));
    free(input), free(weights), free(shift), free(output);
    return EXIT_SUCCESS;
}
