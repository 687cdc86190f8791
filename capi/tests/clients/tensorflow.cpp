// In the shape of TensorFlow's stream executor: every function looked up by name, an allocator on the handle,
// a process-wide cache of plans keyed by what descriptors tell, operators fetched by index for each run,
// descriptors made anew; and the training plans.
#include <dlfcn.h>

#include <map>
#include <vector>

#include "client.h"

#define LOOKUP(name) static const auto call_##name = (decltype(&name))dlsym(RTLD_DEFAULT, #name)

static int blocks = 0;
static void* take(void*, size_t bytes) { return blocks++, malloc(bytes); }
static void give(void*, void* memory) { blocks--, free(memory); }

static std::vector<int> describe(miopenTensorDescriptor_t desc) {
    LOOKUP(miopenGetTensorDescriptor);
    miopenDataType_t type;
    std::vector<int> key(10, 0);
    OK(call_miopenGetTensorDescriptor(desc, &type, key.data(), key.data() + 5));
    key.push_back(type);
    return key;
}

// Conv, bias, activation by way of the cache; `mode` PASTHRU is left out of the plan.
static void conv_bias_activation(miopenHandle_t handle, const shape_t& p, miopenActivationMode_t mode,
                                 const float* x, const float* w, const float* b, float* y) {
    LOOKUP(miopenCreateFusionPlan);
    LOOKUP(miopenCreateOpConvForward);
    LOOKUP(miopenCreateOpBiasForward);
    LOOKUP(miopenCreateOpActivationForward);
    LOOKUP(miopenCompileFusionPlan);
    LOOKUP(miopenFusionPlanGetOp);
    LOOKUP(miopenSetOpArgsConvForward);
    LOOKUP(miopenSetOpArgsBiasForward);
    LOOKUP(miopenSetOpArgsActivForward);
    LOOKUP(miopenExecuteFusionPlan);
    static std::map<std::vector<int>, miopenFusionPlanDescriptor_t> cache;

    miopenTensorDescriptor_t xd = tensor4d(p.n, p.c, p.h, p.w), wd = tensor4d(p.k, p.c, p.r, p.s);
    miopenTensorDescriptor_t bd = tensor4d(1, p.k, 1, 1), yd = tensor4d(p.n, p.k, out_h(&p), out_w(&p));
    miopenConvolutionDescriptor_t conv = convolution(&p);
    miopenConvolutionMode_t conv_mode;
    std::vector<int> key = describe(xd), numbers(6), filter = describe(wd);
    OK(miopenGetConvolutionDescriptor(conv, &conv_mode, &numbers[0], &numbers[1], &numbers[2], &numbers[3],
                                      &numbers[4], &numbers[5]));
    key.insert(key.end(), filter.begin(), filter.end());
    key.insert(key.end(), numbers.begin(), numbers.end());
    key.push_back(mode);
    if (!cache.count(key)) {
        miopenFusionPlanDescriptor_t plan;
        miopenFusionOpDescriptor_t op;
        OK(call_miopenCreateFusionPlan(&plan, miopenVerticalFusion, xd));
        OK(call_miopenCreateOpConvForward(plan, &op, conv, wd));
        OK(call_miopenCreateOpBiasForward(plan, &op, bd));
        if (mode != miopenActivationPASTHRU) OK(call_miopenCreateOpActivationForward(plan, &op, mode));
        OK(call_miopenCompileFusionPlan(handle, plan));
        cache[key] = plan;
    }
    miopenFusionPlanDescriptor_t plan = cache[key];
    miopenOperatorArgs_t args;
    miopenFusionOpDescriptor_t op;
    float alpha = 1, beta = 0;
    OK(miopenCreateOperatorArgs(&args));
    OK(call_miopenFusionPlanGetOp(plan, 0, &op));
    OK(call_miopenSetOpArgsConvForward(args, op, &alpha, &beta, w));
    OK(call_miopenFusionPlanGetOp(plan, 1, &op));
    OK(call_miopenSetOpArgsBiasForward(args, op, &alpha, &beta, b));
    if (mode != miopenActivationPASTHRU) {
        OK(call_miopenFusionPlanGetOp(plan, 2, &op));
        // TensorFlow's Relu6: RELU with alpha 6, which clips nothing.
        OK(call_miopenSetOpArgsActivForward(args, op, &alpha, &beta, 6.0, 0.5, 0.0));
    } else {
        miopenFusionOpDescriptor_t kept = op;
        REFUSED(call_miopenFusionPlanGetOp(plan, 2, &op));
        CHECK(op == kept);
    }
    OK(call_miopenExecuteFusionPlan(handle, plan, xd, x, yd, y, args));
    OK(miopenDestroyOperatorArgs(args));
    for (miopenTensorDescriptor_t desc : {xd, wd, bd, yd}) OK(miopenDestroyTensorDescriptor(desc));
    OK(miopenDestroyConvolutionDescriptor(conv));
}

// Spatial statistics over n and the image, in double.
struct Statistics {
    std::vector<double> mean, variance;
    Statistics(const shape_t& p, const float* x) : mean(p.c), variance(p.c) {
        const int image = p.h * p.w, count = p.n * image;
        for (int c = 0; c < p.c; c++) {
            for (int i = 0; i < count; i++) mean[c] += x[(i / image * p.c + c) * image + i % image];
            mean[c] /= count;
            for (int i = 0; i < count; i++) {
                double d = x[(i / image * p.c + c) * image + i % image] - mean[c];
                variance[c] += d * d / count;
            }
        }
    }
};

// Forward training with an activation, then the gradient of both.
static void train(miopenHandle_t handle, const shape_t& p) {
    const size_t count = in_count(&p), image = (size_t)p.h * p.w;
    const double epsilon = 1e-5, per_channel = (double)p.n * image;
    float *x = whole(count, 11, 6), *scale = positive(p.c, 12), *shift = whole(p.c, 13, 2), *dy = whole(count, 14, 3);
    float *y = poisoned(count), *dx = poisoned(count), *scale_diff = poisoned(p.c), *shift_diff = poisoned(p.c);
    float *mean = poisoned(p.c), *inverse = poisoned(p.c), *running_mean = whole(p.c, 1, 0), *running_variance = whole(p.c, 1, 0);
    miopenTensorDescriptor_t xd = tensor4d(p.n, p.c, p.h, p.w);
    Statistics of(p, x);
    float alpha = 1, beta = 0;

    miopenFusionPlanDescriptor_t forward, backward;
    miopenFusionOpDescriptor_t bn, act;
    miopenOperatorArgs_t args;
    OK(miopenCreateFusionPlan(&forward, miopenVerticalFusion, xd));
    OK(miopenCreateOpBatchNormForward(forward, &bn, miopenBNSpatial, true));
    OK(miopenCreateOpActivationForward(forward, &act, miopenActivationRELU));
    OK(miopenCompileFusionPlan(handle, forward));
    OK(miopenCreateOperatorArgs(&args));
    EXPECT(miopenStatusBadParm, miopenSetOpArgsBatchNormForward(args, bn, &alpha, &beta, scale, shift, mean, inverse,
                                                                NULL, running_variance, 1.0, epsilon));
    OK(miopenSetOpArgsBatchNormForward(args, bn, &alpha, &beta, scale, shift, mean, inverse, running_mean,
                                       running_variance, 1.0, epsilon));
    OK(miopenSetOpArgsActivForward(args, act, &alpha, &beta, 0, 0, 0));
    OK(miopenExecuteFusionPlan(handle, forward, xd, x, xd, y, args));
    std::vector<double> expected(count), normal(count), saved(p.c), unbiased(p.c);
    for (size_t i = 0; i < count; i++) {
        int c = i / image % p.c;
        saved[c] = 1 / sqrt(of.variance[c] + epsilon);
        unbiased[c] = of.variance[c] * per_channel / (per_channel - 1);
        normal[i] = (x[i] - of.mean[c]) * saved[c];
        expected[i] = oracle_activation(miopenActivationRELU, scale[c] * normal[i] + shift[c], 0, 0);
    }
    compare("forward training", y, expected.data(), count, 1e-5);
    compare("saved mean", mean, of.mean.data(), p.c, 1e-6);
    compare("saved inverse variance", inverse, saved.data(), p.c, 1e-5);
    compare("running mean", running_mean, of.mean.data(), p.c, 1e-6);
    compare("running variance", running_variance, unbiased.data(), p.c, 1e-5);
    OK(miopenDestroyOperatorArgs(args));

    OK(miopenCreateFusionPlan(&backward, miopenVerticalFusion, xd));
    OK(miopenCreateOpBatchNormBackward(backward, &bn, miopenBNSpatial));
    OK(miopenCreateOpActivationBackward(backward, &act, miopenActivationRELU));
    OK(miopenCompileFusionPlan(handle, backward));
    OK(miopenCreateOperatorArgs(&args));
    OK(miopenSetOpArgsBatchNormBackward(args, bn, &alpha, &beta, x, scale, shift, scale_diff, shift_diff, mean,
                                        inverse));
    OK(miopenSetOpArgsActivBackward(args, act, &alpha, &beta, y, NULL, 0, 0, 0));
    OK(miopenExecuteFusionPlan(handle, backward, xd, dy, xd, dx, args));
    std::vector<double> gamma_diff(p.c), beta_diff(p.c), inner(count);
    for (size_t i = 0; i < count; i++) {
        int c = i / image % p.c;
        inner[i] = scale[c] * normal[i] + shift[c] > 0 ? dy[i] : 0;
        gamma_diff[c] += inner[i] * normal[i];
        beta_diff[c] += inner[i];
    }
    for (size_t i = 0; i < count; i++) {
        int c = i / image % p.c;
        expected[i] = scale[c] * saved[c] * (inner[i] - (beta_diff[c] + normal[i] * gamma_diff[c]) / per_channel);
    }
    compare("dx", dx, expected.data(), count, 2e-5);
    compare("gradient of scale", scale_diff, gamma_diff.data(), p.c, 2e-5);
    compare("gradient of bias", shift_diff, beta_diff.data(), p.c, 2e-5);

    OK(miopenDestroyOperatorArgs(args));
    OK(miopenDestroyFusionPlan(forward));
    OK(miopenDestroyFusionPlan(backward));
    OK(miopenDestroyTensorDescriptor(xd));
    for (float* memory : {x, scale, shift, dy, y, dx, scale_diff, shift_diff, mean, inverse, running_mean, running_variance})
        free(memory);
}

int main() {
    const shape_t shapes[] = {{2, 6, 9, 7, 4, 3, 3, 1, 1, 1, 1, 0}, {1, 3, 12, 12, 8, 5, 5, 2, 2, 1, 1, 0}};
    miopenHandle_t handle;
    OK(miopenCreateWithStream(&handle, nullptr));
    OK(miopenSetAllocator(handle, take, give, nullptr));
    for (int round = 0; round < 3; round++)
        for (const shape_t& p : shapes)
            for (miopenActivationMode_t mode : {miopenActivationRELU, miopenActivationTANH, miopenActivationLEAKYRELU, miopenActivationPASTHRU}) {
                float *x = whole(in_count(&p), round, 4), *w = whole(filter_count(&p), round + 1, 3), *b = whole(p.k, 5, 9);
                float* y = poisoned(out_count(&p));
                double* expected = oracle_conv(&p, x, w);
                oracle_bias(&p, expected, b);
                oracle_activate(mode, expected, out_count(&p), 6.0, 0.5);
                conv_bias_activation(handle, p, mode, x, w, b, y);
                compare("conv, bias, activation", y, expected, out_count(&p),
                        fmax(tolerance_of(&p), mode == miopenActivationTANH ? 1e-6 : 0));
                free(x), free(w), free(b), free(y), free(expected);
            }
    train(handle, shape_t{4, 5, 6, 7, 1, 1, 1, 0, 1, 1, 1, 0});
    CHECK(blocks == 0);
    OK(miopenDestroy(handle));
}
