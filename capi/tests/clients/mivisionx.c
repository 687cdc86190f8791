/*
 * In the shape of MIVisionX's convolution layer: arguments are set before the plan is compiled, the leaky
 * slope is handed over as beta, and alpha and beta of the operators are doubles, as in MIOpen's own tests.
 */
#include "client.h"

int main(void) {
    shape_t p = {1, 8, 12, 10, 6, 3, 3, 1, 1, 1, 1, 0};
    miopenHandle_t handle;
    miopenFusionPlanDescriptor_t plan;
    miopenFusionOpDescriptor_t conv_op, bias_op, act_op, got;
    miopenOperatorArgs_t args;
    miopenTensorDescriptor_t xd = tensor4d(p.n, p.c, p.h, p.w), wd = tensor4d(p.k, p.c, p.r, p.s);
    miopenTensorDescriptor_t bd = tensor4d(1, p.k, 1, 1), yd = tensor4d(p.n, p.k, out_h(&p), out_w(&p));
    miopenConvolutionDescriptor_t conv = convolution(&p);
    float *x = whole(in_count(&p), 1, 4), *w = whole(filter_count(&p), 2, 3), *b = whole(6, 3, 9);
    float *stale = whole(6, 4, 9), *y = poisoned(out_count(&p));
    double one = 1, zero = 0, slope = 0.125, *expected = oracle_conv(&p, x, w);

    OK(miopenCreate(&handle));
    OK(miopenCreateFusionPlan(&plan, miopenVerticalFusion, xd));
    OK(miopenCreateOperatorArgs(&args));
    OK(miopenCreateOpConvForward(plan, &conv_op, conv, wd));
    OK(miopenCreateOpBiasForward(plan, &bias_op, bd));
    OK(miopenCreateOpActivationForward(plan, &act_op, miopenActivationLEAKYRELU));
    OK(miopenSetOpArgsActivForward(args, act_op, &one, &zero, slope, 0, 0));
    OK(miopenSetOpArgsBiasForward(args, bias_op, &one, &zero, stale));
    OK(miopenSetOpArgsBiasForward(args, bias_op, &one, &zero, b));
    OK(miopenSetOpArgsConvForward(args, conv_op, &one, &zero, w));
    EXPECT(miopenStatusBadParm, miopenExecuteFusionPlan(handle, plan, xd, x, yd, y, args));
    OK(miopenCompileFusionPlan(handle, plan));
    OK(miopenExecuteFusionPlan(handle, plan, xd, x, yd, y, args));
    oracle_bias(&p, expected, b);
    oracle_activate(miopenActivationLEAKYRELU, expected, out_count(&p), slope, 0);
    compare("C B A", y, expected, out_count(&p), tolerance_of(&p));

    /* An operator appended after the compile undoes it; the new plan runs with the old arguments and one more. */
    OK(miopenCreateOpActivationForward(plan, &got, miopenActivationABS));
    EXPECT(miopenStatusBadParm, miopenExecuteFusionPlan(handle, plan, xd, x, yd, y, args));
    OK(miopenCompileFusionPlan(handle, plan));
    EXPECT(miopenStatusBadParm, miopenExecuteFusionPlan(handle, plan, xd, x, yd, y, args));
    CHECK(strstr(fuseplanGetLastErrorString(), "operator 3"));
    OK(miopenSetOpArgsActivForward(args, got, NULL, NULL, 0, 0, 0));
    OK(miopenExecuteFusionPlan(handle, plan, xd, x, yd, y, args));
    for (size_t i = 0; i < out_count(&p); i++) expected[i] = fabs(expected[i]);
    compare("C B A A", y, expected, out_count(&p), tolerance_of(&p));

    OK(miopenDestroyFusionPlan(plan));
    OK(miopenDestroyOperatorArgs(args));
    OK(miopenDestroyConvolutionDescriptor(conv));
    OK(miopenDestroyTensorDescriptor(xd));
    OK(miopenDestroyTensorDescriptor(wd));
    OK(miopenDestroyTensorDescriptor(bd));
    OK(miopenDestroyTensorDescriptor(yd));
    OK(miopenDestroy(handle));
    free(x), free(w), free(b), free(stale), free(y), free(expected);
    return 0;
}
