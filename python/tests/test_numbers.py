"""What plans compute, beside NumPy in f64."""

import pickle

import fuseplan
import ml_dtypes
import numpy as np
import pytest
from reference import channels, check, conv

TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def random(rng, shape, dtype, layout="first"):
    values = rng.uniform(-1, 1, shape).astype(TYPES[dtype])
    if layout == "first":
        return values
    # Channels last in memory, and first in the shape.
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(values, 1, -1)), -1, 1)


@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "x, w, options",
    [
        ((2, 8, 9, 10), (16, 8, 3, 3), {"padding": 1}),
        ((1, 5, 12, 7), (4, 5, 3, 2), {"stride": (2, 1), "padding": (2, 0), "dilation": (1, 2)}),
        ((2, 12, 6, 6), (24, 3, 3, 3), {"groups": 4, "padding": 1}),
        ((1, 16, 8, 8), (16, 1, 3, 3), {"groups": 16, "padding": ((1, 1), (1, 1))}),
        ((1, 4, 5, 6, 7), (8, 4, 3, 3, 3), {"padding": "same"}),
        ((3, 32, 4, 4), (8, 32, 1, 1), {}),
        ((1, 4, 8, 8), (8, 4, 3, 3), {"padding": ((0, 1), (2, 0)), "stride": 2}),
        ((1, 4, 5, 6, 7), (8, 4, 3, 3, 3), {"padding": ((2, 0), (1, 1), (1, 1))}),
    ],
)
def test_convolution_bias_residual_relu(x, w, options, dtype, layout):
    rng = np.random.default_rng(1)
    x, w = random(rng, x, dtype, layout), random(rng, w, dtype, layout)
    b = random(rng, w.shape[:1], dtype)
    plan = fuseplan.Plan(x).conv(w, **options).bias(b).residual().activation("relu")
    layer = plan.compile(fuseplan.Handle("cpu"))
    r = random(rng, layer.output.shape, dtype, layout)
    y = layer(x, residual=r)

    dims = x.ndim - 2
    def each(value):
        return [value] * dims if isinstance(value, int) else list(value)

    pads = options.get("padding", 0)
    pads = [(1, 1)] * dims if pads == "same" else [p if isinstance(p, tuple) else (p, p) for p in each(pads)]
    numbers = {
        "pads": pads,
        "stride": each(options.get("stride", 1)),
        "dilation": each(options.get("dilation", 1)),
        "groups": options.get("groups", 1),
    }
    expected = conv(x, w, **numbers) + channels(b, x.ndim) + r.astype(np.float64)
    scale = conv(np.abs(x), np.abs(w), **numbers) + np.abs(channels(b, x.ndim)) + np.abs(r.astype(np.float64))
    check(y, np.maximum(expected, 0), scale, w[0].size)
    # The layout that goes in comes out.
    assert (y.strides[1] == y.itemsize) == (layout == "last")


def test_batch_norm_of_constants_and_of_arguments():
    rng = np.random.default_rng(2)
    x, w = random(rng, (2, 6, 7, 7), "float32"), random(rng, (10, 6, 3, 3), "float32")
    scale, bias, mean = (random(rng, (10,), "float32") for _ in range(3))
    variance = rng.uniform(0.5, 2, 10).astype(np.float32)
    constant = fuseplan.Plan(x).conv(w).batch_norm(scale, bias, mean, variance, eps=1e-3).compile()
    given = fuseplan.Plan(x).conv(w.shape).batch_norm(eps=1e-3).compile()
    y = constant(x)
    again = given(x, weight=w, bn_scale=scale, bn_bias=bias, bn_mean=mean, bn_variance=variance)
    assert np.array_equal(y, again)

    deviation = np.sqrt(channels(variance, 4) + 1e-3)
    factor = channels(scale, 4) / deviation
    expected = (conv(x, w) - channels(mean, 4)) * factor + channels(bias, 4)
    size = (conv(np.abs(x), np.abs(w)) + np.abs(channels(mean, 4))) * np.abs(factor) + np.abs(channels(bias, 4))
    check(y, expected, size, w[0].size)


def test_parameters_of_either_type():
    rng = np.random.default_rng(4)
    x, w = random(rng, (1, 4, 6, 6), "float16"), random(rng, (8, 4, 1, 1), "float16")
    b = random(rng, (8,), "float32")
    y = fuseplan.Plan(x).conv(w).bias(b).compile()(x)
    assert np.array_equal(y, fuseplan.Plan(x).conv(w).bias(dtype="float32").compile()(x, bias=b))
    check(y, conv(x, w) + channels(b, 4), conv(np.abs(x), np.abs(w)) + np.abs(channels(b, 4)), 4)
    ones = np.ones(8, np.float16)
    plan = fuseplan.Plan(x).conv(w).batch_norm(ones, ones, ones, ones, eps=0)
    assert plan.operands["bn_mean"].dtype == "float16"
    check(plan.compile()(x), conv(x, w), conv(np.abs(x), np.abs(w)) + 2, 4)


SIGMOID = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
ACTIVATIONS = [
    ("identity", {}, lambda x: x),
    ("sigmoid", {}, SIGMOID),
    ("tanh", {}, np.tanh),
    ("relu", {}, lambda x: np.maximum(x, 0)),
    ("relu6", {}, lambda x: np.clip(x, 0, 6)),
    ("relu6", {"max": 1.5}, lambda x: np.clip(x, 0, 1.5)),
    ("leaky_relu", {}, lambda x: np.where(x > 0, x, 0.01 * x)),
    ("leaky_relu", {"slope": 0.3}, lambda x: np.where(x > 0, x, 0.3 * x)),
    ("elu", {}, lambda x: np.where(x > 0, x, np.expm1(x))),
    ("clamp", {"min": -1, "max": 2}, lambda x: np.clip(x, -1, 2)),
    ("silu", {}, lambda x: x * SIGMOID(x)),
    ("hardswish", {}, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    ("hardsigmoid", {}, lambda x: np.clip(x + 3, 0, 6) / 6),
    ("gelu_tanh", {}, lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
    ("mish", {}, lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    ("softplus", {}, lambda x: np.log1p(np.exp(x))),
    ("abs", {}, np.abs),
    ("power", {"alpha": 8, "beta": 1, "gamma": 2}, lambda x: (8 + x) ** 2),
]


@pytest.mark.parametrize("name, parameters, function", ACTIVATIONS)
def test_activation(name, parameters, function):
    x = np.linspace(-7, 7, 4 * 9 * 9, dtype=np.float32).reshape(1, 4, 9, 9)
    y = fuseplan.Plan(x).activation(name, **parameters).compile()(x)
    expected = function(x.astype(np.float64))
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("slopes, of_type", [((12,), "float32"), ((1, 12, 1, 1), "own"), ((1,), "own"), ((1, 1, 1, 1), "float32")])
def test_prelu_of_constants_and_of_arguments(slopes, of_type, dtype):
    rng = np.random.default_rng(5)
    x, w = random(rng, (2, 6, 7, 7), dtype), random(rng, (12, 6, 3, 3), dtype)
    slope = random(rng, slopes, dtype if of_type == "own" else of_type)
    constant = fuseplan.Plan(x).conv(w, padding=1).prelu(slope).compile()
    given = fuseplan.Plan(x).conv(w.shape, padding=1).prelu(shared=slope.size == 1, dtype=slope.dtype).compile()
    y = constant(x)
    assert np.array_equal(y, given(x, weight=w, slope=slope))
    assert np.array_equal(y, pickle.loads(pickle.dumps(constant))(x))

    sums, pads = conv(x, w, pads=[(1, 1)] * 2), [(1, 1)] * 2
    expected = np.where(sums > 0, sums, sums * slope.astype(np.float64).reshape(1, -1, 1, 1))
    check(y, expected, conv(np.abs(x), np.abs(w), pads=pads), w[0].size)


def test_prelu_of_integers_is_exact():
    x = np.arange(-24, 24, dtype=np.float32).reshape(1, 3, 4, 4)
    slope = np.array([2, -1, 3], np.float32)
    y = fuseplan.Plan(x).prelu(slope).compile()(x, out=np.full_like(x, np.nan))
    assert np.array_equal(y, np.where(x > 0, x, slope.reshape(1, 3, 1, 1) * x))


def test_operators_are_computed_in_their_order():
    x = np.full((1, 1, 2, 2), -3, np.float32)
    b = np.ones(1, np.float32)
    assert (fuseplan.Plan(x).bias(b).activation("relu").compile()(x) == 0).all()
    assert (fuseplan.Plan(x).activation("relu").bias(b).compile()(x) == 1).all()


def test_a_plan_may_run_in_place_where_it_is_element_wise():
    x = np.arange(-4, 4, dtype=np.float32).reshape(1, 2, 2, 2)
    expected = np.maximum(x, 0)
    y = fuseplan.Plan(x).activation("relu").compile()(x, out=x)
    assert y is x and np.array_equal(x, expected)
