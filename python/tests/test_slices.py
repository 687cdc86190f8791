"""Outputs that are slices of larger arrays, of which nothing else is written."""

import pickle

import fuseplan
import ml_dtypes
import numpy as np
import pytest
import reference

RNG = np.random.default_rng(7)
CPU = fuseplan.Handle("cpu")


def whole_of(shape, dtype, last):
    """An array of N, C, (D,) H, W without numbers, channels innermost or not."""
    if not last:
        return np.full(shape, np.nan, dtype)
    n, channels, *places = shape
    return np.moveaxis(np.full((n, *places, channels), np.nan, dtype), -1, 1)


def elements(array):
    return [stride // array.itemsize for stride in array.strides]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16], ids=["f32", "f16", "bf16"])
@pytest.mark.parametrize("last", (False, True))
@pytest.mark.parametrize("dims", (2, 3))
def test_a_slice_of_channels(dims, last, dtype):
    places = (7, 5, 4)[:dims]
    x = RNG.uniform(-1, 1, (2, 16, *places)).astype(dtype)
    w = RNG.uniform(-1, 1, (32, 8, *(3,) * dims)).astype(dtype)
    b, r = RNG.uniform(-1, 1, 32).astype(dtype), RNG.uniform(-1, 1, (2, 32, *places)).astype(dtype)
    whole = whole_of((2, 80, *places), dtype, last)
    out = whole[:, 16:48]
    plan = fuseplan.Plan(x).conv(w, padding=1, groups=2, output_strides=elements(out)).bias(b)
    plan.residual(r).activation("relu")
    assert plan.output.shape == out.shape and plan.output.strides == tuple(elements(out)) and plan.output.layout is None
    layer = plan.compile(CPU)
    assert layer(x, residual=r, out=out) is out
    pads = [(1, 1)] * dims
    sums = reference.conv(x, w, pads=pads, groups=2) + reference.channels(b, 2 + dims) + r.astype(np.float64)
    scale = reference.conv(np.abs(x), np.abs(w), pads=pads, groups=2) + 2
    reference.check(out, np.maximum(sums, 0), 8 * scale, 8 * 27)
    rest = np.concatenate([whole[:, :16], whole[:, 48:]], 1).astype(np.float32)
    assert np.isnan(rest).all()
    # Without an array for it, the result is a new one with the same gaps.
    made = layer(x, residual=r)
    assert made.strides == out.strides and np.array_equal(made, out)
    for again in (pickle.loads(pickle.dumps(plan)).compile(CPU), pickle.loads(pickle.dumps(layer))):
        assert again.output == plan.output and np.array_equal(again(x, residual=r), out)
    stored = fuseplan.CompiledPlan.from_bytes(plan, layer.to_bytes(), CPU)
    assert np.array_equal(stored(x, residual=r), out)


def test_image_and_output_may_be_slices_of_one_array():
    whole = whole_of((1, 48, 6, 5), np.float32, True)
    x, out = whole[:, :16], whole[:, 16:48]
    x[...] = RNG.uniform(-1, 1, x.shape)
    w = RNG.uniform(-1, 1, (32, 16, 1, 1)).astype(np.float32)
    expected = fuseplan.Plan(x).conv(w).compile(CPU)(x)
    layer = fuseplan.Plan(x).conv(w, output_strides=elements(out)).compile(CPU)
    assert np.array_equal(layer(x, out=out), expected)
    with pytest.raises(fuseplan.OperandError, match="memory shared with the input"):
        layer(x, out=whole[:, 8:40])


def test_refusals():
    x, w = np.ones((1, 16, 6, 5), np.float32), np.ones((32, 16, 1, 1), np.float32)
    for strides, found, accepted in [
        ([960, 30, 5], "3 entries, expected one for each of the 4 dimensions", "4 output strides"),
        ([1] * 7, "output strides: 7 entries", "4 output strides"),
        ([960, 0, 5, 1], "tensor stride 1 is zero", "4 output strides"),
        ([960, 1, 16, 4], "strides [960, 1, 16, 4]", "strides with which no elements overlap"),
    ]:
        with pytest.raises(fuseplan.UnsupportedError) as caught:
            fuseplan.Plan(x).conv(w, output_strides=strides)
        error = caught.value
        assert error.operator == "ConvForward" and found in error.found and accepted in error.accepted, error
    with pytest.raises(TypeError, match="output_layout and output_strides are given; accepted: one of them"):
        fuseplan.Plan(x).conv(w, output_strides=[960, 30, 5, 1], output_layout="NCHW")
    layer = fuseplan.Plan(x).conv(w, output_strides=[1920, 30, 5, 1]).compile(CPU)
    with pytest.raises(fuseplan.OperandError, match="out"):
        layer(x, out=np.empty((1, 32, 6, 5), np.float32)[:, ::2])
