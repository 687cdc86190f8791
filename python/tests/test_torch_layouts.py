"""The layout that `optimize` gives a network's convolutions."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

import fuseplan.torch as ft  # noqa: E402
from fuseplan.torch import _rewrite  # noqa: E402

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


def test_without_a_model_of_time_the_layout_is_pytorchs(network):
    model, x = network
    assert formats_of_chains(ft.optimize(model, x, choose="all")) == ["first", "first"]
    fused = ft.optimize(model, x.contiguous(memory_format=LAST), choose="all")
    assert formats_of_chains(fused) == ["last", "last"]
    check(fused, model, x.contiguous(memory_format=LAST))


@pytest.mark.parametrize("last, chosen", [(0.89, "last"), (0.91, "first"), (2.0, "first")])
def test_by_default_the_expected_times_decide(network, monkeypatch, last, chosen):
    model, x = network

    def expected(graph, values):
        nodes = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.conv2d.default)
        is_last = [node.meta["val"].is_contiguous(memory_format=LAST) for node in nodes]
        assert len(set(is_last)) == 1
        return dict.fromkeys(nodes, last if is_last[0] else 1.0)

    monkeypatch.setattr(_rewrite, "_expected", expected)
    fused = ft.optimize(model, x, choose="all")
    assert formats_of_chains(fused) == [chosen] * 2
    check(fused, model, x)
    kept = ft.optimize(model, x, choose="all", memory_format=torch.preserve_format)
    assert formats_of_chains(kept) == ["first", "first"]


def test_a_layout_that_convolutions_cannot_be_given_is_refused(network):
    with pytest.raises(ValueError, match="accepted: None, torch.preserve_format, torch.channels_last, torch.channels_last_3d"):
        ft.optimize(*network, memory_format=torch.contiguous_format)
