/*
 * Handles and enumerations of the MIOpen interface. Names and values are MIOpen's.
 * Include <miopen/miopen.h>, not this file.
 */
#ifndef FUSEPLAN_MIOPEN_TYPES_H
#define FUSEPLAN_MIOPEN_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <miopen/config.h>
#include <miopen/export.h>

#if MIOPEN_BACKEND_HIP && defined(__has_include)
#if __has_include(<hip/hip_runtime_api.h>)
#define FUSEPLAN_HAVE_HIP_HEADERS 1
#include <hip/hip_runtime_api.h>
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* C99 lacks what MIOpen's types are made of; compilers that have it as an extension want to be told so. */
#if defined(__GNUC__)
#define FUSEPLAN_EXTENSION __extension__
#else
#define FUSEPLAN_EXTENSION
#endif

/*
 * A handle is a number that only the library understands, never an address to look behind. Handing in
 * NULL, a destroyed handle, a handle of another kind or garbage is an error that is reported, not a crash.
 */
#define MIOPEN_DECLARE_OBJECT(name) \
    struct name;                    \
    typedef struct name* name##_t

MIOPEN_DECLARE_OBJECT(miopenHandle);
MIOPEN_DECLARE_OBJECT(miopenTensorDescriptor);
MIOPEN_DECLARE_OBJECT(miopenConvolutionDescriptor);
MIOPEN_DECLARE_OBJECT(miopenActivationDescriptor);
MIOPEN_DECLARE_OBJECT(miopenFusionPlanDescriptor);
MIOPEN_DECLARE_OBJECT(miopenFusionOpDescriptor);
MIOPEN_DECLARE_OBJECT(miopenOperatorDescriptor);
MIOPEN_DECLARE_OBJECT(miopenOperatorArgs);

/* The stream that a handle's work is ordered in. Ignored by the CPU backend. */
#ifdef FUSEPLAN_HAVE_HIP_HEADERS
typedef hipStream_t miopenAcceleratorQueue_t;
#else
typedef struct fuseplanStream* miopenAcceleratorQueue_t;
#endif

/* Gives `sizeBytes` bytes of device memory, or NULL. */
typedef void* (*miopenAllocatorFunction)(void* context, size_t sizeBytes);
/* Takes back what the allocator gave. */
typedef void (*miopenDeallocatorFunction)(void* context, void* memory);

/* What every function returns. */
typedef enum {
    miopenStatusSuccess = 0,
    miopenStatusNotInitialized = 1,
    miopenStatusInvalidValue = 2,
    miopenStatusBadParm = 3,
    miopenStatusAllocFailed = 4,
    miopenStatusInternalError = 5,
    miopenStatusNotImplemented = 6,
    miopenStatusUnknownError = 7,
    miopenStatusUnsupportedOp = 8,
    miopenStatusGpuOperationsSkipped = 9,
    miopenStatusVersionMismatch = 10
} miopenStatus_t;

/*
 * Element types. Half, BFloat16, Float, Double and Int8 can be computed with (as far as the supported table
 * says so); Int32 and Int64 and the 8-bit floats are known by name only.
 */
typedef enum {
    miopenHalf = 0,
    miopenFloat = 1,
    miopenInt32 = 2,
    miopenInt8 = 3,
    miopenBFloat16 = 5,
    miopenDouble = 6,
    miopenFloat8_fnuz = 7,
    miopenBFloat8_fnuz = 8,
#ifdef MIOPEN_BETA_API
    miopenFloat8 = 7,
    miopenBFloat8 = 8,
#endif
    miopenInt64 = 9
} miopenDataType_t;

/* Memory order of a packed tensor. NCHW, NHWC, NCHWc4, NCHWc8, NCDHW and NDHWC can be described. Of NCHWc4 and NCHWc8 lengths
   count all channels, which are whole blocks; such a tensor has no strides that could be read back. */
typedef enum {
    miopenTensorNCHW = 0,
    miopenTensorNHWC = 1,
    miopenTensorCHWN = 2,
    miopenTensorNCHWc4 = 3,
    miopenTensorNCHWc8 = 4,
    miopenTensorCHWNc4 = 5,
    miopenTensorCHWNc8 = 6,
    miopenTensorNCDHW = 7,
    miopenTensorNDHWC = 8
} miopenTensorLayout_t;

/* Integer types of pooling indices. */
typedef enum {
    miopenIndexUint8 = 0,
    miopenIndexUint16 = 1,
    miopenIndexUint32 = 2,
    miopenIndexUint64 = 3
} miopenIndexType_t;

/* Operation of miopenOpTensor. */
typedef enum {
    miopenTensorOpAdd = 0,
    miopenTensorOpMul = 1,
    miopenTensorOpMin = 2,
    miopenTensorOpMax = 3
} miopenTensorOp_t;

/* Direction of a convolution. GroupConv and Depthwise are old names; they are stored as miopenConvolution. */
typedef enum {
    miopenConvolution = 0,
    miopenTranspose = 1,
    miopenGroupConv = 2,
    miopenDepthwise = 3
} miopenConvolutionMode_t;

/* Padding by rule instead of by number. No function takes it; it is here for programs that name it. */
typedef enum {
    miopenPaddingDefault = 0,
    miopenPaddingSame = 1,
    miopenPaddingValid = 2
} miopenPaddingMode_t;

/* Over what batch-norm statistics run: N, or N and all spatial dimensions. */
typedef enum {
    miopenBNPerActivation = 0,
    miopenBNSpatial = 1
} miopenBatchNormMode_t;

/* Activation functions; alpha, beta and gamma are given where the activation is run. */
typedef enum {
    miopenActivationPASTHRU = 0,     /* x */
    miopenActivationLOGISTIC = 1,    /* 1 / (1 + exp(-x)) */
    miopenActivationTANH = 2,        /* beta * tanh(alpha * x) */
    miopenActivationRELU = 3,        /* max(0, x); the parameters are not used */
    miopenActivationSOFTRELU = 4,    /* log(1 + exp(x)) */
    miopenActivationABS = 5,         /* |x| */
    miopenActivationPOWER = 6,       /* (alpha + beta * x) ^ gamma */
    miopenActivationCLIPPEDRELU = 7, /* min(alpha, max(0, x)) */
    miopenActivationLEAKYRELU = 8,   /* x > 0 ? x : alpha * x */
    miopenActivationELU = 9,         /* x > 0 ? x : alpha * (exp(x) - 1) */
    miopenActivationCLAMP = 10       /* max(alpha, min(beta, x)) */
} miopenActivationMode_t;

/* Only vertical fusion exists. */
typedef enum {
    miopenVerticalFusion = 0,
    miopenHorizontalFusion = 1
} miopenFusionDirection_t;

/* Algorithms of forward convolution. The value 4 is unused. */
typedef enum {
    miopenConvolutionFwdAlgoGEMM = 0,
    miopenConvolutionFwdAlgoDirect = 1,
    miopenConvolutionFwdAlgoFFT = 2,
    miopenConvolutionFwdAlgoWinograd = 3,
    miopenConvolutionFwdAlgoImplicitGEMM = 5
} miopenConvFwdAlgorithm_t;

/* Algorithms of the gradient of the filters. */
typedef enum {
    miopenConvolutionBwdWeightsAlgoGEMM = 0,
    miopenConvolutionBwdWeightsAlgoDirect = 1,
    miopenConvolutionBwdWeightsAlgoWinograd = 3,
    miopenConvolutionBwdWeightsAlgoImplicitGEMM = 5
} miopenConvBwdWeightsAlgorithm_t;

/* Algorithms of the gradient of the input. */
typedef enum {
    miopenConvolutionBwdDataAlgoGEMM = 0,
    miopenConvolutionBwdDataAlgoDirect = 1,
    miopenConvolutionBwdDataAlgoFFT = 2,
    miopenConvolutionBwdDataAlgoWinograd = 3,
    miopenTransposeBwdDataAlgoGEMM = 4,
    miopenConvolutionBwdDataAlgoImplicitGEMM = 5
} miopenConvBwdDataAlgorithm_t;

/* Algorithms without a direction, for the immediate calls. */
typedef enum {
    miopenConvolutionAlgoGEMM = 0,
    miopenConvolutionAlgoDirect = 1,
    miopenConvolutionAlgoFFT = 2,
    miopenConvolutionAlgoWinograd = 3,
    miopenConvolutionAlgoImplicitGEMM = 5
} miopenConvAlgorithm_t;

/* Switches of a convolution descriptor. They are kept and can be read back. */
typedef enum {
    MIOPEN_CONVOLUTION_ATTRIB_FP16_ALT_IMPL = 0,
    MIOPEN_CONVOLUTION_ATTRIB_DETERMINISTIC = 1,
    MIOPEN_CONVOLUTION_ATTRIB_FP8_ROUNDING_MODE = 2,
    MIOPEN_CONVOLUTION_ATTRIB_MATH_TYPE = 3
} miopenConvolutionAttrib_t;

/* Values of MIOPEN_CONVOLUTION_ATTRIB_MATH_TYPE. */
typedef enum { miopenMathDefault = 0, miopenMathPedantic = 1 } miopenMathType_t;

/* Values of MIOPEN_CONVOLUTION_ATTRIB_FP8_ROUNDING_MODE. */
typedef enum {
    miopenF8RoundingModeStandard = 0,
    miopenF8RoundingModeStochastic = 1
} miopenF8RoundingMode_t;

/* How compile looks for a kernel. Kept on the convolution descriptor; the choice is always by rule. */
typedef enum {
    miopenConvolutionFindModeNormal = 1,
    miopenConvolutionFindModeFast = 2,
    miopenConvolutionFindModeHybrid = 3,
    miopenConvolutionFindModeDynamicHybrid = 5,
    miopenConvolutionFindModeTrustVerify = 6,
    miopenConvolutionFindModeTrustVerifyFull = 7,
    miopenConvolutionFindModeDefault = 5
} miopenConvolutionFindMode_t;

/*
 * How single operators choose their solver. DbUpdate, Search and SearchDbUpdate have them timed, as
 * MIOPEN_FIND_MODE does, and what was found is kept; None and DbClean leave the choice to the environment, or
 * to the rules.
 */
typedef enum {
    miopenTuningPolicyNone = 1,
    miopenTuningPolicyDbUpdate = 2,
    miopenTuningPolicySearch = 3,
    miopenTuningPolicySearchDbUpdate = 4,
    miopenTuningPolicyDbClean = 5
} miopenTuningPolicy_t;

/* One result of a find call. */
typedef struct {
    FUSEPLAN_EXTENSION union {
        miopenConvFwdAlgorithm_t fwd_algo;
        miopenConvBwdWeightsAlgorithm_t bwd_weights_algo;
        miopenConvBwdDataAlgorithm_t bwd_data_algo;
    };
    float time;    /* milliseconds */
    size_t memory; /* bytes of workspace */
} miopenConvAlgoPerf_t;

/* One solution of the immediate calls. */
typedef struct {
    float time;            /* milliseconds; an estimate, negative when there is none */
    size_t workspace_size; /* bytes */
    uint64_t solution_id;  /* for the other immediate calls */
    miopenConvAlgorithm_t algorithm;
} miopenConvSolution_t;

#ifdef __cplusplus
}
#endif

#endif
