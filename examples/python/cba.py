#!/usr/bin/env python3
"""Convolution + bias + ReLU as one kernel, from Python through the C library: ctypes and numpy, nothing else.

    MIOPEN_LIBRARY=/opt/fuseplan/lib/libMIOpen.so.1 python3 examples/python/cba.py
"""
import ctypes
import os

import numpy as np

lib = ctypes.CDLL(os.environ.get("MIOPEN_LIBRARY", "libMIOpen.so.1"))
lib.fuseplanGetLastErrorString.restype = ctypes.c_char_p
FLOAT, CONVOLUTION, VERTICAL, RELU = 1, 0, 0, 3


def call(name, *args):
    """Calls a function; a handle to be created is the first or, for an operator of a plan, second argument."""
    if getattr(lib, "miopen" + name)(*args):
        raise RuntimeError(lib.fuseplanGetLastErrorString().decode())


def create(name, *args, owner=()):
    handle = ctypes.c_void_p()
    call("Create" + name, *owner, ctypes.byref(handle), *args)
    return handle


def tensor(array):
    desc = create("TensorDescriptor")
    call("Set4dTensorDescriptor", desc, FLOAT, *array.shape)
    return desc


def data(array):
    return array.ctypes.data_as(ctypes.c_void_p)


# Small whole numbers, so that a sum with a wrong product is off by 1 or more; f32's rounding moves it by less than 0.01.
rng = np.random.default_rng(1)
x, w, b = (rng.integers(-3, 4, s).astype(np.float32) for s in [(2, 8, 14, 14), (16, 8, 3, 3), (1, 16, 1, 1)])
y = np.full((2, 16, 12, 12), np.nan, np.float32)

handle, conv, args, xd, yd = create(""), create("ConvolutionDescriptor"), create("OperatorArgs"), tensor(x), tensor(y)
call("InitConvolutionDescriptor", conv, CONVOLUTION, 0, 0, 1, 1, 1, 1)
plan = create("FusionPlan", VERTICAL, xd)
ops = [create(f"Op{op}Forward", *a, owner=[plan]) for op, *a in [("Conv", conv, tensor(w)), ("Bias", tensor(b)), ("Activation", RELU)]]
call("CompileFusionPlan", handle, plan)
call("SetOpArgsConvForward", args, ops[0], None, None, data(w))
call("SetOpArgsBiasForward", args, ops[1], None, None, data(b))
call("SetOpArgsActivForward", args, ops[2], None, None, *[ctypes.c_double(0)] * 3)
call("ExecuteFusionPlan", handle, plan, xd, data(x), yd, data(y), args)

windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
expected = np.maximum(np.einsum("nchwrs,kcrs->nkhw", windows, w) + b, 0)
np.testing.assert_allclose(y, expected, rtol=0, atol=0.01)
print("C, B, A:", y.shape, "as numpy has it")
