/*
 * Executions where a thread, and the process, end: in the destructor of a pthread key, and in an `atexit` handler. The
 * library's own thread-local memory is gone by then.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* What the checks end the process by: it may be at its end already, where `exit` must not be called. */
static void leave(int code) {
    fflush(stdout);
    _exit(code);
}
#define exit leave

#include "client.h"

enum { K = 8, ROUNDS = 3 };

static const shape_t shape = {2, 5, 9, 7, K, 3, 3, 1, 1, 1, 1, 0};
static int rounds;
static pthread_key_t key;

/* Makes a plan of convolution and ReLU, and executes it once. */
static void execute(void) {
    miopenHandle_t handle;
    miopenFusionPlanDescriptor_t plan;
    miopenFusionOpDescriptor_t conv_op, relu_op;
    miopenOperatorArgs_t args;
    miopenTensorDescriptor_t x = tensor4d(shape.n, shape.c, shape.h, shape.w);
    miopenTensorDescriptor_t w = tensor4d(shape.k, shape.c, shape.r, shape.s);
    miopenTensorDescriptor_t y = tensor4d(shape.n, shape.k, out_h(&shape), out_w(&shape));
    miopenConvolutionDescriptor_t conv = convolution(&shape);
    float *input = whole(in_count(&shape), 1, 4), *weights = whole(filter_count(&shape), 2, 4);
    float* output = poisoned(out_count(&shape));
    double* expected = oracle_conv(&shape, input, weights);
    OK(miopenCreate(&handle));
    OK(miopenCreateFusionPlan(&plan, miopenVerticalFusion, x));
    OK(miopenCreateOpConvForward(plan, &conv_op, conv, w));
    OK(miopenCreateOpActivationForward(plan, &relu_op, miopenActivationRELU));
    OK(miopenCompileFusionPlan(handle, plan));
    OK(miopenCreateOperatorArgs(&args));
    OK(miopenSetOpArgsConvForward(args, conv_op, NULL, NULL, weights));
    OK(miopenSetOpArgsActivForward(args, relu_op, NULL, NULL, 0, 0, 0));
    OK(miopenExecuteFusionPlan(handle, plan, x, input, y, output, args));
    oracle_activate(miopenActivationRELU, expected, out_count(&shape), 0, 0);
    compare("output", output, expected, out_count(&shape), tolerance_of(&shape));
    OK(miopenDestroyOperatorArgs(args));
    OK(miopenDestroyFusionPlan(plan));
    OK(miopenDestroy(handle));
    OK(miopenDestroyConvolutionDescriptor(conv));
    OK(miopenDestroyTensorDescriptor(x));
    OK(miopenDestroyTensorDescriptor(w));
    OK(miopenDestroyTensorDescriptor(y));
    free(input), free(weights), free(output), free(expected);
}

/* Destructors are called again while the key has a value. */
static void at_key_end(void* value) {
    execute();
    if (++rounds < ROUNDS) (void)pthread_setspecific(key, value);
}

static void* thread(void* unused) {
    CHECK(pthread_setspecific(key, &rounds) == 0);
    execute();
    return unused;
}

static void at_exit(void) {
    CHECK(rounds == ROUNDS);
    execute();
}

int main(void) {
    pthread_t ended;
    CHECK(pthread_key_create(&key, at_key_end) == 0);
    CHECK(atexit(at_exit) == 0);
    execute();
    CHECK(pthread_create(&ended, NULL, thread, NULL) == 0);
    CHECK(pthread_join(ended, NULL) == 0);
    CHECK(rounds == ROUNDS);
    return 0;
}
