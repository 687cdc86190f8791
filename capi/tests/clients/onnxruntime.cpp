// In the shape of ONNX Runtime's FusedConv: the residual added as a "bias" of the output's shape, one
// argument object for each plan, execution tried although compile failed, then the unfused operators.
#include "client.h"

static void fused(miopenHandle_t handle, const shape_t& p, bool with_bias, const float* x, const float* w,
                  const float* b, const float* z, float* y) {
    miopenTensorDescriptor_t xd = tensor4d(p.n, p.c, p.h, p.w), wd = tensor4d(p.k, p.c, p.r, p.s);
    miopenTensorDescriptor_t bd = tensor4d(1, p.k, 1, 1), yd = tensor4d(p.n, p.k, out_h(&p), out_w(&p));
    miopenConvolutionDescriptor_t conv = convolution(&p);
    // The number of dimensions is found by asking for too many.
    int dims = 0, numbers[3][5];
    miopenConvolutionMode_t mode;
    REFUSED(miopenGetConvolutionNdDescriptor(conv, 3, &dims, numbers[0], numbers[1], numbers[2], &mode));
    CHECK(dims == 0);
    OK(miopenGetConvolutionNdDescriptor(conv, 2, &dims, numbers[0], numbers[1], numbers[2], &mode));
    CHECK(dims == 2 && numbers[0][0] == p.pad && numbers[1][1] == p.stride && mode == miopenConvolution);

    miopenFusionPlanDescriptor_t plan;
    miopenFusionOpDescriptor_t conv_op, z_op, b_op = NULL, act_op;
    OK(miopenCreateFusionPlan(&plan, miopenVerticalFusion, xd));
    OK(miopenCreateOpConvForward(plan, &conv_op, conv, wd));
    OK(miopenCreateOpBiasForward(plan, &z_op, yd));
    if (with_bias) OK(miopenCreateOpBiasForward(plan, &b_op, bd));
    OK(miopenCreateOpActivationForward(plan, &act_op, miopenActivationRELU));
    OK(miopenCompileFusionPlan(handle, plan));
    float one = 1, zero = 0;
    miopenOperatorArgs_t args;
    OK(miopenCreateOperatorArgs(&args));
    for (int round = 0; round < 2; round++) {
        OK(miopenSetOpArgsConvForward(args, conv_op, &one, &zero, w));
        OK(miopenSetOpArgsBiasForward(args, z_op, &one, &zero, z));
        if (with_bias) OK(miopenSetOpArgsBiasForward(args, b_op, &one, &zero, b));
        OK(miopenSetOpArgsActivForward(args, act_op, &one, &zero, 0.0, 0.0, 0.0));
        OK(miopenExecuteFusionPlan(handle, plan, xd, x, yd, y, args));
    }
    OK(miopenDestroyOperatorArgs(args));
    OK(miopenDestroyFusionPlan(plan));
    for (miopenTensorDescriptor_t desc : {xd, wd, bd, yd}) OK(miopenDestroyTensorDescriptor(desc));
    OK(miopenDestroyConvolutionDescriptor(conv));
}

// A plan that no solver takes: compile fails, execute must, and the separate operators give the result.
static void refused(miopenHandle_t handle, const shape_t& p, const float* x, const float* w, const float* b,
                    const float* z, float* y) {
    miopenTensorDescriptor_t xd = tensor4d(p.n, p.c, p.h, p.w), wd = tensor4d(p.k, p.c, p.r, p.s);
    miopenTensorDescriptor_t bd = tensor4d(1, p.k, 1, 1), yd = tensor4d(p.n, p.k, out_h(&p), out_w(&p));
    miopenConvolutionDescriptor_t conv = convolution(&p);
    miopenTensorDescriptor_t doubles;
    miopenFusionPlanDescriptor_t plan;
    miopenFusionOpDescriptor_t op;
    miopenOperatorArgs_t args;
    OK(miopenCreateTensorDescriptor(&doubles));
    OK(miopenSet4dTensorDescriptor(doubles, miopenDouble, 1, 2, 3, 3));
    OK(miopenCreateFusionPlan(&plan, miopenVerticalFusion, doubles));
    OK(miopenCreateOpActivationForward(plan, &op, miopenActivationRELU));
    OK(miopenCreateOperatorArgs(&args));
    OK(miopenSetOpArgsActivForward(args, op, NULL, NULL, 0, 0, 0));
    EXPECT(miopenStatusUnsupportedOp, miopenCompileFusionPlan(handle, plan));
    CHECK(strstr(fuseplanGetLastErrorString(), "f64"));
    double in[18] = {0}, out[18] = {0};
    EXPECT(miopenStatusBadParm, miopenExecuteFusionPlan(handle, plan, doubles, in, doubles, out, args));

    float one = 1, zero = 0;
    size_t workspace = 1;
    int algorithms = 0;
    miopenConvAlgoPerf_t perf;
    OK(miopenConvolutionForwardGetWorkSpaceSize(handle, wd, xd, conv, yd, &workspace));
    void* memory = allocate(workspace);
    OK(miopenFindConvolutionForwardAlgorithm(handle, xd, x, wd, w, conv, yd, y, 1, &algorithms, &perf, memory,
                                             workspace, false));
    CHECK(algorithms == 1 && perf.time >= 0 && perf.memory <= workspace);
    OK(miopenConvolutionForward(handle, &one, xd, x, wd, w, conv, perf.fwd_algo, &zero, yd, y, memory, workspace));
    OK(miopenOpTensor(handle, miopenTensorOpAdd, &one, yd, y, &one, bd, b, &zero, yd, y));
    OK(miopenOpTensor(handle, miopenTensorOpAdd, &one, yd, y, &one, yd, z, &zero, yd, y));
    miopenActivationDescriptor_t relu;
    OK(miopenCreateActivationDescriptor(&relu));
    OK(miopenSetActivationDescriptor(relu, miopenActivationRELU, 0, 0, 0));
    OK(miopenActivationForward(handle, relu, &one, yd, y, &zero, yd, y));
    free(memory);
    OK(miopenDestroyActivationDescriptor(relu));
    OK(miopenDestroyOperatorArgs(args));
    OK(miopenDestroyFusionPlan(plan));
    for (miopenTensorDescriptor_t desc : {xd, wd, bd, yd, doubles}) OK(miopenDestroyTensorDescriptor(desc));
    OK(miopenDestroyConvolutionDescriptor(conv));
}

int main() {
    const shape_t p = {2, 6, 9, 7, 5, 3, 3, 1, 1, 1, 1, 0};
    miopenHandle_t handle;
    OK(miopenCreate(&handle));
    float *x = whole(in_count(&p), 1, 4), *w = whole(filter_count(&p), 2, 3), *b = whole(p.k, 3, 9);
    float* z = whole(out_count(&p), 4, 20);
    for (int with_bias = 0; with_bias < 3; with_bias++) {
        float* y = poisoned(out_count(&p));
        double* expected = oracle_conv(&p, x, w);
        oracle_add(expected, z, out_count(&p));
        if (with_bias) oracle_bias(&p, expected, b);
        oracle_activate(miopenActivationRELU, expected, out_count(&p), 0, 0);
        if (with_bias < 2)
            fused(handle, p, with_bias == 1, x, w, b, z, y);
        else
            refused(handle, p, x, w, b, z, y);
        compare("fused conv with residual", y, expected, out_count(&p), tolerance_of(&p));
        free(y), free(expected);
    }
    free(x), free(w), free(b), free(z);
    OK(miopenDestroy(handle));
}
