"""Fully connected layers as plans: the operator, networks, and what of them no plan takes."""

import io

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

import fuseplan.torch as ft  # noqa: E402
from torch import nn  # noqa: E402

OP = torch.ops.fuseplan.chain.default
EPSILON = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


def bound(x, weight, bias, dtype, terms=2):
    """What a sum in f32 in any order, rounded once to the type, may be off by."""
    count = x.shape[-1] + terms
    sums = x.double().abs() @ weight.double().abs().T + bias.double().abs()
    return count * 2.0**-24 / (1 - count * 2.0**-24) * sums + EPSILON[dtype] * sums


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("shape", [(7,), (1, 7), (5, 33), (67, 20), (2, 3, 40), (2, 3, 5, 16), (1, 2, 1, 3, 9)])
@torch.no_grad()
def test_the_operator_on_tensors_of_every_rank(shape, dtype):
    torch.manual_seed(0)
    x, weight, bias = (torch.randn(*of).to(dtype) for of in (shape, (11, shape[-1]), (11,)))
    residual = torch.randn(*shape[:-1], 11).to(dtype)
    for constant in (False, True):
        # The first call and one that is like it.
        for _ in range(2):
            y = OP(x, weight, [bias], "linear -> bias", constant)
            exact = x.double() @ weight.double().T + bias.double()
            assert y.dtype == dtype and y.is_contiguous() and y.shape == exact.shape
            assert ((y.double() - exact).abs() <= bound(x, weight, bias, dtype)).all()
            y = OP(x, weight, [bias, residual], "linear -> bias -> residual -> relu", constant)
            exact = torch.relu(exact + residual.double())
            own = bound(x, weight, bias, dtype) + 4 * EPSILON[dtype] * residual.double().abs()
            assert ((y.double() - exact).abs() <= own).all()


@torch.no_grad()
def test_whole_numbers_are_exact_in_views_with_gaps():
    torch.manual_seed(0)
    whole = torch.randint(-3, 4, (4, 6, 24)).float()
    weight = torch.randint(-3, 4, (10, 16)).float()
    views = {
        "columns of rows": whole[:, :, 4:20],
        "one row of each": whole[:, 2, 4:20],
        "every second": whole.flatten(0, 1)[::2, :16],
        "an image, channels last": whole[..., :16].permute(0, 2, 1)[..., None].to(memory_format=torch.channels_last).permute(0, 2, 3, 1),
    }
    for name, x in views.items():
        y = OP(x, weight, [], "linear -> relu")
        assert torch.equal(y, torch.relu(x @ weight.T)) and y.is_contiguous(), name
    residual = torch.randint(-3, 4, (4, 6, 30)).float()[:, :, 3:13]
    y = OP(whole[:, :, :16], weight, [residual], "linear -> residual", True)
    assert torch.equal(y, whole[:, :, :16] @ weight.T + residual)


@torch.no_grad()
def test_what_lies_in_no_rows_is_copied_and_what_fits_no_layer_refused():
    x, weight = torch.randint(-3, 4, (2, 6, 8)).float(), torch.randint(-3, 4, (4, 8)).float()
    for of in (x.transpose(0, 1)[:4].transpose(0, 1), torch.randint(-3, 4, (2, 8, 6)).float().transpose(1, 2)):
        residual = torch.randint(-3, 4, (of.shape[1], of.shape[0], 4)).float().transpose(0, 1)
        for _ in range(3):
            y = OP(of, weight, [residual], "linear -> residual", True)
            assert torch.equal(y, of @ weight.T + residual) and y.is_contiguous()
    with pytest.raises(ValueError, match=r"features\] and \[outputs"):
        OP(x, torch.randn(4, 7), [], "linear")
    with pytest.raises(ValueError, match="or linear"):
        OP(x, weight, [], "linear stride=1,1")


@torch.no_grad()
def test_what_pytorch_checks_of_operators():
    x, weight, bias = torch.randn(2, 5, 8), torch.randn(4, 8), torch.randn(4)
    for arguments in [
        (x, weight, [bias], "linear -> bias -> gelu"),
        (x[:, 1], weight, [bias], "linear math=strict -> bias", True),
        (x, weight, [torch.randn(2, 5, 4)], "linear -> residual"),
    ]:
        torch.library.opcheck(OP, arguments)


class Mixer(nn.Module):
    """What ConvNeXt and transformers have: a norm, two layers with GELU between them, a sum."""

    def __init__(self, features=16):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.up, self.down = nn.Linear(features, 4 * features), nn.Linear(4 * features, features, bias=False)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def operators(model):
    return [of.operators for of in model.fuseplan_report.fused]


@torch.no_grad()
def test_a_feed_forward_part():
    model, x = Mixer().eval(), torch.randn(2, 5, 16)
    fused = ft.optimize(model, x, choose="all")
    assert operators(fused) == [("linear", "bias", "gelu"), ("linear", "residual")]
    assert "2 of 2 fully connected layers are plans" in str(fused.fuseplan_report)
    assert not [node for node in fused.graph.nodes if "linear" in str(node.target)]
    torch.testing.assert_close(fused(x), model(x), rtol=1e-5, atol=1e-5)
    # Both calls are like those before.
    torch.testing.assert_close(fused(x), model(x), rtol=1e-5, atol=1e-5)
    comparison = ft.compare(model, fused, x)
    assert [of.operators for of in comparison.chains] == ["linear -> bias -> gelu", "linear -> residual"]
    assert all(of.max < 1e-5 for of in comparison)


@pytest.mark.parametrize("rest", ["optimize", "eager"])
@torch.no_grad()
def test_what_drops_nothing_is_not_there(rest):
    class Dropped(Mixer):
        def forward(self, x):
            hidden = nn.functional.dropout(nn.functional.gelu(self.up(self.norm(x))), 0.1, self.training)
            return torch.relu(x + nn.functional.dropout(self.down(hidden), 0.1, self.training))

    model, x, reports = Dropped().eval(), torch.randn(2, 5, 16), []
    if rest == "optimize":
        fused = ft.optimize(model, x, choose="all")
        reports.append(fused.fuseplan_report)
        left = [str(node.target) for node in fused.graph.nodes if node.op == "call_function"]
        assert left == ["aten.layer_norm.default", "fuseplan.chain.default", "fuseplan.chain.default"]
    else:
        fused = torch.compile(model, backend="fuseplan", options={"rest": rest, "choose": "all", "report": reports.append})
    torch.testing.assert_close(fused(x), model(x), rtol=1e-5, atol=1e-5)
    assert [of.operators for of in reports[0].fused] == [("linear", "bias", "gelu"), ("linear", "residual", "relu")]


@torch.no_grad()
def test_a_changed_weight_is_seen():
    model, x = nn.Sequential(nn.Linear(8, 4), nn.ReLU()).eval(), torch.randn(3, 8)
    fused = ft.optimize(model, x, choose="all")
    fused(x)
    model[0].weight.mul_(2)
    torch.testing.assert_close(fused(x), model(x), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_another_batch_and_saved():
    model, x = Mixer().eval(), torch.randn(2, 5, 16)
    fused = ft.optimize(model, x, dynamic_shapes=({0: torch.export.Dim("n", min=1, max=64)},), choose="all")
    assert len(operators(fused)) == 2
    for count in (1, 7):
        larger = torch.randn(count, 5, 16)
        torch.testing.assert_close(fused(larger), model(larger), rtol=1e-5, atol=1e-5)
    program = torch.export.export(fused, (x,), dynamic_shapes=({0: torch.export.Dim("n", min=2, max=64)},))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    again = torch.export.load(file).module()
    larger = torch.randn(9, 5, 16)
    torch.testing.assert_close(again(larger), model(larger), rtol=1e-5, atol=1e-5)


class Products(nn.Module):
    """The same layer, written in several ways."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(8, 6)), nn.Parameter(torch.randn(6))

    def forward(self, x):
        flat = x.reshape(-1, 8)
        a = torch.relu(torch.addmm(self.bias, flat, self.weight))
        b = torch.sigmoid(x @ self.weight + self.bias)
        c = torch.mm(flat, self.weight.t().contiguous().t())
        # Neither is a layer: the matrix is of this call, and the bias is a factor more.
        d = torch.matmul(x, x.transpose(1, 2))
        e = torch.addmm(self.bias, flat, self.weight, beta=2)
        return a, b, c, d, e


@torch.no_grad()
def test_products_with_constant_matrices_are_layers():
    model, x = Products().eval(), torch.randn(2, 5, 8)
    fused = ft.optimize(model, x, choose="all")
    assert operators(fused)[:2] == [("linear", "bias", "relu"), ("linear", "bias", "sigmoid")]
    for y, expected in zip(fused(x), model(x), strict=True):
        torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)


class Behind(nn.Module):
    """What follows a layer: a batch-norm and slopes of features, and those of what is no feature."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 6, bias=False) for _ in range(3))
        self.norm, self.slopes, self.of_second = nn.BatchNorm1d(6), nn.PReLU(6), nn.PReLU(6)

    def forward(self, x, y):
        a = self.slopes(self.norm(self.layers[0](x)))
        # Slopes are lined up by the second dimension, which has as many.
        b = self.of_second(self.layers[1](y))
        c = self.layers[2](y) + y.mean(2, keepdim=True)
        return a, b, c


@torch.no_grad()
def test_features_are_the_channels():
    model = Behind().eval()
    model.norm.running_mean.normal_()
    model.norm.running_var.uniform_(0.5, 2)
    nn.init.normal_(model.slopes.weight)
    nn.init.normal_(model.of_second.weight)
    given = torch.randn(3, 8), torch.randn(2, 6, 8)
    fused = ft.optimize(model, given, choose="all")
    assert operators(fused) == [("linear", "bias", "prelu"), ("linear",), ("linear",)]
    assert "one a channel" in fused.fuseplan_report.fused[1].end
    for y, expected in zip(fused(*given), model(*given), strict=True):
        torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_features_of_an_image_that_lies_otherwise_stay():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 4)

        def forward(self, x):
            return self.layer(x.permute(0, 2, 3, 1))

    model, x = Net().eval(), torch.randn(2, 8, 3, 3)
    fused = ft.optimize(model, x, choose="all")
    assert not fused.fuseplan_report.fused
    assert "features side by side, in rows at one distance" in fused.fuseplan_report.unfused[0].reason
    assert "0 of 1 fully connected layers are plans" in str(fused.fuseplan_report)
    last = x.to(memory_format=torch.channels_last)
    fused = ft.optimize(model, last, choose="all")
    assert operators(fused) == [("linear", "bias")]
    torch.testing.assert_close(fused(last), model(last), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_convnext():
    torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed", exc_type=ImportError)
    torch.manual_seed(0)
    model = torchvision.models.convnext_tiny(weights=None).eval()
    x = torch.randn(1, 3, 64, 64)
    fused = ft.optimize(model, x, choose="all")
    # 18 blocks of a convolution and two layers; the stem, three that halve, and the classifier.
    found = [of.operators for of in fused.fuseplan_report.fused]
    assert not fused.fuseplan_report.unfused
    assert found.count(("linear", "bias", "gelu")) == found.count(("linear", "bias", "residual")) == 18
    assert found.count(("linear", "bias")) == 1
    assert sum(of[0] == "conv" for of in found) == 22
    expected, eager = model.double()(x.double()), model.float()(x).double()
    error, of_eager = ((y - expected).abs().max().item() for y in (fused(x).double(), eager))
    assert error <= max(1.5 * of_eager, 1e-5 * expected.abs().max().item()), (error, of_eager)


@pytest.mark.parametrize("rest", ["eager", "inductor"])
@torch.no_grad()
def test_under_compile(rest):
    torch._dynamo.reset()
    reports = []
    model, x = Mixer().eval(), torch.randn(2, 5, 16)
    options = {"choose": "all", "rest": rest, "report": reports.append}
    compiled = torch.compile(model, backend="fuseplan", options=options)
    for count in (2, 3, 6):
        x = torch.randn(count, 5, 16)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
    assert [of.operators for of in reports[0].fused] == [("linear", "bias", "gelu"), ("linear", "residual")]
    model.up.weight.mul_(2)
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_measured_layers_stay_pytorchs_where_these_are_faster(monkeypatch):
    from fuseplan.torch import _choice

    for plan, count in ((1e-6, 2), (3e-6, 0)):
        timed = []

        def times(call, own, device, plan=plan, timed=timed):
            timed.extend((call(), own()))
            return ft.Times(plan, 2e-6)

        monkeypatch.setattr(_choice, "_times", times)
        model, x = Mixer().eval(), torch.randn(2, 5, 16)
        fused = ft.optimize(model, x)
        assert len(operators(fused)) == count and len(fused.fuseplan_report.unfused) == 2 - count
        for mine, own in zip(timed[::2], timed[1::2], strict=True):
            torch.testing.assert_close(mine, own, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(fused(x), model(x), rtol=1e-5, atol=1e-5)
