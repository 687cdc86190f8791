/*
 * miopenConvolutionBiasActivationForward as the cuDNN-to-MIOpen layers call it: with and without a residual,
 * scaled, the residual in the output's own memory, both layouts, several activations, 3-D.
 */
#include "client.h"

static void run(miopenHandle_t handle, const shape_t* p, miopenActivationMode_t mode, const float* alphas, int residual,
                int in_place) {
    miopenTensorDescriptor_t (*make)(int, int, int, int) = tensor4d;
    miopenTensorDescriptor_t xd, wd, yd, bd = tensor4d(1, p->k, 1, 1);
    miopenConvolutionDescriptor_t conv = convolution(p);
    miopenActivationDescriptor_t activation;
    float *x = whole(in_count(p), 1, 4), *w = whole(filter_count(p), 2, 3), *b = whole((size_t)p->k, 3, 9);
    float *z = whole(out_count(p), 4, 9), *y = in_place ? z : poisoned(out_count(p));
    double* expected = oracle_conv(p, x, w);
    double first = alphas ? alphas[0] : 1, second = alphas ? alphas[1] : 1;

    if (p->channels_last) {
        xd = tensor_nhwc(miopenFloat, p->n, p->c, p->h, p->w);
        wd = tensor_nhwc(miopenFloat, p->k, p->c / p->groups, p->r, p->s);
        yd = tensor_nhwc(miopenFloat, p->n, p->k, out_h(p), out_w(p));
    } else {
        xd = make(p->n, p->c, p->h, p->w);
        wd = make(p->k, p->c / p->groups, p->r, p->s);
        yd = make(p->n, p->k, out_h(p), out_w(p));
    }
    for (size_t i = 0; i < out_count(p); i++) expected[i] = first * expected[i] + (residual ? second * z[i] : 0);
    oracle_bias(p, expected, b);
    oracle_activate(mode, expected, out_count(p), 7.5, 0.5);

    OK(miopenCreateActivationDescriptor(&activation));
    OK(miopenSetActivationDescriptor(activation, mode, 7.5, 0.5, 0));
    OK(miopenConvolutionBiasActivationForward(handle, alphas, xd, x, wd, w, conv, miopenConvolutionFwdAlgoDirect, NULL, 0,
                                              alphas ? alphas + 1 : NULL, residual ? yd : NULL, residual ? z : NULL, bd,
                                              b, activation, yd, y));
    compare("conv, bias, activation in one call", y, expected, out_count(p), fmax(tolerance_of(p), 1e-6));

    OK(miopenDestroyActivationDescriptor(activation));
    OK(miopenDestroyConvolutionDescriptor(conv));
    OK(miopenDestroyTensorDescriptor(xd));
    OK(miopenDestroyTensorDescriptor(wd));
    OK(miopenDestroyTensorDescriptor(yd));
    OK(miopenDestroyTensorDescriptor(bd));
    free(x), free(w), free(b), free(z), free(expected);
    if (!in_place) free(y);
}

/* Ones everywhere in 3-D: every output is the number of taps that lie inside. */
static void three_dimensions(miopenHandle_t handle) {
    int lens[5] = {1, 2, 3, 4, 5}, weights[5] = {3, 2, 3, 3, 3}, bias[5] = {1, 3, 1, 1, 1}, three[3] = {1, 1, 1};
    int out[5] = {0}, dims = 0;
    float x[120], w[162], b[3] = {0, 100, -1000}, y[180];
    miopenTensorDescriptor_t xd, wd, bd, yd;
    miopenConvolutionDescriptor_t conv;
    miopenActivationDescriptor_t relu;
    for (int i = 0; i < 120; i++) x[i] = 1;
    for (int i = 0; i < 162; i++) w[i] = 1;
    memset(y, 0xff, sizeof y);
    OK(miopenCreateTensorDescriptor(&xd));
    OK(miopenCreateTensorDescriptor(&wd));
    OK(miopenCreateTensorDescriptor(&bd));
    OK(miopenCreateTensorDescriptor(&yd));
    OK(miopenSetNdTensorDescriptorWithLayout(xd, miopenFloat, miopenTensorNDHWC, lens, 5));
    OK(miopenSetNdTensorDescriptorWithLayout(wd, miopenFloat, miopenTensorNDHWC, weights, 5));
    OK(miopenSetTensorDescriptor(bd, miopenFloat, 5, bias, NULL));
    OK(miopenCreateConvolutionDescriptor(&conv));
    OK(miopenInitConvolutionNdDescriptor(conv, 3, three, three, three, miopenConvolution));
    OK(miopenGetConvolutionNdForwardOutputDim(conv, xd, wd, &dims, out));
    CHECK(dims == 5 && out[0] == 1 && out[1] == 3 && out[2] == 3 && out[3] == 4 && out[4] == 5);
    EXPECT(miopenStatusUnknownError, miopenGetConvolutionDescriptor(conv, NULL, out, out, out, out, out, out));
    OK(miopenSetNdTensorDescriptorWithLayout(yd, miopenFloat, miopenTensorNDHWC, out, 5));
    OK(miopenCreateActivationDescriptor(&relu));
    OK(miopenSetActivationDescriptor(relu, miopenActivationRELU, 0, 0, 0));
    OK(miopenConvolutionBiasActivationForward(handle, NULL, xd, x, wd, w, conv, miopenConvolutionFwdAlgoGEMM, NULL, 0, NULL,
                                              NULL, NULL, bd, b, relu, yd, y));
    for (int d = 0; d < 3; d++)
        for (int h = 0; h < 4; h++)
            for (int v = 0; v < 5; v++) {
                int taps = 2 * (d == 1 ? 3 : 2) * (h % 3 ? 3 : 2) * (v % 4 ? 3 : 2);
                const float* at_point = y + 3 * ((d * 4 + h) * 5 + v);
                CHECK(at_point[0] == taps && at_point[1] == taps + 100 && at_point[2] == 0);
            }
    OK(miopenDestroyActivationDescriptor(relu));
    OK(miopenDestroyConvolutionDescriptor(conv));
    OK(miopenDestroyTensorDescriptor(xd));
    OK(miopenDestroyTensorDescriptor(wd));
    OK(miopenDestroyTensorDescriptor(bd));
    OK(miopenDestroyTensorDescriptor(yd));
}

int main(void) {
    /* The last two have a quotient that no float holds, or that takes all digits from a convolution of its size. */
    float twos[2] = {2, 1}, half[2] = {0.5f, 2}, none[2] = {1, 0}, tiny[2] = {1, 1e-39f}, far[2] = {3e7f, -0.5f};
    const float* alphas[] = {NULL, twos, half, none, tiny, far};
    miopenActivationMode_t modes[] = {miopenActivationRELU, miopenActivationLEAKYRELU, miopenActivationCLIPPEDRELU,
                                      miopenActivationPASTHRU};
    miopenHandle_t handle;
    OK(miopenCreate(&handle));
    for (int last = 0; last < 2; last++)
        for (int a = 0; a < 6; a++)
            for (int residual = 0; residual < 3; residual++) {
                shape_t p = {2, 4, 7, 9, 6, 3, 3, 1, 1, 1, 1, 0};
                shape_t grouped = {1, 6, 8, 8, 4, 3, 1, 1, 2, 1, 2, 0};
                p.channels_last = grouped.channels_last = last;
                run(handle, &p, modes[a % 4], alphas[a], residual > 0, residual == 2);
                run(handle, &grouped, modes[3 - a % 4], alphas[a], residual > 0, residual == 2);
            }
    three_dimensions(handle);
    OK(miopenDestroy(handle));
    return 0;
}
