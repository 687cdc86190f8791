"""The operators in f64 by NumPy, and how far a kernel's results may be from them."""

from __future__ import annotations

from itertools import product

import numpy as np

EPSILON = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def conv(x, w, *, pads=None, stride=None, dilation=None, groups=1):
    """The convolution of N, C, (D,) H, W with K, C/groups, (D,) H, W; pads are pairs."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    dims = x.ndim - 2
    pads, stride, dilation = pads or [(0, 0)] * dims, stride or [1] * dims, dilation or [1] * dims
    x = np.pad(x, [(0, 0), (0, 0), *pads])
    taps = w.shape[2:]
    out = [(x.shape[2 + d] - dilation[d] * (taps[d] - 1) - 1) // stride[d] + 1 for d in range(dims)]
    x = x.reshape(x.shape[0], groups, -1, *x.shape[2:])
    w = w.reshape(groups, -1, *w.shape[1:])
    y = np.zeros((x.shape[0], groups, w.shape[1], *out))
    for tap in product(*map(range, taps)):
        at = [slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, o, s in zip(tap, dilation, out, stride)]
        y += np.einsum("ngc...,gkc->ngk...", x[(slice(None), slice(None), slice(None), *at)], w[(..., *tap)])
    return y.reshape(y.shape[0], -1, *out)


def channels(values, rank):
    """A vector as one value a channel of a tensor of so many dimensions."""
    return values.astype(np.float64).reshape(1, -1, *[1] * (rank - 2))


def check(found, expected, scale, count):
    """Asserts that results are within the bound of `count` additions in f32 of terms whose magnitudes add up to `scale`, and
    one rounding to their own type."""
    name = found.dtype.name
    found = found.astype(np.float64)
    bound = (count + 8) * 2.0**-24 * scale + EPSILON[name] / 2 * np.abs(expected) + 2.0**-24
    assert found.shape == expected.shape
    worst = np.max(np.abs(found - expected) / bound)
    assert worst <= 1, f"{worst} of the bound"
