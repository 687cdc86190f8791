"""Concatenations whose chains write into the result: the graphs, their values, and what Inductor makes of them."""

import functools
import re

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

import fuseplan.torch as ft  # noqa: E402
from fuseplan.torch import _backend, _concatenations, _into, _rewrite  # noqa: E402
from torch import nn  # noqa: E402
from torch._inductor.utils import run_and_get_code  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

CHAIN, CAT = torch.ops.fuseplan.chain.default, torch.ops.aten.cat.default


@pytest.fixture(autouse=True)
def without_gradients():
    torch._dynamo.reset()
    with torch.no_grad():
        yield
    torch._dynamo.reset()


def conv(channels, filters, taps=3):
    return nn.Sequential(nn.Conv2d(channels, filters, taps, padding=taps // 2, bias=False), nn.BatchNorm2d(filters), nn.SiLU())


class UNet(nn.Module):
    """Two levels; a skip is read by a pool before it is concatenated."""

    def __init__(self, up="transposed"):
        super().__init__()
        self.down = nn.ModuleList([conv(8, 16), conv(16, 32), conv(32, 32)])
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(32, 32, 2, 2) if up == "transposed" else nn.Upsample(scale_factor=2) for _ in range(2)
        )
        self.join = nn.ModuleList([conv(64, 32), conv(48, 16)])
        self.skip_first = up == "transposed"

    def forward(self, x):
        skips = []
        for down in self.down[:2]:
            skips.append(down(x))
            x = F.max_pool2d(skips[-1], 2)
        x = self.down[2](x)
        for up, join, skip in zip(self.up, self.join, reversed(skips)):
            pair = [skip, up(x)]
            x = join(torch.cat(pair if self.skip_first else pair[::-1], 1))
        return x


class C2f(nn.Module):
    """YOLO's block: halves of a chain's value, then bottlenecks each of which reads what is before it."""

    def __init__(self, adds=True):
        super().__init__()
        self.first, self.last = conv(8, 32, 1), conv(64, 24, 1)
        self.inner = nn.ModuleList(nn.Sequential(conv(16, 16), conv(16, 16)) for _ in range(2))
        self.adds = adds

    def forward(self, x):
        parts = list(self.first(x).chunk(2, 1))
        for inner in self.inner:
            parts.append(inner(parts[-1]) + parts[-1] if self.adds else inner(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Pyramid(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = conv(8, 16, 1), conv(64, 24, 1)

    def forward(self, x):
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        return self.last(torch.cat(parts, 1))


class Nested(nn.Module):
    """A concatenation of a concatenation, and one of the same value twice."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([conv(8, 16), conv(16, 16), conv(32, 16), conv(80, 24)])

    def forward(self, x):
        a = self.parts[0](x)
        b = self.parts[1](a)
        pair = torch.cat([a, b], 1)
        c = self.parts[2](pair)
        return self.parts[3](torch.cat([pair, c, a, a], 1))


class Beside(nn.Module):
    """The network's input and a parameter beside a chain's value, and a result that is a concatenation."""

    def __init__(self):
        super().__init__()
        self.first, self.last = conv(8, 24), conv(48, 16)
        self.table = nn.Parameter(torch.randn(2, 8, 16, 24))

    def forward(self, x):
        joined = torch.cat([x, self.first(x), self.table, x.cos()], 1)
        return joined, self.last(joined)


NETWORKS = {
    # The network, and how many of its concatenations and chains are written in place.
    "unet": (UNet, 2, 2),
    "upsample": (functools.partial(UNet, "nearest"), 2, 2),
    "c2f": (C2f, 1, 3),
    "c2f without sums": (functools.partial(C2f, False), 1, 3),
    "pyramid": (Pyramid, 1, 1),
    "nested": (Nested, 2, 3),
    "beside": (Beside, 1, 1),
}


def network(name, last):
    torch.manual_seed(0)
    make, cats, chains = NETWORKS[name]
    model, x = make().eval(), torch.randn(2, 8, 16, 24)
    for of in model.modules():
        if isinstance(of, nn.BatchNorm2d):
            of.running_var.uniform_(0.5, 2), of.running_mean.normal_()
    if last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    return model, x, cats, chains


def count(graph):
    targets = [node.target for node in graph.graph.nodes]
    return [targets.count(of) for of in (CAT, CHAIN, _into.CHAIN_INTO)]


def optimized(model, x, monkeypatch, rewrites=True, **options):
    """The network as `optimize` makes it, where concatenations are rewritten as they are on GPUs, or are not."""
    devices = ("cpu",) if rewrites else ()
    rewrite = functools.partial(_concatenations.rewrite, devices=devices)
    monkeypatch.setattr(_rewrite._concatenations, "rewrite", rewrite)
    options = {"rest": "inductor", **options}
    made = ft.optimize(model, x, choose="all", memory_format=torch.preserve_format, **options)
    monkeypatch.undo()
    return made


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("last", (True, False, "weights alone"))
def test_results_are_the_same_bits(name, last, monkeypatch):
    model, x, cats, chains = network(name, last)
    if last == "weights alone":
        x = x.contiguous()
        if name == "beside":
            # The image lies in another order than the values beside it.
            cats = chains = 0
    before, after = (optimized(model, x, monkeypatch, rewrites) for rewrites in (False, True))
    assert str(before.fuseplan_report) == str(after.fuseplan_report)
    every, remaining = count(before), count(after)
    assert remaining == [every[0] - cats, every[1] - chains, chains], (every, remaining)
    torch.testing.assert_close(after(x), model(x), rtol=1e-4, atol=1e-4)
    for _ in range(2):
        for found, expected in zip(pytree.tree_leaves(after(x)), pytree.tree_leaves(before(x)), strict=True):
            assert torch.equal(found, expected) and found.stride() == expected.stride()
    errors = ft.compare(model, after, x)
    assert [of.name for of in errors] == [of.name for of in ft.compare(model, before, x)]
    assert all(of.max < 1e-4 for of in errors)


def code_of(call, *inputs):
    y, (code,) = run_and_get_code(call, *inputs)
    body = code[code.index("def call(") :]
    return y, code, body[: body.index("return (")]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("last", (True, False))
@pytest.mark.parametrize("way", ("optimize", "backend"))
def test_inductor_writes_where_it_is(name, last, way, monkeypatch):
    """No memory of a concatenation's size is made but that of the concatenations."""
    model, x, cats, chains = network(name, last)
    if way == "optimize":
        fused = optimized(model, x, monkeypatch)
        memories = [node.meta["val"] for node in fused.graph.nodes if "new_empty_strided" in str(node.target)]
        y, code, body = code_of(torch.compile(fused, fullgraph=True), x)
        expected = fused(x)
    else:
        seen, rewrite = [], _concatenations.rewrite

        def spied(graph):
            rewrite(graph, devices=("cpu",))
            seen.append(graph)

        monkeypatch.setattr(_backend._concatenations, "rewrite", spied)
        options = {"choose": "all", "rest": "inductor"}
        y, code, body = code_of(torch.compile(model, backend="fuseplan", fullgraph=True, options=options), x)
        (graph,) = seen
        memories = [node.meta["val"] for node in graph.graph.nodes if "new_empty_strided" in str(node.target)]
        expected = model(x)
    assert len(memories) == cats and body.count("torch.ops.fuseplan.chain_into.default(") == chains
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
    made = re.findall(r"empty_strided_cpu\(\(([\d, ]+)\), \(([\d, ]+)\)", body)
    for value in memories:
        shape = ", ".join(map(str, value.shape)), ", ".join(map(str, value.stride()))
        like = [of for of in memories if (of.shape, of.stride()) == (value.shape, value.stride())]
        assert made.count(shape) == len(like), body


class Volumes(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Conv3d(channels, 16, 3, padding=1) for channels in (8, 16))
        self.last = nn.Conv3d(32, 8, 1)

    def forward(self, x):
        first = self.parts[0](x).relu()
        return self.last(torch.cat([first, self.parts[1](first).relu()], 1))


@pytest.mark.parametrize("last", (True, False))
def test_volumes(last, monkeypatch):
    torch.manual_seed(0)
    model, x = Volumes().eval(), torch.randn(2, 8, 5, 6, 8)
    if last:
        model, x = (of.to(memory_format=torch.channels_last_3d) for of in (model, x))
    before, after = (optimized(model, x, monkeypatch, rewrites) for rewrites in (False, True))
    assert count(before) == [1, 3, 0] and count(after) == [0, 1, 2]
    assert torch.equal(after(x), before(x))
    torch.testing.assert_close(torch.compile(after, fullgraph=True)(x), before(x))


class Frames(nn.Module):
    """Convolutions that are given copies of the first frame before all frames, one of them a residual as well."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Conv3d(8, 8, 3, padding=(0, 1, 1)) for _ in range(4))

    def forward(self, x):
        def causal(part, x):
            return part(torch.cat([x[:, :, :1].expand(-1, -1, 2, -1, -1), x], 2))

        x = causal(self.parts[0], x)
        y = causal(self.parts[1], x.relu()).relu()
        return causal(self.parts[3], causal(self.parts[2], y) + y)


@pytest.mark.parametrize("batch", (1, 2))
def test_frames(batch, monkeypatch):
    """Where PyTorch's results are channels-last, which those of one small video are not on a CPU."""
    torch.manual_seed(0)
    model, x = Frames().eval(), torch.randn(batch, 8, 3, 6, 8)
    model, x = (of.to(memory_format=torch.channels_last_3d) for of in (model, x))
    before, after = (optimized(model, x, monkeypatch, rewrites) for rewrites in (False, True))
    # What lies in memory with gaps between videos is neither a residual of what does not, nor has one.
    assert count(before) == [4, 4, 0] and count(after) == ([4, 4, 0] if batch == 1 else [3, 3, 1])
    assert torch.equal(after(x), before(x))
    torch.testing.assert_close(torch.compile(after, fullgraph=True)(x), before(x))
    errors = ft.compare(model, after, x)
    assert len(errors.chains) == 4 and all(of.max < 1e-5 for of in errors)


class Left(nn.Module):
    """Concatenations that stay what they are."""

    def __init__(self, why):
        super().__init__()
        self.a, self.b, self.last = conv(8, 16), conv(8, 16), conv(32, 16)
        self.pre = nn.Conv2d(8, 16, 1)
        self.why = why

    def forward(self, x):
        a, b = self.a(x), self.b(x)
        if self.why == "result":
            return self.last(torch.cat([self.pre(x).cos(), a], 1)), a
        if self.why == "result of a view":
            return self.last(torch.cat([self.pre(x).cos(), a], 1)), a[:, 4:]
        if self.why == "residual":
            return self.last(torch.cat([self.pre(x).cos(), a], 1)), self.b[0](x) + a
        if self.why == "rows":
            return self.last(torch.cat([a, b], 2)[:, :, ::2].repeat(1, 2, 1, 1))
        if self.why == "pointwise":
            return torch.cat([a, b], 1).cos().sum(1)
        assert self.why == "no chains"
        return self.last(torch.cat([a.cos(), b.sin()], 1))


@pytest.mark.parametrize("why", ("result", "result of a view", "residual", "rows", "pointwise", "no chains"))
def test_what_would_be_no_faster_is_left(why, monkeypatch):
    torch.manual_seed(0)
    model, x = Left(why).eval(), torch.randn(2, 8, 16, 24)
    fused = optimized(model, x, monkeypatch)
    assert count(fused)[0] == 1 and count(fused)[2] == 0
    torch.testing.assert_close(fused(x), model(x), rtol=1e-4, atol=1e-4)


class Widths(nn.Module):
    """Chains of these widths side by side."""

    def __init__(self, *widths):
        super().__init__()
        self.parts, self.last = nn.ModuleList(conv(8, width) for width in widths), nn.Conv2d(sum(widths), 16, 1)

    def forward(self, x):
        return self.last(torch.cat([part(x) for part in self.parts], 1))


@pytest.mark.parametrize(
    "widths, last, written",
    [
        # 20 channels of two bytes are no whole vectors, nor is what is behind them.
        ((20, 16, 28), True, 1),
        ((16, 20, 28), True, 2),
        ((20, 16), True, 0),
        ((16, 16), True, 2),
        # Images of 16 x 24 pixels are.
        ((20, 16, 28), False, 3),
        ((20, 15), False, 2),
    ],
)
def test_slices_begin_at_whole_vectors(widths, last, written, monkeypatch):
    torch.manual_seed(0)
    model, x = Widths(*widths).eval().half(), torch.randn(2, 8, 16, 24).half()
    if last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    fused = optimized(model, x, monkeypatch)
    assert count(fused) == [0 if written else 1, len(widths) + 1 - written, written]
    torch.testing.assert_close(fused(x), model(x), rtol=1e-2, atol=1e-2)


class Shifted(nn.Module):
    """A bias of a shape that the operator is given as a vector."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.Conv2d(24, 16, 1)
        self.shift = nn.Parameter(torch.randn(16, 1, 1))

    def forward(self, x):
        return self.last(torch.cat([self.first(x) + self.shift, x], 1))


def test_operands_that_are_views_are_compiled_for(monkeypatch):
    model, x = Shifted().eval(), torch.randn(2, 8, 16, 24)
    seen, rewrite = [], _concatenations.rewrite

    def spied(graph):
        rewrite(graph, devices=("cpu",))
        seen.append(count(graph))

    monkeypatch.setattr(_backend._concatenations, "rewrite", spied)
    compiled = torch.compile(model, backend="fuseplan", options={"choose": "all", "rest": "inductor"})
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
    assert seen == [[0, 1, 1]]


def test_views_of_slices_have_their_strides(monkeypatch):
    model, x, *_ = network("c2f", True)
    fused = optimized(model, x, monkeypatch)
    reads = [node for node in fused.graph.nodes if node.target in (CHAIN, _into.CHAIN_INTO)]
    whole = next(node for node in fused.graph.nodes if "new_empty_strided" in str(node.target)).meta["val"]
    values = [node.args[0].meta["val"] for node in reads]
    assert [of.stride() == whole.stride() for of in values] == [False, True, False, True, False, True], values


def test_symbols_are_left(monkeypatch):
    model, x, cats, _ = network("unet", True)
    batch = torch.export.Dim("batch", min=2, max=8)
    fused = optimized(model, x, monkeypatch, dynamic_shapes=({0: batch},))
    assert count(fused)[0] == cats and count(fused)[2] == 0
    more = torch.randn(4, 8, 16, 24)
    torch.testing.assert_close(fused(more), model(more), rtol=1e-4, atol=1e-4)


def test_what_nothing_compiles_is_left(monkeypatch):
    model, x, cats, _ = network("unet", True)
    fused = optimized(model, x, monkeypatch, rest="eager")
    assert count(fused)[0] == cats and count(fused)[2] == 0
    with pytest.raises(ValueError, match="rest is 'auto'; accepted: 'eager', 'inductor'"):
        ft.optimize(model, x, rest="auto")


def test_concatenations_stay_on_cpus():
    model, x, cats, _ = network("unet", True)
    fused = ft.optimize(model, x, choose="all", rest="inductor")
    assert count(fused)[0] == cats and count(fused)[2] == 0
