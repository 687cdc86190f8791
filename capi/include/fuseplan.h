/*
 * fuseplan: fused neural-network operators from one plan. Describe a tensor, append operators in order (convolution, bias,
 * batch-norm, activation), compile them into one kernel, give weights and scalars at run time, execute.
 *
 * This is fuseplan's own interface, of libfuseplan.so.0; link with -lfuseplan. Programs written for MIOpen find MIOpen's
 * in <miopen/miopen.h> and libMIOpen.so.1; one program may use both, whose handles are not each other's.
 * <fuseplan.hpp> makes C++ classes of it.
 *
 * Every function but those that return text returns a status. What failed is told by fuseplan_last_error(), which names the
 * operator, the property, what was found and what would be accepted. A call that fails writes nothing and changes
 * nothing.
 *
 * A handle is a number that only the library understands, never an address to look behind. Handing in NULL, a destroyed
 * handle, a handle of another kind or garbage is an error that is reported, not a crash; destroying NULL is a success.
 * Handles may be used by several threads at once. Pointers to data promise memory; nobody can check that.
 */
#ifndef FUSEPLAN_H
#define FUSEPLAN_H

#include <stddef.h>

#ifndef FUSEPLAN_EXPORT
#if defined(_WIN32)
#define FUSEPLAN_EXPORT __declspec(dllimport)
#elif defined(__GNUC__)
#define FUSEPLAN_EXPORT __attribute__((visibility("default")))
#else
#define FUSEPLAN_EXPORT
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The library's version; fuseplan_version() tells that of the library that is loaded. */
#define FUSEPLAN_VERSION_MAJOR 0
#define FUSEPLAN_VERSION_MINOR 1
#define FUSEPLAN_VERSION_PATCH 0

/* What a call comes to. */
typedef enum {
    FUSEPLAN_SUCCESS          = 0,
    FUSEPLAN_INVALID_ARGUMENT = 1, /* NULL, no such handle, a number out of range, descriptors that do not fit */
    FUSEPLAN_UNSUPPORTED      = 2, /* the operator cannot stand there, or no solver of the device computes the plan */
    FUSEPLAN_UNAVAILABLE      = 3, /* no such backend on this machine, or no device of it */
    FUSEPLAN_OUT_OF_MEMORY    = 4,
    FUSEPLAN_INTERNAL_ERROR   = 5  /* a driver or a compiler failed, or the library itself */
} fuseplan_status_t;

/* The name of a status, such as "FUSEPLAN_SUCCESS"; static. */
FUSEPLAN_EXPORT const char* fuseplan_status_string(fuseplan_status_t status);

/*
 * Why the last failing call of this thread failed; "" when none has. The thread's next failing call overwrites the text,
 * successful calls do not change it.
 */
FUSEPLAN_EXPORT const char* fuseplan_last_error(void);

/* The version of the library that is loaded, such as "0.1.0"; static. */
FUSEPLAN_EXPORT const char* fuseplan_version(void);

/* ---- Handle: a device and the stream that work is ordered in ---- */

typedef struct fuseplan_handle* fuseplan_handle_t;

/* For `device`: the one that the calling thread has chosen (cudaSetDevice, hipSetDevice), else the first. */
#define FUSEPLAN_CURRENT_DEVICE (-1)

/*
 * A handle on a device: `backend` is "cpu", "cuda", "rocm", or NULL for the one that the environment variable
 * FUSEPLAN_BACKEND names, else the best one that has a device on this machine; `device` is a number within the backend, or
 * FUSEPLAN_CURRENT_DEVICE, the only one for NULL. On a GPU the handle has a stream of its own.
 */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_handle_create(fuseplan_handle_t* handle, const char* backend, int device);

/* A handle on the CPU with `threads` threads of its own, 1 to 1024. */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_handle_create_cpu(fuseplan_handle_t* handle, size_t threads);

/* What a parallel loop calls for each index, with the argument that it was given. */
typedef void (*fuseplan_work_t)(void* argument, size_t index);

/*
 * A parallel loop of the caller's: calls `work(argument, index)` for each index below `count`, on any threads and in any
 * order, and returns when all these calls have returned. May be called by several threads at once, and until the handle
 * and all that was compiled for it is destroyed. No exception may leave it.
 */
typedef void (*fuseplan_parallel_for_t)(void* context, size_t count, fuseplan_work_t work, void* argument);

/*
 * A handle on the CPU that computes on the caller's threads, so that a framework's pool and the library's do not compete
 * for cores: by `parallel_for`, which is given `context`, and never more indices than `threads`, a number from 1 to 1024 that
 * includes the calling thread. Results are bitwise the same.
 */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_handle_create_parallel_for(fuseplan_handle_t* handle,
                                                                      size_t threads,
                                                                      fuseplan_parallel_for_t parallel_for,
                                                                      void* context);

/*
 * Orders what is executed from now on in a stream of the caller's: a cudaStream_t or hipStream_t of the handle's device,
 * NULL for the default stream. It has to outlive the handle. The CPU backend ignores it.
 */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_handle_set_stream(fuseplan_handle_t handle, void* stream);

/* Waits until everything in the handle's stream has run. */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_handle_synchronize(fuseplan_handle_t handle);

/*
 * Functions with `text` and `size` write at most `*size` bytes to `text`, a terminating zero included, and to `*size` how
 * many the whole text needs. With `text` NULL only the size is written. Too small a buffer is FUSEPLAN_INVALID_ARGUMENT; the
 * size is written then, too.
 */

/* What the handle's backend can run, and which constraints each of its solvers has. */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_handle_supported(fuseplan_handle_t handle, char* text, size_t* size);

FUSEPLAN_EXPORT fuseplan_status_t fuseplan_handle_destroy(fuseplan_handle_t handle);

/* ---- Tensor: data type, lengths and strides; it owns no data and does not change ---- */

typedef struct fuseplan_tensor* fuseplan_tensor_t;

/* The most dimensions of a tensor. Plans take tensors of 4 (N, C, H, W) or 5 (N, C, D, H, W). */
#define FUSEPLAN_MAX_RANK 5

typedef enum {
    FUSEPLAN_F16  = 0,
    FUSEPLAN_F32  = 1,
    FUSEPLAN_BF16 = 2
} fuseplan_data_type_t;

/* The order in which packed elements lie in memory. Lengths are N, C, (D,) H, W in all of them. With blocks, C is a multiple of
 * the block's channels, and the tensor has no strides: fuseplan_tensor_get takes NULL in their place. */
typedef enum {
    FUSEPLAN_CHANNELS_FIRST = 0, /* NCHW, NCDHW */
    FUSEPLAN_CHANNELS_LAST  = 1, /* NHWC, NDHWC */
    FUSEPLAN_BLOCKS_OF_4    = 2, /* NCHWc: blocks of channels, each an image with these innermost; on the CPU */
    FUSEPLAN_BLOCKS_OF_8    = 3,
    FUSEPLAN_BLOCKS_OF_16   = 4
} fuseplan_layout_t;

/* A packed tensor of 4 or 5 dimensions; `lens` has `rank` lengths. */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_tensor_create(fuseplan_tensor_t* tensor,
                                                         fuseplan_data_type_t data_type,
                                                         fuseplan_layout_t layout,
                                                         size_t rank,
                                                         const size_t* lens);

/* A tensor with any strides, in elements; `lens` and `strides` have `rank` numbers each. */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_tensor_create_strided(
    fuseplan_tensor_t* tensor, fuseplan_data_type_t data_type, size_t rank, const size_t* lens, const size_t* strides);

/* What a tensor is; `lens` and `strides` have room for FUSEPLAN_MAX_RANK numbers. Any pointer may be NULL. */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_tensor_get(
    fuseplan_tensor_t tensor, fuseplan_data_type_t* data_type, size_t* rank, size_t* lens, size_t* strides);

/* In which layout a packed tensor lies: of several that it fits, the one that it was created in. A tensor with other strides has
 * none, which is FUSEPLAN_INVALID_ARGUMENT. */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_tensor_layout(fuseplan_tensor_t tensor, fuseplan_layout_t* layout);

/* How many bytes of memory a tensor takes, from its first element to its last. */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_tensor_bytes(fuseplan_tensor_t tensor, size_t* bytes);

FUSEPLAN_EXPORT fuseplan_status_t fuseplan_tensor_destroy(fuseplan_tensor_t tensor);

/* ---- Plan: a chain of operators, computed as one kernel in the order in which they were appended ---- */

typedef struct fuseplan_plan* fuseplan_plan_t;

/*
 * A plan for an input. With a handle, an operator that the handle's device cannot compute there is refused where it is
 * appended; with NULL only what no device could do, and the rest at the compile.
 */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_plan_create(fuseplan_plan_t* plan,
                                                       fuseplan_handle_t handle,
                                                       fuseplan_tensor_t input);

/*
 * Functions that append write the operator's number in its plan to `op`, unless that is NULL: 0, 1, 2 and so on. What is
 * refused leaves the plan as it was. The names in front of each are those of the operands and scalars that
 * fuseplan_args_set_* sets for such an operator; all operands are required but where it says otherwise.
 */

/*
 * Convolution, only as the first operator. Operand: "weights", of the tensor `weights` [K, C / groups, (D,) H, W].
 *
 * `strides`, `dilations`, `pads_before` and `pads_after` have one number for each of the plan's (D,) H, W, and may be
 * NULL: strides and
 * dilations are then 1, padding before the first element 0, and padding behind the last that before the first. `groups` is 1
 * for a convolution without groups.
 */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_plan_append_convolution(fuseplan_plan_t plan,
                                                                   fuseplan_tensor_t weights,
                                                                   const size_t* strides,
                                                                   const size_t* dilations,
                                                                   const size_t* pads_before,
                                                                   const size_t* pads_after,
                                                                   size_t groups,
                                                                   size_t* op);

/*
 * The same with an output in a layout of its own, packed, whatever the input's is: so a network enters blocks of channels and
 * leaves them. Otherwise an output is packed in the input's order.
 */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_plan_append_convolution_to(fuseplan_plan_t plan,
                                                                      fuseplan_tensor_t weights,
                                                                      const size_t* strides,
                                                                      const size_t* dilations,
                                                                      const size_t* pads_before,
                                                                      const size_t* pads_after,
                                                                      size_t groups,
                                                                      fuseplan_layout_t output,
                                                                      size_t* op);

/*
 * The same with an output of these strides, one for each dimension of the plan's tensor, with which no elements overlap: a slice
 * of a larger tensor, such as some of its channels. An execution is given where the slice begins, and writes nothing beside it;
 * its input and residuals may be other slices of the same tensor, whose rows are whole numbers of pixels apart.
 */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_plan_append_convolution_into(fuseplan_plan_t plan,
                                                                        fuseplan_tensor_t weights,
                                                                        const size_t* strides,
                                                                        const size_t* dilations,
                                                                        const size_t* pads_before,
                                                                        const size_t* pads_after,
                                                                        size_t groups,
                                                                        const size_t* output_strides,
                                                                        size_t* op);

/* x + bias, one value of `data_type` for each channel. Operand: "bias". */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_plan_append_bias(fuseplan_plan_t plan,
                                                            fuseplan_data_type_t data_type,
                                                            size_t* op);

/*
 * x > 0 ? x : slope * x, with as many slopes of `data_type` as there are channels, or with 1. NaN gives NaN. Operand:
 * "slope".
 */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_plan_append_prelu(fuseplan_plan_t plan,
                                                             fuseplan_data_type_t data_type,
                                                             size_t slopes,
                                                             size_t* op);

/* x + residual, a tensor of x's lengths with any strides; NULL: with x's own. Operand: "bias". */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_plan_append_residual(fuseplan_plan_t plan,
                                                                fuseplan_tensor_t residual,
                                                                size_t* op);

/* Whether batch-norm has parameters for each element of an image, or for each channel. */
typedef enum {
    FUSEPLAN_BATCH_NORM_PER_ACTIVATION = 0, /* [1, C, (D,) H, W] */
    FUSEPLAN_BATCH_NORM_SPATIAL        = 1  /* [1, C, (1,) 1, 1] */
} fuseplan_batch_norm_mode_t;

/*
 * scale * (x - mean) / sqrt(variance + epsilon) + bias. Operands: "scale", "bias", "mean", "variance", of `data_type`.
 * Scalar: "epsilon", 1e-5 if not set.
 */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_plan_append_batch_norm(fuseplan_plan_t plan,
                                                                  fuseplan_batch_norm_mode_t mode,
                                                                  fuseplan_data_type_t data_type,
                                                                  size_t* op);

/* Activations. */
typedef enum {
    FUSEPLAN_IDENTITY     = 0,    /* x */
    FUSEPLAN_SIGMOID      = 1,    /* 1 / (1 + exp(-x)) */
    FUSEPLAN_TANH         = 2,    /* beta * tanh(alpha * x) */
    FUSEPLAN_RELU         = 3,    /* max(0, x); NaN gives 0 */
    FUSEPLAN_SOFTPLUS     = 4,    /* log(1 + exp(x)) */
    FUSEPLAN_ABS          = 5,    /* |x| */
    FUSEPLAN_POWER        = 6,    /* (alpha + beta * x)^gamma, and 0 where alpha + beta * x <= 1e-6 (16-bit data: 1e-4) */
    FUSEPLAN_CLIPPED_RELU = 7,    /* min(alpha, max(0, x)) */
    FUSEPLAN_LEAKY_RELU   = 8,    /* x > 0 ? x : alpha * x */
    FUSEPLAN_ELU          = 9,    /* x > 0 ? x : alpha * (exp(x) - 1) */
    FUSEPLAN_CLAMP        = 10,   /* max(alpha, min(beta, x)) */
    FUSEPLAN_SILU         = 1000, /* x / (1 + exp(-x)) */
    FUSEPLAN_HARD_SWISH   = 1001, /* x * min(6, max(0, x + 3)) / 6 */
    FUSEPLAN_HARD_SIGMOID = 1002, /* min(6, max(0, x + 3)) / 6 */
    FUSEPLAN_GELU         = 1003, /* x / 2 * (1 + erf(x / sqrt(2))) */
    FUSEPLAN_GELU_TANH    = 1004, /* x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) */
    FUSEPLAN_MISH         = 1005  /* x * tanh(log(1 + exp(x))) */
} fuseplan_activation_t;

/*
 * An activation. Scalars: "activ_alpha", "activ_beta", "activ_gamma", the alpha, beta and gamma of its formula, which are
 * those given here if not set; what a formula does not have is not looked at.
 */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_plan_append_activation(
    fuseplan_plan_t plan, fuseplan_activation_t activation, double alpha, double beta, double gamma, size_t* op);

/*
 * Training: batch-norm with the statistics of this batch, only as the first operator. Operands, f32: "scale", "bias".
 * Results, f32: "saved_mean" and "saved_inv_variance", which may be left out; with `running` not 0 "running_mean" and
 * "running_variance", which are updated: (1 - f) * running + f * batch. Scalars: "exp_avg_factor" f, 0.1 if not set;
 * "epsilon", 1e-5 if not set.
 */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_plan_append_batch_norm_training(fuseplan_plan_t plan,
                                                                           fuseplan_batch_norm_mode_t mode,
                                                                           int running,
                                                                           size_t* op);

/*
 * Training: the gradient of batch-norm, only as the first operator of a plan whose input is then dy and whose output is dx.
 * Operands: "x", the forward pass's input; f32: "scale", "bias", "saved_mean", "saved_inv_variance". Results, f32:
 * "scale_diff", "bias_diff".
 */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_plan_append_batch_norm_backward(fuseplan_plan_t plan,
                                                                           fuseplan_batch_norm_mode_t mode,
                                                                           size_t* op);

/*
 * Training: the gradient of the activation that followed the batch-norm, only directly behind its gradient, before which it
 * is applied. Operand: "y", the forward pass's output. Scalars as of the activation.
 */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_plan_append_activation_backward(
    fuseplan_plan_t plan, fuseplan_activation_t activation, double alpha, double beta, double gamma, size_t* op);

/* A tensor of its own for what the plan's operators so far make of its input: what an execution writes. */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_plan_output(fuseplan_plan_t plan, fuseplan_tensor_t* output);

FUSEPLAN_EXPORT fuseplan_status_t fuseplan_plan_destroy(fuseplan_plan_t plan);

/* ---- Compile ---- */

/* A plan as it was when it was compiled, for one device. What is appended or destroyed later does not change it. */
typedef struct fuseplan_compiled* fuseplan_compiled_t;

/* How a plan is compiled: 0, or any of these added up. */
typedef enum {
    FUSEPLAN_FIND       = 1, /* time the solvers that can compute the plan and take the fastest; times are kept on disk */
    FUSEPLAN_ALLOW_TF32 = 2, /* f32 factors may be rounded to TF32 where that is faster */
    FUSEPLAN_STRICT     = 4  /* each output is the sum of its own products, not Winograd's and 3xTF32's; not with TF32 */
} fuseplan_compile_options_t;

/* Compiles a plan for the handle's device, or finds the kernel that an equal plan has compiled before. */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_plan_compile(fuseplan_plan_t plan,
                                                        fuseplan_handle_t handle,
                                                        unsigned options,
                                                        fuseplan_compiled_t* compiled);

/*
 * Compiles `count` plans for the handle's device, as many at a time as there are processors, and equal ones once; `compiled`
 * has room for as many. If one cannot be compiled nothing is written, and the error says which of them, counted from 0, and why.
 */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_plans_compile(const fuseplan_plan_t* plans,
                                                         size_t count,
                                                         fuseplan_handle_t handle,
                                                         unsigned options,
                                                         fuseplan_compiled_t* compiled);

/*
 * The plan's operators and tensors and, for the handle's device, the solver that takes it, its choices, and the reasons of
 * those that do not; the reason where none does.
 */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_plan_explain(
    fuseplan_plan_t plan, fuseplan_handle_t handle, unsigned options, char* text, size_t* size);

/* The most layouts that tensors of one rank have. */
#define FUSEPLAN_MAX_LAYOUTS 5

/*
 * The layouts that input, output and residuals of a plan could all have on the handle's device, whatever they have now, the
 * fastest first: how many there are to `*count`, and of the first `room` of them the layout and the seconds that the fastest solver was
 * measured to take. Any pointer may be NULL. Filters lie as the input does, or channels first where that has blocks. A layout is left
 * out where channels are no whole blocks of it, or no solver takes it.
 *
 * Every solver is timed with memory of the call, for up to a tenth of a second each; FUSEPLAN_FIND means nothing here. A network that
 * keeps its tensors in one layout does best in the one whose seconds, summed over its layers, are least.
 */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_plan_fastest_layouts(fuseplan_plan_t plan,
                                                                fuseplan_handle_t handle,
                                                                unsigned options,
                                                                size_t room,
                                                                size_t* count,
                                                                fuseplan_layout_t* layouts,
                                                                double* seconds);

/* How many bytes of workspace an execution needs; 0 for every kernel on a CPU. */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_compiled_workspace(fuseplan_compiled_t compiled, size_t* bytes);

FUSEPLAN_EXPORT fuseplan_status_t fuseplan_compiled_destroy(fuseplan_compiled_t compiled);

/* A plan compiled to bytes, to be stored and loaded where there is a device of the same architecture. */
typedef struct fuseplan_binary* fuseplan_binary_t;

/* Compiles a plan for the architecture of the handle's device. */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_plan_compile_binary(fuseplan_plan_t plan,
                                                               fuseplan_handle_t handle,
                                                               unsigned options,
                                                               fuseplan_binary_t* binary);

/* The bytes to store, good until the binary is destroyed. */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_binary_data(fuseplan_binary_t binary, const void** data, size_t* size);

FUSEPLAN_EXPORT fuseplan_status_t fuseplan_binary_destroy(fuseplan_binary_t binary);

/*
 * Loads what an equal plan was compiled to with the same FUSEPLAN_ALLOW_TF32 by the same version of fuseplan, without
 * compiling anything; FUSEPLAN_FIND means nothing here. Damage is found by a digest and refused. A forgery is not found, and
 * `data` has machine code that will be run: load only what comes from where you trust.
 */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_plan_load(fuseplan_plan_t plan,
                                                     fuseplan_handle_t handle,
                                                     unsigned options,
                                                     const void* data,
                                                     size_t size,
                                                     fuseplan_compiled_t* compiled);

/* ---- Arguments: weights and scalars, given at run time ---- */

typedef struct fuseplan_args* fuseplan_args_t;

/*
 * Arguments for the operators that a plan has now, for any number of executions of whatever is compiled from it. Scalars have
 * the values that are told where operators are appended; operands have to be set.
 */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_args_create(fuseplan_args_t* args, fuseplan_plan_t plan);

/*
 * Sets what an operator reads: memory of the device, which has to hold the operand until the executions that use it are
 * over. Names stand at the functions that append.
 */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_args_set_operand(fuseplan_args_t args,
                                                            size_t op,
                                                            const char* name,
                                                            const void* pointer);

/*
 * The same, and promises that the contents do not change until the operand is set again or `args` is destroyed. Kernels that
 * bring weights into an order of their own do that at the first execution and keep the result with `args`, instead of doing
 * it at each execution. Where the contents change all the same, executions compute with the old ones, the new ones, or both.
 */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_args_set_constant_operand(fuseplan_args_t args,
                                                                     size_t op,
                                                                     const char* name,
                                                                     const void* pointer);

/* Sets what an operator writes or updates besides the plan's output; NULL leaves out what may be left out. */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_args_set_result(fuseplan_args_t args, size_t op, const char* name, void* pointer);

/* Sets a scalar of an operator. */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_args_set_scalar(fuseplan_args_t args, size_t op, const char* name, double value);

/*
 * Scales an operator's result: y = alpha * op(x) + beta * (what the output was). 1 and 0 if not set; only a plan's last
 * operator may have another beta than 0.
 */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_args_set_scales(fuseplan_args_t args, size_t op, float alpha, float beta);

FUSEPLAN_EXPORT fuseplan_status_t fuseplan_args_destroy(fuseplan_args_t args);

/* ---- Execute ---- */

/*
 * Runs what was compiled on memory of the handle's device: `input` is of the plan's input tensor, `output` of
 * fuseplan_plan_output()'s. On a CPU the work is done when this returns; on a GPU it is launched into the handle's stream.
 * `workspace` has `workspace_bytes` bytes, at least fuseplan_compiled_workspace(), and is aligned to 256 bytes; NULL and 0
 * where a plan needs none. Whatever is missing, misaligned or overlaps is refused before anything runs. Allocates
 * nothing after the first executions.
 *
 * An element-wise plan, without convolution and training, may have its input, or a residual, as its output.
 */
FUSEPLAN_EXPORT fuseplan_status_t fuseplan_execute(fuseplan_handle_t handle,
                                                   fuseplan_compiled_t compiled,
                                                   fuseplan_args_t args,
                                                   const void* input,
                                                   void* output,
                                                   void* workspace,
                                                   size_t workspace_bytes);

#ifdef __cplusplus
}
#endif

#endif
