/*
 * Convolution + bias + activation as one kernel, from C: AMD's fusion sample for MIOpen, step by step.
 *
 * The calls are MIOpen's own, so the program builds against AMD's library as well; there, data pointers are
 * the GPU's. Here they are whatever the backend's memory is: host memory on the CPU backend.
 *
 *     capi/install.sh --prefix /opt/fuseplan
 *     cc examples/cba.c -o cba $(PKG_CONFIG_PATH=/opt/fuseplan/lib/pkgconfig pkg-config --cflags --libs miopen)
 *     LD_LIBRARY_PATH=/opt/fuseplan/lib ./cba
 *
 * examples/CMakeLists.txt builds it with find_package(miopen).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <miopen/miopen.h>

/* Ends the program with the status's name. The reason is on stderr, and in fuseplanGetLastErrorString(). */
static void check(miopenStatus_t status, const char* call) {
    if (status == miopenStatusSuccess) return;
    fprintf(stderr, "%s: %s\n", call, miopenGetErrorString(status));
    exit(EXIT_FAILURE);
}
#define CHECK(call) check(call, #call)

enum { N = 16, C = 128, H = 16, W = 16, K = 1, TAPS = 3 };

/* Small whole numbers, so that a sum with a wrong product is off by 1 or more; f32's rounding moves it by less than 0.01. */
static float* numbers(size_t count, int step) {
    float* data = malloc(count * sizeof *data);
    if (!data) exit(EXIT_FAILURE);
    for (size_t i = 0; i < count; i++) data[i] = (float)((int)(i * (size_t)step % 7) - 3);
    return data;
}

int main(void) {
    /* 1. A handle: the backend that FUSEPLAN_BACKEND names, or the best on this machine. */
    miopenHandle_t handle;
    CHECK(miopenCreate(&handle));

    /* 2. Descriptors. */
    miopenTensorDescriptor_t input, weights, bias, output;
    CHECK(miopenCreateTensorDescriptor(&input));
    CHECK(miopenCreateTensorDescriptor(&weights));
    CHECK(miopenCreateTensorDescriptor(&bias));
    CHECK(miopenCreateTensorDescriptor(&output));
    CHECK(miopenSet4dTensorDescriptor(input, miopenFloat, N, C, H, W));
    CHECK(miopenSet4dTensorDescriptor(weights, miopenFloat, K, C, TAPS, TAPS));
    CHECK(miopenSet4dTensorDescriptor(bias, miopenFloat, 1, K, 1, 1));
    miopenConvolutionDescriptor_t conv;
    CHECK(miopenCreateConvolutionDescriptor(&conv));
    CHECK(miopenInitConvolutionDescriptor(conv, miopenConvolution, 0, 0, 1, 1, 1, 1));
    int n, k, h, w;
    CHECK(miopenGetConvolutionForwardOutputDim(conv, input, weights, &n, &k, &h, &w));
    CHECK(miopenSet4dTensorDescriptor(output, miopenFloat, n, k, h, w));

    /* 3. The plan: operators in the order in which they are applied. */
    miopenFusionPlanDescriptor_t plan;
    miopenFusionOpDescriptor_t conv_op, bias_op, relu_op;
    CHECK(miopenCreateFusionPlan(&plan, miopenVerticalFusion, input));
    CHECK(miopenCreateOpConvForward(plan, &conv_op, conv, weights));
    CHECK(miopenCreateOpBiasForward(plan, &bias_op, bias));
    CHECK(miopenCreateOpActivationForward(plan, &relu_op, miopenActivationRELU));

    /* 4. Compile: one kernel for all three. */
    CHECK(miopenCompileFusionPlan(handle, plan));

    /* 5. Arguments, and execute. Other data of the same shapes need no other compile. */
    float *x = numbers((size_t)N * C * H * W, 3), *f = numbers((size_t)K * C * TAPS * TAPS, 5), b[K] = {-40};
    float* y = numbers((size_t)n * k * h * w, 1);
    float alpha = 1, beta = 0;
    miopenOperatorArgs_t args;
    CHECK(miopenCreateOperatorArgs(&args));
    CHECK(miopenSetOpArgsConvForward(args, conv_op, &alpha, &beta, f));
    CHECK(miopenSetOpArgsBiasForward(args, bias_op, &alpha, &beta, b));
    CHECK(miopenSetOpArgsActivForward(args, relu_op, &alpha, &beta, 0, 0, 0));
    CHECK(miopenEnableProfiling(handle, true));
    float milliseconds = 0;
    for (int run = 0; run < 3; run++) {
        CHECK(miopenExecuteFusionPlan(handle, plan, input, x, output, y, args));
        CHECK(miopenGetKernelTime(handle, &milliseconds));
    }

    /* 6. Plain loops say the same. */
    for (int i = 0; i < n * h * w; i++) {
        double sum = b[0];
        for (int c = 0; c < C; c++)
            for (int r = 0; r < TAPS; r++)
                for (int s = 0; s < TAPS; s++)
                    sum += (double)x[((i / (h * w) * C + c) * H + i / w % h + r) * W + i % w + s] *
                           f[(c * TAPS + r) * TAPS + s];
        const double expected = sum > 0 ? sum : 0;
        if (!(fabs(y[i] - expected) <= 0.01)) {
            fprintf(stderr, "element %d is %g, plain loops give %g\n", i, y[i], expected);
            return EXIT_FAILURE;
        }
    }
    printf("%d x %d x %d x %d outputs, as plain loops have them; %.3f ms\n", n, k, h, w, milliseconds);

    CHECK(miopenDestroyOperatorArgs(args));
    CHECK(miopenDestroyFusionPlan(plan));
    CHECK(miopenDestroyConvolutionDescriptor(conv));
    CHECK(miopenDestroyTensorDescriptor(input));
    CHECK(miopenDestroyTensorDescriptor(weights));
    CHECK(miopenDestroyTensorDescriptor(bias));
    CHECK(miopenDestroyTensorDescriptor(output));
    CHECK(miopenDestroy(handle));
    free(x), free(f), free(y);
    return EXIT_SUCCESS;
}
