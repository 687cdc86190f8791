"""Convolutions replaced in place, and errors layer by layer."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

import fuseplan.torch as ft  # noqa: E402
from torch import nn  # noqa: E402


class Doubled(nn.Conv2d):
    def forward(self, x):
        return 2 * super().forward(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Sequential(nn.Conv2d(4, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.body = nn.Conv2d(8, 8, 3, padding="same", dilation=2, groups=2, bias=False)
        self.mirrored = nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect")
        self.doubled = Doubled(8, 8, 1)
        self.normed = torch.nn.utils.spectral_norm(nn.Conv2d(8, 8, 1))
        self.deep = nn.Conv3d(1, 2, 3, padding=(0, 1, 1))

    def forward(self, x):
        y = self.stem(x)
        y = self.body(y) + self.body(y.relu())
        return self.deep(self.normed(self.doubled(self.mirrored(y))).unsqueeze(1))


def test_convolutions_are_replaced_in_place():
    model = Net().eval()
    twin = copy.deepcopy(model)
    conv, keys = model.stem[0], list(model.state_dict())
    report = ft.replace_convs(model)
    assert [(of.name, of.operators) for of in report.fused] == [
        ("stem.0", ("conv", "bias")),
        ("body", ("conv",)),
        ("deep", ("conv", "bias")),
    ]
    reasons = {of.name: of.reason for of in report.unfused}
    assert "reflect" in reasons["mirrored"] and "Doubled" in reasons["doubled"] and "each call" in reasons["normed"]
    assert model.stem[0] is conv and type(conv) is ft.Conv2d and type(model.deep) is ft.Conv3d
    assert list(model.state_dict()) == keys
    # What is replaced already is left.
    assert len(ft.replace_convs(model).fused) == 0
    for last in (False, True):
        x = torch.randn(2, 4, 9, 9)
        x = x.to(memory_format=torch.channels_last) if last else x
        with torch.no_grad():
            torch.testing.assert_close(model(x), twin(x), rtol=1e-5, atol=1e-5)
    other = Net().eval()
    other.stem[0].weight.data.mul_(3)
    model.load_state_dict(other.state_dict())
    with torch.no_grad():
        for of in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model.stem))):
            expected = other.stem(x) if isinstance(of, nn.Sequential) else other(x)
            torch.testing.assert_close(of(x), expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_it_is_a_plan_that_computes(monkeypatch):
    calls = []
    plain = torch.nn.functional.conv2d
    monkeypatch.setattr(torch.nn.functional, "conv2d", lambda *arguments: calls.append(0) or plain(*arguments))
    conv = nn.Conv2d(3, 4, 3)
    ft.replace_convs(conv)
    x = torch.randn(1, 3, 8, 8)
    y = conv(x)
    assert not calls
    torch.testing.assert_close(conv(x[:, :1].expand(1, 3, 8, 8)), conv(x[:, :1].repeat(1, 3, 1, 1)))
    assert not calls
    # What no plan takes is computed as before: other types, no batch, autocast.
    with pytest.raises(RuntimeError):
        conv(x.double())
    torch.testing.assert_close(conv(x[0]), y[0])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert conv(x).dtype == torch.bfloat16
    assert len(calls) == 3
    conv.to(torch.bfloat16)
    torch.testing.assert_close(conv(x.to(torch.bfloat16)).float(), y, rtol=0.05, atol=0.05)
    assert len(calls) == 3


def test_gradients_are_those_of_pytorch():
    conv = nn.Conv2d(3, 4, 3)
    twin = copy.deepcopy(conv)
    ft.replace_convs(conv)
    x = torch.randn(1, 3, 8, 8)
    conv(x).square().sum().backward()
    twin(x).square().sum().backward()
    torch.testing.assert_close(conv.weight.grad, twin.weight.grad)


@torch.no_grad()
def test_replaced_convolutions_are_compiled_and_exported():
    torch._dynamo.reset()
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval(), torch.randn(1, 3, 8, 8)
    expected = model(x)
    ft.replace_convs(model)
    torch.testing.assert_close(torch.compile(model, fullgraph=True, backend="aot_eager")(x), expected)
    exported = torch.export.export(model, (x,))
    assert "fuseplan.chain" in str(exported.graph)
    torch.testing.assert_close(exported.module()(x), expected)


@torch.no_grad()
def test_types_that_plans_do_not_have():
    report = ft.replace_convs(nn.Sequential(nn.Conv2d(3, 4, 3).double()))
    assert not report.fused and "f64" in report.unfused[0].reason


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        return torch.relu(self.second(torch.relu(self.norm(self.first(x)))) + x)


@torch.no_grad()
def test_errors_chain_by_chain(capsys):
    model, x = Residual().eval(), torch.randn(2, 4, 9, 9)
    fused = ft.optimize(model, x, choose="all")
    comparison = ft.compare(model, fused, x)
    assert capsys.readouterr().out == f"{comparison}\n"
    assert [of.operators for of in comparison.chains] == ["conv -> bias -> relu", "conv -> bias -> residual -> relu"]
    assert [of.name for of in comparison.results] == ["result 0"]
    y = fused(x).double() - copy.deepcopy(model).double()(x.double())
    result = comparison.results[0]
    assert result.max == y.abs().max().item() and result.rms == pytest.approx(y.square().mean().sqrt().item())
    assert all(0 < of.rms <= of.max < 1e-5 and 0 < of.own_max < 1e-5 and of.largest > 1e-2 for of in comparison)
    # An error is found in the chain that has it, and in what reads it.
    model = copy.deepcopy(model)
    fused.get_parameter("second.bias").add_(0.5)
    comparison = ft.compare(model, fused, x)
    assert comparison.chains[0].max < 1e-5 and comparison.chains[1].max == pytest.approx(0.5, rel=1e-4)
    assert comparison.chains[1].own_max < 1e-5


@torch.no_grad()
def test_errors_module_by_module():
    model, x = Net().eval(), torch.randn(2, 4, 9, 9)
    replaced = copy.deepcopy(model)
    ft.replace_convs(replaced)
    replaced.deep.bias.add_(0.25)
    comparison = ft.compare(model, replaced, x)
    assert [of.name for of in comparison] == ["stem.0", "body", "body#2", "deep", "result 0"]
    assert [of.max < 1e-4 for of in comparison] == [True, True, True, False, False]
    assert comparison.chains[-1].max == pytest.approx(0.25, rel=1e-3)


class Mixed(nn.Module):
    """Types differ where the example's precision is the network's own, and do not in f64: its export takes another way there."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.register_buffer("shift", torch.full((4, 1, 1), 0.5, dtype=torch.float16))

    def forward(self, x):
        y = nn.functional.max_pool2d(self.norm(self.conv(x)), 2)
        y += self.shift
        return y


@torch.no_grad()
def test_values_have_the_same_names_however_a_network_was_exported():
    model, x = Mixed().eval(), torch.randn(2, 4, 8, 8)
    comparison = ft.compare(model, ft.optimize(model, x, choose="all"), x)
    assert [of.operators for of in comparison.chains] == ["conv -> bias"]
    assert all(of.max < 1e-5 for of in comparison)


@torch.no_grad()
def test_networks_that_cannot_be_compared():
    model, x = Residual().eval(), torch.randn(1, 4, 5, 5)
    with pytest.raises(ValueError, match="no chain"):
        ft.compare(model, model, x)
    other = nn.Sequential(nn.Conv2d(4, 4, 1), nn.Sigmoid()).eval()
    with pytest.raises(ValueError, match="the network that the other was made of"):
        ft.compare(other, ft.optimize(model, x, choose="all"), x)
