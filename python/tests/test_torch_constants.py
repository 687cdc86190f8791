"""Arithmetic with constants around convolutions and fully connected layers as parts of plans, and what networks end with."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

import fuseplan.torch as ft  # noqa: E402
from fuseplan.torch import _choice  # noqa: E402
from fuseplan.torch._report import Times  # noqa: E402
from torch import nn  # noqa: E402


def numbers(*shape):
    return nn.Parameter(torch.empty(shape).uniform_(0.5, 1.5), requires_grad=False)


def operators(fused):
    return [of.operators for of in fused.fuseplan_report.fused]


def targets(fused):
    return [str(node.target) for node in fused.graph.nodes if node.op == "call_function"]


def close(fused, model, *xs):
    for x in xs:
        torch.testing.assert_close(fused(x), model(x), rtol=1e-4, atol=1e-5)


class Trained(nn.Module):
    """Factors and shifts behind convolutions and activations, of one value and of one a channel, on either side."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(5, 19, 3, padding=1)
        self.second = nn.Conv2d(19, 19, 3, padding=1, groups=19)
        self.third = nn.Conv2d(19, 7, 1)
        for name, shape in dict(a=(1,), b=(1,), c=(), d=(19, 1, 1), e=(1, 19, 1, 1), f=(1, 1, 1), g=(1, 7, 1, 1)).items():
            setattr(self, name, numbers(*shape))

    def forward(self, x):
        x = self.first(x) * self.a + self.b
        x = self.c * nn.functional.hardswish(x) - self.d
        x = nn.functional.hardswish((self.e - self.second(x)) / 1.5) * self.f
        return torch.clip(self.third(x) * 0.2 + self.g, 0.0, 1.0)


@torch.no_grad()
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_factors_and_shifts_are_parts_of_plans(layout):
    torch.manual_seed(0)
    model, x = Trained().eval(), torch.randn(2, 5, 9, 11).to(memory_format=layout)
    fused = ft.optimize(model, x, choose="all")
    assert operators(fused) == [
        ("conv", "bias", "hardswish", "batch_norm eps=0.0"),
        ("conv", "bias", "hardswish", "batch_norm eps=0.0"),
        ("conv", "bias", "clamp min=0.0 max=1.0"),
    ]
    assert set(targets(fused)) <= {"fuseplan.chain.default", "aten.contiguous.default"}
    close(fused, model, x, torch.randn(2, 5, 9, 11))
    assert all(of.max < 1e-4 for of in ft.compare(model, fused, x))


class Written(nn.Module):
    """Hard swishes and a hard sigmoid by sums and products with tensors of one number, as converters from ONNX write them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(5, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.third = nn.Conv2d(16, 7, 1)
        for name, number in dict(three=3.0, six=6.0, sixth=1 / 6, low=0.5, factor=1.25, shift=-0.5).items():
            self.register_buffer(name, torch.tensor([number] if name in ("six", "factor") else number))

    def forward(self, x):
        x = self.first(x)
        x = self.factor * (x * (x + self.three).clamp(0.0, 6.0) / self.six) + self.shift
        x = self.second(x)
        x = (nn.functional.relu6(self.three + x) * x * self.sixth).sub(self.shift)
        return torch.clip(self.third(x) * self.sixth + self.low, 0.0, 1.0)


@torch.no_grad()
def test_activations_are_written_with_tensors_of_one_number():
    torch.manual_seed(0)
    model, x = Written().eval(), torch.randn(2, 5, 9, 11) * 4
    fused = ft.optimize(model, x, choose="all")
    assert operators(fused) == [
        ("conv", "bias", "hardswish", "batch_norm eps=0.0"),
        ("conv", "bias", "hardswish", "batch_norm eps=0.0"),
        ("conv", "bias", "hardsigmoid"),
    ]
    assert set(targets(fused)) <= {"fuseplan.chain.default", "aten.contiguous.default"}
    close(fused, model, x, torch.randn(2, 5, 9, 11))
    assert all(of.max < 1e-4 for of in ft.compare(model, fused, x))


@torch.no_grad()
@pytest.mark.parametrize("three", [torch.tensor([3.0], dtype=torch.float64), torch.full((1, 1, 1, 1, 1), 3.0), torch.tensor([3])])
def test_an_activation_has_the_type_and_shape_of_what_it_is_of(three):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(5, 16, 3)
            self.register_buffer("three", three)

        def forward(self, x):
            x = self.conv(x)
            return x * (x + self.three).clamp(0.0, 6.0) / 6.0

    torch.manual_seed(0)
    model, x = Net().eval(), torch.randn(2, 5, 9, 11)
    fused = ft.optimize(model, x, choose="all")
    assert operators(fused) == [("conv", "bias")] and fused(x).dtype == model(x).dtype
    close(fused, model, x)


@torch.no_grad()
@pytest.mark.parametrize("layer, x", [(nn.Conv2d(4, 8, 1), torch.randn(1, 4, 5, 6)), (nn.Linear(4, 8), torch.randn(3, 4))])
def test_a_number_that_the_network_writes_is_no_constant(layer, x):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer
            self.register_buffer("scale", torch.tensor([2.0]))

        def forward(self, x):
            y = self.layer(x) * self.scale
            self.scale.add_(1)
            return y

    model = Counting().eval()
    fused, other = ft.optimize(model, x, choose="all"), copy.deepcopy(model)
    assert model.scale == 2
    for _ in range(3):
        torch.testing.assert_close(fused(x), other(x), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_batch_norm_behind_a_transposition_keeps_pytorchs_strides():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.norm = nn.Linear(16, 24), nn.BatchNorm1d(24)
            nn.init.uniform_(self.norm.running_mean), nn.init.uniform_(self.norm.running_var, 0.5, 2)

        def forward(self, x):
            return self.norm(self.layer(x).transpose(1, 2))

    model, x = Net().eval(), torch.randn(3, 7, 16)
    fused = ft.optimize(model, x, choose="all")
    close(fused, model, x)
    assert fused(x).stride() == model(x).stride()


@torch.no_grad()
def test_a_bias_that_a_factor_makes_too_large_stays():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(32, 4)
            nn.init.constant_(self.layer.weight, -1000.0), nn.init.constant_(self.layer.bias, 40000.0)

        def forward(self, x):
            return self.layer(x) * 4.0

    model, x = Net().eval().half(), torch.full((2, 32), 1.24).half()
    assert model(x).isfinite().all()
    close(ft.optimize(model, x, choose="all"), model, x)


@torch.no_grad()
def test_sixteen_bits_are_no_farther_from_the_exact_result():
    torch.manual_seed(0)
    model, x = Trained().eval().bfloat16(), torch.randn(1, 5, 9, 11).bfloat16()
    fused, eager = ft.optimize(model, x, choose="all"), model(x).double()
    expected = model.double()(x.double())
    error, of_eager = ((y - expected).abs().max() for y in (fused(x).double(), eager))
    assert error <= max(1.5 * of_eager, 1e-2)


@torch.no_grad()
def test_what_is_no_constant_of_a_chain_stays():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(4, 6, 3, padding=1)
            self.scale, self.image, self.row = numbers(1), numbers(8, 8), numbers(1, 1, 1, 8)

        def forward(self, x, s):
            x = self.conv(x * self.scale)
            y = x * 2.0 + x.sin()
            return [y, self.conv(x.cos()) * s, self.conv(x.abs()) * self.image, self.conv(-x) * self.row, 1.0 / self.conv(x * x)]

    torch.manual_seed(0)
    model, x, s = Net().eval(), torch.randn(1, 4, 8, 8), torch.tensor(1.25)
    model.conv = nn.Conv2d(4, 4, 3, padding=1)
    fused = ft.optimize(model, (x, s), choose="all")
    assert "batch_norm" not in str(targets(fused)) + str(operators(fused))
    for found, expected in zip(fused(x, s), model(x, s), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_gate_is_one_pass():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.gate = nn.Conv2d(4, 8, 1), nn.Conv2d(8, 8, 1)

        def forward(self, x):
            x = self.conv(x)
            return x + torch.sigmoid(self.gate(x.mean((2, 3), keepdim=True))) * x

    torch.manual_seed(0)
    model, x = Gated().eval(), torch.randn(1, 4, 6, 7)
    fused = ft.optimize(model, x, choose="all")
    assert operators(fused)[1] == ("conv", "bias", "sigmoid", "batch_norm eps=0.0")
    assert targets(fused).count("aten.mul.Tensor") == 1 and "aten.add.Tensor" not in targets(fused)
    close(fused, model, x)
    assert all(of.max < 1e-5 for of in ft.compare(model, fused, x))
    assert targets(ft.optimize(model, x, choose="all", math="strict")).count("aten.add.Tensor") == 1


@torch.no_grad()
@pytest.mark.parametrize("bias", [True, False])
def test_transposed_convolutions_take_what_follows(bias):
    class Up(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.up = nn.Conv2d(4, 6, 3), nn.ConvTranspose2d(6, 5, 2, 2, bias=bias)
            self.shift, self.norm = numbers(1, 5, 1, 1), nn.BatchNorm2d(5)
            nn.init.uniform_(self.norm.running_mean), nn.init.uniform_(self.norm.running_var, 0.5, 2)
            self.groups = nn.ConvTranspose2d(5, 10, 3, groups=5)

        def forward(self, x):
            return self.groups(torch.relu(self.norm(self.up(self.conv(x)) + self.shift))) * 3.0

    torch.manual_seed(0)
    model, x = Up().eval(), torch.randn(2, 4, 6, 7)
    fused = ft.optimize(model, x, choose="all")
    assert "batch_norm" not in str(targets(fused)) and "aten.add.Tensor" not in targets(fused)
    close(fused, model, x)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.first, self.norm = nn.Conv2d(3, 8, 3), nn.Linear(8, 33), nn.BatchNorm1d(33)
        self.second = nn.Linear(33, 5, bias=False)
        nn.init.uniform_(self.norm.running_mean), nn.init.uniform_(self.norm.running_var, 0.5, 2)

    def forward(self, x):
        x = self.conv(x).mean((2, 3))
        return self.second(torch.relu(self.norm(self.first(x))))


@torch.no_grad()
def test_what_networks_end_with_stays_pytorchs_where_that_is_faster(monkeypatch):
    """The layer as PyTorch has it, not the convolution that it would be as a plan, and is timed so."""
    torch.manual_seed(0)
    last = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(), nn.Linear(8, 5))
    model, x, timed = nn.Sequential(nn.Conv2d(3, 8, 3), *last).eval(), torch.randn(2, 3, 6, 7), []

    def times(plan, own, device):
        timed.append((plan(), own()))
        return Times(2.0, 1.0)

    monkeypatch.setattr(_choice, "_times", times)
    fused = ft.optimize(model, x, choose="measure", memory_format=torch.preserve_format)
    assert not fused.fuseplan_report.fused and len(fused.fuseplan_report.unfused) == len(timed) == 2
    for of_plan, own in timed:
        torch.testing.assert_close(of_plan, own, rtol=1e-5, atol=1e-5)
    assert targets(fused).count("aten.conv2d.default") == 1
    close(copy.deepcopy(fused), model, x)


@torch.no_grad()
def test_a_batch_norm_behind_a_fully_connected_layer_is_folded():
    torch.manual_seed(0)
    model, x = Classifier().eval(), torch.randn(1, 3, 6, 7)
    fused = ft.optimize(model, x, choose="all")
    assert operators(fused)[1:] == [("linear", "bias", "relu"), ("linear",)]
    assert "aten.linear.default" not in targets(fused)
    y = fused(x)
    assert y.shape == (1, 5) and y.is_contiguous()
    close(fused, model, x)
    assert all(of.max < 1e-5 for of in ft.compare(model, fused, x))
    # A change of the weights is seen, as of other constants.
    fused.get_parameter("second.weight").mul_(2)
    torch.testing.assert_close(fused(x), 2 * y)


@torch.no_grad()
def test_a_fully_connected_layer_is_timed_beside_pytorchs():
    model, x = Classifier().eval(), torch.randn(1, 3, 6, 7)
    fused = ft.optimize(model, x, choose="measure")
    assert len(fused.fuseplan_report.fused) + len(fused.fuseplan_report.unfused) == 3
    close(fused, model, x)
