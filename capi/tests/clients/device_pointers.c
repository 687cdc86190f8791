/*
 * A client on a GPU: device pointers and streams of its own, from CUDA's driver or HIP's runtime, as
 * FUSEPLAN_BACKEND says, `cuda` or `rocm`. They are loaded at run time so that this compiles everywhere.
 * Without such a GPU, or without its run-time compiler, it says so and does nothing; where REQUIRE_BACKEND
 * names the backend that is a failure.
 */
#include <dlfcn.h>

#include "client.h"

typedef void* stream_t;
typedef void* event_t;
typedef unsigned long long address_t;

static const char* backend;

/* What is needed of a GPU, as HIP has it. */
static struct {
    int (*allocate)(void** memory, size_t bytes);
    int (*release)(void* memory);
    int (*copy)(void* to, const void* from, size_t bytes, int direction, stream_t stream);
    int (*create_stream)(stream_t* stream, unsigned flags);
    int (*synchronize)(stream_t stream);
    int (*destroy_stream)(stream_t stream);
    int (*create_event)(event_t* event, unsigned flags);
    int (*record)(event_t event, stream_t stream);
    int (*reached)(event_t event);
    int (*elapsed)(float* milliseconds, event_t start, event_t end);
    int (*destroy_event)(event_t event);
} gpu;

enum { TO_DEVICE = 1, TO_HOST = 2 };
enum { NON_BLOCKING = 1 };

/* CUDA's functions of other types: its addresses are numbers. */
static struct {
    int (*allocate)(address_t* address, size_t bytes);
    int (*release)(address_t address);
    int (*copy_to_device)(address_t to, const void* from, size_t bytes, stream_t stream);
    int (*copy_to_host)(void* to, address_t from, size_t bytes, stream_t stream);
    int (*make_current)(void* context);
    int (*release_context)(int device);
} cuda;

#define GPU(call)                                               \
    do {                                                        \
        int result_ = call;                                     \
        if (result_ != 0) FAIL("%s gave %d", #call, result_);   \
    } while (0)

static void skip(const char* reason) {
    const char* required = getenv("REQUIRE_BACKEND");
    if (required && strstr(required, backend)) FAIL("required, but skipped: %s", reason);
    printf("skipped: %s\n", reason);
    exit(0);
}

/* Has a pointer to functions point to the library's function. */
static void find(void* library, const char* name, void* pointer) {
    void* found = dlsym(library, name);
    if (!found) FAIL("the library has no %s", name);
    memcpy(pointer, &found, sizeof found);
}

static int cuda_allocate(void** memory, size_t bytes) {
    address_t address = 0;
    int result = cuda.allocate(&address, bytes);
    *memory = (void*)(size_t)address;
    return result;
}

static int cuda_release(void* memory) { return cuda.release((size_t)memory); }

static int cuda_copy(void* to, const void* from, size_t bytes, int direction, stream_t stream) {
    return direction == TO_DEVICE ? cuda.copy_to_device((size_t)to, from, bytes, stream)
                                  : cuda.copy_to_host(to, (size_t)from, bytes, stream);
}

static void start_cuda(void) {
    int (*init)(unsigned), (*count_devices)(int*), (*retain_context)(void**, int), count = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    if (!driver) skip("there is no libcuda.so.1");
    find(driver, "cuInit", &init);
    find(driver, "cuDeviceGetCount", &count_devices);
    find(driver, "cuDevicePrimaryCtxRetain", &retain_context);
    find(driver, "cuDevicePrimaryCtxRelease_v2", &cuda.release_context);
    find(driver, "cuCtxSetCurrent", &cuda.make_current);
    find(driver, "cuMemAlloc_v2", &cuda.allocate);
    find(driver, "cuMemFree_v2", &cuda.release);
    find(driver, "cuMemcpyHtoDAsync_v2", &cuda.copy_to_device);
    find(driver, "cuMemcpyDtoHAsync_v2", &cuda.copy_to_host);
    find(driver, "cuStreamCreate", &gpu.create_stream);
    find(driver, "cuStreamSynchronize", &gpu.synchronize);
    find(driver, "cuStreamDestroy_v2", &gpu.destroy_stream);
    find(driver, "cuEventCreate", &gpu.create_event);
    find(driver, "cuEventRecord", &gpu.record);
    find(driver, "cuEventSynchronize", &gpu.reached);
    find(driver, "cuEventElapsedTime", &gpu.elapsed);
    find(driver, "cuEventDestroy_v2", &gpu.destroy_event);
    gpu.allocate = cuda_allocate;
    gpu.release = cuda_release;
    gpu.copy = cuda_copy;
    if (init(0) != 0) skip("the driver finds no GPU");
    GPU(count_devices(&count));
    if (count == 0) skip("the driver has no GPU");
    GPU(retain_context(&context, 0));
    GPU(cuda.make_current(context));
}

static void stop_cuda(void) {
    GPU(cuda.make_current(NULL));
    GPU(cuda.release_context(0));
}

/* The runtime of ROCM_PATH, else of the loader's folders, else of ROCm's own. */
static void* load_hip(void) {
    const char* folders[] = {getenv("ROCM_PATH"), "", "/opt/rocm"};
    for (int i = 0; i < 6; i++) {
        const char* folder = folders[i / 2];
        char file[4096];
        void* runtime;
        if (!folder) continue;
        snprintf(file, sizeof file, "%s%slibamdhip64.so.%d", folder, *folder ? "/lib/" : "", i % 2 ? 6 : 7);
        runtime = dlopen(file, RTLD_NOW);
        if (runtime) return runtime;
    }
    return NULL;
}

static void start_rocm(void) {
    int (*init)(unsigned), (*count_devices)(int*), (*set_device)(int), count = 0;
    void* runtime = load_hip();
    if (!runtime) skip("there is no libamdhip64.so.7 or libamdhip64.so.6");
    find(runtime, "hipInit", &init);
    find(runtime, "hipGetDeviceCount", &count_devices);
    find(runtime, "hipSetDevice", &set_device);
    find(runtime, "hipMalloc", &gpu.allocate);
    find(runtime, "hipFree", &gpu.release);
    find(runtime, "hipMemcpyAsync", &gpu.copy);
    find(runtime, "hipStreamCreateWithFlags", &gpu.create_stream);
    find(runtime, "hipStreamSynchronize", &gpu.synchronize);
    find(runtime, "hipStreamDestroy", &gpu.destroy_stream);
    find(runtime, "hipEventCreateWithFlags", &gpu.create_event);
    find(runtime, "hipEventRecord", &gpu.record);
    find(runtime, "hipEventSynchronize", &gpu.reached);
    find(runtime, "hipEventElapsedTime", &gpu.elapsed);
    find(runtime, "hipEventDestroy", &gpu.destroy_event);
    if (init(0) != 0 || count_devices(&count) != 0 || count == 0) skip("the runtime finds no GPU");
    GPU(set_device(0));
}

/* Copies in a stream, or in the default stream, which is NULL, and waits. */
static void copy(void* to, const void* from, size_t bytes, int direction, stream_t stream) {
    GPU(gpu.copy(to, from, bytes, direction, stream));
    GPU(gpu.synchronize(stream));
}

/* Memory of the device with these contents. */
static void* upload(const void* data, size_t bytes) {
    void* memory;
    GPU(gpu.allocate(&memory, bytes));
    copy(memory, data, bytes, TO_DEVICE, NULL);
    return memory;
}

static const shape_t SHAPE = {16, 128, 16, 16, 9, 3, 3, 1, 1, 1, 1, 0};

typedef struct {
    miopenTensorDescriptor_t input, weights, bias, output;
    miopenConvolutionDescriptor_t conv;
    miopenActivationDescriptor_t relu;
    float *x, *w, *b;
    double* expected;
    void *dx, *dw, *db, *dy;
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
    GPU(gpu.release(m->dx));
    GPU(gpu.release(m->dw));
    GPU(gpu.release(m->db));
    GPU(gpu.release(m->dy));
    OK(miopenDestroyTensorDescriptor(m->input));
    OK(miopenDestroyTensorDescriptor(m->weights));
    OK(miopenDestroyTensorDescriptor(m->bias));
    OK(miopenDestroyTensorDescriptor(m->output));
    OK(miopenDestroyConvolutionDescriptor(m->conv));
    OK(miopenDestroyActivationDescriptor(m->relu));
    free(m->x), free(m->w), free(m->b), free(m->expected);
}

/* Reads y in a stream, or without one as programs on the default stream do, and compares. */
static void check(const char* what, const problem_t* m, stream_t stream) {
    size_t count = out_count(&SHAPE);
    float* y = poisoned(count);
    copy(y, m->dy, count * sizeof(float), TO_HOST, stream);
    compare(what, y, m->expected, count, ROUNDED);
    memset(y, 0xff, count * sizeof(float));
    copy(m->dy, y, count * sizeof(float), TO_DEVICE, NULL);
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
    event_t start, stop;
    float alpha = 1, beta = 0, milliseconds = -1, around = -1;

    GPU(gpu.create_stream(&streams[0], NON_BLOCKING));
    GPU(gpu.create_stream(&streams[1], NON_BLOCKING));
    OK(miopenCreateWithStream(&handle, (miopenAcceleratorQueue_t)streams[0]));
    OK(miopenCreateFusionPlan(&plan, miopenVerticalFusion, m.input));
    OK(miopenCreateOpConvForward(plan, &ops[0], m.conv, m.weights));
    OK(miopenCreateOpBiasForward(plan, &ops[1], m.bias));
    OK(miopenCreateOpActivationForward(plan, &ops[2], miopenActivationRELU));
    compiled = miopenCompileFusionPlan(handle, plan);
    if (compiled != miopenStatusSuccess && strstr(fuseplanGetLastErrorString(), "run-time compiler"))
        skip(fuseplanGetLastErrorString());
    OK(compiled);
    OK(miopenFusionPlanGetWorkSpaceSize(handle, plan, &workspace, miopenConvolutionFwdAlgoDirect));
    CHECK(workspace == 0);
    OK(miopenCreateOperatorArgs(&args));
    OK(miopenSetOpArgsConvForward(args, ops[0], &alpha, &beta, m.dw));
    OK(miopenSetOpArgsBiasForward(args, ops[1], &alpha, &beta, m.db));
    OK(miopenSetOpArgsActivForward(args, ops[2], &alpha, &beta, 0, 0, 0));
    oracle_bias(&SHAPE, m.expected, m.b);
    oracle_activate(miopenActivationRELU, m.expected, out_count(&SHAPE), 0, 0);

    for (int i = 0; i < 2; i++) {
        OK(miopenSetStream(handle, (miopenAcceleratorQueue_t)streams[i]));
        OK(miopenGetStream(handle, (miopenAcceleratorQueue_t*)&found));
        CHECK(found == streams[i]);
        OK(miopenExecuteFusionPlan(handle, plan, m.input, m.dx, m.output, m.dy, args));
        check("C B A on a stream", &m, streams[i]);
    }
    OK(miopenSetStream(handle, NULL));
    OK(miopenExecuteFusionPlan_v2(handle, plan, m.input, m.dx, m.output, m.dy, args, NULL, 0));
    check("C B A on the default stream", &m, NULL);
    EXPECT(miopenStatusBadParm, miopenExecuteFusionPlan(handle, plan, m.input, m.dx, m.output, NULL, args));
    EXPECT(miopenStatusBadParm, miopenExecuteFusionPlan(handle, plan, m.input, m.dx, m.output, m.dx, args));
    OK(miopenDestroy(handle));

    /* Another handle of the device, as miopenCreate makes it: the default stream. */
    OK(miopenCreate(&handle));
    OK(miopenGetStream(handle, (miopenAcceleratorQueue_t*)&found));
    CHECK(found == NULL);
    OK(miopenEnableProfiling(handle, true));
    /* However long a device takes: the kernel's time lies within that of events around it in its stream. */
    GPU(gpu.create_event(&start, 0));
    GPU(gpu.create_event(&stop, 0));
    GPU(gpu.record(start, NULL));
    OK(miopenExecuteFusionPlan(handle, plan, m.input, m.dx, m.output, m.dy, args));
    GPU(gpu.record(stop, NULL));
    GPU(gpu.reached(stop));
    GPU(gpu.elapsed(&around, start, stop));
    OK(miopenGetKernelTime(handle, &milliseconds));
    if (!(milliseconds > 0 && milliseconds <= around))
        FAIL("the kernel took %g ms, of %g ms between events around it", milliseconds, around);
    check("C B A, profiled", &m, NULL);
    GPU(gpu.destroy_event(start));
    GPU(gpu.destroy_event(stop));
    OK(miopenConvolutionBiasActivationForward(handle, &alpha, m.input, m.dx, m.weights, m.dw, m.conv,
                                              miopenConvolutionFwdAlgoDirect, NULL, 0, &alpha, NULL, NULL, m.bias,
                                              m.db, m.relu, m.output, m.dy));
    check("C B A in one call", &m, NULL);
    OK(miopenDestroyOperatorArgs(args));
    OK(miopenDestroyFusionPlan(plan));
    OK(miopenDestroy(handle));
    GPU(gpu.destroy_stream(streams[0]));
    GPU(gpu.destroy_stream(streams[1]));
    end(&m);
}

/* Convolution, bias and RELU as a problem that is searched in memory of the library's own, then run. */
static void solution(miopenHandle_t handle, problem_t* m) {
    miopenProblem_t problem, bias, relu;
    miopenSolution_t found;
    size_t count = 0;
    float time = 0;
    OK(miopenCreateConvProblem(&problem, m->conv, miopenProblemDirectionForward));
    OK(miopenSetProblemTensorDescriptor(problem, miopenTensorConvolutionX, m->input));
    OK(miopenSetProblemTensorDescriptor(problem, miopenTensorConvolutionW, m->weights));
    OK(miopenCreateBiasProblem(&bias, miopenProblemDirectionForward));
    OK(miopenCreateActivationProblem(&relu, m->relu, miopenProblemDirectionForward));
    OK(miopenFuseProblems(problem, bias));
    OK(miopenFuseProblems(problem, relu));
    OK(miopenFindSolutions(handle, problem, NULL, &found, &count, 1));
    OK(miopenGetSolutionTime(found, &time));
    CHECK(count == 1 && time > 0);
    miopenTensorArgument_t arguments[4] = {{miopenTensorConvolutionX, NULL, m->dx},
                                           {miopenTensorConvolutionW, NULL, m->dw},
                                           {miopenTensorBias, NULL, m->db},
                                           {miopenTensorActivationY, NULL, m->dy}};
    OK(miopenRunSolution(handle, found, 4, arguments, NULL, 0));
    free(m->expected);
    m->expected = oracle_conv(&SHAPE, m->x, m->w);
    oracle_bias(&SHAPE, m->expected, m->b);
    oracle_activate(miopenActivationRELU, m->expected, out_count(&SHAPE), 0, 0);
    check("a solution", m, NULL);
    OK(miopenDestroySolution(found));
    OK(miopenDestroyProblem(problem));
    OK(miopenDestroyProblem(bias));
    OK(miopenDestroyProblem(relu));
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
    OK(miopenFindConvolutionForwardAlgorithm(handle, m.input, m.dx, m.weights, m.dw, m.conv, m.output, m.dy, 1,
                                             &returned, &found, NULL, 0, false));
    CHECK(returned == 1 && found.time > 0 && found.memory == 0);
    check("the convolution that was found", &m, NULL);
    OK(miopenConvolutionForwardImmediate(handle, m.weights, m.dw, m.input, m.dx, m.conv, m.output, m.dy, NULL, 0, 1));
    check("convolution in immediate mode", &m, NULL);
    OK(miopenConvolutionForward(handle, &one, m.input, m.dx, m.weights, m.dw, m.conv, miopenConvolutionFwdAlgoDirect,
                                &zero, m.output, m.dy, NULL, 0));
    OK(miopenConvolutionForwardBias(handle, &one, m.bias, m.db, &zero, m.output, m.dy));
    OK(miopenActivationForward(handle, m.relu, &one, m.output, m.dy, &zero, m.output, m.dy));
    oracle_bias(&SHAPE, m.expected, m.b);
    oracle_activate(miopenActivationRELU, m.expected, count, 0, 0);
    check("convolution, bias, activation in three calls", &m, NULL);

    /* A residual in the output's own memory. */
    float* z = whole(count, 11, 5);
    free(m.expected);
    m.expected = oracle_conv(&SHAPE, m.x, m.w);
    oracle_add(m.expected, z, count);
    oracle_bias(&SHAPE, m.expected, m.b);
    oracle_activate(miopenActivationRELU, m.expected, count, 0, 0);
    copy(m.dy, z, count * sizeof *z, TO_DEVICE, NULL);
    OK(miopenConvolutionBiasActivationForward(handle, &one, m.input, m.dx, m.weights, m.dw, m.conv,
                                              miopenConvolutionFwdAlgoDirect, NULL, 0, &one, m.output, m.dy, m.bias,
                                              m.db, m.relu, m.output, m.dy));
    check("a residual that is the output", &m, NULL);
    free(z);

    solution(handle, &m);

    /* What the host itself computes is refused, with the reason. */
    EXPECT(miopenStatusNotImplemented, miopenOpTensor(handle, miopenTensorOpAdd, &one, m.output, m.dy, &one, m.bias,
                                                      m.db, &zero, m.output, m.dy));
    CHECK(strstr(fuseplanGetLastErrorString(), "host memory") != NULL);
    EXPECT(miopenStatusNotImplemented, miopenSetTensor(handle, m.output, m.dy, &one));
    EXPECT(miopenStatusNotImplemented, miopenScaleTensor(handle, m.output, m.dy, &one));
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
    void *dx = upload(x, sizeof y), *dy = upload(x, sizeof y);
    void *dscale = upload(scale, sizeof mean), *dshift = upload(shift, sizeof mean);
    void *dmean = upload(shift, sizeof mean), *dinverse = upload(shift, sizeof mean), *dvariance;

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
    OK(miopenBatchNormalizationForwardTraining(handle, miopenBNSpatial, &one, &zero, tensor, dx, tensor, dy, params,
                                               dscale, dshift, 1, NULL, NULL, 1e-3, dmean, dinverse));
    copy(y, dy, sizeof y, TO_HOST, NULL);
    copy(mean, dmean, sizeof mean, TO_HOST, NULL);
    copy(inverse, dinverse, sizeof inverse, TO_HOST, NULL);
    compare("batch-norm, training", y, expected, COUNT, 1e-5);
    compare("saved mean", mean, means, C, 1e-5);
    for (int c = 0; c < C; c++) CHECK(fabs(inverse[c] * sqrt(variances[c] + 1e-3) - 1) < 1e-5);
    dvariance = upload(variance, sizeof variance);
    OK(miopenBatchNormalizationForwardInference(handle, miopenBNSpatial, &one, &zero, tensor, dx, tensor, dy, params,
                                                dscale, dshift, dmean, dvariance, 1e-3));
    copy(y, dy, sizeof y, TO_HOST, NULL);
    compare("batch-norm, inference", y, expected, COUNT, 1e-5);
    copy(dy, x, COUNT * sizeof *x, TO_DEVICE, NULL);
    OK(miopenBatchNormalizationForwardInference(handle, miopenBNSpatial, &one, &zero, tensor, dx, tensor, dy, params,
                                                dscale, dshift, NULL, NULL, 1e-3));
    copy(y, dy, sizeof y, TO_HOST, NULL);
    compare("batch-norm, inference by the batch's statistics", y, expected, COUNT, 1e-5);

    /* Running statistics from one memory (shift, scale) to another. */
    OK(miopenBatchNormalizationForwardTraining_V3(handle, miopenBNSpatial, &one, &zero, tensor, dx, tensor, dy, params,
                                                  params, params, params, dscale, dshift, 0.5, dshift, dscale, dmean,
                                                  dvariance, 1e-3, NULL, dinverse));
    copy(mean, dmean, sizeof mean, TO_HOST, NULL);
    copy(variance, dvariance, sizeof variance, TO_HOST, NULL);
    for (int c = 0; c < C; c++) {
        means[c] = 0.5 * shift[c] + 0.5 * means[c];
        variances[c] = 0.5 * scale[c] + 0.5 * variances[c] * (N * S) / (N * S - 1);
    }
    compare("running mean", mean, means, C, 1e-5);
    compare("running variance", variance, variances, C, 1e-5);

    OK(miopenDestroy(handle));
    OK(miopenDestroyTensorDescriptor(tensor));
    OK(miopenDestroyTensorDescriptor(params));
    GPU(gpu.release(dx));
    GPU(gpu.release(dy));
    GPU(gpu.release(dscale));
    GPU(gpu.release(dshift));
    GPU(gpu.release(dmean));
    GPU(gpu.release(dinverse));
    GPU(gpu.release(dvariance));
    free(x), free(scale), free(shift);
}

/* Reads f32s from the device, which are written over there. */
static void check_floats(const char* what, void* device, const double* expected, size_t count) {
    float* found = poisoned(count);
    copy(found, device, count * sizeof(float), TO_HOST, NULL);
    compare(what, found, expected, count, 1e-4);
    memset(found, 0xff, count * sizeof(float));
    copy(device, found, count * sizeof(float), TO_DEVICE, NULL);
    free(found);
}

/* Calls that need memory of their own beside the caller's: gradients whose forward pass left nothing behind, or that
   make its output again; inference by an inverse variance. */
static void scratch(void) {
    enum { N = 4, C = 3, S = 25, M = N * S, COUNT = N * C * S };
    miopenHandle_t handle;
    miopenTensorDescriptor_t t = tensor4d(N, C, 5, 5), p = tensor4d(1, C, 1, 1);
    miopenActivationDescriptor_t relu;
    float *x = whole(COUNT, 5, 9), *dy = whole(COUNT, 8, 4), *scale = positive(C, 6), *shift = whole(C, 7, 3);
    float one = 1, zero = 0, saved[2][C];
    double y[COUNT], cut[COUNT], dx[2][COUNT], dscale[2][C], dshift[2][C], epsilon = 1e-3;
    void *d_x, *d_dy, *d_dx, *d_scale, *d_shift, *d_mean, *d_inverse, *d_dscale, *d_dshift;

    for (int c = 0; c < C; c++) {
        double sum = 0, squares = 0, inverse;
        for (int i = 0; i < M; i++) sum += x[(i / S * C + c) * S + i % S];
        for (int i = 0; i < M; i++) squares += pow(x[(i / S * C + c) * S + i % S] - sum / M, 2);
        inverse = 1 / sqrt(squares / M + epsilon);
        saved[0][c] = (float)(sum / M), saved[1][c] = (float)inverse;
        /* Without an activation and with RELU. */
        for (int with = 0; with < 2; with++) {
            dscale[with][c] = dshift[with][c] = 0;
            for (int pass = 0; pass < 2; pass++) {
                for (int i = 0; i < M; i++) {
                    int at = (i / S * C + c) * S + i % S;
                    double normal = (x[at] - sum / M) * inverse, out = scale[c] * normal + shift[c];
                    double back = with && out <= 0 ? 0 : dy[at];
                    y[at] = out, cut[at] = out > 0 ? out : 0;
                    if (pass == 0) dscale[with][c] += back * normal, dshift[with][c] += back;
                    else dx[with][at] = scale[c] * inverse * (back - (dshift[with][c] + normal * dscale[with][c]) / M);
                }
            }
        }
    }
    d_x = upload(x, COUNT * sizeof *x), d_dy = upload(dy, COUNT * sizeof *dy), d_dx = upload(x, COUNT * sizeof *x);
    d_scale = upload(scale, C * sizeof *scale), d_shift = upload(shift, C * sizeof *shift);
    d_mean = upload(saved[0], sizeof saved[0]), d_inverse = upload(saved[1], sizeof saved[1]);
    d_dscale = upload(shift, C * sizeof *shift), d_dshift = upload(shift, C * sizeof *shift);
    OK(miopenCreate(&handle));
    OK(miopenCreateActivationDescriptor(&relu));
    OK(miopenSetActivationDescriptor(relu, miopenActivationRELU, 0, 0, 0));

    OK(miopenBatchNormalizationBackward(handle, miopenBNSpatial, &one, &zero, &one, &zero, t, d_x, t, d_dy, t, d_dx, p,
                                        d_scale, d_dscale, d_dshift, epsilon, NULL, NULL));
    check_floats("gradient, nothing saved", d_dx, dx[0], COUNT);
    check_floats("its scale", d_dscale, dscale[0], C);
    check_floats("its bias", d_dshift, dshift[0], C);
    for (int given = 0; given < 2; given++) {
        OK(miopenBatchNormBackwardActivation(handle, miopenBNSpatial, &one, &zero, &one, &zero, t, d_x, t, d_dy, t, d_dx,
                                             p, p, p, p, d_scale, d_shift, d_dscale, d_dshift, epsilon,
                                             given ? d_mean : NULL, given ? d_inverse : NULL, relu));
        check_floats("gradient of batch-norm and RELU", d_dx, dx[1], COUNT);
        check_floats("its scale", d_dscale, dscale[1], C);
        check_floats("its bias", d_dshift, dshift[1], C);
    }
    OK(miopenBatchNormalizationForwardInferenceInvVariance(handle, miopenBNSpatial, &one, &zero, t, d_x, t, d_dx, p, p, p,
                                                           p, d_scale, d_shift, d_mean, d_inverse));
    check_floats("inference by an inverse variance", d_dx, y, COUNT);
    OK(miopenBatchNormForwardInferenceActivationInvVariance(handle, miopenBNSpatial, &one, &zero, t, d_x, t, d_dx, p, p,
                                                            p, p, d_scale, d_shift, d_mean, d_inverse, relu));
    check_floats("the same with RELU", d_dx, cut, COUNT);

    OK(miopenDestroy(handle));
    OK(miopenDestroyActivationDescriptor(relu));
    OK(miopenDestroyTensorDescriptor(t));
    OK(miopenDestroyTensorDescriptor(p));
    void* all[] = {d_x, d_dy, d_dx, d_scale, d_shift, d_mean, d_inverse, d_dscale, d_dshift};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) GPU(gpu.release(all[i]));
    free(x), free(dy), free(scale), free(shift);
}

int main(void) {
    backend = getenv("FUSEPLAN_BACKEND");
    if (backend && strcmp(backend, "cuda") == 0) start_cuda();
    else if (backend && strcmp(backend, "rocm") == 0) start_rocm();
    else {
        fprintf(stderr, "FUSEPLAN_BACKEND has to be cuda or rocm\n");
        return 2;
    }
    plans();
    calls();
    batch_norms();
    scratch();
    if (cuda.release_context) stop_cuda();
    printf("ran on %s\n", backend);
    return 0;
}
