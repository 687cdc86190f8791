/* One of everything, made anew for each call of the matrix of misuse. */
#ifndef FIXTURE_H
#define FIXTURE_H

#include "client.h"

enum { DATA = 1024, OUTS = 32, TEXT_ROOM = 1 << 16 };

typedef struct {
    miopenHandle_t handle;
    miopenTensorDescriptor_t x, w, bn, fresh;
    miopenConvolutionDescriptor_t conv;
    miopenActivationDescriptor_t activation;
    miopenOperatorArgs_t args, other_args;
    /* Nothing; a convolution, compiled, its arguments set; a gradient of batch-norm. */
    miopenFusionPlanDescriptor_t plan_empty, plan_conv, plan_backward;
    /* An operator of each kind, in plans of their own. */
    miopenFusionPlanDescriptor_t homes[3];
    miopenFusionOpDescriptor_t op_conv, op_bias, op_prelu, op_bn, op_activation;
    miopenFusionOpDescriptor_t op_bn_forward, op_bn_backward, op_act_backward;
    /* A convolution as a problem, a bias, and the convolution's solution, which was found once and saved. */
    miopenProblem_t problem, other_problem;
    miopenFindOptions_t options;
    miopenSolution_t solution;
    miopenTensorArgument_t tensors[3];
    const char* saved;
    size_t saved_bytes;
    uint64_t solver;
    /* Memory for each parameter of a call: tensors, and small outputs with a pattern in them. */
    float data[OUTS][DATA];
    unsigned char outs[OUTS][256];
    char text[TEXT_ROOM];
} fixture_t;

static inline void* fixture_take(void* context, size_t bytes) { return (void)context, malloc(bytes); }
static inline void fixture_give(void* context, void* memory) { (void)context, free(memory); }

static inline void fixture_loop(void* context, size_t count, fuseplanWork_t work, void* argument) {
    for (size_t i = count; i-- > 0;) work(argument, i);
    (void)context;
}

static inline void fixture_fill(fixture_t* f) {
    for (int i = 0; i < OUTS; i++)
        for (int j = 0; j < DATA; j++) f->data[i][j] = 1.0f + (float)(j % 3);
    memset(f->outs, 0x5a, sizeof f->outs);
    memset(f->text, 0x5a, sizeof f->text);
}

/* What a failing call must not have touched. */
static inline int fixture_is_untouched(const fixture_t* f) {
    for (int i = 0; i < OUTS; i++)
        for (int j = 0; j < DATA; j++)
            if (f->data[i][j] != 1.0f + (float)(j % 3)) return 0;
    for (size_t i = 0; i < sizeof f->outs; i++)
        if (((const unsigned char*)f->outs)[i] != 0x5a) return 0;
    for (size_t i = 0; i < sizeof f->text; i++)
        if (f->text[i] != 0x5a) return 0;
    return 1;
}

/* The problem's solution as bytes. */
static inline const char* fixture_saved(const fixture_t* f, size_t* bytes) {
    static char* saved;
    static size_t size;
    if (!saved) {
        miopenSolution_t solution;
        size_t found = 0;
        OK(miopenFindSolutions(f->handle, f->problem, NULL, &solution, &found, 1));
        CHECK(found == 1);
        OK(miopenGetSolutionSize(solution, &size));
        saved = (char*)allocate(size);
        OK(miopenSaveSolution(solution, saved));
        OK(miopenDestroySolution(solution));
    }
    *bytes = size;
    return saved;
}

static inline void fixture_make_problems(fixture_t* f) {
    OK(miopenCreateConvProblem(&f->problem, f->conv, miopenProblemDirectionForward));
    OK(miopenSetProblemTensorDescriptor(f->problem, miopenTensorConvolutionX, f->x));
    OK(miopenSetProblemTensorDescriptor(f->problem, miopenTensorConvolutionW, f->w));
    OK(miopenCreateBiasProblem(&f->other_problem, miopenProblemDirectionForward));
    OK(miopenCreateFindOptions(&f->options));
    f->saved = fixture_saved(f, &f->saved_bytes);
    OK(miopenLoadSolution(&f->solution, f->saved, f->saved_bytes));
    OK(miopenGetSolutionSolverId(f->solution, &f->solver));
    const miopenTensorArgumentId_t ids[3] = {miopenTensorConvolutionX, miopenTensorConvolutionW, miopenTensorConvolutionY};
    for (int i = 0; i < 3; i++) {
        f->tensors[i].id = ids[i];
        f->tensors[i].descriptor = NULL;
        f->tensors[i].buffer = f->data[i];
    }
}

static inline fixture_t* fixture_make(void) {
    fixture_t* f = (fixture_t*)allocate(sizeof *f);
    fixture_fill(f);
    OK(miopenCreate(&f->handle));
    f->x = tensor4d(1, 4, 5, 5), f->w = tensor4d(4, 4, 3, 3), f->bn = tensor4d(1, 4, 1, 1);
    OK(miopenCreateTensorDescriptor(&f->fresh));
    OK(miopenCreateConvolutionDescriptor(&f->conv));
    OK(miopenInitConvolutionDescriptor(f->conv, miopenConvolution, 1, 1, 1, 1, 1, 1));
    OK(miopenCreateActivationDescriptor(&f->activation));
    OK(miopenSetActivationDescriptor(f->activation, miopenActivationRELU, 0, 0, 0));
    OK(miopenCreateOperatorArgs(&f->args));
    OK(miopenCreateOperatorArgs(&f->other_args));

    OK(miopenCreateFusionPlan(&f->plan_empty, miopenVerticalFusion, f->x));
    OK(miopenCreateFusionPlan(&f->plan_conv, miopenVerticalFusion, f->x));
    OK(miopenCreateOpConvForward(f->plan_conv, &f->op_conv, f->conv, f->w));
    OK(miopenSetOpArgsConvForward(f->args, f->op_conv, NULL, NULL, f->data[OUTS - 1]));
    OK(miopenCompileFusionPlan(f->handle, f->plan_conv));
    OK(miopenCreateFusionPlan(&f->plan_backward, miopenVerticalFusion, f->x));
    OK(miopenCreateOpBatchNormBackward(f->plan_backward, &f->op_bn_backward, miopenBNSpatial));

    for (int i = 0; i < 3; i++) OK(miopenCreateFusionPlan(&f->homes[i], miopenVerticalFusion, f->x));
    OK(miopenCreateOpBiasForward(f->homes[0], &f->op_bias, f->bn));
    OK(fuseplanCreateOpPReluForward(f->homes[0], &f->op_prelu, f->bn));
    OK(miopenCreateOpBatchNormInference(f->homes[0], &f->op_bn, miopenBNSpatial, f->bn));
    OK(miopenCreateOpActivationForward(f->homes[0], &f->op_activation, miopenActivationRELU));
    OK(miopenCreateOpBatchNormForward(f->homes[1], &f->op_bn_forward, miopenBNSpatial, true));
    OK(miopenCreateOpBatchNormBackward(f->homes[2], &f->op_bn_backward, miopenBNSpatial));
    OK(miopenCreateOpActivationBackward(f->homes[2], &f->op_act_backward, miopenActivationRELU));
    fixture_make_problems(f);
    return f;
}

/* What the call in question destroyed is destroyed already. */
static inline void fixture_end(fixture_t* f) {
    (void)miopenDestroySolution(f->solution);
    (void)miopenDestroyFindOptions(f->options);
    (void)miopenDestroyProblem(f->other_problem);
    (void)miopenDestroyProblem(f->problem);
    for (int i = 0; i < 3; i++) (void)miopenDestroyFusionPlan(f->homes[i]);
    (void)miopenDestroyFusionPlan(f->plan_backward);
    (void)miopenDestroyFusionPlan(f->plan_conv);
    (void)miopenDestroyFusionPlan(f->plan_empty);
    (void)miopenDestroyOperatorArgs(f->other_args);
    (void)miopenDestroyOperatorArgs(f->args);
    (void)miopenDestroyActivationDescriptor(f->activation);
    (void)miopenDestroyConvolutionDescriptor(f->conv);
    (void)miopenDestroyTensorDescriptor(f->fresh);
    (void)miopenDestroyTensorDescriptor(f->bn);
    (void)miopenDestroyTensorDescriptor(f->w);
    (void)miopenDestroyTensorDescriptor(f->x);
    (void)miopenDestroy(f->handle);
    free(f);
}

#endif
