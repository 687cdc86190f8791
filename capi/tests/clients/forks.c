/*
 * Children of a process whose threads create, compile and execute. Each child executes a plan that was compiled before
 * the fork and one that was not.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"

enum { THREADS = 4, FORKS = 100 };

static volatile int stop;

/* A plan with all that it needs. */
typedef struct {
    shape_t shape;
    miopenHandle_t handle;
    miopenFusionPlanDescriptor_t plan;
    miopenTensorDescriptor_t x, w, y;
    miopenConvolutionDescriptor_t conv;
    miopenOperatorArgs_t args;
    float *input, *weights;
} made_t;

static made_t make(miopenHandle_t handle, int filters) {
    made_t m;
    miopenFusionOpDescriptor_t conv_op, relu_op;
    shape_t shape = {1, 3, 9, 7, 1, 3, 3, 1, 1, 1, 1, 0};
    shape.k = filters;
    m.shape = shape, m.handle = handle;
    m.x = tensor4d(shape.n, shape.c, shape.h, shape.w);
    m.w = tensor4d(shape.k, shape.c, shape.r, shape.s);
    m.y = tensor4d(shape.n, shape.k, out_h(&shape), out_w(&shape));
    m.conv = convolution(&shape);
    m.input = whole(in_count(&shape), 1, 4), m.weights = whole(filter_count(&shape), 2, 4);
    OK(miopenCreateFusionPlan(&m.plan, miopenVerticalFusion, m.x));
    OK(miopenCreateOpConvForward(m.plan, &conv_op, m.conv, m.w));
    OK(miopenCreateOpActivationForward(m.plan, &relu_op, miopenActivationRELU));
    OK(miopenCompileFusionPlan(handle, m.plan));
    OK(miopenCreateOperatorArgs(&m.args));
    OK(miopenSetOpArgsConvForward(m.args, conv_op, NULL, NULL, m.weights));
    OK(miopenSetOpArgsActivForward(m.args, relu_op, NULL, NULL, 0, 0, 0));
    return m;
}

static void execute(const made_t* m) {
    float* output = poisoned(out_count(&m->shape));
    double* expected = oracle_conv(&m->shape, m->input, m->weights);
    oracle_activate(miopenActivationRELU, expected, out_count(&m->shape), 0, 0);
    OK(miopenExecuteFusionPlan(m->handle, m->plan, m->x, m->input, m->y, output, m->args));
    compare("output", output, expected, out_count(&m->shape), tolerance_of(&m->shape));
    free(output), free(expected);
}

static void end(made_t* m) {
    OK(miopenDestroyOperatorArgs(m->args));
    OK(miopenDestroyFusionPlan(m->plan));
    OK(miopenDestroyConvolutionDescriptor(m->conv));
    OK(miopenDestroyTensorDescriptor(m->x));
    OK(miopenDestroyTensorDescriptor(m->w));
    OK(miopenDestroyTensorDescriptor(m->y));
    free(m->input), free(m->weights);
}

/* A new plan each time; and a failure, which is written to stderr. */
static void* busy(void* number) {
    int filters = (int)(size_t)number;
    for (; !stop; filters = filters % 500 + THREADS) {
        miopenHandle_t handle;
        made_t made;
        OK(miopenCreate(&handle));
        REFUSED(miopenCompileFusionPlan(handle, NULL));
        made = make(handle, filters + 1);
        execute(&made), execute(&made);
        end(&made);
        OK(miopenDestroy(handle));
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    miopenHandle_t handle;
    made_t known;
    OK(miopenCreate(&handle));
    known = make(handle, 8);
    for (size_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, busy, (void*)i) == 0);
    for (int i = 0; i < FORKS; i++) {
        int status;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            made_t fresh;
            alarm(60);
            execute(&known);
            REFUSED(miopenCompileFusionPlan(handle, NULL));
            fresh = make(handle, 600 + i);
            execute(&fresh);
            end(&fresh);
            fflush(stdout);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) FAIL("child %d of %d ended with %#x", i, FORKS, status);
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    end(&known);
    OK(miopenDestroy(handle));
    return 0;
}
