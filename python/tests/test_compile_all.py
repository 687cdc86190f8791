"""Plans that are compiled together."""

import numpy as np
import pytest

import fuseplan


def plan(channels, *, bias=False):
    made = fuseplan.Plan((1, channels, 6, 5), dtype="float32").conv((3, channels, 3, 3))
    return (made.bias() if bias else made).activation("relu")


def test_they_are_what_each_would_be_by_itself():
    rng = np.random.default_rng(0)
    plans = [plan(channels, bias=channels > 2) for channels in (1, 3, 2, 3)]
    compiled = fuseplan.compile_all(plans, fuseplan.Handle("cpu"))
    assert [layer.output.shape for layer in compiled] == [made.output.shape for made in plans]
    for made, layer in zip(plans, compiled, strict=True):
        assert list(layer.operands) == list(made.operands)
        arrays = {name: rng.standard_normal(of.shape, np.float32) for name, of in made.operands.items()}
        x = rng.standard_normal(made.input.shape, np.float32)
        np.testing.assert_array_equal(layer(x, **arrays), made.compile(fuseplan.Handle("cpu"))(x, **arrays))


def test_constants_stay():
    weight = np.ones((1, 2, 1, 1), np.float32)
    (layer,) = fuseplan.compile_all([fuseplan.Plan((1, 2, 2, 2), dtype="float32").conv(weight)])
    np.testing.assert_array_equal(layer(np.ones((1, 2, 2, 2), np.float32)), np.full((1, 1, 2, 2), 2, np.float32))


def test_what_is_refused():
    assert fuseplan.compile_all([]) == []
    with pytest.raises(ValueError, match="math"):
        fuseplan.compile_all([], math="loose")
    with pytest.raises(fuseplan.Error, match="the plan has no operators"):
        fuseplan.compile_all([plan(1), fuseplan.Plan((1, 1, 2, 2), dtype="float32")])
