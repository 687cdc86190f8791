"""Channels in blocks: plans into them, within and out of them, as arrays of five dimensions; and the fastest layouts."""

import pickle

import fuseplan
import ml_dtypes
import numpy as np
import pytest
import reference

RNG = np.random.default_rng(5)
CPU = fuseplan.Handle("cpu")
LAYOUTS = ["NCHW", "NHWC", "NCHWc4", "NCHWc8", "NCHWc16"]


def block_of(layout):
    return int(layout[5:] or 0) if layout.startswith("NCHWc") else 0


def laid(x, layout):
    """An array with the values of N, C, H, W in a layout: of that shape, or N, C/b, H, W, b with blocks."""
    block = block_of(layout)
    if block:
        n, c, h, w = x.shape
        return np.ascontiguousarray(x.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2))
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) if layout == "NHWC" else x


def plain(x):
    """The values of N, C, H, W of an array in any layout."""
    if x.ndim == 4:
        return x
    n, c, h, w, block = x.shape
    return x.transpose(0, 1, 4, 2, 3).reshape(n, c * block, h, w)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16], ids=["f32", "f16", "bf16"])
@pytest.mark.parametrize("to", LAYOUTS)
@pytest.mark.parametrize("of", LAYOUTS)
def test_a_convolution_reads_one_layout_and_writes_another(of, to, dtype):
    x = RNG.uniform(-1, 1, (2, 16, 7, 5)).astype(dtype)
    w = RNG.uniform(-1, 1, (32, 16, 3, 3)).astype(dtype)
    b = RNG.uniform(-1, 1, 32).astype(dtype)
    r = RNG.uniform(-1, 1, (2, 32, 7, 5)).astype(dtype)
    given = laid(x, of)
    plan = fuseplan.Plan(given, layout=of if block_of(of) else None)
    plan.conv(w, padding=1, output_layout=to).bias(b).residual().activation("relu")
    assert plan.input.shape == x.shape and plan.input.layout == of and plan.input.array_shape == given.shape
    assert plan.output.shape == r.shape and plan.output.layout == to
    y = plan.compile(CPU)(given, residual=laid(r, to))
    assert y.shape == plan.output.array_shape and y.dtype == dtype
    assert y.strides == laid(r, to).strides
    pads = [(1, 1), (1, 1)]
    sums = reference.conv(x, w, pads=pads) + reference.channels(b, 4) + r.astype(np.float64)
    scale = reference.conv(np.abs(x), np.abs(w), pads=pads) + 2
    # Within the bounds of sums of f32 products, or Winograd's.
    reference.check(plain(y), np.maximum(sums, 0), 8 * scale, 16 * 9)


def test_without_a_layout_of_its_own_an_output_stays_in_blocks():
    x = RNG.uniform(-1, 1, (1, 8, 6, 6)).astype(np.float32)
    w = RNG.uniform(-1, 1, (24, 8, 1, 1)).astype(np.float32)
    given = laid(x, "NCHWc8")
    layer = fuseplan.Plan(given, layout="NCHWc8").conv(w).activation("relu").compile(CPU)
    out = np.full((1, 3, 6, 6, 8), np.nan, np.float32)
    assert layer(given, out=out) is out
    np.testing.assert_allclose(plain(out), np.maximum(reference.conv(x, w), 0), atol=1e-5)
    # Filters of a shape have strides.
    assert fuseplan.Plan(given, layout="NCHWc8").conv((24, 8, 3, 3)).operands["weight"].layout == "NCHW"
    # Twelve filters are no blocks of 8.
    with pytest.raises(fuseplan.UnsupportedError) as caught:
        fuseplan.Plan(given, layout="NCHWc8").conv(w[:12])
    error = caught.value
    assert (error.operator, error.index, error.property) == ("ConvForward", 0, "shape")
    assert error.found == "NCHWc8 has blocks of 8 channels, the tensor has 12 channels, which are no multiple of that"
    assert error.accepted == "an output layout that has as many channels as there are filters"
    assert fuseplan.Plan(given, layout="NCHWc8").conv(w[:12], output_layout="NCHWc4").output.array_shape == (1, 3, 6, 6, 4)


def test_where_blocks_are_the_same_as_strides_both_shapes_are_taken():
    x = RNG.uniform(-1, 1, (1, 8, 1, 1)).astype(np.float32)
    layer = fuseplan.Plan(x.reshape(1, 1, 1, 1, 8), layout="NCHWc8").activation("abs").compile(CPU)
    assert np.array_equal(layer(x.reshape(1, 1, 1, 1, 8)), np.abs(x).reshape(1, 1, 1, 1, 8))
    out = np.empty_like(x)
    assert np.array_equal(layer(x, out=out), np.abs(x))


def test_descriptors_and_plans_in_blocks_are_pickled():
    tensor = fuseplan.TensorDescriptor((2, 16, 3, 5), "float16", layout="NCHWc8")
    assert (tensor.layout, tensor.array_shape, tensor.shape) == ("NCHWc8", (2, 2, 3, 5, 8), (2, 16, 3, 5))
    assert repr(tensor) == 'TensorDescriptor((2, 16, 3, 5), "float16", layout="NCHWc8")'
    assert pickle.loads(pickle.dumps(tensor)) == tensor
    assert tensor != fuseplan.TensorDescriptor((2, 16, 3, 5), "float16", layout="NCHWc16")
    with pytest.raises(fuseplan.OperandError, match="layout NCHWc8; accepted: a layout without blocks of channels"):
        tensor.strides  # noqa: B018
    strided = fuseplan.TensorDescriptor((2, 3, 4, 5), strides=(100, 1, 20, 4))
    assert strided.layout is None and strided.array_shape == strided.shape
    x = RNG.uniform(-1, 1, (1, 8, 6, 6)).astype(np.float32)
    w = RNG.uniform(-1, 1, (16, 8, 3, 3)).astype(np.float32)
    plan = fuseplan.Plan(x).conv(w, output_layout="NCHWc16").residual()
    again, layer = pickle.loads(pickle.dumps(plan)), pickle.loads(pickle.dumps(plan.compile(CPU)))
    assert repr(again) == repr(plan) and again.output.layout == "NCHWc16"
    r = RNG.uniform(-1, 1, (1, 1, 4, 4, 16)).astype(np.float32)
    assert np.array_equal(layer(x, residual=r), plan.compile(CPU)(x, residual=r))


@pytest.mark.parametrize(
    "call, property, found, accepted",
    [
        (lambda x, layer: layer(plain(x)), "shape", "(1, 16, 4, 3)", "(1, 2, 4, 3, 8)"),
        (lambda x, layer: layer(x[..., :4]), "shape", "(1, 2, 4, 3, 4)", "(1, 2, 4, 3, 8)"),
        (lambda x, layer: layer(laid(plain(x), "NHWC")), "shape", "(1, 16, 4, 3)", "(1, 2, 4, 3, 8)"),
        (lambda x, layer: layer(np.moveaxis(np.moveaxis(x, 4, 0).copy(), 0, 4)), "strides", None, "(192, 96, 24, 8, 1)"),
        (lambda x, layer: layer(x.astype(np.float16)), "dtype", "float16", "float32"),
        (lambda x, layer: layer(x, out=np.empty((1, 16, 4, 3), np.float32)), "shape", "(1, 16, 4, 3)", "(1, 2, 4, 3, 8)"),
        (lambda x, layer: fuseplan.Plan(x, layout="NCHWc4"), "shape", "(1, 2, 4, 3, 8)", "(N, C/4, H, W, 4) for NCHWc4"),
        (lambda x, layer: fuseplan.Plan(plain(x), layout="NCHWc8"), "shape", "(1, 16, 4, 3)", "(N, C/8, H, W, 8) for NCHWc8"),
        (lambda x, layer: fuseplan.Plan(x[:, ::2], layout="NCHWc8"), None, None, None),
        (lambda x, layer: fuseplan.Plan(x[:, :, ::2], layout="NCHWc8"), "strides", "(192, 96, 48, 8, 1)", "(96, 48, 24, 8, 1)"),
    ],
)
def test_arrays_in_blocks_are_packed_and_of_five_dimensions(call, property, found, accepted):
    x = RNG.uniform(-1, 1, (1, 2, 4, 3, 8)).astype(np.float32)
    layer = fuseplan.Plan(x, layout="NCHWc8").activation("relu").compile(CPU)
    if property is None:
        # One block is packed, whatever lies behind it.
        call(x, layer)
        return
    with pytest.raises(fuseplan.OperandError) as caught:
        call(x, layer)
    error = caught.value
    assert error.property == property and error.accepted == accepted
    assert found is None or error.found == found


def test_layouts_are_for_arrays_and_shapes():
    x = np.zeros((1, 2, 4, 3, 8), np.float32)
    with pytest.raises(ValueError, match="layout is NCHWc2; accepted: NCHW, NHWC, NCHWc4, NCHWc8, NCHWc16, NCDHW, NDHWC"):
        fuseplan.Plan(x, layout="NCHWc2")
    with pytest.raises(ValueError, match="layout is nhwc; accepted: NCHW, NHWC"):
        fuseplan.Plan((1, 4, 3, 3)).conv((4, 4, 1, 1), output_layout="nhwc")
    with pytest.raises(TypeError, match="a layout without blocks are for a shape"):
        fuseplan.Plan(x, layout="NHWC")
    with pytest.raises(TypeError, match="this input has its own"):
        fuseplan.Plan(fuseplan.TensorDescriptor((1, 8, 2, 2)), layout="NCHWc8")
    with pytest.raises(ValueError, match="NCHWc16 has blocks of 16 channels, the tensor has 8"):
        fuseplan.TensorDescriptor((1, 8, 2, 2), layout="NCHWc16")
    # What is not said to be in blocks is a volume.
    assert fuseplan.Plan(x).input.layout == "NCDHW"


def test_the_fastest_layouts_are_measured():
    plan = fuseplan.Plan((1, 24, 6, 6)).bias().activation("relu")
    times = plan.fastest_layouts(CPU)
    assert {time.layout for time in times} == {"NCHW", "NHWC", "NCHWc4", "NCHWc8"}
    seconds = [time.seconds for time in times]
    assert seconds == sorted(seconds) and seconds[0] > 0 and all(time.solver.startswith("cpu.") for time in times)
    assert repr(times[0]).startswith(f"<fuseplan.LayoutTime {times[0].layout} ")
    with pytest.raises(fuseplan.Error, match="the plan has no operators"):
        fuseplan.Plan((1, 24, 6, 6)).fastest_layouts(CPU)


@pytest.mark.torch
def test_tensors_of_pytorch_in_blocks():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
    x, w = torch.randn(1, 16, 5, 5), torch.randn(16, 16, 3, 3)
    given = x.view(1, 2, 8, 5, 5).permute(0, 1, 3, 4, 2).contiguous()
    y = fuseplan.Plan(given, layout="NCHWc8").conv(w, padding=1, output_layout="NHWC").compile(CPU)(given)
    assert y.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(y, torch.nn.functional.conv2d(x, w, padding=1), atol=1e-4, rtol=1e-4)
    inside = fuseplan.Plan(x).conv(w, output_layout="NCHWc16").compile(CPU)(x)
    assert inside.shape == (1, 1, 3, 3, 16) and inside.is_contiguous()
