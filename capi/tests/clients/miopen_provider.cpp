// In the shape of hipDNN's provider for MIOpen: asks for a convolution's solutions and its range of workspace,
// declares the functions that AMD's header lacks itself, finds the algorithm at the first execution under a tuning
// policy that ends with its scope, trains batch-norm with running statistics in other memory, and runs fused
// plans where a graph has more than one node. Its functions for gradients have to be told that there are none.
#include "client.h"

#include <optional>
#include <vector>

extern "C" {
miopenStatus_t miopenConvolutionForwardGetWorkSpaceSizeRange(miopenHandle_t, const miopenTensorDescriptor_t, const miopenTensorDescriptor_t,
                                                             const miopenConvolutionDescriptor_t, const miopenTensorDescriptor_t, size_t*, size_t*);
miopenStatus_t miopenConvolutionBackwardDataGetWorkSpaceSizeRange(miopenHandle_t, const miopenTensorDescriptor_t, const miopenTensorDescriptor_t,
                                                                  const miopenConvolutionDescriptor_t, const miopenTensorDescriptor_t, size_t*, size_t*);
miopenStatus_t miopenConvolutionBackwardWeightsGetWorkSpaceSizeRange(miopenHandle_t, const miopenTensorDescriptor_t, const miopenTensorDescriptor_t,
                                                                     const miopenConvolutionDescriptor_t, const miopenTensorDescriptor_t, size_t*,
                                                                     size_t*);
}

// The policy of a scope; behind it there is none.
class tuning_t {
public:
    tuning_t(miopenHandle_t handle, bool benchmark) : handle_(handle) {
        miopenTuningPolicy_t wanted = benchmark ? miopenTuningPolicySearchDbUpdate : miopenTuningPolicyNone, found;
        OK(miopenSetTuningPolicy(handle, wanted));
        OK(miopenGetTuningPolicy(handle, &found));
        CHECK(found == wanted);
    }
    tuning_t(const tuning_t&) = delete;
    ~tuning_t() { OK(miopenSetTuningPolicy(handle_, miopenTuningPolicyNone)); }

private:
    miopenHandle_t handle_;
};

struct convolution_plan_t {
    miopenTensorDescriptor_t x, w, y;
    miopenConvolutionDescriptor_t conv;
    bool benchmark;
    size_t least = 77, most = 77, workspace = 77;
    std::optional<miopenConvFwdAlgorithm_t> algorithm;

    convolution_plan_t(miopenHandle_t handle, const shape_t& p, bool benchmarking) : benchmark(benchmarking) {
        int last = p.channels_last;
        auto tensor = [&](int n, int c, int h, int w) { return last ? tensor_nhwc(miopenFloat, n, c, h, w) : tensor4d(n, c, h, w); };
        x = tensor(p.n, p.c, p.h, p.w), w = tensor(p.k, p.c / p.groups, p.r, p.s), y = tensor(p.n, p.k, out_h(&p), out_w(&p));
        conv = convolution(&p);
        size_t solutions = 0;
        OK(miopenConvolutionForwardGetSolutionCount(handle, w, x, conv, y, &solutions));
        CHECK(solutions > 0);
        OK(miopenConvolutionForwardGetWorkSpaceSizeRange(handle, w, x, conv, y, &least, &most));
        OK(miopenConvolutionForwardGetWorkSpaceSize(handle, w, x, conv, y, &workspace));
        CHECK(least <= workspace && workspace <= most);
    }
    convolution_plan_t(const convolution_plan_t&) = delete;
    ~convolution_plan_t() {
        for (miopenTensorDescriptor_t desc : {x, w, y}) OK(miopenDestroyTensorDescriptor(desc));
        OK(miopenDestroyConvolutionDescriptor(conv));
    }

    void execute(miopenHandle_t handle, const float* px, const float* pw, float* py) {
        std::vector<char> memory(workspace);
        void* space = workspace ? memory.data() : nullptr;
        tuning_t guard(handle, benchmark);
        if (!algorithm) {
            std::vector<miopenConvAlgoPerf_t> results(10);
            int count = 0;
            OK(miopenFindConvolutionForwardAlgorithm(handle, x, px, w, pw, conv, y, py, 10, &count, results.data(), space, workspace, false));
            CHECK(count > 0 && results[0].memory <= most && results[0].time >= 0);
            algorithm = results[0].fwd_algo;
        }
        float alpha = 1, beta = 0;
        OK(miopenConvolutionForward(handle, &alpha, x, px, w, pw, conv, *algorithm, &beta, y, py, space, workspace));
    }
};

static void convolutions(miopenHandle_t handle) {
    const shape_t shapes[] = {{2, 8, 9, 9, 12, 3, 3, 1, 2, 1, 1, 0}, {2, 8, 9, 9, 12, 3, 3, 1, 1, 1, 4, 1}, {1, 6, 7, 5, 10, 1, 1, 0, 1, 1, 1, 1}};
    for (const shape_t& p : shapes)
        for (bool benchmark : {false, true}) {
            convolution_plan_t plan(handle, p, benchmark);
            float *x = whole(in_count(&p), 1, 4), *w = whole(filter_count(&p), 2, 3), *y = poisoned(out_count(&p));
            double* expected = oracle_conv(&p, x, w);
            for (int run = 0; run < 2; run++) {
                memset(y, 0xff, out_count(&p) * sizeof(float));
                plan.execute(handle, x, w, y);
                compare("convolution", y, expected, out_count(&p), tolerance_of(&p));
            }
            free(x), free(w), free(y), free(expected);
        }
}

// What the provider asks before it offers an engine for gradients.
static void gradients(miopenHandle_t handle) {
    const shape_t p = {1, 4, 5, 5, 4, 3, 3, 1, 1, 1, 1, 0};
    convolution_plan_t plan(handle, p, false);
    size_t count = 5, least = 6, most = 7;
    REFUSED(miopenConvolutionBackwardDataGetSolutionCount(handle, plan.y, plan.w, plan.conv, plan.x, &count));
    REFUSED(miopenConvolutionBackwardWeightsGetSolutionCount(handle, plan.y, plan.x, plan.conv, plan.w, &count));
    EXPECT(miopenStatusNotImplemented, miopenConvolutionBackwardDataGetWorkSpaceSizeRange(handle, plan.y, plan.w, plan.conv, plan.x, &least, &most));
    EXPECT(miopenStatusNotImplemented, miopenConvolutionBackwardWeightsGetWorkSpaceSizeRange(handle, plan.y, plan.x, plan.conv, plan.w, &least, &most));
    CHECK(count == 5 && least == 6 && most == 7);
    // Who does not implement it, and where the list is.
    const char* reason = fuseplanGetLastErrorString();
    CHECK(strstr(reason, "fuseplan") && strstr(reason, "docs/migrating-from-miopen.md") && strstr(reason, "miopen/unimplemented.h"));
    miopenTensorDescriptor_t other = tensor4d(1, 4, 6, 5);
    EXPECT(miopenStatusBadParm, miopenConvolutionForwardGetWorkSpaceSizeRange(handle, plan.w, plan.x, plan.conv, other, &least, &most));
    CHECK(least == 6 && most == 7);
    OK(miopenDestroyTensorDescriptor(other));
    // A policy that does not exist changes nothing.
    miopenTuningPolicy_t policy;
    EXPECT(miopenStatusBadParm, miopenSetTuningPolicy(handle, (miopenTuningPolicy_t)0));
    EXPECT(miopenStatusBadParm, miopenSetTuningPolicy(handle, (miopenTuningPolicy_t)6));
    OK(miopenGetTuningPolicy(handle, &policy));
    CHECK(policy == miopenTuningPolicyNone);
}

// Training with an activation and running statistics, then inference with the inverse variance that was saved.
static void batch_norms(miopenHandle_t handle) {
    enum { N = 3, C = 5, IMAGE = 4 * 6, COUNT = N * C * IMAGE };
    const double epsilon = 1e-5, factor = 0.1, per = N * IMAGE;
    float *x = whole(COUNT, 1, 9), *scale = positive(C, 2), *shift = whole(C, 3, 3), *y = poisoned(COUNT);
    float *before_mean = whole(C, 4, 2), *before_variance = positive(C, 5), *after_mean = poisoned(C), *after_variance = poisoned(C);
    float *saved = poisoned(C), *inverse = poisoned(C);
    double mean[C] = {}, variance[C] = {}, expected[COUNT], clipped[COUNT], next[C];
    auto at = [](int i) { return i / IMAGE % C; };
    for (int i = 0; i < COUNT; i++) mean[at(i)] += x[i] / per;
    for (int i = 0; i < COUNT; i++) variance[at(i)] += (x[i] - mean[at(i)]) * (x[i] - mean[at(i)]) / per;
    for (int i = 0; i < COUNT; i++) {
        expected[i] = scale[at(i)] * (x[i] - mean[at(i)]) / sqrt(variance[at(i)] + epsilon) + shift[at(i)];
        clipped[i] = expected[i] > 0 ? expected[i] : 0;
    }
    miopenTensorDescriptor_t xd = tensor4d(N, C, 4, 6), bn = tensor4d(1, C, 1, 1);
    miopenActivationDescriptor_t relu;
    OK(miopenCreateActivationDescriptor(&relu));
    OK(miopenSetActivationDescriptor(relu, miopenActivationRELU, 0, 0, 0));
    float alpha = 1, beta = 0;
    {
        tuning_t guard(handle, true);
        OK(miopenBatchNormForwardTrainingActivation_V2(handle, miopenBNSpatial, &alpha, &beta, xd, x, xd, y, bn, bn, bn, bn, scale, shift, factor,
                                                       before_mean, before_variance, after_mean, after_variance, epsilon, saved, inverse, relu));
    }
    compare("training and activation", y, clipped, COUNT, 1e-5);
    for (int i = 0; i < C; i++) next[i] = (1 - factor) * before_mean[i] + factor * mean[i];
    compare("running mean", after_mean, next, C, 1e-6);
    for (int i = 0; i < C; i++) next[i] = (1 - factor) * before_variance[i] + factor * variance[i] * per / (per - 1);
    compare("running variance", after_variance, next, C, 1e-5);
    memset(after_mean, 0xff, C * sizeof(float)), memset(y, 0xff, COUNT * sizeof(float));
    OK(miopenBatchNormalizationForwardTraining_V3(handle, miopenBNSpatial, &alpha, &beta, xd, x, xd, y, bn, bn, bn, bn, scale, shift, factor,
                                                  before_mean, before_variance, after_mean, after_variance, epsilon, saved, inverse));
    compare("training", y, expected, COUNT, 1e-5);
    memset(y, 0xff, COUNT * sizeof(float));
    OK(miopenBatchNormalizationForwardInferenceInvVariance(handle, miopenBNSpatial, &alpha, &beta, xd, x, xd, y, bn, bn, bn, bn, scale, shift, saved,
                                                           inverse));
    compare("inference by what was saved", y, expected, COUNT, 1e-5);
    OK(miopenDestroyActivationDescriptor(relu));
    for (miopenTensorDescriptor_t desc : {xd, bn}) OK(miopenDestroyTensorDescriptor(desc));
    free(x), free(scale), free(shift), free(y), free(before_mean), free(before_variance), free(after_mean), free(after_variance);
    free(saved), free(inverse);
}

// A graph of three nodes: convolution, bias, activation.
static void fused(miopenHandle_t handle) {
    const shape_t p = {2, 8, 6, 7, 5, 3, 3, 1, 1, 1, 1, 1};
    convolution_plan_t one(handle, p, false);
    miopenTensorDescriptor_t bd = tensor_nhwc(miopenFloat, 1, p.k, 1, 1);
    miopenFusionPlanDescriptor_t plan;
    miopenFusionOpDescriptor_t conv, bias, act;
    miopenOperatorArgs_t args;
    OK(miopenCreateFusionPlan(&plan, miopenVerticalFusion, one.x));
    OK(miopenCreateOpConvForward(plan, &conv, one.conv, one.w));
    OK(miopenCreateOpBiasForward(plan, &bias, bd));
    OK(miopenCreateOpActivationForward(plan, &act, miopenActivationCLAMP));
    OK(miopenCompileFusionPlan(handle, plan));
    size_t workspace = 99;
    OK(miopenFusionPlanGetWorkSpaceSize(handle, plan, &workspace, miopenConvolutionFwdAlgoDirect));
    std::vector<char> memory(workspace);
    float *x = whole(in_count(&p), 1, 4), *w = whole(filter_count(&p), 2, 3), *b = whole(p.k, 3, 9), *y = poisoned(out_count(&p));
    OK(miopenCreateOperatorArgs(&args));
    OK(miopenSetOpArgsConvForward(args, conv, nullptr, nullptr, w));
    OK(miopenSetOpArgsBiasForward(args, bias, nullptr, nullptr, b));
    OK(miopenSetOpArgsActivForward(args, act, nullptr, nullptr, -7, 9, 0));
    OK(miopenExecuteFusionPlan_v2(handle, plan, one.x, x, one.y, y, args, memory.data(), workspace));
    double* expected = oracle_conv(&p, x, w);
    oracle_bias(&p, expected, b);
    oracle_activate(miopenActivationCLAMP, expected, out_count(&p), -7, 9);
    compare("fused", y, expected, out_count(&p), tolerance_of(&p));
    OK(miopenDestroyOperatorArgs(args));
    OK(miopenDestroyFusionPlan(plan));
    OK(miopenDestroyTensorDescriptor(bd));
    free(x), free(w), free(b), free(y), free(expected);
}

int main() {
    miopenHandle_t handle;
    OK(miopenCreate(&handle));
    OK(miopenSetStream(handle, nullptr));
    convolutions(handle);
    gradients(handle);
    batch_norms(handle);
    fused(handle);
    OK(miopenDestroy(handle));
}
