/*
 * Find by problem, which MIOpen calls Find 2.0: describe a problem, find a solution, run it.
 *
 * A problem is an operator with its tensors, or several that are fused and computed in their order by one
 * kernel. Convolution, bias, activation and batch-norm can be problems of their own and parts of fused ones;
 * what a fusion plan takes, a problem takes. Problems of gradients are miopenStatusNotImplemented where they
 * are created. Include <miopen/miopen.h>, not this file.
 */
#ifndef FUSEPLAN_MIOPEN_FIND2_H
#define FUSEPLAN_MIOPEN_FIND2_H

#include <miopen/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Types ------------------------------------------------------------------------------------------ */

MIOPEN_DECLARE_OBJECT(miopenProblem);
MIOPEN_DECLARE_OBJECT(miopenFindOptions);
MIOPEN_DECLARE_OBJECT(miopenSolution);

/* Forward and Inference differ for batch-norm alone: the former normalizes by the batch's own statistics. */
typedef enum {
    miopenProblemDirectionForward = 0,
    miopenProblemDirectionBackward = 1,
    miopenProblemDirectionBackwardWeights = 2,
    miopenProblemDirectionInference = 4
} miopenProblemDirection_t;

/* Names of a problem's tensors and, from IsScalar on, of its numbers. */
FUSEPLAN_EXTENSION typedef enum {
    miopenTensorArgumentIdInvalid = 0,
    miopenTensorConvolutionX = 1,
    miopenTensorConvolutionW = 2,
    miopenTensorConvolutionY = 3,
    miopenTensorMhaK = 4,
    miopenTensorMhaQ = 5,
    miopenTensorMhaV = 6,
    miopenTensorMhaDescaleK = 7,
    miopenTensorMhaDescaleQ = 8,
    miopenTensorMhaDescaleV = 9,
    miopenTensorMhaDescaleS = 10,
    miopenTensorMhaScaleS = 11,
    miopenTensorMhaScaleO = 12,
    miopenTensorMhaDropoutProbability = 13,
    miopenTensorMhaDropoutSeed = 14,
    miopenTensorMhaDropoutOffset = 15,
    miopenTensorMhaO = 16,
    miopenTensorMhaAmaxO = 17,
    miopenTensorMhaAmaxS = 18,
    miopenTensorMhaM = 19,
    miopenTensorMhaZInv = 20,
    miopenTensorMhaDO = 21,
    miopenTensorMhaDescaleO = 22,
    miopenTensorMhaDescaleDO = 23,
    miopenTensorMhaDescaleDS = 24,
    miopenTensorMhaScaleDS = 25,
    miopenTensorMhaScaleDQ = 26,
    miopenTensorMhaScaleDK = 27,
    miopenTensorMhaScaleDV = 28,
    miopenTensorMhaDQ = 29,
    miopenTensorMhaDK = 30,
    miopenTensorMhaDV = 31,
    miopenTensorMhaAmaxDQ = 32,
    miopenTensorMhaAmaxDK = 33,
    miopenTensorMhaAmaxDV = 34,
    miopenTensorMhaAmaxDS = 35,
    miopenTensorMhaBias = 36,
    miopenTensorActivationX = 37,
    miopenTensorActivationY = 38,
    miopenTensorActivationDX = 39,
    miopenTensorActivationDY = 40,
    miopenTensorBiasX = 41,
    miopenTensorBiasY = 42,
    miopenTensorBias = 43,
    miopenTensorSoftmaxX = 44,
    miopenTensorSoftmaxY = 45,
    miopenTensorSoftmaxDX = 46,
    miopenTensorSoftmaxDY = 47,
    miopenTensorBatchnormX = 48,
    miopenTensorBatchnormY = 49,
    miopenTensorBatchnormRunningMean = 50,
    miopenTensorBatchnormRunningVariance = 51,
    miopenTensorBatchnormSavedMean = 52,
    miopenTensorBatchnormSavedVariance = 53,
    miopenTensorBatchnormScale = 54,
    miopenTensorBatchnormScaleDiff = 55,
    miopenTensorBatchnormEstimatedMean = 56,
    miopenTensorBatchnormEstimatedVariance = 57,
    miopenTensorBatchnormBias = 58,
    miopenTensorBatchnormBiasDiff = 59,
    miopenTensorBatchnormDX = 60,
    miopenTensorBatchnormDY = 61,
    miopenTensorArgumentIsScalar = 1U << 31,
    miopenTensorMhaMask = miopenTensorArgumentIsScalar | 1,
    miopenScalarBatchnormExpAvgFactor = miopenTensorArgumentIsScalar | 2,
    miopenScalarBatchnormEpsilon = miopenTensorArgumentIsScalar | 3
} miopenTensorArgumentId_t;

/* There is one result, which is in either order. */
typedef enum {
    miopenFindResultsOrderByTime = 0,
    miopenFindResultsOrderByWorkspaceSize = 1
} miopenFindResultsOrder_t;

/* One tensor or number of miopenRunSolution. */
typedef struct miopenTensorArgument_t {
    miopenTensorArgumentId_t id;
    /* NULL, or a descriptor that takes the place of the problem's for this run. */
    miopenTensorDescriptor_t* descriptor;
    /* Memory of the handle's device; for a scalar one double in host memory. */
    void* buffer;
} miopenTensorArgument_t;

/* ---- Problems --------------------------------------------------------------------------------------- */
/* Convolution, activation and tensor descriptors are copied. */

MIOPEN_EXPORT miopenStatus_t miopenCreateConvProblem(
    miopenProblem_t* problem, miopenConvolutionDescriptor_t operatorDesc, miopenProblemDirection_t direction);

/* One value a channel is added, or a tensor of the running shape. */
MIOPEN_EXPORT miopenStatus_t miopenCreateBiasProblem(
    miopenProblem_t* problem, miopenProblemDirection_t direction);

MIOPEN_EXPORT miopenStatus_t miopenCreateActivationProblem(
    miopenProblem_t* problem, miopenActivationDescriptor_t operatorDesc, miopenProblemDirection_t direction);

/* `runningMeanVariance` has no meaning for inference. */
MIOPEN_EXPORT miopenStatus_t miopenCreateBatchnormProblem(
    miopenProblem_t* problem, miopenBatchNormMode_t mode, bool runningMeanVariance,
    miopenProblemDirection_t direction);

/*
 * Puts the operators of `problem2`, which stays as it is, behind those of `problem1`. Two operators with
 * operands of the same name, such as two biases, are miopenStatusUnsupportedOp, and so are more than 64.
 */
MIOPEN_EXPORT miopenStatus_t miopenFuseProblems(miopenProblem_t problem1, miopenProblem_t problem2);

/*
 * Needed are the input of the first operator and the weights of a convolution. Every other tensor follows from
 * these, and has to be what follows where it is described nevertheless. A name that the problem does not have
 * is miopenStatusBadParm.
 */
MIOPEN_EXPORT miopenStatus_t miopenSetProblemTensorDescriptor(
    miopenProblem_t problem, miopenTensorArgumentId_t id, const miopenTensorDescriptor_t descriptor);

MIOPEN_EXPORT miopenStatus_t miopenDestroyProblem(miopenProblem_t problem);

/* ---- Options of a search ---------------------------------------------------------------------------- */

MIOPEN_EXPORT miopenStatus_t miopenCreateFindOptions(miopenFindOptions_t* options);

/* 1: the solvers that take the problem are timed. 0, the default: the handle's tuning policy decides. */
MIOPEN_EXPORT miopenStatus_t miopenSetFindOptionTuning(miopenFindOptions_t options, int value);

MIOPEN_EXPORT miopenStatus_t miopenSetFindOptionResultsOrder(
    miopenFindOptions_t options, miopenFindResultsOrder_t value);

/* Solutions that need more bytes of workspace are not found. */
MIOPEN_EXPORT miopenStatus_t miopenSetFindOptionWorkspaceLimit(miopenFindOptions_t options, size_t value);

/* Used if it is large enough. */
MIOPEN_EXPORT miopenStatus_t miopenSetFindOptionPreallocatedWorkspace(
    miopenFindOptions_t options, void* buffer, size_t size);

/*
 * The search runs in this memory and overwrites the problem's output there. It has memory of its own for
 * tensors that are not given, and for running statistics always.
 */
MIOPEN_EXPORT miopenStatus_t miopenSetFindOptionPreallocatedTensor(
    miopenFindOptions_t options, miopenTensorArgumentId_t id, void* buffer);

/* 0 or 1; without effect, since kernels are kept in the cache on disk. */
MIOPEN_EXPORT miopenStatus_t miopenSetFindOptionAttachBinaries(miopenFindOptions_t options, unsigned attach);

MIOPEN_EXPORT miopenStatus_t miopenDestroyFindOptions(miopenFindOptions_t options);

/* ---- Solutions -------------------------------------------------------------------------------------- */

/*
 * Chooses a solver, as compiling a fusion plan does, executes it and times one execution. One solution is
 * found, none if it needs more workspace than the options allow; a problem that no solver takes is
 * miopenStatusUnsupportedOp. `options` and `numSolutions` may be NULL, `maxSolutions` 0 is
 * miopenStatusBadParm.
 */
MIOPEN_EXPORT miopenStatus_t miopenFindSolutions(
    miopenHandle_t handle, miopenProblem_t problem, miopenFindOptions_t options, miopenSolution_t* solutions,
    size_t* numSolutions, size_t maxSolutions);

/*
 * Executes the solver that was found, in the handle's stream. `tensors` has the input of the first operator,
 * the output of the last, and the operands of all; tensors between operators and names that the problem does
 * not have are not looked at. A solution that was found on another backend is miopenStatusBadParm.
 */
MIOPEN_EXPORT miopenStatus_t miopenRunSolution(
    miopenHandle_t handle, miopenSolution_t solution, size_t nInputs, const miopenTensorArgument_t* tensors,
    void* workspace, size_t workspaceSize);

/*
 * A saved solution is good for the same and later versions of fuseplan; of others, and of AMD's, none can be
 * loaded. Damaged data is miopenStatusBadParm, a version that is not known miopenStatusVersionMismatch.
 */
MIOPEN_EXPORT miopenStatus_t miopenLoadSolution(miopenSolution_t* solution, const char* data, size_t size);

/* Writes as many bytes as miopenGetSolutionSize says. */
MIOPEN_EXPORT miopenStatus_t miopenSaveSolution(miopenSolution_t solution, char* data);

MIOPEN_EXPORT miopenStatus_t miopenGetSolutionSize(miopenSolution_t solution, size_t* size);

/* Bytes. */
MIOPEN_EXPORT miopenStatus_t miopenGetSolutionWorkspaceSize(miopenSolution_t solution, size_t* workspaceSize);

/* Milliseconds of the execution that was timed when the solution was found. */
MIOPEN_EXPORT miopenStatus_t miopenGetSolutionTime(miopenSolution_t solution, float* time);

/* A number for the solver. It is no solution of the immediate calls. */
MIOPEN_EXPORT miopenStatus_t miopenGetSolutionSolverId(miopenSolution_t solution, uint64_t* solverId);

/* The algorithm of a solver with a number from miopenGetSolutionSolverId. */
MIOPEN_EXPORT miopenStatus_t miopenGetSolverIdConvAlgorithm(uint64_t solverId, miopenConvAlgorithm_t* result);

MIOPEN_EXPORT miopenStatus_t miopenDestroySolution(miopenSolution_t solution);

#ifdef __cplusplus
}
#endif

#endif
