/*
 * The caller's threads: by a loop that starts POSIX threads, by one that runs everything itself in a shuffled order, and
 * by one that calls the library from within. Each gives the bits that the library's own threads give, on convolutions of
 * several kinds; and the library's own threads compute again when they are asked for.
 */
#include <pthread.h>

#include "client.h"

enum { THREADS = 3, SHAPES = 4 };

static const shape_t shapes[SHAPES] = {
    {2, 16, 19, 17, 40, 3, 3, 1, 1, 1, 1, 0},
    {1, 32, 20, 20, 64, 1, 1, 0, 1, 1, 1, 1},
    {1, 24, 21, 18, 24, 3, 3, 1, 1, 1, 24, 1},
    {3, 8, 15, 14, 16, 3, 3, 1, 2, 1, 2, 0},
};

typedef struct {
    int calls;
    size_t most;
    /* A handle to call the library with from within, or NULL. */
    miopenHandle_t inner;
} pool_t;

typedef struct {
    fuseplanWork_t work;
    void* argument;
    size_t index;
} piece_t;

static void* piece(void* of) {
    const piece_t* p = (const piece_t*)of;
    return p->work(p->argument, p->index), NULL;
}

static void note(void* context, size_t count) {
    pool_t* pool = (pool_t*)context;
    pool->calls++;
    if (count > pool->most) pool->most = count;
}

/* A thread for each index but the first, which this thread computes. */
static void threaded(void* context, size_t count, fuseplanWork_t work, void* argument) {
    pthread_t threads[THREADS];
    piece_t pieces[THREADS];
    note(context, count);
    for (size_t i = 1; i < count; i++) {
        pieces[i].work = work, pieces[i].argument = argument, pieces[i].index = i;
        CHECK(pthread_create(&threads[i], NULL, piece, &pieces[i]) == 0);
    }
    work(argument, 0);
    for (size_t i = 1; i < count; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

/* Everything on this thread: the second index, the first, then from the last downwards. */
static void shuffled(void* context, size_t count, fuseplanWork_t work, void* argument) {
    note(context, count);
    for (size_t i = 0; i < count; i++) work(argument, (count + 1 - i) % count);
}

static void run(miopenHandle_t handle, const shape_t* p, float* y);

/* Another plan on the same threads, in front of the work and behind it. */
static void nested(void* context, size_t count, fuseplanWork_t work, void* argument) {
    pool_t* pool = (pool_t*)context;
    miopenHandle_t inner = pool->inner;
    float* y = poisoned(out_count(&shapes[1]));
    note(context, count);
    pool->inner = NULL;
    if (inner) run(inner, &shapes[1], y);
    for (size_t i = 0; i < count; i++) work(argument, i);
    if (inner) run(inner, &shapes[1], y);
    pool->inner = inner;
    free(y);
}

/* Convolution, bias, TANH of thirds, whose sums are inexact. */
static void run(miopenHandle_t handle, const shape_t* p, float* y) {
    miopenFusionPlanDescriptor_t plan;
    miopenFusionOpDescriptor_t conv_op, bias_op, tanh_op;
    miopenOperatorArgs_t args;
    miopenTensorDescriptor_t xd, wd, yd, bd = tensor4d(1, p->k, 1, 1);
    miopenConvolutionDescriptor_t conv = convolution(p);
    float *x = whole(in_count(p), 1, 100), *w = whole(filter_count(p), 2, 100), *b = whole((size_t)p->k, 3, 9);
    for (size_t i = 0; i < in_count(p); i++) x[i] /= 3;
    for (size_t i = 0; i < filter_count(p); i++) w[i] /= 700;
    if (p->channels_last) {
        xd = tensor_nhwc(miopenFloat, p->n, p->c, p->h, p->w);
        wd = tensor_nhwc(miopenFloat, p->k, p->c / p->groups, p->r, p->s);
        yd = tensor_nhwc(miopenFloat, p->n, p->k, out_h(p), out_w(p));
    } else {
        xd = tensor4d(p->n, p->c, p->h, p->w);
        wd = tensor4d(p->k, p->c / p->groups, p->r, p->s);
        yd = tensor4d(p->n, p->k, out_h(p), out_w(p));
    }
    OK(miopenCreateFusionPlan(&plan, miopenVerticalFusion, xd));
    OK(miopenCreateOpConvForward(plan, &conv_op, conv, wd));
    OK(miopenCreateOpBiasForward(plan, &bias_op, bd));
    OK(miopenCreateOpActivationForward(plan, &tanh_op, miopenActivationTANH));
    OK(miopenCompileFusionPlan(handle, plan));
    OK(miopenCreateOperatorArgs(&args));
    OK(miopenSetOpArgsConvForward(args, conv_op, NULL, NULL, w));
    OK(miopenSetOpArgsBiasForward(args, bias_op, NULL, NULL, b));
    OK(miopenSetOpArgsActivForward(args, tanh_op, NULL, NULL, 0.7, 0.9, 0));
    OK(miopenExecuteFusionPlan(handle, plan, xd, x, yd, y, args));
    OK(miopenDestroyOperatorArgs(args));
    OK(miopenDestroyFusionPlan(plan));
    OK(miopenDestroyConvolutionDescriptor(conv));
    OK(miopenDestroyTensorDescriptor(xd));
    OK(miopenDestroyTensorDescriptor(wd));
    OK(miopenDestroyTensorDescriptor(yd));
    OK(miopenDestroyTensorDescriptor(bd));
    free(x), free(w), free(b);
}

int main(void) {
    const fuseplanParallelFor_t loops[] = {threaded, shuffled, nested};
    miopenHandle_t own, handle;
    float* expected[SHAPES];
    OK(fuseplanCreateForBackend(&own, "cpu"));
    OK(fuseplanCreateForBackend(&handle, "cpu"));
    for (int s = 0; s < SHAPES; s++) {
        expected[s] = poisoned(out_count(&shapes[s]));
        run(own, &shapes[s], expected[s]);
    }
    for (int l = 0; l < 3; l++)
        for (size_t threads = 1; threads <= THREADS; threads++) {
            pool_t pool = {0, 0, handle};
            OK(fuseplanSetParallelFor(handle, threads, loops[l], &pool));
            for (int s = 0; s < SHAPES; s++) {
                float* y = poisoned(out_count(&shapes[s]));
                run(handle, &shapes[s], y);
                CHECK(memcmp(y, expected[s], out_count(&shapes[s]) * sizeof *y) == 0);
                free(y);
            }
            /* One thread is the calling one. */
            CHECK(threads == 1 ? pool.calls == 0 : pool.calls >= SHAPES && pool.most == threads);
        }
    {
        pool_t pool = {0, 0, NULL};
        float* y = poisoned(out_count(&shapes[0]));
        EXPECT(miopenStatusBadParm, fuseplanSetParallelFor(handle, 0, threaded, &pool));
        EXPECT(miopenStatusBadParm, fuseplanSetParallelFor(handle, 1025, threaded, &pool));
        OK(fuseplanSetParallelFor(handle, 0, NULL, NULL));
        run(handle, &shapes[0], y);
        CHECK(memcmp(y, expected[0], out_count(&shapes[0]) * sizeof *y) == 0 && pool.calls == 0);
        free(y);
    }
    for (int s = 0; s < SHAPES; s++) free(expected[s]);
    OK(miopenDestroy(handle));
    OK(miopenDestroy(own));
    return 0;
}
