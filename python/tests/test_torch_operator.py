"""The operator `fuseplan::chain` in PyTorch: what it computes, its declaration, compiled and exported graphs."""

import concurrent.futures
import contextlib
import itertools
import sys

import fuseplan
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

import fuseplan.torch as ft  # noqa: E402
from fuseplan._native import Calls, PlanCall  # noqa: E402
from fuseplan.torch import _operator, _text  # noqa: E402
from torch.nn import functional as F  # noqa: E402

OP = torch.ops.fuseplan.chain.default
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


@pytest.fixture
def calls():
    """The operator's calls that can be made again, of which there are none before and after."""
    _operator._CALLS.clear()
    yield _operator._CALLS
    _operator._CALLS.clear()


@pytest.fixture(params=["operator", "by attributes"])
def chain(request):
    """The operator, and what it is where PyTorch has no functions of DLPack in C."""
    return OP if request.param == "operator" else Calls(object, _operator._first, _operator._SWITCHES)


def tensors(dims, channels=8, filters=16, groups=1, dtype=torch.float32, last=False):
    torch.manual_seed(0)
    x = torch.randn(2, channels, *(9, 10, 7)[:dims], dtype=dtype)
    w = torch.randn(filters, channels // groups, *(3,) * dims, dtype=dtype) / 8
    if last:
        x, w = (t.to(memory_format=CHANNELS_LAST[t.dim()]) for t in (x, w))
    return x, w, torch.randn(filters, dtype=dtype)


@pytest.mark.parametrize("dims, last", list(itertools.product([2, 3], [False, True])))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_beside_torch(dims, last, dtype):
    x, w, b = tensors(dims, groups=2, dtype=dtype, last=last)
    conv = (F.conv2d, F.conv3d)[dims - 2]
    plain = conv(x.double(), w.double(), b.double(), stride=2, padding=1, groups=2)
    residual = torch.randn(plain.shape, dtype=dtype).contiguous(memory_format=CHANNELS_LAST[x.dim()])
    y = ft.conv(x, w, b, residual, stride=2, padding=1, groups=2, activation="silu")
    expected = F.silu(plain + residual.double())
    torch.testing.assert_close(y.double(), expected, rtol=2 * torch.finfo(dtype).eps, atol=1e-5)
    assert y.dtype == dtype
    assert y.is_contiguous(memory_format=CHANNELS_LAST[x.dim()] if last else torch.contiguous_format)


@pytest.mark.parametrize("padding", [1, "same", "valid", (2, 0), ((1, 1), (0, 0))])
@torch.no_grad()
def test_padding(padding):
    x, w, _ = tensors(2)
    plain = (1, 0) if padding == ((1, 1), (0, 0)) else padding
    torch.testing.assert_close(ft.conv(x, w, padding=padding), F.conv2d(x, w, padding=plain))
    causal = ft.conv(x, w, padding=((2, 0), (1, 1)), stride=2)
    torch.testing.assert_close(causal, F.conv2d(F.pad(x, (1, 1, 2, 0)), w, stride=2))


@torch.no_grad()
def test_options_of_before_have_the_text_of_before(monkeypatch):
    x, w, b = tensors(2)
    monkeypatch.setattr(_operator, "_TEXTS", {})
    monkeypatch.setattr(_operator, "_MOST_TEXTS", 5)
    of_text, made = _text.text_of, []
    monkeypatch.setattr(_text, "text_of", lambda *options: made.append(options) or of_text(*options))
    calls = [
        (1, w, F.conv2d(x, w, b, padding=1)),
        ([1, 1], w, F.conv2d(x, w, b, padding=1)),
        (((2, 0), (1, 1)), w, F.conv2d(F.pad(x, (1, 1, 2, 0)), w, b)),
        (1, w[..., :1], F.conv2d(x, w[..., :1], b, padding=1)),
    ]
    for padding, weight, expected in calls * 3:
        torch.testing.assert_close(ft.conv(x, weight, b, padding=padding), expected)
    assert len(made) == 3
    # A padding by its name goes by the weight.
    for weight, plain in ((w, 1), (w[..., :1], (1, 0)), (w, 1)):
        torch.testing.assert_close(ft.conv(x, weight, b, padding="same"), F.conv2d(x, weight, b, padding=plain))
    assert len(made) == 6
    for width in range(2, 7):
        ft.conv(x, w, b, padding=width)
        assert len(_operator._TEXTS) <= 5
    slope = torch.tensor(0.5)
    for _ in range(2):
        y = ft.conv(x, w, b, activation="leaky_relu", slope=slope)
        torch.testing.assert_close(y, F.leaky_relu(F.conv2d(x, w, b), slope.item()))
        slope.mul_(0.5)
    # What was refused is no text of options that are equal to it.
    for stride in ((1.0, 1.0), (True, True)):
        with pytest.raises(ValueError):
            ft.conv(x, w, stride=stride)
    torch.testing.assert_close(ft.conv(x, w, stride=(1, 1)), F.conv2d(x, w))


def conv_text(dims=2, groups=1):
    ones = ",".join(["1"] * dims)
    return f"conv stride={ones} padding={ones},{ones} dilation={ones} groups={groups}"


SAMPLES = [
    ([], "", 1),
    (["b"], "bias -> leaky_relu slope=0.2", 1),
    (["b", "r"], "bias -> residual -> relu", 1),
    (["r", "b", "b"], "residual -> bias -> relu6 max=6.0 -> bias", 2),
    (["b", "b", "b", "v"], "batch_norm eps=0.001 -> gelu", 1),
]


def sample(dims, operands, operators, groups, dtype, last):
    x, w, b = tensors(dims, groups=groups, dtype=dtype, last=last)
    r = torch.randn(x.shape[0], w.shape[0], *x.shape[2:], dtype=dtype)
    given = {"b": b, "r": r, "v": b.abs() + 0.5}
    return x, w, [given[name] for name in operands], " -> ".join(filter(None, [conv_text(dims, groups), operators]))


@pytest.mark.parametrize("operands, operators, groups", SAMPLES)
@pytest.mark.parametrize("dims, dtype, last", [(2, torch.float32, False), (2, torch.float16, True), (3, torch.float32, True)])
@torch.no_grad()
def test_the_declaration_is_true(operands, operators, groups, dims, dtype, last):
    torch.library.opcheck(OP, sample(dims, operands, operators, groups, dtype, last))


def test_gradients_are_refused_and_parameters_are_not():
    x, w, b = tensors(2)
    w = torch.nn.Parameter(w)
    with pytest.raises(RuntimeError, match="for inference"):
        ft.conv(x, w, b)
    with torch.no_grad():
        expected = ft.conv(x, w, b)
    with torch.inference_mode():
        assert torch.equal(ft.conv(x, w, b), expected)


@torch.no_grad()
def test_what_is_refused_has_its_reason():
    x, w, b = tensors(2)
    with pytest.raises(fuseplan.UnsupportedError) as caught:
        ft.conv(x, w[:, :4], b)
    assert caught.value.property == "shape"
    with pytest.raises(fuseplan.UnsupportedError, match="f64"):
        ft.conv(x.double(), w.double())
    with pytest.raises(ValueError, match="accepted: identity"):
        ft.conv(x, w, activation="swish")
    with pytest.raises(TypeError, match="slope"):
        ft.conv(x, w, slope=1)
    with pytest.raises(ValueError, match="too few"):
        OP(x, w, [], f"{conv_text()} -> bias")
    with pytest.raises(ValueError, match="too many"):
        OP(x, w, [b], f"{conv_text()} -> relu")
    with pytest.raises(ValueError, match="accepted: conv with stride"):
        OP(x, w, [b], "bias -> relu")


@torch.no_grad()
def test_constant_weights_follow_changes_in_place(chain):
    x, w, b = tensors(2)
    arguments = (f"{conv_text()} -> bias -> relu", True)
    for _ in range(2):
        torch.testing.assert_close(chain(x, w, [b], *arguments), F.relu(F.conv2d(x, w, b, padding=1)))
    for change in (lambda: w.mul_(2), lambda: b.add_(1)):
        change()
        for _ in range(2):
            torch.testing.assert_close(chain(x, w, [b], *arguments), F.relu(F.conv2d(x, w, b, padding=1)))


@torch.no_grad()
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("dims, last_x", list(itertools.product([2, 3], [False, True])))
def test_weights_are_brought_into_the_images_layout_for_gpus(monkeypatch, calls, dims, last_x, constant):
    monkeypatch.setattr(_operator, "_ONE_LAYOUT", {"cpu"})
    made, planned = _operator._Steps.plan, []
    monkeypatch.setattr(
        _operator._Steps, "plan", lambda steps, x, weight, *rest: planned.append(weight) or made(steps, x, weight, *rest)
    )
    x, w, b = tensors(dims, last=last_x)
    last = CHANNELS_LAST[x.dim()]
    w = w.contiguous(memory_format=torch.contiguous_format if last_x else last)
    arguments = ([b], f"{conv_text(dims)} -> bias", constant)
    for change in (lambda: None, lambda: w.mul_(2)):
        change()
        for image in (x, x, x[:1]):
            y = OP(image, w, *arguments)
            torch.testing.assert_close(y, (F.conv2d, F.conv3d)[dims - 2](image, w, b, padding=1), rtol=1e-5, atol=1e-5)
            assert y.is_contiguous(memory_format=last if last_x else torch.contiguous_format)
    assert planned and all(of.strides[1] == (1 if last_x else 3**dims) for of in planned)
    if constant:
        # Plans of several sizes share one copy.
        assert _operator._OF_WEIGHTS[id(w)]._laid[1].stride()[1] == (1 if last_x else 3**dims)


def _moved(tensor):
    """Gives a tensor's storage another size and so another place, and what lies at the old one other values."""
    tensor.untyped_storage().resize_(1 << 20)
    return [torch.full_like(tensor, 7) for _ in range(50)]


@torch.no_grad()
def test_a_constant_is_a_new_one_behind_each_change(chain):
    x, w, b = tensors(2)
    arguments = (f"{conv_text()} -> bias", True)
    inference = torch.inference_mode()
    for change in (lambda: b.add_(1), lambda: w.neg_(), lambda: b.sub_(1)):
        for _ in range(2):
            torch.testing.assert_close(chain(x, w, [b], *arguments), F.conv2d(x, w, b, padding=1))
        change()
    # Values that have no count of changes any more are another constant's.
    with inference:
        other = torch.randn(16)
    torch.testing.assert_close(chain(x, w, [b], *arguments), F.conv2d(x, w, b, padding=1))
    b.data = other
    for _ in range(2):
        torch.testing.assert_close(chain(x, w, [b], *arguments), F.conv2d(x, w, b, padding=1))


def _layout_by_data(tensor):
    tensor.data = tensor.data.transpose(2, 3)


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda w: w.set_(torch.randn(16, 8, 3, 3)),
        lambda w: w.set_(w.untyped_storage(), 0, w.shape, (72, 1, 24, 8)),
        lambda w: w.as_strided_(w.shape, (72, 1, 24, 8)),
        lambda w: w.resize_(8, 8, 3, 3),
        _layout_by_data,
        _moved,
    ],
    ids=["other storage", "other strides", "as_strided_", "resize_", "data", "moved"],
)
def test_constant_weights_that_are_given_other_memory_or_another_layout(chain, change, inference):
    with torch.inference_mode() if inference else torch.no_grad():
        x, w, _ = tensors(2)
        arguments = ([], f"{conv_text()} -> relu", True)
        for _ in range(2):
            torch.testing.assert_close(chain(x, w, *arguments), F.relu(F.conv2d(x, w, padding=1)))
        kept = change(w)
        for _ in range(2):
            torch.testing.assert_close(chain(x, w, *arguments), F.relu(F.conv2d(x, w, padding=1)))
        del kept


@pytest.fixture
def whole_numbers():
    """A convolution that is Winograd's on a CPU, and its result, all of whole numbers."""
    model = torch.nn.Conv2d(64, 64, 3, padding=1).eval().requires_grad_(False)
    x = torch.randint(-8, 9, (1, 64, 32, 32)).float()
    for parameter in model.parameters():
        parameter.copy_(torch.randint(-8, 9, parameter.shape))
    return model, x, F.conv2d(x.double(), model.weight.double(), model.bias.double(), padding=1).float()


@torch.no_grad()
def test_strict_plans_have_each_output_the_sum_of_its_own_products(whole_numbers):
    model, x, expected = whole_numbers
    weights = model.weight, model.bias
    assert not torch.equal(ft.conv(x, *weights, padding=1), expected), "the plan is not Winograd's"
    assert torch.equal(ft.conv(x, *weights, padding=1, math="strict"), expected)
    assert torch.equal(ft.optimize(model, x, choose="all", math="strict")(x), expected)
    options = {"rest": "eager", "choose": "all", "math": "strict"}
    assert torch.equal(torch.compile(model, backend="fuseplan", options=options)(x), expected)
    ft.replace_convs(replaced := torch.nn.Sequential(model), math="strict")
    assert torch.equal(replaced(x), expected)
    for call in (
        lambda: ft.conv(x, *weights, padding=1, math="tf32"),
        lambda: ft.optimize(torch.nn.ReLU().eval(), x, math="tf32"),
        lambda: ft.replace_convs(torch.nn.ReLU(), math="tf32"),
        lambda: ft.backend(torch.fx.symbolic_trace(torch.nn.ReLU()), [x], options={"math": "tf32"}),
    ):
        with pytest.raises(ValueError, match="math is 'tf32'; accepted: None, 'strict'"):
            call()
    with pytest.raises(ValueError, match="and math=strict if that is wanted"):
        OP(x, model.weight, [], conv_text() + " math=fast")


class _Uncounted(torch.Tensor):
    """A tensor whose count of changes must not be asked for."""

    @property
    def _version(self):
        raise AssertionError("PyTorch takes a hundred microseconds to say that there is none")


def test_a_tensor_of_inference_mode_is_not_asked_for_its_count_of_changes(chain):
    with torch.inference_mode():
        x, w, b = tensors(2)
        expected = F.relu(F.conv2d(x, w, b, padding=1))
        w, b = (tensor.as_subclass(_Uncounted) for tensor in (w, b))
        assert w.is_inference()
        for _ in range(3):
            y = chain(x, w, [b], f"{conv_text()} -> bias -> relu", True)
            torch.testing.assert_close(y.as_subclass(torch.Tensor), expected)


@torch.no_grad()
@pytest.mark.parametrize("constant", [False, True])
def test_a_repeated_call_sees_what_is_another_tensor(chain, constant):
    x, w, b = tensors(2)
    text = f"{conv_text()} -> bias -> residual"
    r = torch.randn(2, 16, 9, 10)
    last = torch.channels_last
    calls = [
        (x, w, b, r),
        (x, w, b, r),
        (x * 2, w, b, -r),
        (x, w.clone(), b, r),
        (x, w, b.clone(), r),
        (x.to(memory_format=last), w, b, r),
        (x, w, b, r.to(memory_format=last)),
        (x[:1], w, b, r[:1]),
        (x.flip(3), w, b, r),
    ]
    for x, w, b, r in calls * 2:
        y = chain(x, w, [b, r], text, constant)
        torch.testing.assert_close(y, F.conv2d(x, w, b, padding=1) + r)
    # The first call with such tensors is checked as all are.
    with pytest.raises(fuseplan.OperandError, match="residual"):
        chain(x, w, [b, r[:, :4]], text, constant)
    with pytest.raises(fuseplan.OperandError, match="bias"):
        chain(x, w, [b[:4], r], text, constant)
    with pytest.raises(fuseplan.OperandError, match="bias"):
        chain(x, w, [torch.randn(32)[::2], r], text, constant)


@torch.no_grad()
def test_plans_end_with_their_weights(calls):
    before = len(_operator._OF_WEIGHTS)
    x, w, _ = tensors(2)
    OP(x, w, [], conv_text(), True)
    assert len(_operator._OF_WEIGHTS) == before + 1 and len(calls) == 1
    del w
    assert len(_operator._OF_WEIGHTS) == before and len(calls) == 0


@torch.no_grad()
@pytest.mark.parametrize("constant, most", [(False, 1024), (True, 64)])
def test_of_many_calls_the_last_are_kept(calls, constant, most):
    _, w, _ = tensors(2)
    for width in range(1, most + 3):
        x = torch.ones(1, 8, 1, width)
        OP(x, w, [], conv_text(), constant)
    assert len(calls) == most
    torch.testing.assert_close(OP(x, w, [], conv_text(), constant), F.conv2d(x, w, padding=1))
    assert len(calls) == most


@contextlib.contextmanager
def python_frames():
    """The names of the functions of Python that run."""
    names = []
    sys.setprofile(lambda frame, event, _: names.append(frame.f_code.co_name) if event == "call" else None)
    try:
        yield names
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("constant", [False, True])
def test_a_repeated_call_runs_no_python(calls, constant, mode):
    with mode():
        x, w, b = tensors(2)
        r = torch.randn(2, 16, 9, 10)
        arguments = (w, [b, r], f"{conv_text()} -> bias -> residual", constant)
        with python_frames() as first:
            OP(x, *arguments)
        with python_frames() as again:
            y = OP(x + 1, *arguments)
        assert "_first" in first and len(calls) == 1
        # The caller's own way to any operator.
        assert set(again) <= {"__call__", "__exit__", "python_frames"}
        torch.testing.assert_close(y, F.conv2d(x + 1, w, b, padding=1) + r)


class Recorded(torch.Tensor):
    """A tensor that says which of its methods are called."""

    called = []

    def data_ptr(self):
        self.called.append("data_ptr")
        return super().data_ptr()


@pytest.mark.parametrize("tensor_class", [torch.Tensor, object])
@torch.no_grad()
def test_tensors_are_looked_at_in_c_where_pytorch_can(tensor_class):
    x, w, b = tensors(2)
    calls = Calls(tensor_class, _operator._first, _operator._SWITCHES)
    calls(x, w, [b], f"{conv_text()} -> bias")
    Recorded.called.clear()
    y = calls(x.as_subclass(Recorded), w, [b], f"{conv_text()} -> bias")
    torch.testing.assert_close(y, F.conv2d(x, w, b, padding=1))
    assert len(calls) == 1
    assert bool(Recorded.called) != hasattr(tensor_class, "__dlpack_c_exchange_api__")


@torch.no_grad()
def test_calls_follow_the_number_of_threads(calls):
    x, w, _ = tensors(2)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 1):
            torch.set_num_threads(count)
            OP(x, w, [], conv_text())
    finally:
        torch.set_num_threads(threads)
    assert len(calls) == 2


class OnGpu:
    """What is asked of a tensor on a GPU."""

    def __init__(self, like, index=0):
        self.is_cuda, self.device, self.requires_grad = True, torch.device("cuda", index), False
        self.dtype, self.shape, self.stride, self.data_ptr = like.dtype, like.shape, like.stride, like.data_ptr


@torch.no_grad()
def test_calls_of_gpus_follow_the_setting_and_the_device():
    made, tf32 = [], [False, False]

    def first(x, *_):
        made.append((x.device.index, *tf32))
        return "first", lambda *tensors: ("again", tensors), []

    calls = Calls(object, first, (lambda: tf32[0], lambda: tf32[1]))
    x, w, b = tensors(2)
    for index, *tf32[:] in [(0, False, False), (0, True, False), (0, False, True), (1, False, True)]:
        given = OnGpu(x, index), OnGpu(w, index), [OnGpu(b, index)]
        assert calls(*given, f"{conv_text()} -> bias") == "first"
        assert calls(*given, f"{conv_text()} -> bias") == ("again", (*given, None))
    assert made == [(0, False, False), (0, True, False), (0, False, True), (1, False, True)]


@torch.no_grad()
def test_outputs_are_made_on_the_images_gpu_whichever_is_the_current_one():
    x, w, b = tensors(2)
    plan = fuseplan.Plan(x).conv(w, padding=1).bias()
    of_cpu = plan.compile(fuseplan.Handle("cpu"))
    shape, strides = plan.output.shape, plan.output.strides
    current, made, streams = [0], [], []

    def here(*output):
        made.append(f"here, {current[0]}")
        return torch.empty_strided(*output)

    def elsewhere():
        made.append(f"elsewhere, {current[0]}")
        return torch.empty_strided(shape, strides)

    gpu = _operator._Gpu(1, lambda: current[0], elsewhere, lambda: streams.append(current[0]) or 0)
    call = PlanCall(of_cpu, [2], here, (shape, strides), gpu, None)
    calls = Calls(torch.Tensor, lambda *_: (None, call, []), _operator._SWITCHES)
    assert calls(x, w, [b], "") is None
    for current[0] in (1, 0, 1):
        torch.testing.assert_close(calls(x, w, [b], ""), F.conv2d(x, w, b, padding=1))
    assert made == ["here, 1", "elsewhere, 0", "here, 1"] and streams == [1, 0, 1]
    with pytest.raises(AttributeError, match="gpu"):
        PlanCall(of_cpu, [2], here, (shape, strides), object(), None)


@torch.no_grad()
def test_calls_of_several_threads(calls):
    x, w, b = tensors(2)
    text = f"{conv_text()} -> bias"
    expected = F.conv2d(x, w, b, padding=1)

    def work(_):
        for constant in (False, True) * 50:
            with torch.no_grad():
                torch.testing.assert_close(OP(x, w, [b], text, constant), expected)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert len(calls) <= 8


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8, 8, 3, 3) / 8)

    def forward(self, x):
        return ft.conv(torch.sin(x), self.weight, None, x, padding=1, activation="hardswish") * 2


@pytest.mark.parametrize("last", [False, True])
@torch.no_grad()
def test_under_torch_compile(last):
    torch._dynamo.reset()
    block = Block().eval()
    x = tensors(2, last=last)[0]
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), block(x))
    # Another batch size: sizes are symbols then.
    x = torch.cat([x, x, x])
    torch.testing.assert_close(compiled(x), block(x))
    assert compiled(x).stride() == block(x).stride()


@torch.no_grad()
def test_under_inductor():
    torch._dynamo.reset()
    block, x = Block().eval(), tensors(2)[0]
    torch.testing.assert_close(torch.compile(block, fullgraph=True)(x), block(x))


@torch.no_grad()
def test_exported_saved_and_loaded(tmp_path):
    block, x = Block().eval(), tensors(2)[0]
    exported = torch.export.export(block, (x,))
    assert "fuseplan.chain" in str(exported.graph)
    torch.export.save(exported, tmp_path / "block.pt2")
    again = torch.export.load(tmp_path / "block.pt2").module()
    assert torch.equal(again(x), block(x))
