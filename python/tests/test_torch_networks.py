"""Networks whose chains are found and replaced."""

import concurrent.futures
import copy
import functools
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

import fuseplan.torch as ft  # noqa: E402
from fuseplan.torch import _choice, _export, _handles, _rewrite  # noqa: E402
from torch import nn  # noqa: E402

sys.path.append(str(Path(__file__).parents[2] / "benches"))
import torch_operators  # noqa: E402


def settle(model):
    """Statistics and scales that are not those of a new network, so that folding them matters."""
    torch.manual_seed(1)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.1)
    return model.eval()


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding="same")
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.act(self.norm(self.first(x)))
        return self.act(self.second(y) + x)


@torch.no_grad()
def test_code_reads_the_buffers_that_the_module_has_now():
    fused, x = ft.optimize(settle(Residual()), torch.randn(2, 8, 6, 6), choose="all"), torch.randn(2, 8, 6, 6)
    assert "self._buffers['fuseplan_weight_0']" in fused.code
    expected, twin = fused(x), copy.deepcopy(fused)
    twin.fuseplan_weight_0.zero_()
    assert not torch.equal(twin(x), expected) and torch.equal(fused(x), expected)
    twin.fuseplan_weight_0 = fused.fuseplan_weight_0
    assert torch.equal(twin(x), expected)
    exported = torch.export.export(fused, (x,)).module()
    torch.testing.assert_close(exported(x), expected)


@torch.no_grad()
def test_a_residual_block():
    model = settle(Residual())
    x = torch.randn(2, 8, 6, 6)
    fused = ft.optimize(model, x, choose="all")
    assert [f.operators for f in fused.fuseplan_report.fused] == [
        ("conv", "bias", "relu"),
        ("conv", "bias", "residual", "relu"),
    ]
    assert not fused.fuseplan_report.unfused
    assert "2 of 2 convolutions are plans" in str(fused.fuseplan_report)
    torch.testing.assert_close(fused(x), model(x), rtol=1e-5, atol=1e-5)
    assert not [n for n in fused.graph.nodes if "conv" in str(n.target) or "norm" in str(n.target)]
    # What was folded is gone.
    assert sorted(name for name, _ in fused.named_parameters()) == ["second.bias", "second.weight"]


@torch.no_grad()
def test_threads_optimize_at_once():
    model = settle(Residual())
    x = torch.randn(2, 8, 6, 6)
    expected = ft.optimize(model, x, choose="all")(x)

    def work(own):
        return [ft.optimize(own, x, choose="all") for _ in range(3)]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        networks = [of for made in pool.map(work, [copy.deepcopy(model) for _ in range(4)]) for of in made]
    assert all(torch.equal(of(x), expected) for of in networks)


@torch.no_grad()
@pytest.mark.parametrize("exported", [torch.contiguous_format, torch.channels_last])
def test_another_layout_than_the_example_has(exported):
    model = settle(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5)))
    x = torch.randn(2, 8, 6, 6)
    fused = ft.optimize(model, x.to(memory_format=exported), choose="all")
    for called in [torch.contiguous_format, torch.channels_last]:
        y = x.to(memory_format=called)
        torch.testing.assert_close(fused(y), model(y), rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("choose", ["all", "measure"])
def test_weights_of_another_layout_than_the_image(choose):
    """The result lies as the model's own does, which PyTorch computes channels-last where weights are."""
    model = settle(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.SiLU()))
    model.to(memory_format=torch.channels_last)
    x = torch.randn(2, 8, 6, 6)
    fused = ft.optimize(model, x, choose=choose)
    for image in (x, x.to(memory_format=torch.channels_last)):
        y, expected = fused(image), model(image)
        torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
        assert y.stride() == expected.stride() and y.is_contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def test_layouts_are_those_of_a_run(monkeypatch):
    """Exporting may expect other strides than an operator gives."""
    library = torch.library.Library("fuseplan_test", "DEF")
    library.define("last(Tensor x) -> Tensor")
    library.impl("last", lambda x: x.clone(memory_format=torch.channels_last), "CPU")
    library.impl("last", lambda x: x.clone(memory_format=torch.contiguous_format), "Meta")

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(8, 8, 3)

        def forward(self, x, *, scale, shift):
            return self.conv(torch.ops.fuseplan_test.last(x) * scale) + shift

    timed = []

    def times(plan, own, device):
        timed.extend(call() for call in (plan, own))
        return ft.Times(1e-6, 1e-6)

    monkeypatch.setattr(_choice, "_times", times)
    given = {"shift": torch.ones(1), "scale": torch.full((1,), 2.0)}
    x = torch.randn(2, 8, 6, 6)
    model = Net().eval()
    fused = ft.optimize(model, (x,), given)
    assert [of.is_contiguous(memory_format=torch.channels_last) for of in timed] == [True, True]
    torch.testing.assert_close(fused(x, **given), model(x, **given), rtol=1e-5, atol=1e-5)


class Written(nn.Module):
    """Convolutions with operators that write to what they read; `also` reads it besides."""

    def __init__(self, also):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(2))
        self.also = also

    def forward(self, x):
        first = nn.functional.relu(self.norms[0](self.convs[0](x)), inplace=True)
        y = self.norms[1](self.convs[1](first))
        y += first
        return self.also(y, x, first)


PLAIN = {
    "results": (lambda y, x, first: nn.functional.relu_(y), True),
    "flattened": (lambda y, x, first: torch.flatten(nn.functional.adaptive_avg_pool2d(nn.functional.silu(y, inplace=True), 1), 1), True),
    "a view": (lambda y, x, first: torch.flatten(y, 1).relu_(), False),
    "an input": (lambda y, x, first: x.relu_() + y, False),
    "read after": (lambda y, x, first: y.flatten(1) + y.relu_().flatten(1), False),
    "read before by a view": (lambda y, x, first: (y.view(-1, 4).transpose(0, 1), y.relu_()), False),
    "dropped": (lambda y, x, first: nn.functional.dropout(y, 0.5, training=False), True),
    "by a slice": (lambda y, x, first: torch.cat([y[:, :2].relu_(), y], 1), False),
}


@pytest.mark.parametrize("name", PLAIN)
@torch.no_grad()
def test_plain_networks_are_traced_once(name, monkeypatch):
    also, is_plain = PLAIN[name]
    traced = []
    again = torch.export.ExportedProgram.run_decompositions

    def decompose(self, *rest, **named):
        traced.append(self)
        return again(self, *rest, **named)

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", decompose)
    model = settle(Written(also))
    x = torch.randn(2, 4, 5, 5)
    fused = ft.optimize(model, x.clone(), choose="all")
    assert (not traced) == is_plain
    mine, own = x.clone(), x.clone()
    expected = model(own)
    torch.testing.assert_close(fused(mine), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(mine, own)
    # The second's sum is as a view, or is written to by one.
    assert [of.operators for of in fused.fuseplan_report.fused][0] == ("conv", "bias", "relu")
    assert not fused.fuseplan_report.unfused
    if is_plain:
        assert fused.fuseplan_report.fused[1].operators[:3] == ("conv", "bias", "residual")
        assert not [node for node in fused.graph.nodes if "_." in str(node.target)]


@torch.no_grad()
def test_what_was_dropped_is_what_was_read():
    """In memory as well: PyTorch's decomposition would make a copy of it, which is not written to with it."""
    dropout = functools.partial(nn.functional.dropout, training=False)
    for also in (lambda y, *_: dropout(y).relu_() + y, lambda y, *_: (dropout(y) + 1, y.relu_())):
        model, x = settle(Written(also)), torch.randn(2, 4, 5, 5)
        assert not _export._is_plain(torch.export.export(model, (x,)).graph)
        fused = ft.optimize(model, x, choose="all")
        torch.testing.assert_close(fused(x), model(x), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_sum_in_place_keeps_its_type():
    class Sum(nn.Module):
        def forward(self, x, y):
            return torch.relu(x).add_(y)

    x = torch.randn(2, 3)
    for y, is_plain in ((x, True), (x.double(), False)):
        assert _export._is_plain(torch.export.export(Sum().eval(), (x, y)).graph) == is_plain
        assert ft.optimize(Sum().eval(), (x, y))(x, y).dtype == torch.float32


@torch.no_grad()
def test_chains_that_are_alike_have_one_example(monkeypatch):
    timed, examples, example = [], [], _choice._example

    def times(plan, own, device):
        timed.append(plan().shape)
        return ft.Times(1e-6, 1e-6)

    def made(node, *rest):
        examples.append(node)
        return example(node, *rest)

    monkeypatch.setattr(_choice, "_times", times)
    monkeypatch.setattr(_choice, "_example", made)
    model = nn.Sequential(*(nn.Conv2d(4, 4, 3, padding=1) for _ in range(3)), nn.Conv2d(4, 6, 1)).eval()
    x = torch.randn(1, 4, 5, 5).to(memory_format=torch.channels_last)
    assert len(ft.optimize(model, x).fuseplan_report.fused) == 4
    # An image, a weight and a bias each.
    assert timed == [(1, 4, 5, 5), (1, 6, 5, 5)] and len(examples) == 6


# The last is a plan that a busy machine lets wait now and then.
@pytest.mark.parametrize("of_plan, bursts", [([1.0], 25), ([1.25], 25), ([1.35], 25), ([0.7], 5), ([0.7, 0.7, 0.9], 25)])
def test_timing_ends_where_a_plan_is_clearly_faster(monkeypatch, of_plan, bursts):
    def plan(): ...

    def own(): ...

    class Bursts:
        def __init__(self, device): ...

        def __call__(self, call, count):
            calls.append(call)
            return of_plan[len(calls) // 2 % len(of_plan)] if call is plan else 1.0

    calls = []
    monkeypatch.setattr(_choice, "_Bursts", Bursts)
    monkeypatch.setattr(_choice, "_ENOUGH", float("inf"))
    times = _choice._times(plan, own, torch.device("cpu"))
    assert (times.plan, times.torch) == (min(of_plan), 1.0)
    # Two of each find out how many calls a burst has.
    assert [calls.count(plan), calls.count(own)] == [bursts + 2] * 2


@torch.no_grad()
def test_activations_and_sums_of_every_kind():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.ModuleList(nn.Conv2d(4, 4, 1) for _ in range(9))
            self.norm = nn.BatchNorm2d(4)

        def forward(self, x):
            a = [conv(x) for conv in self.convs]
            y = nn.functional.leaky_relu(a[0], 0.3) + nn.functional.hardtanh(a[1], -1, 2)
            y = y + a[2] * torch.sigmoid(a[2]) + nn.functional.gelu(a[3], approximate="tanh")
            y = y + nn.functional.elu(a[4], 0.7) + torch.clamp(a[5], -0.5, 0.5) + self.norm(torch.relu(a[6]))
            # A scalar is part of a bias; a sum that is not element by element is no part of a plan.
            return y + (a[7] + 1) + (a[8] + x.mean((2, 3), keepdim=True))

    model = settle(Net())
    x = torch.randn(2, 4, 5, 5)
    fused = ft.optimize(model, x, choose="all")
    report = fused.fuseplan_report
    assert len(report.fused) == 9 and not report.unfused
    found = [" ".join(fused.operators) for fused in report.fused]
    for words in ("leaky_relu slope=0.3", "clamp min=-1.0 max=2.0", "silu", "gelu_tanh", "elu alpha=0.7", "batch_norm eps=1e-05"):
        assert any(words in operators for operators in found), words
    assert found[7] == "conv bias" and "computed by the chain of its other operand" in report.fused[7].end
    assert "not a constant" in report.fused[8].end
    torch.testing.assert_close(fused(x), model(x), rtol=1e-5, atol=1e-5)


# Activations as authors write them, with what they are.
SPELLED = {
    "x * relu6(x + 3) / 6": (lambda x: x * nn.functional.relu6(x + 3) / 6, "hardswish"),
    "x * (clamp(3 + x) / 6)": (lambda x: x * (torch.clamp(3 + x, 0, 6) / 6), "hardswish"),
    "x * relu6(x + 3) * (1 / 6)": (lambda x: x * nn.functional.hardtanh(x + 3, 0, 6) * (1 / 6), "hardswish"),
    "relu6(x + 3) / 6": (lambda x: nn.functional.relu6(x + 3) / 6, "hardsigmoid"),
    "x * sigmoid(x)": (lambda x: x * torch.sigmoid(x), "silu"),
    "x * tanh(softplus(x))": (lambda x: x * torch.tanh(nn.functional.softplus(x)), "mish"),
    "gelu by erf": (lambda x: x * 0.5 * (1.0 + torch.erf(x / 2**0.5)), "gelu"),
    "gelu by tanh": (lambda x: 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * torch.pow(x, 3)))), "gelu_tanh"),
    "maximum(x, x / 5)": (lambda x: torch.maximum(x, 0.2 * x), "leaky_relu"),
    # No plan has these.
    "x * sigmoid(1.702 x)": (lambda x: x * torch.sigmoid(1.702 * x), "bias"),
    "x * relu6(x + 3)": (lambda x: x * nn.functional.relu6(x + 3), "bias"),
}


@pytest.mark.parametrize("name", SPELLED)
@pytest.mark.parametrize("kind", ["conv", "linear"])
@torch.no_grad()
def test_activations_that_are_spelled_out(kind, name):
    written, expected = SPELLED[name]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Conv2d(4, 6, 1) if kind == "conv" else nn.Linear(5, 6)

        def forward(self, x):
            return written(self.layer(x))

    torch.manual_seed(0)
    model, x = Net().eval(), 3 * torch.randn(2, 4, 3, 5)
    fused = ft.optimize(model, x, choose="all")
    assert fused.fuseplan_report.fused[0].operators[-1].split()[0] == expected
    torch.testing.assert_close(fused(x), model(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_prelu_with_one_slope_a_channel_and_with_one_for_all(dtype):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.ModuleList([nn.Conv2d(4, 6, 3, padding=1), nn.Conv2d(6, 6, 1), nn.Conv2d(6, 6, 1)])
            self.each, self.one = nn.PReLU(6), nn.PReLU(1)
            nn.init.normal_(self.each.weight)

        def forward(self, x):
            y = self.each(self.convs[0](x))
            y = self.one(self.convs[1](y) + y)
            # Slopes that a network computes are no constants.
            return nn.functional.prelu(self.convs[2](y), y.mean((0, 2, 3)))

    model = Net().to(dtype).eval()
    x = torch.randn(2, 4, 5, 5, dtype=dtype)
    fused = ft.optimize(model, x, choose="all")
    report = fused.fuseplan_report
    assert [fused.operators for fused in report.fused] == [
        ("conv", "bias", "prelu"),
        ("conv", "bias", "residual", "prelu"),
        ("conv", "bias"),
    ]
    assert report.fused[2].end.endswith("not a constant; accepted: a constant of 6 values, one a channel, or of one")
    expected, eager = model.double()(x.double()), model.to(dtype)(x).double()
    error, of_eager = ((y - expected).abs().max().item() for y in (fused(x).double(), eager))
    assert error <= max(1.5 * of_eager, 1e-6), (error, of_eager)


@torch.no_grad()
def test_what_no_plan_takes_stays_with_its_reason():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).double().eval()
    x = torch.randn(1, 3, 6, 6, dtype=torch.float64)
    fused = ft.optimize(model, x, choose="all")
    assert not fused.fuseplan_report.fused
    assert "f64" in fused.fuseplan_report.unfused[0].reason
    torch.testing.assert_close(fused(x), model(x))


@torch.no_grad()
def test_one_value_that_is_read_twice_and_in_place_operators():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 1)

        def forward(self, x):
            y = self.conv(x)
            z = y.relu_()
            x = x + 1
            x.mul_(2)
            return self.conv(x).add_(y), z

    model, x = Net().eval(), torch.randn(1, 4, 5, 5)
    expected = model(x.clone())
    fused = ft.optimize(model, x, choose="all")
    assert len(fused.fuseplan_report.fused) == 2
    torch.testing.assert_close(fused(x), expected)


def test_training_is_refused():
    with pytest.raises(TypeError, match="of type str; accepted: a torch.nn.Module"):
        ft.optimize("model", torch.zeros(1))
    with pytest.raises(ValueError, match="eval"):
        ft.optimize(nn.Conv2d(1, 1, 1), torch.zeros(1, 1, 2, 2))


@torch.no_grad()
def test_compiled_exported_and_with_another_batch():
    torch._dynamo.reset()
    model = settle(Residual())
    x = torch.randn(2, 8, 6, 6)
    fused = ft.optimize(model, x, dynamic_shapes=({0: torch.export.Dim("n", min=1, max=64)},), choose="all")
    larger = torch.randn(5, 8, 6, 6)
    torch.testing.assert_close(fused(larger), model(larger), rtol=1e-5, atol=1e-5)
    again = torch.export.export(fused, (x,)).module()
    torch.testing.assert_close(again(x), model(x), rtol=1e-5, atol=1e-5)


# Of each network: how many convolutions it has, which are chains all, and how many of these end with which operator, by the
# networks' definitions; those that end with neither activation nor sum are followed by something else or read twice.
NETWORKS = {
    "resnet18": (20, {"relu": 17}),
    "resnext50_32x4d": (53, {"relu": 49}),
    "mobilenet_v2": (52, {"relu6": 35, "residual": 10}),
    "mobilenet_v3_large": (62, {"hardswish": 20, "relu": 19, "hardsigmoid": 8, "residual": 10}),
    "squeezenet1_1": (26, {"relu": 26}),
    "vgg11_bn": (8, {"relu": 8}),
    "googlenet": (57, {"relu": 57}),
    "shufflenet_v2_x1_0": (56, {"relu": 37}),
    "densenet121": (120, {"relu": 59}),
    "mnasnet1_0": (52, {"relu": 35, "residual": 10}),
    "regnet_y_400mf": (85, {"relu": 65, "sigmoid": 16}),
    "efficientnet_b0": (81, {"silu": 49, "sigmoid": 16, "residual": 9}),
}
# What the fully connected layers of classifiers end with; one layer that nothing follows where a network is not named.
LAYERS = {
    "squeezenet1_1": [],
    "vgg11_bn": ["relu", "relu", "bias"],
    "mobilenet_v3_large": ["hardswish", "bias"],
}
# In f32 a layer of the mean of the last image that nothing follows is a convolution.
HEADS = {"squeezenet1_1": 0, "vgg11_bn": 0, "mobilenet_v3_large": 0}
# In f32 all that there is is one run.
WHOLE_RUNS = ["mobilenet_v3_large", "regnet_y_400mf", "efficientnet_b0"]
# Sums that an activation follows.
SUMS = {"resnet18": 8, "resnext50_32x4d": 16, "regnet_y_400mf": 16}
ROUNDED = ["resnet18", "mobilenet_v2", "mobilenet_v3_large", "squeezenet1_1"]


@pytest.mark.parametrize(
    "name, dtype", [*((name, torch.float32) for name in NETWORKS), *((name, torch.bfloat16) for name in ROUNDED)]
)
@torch.no_grad()
def test_networks_of_torchvision(name, dtype):
    torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed", exc_type=ImportError)
    torch.manual_seed(0)
    # GoogLeNet's own way to begin takes a minute.
    options = {"init_weights": False} if name == "googlenet" else {}
    model = settle(torchvision.models.get_model(name, weights=None, **options))
    x = torch.randn(1, 3, 96, 96)
    expected = model.double()(x.double())
    model = model.to(dtype).to(memory_format=torch.channels_last)
    x = x.to(dtype).to(memory_format=torch.channels_last)
    eager = model(x).double()
    fused = ft.optimize(model, x, choose="all")
    report = fused.fuseplan_report
    count, ends = NETWORKS[name]
    convolutions = [of for of in report.fused if of.operators[0] == "conv"]
    head = HEADS.get(name, 1) if dtype == torch.float32 else 0
    assert len(convolutions) == count + head and not report.unfused, str(report)
    layers = [of for of in report.fused if of.operators[0] == "linear"]
    assert [of.operators[-1].split()[0] for of in layers] == ([] if head == 1 else LAYERS.get(name, ["bias"])), str(report)
    if name in WHOLE_RUNS and dtype == torch.float32 and _handles.openmp_looks_for_work():
        assert fused.code.count("fuseplan_run(") == 1, fused.code
    found = Counter(of.operators[-1].split()[0] for of in convolutions)
    assert {end: number for end, number in found.items() if end not in ("conv", "bias")} == ends, str(report)
    sums = sum("residual" in of.operators for of in report.fused)
    assert sums == SUMS.get(name, ends.get("residual", 0)), str(report)
    # Nothing that a plan could have taken is left beside the convolutions.
    left = {str(node.target) for node in fused.graph.nodes}
    assert not left & {"aten.conv2d.default", "aten.convolution.default", "aten.linear.default", "aten.add.Tensor"}
    if dtype == torch.float32:
        # What is left does not depend on the image's size in these.
        assert torch_operators.row(name, model, fused, x) == torch_operators.written(name)
    # No farther from the sum in f64 than PyTorch is, which rounds between the operators.
    error, of_eager = ((y - expected).abs().max().item() for y in (fused(x).double(), eager))
    assert error <= max(1.5 * of_eager, 1e-5 * expected.abs().max().item()), (error, of_eager)


@pytest.mark.parametrize("name", ["convnext_tiny", "vit_b_32"])
def test_what_of_networks_with_layer_norms_is_in_plans(name):
    pytest.importorskip("torchvision", reason="torchvision is not installed", exc_type=ImportError)
    assert torch_operators.made(name) == torch_operators.written(name)


def test_each_operator_that_stays_has_its_reason():
    table, reasons = torch_operators.PAGE.read_text().split("## Why they stay")
    rows = [line.split("|")[5] for line in table.splitlines() if line.startswith("| `")]
    assert len(rows) == len(torch_operators.NETWORKS)
    named = {name for line in reasons.splitlines() if line.startswith("| ") for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} <= named


def test_plans_are_compiled_before_they_are_called():
    program = """if True:
        import sys, torch, fuseplan.torch
        from torch import nn
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, bias=False), nn.Conv2d(8, 4, 1))
        x = torch.randn(2, 3, 12, 12)
        with torch.no_grad():
            fused = fuseplan.torch.optimize(net.eval(), x, choose="all")
            print("called", file=sys.stderr, flush=True)
            fused(x)
    """
    environment = {**os.environ, "MIOPEN_LOG_LEVEL": "5"}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    before, after = (re.findall(r"compile solver=\S+ cache=(\w+)", part) for part in run.stderr.split("called\n"))
    assert before == ["solver"] * 3 and after == ["memory"] * 3, run.stderr
