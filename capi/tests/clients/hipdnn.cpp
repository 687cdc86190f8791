// In the shape of hipDNN's provider: a throw-away plan asks whether a graph can run, alpha and beta are NULL,
// the workspace size is asked after the compile, execution takes it. And MIGraphX's questions before it.
#include "client.h"

static miopenFusionPlanDescriptor_t build(const shape_t& p, miopenActivationMode_t mode, miopenFusionOpDescriptor_t* ops) {
    miopenTensorDescriptor_t xd = tensor_nhwc(miopenFloat, p.n, p.c, p.h, p.w);
    miopenTensorDescriptor_t wd = tensor_nhwc(miopenFloat, p.k, p.c / p.groups, p.r, p.s);
    miopenTensorDescriptor_t bd = tensor4d(1, p.k, 1, 1);
    miopenConvolutionDescriptor_t conv = convolution(&p);
    miopenFusionPlanDescriptor_t plan;
    OK(miopenCreateFusionPlan(&plan, miopenVerticalFusion, xd));
    OK(miopenCreateOpConvForward(plan, &ops[0], conv, wd));
    OK(miopenCreateOpBiasForward(plan, &ops[1], bd));
    OK(miopenCreateOpActivationForward(plan, &ops[2], mode));
    for (miopenTensorDescriptor_t desc : {xd, wd, bd}) OK(miopenDestroyTensorDescriptor(desc));
    OK(miopenDestroyConvolutionDescriptor(conv));
    return plan;
}

int main() {
    const shape_t p = {2, 8, 9, 9, 12, 3, 3, 1, 2, 1, 4, 1};
    miopenHandle_t handle;
    OK(miopenCreate(&handle));
    float *x = whole(in_count(&p), 1, 4), *w = whole(filter_count(&p), 2, 3), *b = whole(p.k, 3, 9);
    miopenTensorDescriptor_t xd = tensor_nhwc(miopenFloat, p.n, p.c, p.h, p.w);
    miopenTensorDescriptor_t yd = tensor_nhwc(miopenFloat, p.n, p.k, out_h(&p), out_w(&p));
    const miopenActivationMode_t modes[] = {miopenActivationRELU, miopenActivationCLIPPEDRELU, miopenActivationCLAMP};
    for (miopenActivationMode_t mode : modes) {
        double a = mode == miopenActivationCLAMP ? -5 : 6, c = 11;
        miopenFusionOpDescriptor_t ops[3];
        miopenFusionPlanDescriptor_t plan = build(p, mode, ops);
        OK(miopenCompileFusionPlan(handle, plan));
        OK(miopenDestroyFusionPlan(plan));

        plan = build(p, mode, ops);
        int count = 0;
        miopenConvFwdAlgorithm_t algorithms[8];
        size_t before = 99, after = 99;
        OK(miopenFusionPlanConvolutionGetAlgo(plan, 8, &count, algorithms));
        CHECK(count == 2 && algorithms[0] == miopenConvolutionFwdAlgoDirect);
        OK(miopenFusionPlanConvolutionGetAlgo(plan, 1, &count, algorithms));
        CHECK(count == 1);
        OK(miopenFusionPlanConvolutionSetAlgo(plan, algorithms[0]));
        OK(miopenFusionPlanGetWorkSpaceSize(handle, plan, &before, algorithms[0]));
        OK(miopenCompileFusionPlan(handle, plan));
        OK(miopenFusionPlanGetWorkSpaceSize(handle, plan, &after, (miopenConvFwdAlgorithm_t)-1));
        CHECK(before == after);

        miopenOperatorArgs_t args;
        float* y = poisoned(out_count(&p));
        void* workspace = after ? allocate(after) : nullptr;
        OK(miopenCreateOperatorArgs(&args));
        OK(miopenSetOpArgsConvForward(args, ops[0], nullptr, nullptr, w));
        OK(miopenSetOpArgsBiasForward(args, ops[1], nullptr, nullptr, b));
        OK(miopenSetOpArgsActivForward(args, ops[2], nullptr, nullptr, a, c, 0));
        if (after)
            EXPECT(miopenStatusBadParm, miopenExecuteFusionPlan_v2(handle, plan, xd, x, yd, y, args, workspace, after - 1));
        OK(miopenExecuteFusionPlan_v2(handle, plan, xd, x, yd, y, args, workspace, after));
        double* expected = oracle_conv(&p, x, w);
        oracle_bias(&p, expected, b);
        oracle_activate(mode, expected, out_count(&p), a, c);
        compare("grouped C B A", y, expected, out_count(&p), tolerance_of(&p));
        OK(miopenDestroyOperatorArgs(args));
        OK(miopenDestroyFusionPlan(plan));
        free(y), free(workspace), free(expected);
    }
    for (miopenTensorDescriptor_t desc : {xd, yd}) OK(miopenDestroyTensorDescriptor(desc));
    OK(miopenDestroy(handle));
    free(x), free(w), free(b);
}
