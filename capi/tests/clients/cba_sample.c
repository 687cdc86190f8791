/*
 * In the shape of AMD's sample for the fusion interface: handle with stream and profiling, descriptors read
 * back, plan C B A, a second set of tensors of the same shapes without another compile.
 */
#include "client.h"

static void run(miopenHandle_t handle, miopenFusionPlanDescriptor_t plan, miopenFusionOpDescriptor_t* ops,
                miopenOperatorArgs_t args, const shape_t* p, miopenTensorDescriptor_t input,
                miopenTensorDescriptor_t output, unsigned seed) {
    float alpha = 1.0f, beta = 0.0f;
    double activ_alpha = 0, activ_beta = 0, activ_gamma = 0;
    float* x = whole(in_count(p), seed, 3);
    float* w = whole(filter_count(p), seed + 1, 2);
    float* b = whole((size_t)p->k, seed + 2, 5);
    float* y = poisoned(out_count(p));
    double* expected = oracle_conv(p, x, w);
    float milliseconds = -1;

    oracle_bias(p, expected, b);
    oracle_activate(miopenActivationRELU, expected, out_count(p), 0, 0);
    OK(miopenSetOpArgsConvForward(args, ops[0], &alpha, &beta, w));
    OK(miopenSetOpArgsActivForward(args, ops[2], &alpha, &beta, activ_alpha, activ_beta, activ_gamma));
    OK(miopenSetOpArgsBiasForward(args, ops[1], &alpha, &beta, b));
    OK(miopenExecuteFusionPlan(handle, plan, input, x, output, y, args));
    compare("C B A", y, expected, out_count(p), tolerance_of(p));
    OK(miopenGetKernelTime(handle, &milliseconds));
    CHECK(milliseconds > 0);
    free(x), free(w), free(b), free(y), free(expected);
}

int main(void) {
    shape_t p = {16, 128, 16, 16, 1, 3, 3, 0, 1, 1, 1, 0};
    miopenHandle_t handle;
    miopenFusionPlanDescriptor_t plan;
    miopenFusionOpDescriptor_t ops[3];
    miopenOperatorArgs_t args;
    miopenDataType_t type;
    int n, c, h, w, strides[4];
    miopenTensorDescriptor_t input = tensor4d(p.n, p.c, p.h, p.w), weights = tensor4d(p.k, p.c, p.r, p.s);
    miopenTensorDescriptor_t output, bias;
    miopenConvolutionDescriptor_t conv = convolution(&p);

    OK(miopenCreateWithStream(&handle, NULL));
    OK(miopenEnableProfiling(handle, true));
    OK(miopenGet4dTensorDescriptor(input, &type, &n, &c, &h, &w, strides, strides + 1, strides + 2,
                                   strides + 3));
    CHECK(type == miopenFloat && n == 16 && c == 128 && strides[0] == 128 * 256 && strides[3] == 1);
    OK(miopenGetConvolutionForwardOutputDim(conv, input, weights, &n, &c, &h, &w));
    CHECK(n == 16 && c == 1 && h == 14 && w == 14);
    output = tensor4d(n, c, h, w);
    bias = tensor4d(1, c, 1, 1);

    OK(miopenCreateFusionPlan(&plan, miopenVerticalFusion, input));
    OK(miopenCreateOperatorArgs(&args));
    OK(miopenCreateOpConvForward(plan, &ops[0], conv, weights));
    OK(miopenCreateOpBiasForward(plan, &ops[1], bias));
    OK(miopenCreateOpActivationForward(plan, &ops[2], miopenActivationRELU));
    OK(miopenCompileFusionPlan(handle, plan));
    run(handle, plan, ops, args, &p, input, output, 1);
    run(handle, plan, ops, args, &p, input, output, 7);

    OK(miopenDestroyFusionPlan(plan));
    OK(miopenDestroyOperatorArgs(args));
    OK(miopenDestroyConvolutionDescriptor(conv));
    OK(miopenDestroyTensorDescriptor(input));
    OK(miopenDestroyTensorDescriptor(weights));
    OK(miopenDestroyTensorDescriptor(output));
    OK(miopenDestroyTensorDescriptor(bias));
    OK(miopenDestroy(handle));
    return 0;
}
