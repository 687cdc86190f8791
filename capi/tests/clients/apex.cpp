// In the shape of apex's fused conv-bias-relu: NCHW or NHWC by the memory format, a bias descriptor that has
// the input's channels by mistake, descriptors destroyed right after the compile, new ones for each run.
#include "client.h"

static miopenTensorDescriptor_t describe(bool last, int n, int c, int h, int w) {
    if (!last) return tensor4d(n, c, h, w);
    const int lens[4] = {n, c, h, w}, strides[4] = {c * h * w, 1, w * c, c};
    miopenTensorDescriptor_t desc;
    OK(miopenCreateTensorDescriptor(&desc));
    OK(miopenSetTensorDescriptor(desc, miopenFloat, 4, lens, strides));
    return desc;
}

static void run(miopenHandle_t handle, const shape_t& p) {
    const bool last = p.channels_last;
    float *x = whole(in_count(&p), 21, 4), *w = whole(filter_count(&p), 22, 3), *b = whole(p.k, 23, 9);
    double* expected = oracle_conv(&p, x, w);
    oracle_bias(&p, expected, b);
    oracle_activate(miopenActivationRELU, expected, out_count(&p), 0, 0);

    miopenTensorDescriptor_t xd = describe(last, p.n, p.c, p.h, p.w), wd = describe(last, p.k, p.c, p.r, p.s);
    miopenTensorDescriptor_t bd = describe(last, 1, p.c, 1, 1);
    miopenConvolutionDescriptor_t conv = convolution(&p);
    miopenFusionPlanDescriptor_t plan;
    miopenFusionOpDescriptor_t ops[3];
    OK(miopenCreateFusionPlan(&plan, miopenVerticalFusion, xd));
    OK(miopenCreateOpConvForward(plan, &ops[0], conv, wd));
    OK(miopenCreateOpBiasForward(plan, &ops[1], bd));
    OK(miopenCreateOpActivationForward(plan, &ops[2], miopenActivationRELU));
    OK(miopenCompileFusionPlan(handle, plan));
    for (miopenTensorDescriptor_t desc : {xd, wd, bd}) OK(miopenDestroyTensorDescriptor(desc));
    OK(miopenDestroyConvolutionDescriptor(conv));

    for (int round = 0; round < 2; round++) {
        float alpha = 1, beta = 0, *y = poisoned(out_count(&p));
        miopenOperatorArgs_t args;
        xd = describe(last, p.n, p.c, p.h, p.w);
        miopenTensorDescriptor_t yd = describe(last, p.n, p.k, out_h(&p), out_w(&p));
        OK(miopenCreateOperatorArgs(&args));
        OK(miopenSetOpArgsConvForward(args, ops[0], &alpha, &beta, w));
        OK(miopenSetOpArgsBiasForward(args, ops[1], &alpha, &beta, b));
        OK(miopenSetOpArgsActivForward(args, ops[2], &alpha, &beta, 0, 0, 0));
        OK(miopenExecuteFusionPlan(handle, plan, xd, x, yd, y, args));
        compare(last ? "NHWC" : "NCHW", y, expected, out_count(&p), tolerance_of(&p));
        OK(miopenDestroyOperatorArgs(args));
        for (miopenTensorDescriptor_t desc : {xd, yd}) OK(miopenDestroyTensorDescriptor(desc));
        free(y);
    }
    OK(miopenDestroyFusionPlan(plan));
    free(x), free(w), free(b), free(expected);
}

int main() {
    miopenHandle_t handle;
    OK(miopenCreate(&handle));
    for (int last = 0; last < 2; last++) {
        run(handle, shape_t{2, 6, 9, 7, 5, 3, 3, 1, 1, 1, 1, last});
        run(handle, shape_t{2, 16, 14, 14, 24, 1, 1, 0, 2, 1, 1, last});
    }
    OK(miopenDestroy(handle));
}
