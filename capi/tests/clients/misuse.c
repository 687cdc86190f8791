/*
 * Misuse that single parameters do not show: handles after their end, orders of calls, numbers without bounds,
 * memory that overlaps or is not aligned, threads on one object, objects destroyed while they are used, fork.
 * NULL, garbage and foreign handles in every position are in matrix.py.
 */
#define _POSIX_C_SOURCE 200809L

#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

static void handles_end_once(void) {
    fixture_t* f = fixture_make();
    miopenFusionOpDescriptor_t op = f->op_conv, got;
    int dims = 0;
    OK(miopenFusionPlanGetOp(f->plan_conv, 0, &got));
    CHECK(got == op);
    OK(miopenDestroyFusionPlan(f->plan_conv));
    EXPECT(miopenStatusBadParm, miopenDestroyFusionPlan(f->plan_conv));
    EXPECT(miopenStatusBadParm, miopenFusionPlanGetOp(f->plan_conv, 0, &got));
    /* The operator went with its plan, the arguments did not. */
    EXPECT(miopenStatusBadParm, miopenSetOpArgsConvForward(f->args, op, NULL, NULL, f->data[0]));
    OK(miopenSetOpArgsBiasForward(f->args, f->op_bias, NULL, NULL, f->data[0]));
    OK(miopenDestroyTensorDescriptor(f->x));
    EXPECT(miopenStatusBadParm, miopenDestroyTensorDescriptor(f->x));
    EXPECT(miopenStatusBadParm, miopenGetTensorDescriptorSize(f->x, &dims));
    /* New objects in the place of the old do not answer to the old handles. */
    for (int i = 0; i < 100; i++) {
        miopenTensorDescriptor_t desc = tensor4d(1, 1, 1, 1);
        CHECK(desc != f->x);
        EXPECT(miopenStatusBadParm, miopenGetTensorDescriptorSize(f->x, &dims));
        OK(miopenDestroyTensorDescriptor(desc));
    }
    EXPECT(miopenStatusBadParm, miopenDestroy((miopenHandle_t)(void*)f->conv));
    CHECK(strstr(fuseplanGetLastErrorString(), "convolution descriptor"));
    fixture_end(f);
}

/* A plan of a ReLU, compiled. */
static miopenFusionPlanDescriptor_t relu_plan(fixture_t* f) {
    miopenFusionPlanDescriptor_t plan;
    miopenFusionOpDescriptor_t op;
    OK(miopenCreateFusionPlan(&plan, miopenVerticalFusion, f->x));
    OK(miopenCreateOpActivationForward(plan, &op, miopenActivationRELU));
    OK(miopenSetOpArgsActivForward(f->other_args, op, NULL, NULL, 0, 0, 0));
    OK(miopenCompileFusionPlan(f->handle, plan));
    return plan;
}

/* Without the operator that was refused, the plan must not compute. */
static void is_refused(fixture_t* f, miopenFusionPlanDescriptor_t plan, miopenStatus_t status, const char* reason) {
    EXPECT(status, miopenExecuteFusionPlan(f->handle, plan, f->x, f->data[0], f->x, f->data[1], f->other_args));
    CHECK(strstr(fuseplanGetLastErrorString(), reason));
    EXPECT(status, miopenCompileFusionPlan(f->handle, plan));
    CHECK(strstr(fuseplanGetLastErrorString(), reason));
    CHECK(fixture_is_untouched(f));
    OK(miopenDestroyFusionPlan(plan));
}

/* A refused operator, at once and for as long as its plan lives. */
#define REFUSED_IN_PLAN(status, reason, call)                  \
    do {                                                       \
        miopenFusionPlanDescriptor_t refusing = relu_plan(f);  \
        EXPECT(status, call);                                  \
        CHECK(strstr(fuseplanGetLastErrorString(), reason));   \
        CHECK(kept == f->op_bias);                             \
        is_refused(f, refusing, status, reason);               \
    } while (0)

static void refused_operators(void) {
    fixture_t* f = fixture_make();
    miopenFusionOpDescriptor_t kept = f->op_bias;
    miopenTensorDescriptor_t other = tensor4d(1, 4, 5, 6), wrong = tensor4d(4, 3, 3, 3);
    miopenFusionPlanDescriptor_t plan;

    REFUSED_IN_PLAN(miopenStatusUnsupportedOp, "first operator", miopenCreateOpConvForward(refusing, &kept, f->conv, f->w));
    REFUSED_IN_PLAN(miopenStatusUnsupportedOp, "BatchNormBackward",
                    miopenCreateOpActivationBackward(refusing, &kept, miopenActivationRELU));
    REFUSED_IN_PLAN(miopenStatusBadParm, "bias", miopenCreateOpBiasForward(refusing, &kept, other));
    REFUSED_IN_PLAN(miopenStatusBadParm, "parameters",
                    miopenCreateOpBatchNormInference(refusing, &kept, miopenBNSpatial, other));
    REFUSED_IN_PLAN(miopenStatusBadParm, "11 is no activation mode",
                    miopenCreateOpActivationForward(refusing, &kept, (miopenActivationMode_t)11));
    REFUSED_IN_PLAN(miopenStatusBadParm, "NULL", miopenCreateOpBiasForward(refusing, &kept, NULL));
    OK(miopenCreateFusionPlan(&plan, miopenVerticalFusion, f->x));
    EXPECT(miopenStatusBadParm, miopenCreateOpConvForward(plan, &kept, f->conv, wrong));
    CHECK(kept == f->op_bias);
    is_refused(f, plan, miopenStatusBadParm, "3 input channels");

    OK(miopenDestroyTensorDescriptor(other));
    OK(miopenDestroyTensorDescriptor(wrong));
    fixture_end(f);
}

static void calls_in_any_order(void) {
    fixture_t* f = fixture_make();
    float *x = f->data[0], *y = f->data[1];
    miopenFusionPlanDescriptor_t plan;
    miopenFusionOpDescriptor_t op;
    miopenTensorDescriptor_t unset, other = tensor4d(1, 4, 5, 6), last = tensor_nhwc(miopenFloat, 1, 4, 5, 5);

    /* An empty plan; arguments that are missing; arguments of another kind at the operator's place. */
    EXPECT(miopenStatusUnknownError, miopenCompileFusionPlan(f->handle, f->plan_empty));
    EXPECT(miopenStatusBadParm, miopenExecuteFusionPlan(f->handle, f->plan_empty, f->x, x, f->x, y, f->args));
    EXPECT(miopenStatusBadParm, miopenExecuteFusionPlan(f->handle, f->plan_conv, f->x, x, f->x, y, f->other_args));
    OK(miopenSetOpArgsBiasForward(f->other_args, f->op_bias, NULL, NULL, x));
    EXPECT(miopenStatusUnknownError, miopenExecuteFusionPlan(f->handle, f->plan_conv, f->x, x, f->x, y, f->other_args));
    EXPECT(miopenStatusUnknownError, miopenSetOpArgsActivForward(f->args, f->op_conv, NULL, NULL, 0, 0, 0));
    OK(miopenSetOpArgsConvForward(f->other_args, f->op_conv, NULL, NULL, NULL));
    EXPECT(miopenStatusBadParm, miopenExecuteFusionPlan(f->handle, f->plan_conv, f->x, x, f->x, y, f->other_args));

    /* Output, then input, then compiled: each is told before the next is looked at. */
    EXPECT(miopenStatusBadParm, miopenExecuteFusionPlan(f->handle, f->homes[0], other, x, last, y, f->args));
    CHECK(strstr(fuseplanGetLastErrorString(), "output"));
    EXPECT(miopenStatusBadParm, miopenExecuteFusionPlan(f->handle, f->homes[0], other, x, f->x, y, f->args));
    CHECK(strstr(fuseplanGetLastErrorString(), "input"));
    EXPECT(miopenStatusBadParm, miopenExecuteFusionPlan(f->handle, f->homes[0], f->x, x, f->x, y, f->args));
    CHECK(strstr(fuseplanGetLastErrorString(), "compiled"));

    EXPECT(miopenStatusUnsupportedOp, miopenCreateFusionPlan(&plan, miopenHorizontalFusion, f->x));
    REFUSED(miopenFusionPlanGetOp(f->homes[0], 4, &op));
    REFUSED(miopenFusionPlanGetOp(f->homes[0], -1, &op));
    REFUSED(miopenFusionPlanGetOp(f->homes[0], INT_MAX, &op));

    /* Descriptors are copied: changing one changes no plan, and is noticed at the execution. */
    OK(miopenSet4dTensorDescriptor(f->x, miopenFloat, 1, 4, 5, 6));
    EXPECT(miopenStatusBadParm, miopenExecuteFusionPlan(f->handle, f->plan_conv, f->x, x, f->x, y, f->args));
    OK(miopenSet4dTensorDescriptor(f->x, miopenFloat, 1, 4, 5, 5));
    OK(miopenExecuteFusionPlan(f->handle, f->plan_conv, f->x, x, f->x, y, f->args));

    /* A handle of the same device needs no compile of its own, and a destroyed one runs nothing. */
    miopenHandle_t second;
    OK(miopenCreate(&second));
    OK(miopenExecuteFusionPlan(second, f->plan_conv, f->x, x, f->x, y, f->args));
    OK(miopenDestroy(second));
    EXPECT(miopenStatusBadParm, miopenExecuteFusionPlan(second, f->plan_conv, f->x, x, f->x, y, f->args));

    OK(miopenCreateTensorDescriptor(&unset));
    EXPECT(miopenStatusBadParm, miopenCreateFusionPlan(&plan, miopenVerticalFusion, unset));
    OK(miopenDestroyTensorDescriptor(unset));
    OK(miopenDestroyTensorDescriptor(other));
    OK(miopenDestroyTensorDescriptor(last));
    fixture_end(f);
}

static void numbers_without_bounds(void) {
    fixture_t* f = fixture_make();
    const int bad[] = {0, -1, INT_MIN};
    int big[5] = {INT_MAX, INT_MAX, INT_MAX, INT_MAX, INT_MAX}, one[5] = {1, 1, 1, 1, 1}, n = -7;
    size_t huge[2] = {SIZE_MAX, 2}, large[1] = {(size_t)1 << 40}, bytes = 0;
    for (int i = 0; i < 3; i++) {
        /* A length of 0 makes a placeholder, and strides of single elements are never used. */
        miopenStatus_t negative = bad[i] ? miopenStatusBadParm : miopenStatusSuccess;
        EXPECT(negative, miopenSet4dTensorDescriptor(f->fresh, miopenFloat, 1, bad[i], 1, 1));
        EXPECT(negative, miopenSet4dTensorDescriptorEx(f->fresh, miopenFloat, 1, 1, 1, 1, 1, 1, bad[i], 1));
        EXPECT(miopenStatusBadParm, miopenSet4dTensorDescriptorEx(f->fresh, miopenFloat, 1, 1, 2, 1, 1, 1, bad[i], 1));
        EXPECT(miopenStatusInvalidValue, miopenSetTensorDescriptor(f->fresh, miopenFloat, bad[i], one, one));
        EXPECT(miopenStatusBadParm, miopenInitConvolutionDescriptor(f->conv, miopenConvolution, 0, 0, bad[i], 1, 1, 1));
        EXPECT(miopenStatusBadParm, miopenInitConvolutionDescriptor(f->conv, miopenConvolution, 0, 0, 1, 1, 1, bad[i]));
        REFUSED(miopenInitConvolutionNdDescriptor(f->conv, bad[i], one, one, one, miopenConvolution));
        OK(miopenSetConvolutionGroupCount(f->conv, bad[i]));
        OK(miopenGetConvolutionGroupCount(f->conv, &n));
        CHECK(n == bad[i]);
        EXPECT(miopenStatusBadParm, miopenGetConvolutionForwardOutputDim(f->conv, f->x, f->w, &n, &n, &n, &n));
        CHECK(n == bad[i]);
        miopenFusionPlanDescriptor_t plan;
        OK(miopenCreateFusionPlan(&plan, miopenVerticalFusion, f->x));
        EXPECT(miopenStatusBadParm, miopenCreateOpConvForward(plan, &f->op_conv, f->conv, f->w));
        OK(miopenDestroyFusionPlan(plan));
    }
    EXPECT(miopenStatusBadParm, miopenSet4dTensorDescriptor(f->fresh, miopenFloat, INT_MAX, INT_MAX, INT_MAX, INT_MAX));
    EXPECT(miopenStatusBadParm, miopenSetTensorDescriptor(f->fresh, miopenFloat, 5, big, NULL));
    /* Strides of dimensions of length 1 are never used. */
    OK(miopenSetTensorDescriptor(f->fresh, miopenFloat, 5, one, big));
    EXPECT(miopenStatusBadParm, miopenSetTensorDescriptor(f->fresh, miopenFloat, INT_MAX, big, NULL));
    EXPECT(miopenStatusBadParm, miopenSetTensorDescriptorV2(f->fresh, miopenFloat, 2, huge, NULL));
    EXPECT(miopenStatusBadParm, miopenSetNdTensorDescriptorWithLayout(f->fresh, miopenFloat, miopenTensorNCDHW, one, 4));
    EXPECT(miopenStatusBadParm, miopenSetNdTensorDescriptorWithLayout(f->fresh, miopenFloat, miopenTensorNCHWc4, one, 4));
    EXPECT(miopenStatusNotImplemented, miopenSetNdTensorDescriptorWithLayout(f->fresh, miopenFloat, miopenTensorCHWNc4, one, 4));
    EXPECT(miopenStatusBadParm, miopenSetNdTensorDescriptorWithLayout(f->fresh, miopenFloat, (miopenTensorLayout_t)99, one, 4));
    EXPECT(miopenStatusBadParm, miopenSet4dTensorDescriptor(f->fresh, (miopenDataType_t)4, 1, 1, 1, 1));
    EXPECT(miopenStatusBadParm, miopenSet4dTensorDescriptor(f->fresh, (miopenDataType_t)-1, 1, 1, 1, 1));
    /* A length that fits no int can be set, and is not cut when it is read. */
    OK(miopenSetTensorDescriptorV2(f->fresh, miopenHalf, 1, large, NULL));
    OK(miopenGetTensorNumBytes(f->fresh, &bytes));
    CHECK(bytes == (size_t)1 << 41);
    n = -7;
    EXPECT(miopenStatusBadParm, miopenGetTensorDescriptor(f->fresh, NULL, &n, NULL));
    CHECK(n == -7);
    /* Types that are known by name only. */
    OK(miopenSet4dTensorDescriptor(f->fresh, miopenInt64, 1, 2, 3, 4));
    OK(miopenGetTensorNumBytes(f->fresh, &bytes));
    CHECK(bytes == 24 * 8);
    EXPECT(miopenStatusNotImplemented, miopenCreateFusionPlan(&f->plan_empty, miopenVerticalFusion, f->fresh));
    /* A convolution whose output has more elements than can be addressed. */
    OK(miopenInitConvolutionDescriptor(f->conv, miopenConvolution, INT_MAX, INT_MAX, 1, 1, 1, 1));
    REFUSED(miopenGetConvolutionForwardOutputDim(f->conv, f->x, f->w, &n, &n, &n, &n));
    REFUSED(miopenCreateOpConvForward(f->plan_empty, &f->op_conv, f->conv, f->w));
    OK(miopenInitConvolutionDescriptor(f->conv, miopenConvolution, 1, 1, INT_MAX, INT_MAX, INT_MAX, 1));
    REFUSED(miopenGetConvolutionForwardOutputDim(f->conv, f->x, f->w, &n, &n, &n, &n));
    CHECK(!strcmp(miopenGetErrorString((miopenStatus_t)-1), "Unknown error status"));
    fixture_end(f);
}

static void memory(void) {
    fixture_t* f = fixture_make();
    char *bytes = (char*)f->data[0], text[8] = "1234567";
    unsigned char outs[64];
    size_t size = sizeof text;
    int lens[4], n = 0;
    /* Outputs at any address; data must be aligned to its elements and an output overlaps nothing. */
    OK(miopenGetVersion((size_t*)(void*)(outs + 1), NULL, (size_t*)(void*)(outs + 17)));
    OK(miopenGetTensorDescriptorSize(f->x, (int*)(void*)(outs + 3)));
    memcpy(&n, outs + 3, sizeof n);
    CHECK(n == 4);
    OK(miopenGetTensorDescriptor(f->x, NULL, (int*)(void*)(outs + 5), NULL));
    memcpy(lens, outs + 5, sizeof lens);
    CHECK(lens[1] == 4 && lens[3] == 5);
    EXPECT(miopenStatusBadParm, miopenExecuteFusionPlan(f->handle, f->plan_conv, f->x, bytes + 1, f->x, f->data[1], f->args));
    EXPECT(miopenStatusBadParm, miopenExecuteFusionPlan(f->handle, f->plan_conv, f->x, bytes, f->x, (char*)f->data[1] + 2, f->args));
    EXPECT(miopenStatusBadParm, miopenExecuteFusionPlan(f->handle, f->plan_conv, f->x, bytes, f->x, bytes, f->args));
    EXPECT(miopenStatusBadParm, miopenExecuteFusionPlan(f->handle, f->plan_conv, f->x, bytes, f->x, bytes + 16, f->args));
    EXPECT(miopenStatusBadParm, miopenExecuteFusionPlan(f->handle, f->plan_conv, f->x, bytes, f->x, f->data[OUTS - 1], f->args));
    /* Text that does not fit is not cut. */
    EXPECT(miopenStatusInvalidValue, fuseplanExplainPlan(f->handle, f->plan_conv, text, &size));
    CHECK(size > sizeof text && !strcmp(text, "1234567"));
    CHECK(fixture_is_untouched(f));
    char* room = (char*)allocate(size);
    OK(fuseplanExplainPlan(f->handle, f->plan_conv, room, &size));
    CHECK(strlen(room) + 1 == size && strstr(room, "-> conv 4 ") && strstr(room, "solver"));
    free(room);
    EXPECT(miopenStatusBadParm, fuseplanCreateForBackend(&f->handle, "no such backend"));
    fixture_end(f);
}

/* Alpha and beta count only when somebody says so. */
static void scales(void) {
    fixture_t* f = fixture_make();
    float two = 2, half = 0.5f, plain[100], *x = f->data[0], *y = f->data[1];
    OK(miopenSetOpArgsConvForward(f->args, f->op_conv, &two, &half, f->data[OUTS - 1]));
    OK(miopenExecuteFusionPlan(f->handle, f->plan_conv, f->x, x, f->x, plain, f->args));
    OK(fuseplanSetHonorAlphaBeta(f->handle, true));
    OK(miopenSetOpArgsConvForward(f->args, f->op_conv, &two, &half, f->data[OUTS - 1]));
    OK(miopenExecuteFusionPlan(f->handle, f->plan_conv, f->x, x, f->x, y, f->args));
    for (int i = 0; i < 100; i++) CHECK(y[i] == 2 * plain[i] + 0.5f * (1.0f + (float)(i % 3)));
    OK(fuseplanSetHonorAlphaBeta(f->handle, false));
    OK(miopenExecuteFusionPlan(f->handle, f->plan_conv, f->x, x, f->x, y, f->args));
    for (int i = 0; i < 100; i++) CHECK(y[i] == plain[i]);
    fixture_end(f);
}

/* A plan with one more operator is to be compiled again, and computes it then. */
static void append_after_compile(void) {
    fixture_t* f = fixture_make();
    float *x = f->data[0], *y = f->data[1];
    miopenFusionOpDescriptor_t op;
    miopenFusionPlanDescriptor_t plan = relu_plan(f);
    OK(miopenExecuteFusionPlan(f->handle, plan, f->x, x, f->x, y, f->other_args));
    OK(miopenCreateOpActivationForward(plan, &op, miopenActivationPOWER));
    /* 1 + 2y, to the power of 1. */
    OK(miopenSetOpArgsActivForward(f->other_args, op, NULL, NULL, 1, 2, 1));
    for (int i = 0; i < 100; i++) y[i] = -1;
    EXPECT(miopenStatusBadParm, miopenExecuteFusionPlan(f->handle, plan, f->x, x, f->x, y, f->other_args));
    CHECK(strstr(fuseplanGetLastErrorString(), "compiled"));
    for (int i = 0; i < 100; i++) CHECK(y[i] == -1);
    OK(miopenCompileFusionPlan(f->handle, plan));
    OK(miopenExecuteFusionPlan(f->handle, plan, f->x, x, f->x, y, f->other_args));
    for (int i = 0; i < 100; i++) CHECK(y[i] == (x[i] > 0 ? 1 + 2 * x[i] : 1));
    OK(miopenDestroyFusionPlan(plan));
    fixture_end(f);
}

/* Another mode is another plan, which is to be compiled again; the same mode is not. */
static void math_modes(void) {
    fixture_t* f = fixture_make();
    float *x = f->data[0], *y = f->data[1], plain[100];
    size_t size = TEXT_ROOM;
    OK(fuseplanSetFusionPlanMathMode(f->plan_conv, fuseplanMathPrecise));
    OK(miopenExecuteFusionPlan(f->handle, f->plan_conv, f->x, x, f->x, plain, f->args));
    OK(fuseplanExplainPlan(f->handle, f->plan_conv, f->text, &size));
    CHECK(!strstr(f->text, "math"));
    OK(fuseplanSetFusionPlanMathMode(f->plan_conv, fuseplanMathAllowTf32));
    EXPECT(miopenStatusBadParm, miopenExecuteFusionPlan(f->handle, f->plan_conv, f->x, x, f->x, y, f->args));
    CHECK(strstr(fuseplanGetLastErrorString(), "compiled"));
    OK(miopenCompileFusionPlan(f->handle, f->plan_conv));
    size = TEXT_ROOM;
    OK(fuseplanExplainPlan(f->handle, f->plan_conv, f->text, &size));
    CHECK(strstr(f->text, "math tf32"));
    /* Small integers are exact in TF32 too. */
    OK(miopenExecuteFusionPlan(f->handle, f->plan_conv, f->x, x, f->x, y, f->args));
    for (int i = 0; i < 100; i++) CHECK(y[i] == plain[i]);
    EXPECT(miopenStatusBadParm, fuseplanSetFusionPlanMathMode(f->plan_conv, (fuseplanMathMode_t)3));
    CHECK(strstr(fuseplanGetLastErrorString(), "3 is no math mode"));
    EXPECT(miopenStatusBadParm, fuseplanSetFusionPlanMathMode(NULL, fuseplanMathPrecise));
    /* A refused mode changes nothing. */
    OK(miopenExecuteFusionPlan(f->handle, f->plan_conv, f->x, x, f->x, y, f->args));
    fixture_end(f);
}

enum { THREADS = 8, ROUNDS = 200 };

typedef struct {
    fixture_t* f;
    miopenFusionPlanDescriptor_t plan;
    const float* expected;
    int number, ends;
} thread_t;

/* One handle, one plan, one argument object in all threads; in the second run somebody destroys the plan. */
static void* execute(void* argument) {
    thread_t* t = (thread_t*)argument;
    float y[100];
    for (int round = 0; round < ROUNDS; round++) {
        miopenStatus_t status;
        memset(y, 0xff, sizeof y);
        if (t->ends && t->number == 0 && round == ROUNDS / 2) OK(miopenDestroyFusionPlan(t->plan));
        if (t->number == 1) (void)miopenCompileFusionPlan(t->f->handle, t->plan);
        (void)miopenSetOpArgsConvForward(t->f->args, t->f->op_conv, NULL, NULL, t->f->data[OUTS - 1]);
        status = miopenExecuteFusionPlan(t->f->handle, t->plan, t->f->x, t->f->data[0], t->f->x, y, t->f->args);
        if (status != miopenStatusSuccess && !t->ends) FAIL("execute: %s", fuseplanGetLastErrorString());
        if (status == miopenStatusSuccess && memcmp(y, t->expected, sizeof y)) FAIL("thread %d: wrong result", t->number);
        miopenTensorDescriptor_t desc = tensor4d(1, 1 + t->number, 1, 1);
        OK(miopenDestroyTensorDescriptor(desc));
    }
    return NULL;
}

static void threads(void) {
    for (int ends = 0; ends < 2; ends++) {
        fixture_t* f = fixture_make();
        pthread_t handles[THREADS];
        thread_t arguments[THREADS];
        float expected[100];
        OK(miopenExecuteFusionPlan(f->handle, f->plan_conv, f->x, f->data[0], f->x, expected, f->args));
        for (int i = 0; i < THREADS; i++) {
            thread_t t = {f, f->plan_conv, expected, i, ends};
            arguments[i] = t;
            CHECK(!pthread_create(&handles[i], NULL, execute, &arguments[i]));
        }
        for (int i = 0; i < THREADS; i++) CHECK(!pthread_join(handles[i], NULL));
        fixture_end(f);
    }
}

static void* whole_program(void* unused) {
    fixture_t* f = fixture_make();
    (void)unused;
    OK(miopenExecuteFusionPlan(f->handle, f->plan_conv, f->x, f->data[0], f->x, f->data[1], f->args));
    OK(miopenFusionPlanGetWorkSpaceSize(f->handle, f->homes[0], (size_t*)(void*)f->outs[0], miopenConvolutionFwdAlgoDirect));
    REFUSED(miopenCreateOpConvForward(f->homes[0], &f->op_conv, f->conv, f->w));
    REFUSED(miopenCompileFusionPlan(f->handle, f->homes[0]));
    fixture_end(f);
    return NULL;
}

/* As little stack as the documentation asks for, in a process that has not called anything yet. */
static void small_stacks(void) {
    pthread_attr_t attributes;
    pthread_t handle;
    CHECK(!pthread_attr_init(&attributes));
    CHECK(!pthread_attr_setstacksize(&attributes, 64 << 10));
    CHECK(!pthread_create(&handle, &attributes, whole_program, NULL));
    CHECK(!pthread_join(handle, NULL));
    CHECK(!pthread_attr_destroy(&attributes));
}

/* A child may use what its parent made, and neither disturbs the other. */
static void forks(void) {
    fixture_t* f = fixture_make();
    int status = -1;
    pid_t child;
    OK(miopenExecuteFusionPlan(f->handle, f->plan_conv, f->x, f->data[0], f->x, f->data[1], f->args));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(20);
        OK(miopenExecuteFusionPlan(f->handle, f->plan_conv, f->x, f->data[0], f->x, f->data[2], f->args));
        if (memcmp(f->data[1], f->data[2], 100 * sizeof(float))) _exit(2);
        if (miopenDestroyFusionPlan(f->plan_conv) != miopenStatusSuccess) _exit(3);
        /* The memory of the parent's other threads lies about in a child, which is no leak of anybody's: a
           checker of leaks is not to look. */
        execlp("true", "true", (char*)NULL);
        _exit(4);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(miopenExecuteFusionPlan(f->handle, f->plan_conv, f->x, f->data[0], f->x, f->data[2], f->args));
    fixture_end(f);
}

int main(void) {
    CHECK(!strcmp(fuseplanGetLastErrorString(), ""));
    small_stacks();
    handles_end_once();
    calls_in_any_order();
    refused_operators();
    numbers_without_bounds();
    memory();
    scales();
    append_after_compile();
    math_modes();
    threads();
    forks();
    return 0;
}
