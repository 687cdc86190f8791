/*
 * What the clients share: checks that stop at the first failure, data, and the oracle: every operator in
 * double, written from its formula and from nothing of the library.
 */
#ifndef CLIENT_H
#define CLIENT_H

#ifdef __cplusplus
#include <initializer_list>
#endif
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <miopen/fuseplan.h>
#include <miopen/miopen.h>

#define FAIL(...)                                         \
    do {                                                  \
        fprintf(stdout, "%s:%d: ", __FILE__, __LINE__);   \
        fprintf(stdout, __VA_ARGS__);                     \
        fprintf(stdout, "\n");                            \
        exit(1);                                          \
    } while (0)

#define CHECK(condition)                             \
    do {                                             \
        if (!(condition)) FAIL("not so: %s", #condition); \
    } while (0)

/* The call returns this very status. */
#define EXPECT(status, call)                                                                            \
    do {                                                                                                \
        miopenStatus_t found_ = (call);                                                                 \
        if (found_ != (status))                                                                         \
            FAIL("%s gave %s, expected %s (%s)", #call, miopenGetErrorString(found_), #status,          \
                 fuseplanGetLastErrorString());                                                         \
    } while (0)

#define OK(call) EXPECT(miopenStatusSuccess, call)

/* The call fails, with whatever status. */
#define REFUSED(call)                                                    \
    do {                                                                 \
        if ((call) == miopenStatusSuccess) FAIL("%s succeeded", #call);  \
    } while (0)

static inline void* allocate(size_t bytes) {
    void* memory = malloc(bytes ? bytes : 1);
    if (!memory) FAIL("out of memory");
    return memory;
}

/* Memory full of NaNs: what is not written shows. */
static inline float* poisoned(size_t count) {
    float* data = (float*)allocate(count * sizeof(float));
    memset(data, 0xff, count * sizeof(float));
    return data;
}

/* Small whole numbers, the same every time. */
static inline float* whole(size_t count, unsigned seed, int reach) {
    float* data = (float*)allocate(count * sizeof(float));
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        data[i] = (float)((int)((seed >> 16) % (unsigned)(2 * reach + 1)) - reach);
    }
    return data;
}

/* Numbers in 0.5 ... 1.5, for variances and scales. */
static inline float* positive(size_t count, unsigned seed) {
    float* data = whole(count, seed, 8);
    for (size_t i = 0; i < count; i++) data[i] = 1.0f + data[i] / 16.0f;
    return data;
}

/* A 2-D convolution problem and where an element lies. */
typedef struct {
    int n, c, h, w, k, r, s, pad, stride, dilation, groups;
    int channels_last;
} shape_t;

static inline int out_extent(int in, int filter, const shape_t* p) {
    return (in + 2 * p->pad - (p->dilation * (filter - 1) + 1)) / p->stride + 1;
}

static inline int out_h(const shape_t* p) { return out_extent(p->h, p->r, p); }
static inline int out_w(const shape_t* p) { return out_extent(p->w, p->s, p); }

static inline size_t at(int last, int C, int H, int W, int n, int c, int h, int w) {
    return last ? (((size_t)n * H + h) * W + w) * C + c : (((size_t)n * C + c) * H + h) * W + w;
}

static inline size_t in_count(const shape_t* p) { return (size_t)p->n * p->c * p->h * p->w; }
static inline size_t filter_count(const shape_t* p) { return (size_t)p->k * (p->c / p->groups) * p->r * p->s; }
static inline size_t out_count(const shape_t* p) { return (size_t)p->n * p->k * out_h(p) * out_w(p); }

static inline size_t out_at(const shape_t* p, int n, int k, int h, int w) {
    return at(p->channels_last, p->k, out_h(p), out_w(p), n, k, h, w);
}

/* The convolution's output, in double. */
static inline double* oracle_conv(const shape_t* p, const float* x, const float* weights) {
    int H = out_h(p), W = out_w(p), cg = p->c / p->groups, kg = p->k / p->groups;
    double* y = (double*)allocate(out_count(p) * sizeof(double));
    for (int n = 0; n < p->n; n++)
        for (int k = 0; k < p->k; k++)
            for (int h = 0; h < H; h++)
                for (int w = 0; w < W; w++) {
                    double sum = 0;
                    for (int c = 0; c < cg; c++)
                        for (int r = 0; r < p->r; r++)
                            for (int s = 0; s < p->s; s++) {
                                int ih = h * p->stride - p->pad + r * p->dilation;
                                int iw = w * p->stride - p->pad + s * p->dilation;
                                if (ih < 0 || ih >= p->h || iw < 0 || iw >= p->w) continue;
                                int channel = (k / kg) * cg + c;
                                sum += (double)x[at(p->channels_last, p->c, p->h, p->w, n, channel, ih, iw)] *
                                       weights[at(p->channels_last, cg, p->r, p->s, k, c, r, s)];
                            }
                    y[out_at(p, n, k, h, w)] = sum;
                }
    return y;
}

static inline void oracle_bias(const shape_t* p, double* y, const float* bias) {
    for (int n = 0; n < p->n; n++)
        for (int k = 0; k < p->k; k++)
            for (int h = 0; h < out_h(p); h++)
                for (int w = 0; w < out_w(p); w++) y[out_at(p, n, k, h, w)] += bias[k];
}

static inline void oracle_add(double* y, const float* z, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] += z[i];
}

static inline double oracle_activation(miopenActivationMode_t mode, double x, double a, double b) {
    switch (mode) {
        case miopenActivationRELU: return x > 0 ? x : 0;
        case miopenActivationLEAKYRELU: return x > 0 ? x : a * x;
        case miopenActivationCLIPPEDRELU: return x < 0 ? 0 : x > a ? a : x;
        case miopenActivationTANH: return b * tanh(a * x);
        case miopenActivationCLAMP: return x < a ? a : x > b ? b : x;
        default: return x;
    }
}

static inline void oracle_activate(miopenActivationMode_t mode, double* y, size_t count, double a, double b) {
    for (size_t i = 0; i < count; i++) y[i] = oracle_activation(mode, y[i], a, b);
}

/* Every element within `tolerance` of the oracle, relative to 1 or to its size; 0 asks for equality. */
static inline void compare(const char* what, const float* found, const double* expected, size_t count,
                           double tolerance) {
    for (size_t i = 0; i < count; i++) {
        double size = fabs(expected[i]) > 1 ? fabs(expected[i]) : 1;
        if (!(fabs((double)found[i] - expected[i]) <= tolerance * size))
            FAIL("%s: element %zu of %zu is %.9g, the oracle has %.9g", what, i, count, (double)found[i],
                 expected[i]);
    }
}

/* The tolerance for convolutions of whole numbers, in which a wrong product is 1 or more: Winograd's, which may compute 3x3
 * filters without strides and dilations, rounds; all others are exact. */
#define ROUNDED 1e-3
static inline double tolerance_of(const shape_t* p) {
    return p->r == 3 && p->s == 3 && p->stride == 1 && p->dilation == 1 ? ROUNDED : 0;
}

static inline miopenTensorDescriptor_t tensor4d(int n, int c, int h, int w) {
    miopenTensorDescriptor_t desc;
    OK(miopenCreateTensorDescriptor(&desc));
    OK(miopenSet4dTensorDescriptor(desc, miopenFloat, n, c, h, w));
    return desc;
}

static inline miopenTensorDescriptor_t tensor_nhwc(miopenDataType_t type, int n, int c, int h, int w) {
    int lens[4];
    miopenTensorDescriptor_t desc;
    lens[0] = n, lens[1] = c, lens[2] = h, lens[3] = w;
    OK(miopenCreateTensorDescriptor(&desc));
    OK(miopenSetNdTensorDescriptorWithLayout(desc, type, miopenTensorNHWC, lens, 4));
    return desc;
}

static inline miopenConvolutionDescriptor_t convolution(const shape_t* p) {
    miopenConvolutionDescriptor_t desc;
    OK(miopenCreateConvolutionDescriptor(&desc));
    OK(miopenInitConvolutionDescriptor(desc, miopenConvolution, p->pad, p->pad, p->stride, p->stride,
                                       p->dilation, p->dilation));
    OK(miopenSetConvolutionGroupCount(desc, p->groups));
    return desc;
}

#endif
