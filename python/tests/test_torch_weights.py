"""Weights and biases that a network computes of constants."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

import fuseplan.torch as ft  # noqa: E402
from torch import nn  # noqa: E402


def standardized(m, x):
    weight = m.conv.weight
    mean, deviation = weight.mean((1, 2, 3), keepdim=True), weight.std((1, 2, 3), keepdim=True)
    return torch.relu(nn.functional.conv2d(x, (weight - mean) / (deviation + 1e-5), m.conv.bias, padding=1))


def without_a_part(m, x):
    """As Swin V2 has its keys without a bias."""
    bias = m.linear.bias.clone()
    bias[2:4].zero_()
    return nn.functional.linear(x, m.linear.weight, bias)


def transposed(m, x):
    return nn.functional.conv_transpose2d(x, m.up.weight * 2, m.up.bias) * 3


# What is computed, the chains, and what of PyTorch's stays.
COMPUTED = {
    "standardized": (standardized, [("conv", "bias", "relu")], set()),
    "without a part": (without_a_part, [("linear", "bias")], set()),
    "transposed": (transposed, [], {"aten.conv_transpose2d.input"}),
    "normed": (lambda m, x: m.normed(x), [("conv", "bias")], set()),
    # By what a network is given, by chance, and by what it writes.
    "of the input": (lambda m, x: nn.functional.conv2d(x, m.conv.weight, m.conv.bias * x.mean(), padding=1), [], None),
    "by chance": (lambda m, x: nn.functional.conv2d(x, m.conv.weight, torch.rand_like(m.conv.bias) * 0 + m.conv.bias, padding=1), [], None),
    "of what is written": (lambda m, x: nn.functional.conv2d(x, m.conv.weight, m.count.add_(1) * m.conv.bias, padding=1), [], None),
}


@pytest.mark.parametrize("name", COMPUTED)
@torch.no_grad()
def test_a_layer_has_constants(name):
    function, chains, left = COMPUTED[name]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.conv, self.linear, self.up = nn.Conv2d(4, 6, 3), nn.Linear(5, 6), nn.ConvTranspose2d(4, 6, 2)
            self.normed = nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 6, 1))
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            return function(self, x)

    model, other, x = Net().eval(), Net().eval(), torch.randn(2, 4, 5, 5)
    other.load_state_dict(model.state_dict())
    fused = ft.optimize(model, x, choose="all")
    assert [of.operators for of in fused.fuseplan_report.fused] == chains, str(fused.fuseplan_report)
    if left is not None:
        found = {str(node.target) for node in fused.graph.nodes if node.op == "call_function"}
        assert found - {"fuseplan.chain.default", "aten.contiguous.default"} == left
    # At every call, as one may change what the next one reads.
    for _ in range(2):
        torch.testing.assert_close(fused(x), other(x), rtol=1e-5, atol=1e-5)
