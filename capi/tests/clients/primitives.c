/* Single operators against their formulas: what programs fall back to where a plan is refused. */
#include "client.h"

static shape_t shape = {2, 6, 9, 7, 5, 3, 3, 1, 1, 1, 1, 0};
static miopenHandle_t handle;

/* Every layout helper, alpha and beta of a convolution, the immediate calls, the bias behind it. */
static void convolutions(void) {
    const shape_t* p = &shape;
    float alpha = 2, beta = 0.5f, one = 1, zero = 0;
    float *x = whole(in_count(p), 1, 4), *w = whole(filter_count(p), 2, 3), *b = whole(5, 3, 9);
    float *prior = whole(out_count(p), 4, 8), *y = whole(out_count(p), 4, 8);
    double* expected = oracle_conv(p, x, w);
    double* sum = (double*)allocate(out_count(p) * sizeof(double));
    miopenTensorDescriptor_t xd = tensor4d(p->n, p->c, p->h, p->w), wd = tensor4d(p->k, p->c, p->r, p->s);
    miopenTensorDescriptor_t yd = tensor4d(p->n, p->k, out_h(p), out_w(p)), bd = tensor4d(1, p->k, 1, 1);
    miopenTensorDescriptor_t other = tensor4d(p->n, p->k, out_h(p) + 1, out_w(p));
    miopenConvolutionDescriptor_t conv = convolution(p);
    miopenConvSolution_t solution;
    size_t count = 0, workspace = 99;

    for (size_t i = 0; i < out_count(p); i++) sum[i] = alpha * expected[i] + beta * (double)prior[i];
    OK(miopenConvolutionForward(handle, &alpha, xd, x, wd, w, conv, miopenConvolutionFwdAlgoGEMM, &beta, yd, y, NULL, 0));
    compare("alpha and beta", y, sum, out_count(p), tolerance_of(p));

    OK(miopenConvolutionForwardGetSolutionCount(handle, wd, xd, conv, yd, &count));
    CHECK(count == 1);
    OK(miopenConvolutionForwardGetSolution(handle, wd, xd, conv, yd, 4, &count, &solution));
    CHECK(count == 1 && solution.solution_id != 0);
    OK(miopenConvolutionForwardGetSolutionWorkspaceSize(handle, wd, xd, conv, yd, solution.solution_id, &workspace));
    CHECK(workspace == solution.workspace_size);
    OK(miopenConvolutionForwardCompileSolution(handle, wd, xd, conv, yd, solution.solution_id));
    OK(miopenConvolutionForwardImmediate(handle, wd, w, xd, x, conv, yd, y, NULL, 0, solution.solution_id));
    compare("immediate", y, expected, out_count(p), tolerance_of(p));
    REFUSED(miopenConvolutionForwardImmediate(handle, wd, w, xd, x, conv, yd, y, NULL, 0, 77));
    EXPECT(miopenStatusBadParm, miopenConvolutionForwardGetSolutionCount(handle, wd, xd, conv, other, &count));

    OK(miopenConvolutionForwardBias(handle, &one, bd, b, &zero, yd, y));
    oracle_bias(p, expected, b);
    compare("bias", y, expected, out_count(p), tolerance_of(p));

    OK(miopenDestroyConvolutionDescriptor(conv));
    OK(miopenDestroyTensorDescriptor(xd));
    OK(miopenDestroyTensorDescriptor(wd));
    OK(miopenDestroyTensorDescriptor(yd));
    OK(miopenDestroyTensorDescriptor(bd));
    OK(miopenDestroyTensorDescriptor(other));
    free(x), free(w), free(b), free(prior), free(y), free(expected), free(sum);
}

static void tensors(void) {
    int strides[4] = {100, 30, 7, 1};
    float alpha = 2, beta = -1, one = 1, zero = 0, value = 3, big[200], packed[120], nhwc[120], b[3] = {10, 20, 30};
    double expected[120];
    miopenTensorDescriptor_t gaps, dense = tensor4d(2, 3, 4, 5), last = tensor_nhwc(miopenFloat, 2, 3, 4, 5);
    miopenTensorDescriptor_t channel = tensor4d(1, 3, 1, 1), image = tensor4d(2, 1, 4, 5);
    size_t bytes = 0;
    float* a = whole(120, 1, 9);

    OK(miopenCreateTensorDescriptor(&gaps));
    OK(miopenSet4dTensorDescriptorEx(gaps, miopenFloat, 2, 3, 4, 5, strides[0], strides[1], strides[2], strides[3]));
    OK(miopenGetTensorNumBytes(gaps, &bytes));
    CHECK(bytes == 4 * (100 + 2 * 30 + 3 * 7 + 4 + 1));

    /* Fill, scale and copy leave the gaps alone. */
    memset(big, 0, sizeof big);
    OK(miopenSetTensor(handle, gaps, big, &value));
    OK(miopenScaleTensor(handle, gaps, big, &alpha));
    for (int n = 0, seen = 0; n < 2; n++)
        for (int i = 0; i < 100; i++) {
            int c = i / 30, h = i % 30 / 7, w = i % 30 % 7, inside = c < 3 && h < 4 && w < 5;
            CHECK(big[100 * n + i] == (inside ? 6 : 0));
            seen += inside;
            if (n == 1 && i == 99) CHECK(seen == 120);
        }
    OK(miopenTransformTensor(handle, &one, dense, a, &zero, last, nhwc));
    for (int i = 0; i < 120; i++) expected[i] = a[(i / 60 * 3 + i % 3) * 20 + i % 60 / 3];
    compare("transform", nhwc, expected, 120, 0);
    memcpy(packed, a, sizeof packed);
    OK(miopenTransformTensor(handle, &alpha, last, nhwc, &beta, dense, packed));
    for (int i = 0; i < 120; i++) expected[i] = a[i];
    compare("transform with alpha and beta", packed, expected, 120, 0);
    REFUSED(miopenTransformTensor(handle, &one, dense, a, &zero, channel, packed));

    for (int op = 0; op < 4; op++) {
        memcpy(packed, a, sizeof packed);
        OK(miopenOpTensor(handle, (miopenTensorOp_t)op, &alpha, dense, a, &one, channel, b, &beta, dense, packed));
        for (int i = 0; i < 120; i++) {
            double l = 2 * a[i], r = b[i / 20 % 3];
            expected[i] = (op == 0 ? l + r : op == 1 ? l * r : op == 2 ? fmin(l, r) : fmax(l, r)) - a[i];
        }
        compare("op tensor", packed, expected, 120, 0);
    }
    OK(miopenOpTensor(handle, miopenTensorOpMul, &one, dense, a, &one, image, a, &zero, dense, packed));
    for (int i = 0; i < 120; i++) expected[i] = (double)a[i] * a[i / 60 * 20 + i % 20];
    compare("op tensor over channels", packed, expected, 120, 0);
    REFUSED(miopenOpTensor(handle, miopenTensorOpAdd, &one, channel, b, &one, channel, b, &zero, dense, packed));

    OK(miopenDestroyTensorDescriptor(gaps));
    OK(miopenDestroyTensorDescriptor(dense));
    OK(miopenDestroyTensorDescriptor(last));
    OK(miopenDestroyTensorDescriptor(channel));
    OK(miopenDestroyTensorDescriptor(image));
    free(a);
}

static void activations(void) {
    float alpha = 2, beta = 1, one = 1, zero = 0;
    float *x = whole(120, 1, 9), *dy = whole(120, 2, 4), y[120], dx[120];
    double expected[120];
    int lens[2] = {12, 10};
    miopenTensorDescriptor_t dense = tensor4d(2, 3, 4, 5), last = tensor_nhwc(miopenFloat, 2, 3, 4, 5), flat;
    miopenActivationDescriptor_t leaky;
    miopenActivationMode_t mode;
    double params[3];
    OK(miopenCreateActivationDescriptor(&leaky));
    OK(miopenSetActivationDescriptor(leaky, miopenActivationLEAKYRELU, 0.25, 1, 2));
    OK(miopenGetActivationDescriptor(leaky, &mode, params, params + 1, params + 2));
    CHECK(mode == miopenActivationLEAKYRELU && params[0] == 0.25 && params[1] == 1 && params[2] == 2);
    OK(miopenCreateTensorDescriptor(&flat));
    OK(miopenSetTensorDescriptor(flat, miopenFloat, 2, lens, NULL));

    for (int i = 0; i < 120; i++) y[i] = (float)i, expected[i] = alpha * (x[i] > 0 ? x[i] : 0.25 * x[i]) + i;
    OK(miopenActivationForward(handle, leaky, &alpha, flat, x, &beta, flat, y));
    compare("activation of a matrix, alpha and beta", y, expected, 120, 0);
    OK(miopenActivationForward(handle, leaky, &one, dense, x, &zero, last, y));
    for (int i = 0; i < 120; i++) {
        double v = x[(i / 60 * 3 + i % 3) * 20 + i % 60 / 3];
        expected[i] = v > 0 ? v : 0.25 * v;
    }
    compare("activation into another layout", y, expected, 120, 0);
    OK(miopenActivationForward(handle, leaky, NULL, dense, x, NULL, dense, y));
    OK(miopenActivationBackward(handle, leaky, &one, dense, y, dense, dy, dense, x, &zero, dense, dx));
    for (int i = 0; i < 120; i++) expected[i] = x[i] > 0 ? dy[i] : 0.25 * dy[i];
    compare("activation backward", dx, expected, 120, 0);

    OK(miopenDestroyActivationDescriptor(leaky));
    OK(miopenDestroyTensorDescriptor(dense));
    OK(miopenDestroyTensorDescriptor(last));
    OK(miopenDestroyTensorDescriptor(flat));
    free(x), free(dy);
}

/* Running statistics from one memory to another, in place, not at all, and refused before anything is written. */
static void running_statistics_that_move(miopenBatchNormMode_t mode, miopenTensorDescriptor_t xd, const float* x,
                                         miopenTensorDescriptor_t bn, float* scale, float* shift,
                                         miopenActivationDescriptor_t relu, const double* normal, const double* m,
                                         const double* v, int count, double per) {
    const size_t params = (size_t)count, elements = 3 * 4 * 15;
    const double epsilon = 1e-4;
    float *mean = whole(params, 11, 2), *variance = positive(params, 12), *saved = poisoned(params), *inverse = poisoned(params);
    float *next_mean = poisoned(params), *next_variance = poisoned(params), *y = poisoned(elements);
    double *new_mean = (double*)allocate(params * sizeof(double)), *new_variance = (double*)allocate(params * sizeof(double));
    double *clipped = (double*)allocate(elements * sizeof(double)), *kept = (double*)allocate(params * sizeof(double));
    for (size_t i = 0; i < params; i++) {
        kept[i] = mean[i];
        new_mean[i] = 0.75 * mean[i] + 0.25 * m[i];
        new_variance[i] = 0.75 * variance[i] + 0.25 * v[i] * per / (per - 1);
    }
    for (size_t i = 0; i < elements; i++) clipped[i] = normal[i] > 0 ? normal[i] : 0;

    /* One of two, next without previous, an output that overlaps: the next statistics stay as they were. */
    REFUSED(miopenBatchNormalizationForwardTraining_V3(handle, mode, NULL, NULL, xd, x, xd, y, bn, bn, bn, bn, scale, shift, 0.25, mean,
                                                       variance, next_mean, NULL, epsilon, saved, inverse));
    REFUSED(miopenBatchNormalizationForwardTraining_V3(handle, mode, NULL, NULL, xd, x, xd, y, bn, bn, bn, bn, scale, shift, 0.25, mean,
                                                       NULL, next_mean, next_variance, epsilon, saved, inverse));
    REFUSED(miopenBatchNormalizationForwardTraining_V3(handle, mode, NULL, NULL, xd, x, xd, next_variance, bn, bn, bn, bn, scale, shift, 0.25,
                                                       mean, variance, next_mean, next_variance, epsilon, saved, inverse));
    for (size_t i = 0; i < params; i++) CHECK(next_mean[i] != next_mean[i] && next_variance[i] != next_variance[i]);

    OK(miopenBatchNormalizationForwardTraining_V3(handle, mode, NULL, NULL, xd, x, xd, y, bn, bn, bn, bn, scale, shift, 0.25, mean, variance,
                                                  next_mean, next_variance, epsilon, saved, inverse));
    compare("training V3", y, normal, elements, 1e-5);
    compare("next running mean", next_mean, new_mean, params, 1e-6);
    compare("next running variance", next_variance, new_variance, params, 1e-5);
    compare("previous running mean", mean, kept, params, 0);
    compare("saved mean of V3", saved, m, params, 1e-6);
    memset(next_mean, 0xff, params * sizeof(float)), memset(y, 0xff, elements * sizeof(float));
    OK(miopenBatchNormForwardTrainingActivation_V2(handle, mode, NULL, NULL, xd, x, xd, y, bn, bn, bn, bn, scale, shift, 0.25, mean, variance,
                                                   next_mean, next_variance, epsilon, NULL, NULL, relu));
    compare("training and activation V2", y, clipped, elements, 1e-5);
    compare("next running mean behind an activation", next_mean, new_mean, params, 1e-6);
    memset(y, 0xff, elements * sizeof(float));
    OK(miopenBatchNormalizationForwardTraining_V3(handle, mode, NULL, NULL, xd, x, xd, y, bn, bn, bn, bn, scale, shift, 0.25, mean, variance,
                                                  NULL, NULL, epsilon, NULL, NULL));
    compare("training V3 without running statistics", y, normal, elements, 1e-5);
    OK(miopenBatchNormalizationForwardTraining_V3(handle, mode, NULL, NULL, xd, x, xd, y, bn, bn, bn, bn, scale, shift, 0.25, mean, variance,
                                                  mean, variance, epsilon, NULL, NULL));
    compare("running mean in place", mean, new_mean, params, 1e-6);
    free(mean), free(variance), free(saved), free(inverse), free(next_mean), free(next_variance), free(y);
    free(new_mean), free(new_variance), free(clipped), free(kept);
}

/* One call with one descriptor, with four, with the inverse variance, and with an activation, in both modes. */
static void batch_norms(miopenBatchNormMode_t mode) {
    enum { N = 3, C = 4, H = 3, W = 5, IMAGE = H * W, COUNT = N * C * IMAGE };
    const int params = mode == miopenBNSpatial ? C : C * IMAGE;
    const double epsilon = 1e-4, per = mode == miopenBNSpatial ? N * IMAGE : N;
    miopenTensorDescriptor_t xd = tensor4d(N, C, H, W), bn;
    miopenActivationDescriptor_t relu;
    float one = 1, zero = 0;
    float *x = whole(COUNT, 1, 9), *dy = whole(COUNT, 2, 4), *scale = positive((size_t)params, 3);
    float *shift = whole((size_t)params, 4, 3), *mean = whole((size_t)params, 5, 2), *variance = positive((size_t)params, 6);
    float *inverse = poisoned((size_t)params), *saved_mean = poisoned((size_t)params), *y = poisoned(COUNT);
    float *running_mean = whole((size_t)params, 7, 2), *running_variance = positive((size_t)params, 8);
    float *dx = poisoned(COUNT), *dx_again = poisoned(COUNT), *dscale = poisoned((size_t)params), *dshift = poisoned((size_t)params);
    double expected[COUNT], normal[COUNT], m[C * IMAGE], v[C * IMAGE], g[C * IMAGE], b[C * IMAGE], old[C * IMAGE];
    miopenDataType_t type;
    int lens[5], strides[5];
#define AT(i) (mode == miopenBNSpatial ? (i) / IMAGE % C : (i) % (C * IMAGE))

    OK(miopenCreateTensorDescriptor(&bn));
    OK(miopenDeriveBNTensorDescriptor(bn, xd, mode));
    OK(miopenGetTensorDescriptor(bn, &type, lens, strides));
    CHECK(type == miopenFloat && lens[0] == 1 && lens[1] == C && lens[2] == (mode == miopenBNSpatial ? 1 : H));
    OK(miopenCreateActivationDescriptor(&relu));
    OK(miopenSetActivationDescriptor(relu, miopenActivationRELU, 0, 0, 0));

    for (int i = 0; i < COUNT; i++)
        expected[i] = scale[AT(i)] * (x[i] - mean[AT(i)]) / sqrt(variance[AT(i)] + epsilon) + shift[AT(i)];
    OK(miopenBatchNormalizationForwardInference(handle, mode, &one, &zero, xd, x, xd, y, bn, scale, shift, mean, variance, epsilon));
    compare("inference", y, expected, COUNT, 1e-5);
    memset(y, 0xff, COUNT * sizeof(float));
    OK(miopenBatchNormalizationForwardInference_V2(handle, mode, NULL, NULL, xd, x, xd, y, bn, bn, bn, bn, scale, shift, mean, variance, epsilon));
    compare("inference V2", y, expected, COUNT, 1e-5);
    for (int i = 0; i < params; i++) inverse[i] = (float)(1 / sqrt(variance[i] + epsilon));
    memset(y, 0xff, COUNT * sizeof(float));
    OK(miopenBatchNormalizationForwardInferenceInvVariance(handle, mode, &one, &zero, xd, x, xd, y, bn, bn, bn, bn, scale, shift, mean, inverse));
    compare("inference with inverse variance", y, expected, COUNT, 1e-5);
    for (int i = 0; i < COUNT; i++) expected[i] = expected[i] > 0 ? expected[i] : 0;
    OK(miopenBatchNormForwardInferenceActivation(handle, mode, &one, &zero, xd, x, xd, y, bn, bn, bn, bn, scale, shift, mean, variance, epsilon, relu));
    compare("inference and activation", y, expected, COUNT, 1e-5);
    memset(y, 0xff, COUNT * sizeof(float));
    OK(miopenBatchNormForwardInferenceActivationInvVariance(handle, mode, &one, &zero, xd, x, xd, y, bn, bn, bn, bn, scale, shift, mean, inverse, relu));
    compare("inference and activation with inverse variance", y, expected, COUNT, 1e-5);

    REFUSED(miopenBatchNormForwardInferenceActivationInvVariance(handle, mode, &one, &zero, xd, x, xd, y, bn, bn, bn, bn, scale, shift, NULL, inverse, relu));
    REFUSED(miopenBatchNormalizationForwardInferenceInvVariance(handle, mode, &one, &zero, xd, x, xd, y, bn, bn, bn, bn, scale, shift, mean, NULL));

    memset(m, 0, sizeof m), memset(v, 0, sizeof v), memset(g, 0, sizeof g), memset(b, 0, sizeof b);
    for (int i = 0; i < COUNT; i++) m[AT(i)] += x[i] / per;
    for (int i = 0; i < COUNT; i++) v[AT(i)] += (x[i] - m[AT(i)]) * (x[i] - m[AT(i)]) / per;
    for (int i = 0; i < COUNT; i++) {
        normal[i] = (x[i] - m[AT(i)]) / sqrt(v[AT(i)] + epsilon);
        expected[i] = scale[AT(i)] * normal[i] + shift[AT(i)];
    }
    /* Inference without a mean, a variance or both has the batch's own, in every call that takes a variance. */
    for (int which = 1; which < 4; which++) {
        float *no_mean = which & 1 ? NULL : mean, *no_variance = which & 2 ? NULL : variance, half = 0.5f, two = 2;
        double both[COUNT];
        memset(y, 0xff, COUNT * sizeof(float));
        OK(miopenBatchNormalizationForwardInference(handle, mode, &one, &zero, xd, x, xd, y, bn, scale, shift, no_mean, no_variance, epsilon));
        compare("inference by the batch's statistics", y, expected, COUNT, 1e-5);
        for (int i = 0; i < COUNT; i++) y[i] = (float)i, both[i] = 2 * expected[i] + 0.5 * i;
        OK(miopenBatchNormalizationForwardInference_V2(handle, mode, &two, &half, xd, x, xd, y, bn, bn, bn, bn, scale, shift, no_mean, no_variance, epsilon));
        compare("inference V2 by the batch's statistics, alpha and beta", y, both, COUNT, 1e-5);
        memset(y, 0xff, COUNT * sizeof(float));
        OK(miopenBatchNormForwardInferenceActivation(handle, mode, &one, &zero, xd, x, xd, y, bn, bn, bn, bn, scale, shift, no_mean, no_variance, epsilon, relu));
        for (int i = 0; i < COUNT; i++) both[i] = expected[i] > 0 ? expected[i] : 0;
        compare("inference by the batch's statistics and activation", y, both, COUNT, 1e-5);
    }
    for (int i = 0; i < params; i++) old[i] = 0.75 * running_variance[i] + 0.25 * v[i] * per / (per - 1);
    OK(miopenBatchNormalizationForwardTraining(handle, mode, &one, &zero, xd, x, xd, y, bn, scale, shift, 0.25, running_mean,
                                               running_variance, epsilon, saved_mean, inverse));
    compare("training", y, expected, COUNT, 1e-5);
    compare("saved mean", saved_mean, m, (size_t)params, 1e-6);
    compare("running variance", running_variance, old, (size_t)params, 1e-5);
    memset(y, 0xff, COUNT * sizeof(float));
    OK(miopenBatchNormalizationForwardTraining_V2(handle, mode, &one, &zero, xd, x, xd, y, bn, bn, bn, bn, scale, shift, 0.25, NULL, NULL,
                                                  epsilon, NULL, NULL));
    compare("training V2", y, expected, COUNT, 1e-5);
    REFUSED(miopenBatchNormalizationForwardTraining(handle, mode, &one, &zero, xd, x, xd, y, bn, scale, shift, 0.25, running_mean, NULL,
                                                    epsilon, NULL, NULL));
    running_statistics_that_move(mode, xd, x, bn, scale, shift, relu, expected, m, v, params, per);

    for (int i = 0; i < COUNT; i++) g[AT(i)] += dy[i] * normal[i], b[AT(i)] += dy[i];
    for (int i = 0; i < COUNT; i++)
        expected[i] = scale[AT(i)] / sqrt(v[AT(i)] + epsilon) * (dy[i] - (b[AT(i)] + normal[i] * g[AT(i)]) / per);
    OK(miopenBatchNormalizationBackward(handle, mode, &one, &zero, &one, &zero, xd, x, xd, dy, xd, dx, bn, scale, dscale, dshift, epsilon,
                                        saved_mean, inverse));
    compare("dx", dx, expected, COUNT, 2e-5);
    compare("gradient of scale", dscale, g, (size_t)params, 2e-5);
    compare("gradient of bias", dshift, b, (size_t)params, 2e-5);
    OK(miopenBatchNormalizationBackward_V2(handle, mode, NULL, NULL, NULL, NULL, xd, x, xd, dy, xd, dx_again, bn, bn, bn, bn, scale, dscale,
                                           dshift, epsilon, NULL, NULL));
    compare("dx without saved statistics", dx_again, expected, COUNT, 2e-5);

    memset(g, 0, sizeof g), memset(b, 0, sizeof b);
    for (int i = 0; i < COUNT; i++) {
        double inner = scale[AT(i)] * normal[i] + shift[AT(i)] > 0 ? dy[i] : 0;
        g[AT(i)] += inner * normal[i], b[AT(i)] += inner;
    }
    for (int i = 0; i < COUNT; i++) {
        double inner = scale[AT(i)] * normal[i] + shift[AT(i)] > 0 ? dy[i] : 0;
        expected[i] = scale[AT(i)] / sqrt(v[AT(i)] + epsilon) * (inner - (b[AT(i)] + normal[i] * g[AT(i)]) / per);
    }
    OK(miopenBatchNormBackwardActivation(handle, mode, &one, &zero, &one, &zero, xd, x, xd, dy, xd, dx, bn, bn, bn, bn, scale, shift, dscale,
                                         dshift, epsilon, saved_mean, inverse, relu));
    compare("dx of batch-norm and activation", dx, expected, COUNT, 2e-5);
    compare("gradient of scale behind the activation", dscale, g, (size_t)params, 2e-5);
    for (int i = 0; i < COUNT; i++) {
        double value = scale[AT(i)] * normal[i] + shift[AT(i)];
        expected[i] = value > 0 ? value : 0;
    }
    OK(miopenBatchNormForwardTrainingActivation(handle, mode, &one, &zero, xd, x, xd, y, bn, bn, bn, bn, scale, shift, 0.25, NULL, NULL,
                                                epsilon, NULL, NULL, relu));
    compare("training and activation", y, expected, COUNT, 1e-5);

    OK(miopenDestroyTensorDescriptor(xd));
    OK(miopenDestroyTensorDescriptor(bn));
    OK(miopenDestroyActivationDescriptor(relu));
    free(x), free(dy), free(scale), free(shift), free(mean), free(variance), free(inverse), free(saved_mean), free(y);
    free(running_mean), free(running_variance), free(dx), free(dx_again), free(dscale), free(dshift);
}

int main(void) {
    OK(fuseplanCreateForBackend(&handle, "cpu"));
    convolutions();
    tensors();
    activations();
    batch_norms(miopenBNSpatial);
    batch_norms(miopenBNPerActivation);
    OK(miopenDestroy(handle));
    return 0;
}
