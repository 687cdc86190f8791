"""The layout that `optimize` gives a network's convolutions."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

import fuseplan.torch as ft  # noqa: E402
from fuseplan.torch import _concatenations, _export, _layouts, _nodes, _rewrite  # noqa: E402

LAST = torch.channels_last


class Network(torch.nn.Module):
    """Two chains with a pool between them; its results are the second's image, and one number a channel."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.second = torch.nn.Conv2d(8, 8, 3, padding=1)
        self.eval()

    def forward(self, x):
        x = torch.nn.functional.max_pool2d(self.norm(self.first(x)).relu(), 2)
        y = torch.relu(self.second(x) + x)
        return y, y.mean((2, 3))


@pytest.fixture
def network():
    return Network(), torch.randn(2, 3, 10, 12)


def formats_of_chains(fused):
    nodes = fused.graph.find_nodes(op="call_function", target=torch.ops.fuseplan.chain.default)
    assert len(nodes) == 2
    return ["last" if node.meta["val"].is_contiguous(memory_format=LAST) else "first" for node in nodes]


def check(fused, model, x):
    with torch.no_grad():
        for found, expected in zip(fused(x), model(x), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
            assert found.stride() == expected.stride()


def test_a_named_layout_is_that_of_all_between_the_image_and_the_results(network):
    model, x = network
    fused = ft.optimize(model, x, choose="all", memory_format=LAST)
    assert formats_of_chains(fused) == ["last", "last"]
    check(fused, model, x)
    assert model.second.weight.is_contiguous(), "the model's own weights stay as they are"
    compiled = torch.compile(fused, backend="aot_eager", fullgraph=True)
    check(compiled, model, x)


def test_on_a_cpu_the_layout_is_channels_last(network):
    model, x = network
    fused = ft.optimize(model, x, choose="all")
    assert formats_of_chains(fused) == ["last", "last"]
    check(fused, model, x)
    fused = ft.optimize(model, x, choose="all", memory_format=torch.preserve_format)
    assert formats_of_chains(fused) == ["first", "first"]
    check(fused, model, x)
    fused = ft.optimize(model, x.contiguous(memory_format=LAST), choose="all")
    assert formats_of_chains(fused) == ["last", "last"]
    check(fused, model, x.contiguous(memory_format=LAST))


def test_calls_in_another_layout_have_the_same_values(network):
    model, x = network
    last = x.contiguous(memory_format=LAST)
    for example, other in ((x, last), (last, x)):
        fused = ft.optimize(model, example, choose="all")
        with torch.no_grad():
            for found, expected in zip(fused(other), model(other), strict=True):
                torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        check(fused, model, example)


@pytest.mark.parametrize("last, chosen", [(0.94, "last"), (0.96, "first"), (2.0, "first")])
def test_by_default_the_expected_times_decide(network, monkeypatch, last, chosen):
    model, x = network

    def expected(graph, values, math):
        nodes = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.conv2d.default)
        is_last = [node.meta["val"].is_contiguous(memory_format=LAST) for node in nodes]
        assert len(set(is_last)) == 1
        return dict.fromkeys(nodes, last if is_last[0] else 1.0)

    monkeypatch.setattr(_rewrite, "_expected", expected)
    monkeypatch.setattr(_layouts, "_is_on_cpu", lambda values: False)
    fused = ft.optimize(model, x, choose="all")
    assert formats_of_chains(fused) == [chosen] * 2
    check(fused, model, x)
    kept = ft.optimize(model, x, choose="all", memory_format=torch.preserve_format)
    assert formats_of_chains(kept) == ["first", "first"]


class Joined(torch.nn.Module):
    """A concatenation of what a convolution computes and of the image, which are in two layouts where the convolution is in another."""

    def __init__(self, filters=16, readers=1):
        super().__init__()
        self.first = torch.nn.Conv2d(16, filters, 3, padding=1)
        self.second = torch.nn.ModuleList(torch.nn.Conv2d(16 + filters, 8, 3) for _ in range(readers))

    def computed(self, x):
        return self.first(x).abs()

    def forward(self, x):
        joined = torch.cat([self.computed(x), x.neg()], 1)
        return tuple(second(joined) for second in self.second)


class JoinedOfNone(Joined):
    """No convolution computes what is concatenated."""

    def computed(self, x):
        return x.abs() + self.first(x).mean()


@pytest.mark.parametrize(
    "model, rest, is_free",
    [
        (Joined(), "inductor", True),
        (Joined(), "eager", False),
        (Joined(readers=2), "inductor", False),
        # 19 channels of f32 are no multiple of 16 bytes.
        (Joined(filters=3), "inductor", False),
        (JoinedOfNone(), "inductor", False),
    ],
    ids=["written as read", "by PyTorch", "two readers", "unaligned", "of no chain"],
)
def test_what_is_concatenated_is_no_copy_where_it_is_written_as_it_is_read(monkeypatch, model, rest, is_free):
    x, rewritten = torch.randn(2, 16, 10, 12), []

    def expected(graph, values, math):
        return dict.fromkeys(graph.graph.find_nodes(op="call_function", target=torch.ops.aten.conv2d.default), 1.0)

    def is_less(graph, after, before, seen, is_laid_anyway):
        (joined,) = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.cat.default)
        assert is_laid_anyway(joined) == is_free
        return True

    def rewrite(graph):
        original(graph, devices=("cuda", "cpu"))
        rewritten.append([node.target for node in graph.graph.nodes])

    original = _concatenations.rewrite
    monkeypatch.setattr(_rewrite, "_expected", expected)
    monkeypatch.setattr(_layouts, "_is_on_cpu", lambda values: False)
    monkeypatch.setattr(_layouts, "_is_less", is_less)
    monkeypatch.setattr(_concatenations, "rewrite", rewrite)
    ft.optimize(model.eval(), x, choose="all", rest=rest)
    if rest == "inductor":
        # What is expected is what comes of it.
        (targets,) = rewritten
        assert (torch.ops.aten.cat.default in targets) != is_free


class Wrapped(Network):
    """The network with something behind its first result."""

    def __init__(self, behind):
        super().__init__()
        self.behind = behind

    def forward(self, x):
        return (self.behind(super().forward(x)[0]),)


@pytest.mark.parametrize(
    "behind",
    [lambda y: y.permute(0, 2, 3, 1), lambda y: y[:, 2:6], lambda y: y.as_strided((2, 5), (240, 7)) + 0],
    ids=["a permuted result", "a sliced result", "an operator that reads by strides"],
)
@pytest.mark.parametrize("on_cpu", [True, False])
def test_what_depends_on_strides_keeps_the_layout(behind, on_cpu, monkeypatch):
    model, x = Wrapped(behind), torch.randn(2, 3, 10, 12)

    def expected(graph, values, math):
        nodes = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.conv2d.default)
        return dict.fromkeys(nodes, 0.1 if nodes[0].meta["val"].is_contiguous(memory_format=LAST) else 1.0)

    monkeypatch.setattr(_rewrite, "_expected", expected)
    monkeypatch.setattr(_layouts, "_is_on_cpu", lambda values: on_cpu)
    fused = ft.optimize(model, x, choose="all")
    assert formats_of_chains(fused) == ["first", "first"]
    check(fused, model, x)


def test_a_layout_that_an_operator_refuses_is_not_chosen(network, monkeypatch):
    model, x = network
    observed = _layouts.observe

    def observe(graph, inputs):
        observed(graph, inputs)
        nodes = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.conv2d.default)
        if nodes[0].meta["val"].is_contiguous(memory_format=LAST):
            raise RuntimeError("an operator refuses these strides")

    monkeypatch.setattr(_layouts, "observe", observe)
    monkeypatch.setattr(_rewrite, "_expected", lambda graph, values, math: dict.fromkeys(graph.graph.nodes, 1.0))
    fused = ft.optimize(model, x, choose="all")
    assert formats_of_chains(fused) == ["first", "first"]
    check(fused, model, x)
    with pytest.raises(RuntimeError, match="refuses these strides"):
        ft.optimize(model, x, memory_format=LAST)


def test_a_convolution_without_an_expected_time_keeps_the_layout(network, monkeypatch):
    model, x = network

    def expected(graph, values, math):
        nodes = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.conv2d.default)
        is_last = nodes[0].meta["val"].is_contiguous(memory_format=LAST)
        return dict.fromkeys(nodes[:1] if is_last else nodes, 0.1 if is_last else 1.0)

    monkeypatch.setattr(_rewrite, "_expected", expected)
    monkeypatch.setattr(_layouts, "_is_on_cpu", lambda values: False)
    assert formats_of_chains(ft.optimize(model, x, choose="all")) == ["first", "first"]


def test_filters_of_one_tap_begin_a_layout():
    model, x = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 1), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 1)).eval(), torch.randn(2, 3, 5, 6)
    fused = ft.optimize(model, x, choose="all", memory_format=LAST)
    assert formats_of_chains(fused) == ["last", "last"]
    with torch.no_grad():
        assert fused(x).stride() == model(x).stride()


def test_images_and_weights_are_described_as_plans_get_them(network):
    model, x = network
    graph = _export.export(model, x)
    graph.recompile()
    values = {node: _rewrite._attribute(graph, node.target) for node in graph.graph.nodes if node.op == "get_attr"}
    with torch.no_grad():
        _layouts.observe(graph, [x])
        _layouts.lay_out(graph, values, [x], LAST, dict)
    nodes = list(graph.graph.nodes)
    described = [_nodes.describe(node, {node: at for at, node in enumerate(nodes)}, values) for node in nodes]
    _rewrite._describe_as_run(nodes, described)
    convolutions = [of for of in described if of[1] == "conv"]
    assert len(convolutions) == 2
    for _, _, (image, weight, *_), value, *_ in convolutions:
        assert value.strides[1] == described[image][3].strides[1] == described[weight][3].strides[1] == 1


def test_a_layout_that_convolutions_cannot_be_given_is_refused(network):
    with pytest.raises(ValueError, match="accepted: None, torch.preserve_format, torch.channels_last, torch.channels_last_3d"):
        ft.optimize(*network, memory_format=torch.contiguous_format)
