#!/usr/bin/env python3
"""Convolution + bias + residual + PReLU as one kernel, step by step; NumPy says the same. plan.c is such a plan in C.

    pip install ./python numpy
    python3 examples/python/plan.py
"""

import fuseplan
import numpy as np

# Small whole numbers, so that a sum with a wrong product is off by 1 or more; f32's rounding moves it by less than 0.01.
rng = np.random.default_rng(1)
shapes = [(2, 8, 14, 14), (16, 8, 3, 3), (16,), (16,), (2, 16, 14, 14)]
x, weight, bias, slope, residual = (rng.integers(-3, 4, shape).astype(np.float32) for shape in shapes)

# 1. The plan: operators in the order in which they are applied. Arrays that are given here are constants.
plan = fuseplan.Plan(x).conv(weight, padding=1).bias(bias).residual().prelu(slope)
print(plan)

# 2. What does not fit is refused by the call that appends it, with the reason; the plan is as it was.
try:
    plan.conv(weight)
except fuseplan.UnsupportedError as error:
    print("refused:", error)

# 3. Compile: one kernel for all four, on the CPU here; Handle() is the best device there is.
layer = plan.compile(fuseplan.Handle("cpu"))
print(layer.explain())

# 4. Execute. What is no constant is a keyword of the call.
y = layer(x, residual=residual)

# 5. NumPy's own operators say the same.
padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
sums = np.einsum("nchwrs,kcrs->nkhw", windows, weight) + bias.reshape(1, -1, 1, 1) + residual
np.testing.assert_allclose(y, np.where(sums > 0, sums, slope.reshape(1, -1, 1, 1) * sums), rtol=0, atol=0.01)
print(f"{y.size} outputs of {layer.kernels} kernel, as NumPy has them")
