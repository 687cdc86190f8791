/*
 * What fuseplan adds to the MIOpen interface. Not part of <miopen/miopen.h>: a program that includes this
 * file needs fuseplan's library.
 */
#ifndef FUSEPLAN_MIOPEN_FUSEPLAN_H
#define FUSEPLAN_MIOPEN_FUSEPLAN_H

#include <miopen/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Why the last failing call of this thread failed; "" when none has. The thread's next failing call
 * overwrites the text, successful calls do not change it.
 */
MIOPEN_EXPORT const char* fuseplanGetLastErrorString(void);

/* A handle on a backend by name: "cpu", "cuda", "rocm". */
MIOPEN_EXPORT miopenStatus_t fuseplanCreateForBackend(miopenHandle_t* handle, const char* backend);

/* What a parallel loop calls for each index, with the argument that it was given. */
typedef void (*fuseplanWork_t)(void* argument, size_t index);

/*
 * A parallel loop of the caller's: calls `work(argument, index)` for each index below `count`, on any threads and in any
 * order, and returns when all these calls have returned. May be called by several threads at once, and until the handle
 * and all plans that were compiled for it are destroyed. No exception may leave it.
 */
typedef void (*fuseplanParallelFor_t)(void* context, size_t count, fuseplanWork_t work, void* argument);

/*
 * Plans that are compiled for `handle` from now on, and its calls that compute without a plan, compute on the caller's
 * threads: by `parallelFor`, which is given `context`, and is never given more indices than `threads`, a number from 1
 * to 1024 that includes the calling thread. So the pool of a framework and the library's own threads do not compete for
 * cores. Results are bitwise the same. With `parallelFor` NULL they compute on the library's own threads again.
 *
 * A plan that was compiled before has to be compiled again. Handles of other backends than "cpu" are refused.
 */
MIOPEN_EXPORT miopenStatus_t fuseplanSetParallelFor(miopenHandle_t handle,
                                                    size_t threads,
                                                    fuseplanParallelFor_t parallelFor,
                                                    void* context);

/*
 * Whether plans that are executed on `handle` honour the alpha and beta of the miopenSetOpArgs* calls:
 * y = alpha * op(x) + beta * (what y was), beta on the last operator only. Both are read as f32 when the
 * arguments are set, and only while some handle has this switched on; NULL is 1 and 0.
 */
MIOPEN_EXPORT miopenStatus_t fuseplanSetHonorAlphaBeta(miopenHandle_t handle, bool honor);

/*
 * Promises that what the arguments of `op` point to now, such as a convolution's filters, does not change until they are
 * set again or `args` is destroyed. Kernels that bring filters into an order of their own do that at the
 * first execution with `args` and keep the result, instead of doing it at each execution; other kernels, and operators
 * that read nothing, take no notice.
 *
 * Where the contents change all the same, executions compute with the old ones, the new ones, or both. After a change
 * declare again, or set again: setting the arguments takes the promise back. The result is kept with `args` until then,
 * for at most four compiled plans at once.
 */
MIOPEN_EXPORT miopenStatus_t fuseplanSetOpArgsConstant(miopenOperatorArgs_t args, const miopenFusionOpDescriptor_t op);

/*
 * Activations beyond MIOpen's, PyTorch's formulas. Cast to miopenActivationMode_t they are modes for every function that
 * takes one, forward and backward; alpha, beta and gamma are not used. NaN gives NaN, and so does minus infinity where the
 * formula is a product with x.
 */
typedef enum {
    fuseplanActivationSilu        = 1000, /* x / (1 + exp(-x)) */
    fuseplanActivationHardSwish   = 1001, /* x * min(6, max(0, x + 3)) / 6 */
    fuseplanActivationHardSigmoid = 1002, /* min(6, max(0, x + 3)) / 6 */
    fuseplanActivationGelu        = 1003, /* x / 2 * (1 + erf(x / sqrt(2))) */
    fuseplanActivationGeluTanh    = 1004, /* x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) */
    fuseplanActivationMish        = 1005  /* x * tanh(log(1 + exp(x))) */
} fuseplanActivationMode_t;

/*
 * Sets the padding of a convolution before the first and after the last element of each spatial dimension, (D,) H, W;
 * `spatialDim` is the descriptor's number of them. So a convolution may be padded as TensorFlow's SAME and ONNX's
 * auto_pad are, or be causal. miopenInitConvolution(Nd)Descriptor sets one padding for both sides again.
 *
 * Where the two differ, those of MIOpen's functions that tell one padding for both sides are miopenStatusUnsupportedOp,
 * unless they are called with NULL for it. All others take the descriptor as any other.
 */
MIOPEN_EXPORT miopenStatus_t fuseplanSetConvolutionPadding(miopenConvolutionDescriptor_t convDesc,
                                                           int spatialDim,
                                                           const int* padBeforeA,
                                                           const int* padAfterA);

/* Each output may be NULL; the arrays have one entry for each spatial dimension, of which there are `spatialDim`. */
MIOPEN_EXPORT miopenStatus_t fuseplanGetConvolutionPadding(miopenConvolutionDescriptor_t convDesc,
                                                           int spatialDim,
                                                           int* padBeforeA,
                                                           int* padAfterA);

/*
 * Appends x > 0 ? x : slope * x, wherever an activation may stand. `slopeDesc` has one slope for each channel (a length of
 * 1 in each other dimension), or one for all (a length of 1 in every dimension), f32 or of the data type of the plan's
 * tensor. NaN gives NaN.
 */
MIOPEN_EXPORT miopenStatus_t fuseplanCreateOpPReluForward(miopenFusionPlanDescriptor_t fusePlanDesc,
                                                          miopenFusionOpDescriptor_t* preluOp,
                                                          const miopenTensorDescriptor_t slopeDesc);

/* The slopes, which `slopeDesc` described; `alpha` and `beta` as in the other functions that set arguments. */
MIOPEN_EXPORT miopenStatus_t fuseplanSetOpArgsPReluForward(miopenOperatorArgs_t args,
                                                           const miopenFusionOpDescriptor_t preluOp,
                                                           const void* alpha,
                                                           const void* beta,
                                                           const void* slope);

/* How exactly a plan's convolution may be computed. */
typedef enum {
    fuseplanMathPrecise   = 0, /* errors of the order of a sum of f32 products at most: the default */
    fuseplanMathAllowTf32 = 1, /* f32 factors may be rounded to TF32 where that is faster */
    fuseplanMathStrict    = 2  /* each output is the sum of its own products, not Winograd's and 3xTF32's */
} fuseplanMathMode_t;

/*
 * Sets the mode of a plan. Backends without such products accept it and compute precisely. A plan that was
 * compiled with the other mode has to be compiled again.
 */
MIOPEN_EXPORT miopenStatus_t fuseplanSetFusionPlanMathMode(miopenFusionPlanDescriptor_t fusePlanDesc,
                                                           fuseplanMathMode_t mode);

/*
 * Describes in `outputDesc` what the plan's operators so far make of its input: the descriptor, strides
 * included, that executing the plan expects of the output.
 */
MIOPEN_EXPORT miopenStatus_t fuseplanGetOutputDescriptor(miopenFusionPlanDescriptor_t fusePlanDesc,
                                                         miopenTensorDescriptor_t outputDesc);

/*
 * Text functions write at most `*size` bytes to `text`, a terminating zero included, and to `*size` how many
 * the whole text needs. With `text` NULL only the size is written. Too small a buffer is
 * miopenStatusInvalidValue; the size is written then, too.
 */

/* What the backend of `handle` can run and which constraints each of its solvers has. */
MIOPEN_EXPORT miopenStatus_t fuseplanGetSupportedTable(miopenHandle_t handle, char* text, size_t* size);

/*
 * The plan's operators and tensors and, for `handle`, the solver that takes it and the reasons of those that
 * do not.
 */
MIOPEN_EXPORT miopenStatus_t fuseplanExplainPlan(miopenHandle_t handle,
                                                 miopenFusionPlanDescriptor_t fusePlanDesc,
                                                 char* text,
                                                 size_t* size);

#ifdef __cplusplus
}
#endif

#endif
