"""What follows fully connected layers by factors and through permutations, as layers of channels-last images have it."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

import fuseplan.torch as ft  # noqa: E402
from torch import nn  # noqa: E402


def operators(fused):
    return [of.operators for of in fused.fuseplan_report.fused]


def targets(fused):
    return [str(node.target) for node in fused.graph.nodes if node.op == "call_function"]


def image(*shape, last=True):
    x = torch.randn(*shape)
    return x.to(memory_format=torch.channels_last) if last else x


class Reads(nn.Module):
    """A layer of an image's channels, with what a function computes behind it."""

    def __init__(self, behind, bias=True, features=12):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.behind = nn.Linear(8, features, bias=bias), behind
        self.scale = nn.Parameter(torch.empty(features).uniform_(0.5, 1.5))
        self.shift = nn.Parameter(torch.randn(features))
        self.norm = nn.BatchNorm2d(features)
        nn.init.normal_(self.norm.bias), nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.running_mean), nn.init.uniform_(self.norm.running_var, 0.5, 2)

    def forward(self, x, y):
        return self.behind(self, self.layer(x.permute(0, 2, 3, 1)), y)


def bound(model, x, y):
    """What sums in f32 in any order may be off by, behind a factor of at most three and beside a residual."""
    magnitudes = x.abs().double().permute(0, 2, 3, 1) @ model.layer.weight.double().abs().T
    return (x.shape[1] + 8) * 2.0**-24 * 3 * (magnitudes.max() + 4 + y.abs().double().max())


def columns(vector):
    return vector[:, None, None]


FUSED = {
    "layer scale and residual": (("bias", "residual"), lambda m, of, y: columns(m.scale) * of.permute(0, 3, 1, 2) + y),
    "residual first": (("bias", "residual"), lambda m, of, y: y + of.permute(0, 3, 1, 2) * columns(m.scale)),
    "a constant in another shape": (
        ("bias", "residual"),
        lambda m, of, y: of.permute(0, 3, 1, 2).mul(m.scale.reshape(1, -1, 1, 1)) + y,
    ),
    "by features, then a permutation": (("bias", "residual"), lambda m, of, y: (of * m.scale).permute(0, 3, 1, 2) + y),
    "one number": (("bias", "residual"), lambda m, of, y: of.permute(0, 3, 1, 2) / 2.0 + y),
    "two transpositions": (("bias", "relu"), lambda m, of, y: torch.relu(of.transpose(1, 3) * m.scale[:, None, None])),
    "a sum and a batch-norm": (
        ("bias", "relu"),
        lambda m, of, y: torch.relu(m.norm(of.permute(0, 3, 1, 2) - columns(m.shift))),
    ),
    "an activation on either side": (
        ("bias", "tanh alpha=1.0 beta=1.0", "sigmoid", "residual", "relu"),
        lambda m, of, y: torch.relu(torch.sigmoid(torch.tanh(of).permute(0, 3, 1, 2)) + y),
    ),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", FUSED)
@torch.no_grad()
def test_one_plan(name, bias):
    behind, function = FUSED[name]
    model = Reads(function, bias).eval()
    given = image(2, 8, 5, 7), image(2, 12, 5, 7)
    fused = ft.optimize(model, given, choose="all")
    may_have_none = not bias and "norm" not in name
    assert operators(fused) == [("linear", *(behind[1:] if may_have_none else behind))]
    # Nothing but views is left beside the plan.
    assert set(targets(fused)) <= {"fuseplan.chain.default", "aten.permute.default", "aten.transpose.int"}
    expected = model(*given)
    exact = model.double()(*(of.double() for of in given))
    model.float()
    for _ in range(2):
        found = fused(*given)
        assert found.shape == expected.shape and found.stride() == expected.stride(), name
        assert ((found.double() - exact).abs() <= bound(model, *given)).all(), name
    # In another layout and for another size of batch as well.
    for given in ([image(2, 8, 5, 7, last=False), image(2, 12, 5, 7, last=False)],):
        torch.testing.assert_close(fused(*given), model(*given), rtol=1e-5, atol=1e-5)
    comparison = ft.compare(model, fused, tuple(given))
    assert len(comparison.chains) == 1 and all(of.max < 1e-5 for of in comparison)


class Tokens(nn.Module):
    """A layer scale of a transformer's."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 20), nn.Linear(20, 8)
        self.scale = nn.Parameter(torch.empty(8).uniform_(0.5, 1.5))

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x))) * self.scale


@pytest.mark.parametrize("shape", [(3, 8), (2, 5, 8), (2, 3, 4, 8)])
@torch.no_grad()
def test_layer_scale_of_tokens(shape):
    model, x = Tokens().eval(), torch.randn(*shape)
    fused = ft.optimize(model, x, choose="all")
    assert operators(fused) == [("linear", "bias", "gelu"), ("linear", "bias", "residual")]
    assert set(targets(fused)) == {"fuseplan.chain.default"}
    torch.testing.assert_close(fused(x), model(x), rtol=1e-5, atol=1e-5)
    assert all(of.max < 1e-5 for of in ft.compare(model, fused, x))


@torch.no_grad()
def test_a_bias_stays_the_models():
    """What is only added is no reason for a copy of weights, whose changes are seen."""

    class Biased(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.shift = nn.Linear(8, 6, bias=False), nn.Parameter(torch.randn(6))

        def forward(self, x):
            return torch.relu(self.layer(x) + self.shift), torch.relu(self.layer(x.cos()).transpose(1, 2) + self.shift[:, None])

    model, x = Biased().eval(), torch.randn(2, 5, 8)
    fused = ft.optimize(model, x, choose="all")
    assert operators(fused) == [("linear", "bias", "relu")] * 2
    fused(x)
    model.layer.weight.mul_(2)
    for found, expected in zip(fused(x), model(x), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


STAYS = {
    # What stands behind each permutation, and by which operators it stays PyTorch's.
    "a factor a line": ("mul", lambda m, of, y: of.permute(0, 3, 1, 2) * m.scale[:5, None] + y),
    "a factor a pixel": ("mul", lambda m, of, y: of.permute(0, 3, 1, 2) * y.mean(1, keepdim=True)),
    "several readers of the layer": ("mul", lambda m, of, y: of.permute(0, 3, 1, 2) * columns(m.scale) + y + of.mean()),
    "several readers of the permutation": (
        "mul",
        lambda m, of, y: (lambda p: p * columns(m.scale) + p.mean() + y)(of.permute(0, 3, 1, 2)),
    ),
    "several readers of the product": (
        "add",
        lambda m, of, y: (lambda p: p + y * p.mean())(of.permute(0, 3, 1, 2) * columns(m.scale)),
    ),
    "a residual that is broadcast": ("add", lambda m, of, y: of.permute(0, 3, 1, 2) + y[:1]),
    "twice the residual": ("add", lambda m, of, y: torch.add(of.permute(0, 3, 1, 2), y, alpha=2)),
    "itself": ("add", lambda m, of, y: (lambda p: p + p)(of.permute(0, 3, 1, 2))),
    "a result": ("add", lambda m, of, y: (lambda p: (p, p + y))(of.permute(0, 3, 1, 2))),
}


@pytest.mark.parametrize("name", STAYS)
@torch.no_grad()
def test_what_is_in_no_chain_of_a_layer_stays(name):
    operator, function = STAYS[name]
    model = Reads(function).eval()
    given = image(2, 8, 5, 7), image(2, 12, 5, 7)
    fused = ft.optimize(model, given, choose="all")
    assert operators(fused) == [("linear", "bias")]
    assert f"aten.{operator}.Tensor" in targets(fused)
    found, expected = fused(*given), model(*given)
    for of, like in zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]:
        torch.testing.assert_close(of, like, rtol=1e-5, atol=1e-5)
        assert of.stride() == like.stride()


@torch.no_grad()
def test_a_residual_in_another_layout_stays():
    """Of two orders of the sum, as the first one's layout is the result's."""
    for function in (lambda m, of, y: of.permute(0, 3, 1, 2) + y, lambda m, of, y: y + of.permute(0, 3, 1, 2)):
        model = Reads(function).eval()
        given = image(2, 8, 5, 7), image(2, 12, 5, 7, last=False)
        fused = ft.optimize(model, given, choose="all")
        assert operators(fused) == [("linear", "bias")] and targets(fused).count("aten.add.Tensor") == 1
        assert fused(*given).stride() == model(*given).stride()
        torch.testing.assert_close(fused(*given), model(*given), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@torch.no_grad()
def test_factors_near_zero_keep_their_precision(dtype):
    """f16 has no precision left for a weight of a small factor, so that the factor stays; bf16 has."""
    for small in (1.0, 1e-6):
        model = Reads(lambda m, of, y: of.permute(0, 3, 1, 2) * columns(m.scale)).eval()
        model.scale.mul_(small)
        model, given = model.to(dtype), [of.to(dtype) for of in (image(2, 8, 5, 7), image(2, 12, 5, 7))]
        fused = ft.optimize(model, tuple(given), choose="all")
        stays = dtype == torch.float16 and small < 1
        assert targets(fused).count("aten.mul.Tensor") == stays
        exact = model.double()(*(of.double() for of in given))
        model.to(dtype)
        error, own = ((of(*given).double() - exact).abs().max() for of in (fused, model))
        assert error <= 2 * own, (error, own)


@torch.no_grad()
def test_another_batch():
    model = Reads(FUSED["layer scale and residual"][1]).eval()
    given, n = (image(2, 8, 5, 7), image(2, 12, 5, 7)), torch.export.Dim("n", min=1, max=64)
    fused = ft.optimize(model, given, dynamic_shapes=({0: n}, {0: n}), choose="all")
    assert operators(fused) == [("linear", "bias", "residual")]
    for count in (1, 2, 9):
        given = image(count, 8, 5, 7), image(count, 12, 5, 7)
        torch.testing.assert_close(fused(*given), model(*given), rtol=1e-5, atol=1e-5)


class Block(nn.Module):
    """A block of ConvNeXt."""

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm, self.up, self.down = nn.LayerNorm(channels), nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.empty(channels, 1, 1).uniform_(0.5, 1.5))

    def forward(self, x):
        y = self.down(nn.functional.gelu(self.up(self.norm(self.conv(x).permute(0, 2, 3, 1)))))
        return x + self.scale * y.permute(0, 3, 1, 2)


@pytest.mark.parametrize("last", [True, False])
@torch.no_grad()
def test_blocks_behind_each_other(last):
    torch.manual_seed(0)
    model, x = nn.Sequential(*(Block(8) for _ in range(3)), nn.Conv2d(8, 8, 2, 2)).eval(), image(2, 8, 6, 7, last=last)
    fused = ft.optimize(model, x, choose="all")
    layers = [of for of in operators(fused) if of[0] == "linear"]
    # Sums whose layout is that of an image that does not lie in rows are no part of a chain.
    assert layers[1::2] == [("linear", "bias", "residual") if last else ("linear", "bias")] * 3
    assert targets(fused).count("aten.add.Tensor") == (0 if last else 3) and "aten.mul.Tensor" not in targets(fused)
    assert fused(x).stride() == model(x).stride()
    torch.testing.assert_close(fused(x), model(x), rtol=1e-5, atol=1e-5)
    comparison = ft.compare(model, fused, x)
    assert len(comparison.chains) == 10 and all(of.max < 1e-5 for of in comparison)
