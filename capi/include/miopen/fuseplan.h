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

/*
 * Whether plans that are executed on `handle` honour the alpha and beta of the miopenSetOpArgs* calls:
 * y = alpha * op(x) + beta * (what y was), beta on the last operator only. Both are read as f32 when the
 * arguments are set, and only while some handle has this switched on; NULL is 1 and 0.
 */
MIOPEN_EXPORT miopenStatus_t fuseplanSetHonorAlphaBeta(miopenHandle_t handle, bool honor);

/* How the products of a plan may be rounded. */
typedef enum {
    fuseplanMathPrecise   = 0, /* f32 products are f32 products: the default */
    fuseplanMathAllowTf32 = 1  /* f32 factors may be rounded to TF32 where that is faster */
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
