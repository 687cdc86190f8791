"""PyTorch on a GPU: what the operator, rewritten networks and the backend of `torch.compile` do there."""

import concurrent.futures
import contextlib
import copy
import os
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]

import fuseplan.torch as ft  # noqa: E402
from fuseplan.torch import _chains, _choice, _operator, _pools, _runs  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

OP = torch.ops.fuseplan.chain.default
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
TEXT = "conv stride=1,1 padding=1,1,1,1 dilation=1,1 groups=1"


@pytest.fixture(autouse=True)
def without_tf32():
    """Tests run without TF32 and without gradients, and nothing that was compiled stays."""
    torch._dynamo.reset()
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    with torch.no_grad():
        yield
    torch.backends.cudnn.allow_tf32 = before
    torch._dynamo.reset()


def tensors(dims=2, channels=16, filters=32, groups=1, dtype=torch.float16, last=True, device="cuda"):
    torch.manual_seed(0)
    x = torch.randn(2, channels, *(9, 10, 7)[:dims]).to(device, dtype)
    w = torch.randn(filters, channels // groups, *(3,) * dims).to(device, dtype) / 8
    if last:
        x, w = (of.to(memory_format=LAST[of.dim()]) for of in (x, w))
    return x, w, torch.randn(filters).to(device, dtype)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_beside_torch(dims, last, dtype):
    x, w, b = tensors(dims, groups=2, dtype=dtype, last=last)
    plain = (F.conv2d, F.conv3d)[dims - 2](x.double(), w.double(), b.double(), stride=2, padding=1, groups=2)
    residual = torch.randn(plain.shape, device="cuda").to(dtype).contiguous(memory_format=LAST[x.dim()])
    y = ft.conv(x, w, b, residual, stride=2, padding=1, groups=2, activation="silu")
    expected = F.silu(plain + residual.double())
    torch.testing.assert_close(y.double(), expected, rtol=2 * torch.finfo(dtype).eps, atol=1e-5)
    assert y.is_contiguous(memory_format=LAST[x.dim()] if last else torch.contiguous_format)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("operators, extra", [("bias -> residual -> relu", "br"), ("batch_norm eps=0.001 -> gelu", "bbbv")])
def test_the_declaration_is_true(dtype, last, operators, extra):
    x, w, b = tensors(dtype=dtype, last=last)
    residual = torch.randn(2, 32, 9, 10, device="cuda").to(dtype)
    given = {"b": b, "r": residual.contiguous(memory_format=LAST[4]) if last else residual, "v": b.abs() + 0.5}
    torch.library.opcheck(OP, (x, w, [given[name] for name in extra], f"{TEXT} -> {operators}"))


@contextlib.contextmanager
def python_frames():
    """The names of the functions of Python that run."""
    names = []
    sys.setprofile(lambda frame, event, _: names.append(frame.f_code.co_name) if event == "call" else None)
    try:
        yield names
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("constant, last_w", [(False, True), (True, True), (True, False)])
def test_a_repeated_call_runs_no_python(constant, last_w):
    _operator._CALLS.clear()
    x, w, b = tensors()
    w = w if last_w else w.contiguous()
    residual = torch.randn(2, 32, 9, 10, device="cuda").half().contiguous(memory_format=LAST[4])
    arguments = (w, [b, residual], f"{TEXT} -> bias -> residual", constant)
    with python_frames() as first:
        OP(x, *arguments)
    x = x + 1
    with python_frames() as again:
        y = OP(x, *arguments)
    assert "_first" in first and set(again) <= {"__call__", "__exit__", "python_frames"}
    expected = F.conv2d(x.double(), w.double(), b.double(), padding=1) + residual.double()
    torch.testing.assert_close(y.double(), expected, rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("last_w", [False, True])
def test_constant_weights_follow_changes_in_place(last_w):
    x, w, b = tensors(dtype=torch.float32)
    w = w if last_w else w.contiguous()
    for change in (lambda: None, lambda: w.mul_(2), lambda: b.add_(1)):
        change()
        for _ in range(2):
            y = OP(x, w, [b], f"{TEXT} -> bias -> relu", True)
            torch.testing.assert_close(y, F.relu(F.conv2d(x, w, b, padding=1)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("last", [False, True])
def test_addresses_of_before_and_others_in_turns(last):
    """What a tensor core's loads are told of an address is kept from call to call, of no more addresses than a few."""
    x, w, _ = tensors(channels=64, filters=64, last=last)
    # Numbers whose sums are exact.
    images = [torch.randint_like(x, -4, 5) for _ in range(40)]
    weights = [torch.randint_like(w, -2, 3) for _ in range(3)]
    calls = [(of, weight, constant) for of in images for weight in weights for constant in (False, True)]
    expected = {(id(of), id(weight)): F.conv2d(of.double(), weight.double(), padding=1).half() for of, weight, _ in calls}
    for of, weight, constant in [*calls, *calls[::-7], *calls]:
        assert torch.equal(OP(of, weight, [], TEXT, constant), expected[id(of), id(weight)])
    # Other numbers at an address of before.
    for of, weight, constant in calls[::5]:
        of.neg_()
        assert torch.equal(OP(of, weight, [], TEXT, constant), -expected[id(of), id(weight)])
        of.neg_()


@pytest.mark.parametrize("shape", [(1, 96), (64, 512), (3, 50, 100), (2, 7, 9, 24), (2, 3, 7)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_fully_connected_layers(dtype, shape):
    torch.manual_seed(0)
    x = torch.randn(*shape, device="cuda").to(dtype)
    w, b = torch.randn(40, shape[-1], device="cuda").to(dtype) / 8, torch.randn(40, device="cuda").to(dtype)
    residual = torch.randn(*shape[:-1], 40, device="cuda").to(dtype)
    exact = F.gelu(F.linear(x.double(), w.double(), b.double()) + residual.double())
    for constant in (False, True):
        for _ in range(2):
            y = OP(x, w, [b, residual], "linear -> bias -> residual -> gelu", constant)
            torch.testing.assert_close(y.double(), exact, rtol=2 * torch.finfo(dtype).eps, atol=1e-5)
            assert y.is_contiguous()
    torch.library.opcheck(OP, (x, w, [b], "linear -> bias -> silu"))
    # Rows with gaps, and whole numbers.
    x, w = torch.randint(-3, 4, (2, 6, 80), device="cuda").to(dtype), torch.randint(-2, 3, (24, 64), device="cuda").to(dtype)
    for of in (x[..., :64], x[:, 1, 8:72]):
        assert torch.equal(OP(of, w, [], "linear", True), F.linear(of.double(), w.double()).to(dtype))


def test_tf32_of_fully_connected_layers_follows_the_switch_of_products():
    x, w = torch.randn(300, 512, device="cuda"), torch.randn(256, 512, device="cuda")
    exact = F.linear(x.double(), w.double())
    errors = []
    for torch.backends.cuda.matmul.allow_tf32 in (False, True, False):
        errors.append((OP(x, w, [], "linear", True).double() - exact).abs().max().item())
    assert errors[0] == errors[2] < errors[1] / 20, errors


def test_a_feed_forward_part_in_a_graph():
    model = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).half().cuda().eval()
    x = torch.randn(2, 49, 64, device="cuda").half()
    fused = ft.optimize(model, x, choose="all")
    assert [of.operators for of in fused.fuseplan_report.fused] == [("linear", "bias", "gelu"), ("linear", "bias")]
    exact = copy.deepcopy(model).double()
    fused(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = fused(x)
    for _ in range(2):
        x.normal_()
        graph.replay()
        torch.testing.assert_close(y.double(), exact(x.double()), rtol=2e-2, atol=2e-3)
    compiled = torch.compile(model, backend="fuseplan", options={"choose": "all"})
    torch.testing.assert_close(compiled(x).double(), exact(x.double()), rtol=2e-2, atol=2e-3)


def test_tf32_follows_pytorchs_switch():
    x, w, _ = tensors(channels=64, filters=64, dtype=torch.float32)
    exact = F.conv2d(x.double(), w.double(), padding=1)
    errors = []
    for torch.backends.cudnn.allow_tf32 in (False, True, False):
        errors.append((OP(x, w, [], TEXT) - exact).abs().max().item())
    assert errors[0] == errors[2] < errors[1] / 10


def test_the_current_stream_is_used():
    x, w, b = tensors()
    given, expected = x.clone(), OP(x, w, [b], f"{TEXT} -> bias")
    for constant in (False, True):
        OP(x, w, [b], f"{TEXT} -> bias", constant)
        stream = torch.cuda.Stream()
        x.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            x.copy_(given)
            y = OP(x, w, [b], f"{TEXT} -> bias", constant)
        stream.synchronize()
        assert torch.equal(y, expected)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16, 3, 3) / 8)

    def forward(self, x):
        return ft.conv(torch.sin(x), self.weight, None, x, padding=1, activation="hardswish") * 2


def graph_of(call):
    """A call as a CUDA graph, and its result."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        y = call()
    return graph, y


@pytest.mark.parametrize("last", [False, True])
def test_in_a_cuda_graph(last):
    block, x = Block().eval().cuda().half(), tensors(last=last)[0]
    graph, y = graph_of(lambda: block(x))
    for _ in range(2):
        x.normal_()
        graph.replay()
        torch.testing.assert_close(y, block(x))


def test_weights_that_change_between_replays():
    x, w = (torch.randn(shape, device="cuda").half() for shape in [(16, 256, 40, 40), (256, 256, 3, 3)])
    graph, y = graph_of(lambda: ft.conv(x, w, padding=1))
    for _ in range(3):
        w.normal_(std=1 / 48)
        graph.replay()
        torch.testing.assert_close(y, torch.nn.functional.conv2d(x, w, padding=1), rtol=2e-3, atol=1e-2)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_under_torch_compile(mode, last):
    block, x = Block().eval().cuda(), tensors(dtype=torch.float32, last=last)[0]
    compiled = torch.compile(block, fullgraph=True, mode=mode)
    for _ in range(4):
        x = torch.randn_like(x)
        torch.testing.assert_close(compiled(x).clone(), block(x), rtol=1e-5, atol=1e-5)
        assert compiled(x).stride() == block(x).stride()


BATCHES = """
import pathlib, sys
import fuseplan.torch as ft, torch
w = torch.randn(64, 64, 3, 3, device="cuda").half().to(memory_format=torch.channels_last)
for batch in range(40, 104, 8):
    x = torch.randn(batch, 64, 56, 56, device="cuda").half().to(memory_format=torch.channels_last)
    with torch.no_grad():
        y = ft.conv(x, w, padding=1)
    torch.testing.assert_close(y, torch.nn.functional.conv2d(x, w, padding=1), rtol=2e-3, atol=2e-2)
    print(len(list(pathlib.Path(sys.argv[1]).rglob("*.bin"))))
"""


def test_batches_share_binaries(tmp_path):
    """Another batch needs another binary only where it has other tiles."""
    command, environment = [sys.executable, "-c", BATCHES, str(tmp_path)], {"MIOPEN_CUSTOM_CACHE_DIR": str(tmp_path)}
    ran = subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=True)
    stored = [int(line) for line in ran.stdout.splitlines()]
    assert len(stored) == 8 and 1 <= stored[-1] <= 4


def test_exported_saved_and_loaded(tmp_path):
    block, x = Block().eval().cuda(), tensors(dtype=torch.float32)[0]
    exported = torch.export.export(block, (x,))
    torch.export.save(exported, tmp_path / "block.pt2")
    assert torch.equal(torch.export.load(tmp_path / "block.pt2").module()(x), block(x))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(32)
        self.body = nn.ModuleList(nn.Conv2d(32, 32, 3, padding=1) for _ in range(2))
        self.depthwise = nn.Conv2d(32, 32, 3, padding=1, groups=32)
        self.norm.running_mean.normal_(0, 0.1)
        self.norm.running_var.uniform_(0.5, 1.5)

    def forward(self, x):
        y = torch.relu(self.norm(self.stem(x)))
        for conv in self.body:
            y = torch.relu(conv(y) + y)
        return F.hardswish(self.depthwise(y)).mean((2, 3))


def network(dtype, last, batch=4):
    model, x = Residual().eval().cuda().to(dtype), torch.randn(batch, 3, 32, 32, device="cuda", dtype=dtype)
    return (model.to(memory_format=LAST[4]), x.to(memory_format=LAST[4])) if last else (model, x)


def check(of, model, x):
    """Whether a network's result is as near to the exact one as rounding allows."""
    exact = copy.deepcopy(model).double()(x.double())
    most = max(8 * torch.finfo(x.dtype).eps, 1e-5)
    torch.testing.assert_close(of(x).double(), exact, rtol=most, atol=most)


@pytest.fixture
def runs(monkeypatch):
    """Whether each run of chains behind each other was one, as they are called."""
    own, made = _runs.run, []

    def run(*args):
        results = own(*args)
        made.append(results is not None)
        return results

    monkeypatch.setattr(_runs, "run", run)
    return made


@pytest.mark.parametrize("last", [False, True])
def test_chains_behind_each_other_are_a_run(runs, last, monkeypatch):
    model, x = network(torch.float16, last)
    fused = ft.optimize(model, x, choose="all")
    with monkeypatch.context() as without:
        without.setattr(_operator, "DIRECT", None)
        expected = fused(x)
    runs.clear()
    for _ in range(3):
        assert torch.equal(fused(x), expected)
    assert runs == [True] * 3
    # In the current stream, behind what is in it.
    given, stream = x.clone(), torch.cuda.Stream()
    x.zero_()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x.copy_(given)
        y = fused(x)
    stream.synchronize()
    assert torch.equal(y, expected)
    graph, y = graph_of(lambda: fused(x))
    for factor in (2, -1):
        x.copy_(given * factor)
        graph.replay()
        assert torch.equal(y, fused(x))
    # What is made for the run lies where other tensors of the stream lay.
    for _ in range(20):
        other = torch.full_like(x, float("nan"))
        assert torch.equal(fused(x), y)
        del other
    assert runs[-1]
    if torch.cuda.device_count() > 1:
        with torch.cuda.device(1):
            assert torch.equal(fused(x), y)
        assert not runs[-1]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_optimized_networks_and_their_errors(dtype, last):
    model, x = network(dtype, last)
    fused = ft.optimize(model, x, choose="all")
    assert len(fused.fuseplan_report.fused) == 4
    check(fused, model, x)
    comparison = ft.compare(model, fused, x)
    assert [of.operators for of in comparison.chains] == [
        "conv -> bias -> relu", *["conv -> bias -> residual -> relu"] * 2, "conv -> bias -> hardswish"
    ]
    # Each chain rounds once, and PyTorch behind each operator.
    assert all(of.rms <= 2 * of.own_rms for of in comparison)


WITH_PHASES = {
    # Layers, how many phases they have, and the image.
    "widen": (lambda: [nn.ConvTranspose2d(64, 32, 2, 2), nn.ReLU()], 4, (2, 64, 17, 23)),
    "four taps": (lambda: [nn.ConvTranspose2d(64, 64, 4, 2, 1)], 4, (2, 64, 16, 16)),
    "odd": (lambda: [nn.ConvTranspose2d(64, 24, 3, 2, 1, 1)], 4, (1, 64, 9, 7)),
    "transposed groups": (lambda: [nn.ConvTranspose2d(64, 32, 4, 2, 1, groups=4)], 4, (1, 64, 14, 14)),
    "transposed channels": (lambda: [nn.ConvTranspose2d(64, 64, 4, 2, 1, groups=64), nn.ReLU()], 4, (1, 64, 14, 14)),
    "dilated": (lambda: [nn.ConvTranspose2d(64, 24, 3, 2, 1, 1, dilation=3)], 4, (1, 64, 9, 7)),
    "doubled": (lambda: [nn.Upsample(scale_factor=2.0), nn.Conv2d(64, 128, 3, padding=1), nn.ReLU()], 4, (1, 64, 33, 31)),
    "five taps": (lambda: [nn.Upsample(scale_factor=2.0), nn.Conv2d(64, 20, 5, padding=2)], 4, (3, 64, 12, 11)),
    "groups": (lambda: [nn.Upsample(scale_factor=2.0), nn.Conv2d(64, 64, 3, padding=1, groups=4)], 4, (2, 64, 14, 14)),
    "trebled": (lambda: [nn.Upsample(scale_factor=3.0), nn.Conv2d(64, 32, 3, padding=1)], 9, (1, 64, 20, 20)),
    "video": (lambda: [nn.Upsample(scale_factor=(1.0, 2.0, 2.0)), nn.Conv3d(64, 32, (1, 3, 3), padding=(0, 1, 1))], 4, (1, 64, 3, 12, 20)),
    "volume": (lambda: [nn.ConvTranspose3d(64, 32, 2, 2)], 8, (1, 64, 3, 12, 20)),
}


@pytest.mark.parametrize("name", WITH_PHASES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_phases_are_exact(name, dtype, monkeypatch):
    """Of integers the sums are exact."""
    # By the model of their time such small images would be enlarged.
    monkeypatch.setattr(_chains, "_expected_of", lambda *_: None)
    layers, phases, shape = WITH_PHASES[name]
    make = nn.Conv2d if len(shape) == 4 else nn.Conv3d
    torch.manual_seed(0)
    model = nn.Sequential(make(shape[1], shape[1], 1, groups=shape[1]), *layers()).eval()
    for parameter in model.parameters():
        parameter.copy_(torch.randint(-1, 2, parameter.shape))
    model[0].weight.abs_().clamp_(min=1), model[0].bias.zero_()
    x = torch.randint(0, 2, shape).float() * (torch.rand(shape) < 0.25)
    exact = model.double()(x.double())
    assert exact.abs().max() <= 256
    model, x = model.to(device="cuda", dtype=dtype), x.to(device="cuda", dtype=dtype)
    model, x = model.to(memory_format=LAST[len(shape)]), x.to(memory_format=LAST[len(shape)])
    fused = ft.optimize(model, x, choose="all", rest="inductor")
    assert [of.plans for of in fused.fuseplan_report.fused] == [1, phases], str(fused.fuseplan_report)
    for call in (fused, torch.compile(fused)):
        y = call(x)
        assert torch.equal(y.double().cpu(), exact) and y.stride() == model(x).stride()


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_replaced_convolutions_and_their_errors(dtype, last):
    model, x = network(dtype, last)
    replaced = copy.deepcopy(model)
    report = ft.replace_convs(replaced)
    assert len(report.fused) == 4 and not report.unfused
    check(replaced, model, x)
    comparison = ft.compare(model, replaced, x)
    assert len(comparison.chains) == 4 and all(of.rms <= 2 * of.own_rms for of in comparison)


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("choose", ["all", "measure"])
def test_the_backend_of_torch_compile(choose, mode):
    model, x = network(torch.float16, True)
    reports = []
    kept = {"choose": choose, "report": reports.append}
    # PyTorch takes either a mode or options; the backend takes both.
    compiled = torch.compile(model, backend=lambda *given: ft.backend(*given, mode=mode, options=kept))
    for batch in (4, 4, 4, 6, 5):
        check(lambda x: compiled(x).clone(), model, torch.randn_like(torch.cat([x, x])[:batch]))
    for report in reports:
        assert len(report.fused) + len(report.unfused) == 4
        assert choose == "measure" or not report.unfused
        assert all(of.times is None if choose == "all" else not of.times.slower for of in report.fused)


def test_what_is_timed_is_the_device():
    x = torch.zeros(1 << 26, device="cuda")

    def slow_host():
        time.sleep(3e-4)
        return x.add_(1)

    def slow_device():
        x.add_(1)
        return x.add_(1)

    times = _choice._times(slow_host, slow_device, x.device)
    assert 0.4 < times.plan / times.torch < 0.6


def kernels(call):
    """The names of what a call has the GPU do, in its order."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    events = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    ordered = sorted(events, key=lambda event: event.time_range.start)
    return [event.name for event in ordered if not event.is_user_annotation]


@pytest.mark.parametrize("rest", ["eager", "inductor"])
@pytest.mark.parametrize("batch", [1, 64])
@pytest.mark.parametrize(
    "name, plans, pools, linear", [("resnet50", 53, 1, 1), ("mobilenet_v2", 52, 0, 1), ("vgg16_bn", 13, 4, 3)]
)
def test_nothing_but_plans_and_pools_from_the_first_convolution_to_the_last(name, plans, pools, linear, batch, rest):
    """No kernel for a bias, an activation, a residual, padding or a layout."""
    models = pytest.importorskip("torchvision.models", reason="torchvision is not installed")
    model = models.get_model(name).eval().cuda().half().to(memory_format=LAST[4])
    x = torch.randn(batch, 3, 224, 224, device="cuda", dtype=torch.float16).to(memory_format=LAST[4])
    fused = ft.optimize(model, x, choose="all")
    call = torch.compile(fused) if rest == "inductor" else fused
    names = kernels(lambda: call(x))
    ours = [at for at, of in enumerate(names) if "fuseplan_kernel" in of]
    between = [of for of in names[ours[0] : ours[plans - 1]] if "fuseplan_kernel" not in of]
    print(f"{name}, {batch} images, rest {rest}: {len(names)} kernels, {len(ours)} of plans, between them {between}")
    # Inductor computes those of large windows as maxima of slices.
    are_pools = ["pool" in of or "maximum" in of for of in between]
    assert len(ours) == plans + linear and len(between) == pools and all(are_pools)
    # Behind the convolutions stand a mean, which is PyTorch's own, and linear layers.
    assert not any("relu" in of or "elementwise" in of for of in names[: ours[0]])
    assert len(kernels(lambda: model(x))) > plans + pools + 20


def test_several_gpus():
    """Each tensor is computed on its own GPU, whichever is PyTorch's current one."""
    count = torch.cuda.device_count()
    if count < 2:
        pytest.skip("there is one GPU")
    model, x = Residual().eval(), torch.randn(2, 3, 32, 32)
    exact = copy.deepcopy(model).double()(x.double())

    def work(index):
        device = torch.device("cuda", index)
        own, given = copy.deepcopy(model).to(device), x.to(device)
        with torch.no_grad(), torch.cuda.device((index + 1) % count):
            return own, given, ft.optimize(own, given, choose="all")

    def call(made):
        own, given, fused = made
        with torch.no_grad(), torch.cuda.device((given.device.index + 1) % count):
            return [fused(given), fused(given), ft.conv(given, own.stem.weight, stride=2, padding=1)]

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        # While one thread exports, PyTorch traces calls of other threads as well, so that nobody calls before all have.
        networks = list(pool.map(work, range(count)))
        for index, results in enumerate(pool.map(call, networks)):
            assert all(of.device.index == index for of in results)
            for of in results[:2]:
                torch.testing.assert_close(of.cpu().double(), exact, rtol=1e-4, atol=1e-5)


class Pooled(nn.Module):
    """A stem, and the pyramid of pools of detectors."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(16, 32, 3, padding=1), nn.Conv2d(128, 16, 1)

    def forward(self, x):
        pooled = [F.max_pool2d(self.first(x).relu(), 3, 2, 1)]
        for _ in range(3):
            pooled.append(F.max_pool2d(pooled[-1], 5, 1, 2))
        return self.last(torch.cat(pooled, 1))


@pytest.mark.parametrize("last", (True, False))
def test_inductor_computes_max_pools_without_reductions(last):
    torch.manual_seed(0)
    x = torch.randn(4, 16, 38, 41, device="cuda", dtype=torch.float16)
    model = Pooled().cuda().half().eval()
    if last:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    plain = model(x)
    fused = ft.optimize(model, x, choose="all")
    assert [node.target for node in fused.graph.nodes].count(_pools.max_pool2d) == 4
    expected = fused(x)
    torch.testing.assert_close(expected, plain, rtol=1e-2, atol=1e-2)
    for compiled in (torch.compile(fused), torch.compile(model, backend="fuseplan", options={"choose": "all"})):
        torch.testing.assert_close(compiled(x), expected, rtol=1e-2, atol=1e-2)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            compiled(x)
            torch.cuda.synchronize()
        names = [event.key for event in profiler.key_averages()]
        assert any("triton_poi" in name for name in names), names
        assert not any("triton_per" in name or "triton_red" in name or "max_pool_forward" in name for name in names), names


INTO = torch.ops.fuseplan.chain_into.default


@pytest.mark.parametrize("last", (True, False))
@pytest.mark.parametrize("dims", (2, 3))
@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32))
@pytest.mark.parametrize("channels, filters, groups", ((16, 32, 1), (32, 32, 2), (32, 32, 32), (3, 40, 1)))
def test_a_slice_has_the_bits_of_the_chain_and_nothing_else_is_written(channels, filters, groups, dtype, dims, last):
    """At multiples of 16 bytes, at one channel behind that, and with the image and the residual beside it in the same memory."""
    x, w, b = tensors(dims, channels, filters, groups, dtype, last)
    ones = ",".join("1" * dims)
    text = f"conv stride={ones} padding={','.join('1' * 2 * dims)} dilation={ones} groups={groups} -> bias -> residual -> silu"
    whole = torch.empty((2, 256, *x.shape[2:]), device="cuda", dtype=dtype)
    whole = whole.contiguous(memory_format=LAST[x.dim()]) if last else whole
    residual = torch.randn_like(OP(x, w, [b], text.replace(" -> residual", "")))
    expected = OP(x, w, [b, residual], text)
    for first in (64, 65):
        whole.fill_(float("nan"))
        image, added = whole[:, :channels].copy_(x), whole[:, 192 : 192 + filters].copy_(residual)
        for given in ((x, residual), (x, added), (image, residual), (image, added)):
            out = whole[:, first : first + filters].fill_(float("nan"))
            for _ in range(2):
                INTO(given[0], w, [b, given[1]], text, out)
            torch.testing.assert_close(out, expected, rtol=2 * torch.finfo(dtype).eps, atol=1e-5)
            rest = whole[:, channels:first], whole[:, first + filters : 192], whole[:, 192 + filters :]
            assert all(of.isnan().all() for of in rest)
            assert torch.equal(image, x) and torch.equal(added, residual)
    # In another order than the image's.
    other = torch.empty_like(expected, memory_format=torch.contiguous_format if last else LAST[x.dim()])
    INTO(x, w, [b, residual], text, other)
    torch.testing.assert_close(other, expected, rtol=2 * torch.finfo(dtype).eps, atol=1e-5)
    torch.library.opcheck(INTO, (x, w, [b, residual], text, whole[:, 64 : 64 + filters]))


class Joined(nn.Module):
    """A skip that a pool reads before it is concatenated, halves with what is computed of them, and the pyramid of pools."""

    def __init__(self):
        super().__init__()
        layer = lambda channels, filters, taps=3: nn.Sequential(nn.Conv2d(channels, filters, taps, padding=taps // 2), nn.SiLU())
        self.skip, self.down, self.halves = layer(16, 64), layer(64, 64), layer(128, 64, 1)
        self.inner, self.join, self.last = nn.Sequential(layer(32, 32), layer(32, 32)), layer(96, 32, 1), layer(128, 16, 1)

    def forward(self, x):
        skip = self.skip(x)
        up = F.interpolate(self.down(F.max_pool2d(skip, 2)), scale_factor=2.0)
        halves = self.halves(torch.cat([up, skip], 1)).chunk(2, 1)
        pooled = [self.join(torch.cat([*halves, self.inner(halves[1]) + halves[1]], 1))]
        for _ in range(3):
            pooled.append(F.max_pool2d(pooled[-1], 5, 1, 2))
        return self.last(torch.cat(pooled, 1))


@pytest.mark.parametrize("mode", (None, "reduce-overhead"))
@pytest.mark.parametrize("last", (True, False))
def test_chains_write_into_concatenations(last, mode):
    torch.manual_seed(0)
    model, x = Joined().cuda().half().eval(), torch.randn(4, 16, 48, 64, device="cuda", dtype=torch.float16)
    if last:
        model, x = (of.to(memory_format=torch.channels_last) for of in (model, x))
    options = {"choose": "all", "memory_format": torch.preserve_format}
    before, fused = (ft.optimize(model, x, rest=rest, **options) for rest in ("eager", "inductor"))
    targets = [node.target for node in fused.graph.nodes]
    assert (targets.count(INTO), targets.count(OP), targets.count(torch.ops.aten.cat.default)) == (4, 3, 0)
    torch.testing.assert_close(fused(x), before(x), rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(fused(x), model(x), rtol=1e-2, atol=1e-2)
    compiled = torch.compile(fused, fullgraph=True, mode=mode)
    backend = lambda *given: ft.backend(*given, mode=mode, options={"choose": "all"})
    by_backend = torch.compile(model, backend=backend, fullgraph=True)
    for call in (compiled, by_backend):
        for _ in range(4):
            torch.testing.assert_close(call(x).clone(), fused(x), rtol=1e-2, atol=1e-2)
    names = kernels(lambda: compiled(x))
    assert len([name for name in names if "fuseplan_kernel" in name]) >= 7
    # Neither Inductor's kernel nor PyTorch's.
    assert not any("_cat_" in f"{name}_" or "CatArray" in name for name in names), names
