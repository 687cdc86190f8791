/*
 * What AMD's header declares where MIOPEN_BETA_API is defined: exported so that programs link and look-ups by
 * name succeed, and not implemented: every function in this file returns miopenStatusNotImplemented, whatever
 * its arguments, and touches none of them. They are declared without MIOPEN_BETA_API, too. What is beta in AMD's
 * header and implemented here is in <miopen/find2.h>. Include <miopen/miopen.h>, not this file.
 */
#ifndef FUSEPLAN_MIOPEN_BETA_H
#define FUSEPLAN_MIOPEN_BETA_H

#include <miopen/find2.h>
#include <miopen/types.h>
#include <miopen/unimplemented.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A default argument, which C does not have. */
#ifdef __cplusplus
#define FUSEPLAN_DEFAULT(value) = value
#else
#define FUSEPLAN_DEFAULT(value)
#endif

/* ---- Types ----------------------------------------------------------------------------------------------- */

typedef enum {
    MIOPEN_ELEMENTWISE_AFFINE = 0,
    MIOPEN_WEIGHT_BIAS = 1,
    MIOPEN_ELEMENTWISE_AFFINE_FUSED_ADD = 2,
    MIOPEN_WEIGHT_BIAS_FUSED_ADD = 3,
    MIOPEN_ELEMENTWISE_AFFINE_T5 = 4,
    MIOPEN_WEIGHT_BIAS_T5 = 5
} miopenNormMode_t;
typedef enum {
    MIOPEN_REDUCE_CALCULATION_NOT_PROPAGATE_NAN = 0,
    MIOPEN_REDUCE_CALCULATION_PROPAGATE_NAN = 1
} miopenReduceCalculationNanPropagation_t;
typedef enum {
    MIOPEN_REDUCE_CALCULATION_PROD = 1,
    MIOPEN_REDUCE_CALCULATION_SUM = 2
} miopenReduceCalculationOp_t;
typedef enum {
    MIOPEN_REDUCE_EXTREME_ARGMIN = 1,
    MIOPEN_REDUCE_EXTREME_ARGMAX = 2,
    MIOPEN_REDUCE_EXTREME_MIN = 3,
    MIOPEN_REDUCE_EXTREME_MAX = 4
} miopenReduceExtremeOp_t;
typedef enum {
    MIOPEN_LOSS_REDUCTION_NONE = 0,
    MIOPEN_LOSS_REDUCTION_SUM = 1,
    MIOPEN_LOSS_REDUCTION_MEAN = 2
} miopenLossReductionMode_t;
typedef enum {
    miopenDebugLoggingQuiet = 0,
    miopenDebugFindEnforceDisable = 1,
    miopenDebugIsWarmupOngoing = 2,
    miopenDebugAlwaysEnableConvDirectNaive = 3
} miopenDebugFlag_t;

/* ---- Library and descriptors ----------------------------------------------------------------------------- */

MIOPEN_EXPORT miopenStatus_t miopenGetTensorDescriptorV2(
    miopenTensorDescriptor_t tensorDesc, miopenDataType_t* dataType, size_t* dimsA, size_t* stridesA);
MIOPEN_EXPORT miopenStatus_t miopenSetDebugFlag(miopenDebugFlag_t flag, bool value);
MIOPEN_EXPORT miopenStatus_t miopenGetDebugFlag(miopenDebugFlag_t flag, bool* value);

/* ---- Normalization --------------------------------------------------------------------------------------- */

MIOPEN_EXPORT miopenStatus_t miopenLayerNormForward(
    miopenHandle_t handle, miopenNormMode_t mode, const miopenTensorDescriptor_t xDesc, const void* x,
    const miopenTensorDescriptor_t weightDesc, const void* weight, const miopenTensorDescriptor_t biasDesc,
    const void* bias, const float epsilon, const int32_t normalized_dim, const miopenTensorDescriptor_t yDesc,
    void* y, const miopenTensorDescriptor_t meanDesc, void* mean, const miopenTensorDescriptor_t rstdDesc,
    void* rstd);
MIOPEN_EXPORT miopenStatus_t miopenGetLayerNormBackwardWorkspaceSize(
    miopenHandle_t handle, miopenNormMode_t mode, const miopenTensorDescriptor_t dyDesc,
    const miopenTensorDescriptor_t xDesc, const miopenTensorDescriptor_t weightDesc,
    const miopenTensorDescriptor_t meanDesc, const miopenTensorDescriptor_t rstdDesc,
    const int32_t normalized_dim, const miopenTensorDescriptor_t dxDesc,
    const miopenTensorDescriptor_t dwDesc, const miopenTensorDescriptor_t dbDesc, size_t* sizeInBytes);
MIOPEN_EXPORT miopenStatus_t miopenLayerNormBackward(
    miopenHandle_t handle, miopenNormMode_t mode, void* workspace, size_t workspaceSizeInBytes,
    const miopenTensorDescriptor_t dyDesc, const void* dy, const miopenTensorDescriptor_t xDesc,
    const void* x, const miopenTensorDescriptor_t weightDesc, const void* weight,
    const miopenTensorDescriptor_t meanDesc, const void* mean, const miopenTensorDescriptor_t rstdDesc,
    const void* rstd, const int32_t normalized_dim, const miopenTensorDescriptor_t dxDesc, void* dx,
    const miopenTensorDescriptor_t dwDesc, void* dw, const miopenTensorDescriptor_t dbDesc, void* db);
MIOPEN_EXPORT miopenStatus_t miopenAddLayerNormForward(
    miopenHandle_t handle, miopenNormMode_t mode, const miopenTensorDescriptor_t xDesc, const void* x,
    const miopenTensorDescriptor_t x2Desc, const void* x2, const miopenTensorDescriptor_t weightDesc,
    const void* weight, const miopenTensorDescriptor_t biasDesc, const void* bias, const float epsilon,
    const int32_t normalized_dim, const miopenTensorDescriptor_t yDesc, void* y,
    const miopenTensorDescriptor_t meanDesc, void* mean, const miopenTensorDescriptor_t rstdDesc, void* rstd);
MIOPEN_EXPORT miopenStatus_t miopenT5LayerNormForward(
    miopenHandle_t handle, miopenNormMode_t mode, const miopenTensorDescriptor_t xDesc, const void* x,
    const miopenTensorDescriptor_t weightDesc, const void* weight, const float epsilon,
    const miopenTensorDescriptor_t yDesc, void* y, const miopenTensorDescriptor_t rstdDesc, void* rstd);
MIOPEN_EXPORT miopenStatus_t miopenGetT5LayerNormBackwardWorkspaceSize(
    miopenHandle_t handle, miopenNormMode_t mode, const miopenTensorDescriptor_t dyDesc,
    const miopenTensorDescriptor_t xDesc, const miopenTensorDescriptor_t weightDesc,
    const miopenTensorDescriptor_t rstdDesc, const miopenTensorDescriptor_t dxDesc,
    const miopenTensorDescriptor_t dwDesc, size_t* sizeInBytes);
MIOPEN_EXPORT miopenStatus_t miopenT5LayerNormBackward(
    miopenHandle_t handle, miopenNormMode_t mode, void* workspace, size_t workspaceSizeInBytes,
    const miopenTensorDescriptor_t dyDesc, const void* dy, const miopenTensorDescriptor_t xDesc,
    const void* x, const miopenTensorDescriptor_t weightDesc, const void* weight,
    const miopenTensorDescriptor_t rstdDesc, const void* rstd, const miopenTensorDescriptor_t dxDesc,
    void* dx, const miopenTensorDescriptor_t dwDesc, void* dw);
MIOPEN_EXPORT miopenStatus_t miopenGroupNormForward(
    miopenHandle_t handle, miopenNormMode_t mode, const miopenTensorDescriptor_t xDesc, const void* x,
    const miopenTensorDescriptor_t weightDesc, const void* weight, const miopenTensorDescriptor_t biasDesc,
    const void* bias, const uint64_t num_groups, const float epsilon, const miopenTensorDescriptor_t yDesc,
    void* y, const miopenTensorDescriptor_t meanDesc, void* mean, const miopenTensorDescriptor_t rstdDesc,
    void* rstd);

/* ---- Activations ----------------------------------------------------------------------------------------- */

MIOPEN_EXPORT miopenStatus_t miopenGLUForward(
    miopenHandle_t handle, const miopenTensorDescriptor_t inputDesc, const void* input,
    const miopenTensorDescriptor_t outputDesc, void* output, const uint32_t dim);
MIOPEN_EXPORT miopenStatus_t miopenGLUBackward(
    miopenHandle_t handle, const miopenTensorDescriptor_t inputDesc, const void* input,
    const miopenTensorDescriptor_t outputGradDesc, const void* outputGrad,
    const miopenTensorDescriptor_t inputGradDesc, void* inputGrad, const uint32_t dim);
MIOPEN_EXPORT miopenStatus_t miopenGetPReLUBackwardWorkspaceSize(
    miopenHandle_t handle, miopenTensorDescriptor_t inputDesc, miopenTensorDescriptor_t weightDesc,
    size_t* sizeInBytes);
MIOPEN_EXPORT miopenStatus_t miopenPReLUBackward(
    miopenHandle_t handle, void* workspace, size_t workspaceSizeInBytes, miopenTensorDescriptor_t inputDesc,
    const void* input, miopenTensorDescriptor_t weightDesc, const void* weight,
    miopenTensorDescriptor_t doutputDesc, const void* doutput, miopenTensorDescriptor_t dinputDesc,
    void* dinput, miopenTensorDescriptor_t dweightDesc, void* dweight);

/* ---- Softmax as a problem -------------------------------------------------------------------------------- */

MIOPEN_EXPORT miopenStatus_t miopenCreateSoftmaxProblem(
    miopenProblem_t* problem, miopenSoftmaxDescriptor_t operatorDesc, miopenProblemDirection_t direction);

/* ---- Concatenation, indexing, positions ------------------------------------------------------------------ */

MIOPEN_EXPORT miopenStatus_t miopenCatForward(
    miopenHandle_t handle, const int32_t xCount, const miopenTensorDescriptor_t* xDescs,
    const void* const* xs, const miopenTensorDescriptor_t yDesc, void* y, const int32_t dim);
MIOPEN_EXPORT miopenStatus_t miopenGetGetitemWorkspaceSize(
    miopenHandle_t handle, uint32_t indexCount, const miopenTensorDescriptor_t* indexDescs,
    size_t* sizeInBytes);
MIOPEN_EXPORT miopenStatus_t miopenGetitemBackward(
    miopenHandle_t handle, void* workspace, size_t workspaceSizeInBytes,
    const miopenTensorDescriptor_t dyDesc, const void* dy, uint32_t indexCount,
    const miopenTensorDescriptor_t* indexDescs, const void* const* indexs,
    const miopenTensorDescriptor_t dxDesc, void* dx, const miopenTensorDescriptor_t errorDesc, void* error,
    uint32_t dimCount, const int32_t* dims, uint32_t sliceCount, const int32_t* slices, uint32_t offset);
MIOPEN_EXPORT miopenStatus_t miopenRoPEForward(
    miopenHandle_t handle, const miopenTensorDescriptor_t xDesc, const void* x,
    const miopenTensorDescriptor_t cosDesc, const void* cos, const miopenTensorDescriptor_t sinDesc,
    const void* sin, const miopenTensorDescriptor_t yDesc, void* y);
MIOPEN_EXPORT miopenStatus_t miopenRoPEBackward(
    miopenHandle_t handle, const miopenTensorDescriptor_t dyDesc, const void* dy,
    const miopenTensorDescriptor_t cosDesc, const void* cos, const miopenTensorDescriptor_t sinDesc,
    const void* sin, const miopenTensorDescriptor_t dxDesc, void* dx);
MIOPEN_EXPORT miopenStatus_t miopenKthvalueForward(
    miopenHandle_t handle, miopenTensorDescriptor_t inputDesc, const void* input,
    miopenTensorDescriptor_t outputDesc, void* output, miopenTensorDescriptor_t indicesDesc, size_t* indices,
    size_t k, int32_t dim FUSEPLAN_DEFAULT(-1), bool keepDim FUSEPLAN_DEFAULT(false));

/* ---- Reductions ------------------------------------------------------------------------------------------ */

MIOPEN_EXPORT miopenStatus_t miopenGetReduceCalculationWorkspaceSize(
    miopenHandle_t handle, const miopenTensorDescriptor_t xDesc, const int32_t dim,
    const miopenReduceCalculationOp_t reduceCalculationOp, const miopenTensorDescriptor_t reduceDesc,
    size_t* sizeInBytes);
MIOPEN_EXPORT miopenStatus_t miopenReduceCalculationForward(
    miopenHandle_t handle, miopenReduceCalculationNanPropagation_t nanPropagation, void* workspace,
    size_t workspaceSizeInBytes, const miopenTensorDescriptor_t xDesc, const void* x, const int32_t dim,
    const miopenReduceCalculationOp_t reduceCalculationOp, const miopenTensorDescriptor_t reduceDesc, void* y);
MIOPEN_EXPORT miopenStatus_t miopenReduceExtremeForward(
    miopenHandle_t handle, const miopenTensorDescriptor_t xDesc, const void* x, const int32_t dim,
    const miopenReduceExtremeOp_t reduceExtremeOp, const miopenTensorDescriptor_t yDesc, void* y,
    const miopenTensorDescriptor_t indiceDesc, void* indice);

/* ---- Optimizers ------------------------------------------------------------------------------------------ */

MIOPEN_EXPORT miopenStatus_t miopenFusedAdam(
    miopenHandle_t handle, const miopenTensorDescriptor_t paramDesc, void* param,
    const miopenTensorDescriptor_t gradDesc, const void* grad, const miopenTensorDescriptor_t expAvgDesc,
    void* expAvg, const miopenTensorDescriptor_t expAvgSqDesc, void* expAvgSq,
    const miopenTensorDescriptor_t maxExpAvgSqDesc, void* maxExpAvgSq,
    const miopenTensorDescriptor_t stateStepDesc, void* stateStep, const unsigned int state_step,
    const float lr, const float beta1, const float beta2, const float weight_decay, const float eps,
    const bool amsgrad, const bool maximize, const bool adamw, const miopenTensorDescriptor_t gradScaleDesc,
    const void* gradScale, const miopenTensorDescriptor_t foundInfDesc, const void* foundInf);
MIOPEN_EXPORT miopenStatus_t miopenFusedAdamWithOutput(
    miopenHandle_t handle, const miopenTensorDescriptor_t paramInDesc, void* paramIn,
    const miopenTensorDescriptor_t paramOutDesc, void* paramOut,
    const miopenTensorDescriptor_t paramOutFloat16Desc, void* paramOutFloat16,
    const miopenTensorDescriptor_t gradInDesc, const void* gradIn,
    const miopenTensorDescriptor_t expAvgInDesc, void* expAvgIn, const miopenTensorDescriptor_t expAvgOutDesc,
    void* expAvgOut, const miopenTensorDescriptor_t expAvgSqInDesc, void* expAvgSqIn,
    const miopenTensorDescriptor_t expAvgSqOutDesc, void* expAvgSqOut,
    const miopenTensorDescriptor_t maxExpAvgSqInDesc, void* maxExpAvgSqIn,
    const miopenTensorDescriptor_t maxExpAvgSqOutDesc, void* maxExpAvgSqOut,
    const miopenTensorDescriptor_t stateStepInDesc, void* stateStepIn,
    const miopenTensorDescriptor_t stateStepOutDesc, void* stateStepOut, const unsigned int state_step,
    const float lr, const float beta1, const float beta2, const float weight_decay, const float eps,
    const bool amsgrad, const bool maximize, const bool adamw, const miopenTensorDescriptor_t gradScaleDesc,
    const void* gradScale, const miopenTensorDescriptor_t foundInfDesc, const void* foundInf);
MIOPEN_EXPORT miopenStatus_t miopenTransformersAdamW(
    miopenHandle_t handle, const miopenTensorDescriptor_t paramDesc, void* param,
    const miopenTensorDescriptor_t gradDesc, const void* grad, const miopenTensorDescriptor_t expAvgDesc,
    void* expAvg, const miopenTensorDescriptor_t expAvgSqDesc, void* expAvgSq,
    const miopenTensorDescriptor_t stateStepDesc, void* stateStep, const unsigned int state_step,
    const float lr, const float beta1, const float beta2, const float weight_decay, const float eps,
    const bool correct_bias, const miopenTensorDescriptor_t gradScaleDesc, const void* gradScale,
    const miopenTensorDescriptor_t foundInfDesc, const void* foundInf);
MIOPEN_EXPORT miopenStatus_t miopenTransformersAdamWWithOutput(
    miopenHandle_t handle, const miopenTensorDescriptor_t paramInDesc, void* paramIn,
    const miopenTensorDescriptor_t paramOutDesc, void* paramOut,
    const miopenTensorDescriptor_t paramOutFloat16Desc, void* paramOutFloat16,
    const miopenTensorDescriptor_t gradInDesc, const void* gradIn,
    const miopenTensorDescriptor_t expAvgInDesc, void* expAvgIn, const miopenTensorDescriptor_t expAvgOutDesc,
    void* expAvgOut, const miopenTensorDescriptor_t expAvgSqInDesc, void* expAvgSqIn,
    const miopenTensorDescriptor_t expAvgSqOutDesc, void* expAvgSqOut,
    const miopenTensorDescriptor_t stateStepInDesc, void* stateStepIn,
    const miopenTensorDescriptor_t stateStepOutDesc, void* stateStepOut, const unsigned int state_step,
    const float lr, const float beta1, const float beta2, const float weight_decay, const float eps,
    const float step_size, const bool correct_bias, const miopenTensorDescriptor_t gradScaleDesc,
    const void* gradScale, const miopenTensorDescriptor_t foundInfDesc, const void* foundInf);

/* ---- Losses ---------------------------------------------------------------------------------------------- */

MIOPEN_EXPORT miopenStatus_t miopenGetSoftMarginLossForwardWorkspaceSize(
    miopenHandle_t handle, miopenTensorDescriptor_t inputDesc, miopenTensorDescriptor_t targetDesc,
    miopenTensorDescriptor_t outputDesc, miopenLossReductionMode_t reduction, size_t* sizeInBytes);
MIOPEN_EXPORT miopenStatus_t miopenSoftMarginLossForward(
    miopenHandle_t handle, miopenTensorDescriptor_t inputDesc, const void* input,
    miopenTensorDescriptor_t targetDesc, const void* target, miopenTensorDescriptor_t outputDesc,
    void* output, miopenLossReductionMode_t reduction, void* workspace FUSEPLAN_DEFAULT(NULL),
    size_t workspaceSizeInBytes FUSEPLAN_DEFAULT(0));
MIOPEN_EXPORT miopenStatus_t miopenSoftMarginLossBackward(
    miopenHandle_t handle, miopenTensorDescriptor_t inputDesc, const void* input,
    miopenTensorDescriptor_t targetDesc, const void* target, miopenTensorDescriptor_t doutputDesc,
    const void* doutput, miopenTensorDescriptor_t dinputDesc, void* dinput,
    miopenLossReductionMode_t reduction);
MIOPEN_EXPORT miopenStatus_t miopenGetMultiMarginLossForwardWorkspaceSize(
    miopenHandle_t handle, miopenTensorDescriptor_t inputDesc, miopenTensorDescriptor_t targetDesc,
    miopenTensorDescriptor_t weightDesc, miopenTensorDescriptor_t outputDesc, long p, float margin,
    miopenLossReductionMode_t reduction, size_t* sizeInBytes);
MIOPEN_EXPORT miopenStatus_t miopenMultiMarginLossForward(
    miopenHandle_t handle, miopenTensorDescriptor_t inputDesc, const void* input,
    miopenTensorDescriptor_t targetDesc, const void* target, miopenTensorDescriptor_t weightDesc,
    const void* weight, miopenTensorDescriptor_t outputDesc, void* output, long p, float margin,
    miopenLossReductionMode_t reduction, void* workspace, size_t workspaceSizeInBytes);

#undef FUSEPLAN_DEFAULT

#ifdef __cplusplus
}
#endif

#endif
