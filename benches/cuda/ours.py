"""fuseplan by its C library, `libMIOpen.so.1`: plans on PyTorch's tensors and streams."""

import contextlib
import ctypes
import os
from unittest import mock

import torch

TYPES = {torch.float16: 0, torch.float32: 1, torch.bfloat16: 5}
# Mode and the activation's alpha, by the networks' names; a layer with another is compared without it on every side.
ACTIVATIONS = {"relu": (3, 0.0), "relu6": (7, 6.0), "sigmoid": (1, 0.0), "silu": (1000, 0.0), "hardswish": (1001, 0.0),
               "hardsigmoid": (1002, 0.0), "gelu": (1003, 0.0)}
SPATIAL = 1


class Refused(Exception):
    """What the library said."""


class Library:
    """The library, opened on the CUDA backend."""

    def __init__(self, path):
        os.environ.setdefault("FUSEPLAN_BACKEND", "cuda")
        self.functions = ctypes.CDLL(str(path))
        self.functions.fuseplanGetLastErrorString.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        if getattr(self.functions, name)(*arguments) != 0:
            raise Refused(self.functions.fuseplanGetLastErrorString().decode())

    def create(self, name, *arguments):
        made = ctypes.c_void_p()
        self.call(name, ctypes.byref(made), *arguments)
        return made

    def descriptor(self, tensor):
        made = self.create("miopenCreateTensorDescriptor")
        rank = tensor.dim()
        numbers = ctypes.c_int * rank
        self.call("miopenSetTensorDescriptor", made, TYPES[tensor.dtype], rank, numbers(*tensor.shape),
                  numbers(*tensor.stride()))
        return made


class Plan:
    """A compiled plan and its arguments. Plans live until the process ends."""

    def __init__(self, library, handle, x, y):
        self.library, self.handle = library, handle
        self.input, self.output = library.descriptor(x), library.descriptor(y)
        self.plan = library.create("miopenCreateFusionPlan", 0, self.input)
        self.setters, self.mode = [], contextlib.nullcontext()

    def operator(self, create, *arguments):
        made = ctypes.c_void_p()
        self.library.call(create, self.plan, ctypes.byref(made), *arguments)
        return made

    def compile(self, find=False):
        """Compiles by the solver of the model, or by the one that find mode measures to be the fastest.

        The library reads the environment at each compilation, so that none may run beside one with `find`.
        """
        if find:
            self.mode = mock.patch.dict(os.environ, MIOPEN_FIND_MODE_FUSION="NORMAL")
        with self.mode:
            self.library.call("miopenCompileFusionPlan", self.handle, self.plan)

    def explanation(self):
        """What the library says of the plan, which it asks for once more as it was compiled: its solver, and why others do not
        take it."""
        size = ctypes.c_size_t()
        with self.mode:
            self.library.call("fuseplanExplainPlan", self.handle, self.plan, None, ctypes.byref(size))
            text = ctypes.create_string_buffer(size.value)
            self.library.call("fuseplanExplainPlan", self.handle, self.plan, text, ctypes.byref(size))
        return text.value.decode()

    def kernel(self):
        """The solver and its choices, which are equal where kernels are."""
        lines = self.explanation().splitlines()
        return "; ".join(line.split(maxsplit=1)[1] for line in lines if line.startswith(("solver ", "choices ")))

    def chosen(self):
        """By what the solver was chosen: of find mode's the time of each trial, the fastest first."""
        lines = self.explanation().splitlines()
        return next(line.split(maxsplit=1)[1] for line in lines if line.startswith("chosen "))

    def arguments(self, operands):
        """An argument object with the operands' addresses, in the order of the operators that read any; NULL for None."""
        addresses = (ctypes.c_void_p(None if operand is None else operand.data_ptr()) for operand in operands)
        made = self.library.create("miopenCreateOperatorArgs")
        for operator, setter, count, scalars in self.setters:
            pointers = [next(addresses) for _ in range(count)]
            self.library.call(setter, made, operator, None, None, *pointers, *map(ctypes.c_double, scalars))
        return made

    def execute(self, x, y, arguments):
        stream = torch.cuda.current_stream().cuda_stream
        self.library.call("miopenSetStream", self.handle, ctypes.c_void_p(stream))
        self.library.call("miopenExecuteFusionPlan", self.handle, self.plan, self.input,
                          ctypes.c_void_p(x.data_ptr()), self.output, ctypes.c_void_p(y.data_ptr()), arguments)

    def activation(self, name):
        if name in ACTIVATIONS:
            mode, alpha = ACTIVATIONS[name]
            operator = self.operator("miopenCreateOpActivationForward", mode)
            self.setters.append((operator, "miopenSetOpArgsActivForward", 0, [alpha, 0.0, 0.0]))


def convolution(library, handle, layer, tf32, x, weights, bias, residual, y):
    """The plan of a layer on tensors such as these."""
    plan = Plan(library, handle, x, y)
    if tf32:
        library.call("fuseplanSetFusionPlanMathMode", plan.plan, 1)
    geometry = library.create("miopenCreateConvolutionDescriptor")
    rank = len(layer.image)
    numbers = ctypes.c_int * rank
    library.call("miopenInitConvolutionNdDescriptor", geometry, rank, numbers(*layer.pads), numbers(*layer.strides),
                 numbers(*layer.dilations), 0)
    library.call("miopenSetConvolutionGroupCount", geometry, layer.groups)
    operator = plan.operator("miopenCreateOpConvForward", geometry, library.descriptor(weights))
    plan.setters.append((operator, "miopenSetOpArgsConvForward", 1, []))
    for added in (bias, residual):
        if added is not None:
            shaped = added if added is residual else added.view(1, -1, *[1] * rank)
            operator = plan.operator("miopenCreateOpBiasForward", library.descriptor(shaped))
            plan.setters.append((operator, "miopenSetOpArgsBiasForward", 1, []))
    plan.activation(layer.activation)
    return plan


def batch_norm(library, handle, x, y, scale):
    """Batch-norm of given statistics, then ReLU."""
    plan = Plan(library, handle, x, y)
    shaped = library.descriptor(scale.view(1, -1, 1, 1))
    operator = plan.operator("miopenCreateOpBatchNormInference", SPATIAL, shaped)
    plan.setters.append((operator, "miopenSetOpArgsBatchNormInference", 4, [1e-5]))
    plan.activation("relu")
    return plan
