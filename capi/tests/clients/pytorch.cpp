// In the shape of PyTorch's miopen_convolution_relu: a plan for each call, descriptors with explicit strides,
// a group count, activation parameters 0, the argument object never destroyed.
#include "client.h"

static miopenTensorDescriptor_t strided(int n, int c, int h, int w) {
    const int lens[4] = {n, c, h, w}, strides[4] = {c * h * w, h * w, w, 1};
    miopenTensorDescriptor_t desc;
    OK(miopenCreateTensorDescriptor(&desc));
    OK(miopenSetTensorDescriptor(desc, miopenFloat, 4, lens, strides));
    return desc;
}

// The leak is the caller's own; it is kept here only for as long as the test wants to see the plan gone.
static miopenOperatorArgs_t conv_relu(miopenHandle_t handle, const shape_t& p, const float* x, const float* w,
                                      const float* b, float* y) {
    const int pads[2] = {p.pad, p.pad}, strides[2] = {p.stride, p.stride};
    const int dilations[2] = {p.dilation, p.dilation};
    miopenTensorDescriptor_t xd = strided(p.n, p.c, p.h, p.w), bd = strided(1, p.k, 1, 1);
    miopenTensorDescriptor_t wd = strided(p.k, p.c / p.groups, p.r, p.s);
    miopenTensorDescriptor_t yd = strided(p.n, p.k, out_h(&p), out_w(&p));
    miopenConvolutionDescriptor_t conv;
    OK(miopenCreateConvolutionDescriptor(&conv));
    OK(miopenInitConvolutionNdDescriptor(conv, 2, pads, strides, dilations, miopenConvolution));
    OK(miopenSetConvolutionGroupCount(conv, p.groups));

    miopenFusionPlanDescriptor_t plan;
    miopenFusionOpDescriptor_t conv_op, bias_op, relu_op;
    OK(miopenCreateFusionPlan(&plan, miopenVerticalFusion, xd));
    OK(miopenCreateOpConvForward(plan, &conv_op, conv, wd));
    OK(miopenCreateOpBiasForward(plan, &bias_op, bd));
    OK(miopenCreateOpActivationForward(plan, &relu_op, miopenActivationRELU));
    OK(miopenCompileFusionPlan(handle, plan));

    float alpha = 1, beta = 0;
    miopenOperatorArgs_t args;
    OK(miopenCreateOperatorArgs(&args));
    OK(miopenSetOpArgsConvForward(args, conv_op, &alpha, &beta, w));
    OK(miopenSetOpArgsBiasForward(args, bias_op, &alpha, &beta, b));
    OK(miopenSetOpArgsActivForward(args, relu_op, &alpha, &beta, 0.0, 0.0, 0.0));
    OK(miopenExecuteFusionPlan(handle, plan, xd, x, yd, y, args));
    OK(miopenDestroyFusionPlan(plan));
    REFUSED(miopenExecuteFusionPlan(handle, plan, xd, x, yd, y, args));
    REFUSED(miopenSetOpArgsConvForward(args, conv_op, &alpha, &beta, w));
    for (miopenTensorDescriptor_t desc : {xd, wd, bd, yd}) OK(miopenDestroyTensorDescriptor(desc));
    OK(miopenDestroyConvolutionDescriptor(conv));
    return args;
}

int main() {
    const shape_t shapes[] = {
        {2, 6, 9, 7, 4, 3, 3, 1, 1, 1, 1, 0}, {1, 6, 9, 7, 4, 3, 3, 1, 2, 1, 2, 0},
        {3, 5, 8, 8, 7, 1, 1, 0, 1, 1, 1, 0}, {1, 4, 11, 11, 4, 3, 3, 2, 1, 2, 4, 0},
        {2, 3, 17, 13, 8, 5, 3, 2, 2, 1, 1, 0},
    };
    miopenHandle_t handle;
    OK(miopenCreate(&handle));
    for (const shape_t& p : shapes) {
        OK(miopenSetStream(handle, nullptr));
        float *x = whole(in_count(&p), 3, 4), *w = whole(filter_count(&p), 4, 3), *b = whole(p.k, 5, 9);
        float* y = poisoned(out_count(&p));
        double* expected = oracle_conv(&p, x, w);
        oracle_bias(&p, expected, b);
        oracle_activate(miopenActivationRELU, expected, out_count(&p), 0, 0);
        miopenOperatorArgs_t args = conv_relu(handle, p, x, w, b, y);
        compare("conv_relu", y, expected, out_count(&p), tolerance_of(&p));
        OK(miopenDestroyOperatorArgs(args));
        free(x), free(w), free(b), free(y), free(expected);
    }
    OK(miopenDestroy(handle));
}
