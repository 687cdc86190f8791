"""What weighs an image's channels between chains, the mean over the pixels and the product with one number a channel, in runs."""

import copy
import random

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

import fuseplan.torch as ft  # noqa: E402
from fuseplan.torch import _operator  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

OP = torch.ops.fuseplan.chain.default
CONV = "conv stride=1,1 padding=0,0,0,0 dilation=1,1 groups=1"

if _operator.DIRECT is None:
    pytest.skip("calls pass PyTorch's dispatcher here", allow_module_level=True)


class Gated(nn.Module):
    """A block with a squeeze and an excitation, whose image is read again behind them where that is asked for."""

    def __init__(self, channels, pool=None, again=False):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Conv2d(channels, channels, 3, padding=1), nn.Conv2d(channels, channels, 1)
        self.squeeze, self.excite = nn.Conv2d(channels, 2, 1), nn.Conv2d(2, channels, 1)
        self.pool, self.again = pool or nn.AdaptiveAvgPool2d(1), again
        self.eval()

    def forward(self, x):
        y = F.silu(self.first(x))
        gate = torch.sigmoid(self.excite(torch.relu(self.squeeze(self.pool(y)))))
        weighed = gate * y if self.again else y * gate
        z = self.last(weighed)
        return z + y if self.again else z


class Mean(nn.Module):
    def forward(self, x):
        return x.mean((2, 3), keepdim=True)


def within(found, model, x):
    """Asserts that a block's result is as near to that in f64 as sums in f32 are."""
    expected = copy.deepcopy(model).double()(x.double())
    bound = 2e-6 * (1 + expected.abs().max())
    assert found.shape == expected.shape and (found - expected).abs().max() <= bound


@torch.no_grad()
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("shape", [(1, 16, 7, 5), (3, 13, 1, 1), (2, 24, 37, 21), (1, 3, 1, 9), (2, 8, 6, 1)])
def test_a_block_is_one_run(shape, again, memory_format, monkeypatch):
    model = Gated(shape[1], Mean() if again else None, again).to(memory_format=memory_format)
    x = torch.randn(shape).contiguous(memory_format=memory_format)
    fused = ft.optimize(model, x, choose="all", memory_format=torch.preserve_format)
    assert fused.code.count("fuseplan_run(") == 1 and "mean " in fused.code and "product " in fused.code
    before = torch.get_num_threads()
    try:
        monkeypatch.setattr(_operator, "DIRECT", None)
        results, by_one = [], fused(x).stride()
        monkeypatch.undo()
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            for of in (x, 2 * x):
                y = [fused(of) for _ in range(3)]
                within(y[-1], model, of)
                assert y[-1].stride() == by_one and torch.equal(y[0], y[1]) and torch.equal(y[1], y[2])
            results.append(y[-1])
        assert all(torch.equal(of, results[0]) for of in results)
    finally:
        torch.set_num_threads(before)


@torch.no_grad()
def test_other_batches_and_layouts_than_before():
    model, x = Gated(16), torch.randn(2, 16, 7, 5)
    batch, height = torch.export.Dim.DYNAMIC, torch.export.Dim.DYNAMIC
    fused = ft.optimize(model, x, choose="all", dynamic_shapes=({0: batch, 2: height},))
    assert fused.code.count("fuseplan_run(") == 1
    others = [x, x[:1], torch.randn(5, 16, 90, 5), x.contiguous(memory_format=torch.channels_last), x.flip(3)]
    others.append(x.transpose(2, 3).contiguous().transpose(2, 3))
    for of in others * 3:
        within(fused(of), model, of)


def run(program, *tensors):
    return _operator.DIRECT.run(program, {}, (), None, tensors)


def images():
    """Images of f32 in all ways that steps take, and their text."""
    torch.manual_seed(0)
    for shape in ((1, 5, 3, 7), (2, 40, 61, 33), (3, 9, 1, 1), (1, 64, 1, 23), (2, 1, 300, 1), (1, 33, 130, 129)):
        image = torch.randn(shape) + 0.5
        last = image.contiguous(memory_format=torch.channels_last)
        yield from (image, last, torch.cat([image, image], 1)[:, : shape[1]], torch.cat([last, last], 1)[:, : shape[1]])
        yield torch.cat([image, image], 2).contiguous(memory_format=torch.channels_last)[:, :, : shape[2]]


@torch.no_grad()
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_means_and_products_of_any_layout(threads):
    before = torch.get_num_threads()
    chain, weight = torch.randn(1, 1, 1, 1), torch.randn(1, 1, 1, 1)
    try:
        torch.set_num_threads(threads)
        OP(chain, weight, [], CONV)
        for image in images():
            batch, channels, height, width = image.shape
            numbers = torch.randn(batch, channels, 1, 1)
            for pool in ("mean", "adaptive_avg_pool2d"):
                program = f"5 6\nvariable 0 1: {CONV}\nmean 2: {pool}\nproduct 2 3: mul"
                mean, product = run(program, chain, weight, image, numbers)
                own = _operator._OWN[pool](image)
                assert mean.stride() == own.stride() and product.stride() == (image * numbers).stride()
                assert torch.equal(product, image * numbers)
                bound = (80 + height * width / 32) * 2**-24 * image.double().abs().mean((2, 3), keepdim=True)
                assert ((mean - image.double().mean((2, 3), keepdim=True)).abs() <= bound).all()
    finally:
        torch.set_num_threads(before)


@torch.no_grad()
@pytest.mark.parametrize("seed", range(6))
def test_products_write_over_nothing_that_is_read(seed):
    pick = random.Random(seed)
    torch.manual_seed(seed)
    weight, numbers, x = torch.randn(8, 8, 1, 1) / 4, torch.randn(2, 8, 1, 1), torch.randn(2, 8, 9, 7)
    given = (x, weight, numbers)
    values, lines, results = list(given), [], []
    for step in range(16):
        image = pick.choice([0, *range(3, len(values))][-3:])
        if step and pick.random() < 0.6:
            lines.append(f"product {image} 2: mul")
            values.append(values[image] * numbers)
        else:
            other = pick.choice([0, *range(3, len(values))])
            lines.append(f"variable {image} 1 {other}: {CONV} -> residual")
            values.append(OP(values[image], weight, [values[other]], f"{CONV} -> residual"))
        if pick.random() < 0.2:
            results.append(len(values) - 1)
    results = list(dict.fromkeys([*results, len(values) - 1]))
    program = "\n".join([" ".join(map(str, results)), *lines])
    for _ in range(3):
        found = run(program, *given)
        assert all(torch.equal(y, values[at]) for y, at in zip(found, results, strict=True))


@torch.no_grad()
def test_what_no_step_takes_is_computed_as_before():
    chain, weight = torch.randn(1, 1, 1, 1), torch.randn(1, 1, 1, 1)
    OP(chain, weight, [], CONV)
    program = f"5 6\nvariable 0 1: {CONV}\nmean 2: mean\nproduct 2 3: mul"
    image, numbers = torch.randn(2, 6, 4, 8), torch.randn(2, 6, 1, 1)
    assert run(program, chain, weight, image, numbers) is not None
    others = [(image[..., ::2], numbers), (image.transpose(1, 3), torch.randn(2, 8, 1, 1)), (image, numbers[:1])]
    others.append((image.half(), numbers.half()))
    others.append((image.double(), numbers.double()))
    for of in others:
        assert run(program, chain, weight, *of) is None
    for wrong in ("mean 2 3: mean", "product 2: mul"):
        with pytest.raises(ValueError, match="this is no program"):
            run(f"5\nvariable 0 1: {CONV}\n{wrong}", chain, weight, image, numbers)
    with pytest.raises(ValueError, match="this is no program"):
        run("4\nmean 2: mean", chain, weight, image, numbers)
    with pytest.raises(ValueError, match="runs have no operator median"):
        run(f"5\nvariable 0 1: {CONV}\nmean 2: median", chain, weight, image, numbers)


class Others(nn.Module):
    """Means and products that are none of these."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(6, 6, 1)
        self.eval()

    def forward(self, x):
        y = self.conv(x)
        y = self.conv(y * y.mean(1, keepdim=True))
        y = self.conv(y * y.mean(3, keepdim=True))
        return self.conv(y * y.amax((2, 3), keepdim=True).expand(-1, 6, 4, 1)), F.adaptive_avg_pool2d(y, 2)


@torch.no_grad()
def test_others_are_no_steps():
    model, x = Others(), torch.randn(2, 6, 4, 5)
    fused = ft.optimize(model, x, choose="all")
    assert "mean 0" not in fused.code and "product" not in fused.code
    for _ in range(3):
        torch.testing.assert_close(fused(x), model(x))
    half = Gated(8).bfloat16()
    assert "product" not in ft.optimize(half, torch.randn(1, 8, 5, 5).bfloat16(), choose="all").code


@torch.no_grad()
def test_parameters_are_those_that_the_module_has_now():
    model, x = Gated(8), torch.randn(1, 8, 6, 5)
    fused = ft.optimize(model, x, choose="all")
    for of in (model, fused):
        of.squeeze.weight = nn.Parameter(torch.ones(2, 8, 1, 1))
    for _ in range(3):
        within(fused(x), model, x)
    other = {"excite.weight": torch.full((8, 2, 1, 1), 3.0)}
    for _ in range(3):
        within(torch.func.functional_call(fused, other, (x,)), _with(model, other), x)
        within(fused(x), model, x)


def _with(model, other):
    changed = copy.deepcopy(model)
    changed.load_state_dict(other, strict=False)
    return changed
