"""Convolutions of enlarged images, and transposed ones, as a plan for each phase of their pixels."""

import functools
import itertools
import re

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

import fuseplan.torch as ft  # noqa: E402
from fuseplan.torch import _chains, _choice, _concatenations, _phases, _rewrite  # noqa: E402
from torch import nn  # noqa: E402
from torch._inductor.utils import run_and_get_code  # noqa: E402
from torch.nn import functional as F  # noqa: E402

CHAIN, INTO = torch.ops.fuseplan.chain.default, torch.ops.fuseplan.chain_into.default


@pytest.fixture(autouse=True)
def without_gradients(monkeypatch):
    torch._dynamo.reset()
    # As on GPUs.
    monkeypatch.setattr(_phases, "DEVICES", {"cpu"})
    torch.manual_seed(0)
    with torch.no_grad():
        yield
    torch._dynamo.reset()


def behind(*layers, channels=8):
    """The layers behind a convolution, which makes a network's tensors channels-last; all numbers are small integers."""
    make = nn.Conv3d if any(isinstance(of, (nn.Conv3d, nn.ConvTranspose3d)) for of in layers) else nn.Conv2d
    model = nn.Sequential(make(channels, channels, 1), *layers).eval()
    for parameter in model.parameters():
        parameter.copy_(torch.randint(-2, 3, parameter.shape))
    return model


def integers(*shape):
    return torch.randint(-2, 3, shape).float()


def optimized(model, *x, **options):
    return ft.optimize(model, x, **{"choose": "all", "rest": "inductor", **options})


def count(fused):
    targets = [node.target for node in fused.graph.nodes]
    return targets.count(CHAIN), targets.count(INTO)


def check(model, x, phases, *, dtype=torch.float32, chains=1, **options):
    """The optimized network, whose values are exact and lie as the network's do."""
    fused = optimized(model.to(dtype), x.to(dtype), **options)
    y, expected = fused(x.to(dtype)), model(x.to(dtype))
    assert count(fused) == (chains, phases), fused.fuseplan_report
    assert y.stride() == expected.stride()
    assert torch.equal(y.double(), model.double()(x.double()))
    return fused


TRANSPOSED = [
    # Taps, strides, padding, what is added to the result's lengths, groups, dilation.
    (2, 2, 0, 0, 1, 1),
    (3, 2, 1, 1, 1, 1),
    (3, 2, 0, 0, 1, 1),
    (4, 2, 1, 0, 1, 1),
    (5, 3, 2, 1, 1, 1),
    (6, 2, 2, 0, 1, 1),
    (3, 3, 0, 2, 1, 1),
    ((2, 3), (1, 3), 0, 0, 1, 1),
    ((4, 1), (4, 1), 0, 0, 1, 1),
    (4, 2, 1, 0, 4, 1),
    (2, 2, 0, 0, 2, 1),
    (3, 2, 1, 1, 1, 3),
    ((3, 4), 2, 1, (1, 0), 2, (3, 1)),
    ((2, 3), (2, 1), 0, 0, 1, (1, 2)),
]


@pytest.mark.parametrize("taps, strides, padding, more, groups, dilation", TRANSPOSED)
@pytest.mark.parametrize("size", [(7, 9), (1, 1), (2, 1)])
def test_transposed_convolutions_are_exact(taps, strides, padding, more, groups, dilation, size):
    layer = nn.ConvTranspose2d(8, 12, taps, strides, padding, more, groups, dilation=dilation)
    model, x = behind(layer, nn.ReLU()), integers(2, 8, *size)
    high, wide = map(min, layer.stride, model(x).shape[2:])
    phases = high * wide
    fused = check(model, x, phases)
    (_, of) = fused.fuseplan_report.fused
    assert (of.operators, of.plans) == (("conv_transpose", "bias", "relu"), phases)
    assert f"in {phases} phases" in str(fused.fuseplan_report)
    assert "1 of 1 transposed convolutions" in str(fused.fuseplan_report)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_types(dtype):
    # No sum is above 256, to which bf16 has the integers.
    check(behind(nn.ConvTranspose2d(2, 8, 2, 2, bias=False), channels=2), integers(1, 2, 3, 4).sign(), 4, dtype=dtype)
    layers = nn.Upsample(scale_factor=2.0), nn.Conv2d(2, 4, 3, padding=1)
    check(behind(*layers, channels=2), integers(1, 2, 3, 4).sign(), 4, dtype=dtype)


def test_volumes():
    layers = nn.Upsample(scale_factor=(1.0, 2.0, 2.0)), nn.Conv3d(8, 4, (1, 3, 3), padding=(0, 1, 1))
    check(behind(*layers), integers(2, 8, 2, 3, 4), 4)


def test_cpus_keep_one_plan(monkeypatch):
    monkeypatch.undo()
    layers = nn.Upsample(scale_factor=2.0), nn.Conv2d(8, 8, 3, padding=1), nn.ConvTranspose2d(8, 8, 2, 2)
    fused = optimized(behind(*layers), integers(1, 8, 6, 6))
    (unfused,) = fused.fuseplan_report.unfused
    assert count(fused) == (2, 0) and unfused.operator == "conv_transpose"
    assert "transposed convolution is not supported" in unfused.reason


ENLARGED = [
    # How often pixels are repeated, taps, padding, groups.
    (2, 3, 1, 1),
    (2, 3, 0, 1),
    (2, 3, 2, 1),
    (2, 2, 1, 1),
    (3, 3, 1, 2),
    (4, 3, 1, 1),
    (2, 5, 2, 8),
    (2, 7, 3, 1),
    ((1, 2), 3, 1, 1),
    (2, (1, 3), (0, 1), 1),
]


@pytest.mark.parametrize("times, taps, padding, groups", ENLARGED)
@pytest.mark.parametrize("size, mode", [((7, 9), "nearest"), ((1, 1), "nearest"), ((1, 4), "nearest-exact")])
def test_convolutions_of_enlarged_images_are_exact(times, taps, padding, groups, size, mode):
    factors = tuple(map(float, times)) if isinstance(times, tuple) else float(times)
    layers = nn.Upsample(scale_factor=factors, mode=mode), nn.Conv2d(8, 16, taps, padding=padding, groups=groups)
    model, x = behind(*layers, nn.ReLU()), integers(2, 8, *size)
    try:
        shape = model(x).shape[2:]
    except RuntimeError:
        pytest.skip("the image is smaller than the filters")
    high, wide = map(min, shape, times if isinstance(times, tuple) else (times, times))
    phases = high * wide
    fused = check(model, x, phases)
    assert fused.fuseplan_report.fused[-1].operators == ("conv", "bias", "relu")
    assert "upsample" not in str(fused.graph)


def test_lengths_instead_of_factors():
    check(behind(nn.Upsample(size=(14, 27)), nn.Conv2d(8, 8, 3, padding=1)), integers(1, 8, 7, 9), 6)


def test_results_of_fewer_pixels_than_phases():
    check(behind(nn.Upsample(scale_factor=4.0), nn.Conv2d(8, 8, 3)), integers(1, 8, 1, 1), 4)


@pytest.mark.parametrize(
    "layers",
    [
        # A single tap reads one pixel either way, and 1.5 repeats some.
        (nn.Upsample(scale_factor=2.0), nn.Conv2d(8, 8, 1)),
        (nn.Upsample(scale_factor=1.5), nn.Conv2d(8, 8, 3, padding=1)),
        (nn.Upsample(scale_factor=2.0), nn.Conv2d(8, 8, 3, padding=1, stride=2)),
        (nn.Upsample(scale_factor=2.0), nn.Conv2d(8, 8, 3, padding=2, dilation=2)),
        (nn.Upsample(scale_factor=2.0, mode="bilinear"), nn.Conv2d(8, 8, 3, padding=1)),
    ],
)
def test_what_is_no_sum_of_phases_is_one_plan(layers):
    model, x = behind(*layers), integers(1, 8, 6, 6)
    fused = optimized(model, x)
    assert count(fused) == (2, 0)
    torch.testing.assert_close(fused(x), model(x))


@pytest.mark.parametrize(
    "layer, reason",
    [
        (
            nn.ConvTranspose2d(8, 8, 2, 2, dilation=2),
            r"its filters of \[2, 2\] with dilation \[2, 2\] and strides \[2, 2\] leave pixels of the result without a tap",
        ),
        (
            nn.ConvTranspose2d(8, 8, 2, 3),
            r"its filters of \[2, 2\] and strides \[3, 3\] leave pixels of the result without a tap",
        ),
        (nn.ConvTranspose2d(8, 8, 2, 2, 1), "of a phase only some of the image's pixels would be read"),
        (nn.ConvTranspose2d(8, 8, 3, 2, 4), "of a phase only some of the image's pixels would be read"),
    ],
)
def test_reasons_why_a_transposed_convolution_stays(layer, reason):
    model, x = behind(layer), integers(1, 8, 6, 6)
    fused = optimized(model, x)
    (unfused,) = fused.fuseplan_report.unfused
    assert unfused.operator == "conv_transpose" and re.fullmatch(reason, unfused.reason)
    torch.testing.assert_close(fused(x), model(x))


def test_contiguous_networks_keep_theirs():
    model, x = behind(nn.ConvTranspose2d(8, 8, 2, 2)), integers(1, 8, 6, 6)
    fused = optimized(model, x, memory_format=torch.preserve_format)
    assert fused.fuseplan_report.unfused[0].reason == "its result is not channels-last"
    torch.testing.assert_close(fused(x), model(x))


def test_lengths_that_are_symbols():
    layers = nn.Upsample(scale_factor=2.0), nn.Conv2d(8, 8, 3, padding=1), nn.ConvTranspose2d(8, 8, 2, 2)
    model, x = behind(*layers), integers(2, 8, 6, 6)
    fused = optimized(model, x, dynamic_shapes=({0: torch.export.Dim("n")},))
    assert count(fused) == (2, 0)
    assert fused.fuseplan_report.unfused[0].reason == "its lengths are not fixed"
    for batch in (2, 5):
        x = integers(batch, 8, 6, 6)
        torch.testing.assert_close(fused(x), model(x))


def test_a_host_that_launches_them_has_one_plan():
    layers = nn.Upsample(scale_factor=2.0), nn.Conv2d(8, 8, 3, padding=1), nn.ConvTranspose2d(8, 8, 2, 2)
    fused = optimized(behind(*layers), integers(1, 8, 6, 6), rest="eager")
    assert count(fused) == (2, 0) and "rest='inductor'" in fused.fuseplan_report.unfused[0].reason


def test_strict_sums_are_those_that_are_written():
    layers = nn.Upsample(scale_factor=2.0), nn.Conv2d(8, 8, 3, padding=1), nn.ConvTranspose2d(8, 8, 2, 2)
    fused = optimized(behind(*layers), integers(1, 8, 6, 6), math="strict")
    # Phases of a transposed convolution have its own products.
    assert count(fused) == (2, 4)
    assert all("math=strict" in str(node.args[3]) for node in fused.graph.nodes if node.target in (CHAIN, INTO))


def test_sums_of_weights_that_their_type_lacks():
    model = behind(nn.Upsample(scale_factor=2.0), nn.Conv2d(8, 8, 3, padding=1)).half()
    model[2].weight.fill_(4e4)
    fused = optimized(model, integers(1, 8, 6, 6).half())
    assert count(fused) == (2, 0)


class Sum(nn.Module):
    """An enlarged image that is also a residual, with a batch-norm and a PReLU."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.act = nn.PReLU(8)

    def forward(self, x):
        large = F.interpolate(self.first(x), scale_factor=2.0)
        return self.act(self.norm(self.second(large)) + large)


def test_residuals_and_what_is_folded():
    model, x = Sum().eval(), torch.randn(2, 8, 6, 7)
    model.norm.running_mean.normal_(), model.norm.running_var.uniform_(0.5, 2)
    fused = optimized(model, x)
    (_, of) = fused.fuseplan_report.fused
    assert (of.operators, of.plans) == (("conv", "bias", "residual", "prelu"), 4)
    errors = ft.compare(model, fused, x)
    assert [row.operators for row in errors.chains] == ["conv -> bias", "conv -> bias -> residual -> prelu"]
    assert all(row.max < 1e-5 for row in errors)
    exported = torch.export.export(fused, (x,)).module()
    torch.testing.assert_close(exported(x), fused(x))


@pytest.mark.parametrize("slower", [False, True])
@pytest.mark.parametrize("layers", [(nn.ConvTranspose2d(8, 8, 2, 2),), (nn.Upsample(scale_factor=2.0), nn.Conv2d(8, 8, 3, padding=1))])
def test_what_pytorch_computes_faster_stays(layers, slower, monkeypatch):
    model, x = behind(*layers), integers(1, 8, 6, 6)
    timed = []

    def times(plan, own, device):
        timed.append(plan())
        torch.testing.assert_close(plan().shape, own().shape)
        return _choice.Times(2.0 if slower and timed[-1].shape[2] == 12 else 1.0, 1.5)

    monkeypatch.setattr(_choice, "_times", times)
    fused = optimized(model, x, choose="measure")
    # Where phases are slower the plan of the larger image is timed as well.
    assert len(timed) == (3 if slower and len(layers) == 2 else 2) and count(fused) == (1, 0 if slower else 4)
    torch.testing.assert_close(fused(x), model(x))


@pytest.mark.parametrize("small, phases", [(1e-6, 4), (1e-5, 0)])
def test_phases_by_the_time_that_is_expected(small, phases, monkeypatch):
    """A model that the CPU lacks: a plan of the image, and one of the image enlarged in 2e-5 seconds."""
    def expected(image, weight, numbers, device, math):
        assert len(numbers["padding"]) == 2
        return small if image.shape[2] == 6 else 2e-5

    monkeypatch.setattr(_chains, "_expected_of", expected)
    fused = optimized(behind(nn.Upsample(scale_factor=2.0), nn.Conv2d(8, 8, 3, padding=1)), integers(1, 8, 6, 6))
    assert count(fused) == (1 if phases else 2, phases)


def test_inductor_makes_no_other_memory():
    layers = nn.Upsample(scale_factor=2.0), nn.Conv2d(8, 8, 3, padding=1), nn.ConvTranspose2d(8, 8, 2, 2)
    model, x = behind(*layers), integers(1, 8, 6, 6)
    fused = optimized(model, x)
    y, (code,) = run_and_get_code(torch.compile(fused, fullgraph=True), x)
    assert torch.equal(y, model(x)) and y.stride() == model(x).stride()
    body = code[code.index("def call(") :]
    shapes = ["(1, 8, 12, 12), (1152, 1, 96, 8)", "(1, 8, 24, 24), (4608, 1, 192, 8)"]
    assert [body.count(f"empty_strided_cpu({shape}") for shape in shapes] == [1, 1]
    assert body.count("torch.ops.fuseplan.chain_into.default(") == 8


class Beside(nn.Module):
    """A transposed convolution beside what was before a pool."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.widen, self.last = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 4, 3, padding=1)

    def forward(self, x):
        kept = self.first(x).relu()
        return self.last(torch.cat([kept, self.widen(self.second(F.max_pool2d(kept, 2)).relu())], 1))


def test_phases_write_where_they_are_concatenated(monkeypatch):
    rewrite = functools.partial(_concatenations.rewrite, devices=("cpu",))
    monkeypatch.setattr(_rewrite._concatenations, "rewrite", rewrite)
    model, x = Beside().eval(), torch.randn(2, 3, 12, 16)
    fused = optimized(model, x)
    assert count(fused) == (2, 5) and "aten.cat" not in str(fused.graph)
    errors = ft.compare(model, fused, x)
    assert [row.operators for row in errors.chains] == [*["conv -> bias -> relu"] * 2, "conv -> bias", "conv -> bias"]
    assert all(row.max < 1e-5 for row in errors)
    y, (code,) = run_and_get_code(torch.compile(fused, fullgraph=True), x)
    assert torch.equal(y, fused(x))
    body = code[code.index("def call(") :]
    made = {shape: body.count(f"empty_strided_cpu(({shape})") for shape in ("2, 16, 12, 16", "2, 8, 12, 16")}
    assert made == {"2, 16, 12, 16": 1, "2, 8, 12, 16": 0}


class Joined(nn.Module):
    """A convolution and a transposed one side by side, in one of several ways."""

    def __init__(self, way):
        super().__init__()
        narrow = {"misaligned": (4, 4), "one channel": (7, 1)}.get(way, (8, 8))
        strides = 1 if way == "strides of one" else 2
        self.first, self.second = nn.Conv2d(8, narrow[0], 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, stride=strides)
        self.widen = nn.ConvTranspose2d(8, narrow[1], 2 if strides == 2 else 3, strides, padding=0 if strides == 2 else 1)
        self.last = nn.Conv2d(sum(narrow), 8, 3, padding=1)
        self.behind = nn.ConvTranspose2d(sum(narrow), 4, 2, 2)
        self.doubled = nn.Conv2d(8, 8, 3, padding=1)
        self.way = way

    def forward(self, x):
        first, second = self.first(x), self.second(x)
        if self.way == "residual":
            wide = self.doubled(F.interpolate(second, scale_factor=2.0)) + x
        elif self.way == "residual of the same":
            wide = self.doubled(F.interpolate(second, scale_factor=2.0)) + first
        else:
            wide = self.widen(second)
        joined = torch.cat([first, wide], 1)
        if self.way == "read by phases":
            return self.behind(joined)
        y = self.last(joined)
        return (y, wide) if self.way == "result" else y


@pytest.mark.parametrize(
    "way, written",
    [
        ("in place", 5),
        ("misaligned", 5),
        ("one channel", 5),
        ("result", 5),
        ("strides of one", 2),
        ("residual", 5),
        ("residual of the same", 5),
        ("read by phases", 9),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_what_stands_beside_phases(way, written, dtype, monkeypatch):
    """Phases are computed before what they write to is copied to where it is concatenated, wherever they do not write there."""
    rewrite = functools.partial(_concatenations.rewrite, devices=("cpu",))
    monkeypatch.setattr(_rewrite._concatenations, "rewrite", rewrite)
    model, x = Joined(way).eval(), torch.randn(2, 8, 12, 16)
    model.last.weight.normal_()
    expected = model(x)
    fused = optimized(model.to(dtype), x.to(dtype))
    memories = [node for node in fused.graph.nodes if "new_empty_strided" in str(node.target)]
    if dtype == torch.float32:
        assert count(fused)[1] == written, fused.graph
    # What is not written is not zero.
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True)
    try:
        found = fused(x.to(dtype))
    finally:
        torch.use_deterministic_algorithms(False)
    assert memories
    if way != "result":
        expected, found = [expected], [found]
    for y, exact in zip(found, expected, strict=True):
        torch.testing.assert_close(y.float(), exact, rtol=2e-2, atol=2e-2 if dtype == torch.float16 else 1e-4)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_batch_norm_is_folded_into_transposed_filters(groups):
    model = behind(nn.ConvTranspose2d(8, 12, 4, 2, 1, groups=groups), nn.BatchNorm2d(12), nn.ReLU())
    x = torch.randn(2, 8, 6, 5)
    model[2].running_mean.normal_(), model[2].running_var.uniform_(0.5, 2)
    fused = optimized(model, x)
    assert count(fused) == (1, 4) and fused.fuseplan_report.fused[1].operators == ("conv_transpose", "bias", "relu")
    torch.testing.assert_close(fused(x), model(x), rtol=1e-4, atol=1e-4)


def test_a_batch_norm_is_compared_where_it_is():
    model, x = behind(nn.ConvTranspose2d(8, 8, 2, 2), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1)), torch.randn(2, 8, 6, 6)
    model[2].running_mean.normal_(), model[2].running_var.uniform_(0.5, 2)
    errors = ft.compare(model, optimized(model, x), x)
    assert len(errors.chains) == 3 and all(row.max <= 1e-5 * row.largest for row in errors)


@pytest.mark.parametrize("layers", [(nn.ConvTranspose2d(8, 8, 2, 2),), (nn.Upsample(scale_factor=2.0), nn.Conv2d(8, 8, 3, padding=1))])
def test_images_that_plans_do_not_have(layers):
    """All of whose pixels are one in memory."""

    class Expanded(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.layers = nn.Conv2d(8, 8, 1), nn.Sequential(*layers)

        def forward(self, x):
            return self.first(self.layers(x[:, :, None, None].expand(-1, -1, 4, 4)))

    model, x = Expanded().eval(), torch.randn(2, 8)
    fused = optimized(model, x)
    torch.testing.assert_close(fused(x), model(x), rtol=1e-4, atol=1e-4)


def test_phases_that_are_too_many():
    layers = nn.Upsample(scale_factor=5.0), nn.Conv2d(8, 8, 3, padding=1), nn.ConvTranspose2d(8, 8, 8, 5)
    fused = optimized(behind(*layers), integers(1, 8, 3, 3))
    assert count(fused) == (2, 0)
    assert fused.fuseplan_report.unfused[0].reason == "its strides are [5, 5], which would be 25 plans; accepted: 16"


def test_one_plan_where_it_is_faster_than_phases(monkeypatch):
    """Each of two convolutions of one image, enlarged by different factors, is timed."""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.third = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)

        def forward(self, x):
            x = self.first(x)
            large = (F.interpolate(x, scale_factor=factor) for factor in (2.0, 3.0))
            return [layer(image) for layer, image in zip((self.second, self.third), large)]

    timed = []

    def times(plan, own, device):
        timed.append(tuple(plan().shape[2:]))
        # The second time of a shape it is the single plan's.
        return _choice.Times(2.0 if timed.count(timed[-1]) == 1 and timed[-1] == (12, 12) else 1.0, 1.5)

    monkeypatch.setattr(_choice, "_times", times)
    model, x = Two().eval(), torch.randn(1, 8, 6, 6)
    fused = optimized(model, x, choose="measure")
    assert timed == [(6, 6), (12, 12), (12, 12), (18, 18)] and count(fused) == (2, 9)
    for y, expected in zip(fused(x), model(x), strict=True):
        torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", range(16))
def test_random_layers_are_exact(seed):
    torch.manual_seed(seed)

    def of(*values):
        return values[int(torch.randint(len(values), ()))]

    taps, strides = (of(1, 2, 3, 4, 5), of(1, 2, 3, 5)), (of(1, 2, 3), of(1, 2))
    size = of(1, 2, 5, 8), of(1, 3, 6)
    if seed % 2:
        padding = tuple(of(*range(tap)) for tap in taps)
        layer = [nn.ConvTranspose2d(8, of(1, 3, 8), taps, strides, padding, tuple(of(*range(step)) for step in strides))]
    else:
        padding = of(0, 1, 2), of(0, 1)
        layer = [nn.Upsample(scale_factor=tuple(map(float, strides))), nn.Conv2d(8, of(1, 3, 8), taps, padding=padding)]
    model, x = behind(*layer), integers(of(1, 3), 8, *size)
    try:
        expected = model.double()(x.double())
    except RuntimeError:
        pytest.skip("PyTorch has no such result")
    fused = optimized(model.float(), x)
    assert torch.equal(fused(x).double(), expected), fused.fuseplan_report
    assert all(map(torch.equal, itertools.repeat(fused(x), 2), (fused(x), fused(x))))
