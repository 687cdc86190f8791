"""What stands around the chains of a run: guards in front, which look at new inputs only, and views of results of one pixel behind."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

import fuseplan.torch as ft  # noqa: E402
from fuseplan.torch import _operator, _runs  # noqa: E402
from torch import nn  # noqa: E402

OP = torch.ops.fuseplan.chain.default
CONV = "conv stride=1,1 padding=0,0,0,0 dilation=1,1 groups=1"

if _operator.DIRECT is None:
    pytest.skip("calls pass PyTorch's dispatcher here", allow_module_level=True)


class Head(nn.Module):
    """Images of 3x3 pixels, of which one is left, whose channels are the result, or are computed with once more."""

    def __init__(self, again=False):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Conv2d(8, 6, 3), nn.Conv2d(6, 10, 1)
        self.again = nn.Conv2d(5, 4, 1) if again else None
        self.eval()

    def forward(self, x):
        y = self.last(torch.relu(self.first(x))).reshape(3, 10)
        return self.again(y.reshape(6, 5, 1, 1)).reshape(24) if self.again is not None else y


def optimized(model, x, **options):
    return ft.optimize(model, x, choose="all", memory_format=torch.preserve_format, **options)


def images():
    torch.manual_seed(1)
    x = torch.randn(3, 8, 3, 3)
    return [x, x.contiguous(memory_format=torch.channels_last), x.flip(3), torch.cat([x, x], 1)[:, :8]]


@torch.no_grad()
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("example", [0, 1])
def test_views_of_one_pixel_are_part_of_a_run(again, example, monkeypatch):
    model, every = Head(again), images()
    fused = optimized(model, every[example])
    assert fused.code.count("fuseplan_run(") == 1 and fused.code.count("\\nview ") == (3 if again else 1)
    made, own = [], _runs.run
    monkeypatch.setattr(_runs, "run", lambda *args: made.append(own(*args)) or made[-1])
    for of in every * 3:
        y = fused(of)
        torch.testing.assert_close(y, model(of))
        assert y.is_contiguous() and (made[-1] is None or y._base is None)
        # Each result has memory of its own.
        before = y.clone()
        fused(of + 1)
        assert torch.equal(y, before)
    assert all(of is not None for of in made[2 * len(every) :])


@torch.no_grad()
def test_a_result_that_is_read_again_is_no_view_of_a_run():
    class Twice(Head):
        def forward(self, x):
            y = self.last(torch.relu(self.first(x)))
            return torch.cat([y.reshape(3, 10), y.flatten(1)], 1)

    class ByChain(Head):
        def forward(self, x):
            y = self.last(torch.relu(self.first(x)))
            z = self.last(torch.relu(y[:, :6]))
            return y.reshape(3, 10) + 1, z

    class ByChainOfARun(Head):
        def __init__(self):
            super().__init__(again=True)
            self.again = nn.Conv2d(10, 4, 1).eval()

        def forward(self, x):
            y = self.last(torch.relu(self.first(x)))
            z = self.again(y)
            return y.reshape(3, 10), z

    x = images()[0]
    for model in (Twice(), ByChain(), ByChainOfARun()):
        fused = optimized(model, x)
        assert "\\nview " not in fused.code
        for _ in range(3):
            torch.testing.assert_close(fused(x), model(x))


@torch.no_grad()
def test_results_of_several_pixels_are_reshaped_by_pytorch():
    class Wide(Head):
        def forward(self, x):
            return self.last(torch.relu(self.first(x))).flatten(1)

    model, x = Wide(), torch.randn(3, 8, 4, 5)
    fused = optimized(model, x)
    assert "fuseplan_run(" in fused.code and "\\nview " not in fused.code
    for of in (x, x.contiguous(memory_format=torch.channels_last)) * 3:
        torch.testing.assert_close(fused(of), model(of))


@pytest.mark.parametrize(
    "lines",
    [
        # Of a tensor from outside, of a result that is read or returned besides, and of no lengths.
        "2\nview 0: 8\nvariable 0 1: {conv}",
        "4\nvariable 0 1: {conv}\nview 0: 48",
        "3 4\nvariable 0 1: {conv}\nvariable 2 1: {conv}\nview 2: 48",
        "2 3\nvariable 0 1: {conv}\nview 2: 48",
        "3\nvariable 0 1: {conv}\nview 2: 4,x",
        "3\nvariable 0 1: {conv}\nview 2 0: 48",
    ],
)
def test_what_is_no_view_is_refused(lines):
    x, w = torch.randn(1, 6, 2, 4), torch.randn(6, 6, 1, 1)
    with torch.no_grad(), pytest.raises(ValueError, match="with 2 tensors this is no program"):
        _operator.DIRECT.run(lines.format(conv=CONV), {}, (), None, (x, w))


@torch.no_grad()
def test_where_strides_allow_no_view_nothing_is_a_run():
    x, w = torch.randn(1, 6, 2, 4).contiguous(memory_format=torch.channels_last), torch.randn(6, 6, 1, 1)
    y = OP(x, w, [], CONV)
    assert _operator.DIRECT.run(f"3\nvariable 0 1: {CONV}\nview 2: 48", {}, (), None, (x, w)) is None
    (seen,) = _operator.DIRECT.run(f"3\nvariable 0 1: {CONV}\nview 2: 1,6,8,1", {}, (), None, (x, w))
    assert torch.equal(seen, y.reshape(1, 6, 8, 1)) and seen.stride() == y.reshape(1, 6, 8, 1).stride()


@torch.no_grad()
def test_guards_look_at_tensors_of_other_layouts_than_before():
    x, w = torch.randn(1, 6, 2, 4), torch.randn(6, 6, 1, 1)
    program, asked = f"2\nvariable 0 1: {CONV}", []

    def guard(*of):
        asked.append(of)

    def run(image):
        OP(image, w, [], CONV)
        return _operator.DIRECT.run(program, {}, (), (guard, image, "beside"), (image, w))

    for _ in range(3):
        assert torch.equal(run(x)[0], OP(x, w, [], CONV))
    assert len(asked) == 1 and asked[0][0] is x and asked[0][1] == "beside"
    run(torch.randn(2, 6, 2, 4))
    run(x + 1)
    assert len(asked) == 2

    def refuse(*_):
        raise RuntimeError("three images")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="three images"):
            _operator.DIRECT.run(program, {}, (), (refuse,), (torch.randn(3, 6, 2, 4), w))


@torch.no_grad()
def test_other_lengths_than_the_examples_are_refused_as_before():
    model, x = Head(), images()[0]
    fused = optimized(model, x)
    twin = copy.deepcopy(fused)
    for of in (fused, twin):
        for _ in range(3):
            torch.testing.assert_close(of(x), model(x))
            with pytest.raises(AssertionError, match="Guard failed"):
                of(torch.randn(1, 8, 3, 3))
    # Another network of the same program and parameters has lengths of its own.
    one = nn.Sequential(model.first, nn.ReLU(), model.last).eval()
    of_three, of_one = optimized(one, x), optimized(one, x[:1])
    for _ in range(3):
        torch.testing.assert_close(of_three(x), one(x))
        torch.testing.assert_close(of_one(x[:1]), one(x[:1]))
        with pytest.raises(AssertionError, match="Guard failed"):
            of_one(x)
    batch = torch.export.Dim("batch", min=2, max=4)
    fused = ft.optimize(nn.Sequential(model.first, model.last).eval(), x, choose="all", dynamic_shapes=({0: batch},))
    for _ in range(3):
        assert fused(torch.randn(4, 8, 3, 3)).shape == (4, 10, 1, 1)
        with pytest.raises(AssertionError, match="Guard failed"):
            fused(torch.randn(5, 8, 3, 3))


@torch.no_grad()
def test_guards_of_what_the_run_does_not_read_are_asked_each_time():
    class Two(Head):
        def forward(self, x, other):
            return self.last(torch.relu(self.first(x))), other.sum()

    class First(Head):
        def forward(self, x, other):
            return self.last(torch.relu(self.first(x))) + other.sum()

    x, other = images()[0], torch.randn(5)
    for model in (Two(), First()):
        fused = optimized(model, (x, other))
        for _ in range(3):
            torch.testing.assert_close(fused(x, other), model(x, other))
        with pytest.raises(AssertionError, match="Guard failed"):
            fused(x, torch.randn(6))
