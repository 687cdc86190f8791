"""Layers around attention, whose batch PyTorch puts second."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

import fuseplan.torch as ft  # noqa: E402
from torch import nn  # noqa: E402


class Encoder(nn.Module):
    """A block of a vision transformer, as torchvision has it."""

    def __init__(self, features=16, batch_first=True):
        super().__init__()
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(features, 4, dropout=0.1, batch_first=batch_first)
        self.norms = nn.ModuleList(nn.LayerNorm(features) for _ in range(2))
        self.up, self.down = nn.Linear(features, 3 * features), nn.Linear(3 * features, features)
        self.drop = nn.Dropout(0.1)
        nn.init.normal_(self.attention.in_proj_bias), nn.init.normal_(self.attention.out_proj.bias)

    def forward(self, x):
        y = self.norms[0](x)
        y, _ = self.attention(y, y, y, need_weights=False)
        x = x + self.drop(y)
        return x + self.drop(self.down(self.drop(nn.functional.gelu(self.up(self.norms[1](x))))))


WHOLE = [("linear", "bias"), ("linear", "bias", "residual"), ("linear", "bias", "gelu"), ("linear", "bias", "residual")]


def operators(fused):
    return [of.operators for of in fused.fuseplan_report.fused]


@pytest.mark.parametrize("batch_first", [True, False], ids=["batch first", "batch second"])
@pytest.mark.parametrize("batch", [1, 3])
@torch.no_grad()
def test_every_layer_and_sum_of_a_block_is_in_a_plan(batch, batch_first):
    model = nn.Sequential(Encoder(batch_first=batch_first), Encoder(batch_first=batch_first)).eval()
    x = torch.randn(batch, 5, 16) if batch_first else torch.randn(5, batch, 16)
    fused = ft.optimize(model, x, choose="all")
    assert operators(fused) == 2 * WHOLE and not fused.fuseplan_report.unfused, str(fused.fuseplan_report)
    left = {str(node.target) for node in fused.graph.nodes if node.op == "call_function"}
    assert not left & {"aten.linear.default", "aten.add.Tensor"}
    torch.testing.assert_close(fused(x), model(x), rtol=1e-4, atol=1e-5)
    comparison = ft.compare(model, fused, x)
    assert len(comparison.chains) == 8 and all(of.max < 1e-4 for of in comparison)


@torch.no_grad()
def test_another_batch():
    model, sizes = Encoder().eval(), {0: torch.export.Dim("n", min=2, max=64)}
    fused = ft.optimize(model, torch.randn(3, 5, 16), dynamic_shapes=(sizes,), choose="all")
    assert operators(fused) == WHOLE
    for batch in (2, 7):
        x = torch.randn(batch, 5, 16)
        torch.testing.assert_close(fused(x), model(x), rtol=1e-4, atol=1e-5)


class Reads(nn.Module):
    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.next, self.function = nn.Linear(8, 8), nn.Linear(8, 8), function

    def forward(self, x, y):
        return self.function(self, x, y)


# Of images [batch, tokens, heads, features of a head] and [batch, tokens, features]: the chains, and what is computed.
LAYERS = {
    "through an activation": (
        [("linear", "bias", "relu"), ("linear", "bias", "residual")],
        lambda m, x, y: m.next(torch.relu(m.layer(y.transpose(0, 1)))).transpose(0, 1) + y,
    ),
    "read twice": ([("linear", "bias")], lambda m, x, y: (lambda z: z + z.tanh())(m.layer(y.transpose(0, 1)))),
    "led back": (
        [("linear", "bias", "residual")],
        lambda m, x, y: m.layer(x.permute(1, 0, 2, 3).reshape(15, 8)).view(5, 3, 8).transpose(0, 1) + y,
    ),
    # Rows would be others, or other numbers would be a row's.
    "the image read twice": (
        [("linear", "bias")],
        lambda m, x, y: (lambda z: m.layer(z.reshape(15, 8)).view(5, 3, 8).transpose(0, 1) + y + z.sum())(x.permute(1, 0, 2, 3)),
    ),
    "other rows": (
        [("linear", "bias")],
        lambda m, x, y: m.layer(x.permute(1, 0, 2, 3).reshape(15, 8)).view(3, 5, 8).transpose(0, 1) + y.transpose(0, 1),
    ),
    "other features": (
        [("linear", "bias")],
        lambda m, x, y: m.layer(x.permute(1, 0, 3, 2).reshape(15, 8)).view(5, 3, 2, 4).transpose(0, 1).sum(3),
    ),
    "rows of heads": (
        [("linear", "bias")],
        lambda m, x, y: m.layer(x.permute(2, 0, 1, 3).reshape(15, 8)).view(5, 3, 8).transpose(0, 1) + 1,
    ),
    "features permuted": (
        [("linear", "bias", "residual")],
        lambda m, x, y: m.layer(y.transpose(1, 2).transpose(1, 2)).transpose(1, 2) + y.transpose(1, 2),
    ),
    "by strides": ([], lambda m, x, y: m.layer(y.transpose(0, 1)).as_strided((2, 3), (1, 2))),
}


@pytest.mark.parametrize("name", LAYERS)
@torch.no_grad()
def test_layers_of_permuted_rows(name):
    expected, function = LAYERS[name]
    model, given = Reads(function).eval(), (torch.randn(3, 5, 2, 4), torch.randn(3, 5, 8))
    fused = ft.optimize(model, given, choose="all")
    assert operators(fused) == expected, str(fused.fuseplan_report)
    torch.testing.assert_close(fused(*given), model(*given), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_layout_that_is_to_be_kept_is():
    model, x = Encoder().eval(), torch.randn(3, 5, 16)
    fused = ft.optimize(model, x, choose="all", memory_format=torch.preserve_format)
    y, expected = fused(x), model(x)
    assert y.stride() == expected.stride() and len(fused.fuseplan_report.unfused) == 1
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)
