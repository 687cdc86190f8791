/*
 * A client on CUDA: device pointers and streams of its own, from the driver's interface, which is loaded at
 * run time so that this compiles everywhere. Without a GPU, or without NVRTC, it says so and does nothing;
 * with REQUIRE_BACKEND=cuda in the environment that is a failure.
 */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>

#include "client.h"

typedef unsigned long long address_t;
typedef void* stream_t;

static struct {
    int (*cuInit)(unsigned);
    int (*cuDeviceGetCount)(int*);
    int (*cuDevicePrimaryCtxRetain)(void**, int);
    int (*cuDevicePrimaryCtxRelease_v2)(int);
    int (*cuCtxSetCurrent)(void*);
    int (*cuMemAlloc_v2)(address_t*, size_t);
    int (*cuMemFree_v2)(address_t);
    int (*cuMemcpyHtoD_v2)(address_t, const void*, size_t);
    int (*cuMemcpyDtoH_v2)(void*, address_t, size_t);
    int (*cuMemcpyHtoDAsync_v2)(address_t, const void*, size_t, stream_t);
    int (*cuMemcpyDtoHAsync_v2)(void*, address_t, size_t, stream_t);
    int (*cuStreamCreate)(stream_t*, unsigned);
    int (*cuStreamSynchronize)(stream_t);
    int (*cuStreamDestroy_v2)(stream_t);
} cuda;

enum { NON_BLOCKING = 1 };

#define CUDA(call)                                                   \
    do {                                                             \
        int result_ = cuda.call;                                     \
        if (result_ != 0) FAIL("%s gave %d", #call, result_);        \
    } while (0)

static void skip(const char* reason) {
    const char* required = getenv("REQUIRE_BACKEND");
    if (required && strstr(required, "cuda")) FAIL("required, but skipped: %s", reason);
    printf("skipped: %s\n", reason);
    exit(0);
}

static void load(void) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    int count = 0;
    if (!driver) skip("there is no libcuda.so.1");
#define FIND(name)                                                      \
    do {                                                                \
        void* found_ = dlsym(driver, #name);                            \
        if (!found_) skip("libcuda.so.1 has no " #name);                \
        memcpy(&cuda.name, &found_, sizeof found_);                     \
    } while (0)
    FIND(cuInit);
    FIND(cuDeviceGetCount);
    FIND(cuDevicePrimaryCtxRetain);
    FIND(cuDevicePrimaryCtxRelease_v2);
    FIND(cuCtxSetCurrent);
    FIND(cuMemAlloc_v2);
    FIND(cuMemFree_v2);
    FIND(cuMemcpyHtoD_v2);
    FIND(cuMemcpyDtoH_v2);
    FIND(cuMemcpyHtoDAsync_v2);
    FIND(cuMemcpyDtoHAsync_v2);
    FIND(cuStreamCreate);
    FIND(cuStreamSynchronize);
    FIND(cuStreamDestroy_v2);
    if (cuda.cuInit(0) != 0) skip("the driver finds no GPU");
    CUDA(cuDeviceGetCount(&count));
    if (count == 0) skip("the driver has no GPU");
}

/* Memory of the device with these contents. */
static address_t upload(const void* data, size_t bytes) {
    address_t address;
    CUDA(cuMemAlloc_v2(&address, bytes));
    CUDA(cuMemcpyHtoD_v2(address, data, bytes));
    return address;
}

static void* pointer(address_t address) { return (void*)(size_t)address; }

static const shape_t SHAPE = {16, 128, 16, 16, 9, 3, 3, 1, 1, 1, 1, 0};

typedef struct {
    miopenTensorDescriptor_t input, weights, bias, output;
    miopenConvolutionDescriptor_t conv;
    miopenActivationDescriptor_t relu;
    float *x, *w, *b;
    double* expected;
    address_t dx, dw, db, dy;
} problem_t;

static problem_t make(unsigned seed) {
    const shape_t* p = &SHAPE;
    problem_t m;
    float* nothing = poisoned(out_count(p));
    m.input = tensor4d(p->n, p->c, p->h, p->w);
    m.weights = tensor4d(p->k, p->c, p->r, p->s);
    m.bias = tensor4d(1, p->k, 1, 1);
    m.output = tensor4d(p->n, p->k, out_h(p), out_w(p));
    m.conv = convolution(p);
    OK(miopenCreateActivationDescriptor(&m.relu));
    OK(miopenSetActivationDescriptor(m.relu, miopenActivationRELU, 0, 0, 0));
    m.x = whole(in_count(p), seed, 3);
    m.w = whole(filter_count(p), seed + 1, 2);
    m.b = whole((size_t)p->k, seed + 2, 5);
    m.expected = oracle_conv(p, m.x, m.w);
    m.dx = upload(m.x, in_count(p) * sizeof(float));
    m.dw = upload(m.w, filter_count(p) * sizeof(float));
    m.db = upload(m.b, (size_t)p->k * sizeof(float));
    m.dy = upload(nothing, out_count(p) * sizeof(float));
    free(nothing);
    return m;
}

static void end(problem_t* m) {
    CUDA(cuMemFree_v2(m->dx));
    CUDA(cuMemFree_v2(m->dw));
    CUDA(cuMemFree_v2(m->db));
    CUDA(cuMemFree_v2(m->dy));
    OK(miopenDestroyTensorDescriptor(m->input));
    OK(miopenDestroyTensorDescriptor(m->weights));
    OK(miopenDestroyTensorDescriptor(m->bias));
    OK(miopenDestroyTensorDescriptor(m->output));
    OK(miopenDestroyConvolutionDescriptor(m->conv));
    OK(miopenDestroyActivationDescriptor(m->relu));
    free(m->x), free(m->w), free(m->b), free(m->expected);
}

/* Reads y in a stream, or without one as programs on the default stream do, and compares. */
static void check(const char* what, const problem_t* m, int own_stream, stream_t stream) {
    size_t count = out_count(&SHAPE);
    float* y = poisoned(count);
    if (own_stream) {
        CUDA(cuMemcpyDtoHAsync_v2(y, m->dy, count * sizeof(float), stream));
        CUDA(cuStreamSynchronize(stream));
    } else {
        CUDA(cuMemcpyDtoH_v2(y, m->dy, count * sizeof(float)));
    }
    compare(what, y, m->expected, count, 0);
    memset(y, 0xff, count * sizeof(float));
    CUDA(cuMemcpyHtoD_v2(m->dy, y, count * sizeof(float)));
    free(y);
}

/* C B A as a plan on streams of the caller's, then on the default stream; in a call; profiled. */
static void plans(void) {
    problem_t m = make(1);
    miopenHandle_t handle;
    miopenFusionPlanDescriptor_t plan;
    miopenFusionOpDescriptor_t ops[3];
    miopenOperatorArgs_t args;
    miopenStatus_t compiled;
    stream_t streams[2], found = NULL;
    size_t workspace = 99;
    float alpha = 1, beta = 0, milliseconds = -1;

    CUDA(cuStreamCreate(&streams[0], NON_BLOCKING));
    CUDA(cuStreamCreate(&streams[1], NON_BLOCKING));
    OK(miopenCreateWithStream(&handle, (miopenAcceleratorQueue_t)streams[0]));
    OK(miopenCreateFusionPlan(&plan, miopenVerticalFusion, m.input));
    OK(miopenCreateOpConvForward(plan, &ops[0], m.conv, m.weights));
    OK(miopenCreateOpBiasForward(plan, &ops[1], m.bias));
    OK(miopenCreateOpActivationForward(plan, &ops[2], miopenActivationRELU));
    compiled = miopenCompileFusionPlan(handle, plan);
    if (compiled != miopenStatusSuccess && strstr(fuseplanGetLastErrorString(), "NVRTC")) skip("there is no NVRTC");
    OK(compiled);
    OK(miopenFusionPlanGetWorkSpaceSize(handle, plan, &workspace, miopenConvolutionFwdAlgoDirect));
    CHECK(workspace == 0);
    OK(miopenCreateOperatorArgs(&args));
    OK(miopenSetOpArgsConvForward(args, ops[0], &alpha, &beta, pointer(m.dw)));
    OK(miopenSetOpArgsBiasForward(args, ops[1], &alpha, &beta, pointer(m.db)));
    OK(miopenSetOpArgsActivForward(args, ops[2], &alpha, &beta, 0, 0, 0));
    oracle_bias(&SHAPE, m.expected, m.b);
    oracle_activate(miopenActivationRELU, m.expected, out_count(&SHAPE), 0, 0);

    for (int i = 0; i < 2; i++) {
        OK(miopenSetStream(handle, (miopenAcceleratorQueue_t)streams[i]));
        OK(miopenGetStream(handle, (miopenAcceleratorQueue_t*)&found));
        CHECK(found == streams[i]);
        OK(miopenExecuteFusionPlan(handle, plan, m.input, pointer(m.dx), m.output, pointer(m.dy), args));
        check("C B A on a stream", &m, 1, streams[i]);
    }
    OK(miopenSetStream(handle, NULL));
    OK(miopenExecuteFusionPlan_v2(handle, plan, m.input, pointer(m.dx), m.output, pointer(m.dy), args, NULL, 0));
    check("C B A on the default stream", &m, 0, NULL);
    EXPECT(miopenStatusBadParm,
           miopenExecuteFusionPlan(handle, plan, m.input, pointer(m.dx), m.output, NULL, args));
    EXPECT(miopenStatusBadParm,
           miopenExecuteFusionPlan(handle, plan, m.input, pointer(m.dx), m.output, pointer(m.dx), args));
    OK(miopenDestroy(handle));

    /* Another handle of the device, as miopenCreate makes it: the default stream. */
    OK(miopenCreate(&handle));
    OK(miopenGetStream(handle, (miopenAcceleratorQueue_t*)&found));
    CHECK(found == NULL);
    OK(miopenEnableProfiling(handle, true));
    OK(miopenExecuteFusionPlan(handle, plan, m.input, pointer(m.dx), m.output, pointer(m.dy), args));
    OK(miopenGetKernelTime(handle, &milliseconds));
    CHECK(milliseconds > 0 && milliseconds < 1000);
    check("C B A, profiled", &m, 0, NULL);
    OK(miopenConvolutionBiasActivationForward(handle, &alpha, m.input, pointer(m.dx), m.weights, pointer(m.dw), m.conv,
                                              miopenConvolutionFwdAlgoDirect, NULL, 0, &alpha, NULL, NULL, m.bias,
                                              pointer(m.db), m.relu, m.output, pointer(m.dy)));
    check("C B A in one call", &m, 0, NULL);
    OK(miopenDestroyOperatorArgs(args));
    OK(miopenDestroyFusionPlan(plan));
    OK(miopenDestroy(handle));
    CUDA(cuStreamDestroy_v2(streams[0]));
    CUDA(cuStreamDestroy_v2(streams[1]));
    end(&m);
}

/* The same as single calls: convolution, found and immediate, bias, activation. */
static void calls(void) {
    problem_t m = make(7);
    miopenHandle_t handle;
    miopenConvAlgoPerf_t found;
    size_t count = out_count(&SHAPE);
    float one = 1, zero = 0;
    int returned = 0;

    OK(miopenCreate(&handle));
    OK(miopenFindConvolutionForwardAlgorithm(handle, m.input, pointer(m.dx), m.weights, pointer(m.dw), m.conv, m.output,
                                             pointer(m.dy), 1, &returned, &found, NULL, 0, false));
    CHECK(returned == 1 && found.time > 0 && found.memory == 0);
    check("the convolution that was found", &m, 0, NULL);
    OK(miopenConvolutionForwardImmediate(handle, m.weights, pointer(m.dw), m.input, pointer(m.dx), m.conv, m.output,
                                         pointer(m.dy), NULL, 0, 1));
    check("convolution in immediate mode", &m, 0, NULL);
    OK(miopenConvolutionForward(handle, &one, m.input, pointer(m.dx), m.weights, pointer(m.dw), m.conv,
                                miopenConvolutionFwdAlgoDirect, &zero, m.output, pointer(m.dy), NULL, 0));
    OK(miopenConvolutionForwardBias(handle, &one, m.bias, pointer(m.db), &zero, m.output, pointer(m.dy)));
    OK(miopenActivationForward(handle, m.relu, &one, m.output, pointer(m.dy), &zero, m.output, pointer(m.dy)));
    oracle_bias(&SHAPE, m.expected, m.b);
    oracle_activate(miopenActivationRELU, m.expected, count, 0, 0);
    check("convolution, bias, activation in three calls", &m, 0, NULL);

    /* What the host itself computes is refused, with the reason. */
    EXPECT(miopenStatusNotImplemented, miopenOpTensor(handle, miopenTensorOpAdd, &one, m.output, pointer(m.dy), &one,
                                                      m.bias, pointer(m.db), &zero, m.output, pointer(m.dy)));
    CHECK(strstr(fuseplanGetLastErrorString(), "host memory") != NULL);
    EXPECT(miopenStatusNotImplemented, miopenSetTensor(handle, m.output, pointer(m.dy), &one));
    EXPECT(miopenStatusNotImplemented, miopenScaleTensor(handle, m.output, pointer(m.dy), &one));
    OK(miopenDestroy(handle));
    end(&m);
}

/* Batch-norm for training, whose statistics are the device's too, and with given statistics. */
static void batch_norms(void) {
    enum { N = 4, C = 3, S = 25, COUNT = N * C * S };
    miopenHandle_t handle;
    miopenTensorDescriptor_t tensor = tensor4d(N, C, 5, 5), params = tensor4d(1, C, 1, 1);
    float *x = whole(COUNT, 5, 9), *scale = positive(C, 6), *shift = whole(C, 7, 3);
    float y[COUNT], mean[C], inverse[C], variance[C], one = 1, zero = 0;
    double expected[COUNT], means[C], variances[C];
    address_t dx = upload(x, sizeof y), dy = upload(x, sizeof y);
    address_t dscale = upload(scale, sizeof mean), dshift = upload(shift, sizeof mean);
    address_t dmean = upload(shift, sizeof mean), dinverse = upload(shift, sizeof mean), dvariance;

    for (int c = 0; c < C; c++) {
        double sum = 0, squares = 0;
        for (int i = 0; i < N * S; i++) sum += x[(i / S * C + c) * S + i % S];
        means[c] = sum / (N * S);
        for (int i = 0; i < N * S; i++) squares += pow(x[(i / S * C + c) * S + i % S] - means[c], 2);
        variances[c] = squares / (N * S);
        variance[c] = (float)variances[c];
        for (int i = 0; i < N * S; i++) {
            int at = (i / S * C + c) * S + i % S;
            expected[at] = scale[c] * (x[at] - means[c]) / sqrt(variances[c] + 1e-3) + shift[c];
        }
    }
    OK(miopenCreate(&handle));
    OK(miopenBatchNormalizationForwardTraining(handle, miopenBNSpatial, &one, &zero, tensor, pointer(dx), tensor,
                                               pointer(dy), params, pointer(dscale), pointer(dshift), 1, NULL, NULL,
                                               1e-3, pointer(dmean), pointer(dinverse)));
    CUDA(cuMemcpyDtoH_v2(y, dy, sizeof y));
    CUDA(cuMemcpyDtoH_v2(mean, dmean, sizeof mean));
    CUDA(cuMemcpyDtoH_v2(inverse, dinverse, sizeof inverse));
    compare("batch-norm, training", y, expected, COUNT, 1e-5);
    compare("saved mean", mean, means, C, 1e-5);
    for (int c = 0; c < C; c++) CHECK(fabs(inverse[c] * sqrt(variances[c] + 1e-3) - 1) < 1e-5);
    dvariance = upload(variance, sizeof variance);
    OK(miopenBatchNormalizationForwardInference(handle, miopenBNSpatial, &one, &zero, tensor, pointer(dx), tensor,
                                                pointer(dy), params, pointer(dscale), pointer(dshift), pointer(dmean),
                                                pointer(dvariance), 1e-3));
    CUDA(cuMemcpyDtoH_v2(y, dy, sizeof y));
    compare("batch-norm, inference", y, expected, COUNT, 1e-5);

    OK(miopenDestroy(handle));
    OK(miopenDestroyTensorDescriptor(tensor));
    OK(miopenDestroyTensorDescriptor(params));
    CUDA(cuMemFree_v2(dx));
    CUDA(cuMemFree_v2(dy));
    CUDA(cuMemFree_v2(dscale));
    CUDA(cuMemFree_v2(dshift));
    CUDA(cuMemFree_v2(dmean));
    CUDA(cuMemFree_v2(dinverse));
    CUDA(cuMemFree_v2(dvariance));
    free(x), free(scale), free(shift);
}

int main(void) {
    void* context;
    load();
    CHECK(setenv("FUSEPLAN_BACKEND", "cuda", 1) == 0);
    CUDA(cuDevicePrimaryCtxRetain(&context, 0));
    CUDA(cuCtxSetCurrent(context));
    plans();
    calls();
    batch_norms();
    CUDA(cuCtxSetCurrent(NULL));
    CUDA(cuDevicePrimaryCtxRelease_v2(0));
    printf("ran on CUDA\n");
    return 0;
}
