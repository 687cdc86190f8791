/*
 * Callers' floating-point environments: rounding modes and exceptions that trap, as `fesetround` and `feenableexcept`
 * set them. Every call works in each, gives the same bits, and leaves the environment and its flags as they were.
 */
#define _GNU_SOURCE
#include <fenv.h>

#include "client.h"

enum { ENVIRONMENTS = 6 };

/* Rounding, exceptions that trap, exceptions that have occurred. */
static const int environments[ENVIRONMENTS][3] = {
    {FE_TONEAREST, 0, 0},
#ifdef __x86_64__
    {FE_TONEAREST, FE_ALL_EXCEPT, 0},
    {FE_UPWARD, FE_INEXACT | FE_UNDERFLOW, FE_DIVBYZERO},
#else
    {FE_TONEAREST, 0, FE_INVALID},
    {FE_UPWARD, 0, FE_DIVBYZERO},
#endif
    {FE_UPWARD, 0, 0},
    {FE_DOWNWARD, 0, FE_OVERFLOW},
    {FE_TOWARDZERO, 0, FE_INEXACT},
};

static const shape_t shape = {1, 5, 12, 11, 9, 3, 3, 1, 1, 1, 1, 0};

/* Nothing between two calls computes, so that nothing but the library could trap. */
static void run(const float* x, const float* w, const float* b, float* y, float* fused) {
    float alpha1 = 0.3f, alpha2 = 1.7f;
    miopenHandle_t handle;
    miopenFusionPlanDescriptor_t plan;
    miopenFusionOpDescriptor_t conv_op, bias_op, tanh_op;
    miopenOperatorArgs_t args;
    miopenActivationDescriptor_t activation;
    miopenTensorDescriptor_t xd = tensor4d(shape.n, shape.c, shape.h, shape.w);
    miopenTensorDescriptor_t wd = tensor4d(shape.k, shape.c, shape.r, shape.s);
    miopenTensorDescriptor_t bd = tensor4d(1, shape.k, 1, 1);
    miopenTensorDescriptor_t yd = tensor4d(shape.n, shape.k, out_h(&shape), out_w(&shape));
    miopenConvolutionDescriptor_t conv = convolution(&shape);
    OK(miopenCreate(&handle));
    OK(miopenEnableProfiling(handle, true));
    OK(miopenCreateFusionPlan(&plan, miopenVerticalFusion, xd));
    OK(miopenCreateOpConvForward(plan, &conv_op, conv, wd));
    OK(miopenCreateOpBiasForward(plan, &bias_op, bd));
    OK(miopenCreateOpActivationForward(plan, &tanh_op, miopenActivationTANH));
    OK(miopenCompileFusionPlan(handle, plan));
    OK(miopenCreateOperatorArgs(&args));
    OK(miopenSetOpArgsConvForward(args, conv_op, NULL, NULL, w));
    OK(miopenSetOpArgsBiasForward(args, bias_op, NULL, NULL, b));
    OK(miopenSetOpArgsActivForward(args, tanh_op, NULL, NULL, 0.7, 0.9, 0));
    OK(miopenExecuteFusionPlan(handle, plan, xd, x, yd, y, args));
    OK(miopenCreateActivationDescriptor(&activation));
    OK(miopenSetActivationDescriptor(activation, miopenActivationRELU, 0, 0, 0));
    OK(miopenConvolutionBiasActivationForward(handle, &alpha1, xd, x, wd, w, conv, miopenConvolutionFwdAlgoDirect, NULL,
                                              0, &alpha2, yd, y, bd, b, activation, yd, fused));
    OK(miopenDestroyActivationDescriptor(activation));
    OK(miopenDestroyOperatorArgs(args));
    OK(miopenDestroyFusionPlan(plan));
    OK(miopenDestroy(handle));
    OK(miopenDestroyConvolutionDescriptor(conv));
    OK(miopenDestroyTensorDescriptor(xd));
    OK(miopenDestroyTensorDescriptor(wd));
    OK(miopenDestroyTensorDescriptor(bd));
    OK(miopenDestroyTensorDescriptor(yd));
}

int main(void) {
    size_t count = out_count(&shape), bytes = count * sizeof(float);
    float *x = whole(in_count(&shape), 1, 100), *w = whole(filter_count(&shape), 2, 100), *b = whole(9, 3, 9);
    float* expected[2] = {poisoned(count), poisoned(count)};
    /* Thirds, whose products are inexact; some so small that products are denormal. */
    for (size_t i = 0; i < in_count(&shape); i++) x[i] *= i % 3 ? 1.0f / 3 : 1e-39f;
    for (size_t i = 0; i < filter_count(&shape); i++) w[i] /= 700;
    for (size_t i = 0; i < 9; i++) b[i] *= 1e-40f;
    run(x, w, b, expected[0], expected[1]);
    for (int e = 0; e < ENVIRONMENTS; e++) {
        int rounding = environments[e][0], traps = environments[e][1], flags = environments[e][2];
        float* found[2] = {poisoned(count), poisoned(count)};
        int after[3];
        CHECK(fesetround(rounding) == 0);
        feclearexcept(FE_ALL_EXCEPT);
        if (flags) CHECK(feraiseexcept(flags) == 0);
        feenableexcept(traps & ~flags);
        /* Emulators of the processor know no traps. */
        if (fegetexcept() == (traps & ~flags)) {
            /* Raising one exception may raise another. */
            int before = fetestexcept(FE_ALL_EXCEPT);
            run(x, w, b, found[0], found[1]);
            after[0] = fegetround(), after[1] = fegetexcept(), after[2] = fetestexcept(FE_ALL_EXCEPT);
            fesetenv(FE_DFL_ENV);
            if (after[0] != rounding || after[1] != (traps & ~flags) || after[2] != before)
                FAIL("environment %d: rounding %#x, traps %#x, flags %#x afterwards, %#x before", e, after[0], after[1],
                     after[2], before);
            for (int i = 0; i < 2; i++) CHECK(memcmp(found[i], expected[i], bytes) == 0);
        }
        fesetenv(FE_DFL_ENV);
        free(found[0]), free(found[1]);
    }
    free(x), free(w), free(b), free(expected[0]), free(expected[1]);
    return 0;
}
