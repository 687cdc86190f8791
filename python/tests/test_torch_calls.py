"""How an optimized network is called."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

import fuseplan.torch as ft  # noqa: E402
from torch import nn  # noqa: E402


class Block(nn.Module):
    """A convolution of one or two images, with one result, or several of a kind."""

    def __init__(self, results=lambda y: y):
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3, padding=1)
        self.results = results

    def forward(self, image, other=None, scale=1.0):
        y = torch.relu(self.conv(image)) * scale
        return self.results(y if other is None else y + self.conv(other))


@pytest.fixture(params=(None, {"image": {0: torch.export.Dim("batch", min=2, max=9)}}), ids=("fixed", "dynamic"))
def shapes(request):
    return request.param


def optimized(model, *args, **options):
    torch.manual_seed(0)
    with torch.no_grad():
        return ft.optimize(model, args, choose="all", **options)


def check(model, fused, *args, **kwargs):
    with torch.no_grad():
        expected, found = model(*args, **kwargs), fused(*args, **kwargs)
    assert type(found) is type(expected)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_tensors_are_arguments_of_python(shapes):
    model, x = Block().eval(), torch.randn(4, 3, 8, 9)
    fused = optimized(model, x, dynamic_shapes=shapes)
    assert not fused._forward_pre_hooks and "pytree" not in fused.code
    check(model, fused, x)
    check(model, fused, image=x)
    if shapes is not None:
        check(model, fused, torch.randn(7, 3, 8, 9))
    with pytest.raises(TypeError):
        fused()
    with pytest.raises(TypeError):
        fused(x, x, x)
    with pytest.raises(AssertionError, match="Guard failed"):
        fused(torch.randn(4, 3, 8, 10))
    assert not fused.training and not fused.eval().training


def test_several_tensors_by_position():
    model, x = Block().eval(), torch.randn(2, 3, 8, 9)
    fused = optimized(model, x, -x)
    assert "pytree" not in fused.code
    check(model, fused, x + 1, x)


@pytest.mark.parametrize("results", (lambda y: (y, y + 1), lambda y: [y], lambda y: {"y": y}), ids=("tuple", "list", "dict"))
def test_other_results_keep_their_kind(results):
    model, x = Block(results).eval(), torch.randn(2, 3, 8, 9)
    check(model, optimized(model, x), x)


def test_other_arguments_are_given_as_before():
    model, x = Block().eval(), torch.randn(2, 3, 8, 9)
    check(model, optimized(model, x, -x, 2.0), x, x + 1, 2.0)
    check(model, optimized(model, x, kwargs={"other": -x}), x, other=x + 1)


def test_copies_and_compiled_ones_compute_the_same():
    model, x = Block().eval(), torch.randn(2, 3, 8, 9)
    fused = optimized(model, x)
    check(model, copy.deepcopy(fused), x)
    check(model, torch.export.export(fused, (x,)).module(), x)
    check(model, torch.compile(fused, backend="aot_eager", fullgraph=True), x)
