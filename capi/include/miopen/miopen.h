/*
 * fuseplan's drop-in for the MIOpen C interface.
 *
 * Programs written for MIOpen's fusion calls compile against this header and run, unchanged, on any machine:
 * on CPUs as well as on the GPUs that fuseplan has a backend for. Function names, the order of parameters and
 * the values of enumerations are MIOpen's. What differs on purpose is listed in
 * docs/migrating-from-miopen.md.
 *
 * Rules that hold for every function:
 *  - A failing function changes nothing and leaves its output parameters as they were.
 *  - The reason of a failure is on stderr ("MIOpen Error: ...") and in fuseplanGetLastErrorString().
 *  - NULL for a handle or an output parameter gives miopenStatusBadParm, unless said otherwise here;
 *    destroying NULL succeeds.
 *  - Every function may be called from any thread. Calls that change one and the same object from several
 *    threads are put in some order.
 *  - Descriptors are copied where they are handed in; the caller may change or destroy them afterwards.
 *  - On the CPU backend data pointers are host pointers, work is done when the call returns, and streams
 *    are ignored. On GPU backends they are device pointers and work is ordered in the handle's stream.
 *  - Pointers to data are not checked beyond NULL: they must be large enough for their descriptors.
 *
 * In this file: library, handle, tensor, convolution and activation descriptors.
 * <miopen/fusion.h> has the fusion plans, <miopen/primitives.h> the same operators unfused, <miopen/find2.h>
 * both as problems and solutions, <miopen/unimplemented.h>, <miopen/beta.h> and <miopen/graph.h> what is
 * exported but not implemented, and <miopen/fuseplan.h>, which is the only one that is not included here,
 * fuseplan's own additions.
 */
#ifndef FUSEPLAN_MIOPEN_MIOPEN_H
#define FUSEPLAN_MIOPEN_MIOPEN_H

#include <miopen/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Library -------------------------------------------------------------------------------------- */

/* The status's own name, "miopenStatusBadParm"; "Unknown error status" for any other number. */
MIOPEN_EXPORT const char* miopenGetErrorString(miopenStatus_t error);

/* MIOPEN_VERSION_MAJOR, _MINOR and _PATCH of <miopen/version.h>. Any pointer may be NULL. */
MIOPEN_EXPORT miopenStatus_t miopenGetVersion(size_t* major, size_t* minor, size_t* patch);

/* ---- Handle --------------------------------------------------------------------------------------- */

/*
 * A handle on the backend that FUSEPLAN_BACKEND names (cpu, cuda, rocm), or else on the best one present.
 */
MIOPEN_EXPORT miopenStatus_t miopenCreate(miopenHandle_t* handle);

/* The same, with work ordered in `stream`, which must outlive the handle; NULL is the default stream. */
MIOPEN_EXPORT miopenStatus_t miopenCreateWithStream(miopenHandle_t* handle, miopenAcceleratorQueue_t stream);

/* Calls that run on the handle in other threads are finished first by themselves. */
MIOPEN_EXPORT miopenStatus_t miopenDestroy(miopenHandle_t handle);

MIOPEN_EXPORT miopenStatus_t miopenSetStream(miopenHandle_t handle, miopenAcceleratorQueue_t streamID);

/* The stream that was set, NULL for none. */
MIOPEN_EXPORT miopenStatus_t miopenGetStream(miopenHandle_t handle, miopenAcceleratorQueue_t* streamID);

/*
 * Functions to get memory with for workspaces that the caller does not provide. Both NULL: the backend's
 * own. One of them NULL is miopenStatusBadParm.
 */
MIOPEN_EXPORT miopenStatus_t miopenSetAllocator(miopenHandle_t handle,
                                                miopenAllocatorFunction allocator,
                                                miopenDeallocatorFunction deallocator,
                                                void* allocatorContext);

/* Milliseconds of the last execution on this handle while profiling was on; 0 before the first. */
MIOPEN_EXPORT miopenStatus_t miopenGetKernelTime(miopenHandle_t handle, float* time);

/* With profiling on every execution is waited for and timed. */
MIOPEN_EXPORT miopenStatus_t miopenEnableProfiling(miopenHandle_t handle, bool enable);

/* A handle begins with miopenTuningPolicyNone. */
MIOPEN_EXPORT miopenStatus_t miopenSetTuningPolicy(miopenHandle_t handle, miopenTuningPolicy_t newValue);

MIOPEN_EXPORT miopenStatus_t miopenGetTuningPolicy(miopenHandle_t handle, miopenTuningPolicy_t* value);

/* ---- Tensor descriptors --------------------------------------------------------------------------- */
/*
 * Lengths are always in the order N, C, (D,) H, W. Strides count elements; they alone tell the layout. Strides of
 * dimensions of length 1 mean nothing and may be any number. With a length of 0 a descriptor is a placeholder: it can
 * be set, read back and set again, has 0 bytes, and is miopenStatusBadParm wherever it would be used.
 */

MIOPEN_EXPORT miopenStatus_t miopenCreateTensorDescriptor(miopenTensorDescriptor_t* tensorDesc);

/* Packed NCHW. Lengths below 0 give miopenStatusBadParm. */
MIOPEN_EXPORT miopenStatus_t miopenSet4dTensorDescriptor(
    miopenTensorDescriptor_t tensorDesc, miopenDataType_t dataType, int n, int c, int h, int w);

MIOPEN_EXPORT miopenStatus_t miopenSet4dTensorDescriptorEx(miopenTensorDescriptor_t tensorDesc,
                                                           miopenDataType_t dataType,
                                                           int n,
                                                           int c,
                                                           int h,
                                                           int w,
                                                           int nStride,
                                                           int cStride,
                                                           int hStride,
                                                           int wStride);

/* Packed in the given layout, which must have `num_lens` dimensions. */
MIOPEN_EXPORT miopenStatus_t miopenSetNdTensorDescriptorWithLayout(miopenTensorDescriptor_t tensorDesc,
                                                                   miopenDataType_t dataType,
                                                                   miopenTensorLayout_t tensorLayout,
                                                                   const int* lens,
                                                                   int num_lens);

/*
 * 1 to 5 dimensions. `stridesA` NULL: packed. `dimsA` NULL or `nbDims` below 1: miopenStatusInvalidValue.
 */
MIOPEN_EXPORT miopenStatus_t miopenSetTensorDescriptor(miopenTensorDescriptor_t tensorDesc,
                                                       miopenDataType_t dataType,
                                                       int nbDims,
                                                       const int* dimsA,
                                                       const int* stridesA);

/* The same with 64-bit numbers. */
MIOPEN_EXPORT miopenStatus_t miopenSetTensorDescriptorV2(miopenTensorDescriptor_t tensorDesc,
                                                         miopenDataType_t dataType,
                                                         int nbDims,
                                                         const size_t* dimsA,
                                                         const size_t* stridesA);

/* Kept for 8-bit-float programs; plans with a cast type are not supported. */
MIOPEN_EXPORT miopenStatus_t miopenSetTensorCastType(miopenTensorDescriptor_t tensorDesc,
                                                     miopenDataType_t cast_type);

/* 4-D descriptors only. Each output may be NULL. */
MIOPEN_EXPORT miopenStatus_t miopenGet4dTensorDescriptor(miopenTensorDescriptor_t tensorDesc,
                                                         miopenDataType_t* dataType,
                                                         int* n,
                                                         int* c,
                                                         int* h,
                                                         int* w,
                                                         int* nStride,
                                                         int* cStride,
                                                         int* hStride,
                                                         int* wStride);

/* The number of dimensions (not of bytes); 0 before the descriptor is set. */
MIOPEN_EXPORT miopenStatus_t miopenGetTensorDescriptorSize(miopenTensorDescriptor_t tensorDesc, int* size);

/* Each output may be NULL; the arrays have one entry for each dimension. */
MIOPEN_EXPORT miopenStatus_t miopenGetTensorDescriptor(miopenTensorDescriptor_t tensorDesc,
                                                       miopenDataType_t* dataType,
                                                       int* dimsA,
                                                       int* stridesA);

/* Bytes from the first to behind the last element, gaps included. */
MIOPEN_EXPORT miopenStatus_t miopenGetTensorNumBytes(miopenTensorDescriptor_t tensorDesc, size_t* numBytes);

MIOPEN_EXPORT miopenStatus_t miopenDestroyTensorDescriptor(miopenTensorDescriptor_t tensorDesc);

/* ---- Convolution descriptors ---------------------------------------------------------------------- */

/* A new descriptor is a 2-D convolution with padding 0, stride 1, dilation 1, one group. */
MIOPEN_EXPORT miopenStatus_t miopenCreateConvolutionDescriptor(miopenConvolutionDescriptor_t* convDesc);

/* Padding below 0, strides or dilations below 1: miopenStatusBadParm. The group count becomes 1. */
MIOPEN_EXPORT miopenStatus_t miopenInitConvolutionDescriptor(miopenConvolutionDescriptor_t convDesc,
                                                             miopenConvolutionMode_t c_mode,
                                                             int pad_h,
                                                             int pad_w,
                                                             int stride_h,
                                                             int stride_w,
                                                             int dilation_h,
                                                             int dilation_w);

/* 2 or 3 spatial dimensions; the arrays have one entry for each, (D,) H, W. */
MIOPEN_EXPORT miopenStatus_t miopenInitConvolutionNdDescriptor(miopenConvolutionDescriptor_t convDesc,
                                                               int spatialDim,
                                                               const int* padA,
                                                               const int* strideA,
                                                               const int* dilationA,
                                                               miopenConvolutionMode_t c_mode);

MIOPEN_EXPORT miopenStatus_t miopenGetConvolutionSpatialDim(miopenConvolutionDescriptor_t convDesc,
                                                            int* spatialDim);

/* 2-D descriptors only, otherwise miopenStatusUnknownError. Each output may be NULL. */
MIOPEN_EXPORT miopenStatus_t miopenGetConvolutionDescriptor(miopenConvolutionDescriptor_t convDesc,
                                                            miopenConvolutionMode_t* c_mode,
                                                            int* pad_h,
                                                            int* pad_w,
                                                            int* stride_h,
                                                            int* stride_w,
                                                            int* dilation_h,
                                                            int* dilation_w);

/*
 * Writes the first `requestedSpatialDim` entries, and to `spatialDim` how many the descriptor has. Fails
 * when more are requested than there are (programs find out the dimension that way). Each output may be
 * NULL.
 */
MIOPEN_EXPORT miopenStatus_t miopenGetConvolutionNdDescriptor(miopenConvolutionDescriptor_t convDesc,
                                                              int requestedSpatialDim,
                                                              int* spatialDim,
                                                              int* padA,
                                                              int* strideA,
                                                              int* dilationA,
                                                              miopenConvolutionMode_t* c_mode);

MIOPEN_EXPORT miopenStatus_t miopenGetConvolutionGroupCount(miopenConvolutionDescriptor_t convDesc,
                                                            int* groupCount);

/* Any number is kept; nonsense is refused where the descriptor is used. */
MIOPEN_EXPORT miopenStatus_t miopenSetConvolutionGroupCount(miopenConvolutionDescriptor_t convDesc,
                                                            int groupCount);

MIOPEN_EXPORT miopenStatus_t miopenSetTransposeConvOutputPadding(miopenConvolutionDescriptor_t convDesc,
                                                                 int adj_h,
                                                                 int adj_w);

MIOPEN_EXPORT miopenStatus_t miopenSetTransposeConvNdOutputPadding(miopenConvolutionDescriptor_t convDesc,
                                                                   int spatialDim,
                                                                   const int* adjA);

/* floor((in + 2 * pad - (dilation * (filter - 1) + 1)) / stride) + 1 in each spatial dimension. */
MIOPEN_EXPORT miopenStatus_t
miopenGetConvolutionForwardOutputDim(miopenConvolutionDescriptor_t convDesc,
                                     const miopenTensorDescriptor_t inputTensorDesc,
                                     const miopenTensorDescriptor_t filterDesc,
                                     int* n,
                                     int* c,
                                     int* h,
                                     int* w);

/* The same for any number of dimensions: `outputTensorDimA` must have room for them (5 are enough). */
MIOPEN_EXPORT miopenStatus_t
miopenGetConvolutionNdForwardOutputDim(miopenConvolutionDescriptor_t convDesc,
                                       const miopenTensorDescriptor_t inputTensorDesc,
                                       const miopenTensorDescriptor_t filterDesc,
                                       int* nDim,
                                       int* outputTensorDimA);

MIOPEN_EXPORT miopenStatus_t miopenDestroyConvolutionDescriptor(miopenConvolutionDescriptor_t convDesc);

/* Kept, to be read back. Results are deterministic whatever the attribute says. */
MIOPEN_EXPORT miopenStatus_t miopenSetConvolutionAttribute(miopenConvolutionDescriptor_t convDesc,
                                                           const miopenConvolutionAttrib_t attr,
                                                           int value);

MIOPEN_EXPORT miopenStatus_t miopenGetConvolutionAttribute(miopenConvolutionDescriptor_t convDesc,
                                                           const miopenConvolutionAttrib_t attr,
                                                           int* value);

/* Kept, to be read back. */
MIOPEN_EXPORT miopenStatus_t miopenSetConvolutionFindMode(miopenConvolutionDescriptor_t convDesc,
                                                          miopenConvolutionFindMode_t findMode);

MIOPEN_EXPORT miopenStatus_t miopenGetConvolutionFindMode(const miopenConvolutionDescriptor_t convDesc,
                                                          miopenConvolutionFindMode_t* findMode);

/* Older names of the two, with a plain number. */
MIOPEN_EXPORT miopenStatus_t miopenHiddenSetConvolutionFindMode(miopenConvolutionDescriptor_t convDesc,
                                                                int findMode);

MIOPEN_EXPORT miopenStatus_t miopenHiddenGetConvolutionFindMode(const miopenConvolutionDescriptor_t convDesc,
                                                                int* findMode);

/* ---- Activation descriptors ----------------------------------------------------------------------- */

/* A new descriptor is PASTHRU with parameters 0. */
MIOPEN_EXPORT miopenStatus_t miopenCreateActivationDescriptor(miopenActivationDescriptor_t* activDesc);

MIOPEN_EXPORT miopenStatus_t miopenSetActivationDescriptor(const miopenActivationDescriptor_t activDesc,
                                                           miopenActivationMode_t mode,
                                                           double activAlpha,
                                                           double activBeta,
                                                           double activGamma);

/* Each output may be NULL. */
MIOPEN_EXPORT miopenStatus_t miopenGetActivationDescriptor(const miopenActivationDescriptor_t activDesc,
                                                           miopenActivationMode_t* mode,
                                                           double* activAlpha,
                                                           double* activBeta,
                                                           double* activGamma);

MIOPEN_EXPORT miopenStatus_t miopenDestroyActivationDescriptor(miopenActivationDescriptor_t activDesc);

#ifdef __cplusplus
}
#endif

#include <miopen/fusion.h>
#include <miopen/primitives.h>
#include <miopen/find2.h>
#include <miopen/unimplemented.h>
#include <miopen/beta.h>
#include <miopen/graph.h>

#endif
