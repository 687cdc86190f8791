/*
 * Fusion plans: operators that run as one kernel.
 *
 * A plan is made for an input descriptor; operators are appended in the order in which they are applied;
 * compiling chooses the kernel; weights and scalars are given at run time.
 *
 *     [C] [B] [N] [A] and more: convolution first if there is one, then any biases (per channel, or a
 *                     residual of the full shape), batch-norms and activations
 *     Nf A            batch-norm training, activation
 *     Nb A'           gradient of batch-norm and of the activation behind it
 *
 * What the backend can run is told by fuseplanGetSupportedTable(), why a plan was refused by
 * fuseplanGetLastErrorString(). Include <miopen/miopen.h>, not this file.
 */
#ifndef FUSEPLAN_MIOPEN_FUSION_H
#define FUSEPLAN_MIOPEN_FUSION_H

#include <miopen/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Plan ----------------------------------------------------------------------------------------- */

/* Horizontal fusion is miopenStatusUnsupportedOp. */
MIOPEN_EXPORT miopenStatus_t miopenCreateFusionPlan(miopenFusionPlanDescriptor_t* fusePlanDesc,
                                                    const miopenFusionDirection_t fuseDirection,
                                                    const miopenTensorDescriptor_t inputDesc);

/* Its operators go with it; argument objects do not. */
MIOPEN_EXPORT miopenStatus_t miopenDestroyFusionPlan(miopenFusionPlanDescriptor_t fusePlanDesc);

/*
 * Chooses and builds the kernel. miopenStatusUnsupportedOp: no kernel of the handle's backend takes the
 * plan. May be called for several handles; appending an operator afterwards undoes it.
 */
MIOPEN_EXPORT miopenStatus_t miopenCompileFusionPlan(miopenHandle_t handle,
                                                     miopenFusionPlanDescriptor_t fusePlanDesc);

/* The operator at `op_idx`, from 0, in the order of creation: the handle that its create call gave. */
MIOPEN_EXPORT miopenStatus_t miopenFusionPlanGetOp(miopenFusionPlanDescriptor_t fusePlanDesc,
                                                   const int op_idx,
                                                   miopenFusionOpDescriptor_t* op);

/*
 * Bytes of workspace that executing needs; before compile, what the kernel that would be chosen needs.
 * `algo` is ignored.
 */
MIOPEN_EXPORT miopenStatus_t miopenFusionPlanGetWorkSpaceSize(miopenHandle_t handle,
                                                              miopenFusionPlanDescriptor_t fusePlanDesc,
                                                              size_t* workSpaceSize,
                                                              miopenConvFwdAlgorithm_t algo);

/* Up to `requestAlgoCount` algorithms that the plan's convolution may run with. */
MIOPEN_EXPORT miopenStatus_t
miopenFusionPlanConvolutionGetAlgo(miopenFusionPlanDescriptor_t fusePlanDesc,
                                   const int requestAlgoCount,
                                   int* returnedAlgoCount,
                                   miopenConvFwdAlgorithm_t* returnedAlgos);

/* A wish, kept on the plan; compile chooses the fastest kernel that applies, whatever its algorithm. */
MIOPEN_EXPORT miopenStatus_t
miopenFusionPlanConvolutionSetAlgo(miopenFusionPlanDescriptor_t fusePlanDesc, miopenConvFwdAlgorithm_t algo);

/* ---- Operators ------------------------------------------------------------------------------------ */
/*
 * The new operator belongs to the plan. When it does not fit the plan's tensor, or an argument is bad, the answer is
 * miopenStatusBadParm, when it cannot stand at this place miopenStatusUnsupportedOp. A plan whose caller asked for an
 * operator that it lacks must not compute without it: whatever is asked of it from then on, but its end, gives the
 * same status and reason.
 */

/* Only the first operator of a plan. */
MIOPEN_EXPORT miopenStatus_t miopenCreateOpConvForward(miopenFusionPlanDescriptor_t fusePlanDesc,
                                                       miopenFusionOpDescriptor_t* convOp,
                                                       miopenConvolutionDescriptor_t convDesc,
                                                       const miopenTensorDescriptor_t wDesc);

/*
 * Adds one value for each channel or, where `bDesc` has the shape of the plan's tensor (and that has more
 * than one element a channel), one value for each element. Values are of the tensor's data type; those for
 * each channel may be f32, as `bDesc` says. Any other descriptor whose batch and spatial lengths are 1 is
 * taken as "for each channel", whatever its channels.
 */
MIOPEN_EXPORT miopenStatus_t miopenCreateOpBiasForward(miopenFusionPlanDescriptor_t fusePlanDesc,
                                                       miopenFusionOpDescriptor_t* biasOp,
                                                       const miopenTensorDescriptor_t bDesc);

MIOPEN_EXPORT miopenStatus_t miopenCreateOpActivationForward(miopenFusionPlanDescriptor_t fusePlanDesc,
                                                             miopenFusionOpDescriptor_t* activFwdOp,
                                                             miopenActivationMode_t mode);

/* Directly behind a batch-norm backward operator. */
MIOPEN_EXPORT miopenStatus_t miopenCreateOpActivationBackward(miopenFusionPlanDescriptor_t fusePlanDesc,
                                                              miopenFusionOpDescriptor_t* activBwdOp,
                                                              miopenActivationMode_t mode);

/*
 * Parameters are packed, f32 or of the plan's data type, as the descriptor says, and of the shape that
 * miopenDeriveBNTensorDescriptor gives for the tensor that enters this operator: behind a convolution that is
 * the convolution's output. The descriptor should say so. With miopenBNSpatial one that was derived from the
 * plan's input is taken as well, and for either tensor one that was derived per activation and has the right
 * number of channels: there is one value for each channel that enters this operator all the same.
 */
MIOPEN_EXPORT miopenStatus_t
miopenCreateOpBatchNormInference(miopenFusionPlanDescriptor_t fusePlanDesc,
                                 miopenFusionOpDescriptor_t* bnOp,
                                 const miopenBatchNormMode_t bn_mode,
                                 const miopenTensorDescriptor_t bnScaleBiasMeanVarDesc);

MIOPEN_EXPORT miopenStatus_t miopenCreateOpBatchNormForward(miopenFusionPlanDescriptor_t fusePlanDesc,
                                                            miopenFusionOpDescriptor_t* bnFwdOp,
                                                            const miopenBatchNormMode_t bn_mode,
                                                            bool runningMeanVariance);

MIOPEN_EXPORT miopenStatus_t miopenCreateOpBatchNormBackward(miopenFusionPlanDescriptor_t fusePlanDesc,
                                                             miopenFusionOpDescriptor_t* bnBwdOp,
                                                             const miopenBatchNormMode_t bn_mode);

/* ---- Arguments ------------------------------------------------------------------------------------ */
/*
 * Arguments are kept by the operator's index in its plan: one object may be filled before or after compile,
 * in any order, filled again, and used with every plan that has operators of the same kinds at the same
 * places. An operator of another kind than the function's is miopenStatusUnknownError. Data pointers are
 * read when the plan is executed.
 *
 * `alpha` and `beta` are accepted and ignored: every operator runs with alpha 1 and beta 0. See
 * fuseplanSetHonorAlphaBeta() in <miopen/fuseplan.h>.
 */

MIOPEN_EXPORT miopenStatus_t miopenCreateOperatorArgs(miopenOperatorArgs_t* args);

MIOPEN_EXPORT miopenStatus_t miopenDestroyOperatorArgs(miopenOperatorArgs_t args);

MIOPEN_EXPORT miopenStatus_t miopenSetOpArgsConvForward(miopenOperatorArgs_t args,
                                                        const miopenFusionOpDescriptor_t convOp,
                                                        const void* alpha,
                                                        const void* beta,
                                                        const void* w);

MIOPEN_EXPORT miopenStatus_t miopenSetOpArgsBiasForward(miopenOperatorArgs_t args,
                                                        const miopenFusionOpDescriptor_t biasOp,
                                                        const void* alpha,
                                                        const void* beta,
                                                        const void* bias);

/* RELU takes 0, 0, 0, as any other numbers. */
MIOPEN_EXPORT miopenStatus_t miopenSetOpArgsActivForward(miopenOperatorArgs_t args,
                                                         const miopenFusionOpDescriptor_t activFwdOp,
                                                         const void* alpha,
                                                         const void* beta,
                                                         double activAlpha,
                                                         double activBeta,
                                                         double activGamma);

/* `y` is the output of the forward activation. `reserved` is ignored. */
MIOPEN_EXPORT miopenStatus_t miopenSetOpArgsActivBackward(miopenOperatorArgs_t args,
                                                          const miopenFusionOpDescriptor_t activBwdOp,
                                                          const void* alpha,
                                                          const void* beta,
                                                          const void* y,
                                                          const void* reserved,
                                                          double activAlpha,
                                                          double activBeta,
                                                          double activGamma);

MIOPEN_EXPORT miopenStatus_t miopenSetOpArgsBatchNormInference(miopenOperatorArgs_t args,
                                                               const miopenFusionOpDescriptor_t bnOp,
                                                               const void* alpha,
                                                               const void* beta,
                                                               const void* bnScale,
                                                               const void* bnBias,
                                                               const void* estimatedMean,
                                                               const void* estimatedVariance,
                                                               double epsilon);

/*
 * Saved mean and inverse variance may be NULL: not wanted. Running mean and variance may not be NULL when
 * the operator was created with running statistics, and are ignored otherwise.
 */
MIOPEN_EXPORT miopenStatus_t miopenSetOpArgsBatchNormForward(miopenOperatorArgs_t args,
                                                             const miopenFusionOpDescriptor_t bnOp,
                                                             const void* alpha,
                                                             const void* beta,
                                                             const void* bnScale,
                                                             const void* bnBias,
                                                             void* savedMean,
                                                             void* savedInvVariance,
                                                             void* runningMean,
                                                             void* runningVariance,
                                                             double expAvgFactor,
                                                             double epsilon);

/* `x` is the input of the forward batch-norm. */
MIOPEN_EXPORT miopenStatus_t miopenSetOpArgsBatchNormBackward(miopenOperatorArgs_t args,
                                                              const miopenFusionOpDescriptor_t bnOp,
                                                              const void* alpha,
                                                              const void* beta,
                                                              const void* x,
                                                              const void* bnScale,
                                                              const void* bnBias,
                                                              void* resultBnScaleDiff,
                                                              void* resultBnBiasDiff,
                                                              const void* savedMean,
                                                              const void* savedInvVariance);

/* ---- Execution ------------------------------------------------------------------------------------ */

/*
 * Checked in this order: `outputDesc` equals the plan's output (type, lengths and the strides of dimensions longer
 * than 1), `inputDesc` its input, the plan is compiled for this handle, every operator has its arguments; otherwise
 * miopenStatusBadParm. A workspace, where one is needed, comes from the handle's allocator.
 */
MIOPEN_EXPORT miopenStatus_t miopenExecuteFusionPlan(const miopenHandle_t handle,
                                                     const miopenFusionPlanDescriptor_t fusePlanDesc,
                                                     const miopenTensorDescriptor_t inputDesc,
                                                     const void* input,
                                                     const miopenTensorDescriptor_t outputDesc,
                                                     void* output,
                                                     miopenOperatorArgs_t args);

/* The same with the caller's workspace; too small a one is miopenStatusBadParm. */
MIOPEN_EXPORT miopenStatus_t miopenExecuteFusionPlan_v2(const miopenHandle_t handle,
                                                        const miopenFusionPlanDescriptor_t fusePlanDesc,
                                                        const miopenTensorDescriptor_t inputDesc,
                                                        const void* input,
                                                        const miopenTensorDescriptor_t outputDesc,
                                                        void* output,
                                                        miopenOperatorArgs_t args,
                                                        void* workspace,
                                                        size_t workspaceSize);

/*
 * y = activation(alpha1 * conv(x, w) + alpha2 * z + bias) in one call, for every layout, data type and
 * activation that a plan can have. `alpha1` and `alpha2` are f32 and 1 when NULL. `z` may be NULL with its
 * descriptor: nothing is added.
 */
MIOPEN_EXPORT miopenStatus_t
miopenConvolutionBiasActivationForward(miopenHandle_t handle,
                                       const void* alpha1,
                                       const miopenTensorDescriptor_t xDesc,
                                       const void* x,
                                       const miopenTensorDescriptor_t wDesc,
                                       const void* w,
                                       const miopenConvolutionDescriptor_t convDesc,
                                       miopenConvFwdAlgorithm_t algo,
                                       void* workspace,
                                       size_t workspaceSizeInBytes,
                                       const void* alpha2,
                                       const miopenTensorDescriptor_t zDesc,
                                       const void* z,
                                       const miopenTensorDescriptor_t biasDesc,
                                       const void* bias,
                                       const miopenActivationDescriptor_t activationDesc,
                                       const miopenTensorDescriptor_t yDesc,
                                       void* y);

#ifdef __cplusplus
}
#endif

#endif
