/*
 * Single operators, unfused: what programs fall back to where a plan is refused.
 *
 * `alpha` and `beta` scale the result and what the output held before: y = alpha * op(x) + beta * y. They
 * point to one f32 and are 1 and 0 when NULL. Unlike in plans they are honoured. Descriptors must fit one
 * another, else miopenStatusBadParm. Include <miopen/miopen.h>, not this file.
 */
#ifndef FUSEPLAN_MIOPEN_PRIMITIVES_H
#define FUSEPLAN_MIOPEN_PRIMITIVES_H

#include <miopen/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Tensors ---------------------------------------------------------------------------------------- */
/* Host memory only (the CPU backend); on other backends these four are miopenStatusNotImplemented. */

/* C = op(alpha1 * A, alpha2 * B) + beta * C. Each length of B is that of C, or 1: B is then repeated. */
MIOPEN_EXPORT miopenStatus_t miopenOpTensor(
    miopenHandle_t handle, miopenTensorOp_t tensorOp, const void* alpha1,
    const miopenTensorDescriptor_t aDesc, const void* A, const void* alpha2,
    const miopenTensorDescriptor_t bDesc, const void* B, const void* beta,
    const miopenTensorDescriptor_t cDesc, void* C);

/* Every element becomes `*alpha`, a value of the tensor's data type. */
MIOPEN_EXPORT miopenStatus_t miopenSetTensor(
    miopenHandle_t handle, const miopenTensorDescriptor_t yDesc, void* y, const void* alpha);

/* y = *alpha * y; `alpha` points to a value of the tensor's data type. */
MIOPEN_EXPORT miopenStatus_t miopenScaleTensor(
    miopenHandle_t handle, const miopenTensorDescriptor_t yDesc, void* y, const void* alpha);

/* Copies between strides: y = alpha * x + beta * y. Lengths and data type must agree. */
MIOPEN_EXPORT miopenStatus_t miopenTransformTensor(
    miopenHandle_t handle, const void* alpha, const miopenTensorDescriptor_t xDesc, const void* x,
    const void* beta, const miopenTensorDescriptor_t yDesc, void* y);

/* ---- Forward convolution ---------------------------------------------------------------------------- */
MIOPEN_EXPORT miopenStatus_t miopenConvolutionForwardGetWorkSpaceSize(
    miopenHandle_t handle, const miopenTensorDescriptor_t wDesc, const miopenTensorDescriptor_t xDesc,
    const miopenConvolutionDescriptor_t convDesc, const miopenTensorDescriptor_t yDesc,
    size_t* workSpaceSize);

/* The least and the most workspace that an execution needs. Both are the need of the kernel that is chosen. */
MIOPEN_EXPORT miopenStatus_t miopenConvolutionForwardGetWorkSpaceSizeRange(
    miopenHandle_t handle, const miopenTensorDescriptor_t wDesc, const miopenTensorDescriptor_t xDesc,
    const miopenConvolutionDescriptor_t convDesc, const miopenTensorDescriptor_t yDesc,
    size_t* minWorkspaceSize, size_t* maxWorkspaceSize);

/* Builds the kernel, runs it once on the given data and reports its time. `y` is overwritten. */
MIOPEN_EXPORT miopenStatus_t miopenFindConvolutionForwardAlgorithm(
    miopenHandle_t handle, const miopenTensorDescriptor_t xDesc, const void* x,
    const miopenTensorDescriptor_t wDesc, const void* w, const miopenConvolutionDescriptor_t convDesc,
    const miopenTensorDescriptor_t yDesc, void* y, const int requestAlgoCount, int* returnedAlgoCount,
    miopenConvAlgoPerf_t* perfResults, void* workSpace, size_t workSpaceSize, bool exhaustiveSearch);

/* The kernel is chosen by rule; `algo` is ignored. */
MIOPEN_EXPORT miopenStatus_t miopenConvolutionForward(
    miopenHandle_t handle, const void* alpha, const miopenTensorDescriptor_t xDesc, const void* x,
    const miopenTensorDescriptor_t wDesc, const void* w, const miopenConvolutionDescriptor_t convDesc,
    miopenConvFwdAlgorithm_t algo, const void* beta, const miopenTensorDescriptor_t yDesc, void* y,
    void* workSpace, size_t workSpaceSize);

/* y = alpha * b[channel] + y, as MIOpen does it: `beta` is ignored and y must hold the convolution. */
MIOPEN_EXPORT miopenStatus_t miopenConvolutionForwardBias(
    miopenHandle_t handle, const void* alpha, const miopenTensorDescriptor_t bDesc, const void* b,
    const void* beta, const miopenTensorDescriptor_t yDesc, void* y);

/* ---- Forward convolution, immediate mode ------------------------------------------------------------ */
/* There is one solution for each problem that the backend can run, with workspace as given and id 1. */

MIOPEN_EXPORT miopenStatus_t miopenConvolutionForwardGetSolutionCount(
    miopenHandle_t handle, const miopenTensorDescriptor_t wDesc, const miopenTensorDescriptor_t xDesc,
    const miopenConvolutionDescriptor_t convDesc, const miopenTensorDescriptor_t yDesc,
    size_t* solutionCount);

MIOPEN_EXPORT miopenStatus_t miopenConvolutionForwardGetSolution(
    miopenHandle_t handle, const miopenTensorDescriptor_t wDesc, const miopenTensorDescriptor_t xDesc,
    const miopenConvolutionDescriptor_t convDesc, const miopenTensorDescriptor_t yDesc,
    const size_t maxSolutionCount, size_t* solutionCount, miopenConvSolution_t* solutions);

MIOPEN_EXPORT miopenStatus_t miopenConvolutionForwardGetSolutionWorkspaceSize(
    miopenHandle_t handle, const miopenTensorDescriptor_t wDesc, const miopenTensorDescriptor_t xDesc,
    const miopenConvolutionDescriptor_t convDesc, const miopenTensorDescriptor_t yDesc,
    const uint64_t solution_id, size_t* workSpaceSize);

MIOPEN_EXPORT miopenStatus_t miopenConvolutionForwardCompileSolution(
    miopenHandle_t handle, const miopenTensorDescriptor_t wDesc, const miopenTensorDescriptor_t xDesc,
    const miopenConvolutionDescriptor_t convDesc, const miopenTensorDescriptor_t yDesc,
    const uint64_t solution_id);

MIOPEN_EXPORT miopenStatus_t miopenConvolutionForwardImmediate(
    miopenHandle_t handle, const miopenTensorDescriptor_t wDesc, const void* w,
    const miopenTensorDescriptor_t xDesc, const void* x, const miopenConvolutionDescriptor_t convDesc,
    const miopenTensorDescriptor_t yDesc, void* y, void* workSpace, size_t workSpaceSize,
    const uint64_t solution_id);

/* ---- Activation ------------------------------------------------------------------------------------- */
MIOPEN_EXPORT miopenStatus_t miopenActivationForward(
    miopenHandle_t handle, const miopenActivationDescriptor_t activDesc, const void* alpha,
    const miopenTensorDescriptor_t xDesc, const void* x, const void* beta,
    const miopenTensorDescriptor_t yDesc, void* y);

/* Host memory only (the CPU backend). x and y are input and output of the forward activation. */
MIOPEN_EXPORT miopenStatus_t miopenActivationBackward(
    miopenHandle_t handle, const miopenActivationDescriptor_t activDesc, const void* alpha,
    const miopenTensorDescriptor_t yDesc, const void* y, const miopenTensorDescriptor_t dyDesc,
    const void* dy, const miopenTensorDescriptor_t xDesc, const void* x, const void* beta,
    const miopenTensorDescriptor_t dxDesc, void* dx);

/* ---- Batch-norm ------------------------------------------------------------------------------------- */
/* [1, C, (1,) 1, 1] for spatial mode, [1, C, (D,) H, W] for per activation; f32 and packed, always. */
MIOPEN_EXPORT miopenStatus_t miopenDeriveBNTensorDescriptor(
    miopenTensorDescriptor_t derivedBnDesc, const miopenTensorDescriptor_t xDesc,
    miopenBatchNormMode_t bn_mode);

/*
 * Without a mean or without a variance (NULL) both are the batch's own, and are not kept. So they are in the
 * calls below that take a variance; those that take an inverse variance want both.
 */
MIOPEN_EXPORT miopenStatus_t miopenBatchNormalizationForwardInference(
    miopenHandle_t handle, miopenBatchNormMode_t bn_mode, void* alpha, void* beta,
    const miopenTensorDescriptor_t xDesc, const void* x, const miopenTensorDescriptor_t yDesc, void* y,
    const miopenTensorDescriptor_t bnScaleBiasMeanVarDesc, void* bnScale, void* bnBias, void* estimatedMean,
    void* estimatedVariance, double epsilon);

/* Result pointers may be NULL: not wanted. Running mean and variance: both or none. */
MIOPEN_EXPORT miopenStatus_t miopenBatchNormalizationForwardTraining(
    miopenHandle_t handle, miopenBatchNormMode_t bn_mode, void* alpha, void* beta,
    const miopenTensorDescriptor_t xDesc, const void* x, const miopenTensorDescriptor_t yDesc, void* y,
    const miopenTensorDescriptor_t bnScaleBiasMeanVarDesc, void* bnScale, void* bnBias, double expAvgFactor,
    void* resultRunningMean, void* resultRunningVariance, double epsilon, void* resultSaveMean,
    void* resultSaveInvVariance);

/* Where saved mean or inverse variance is NULL, both are computed from x, with `epsilon`. */
MIOPEN_EXPORT miopenStatus_t miopenBatchNormalizationBackward(
    miopenHandle_t handle, miopenBatchNormMode_t bn_mode, const void* alphaDataDiff, const void* betaDataDiff,
    const void* alphaParamDiff, const void* betaParamDiff, const miopenTensorDescriptor_t xDesc,
    const void* x, const miopenTensorDescriptor_t dyDesc, const void* dy,
    const miopenTensorDescriptor_t dxDesc, void* dx, const miopenTensorDescriptor_t bnScaleBiasDiffDesc,
    const void* bnScale, void* resultBnScaleDiff, void* resultBnBiasDiff, double epsilon,
    const void* savedMean, const void* savedInvVariance);

/* The V2 calls take one descriptor for each parameter; all must equal the derived one. */

MIOPEN_EXPORT miopenStatus_t miopenBatchNormalizationForwardInference_V2(
    miopenHandle_t handle, miopenBatchNormMode_t bn_mode, void* alpha, void* beta,
    const miopenTensorDescriptor_t xDesc, const void* x, const miopenTensorDescriptor_t yDesc, void* y,
    const miopenTensorDescriptor_t scaleDesc, const miopenTensorDescriptor_t biasDesc,
    const miopenTensorDescriptor_t estMeanDesc, const miopenTensorDescriptor_t estVarianceDesc, void* bnScale,
    void* bnBias, void* estimatedMean, void* estimatedVariance, double epsilon);

MIOPEN_EXPORT miopenStatus_t miopenBatchNormalizationForwardTraining_V2(
    miopenHandle_t handle, miopenBatchNormMode_t bn_mode, void* alpha, void* beta,
    const miopenTensorDescriptor_t xDesc, const void* x, const miopenTensorDescriptor_t yDesc, void* y,
    const miopenTensorDescriptor_t scaleDesc, const miopenTensorDescriptor_t biasVarDesc,
    const miopenTensorDescriptor_t savedMeanDesc, const miopenTensorDescriptor_t savedVarDesc, void* bnScale,
    void* bnBias, double expAvgFactor, void* resultRunningMean, void* resultRunningVariance, double epsilon,
    void* resultSaveMean, void* resultSaveInvVariance);

/*
 * Running statistics come from one memory and go to another, which may be the same. Next mean and variance:
 * both or none; where they are wanted, so are the previous.
 */
MIOPEN_EXPORT miopenStatus_t miopenBatchNormalizationForwardTraining_V3(
    miopenHandle_t handle, miopenBatchNormMode_t bn_mode, void* alpha, void* beta,
    const miopenTensorDescriptor_t xDesc, const void* x, const miopenTensorDescriptor_t yDesc, void* y,
    const miopenTensorDescriptor_t scaleDesc, const miopenTensorDescriptor_t biasVarDesc,
    const miopenTensorDescriptor_t savedMeanDesc, const miopenTensorDescriptor_t savedVarDesc, void* bnScale,
    void* bnBias, double expAvgFactor, const void* prevResultRunningMean,
    const void* prevResultRunningVariance, void* nextResultRunningMean, void* nextResultRunningVariance,
    double epsilon, void* resultSaveMean, void* resultSaveInvVariance);

MIOPEN_EXPORT miopenStatus_t miopenBatchNormalizationBackward_V2(
    miopenHandle_t handle, miopenBatchNormMode_t bn_mode, const void* alphaDataDiff, const void* betaDataDiff,
    const void* alphaParamDiff, const void* betaParamDiff, const miopenTensorDescriptor_t xDesc,
    const void* x, const miopenTensorDescriptor_t dyDesc, const void* dy,
    const miopenTensorDescriptor_t dxDesc, void* dx, const miopenTensorDescriptor_t scaleDesc,
    const miopenTensorDescriptor_t biasDesc, const miopenTensorDescriptor_t savedMeanDesc,
    const miopenTensorDescriptor_t savedVarDesc, const void* bnScale, void* resultBnScaleDiff,
    void* resultBnBiasDiff, double epsilon, const void* savedMean, const void* savedInvVariance);

/* Batch-norm and activation as one call: a fusion plan inside. */

MIOPEN_EXPORT miopenStatus_t miopenBatchNormForwardInferenceActivation(
    miopenHandle_t handle, miopenBatchNormMode_t bn_mode, void* alpha, void* beta,
    const miopenTensorDescriptor_t xDesc, const void* x, const miopenTensorDescriptor_t yDesc, void* y,
    const miopenTensorDescriptor_t scaleDesc, const miopenTensorDescriptor_t biasDesc,
    const miopenTensorDescriptor_t estMeanDesc, const miopenTensorDescriptor_t estVarianceDesc, void* bnScale,
    void* bnBias, void* estimatedMean, void* estimatedVariance, double epsilon,
    const miopenActivationDescriptor_t activDesc);

MIOPEN_EXPORT miopenStatus_t miopenBatchNormForwardTrainingActivation(
    miopenHandle_t handle, miopenBatchNormMode_t bn_mode, void* alpha, void* beta,
    const miopenTensorDescriptor_t xDesc, const void* x, const miopenTensorDescriptor_t yDesc, void* y,
    const miopenTensorDescriptor_t scaleDesc, const miopenTensorDescriptor_t biasVarDesc,
    const miopenTensorDescriptor_t savedMeanDesc, const miopenTensorDescriptor_t savedVarDesc, void* bnScale,
    void* bnBias, double expAvgFactor, void* resultRunningMean, void* resultRunningVariance, double epsilon,
    void* resultSaveMean, void* resultSaveInvVariance, const miopenActivationDescriptor_t activDesc);

/* Running statistics as in miopenBatchNormalizationForwardTraining_V3. */
MIOPEN_EXPORT miopenStatus_t miopenBatchNormForwardTrainingActivation_V2(
    miopenHandle_t handle, miopenBatchNormMode_t bn_mode, void* alpha, void* beta,
    const miopenTensorDescriptor_t xDesc, const void* x, const miopenTensorDescriptor_t yDesc, void* y,
    const miopenTensorDescriptor_t scaleDesc, const miopenTensorDescriptor_t biasVarDesc,
    const miopenTensorDescriptor_t savedMeanDesc, const miopenTensorDescriptor_t savedVarDesc, void* bnScale,
    void* bnBias, double expAvgFactor, const void* prevResultRunningMean,
    const void* prevResultRunningVariance, void* nextResultRunningMean, void* nextResultRunningVariance,
    double epsilon, void* resultSaveMean, void* resultSaveInvVariance,
    const miopenActivationDescriptor_t activDesc);

MIOPEN_EXPORT miopenStatus_t miopenBatchNormBackwardActivation(
    miopenHandle_t handle, miopenBatchNormMode_t bn_mode, const void* alphaDataDiff, const void* betaDataDiff,
    const void* alphaParamDiff, const void* betaParamDiff, const miopenTensorDescriptor_t xDesc,
    const void* x, const miopenTensorDescriptor_t dyDesc, const void* dy,
    const miopenTensorDescriptor_t dxDesc, void* dx, const miopenTensorDescriptor_t scaleDesc,
    const miopenTensorDescriptor_t biasDesc, const miopenTensorDescriptor_t savedMeanDesc,
    const miopenTensorDescriptor_t savedVarianceDesc, const void* bnScale, const void* bnBias,
    void* resultBnScaleDiff, void* resultBnBiasDiff, double epsilon, const void* savedMean,
    const void* savedInvVariance, const miopenActivationDescriptor_t activDesc);

/* The same with 1 / sqrt(variance + epsilon) given instead of the variance. */

MIOPEN_EXPORT miopenStatus_t miopenBatchNormForwardInferenceActivationInvVariance(
    miopenHandle_t handle, miopenBatchNormMode_t bn_mode, void* alpha, void* beta,
    const miopenTensorDescriptor_t xDesc, const void* x, const miopenTensorDescriptor_t yDesc, void* y,
    const miopenTensorDescriptor_t scaleDesc, const miopenTensorDescriptor_t biasDesc,
    const miopenTensorDescriptor_t estMeanDesc, const miopenTensorDescriptor_t estInvVarianceDesc,
    void* bnScale, void* bnBias, void* estimatedMean, void* estimatedInvVariance,
    const miopenActivationDescriptor_t activDesc);

MIOPEN_EXPORT miopenStatus_t miopenBatchNormalizationForwardInferenceInvVariance(
    miopenHandle_t handle, miopenBatchNormMode_t bn_mode, void* alpha, void* beta,
    const miopenTensorDescriptor_t xDesc, const void* x, const miopenTensorDescriptor_t yDesc, void* y,
    const miopenTensorDescriptor_t scaleDesc, const miopenTensorDescriptor_t biasDesc,
    const miopenTensorDescriptor_t estMeanDesc, const miopenTensorDescriptor_t estInvVarianceDesc,
    void* bnScale, void* bnBias, void* estimatedMean, void* estimatedInvVariance);

#ifdef __cplusplus
}
#endif

#endif
