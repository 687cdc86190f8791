"""The operator without PyTorch's dispatcher: which calls go that way, and chains behind each other in one call."""

import concurrent.futures
import contextlib
import copy
import gc
import os
import random
import subprocess
import sys
import weakref

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

import fuseplan.torch as ft  # noqa: E402
from fuseplan.torch import _operator, _runs  # noqa: E402
from torch import nn  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

OP = torch.ops.fuseplan.chain.default
CONV = "conv stride=1,1 padding=0,0,0,0 dilation=1,1 groups=1"


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def tensors():
    torch.manual_seed(0)
    return torch.randn(2, 8, 5, 6), torch.randn(4, 8, 1, 1), torch.randn(4)


def dispatched(*args, **kwargs):
    """Stands for PyTorch's dispatcher."""
    return "dispatched"


@pytest.fixture
def direct():
    """The operator, for which `dispatched` stands for the dispatcher, and calls that it knows."""
    x, w, b = tensors()
    for constant in (False, True):
        with torch.no_grad():
            OP(x, w, [b], f"{CONV} -> bias", constant)
    return _operator._direct(dispatched), (x, w, [b], f"{CONV} -> bias", True)


def test_calls_that_are_like_one_before_do_not_pass_the_dispatcher(direct):
    direct, (x, w, operands, text, constant) = direct
    expected = F.conv2d(x, w, *operands)
    for mode in (torch.no_grad, torch.enable_grad, torch.inference_mode):
        with mode():
            for arguments in ((x, w, operands, text, constant), (x, w, operands, text, False), (x, w, operands, text)):
                y = direct(*arguments)
                torch.testing.assert_close(y, expected)
                assert y.is_inference() == torch.is_inference_mode_enabled() and not y.requires_grad
    parameter = nn.Parameter(w, requires_grad=False)
    OP(x, parameter, operands, text, constant)
    torch.testing.assert_close(direct(x, parameter, operands, text, constant), expected)
    # In other threads as well.
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for y in pool.map(lambda _: direct(x, w, operands, text, constant), range(4)):
            torch.testing.assert_close(y, expected)
    assert OP._op is _operator.DIRECT


def test_other_calls_do(direct):
    direct, (x, w, operands, text, constant) = direct
    (b,) = operands
    others = [
        (x[:1], w, operands, text, constant),
        (x, w.clone(), operands, text, constant),
        (x, w, operands, f"{text} -> relu", constant),
        (x, w, operands, text, 1),
        (x, w, operands, text, constant, None),
        (x, w, operands),
        (x, w, (b,), text, constant),
        (x, w, [b, b], text, constant),
        (x, w, [None], text, constant),
        (x.to("meta"), w, operands, text, constant),
        (x.to_sparse(), w, operands, text, constant),
        (torch._neg_view(x), w, operands, text, constant),
        (torch._efficientzerotensor(x.shape), w, operands, text, False),
        (x.as_subclass(type("Other", (torch.Tensor,), {})), w, operands, text, constant),
        (x.clone().requires_grad_(), w, operands, text, constant),
    ]
    for arguments in others:
        assert direct(*arguments) == "dispatched", arguments
    assert direct(x, w, operands, text, constant=constant) == direct(x=x) == direct() == "dispatched"
    with torch.no_grad():
        assert isinstance(direct(x.clone().requires_grad_(), w, operands, text, constant), torch.Tensor)
    w.mul_(2)
    assert direct(x, w, operands, text, constant) == "dispatched"


def traced(call):
    torch.jit.trace(lambda x: (call(), x)[1], torch.ones(2), check_trace=False)


def with_modes(call):
    for mode in (
        Mode(),
        FakeTensorMode(),
        torch.device("cpu"),
        torch.autocast("cpu"),
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
    ):
        with mode:
            call()


@pytest.mark.parametrize(
    "within",
    [
        with_modes,
        traced,
        lambda call: torch.vmap(lambda x: (call(), x)[1])(torch.ones(2)),
        lambda call: torch.func.grad(lambda x: (call(), x)[1])(torch.tensor(1.0)),
        lambda call: torch.func.functionalize(lambda x: (call(), x)[1])(torch.ones(2)),
        lambda call: torch.fx.experimental.proxy_tensor.make_fx(lambda x: (call(), x)[1])(torch.ones(2)),
    ],
)
def test_whatever_takes_calls_on_their_way_has_them(direct, within):
    direct, arguments = direct
    found = []
    assert isinstance(direct(*arguments), torch.Tensor)
    within(lambda: found.append(direct(*arguments)))
    assert found and all(of == "dispatched" for of in found)
    assert isinstance(direct(*arguments), torch.Tensor)


@torch.no_grad()
def test_values_that_are_not_what_lies_in_memory():
    x, w, b = tensors()
    for constant in (False, True):
        for of in (x, torch._neg_view(x), x):
            for _ in range(2):
                y = OP(of, w, [b], f"{CONV} -> bias", constant)
                torch.testing.assert_close(y, F.conv2d(of, w, b))


@torch.no_grad()
def test_without_what_tells_of_the_dispatcher(monkeypatch):
    assert _operator._direct(dispatched) is not None
    for keys in (None, (0, 0), (1, 0)):
        with monkeypatch.context() as other:
            other.setattr(_operator, "dispatch_keys", lambda library, keys=keys: keys)
            assert _operator._direct(dispatched) is None
    # What a mode does is not what is known of it.
    with monkeypatch.context() as other:
        other.setattr(torch, "autocast", lambda device: contextlib.nullcontext())
        assert _operator._direct(dispatched) is None
    monkeypatch.setattr(_operator, "DIRECT", None)
    model, x = Blocks(), torch.randn(2, 8, 5, 6)
    fused = ft.optimize(model, x, choose="all")
    for _ in range(3):
        torch.testing.assert_close(fused(x), model(x))
    with pytest.raises(RuntimeError, match="lack"):
        type(_direct)(_operator._CALLS, dispatched, "/no/such/library.so", (0, 0), {})


_direct = _operator.DIRECT


@pytest.mark.parametrize("within", ["torch.autocast('cpu')", "torch.inference_mode()", "torch.device('meta')"])
def test_imported_within_a_mode(within):
    program = f"import torch\nwith {within}:\n    import fuseplan.torch\nassert fuseplan.torch._operator.DIRECT is not None"
    subprocess.run([sys.executable, "-c", program], check=True)


class Blocks(nn.Module):
    """Chains behind each other with values that live long, in two runs, a weight that is used twice, and two results."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.convs = nn.ModuleList(nn.Conv2d(8, 8, 1) for _ in range(6))
        self.eval()

    def forward(self, x):
        a = torch.relu(self.convs[0](x))
        b = self.convs[1](a)
        c = torch.relu(self.convs[2](b) + a)
        d = torch.tanh(self.convs[1](c) + x)
        e = F.max_pool2d(d, 3, stride=1, padding=1)
        f = self.convs[3](e)
        g = self.convs[4](f) + e
        return torch.cat([self.convs[5](g), d], 1)


@contextlib.contextmanager
def runs():
    """Whether each run was one, as they are called."""
    own, made = _runs.run, []

    def run(*args):
        results = own(*args)
        made.append(results is not None)
        return results

    _runs.run = run
    try:
        yield made
    finally:
        _runs.run = own


def blocks(**options):
    model, x = Blocks(), torch.randn(2, 8, 5, 6)
    with torch.no_grad():
        return model, ft.optimize(model, x, choose="all", **options), x


def by_one(fused, x):
    """The network's result, chain by chain."""
    direct, _operator.DIRECT = _operator.DIRECT, None
    try:
        return fused(x)
    finally:
        _operator.DIRECT = direct


@torch.no_grad()
def test_chains_behind_each_other_are_a_run():
    model, fused, x = blocks()
    assert fused.code.count("fuseplan_run(") == 2 and len(fused.fuseplan_report.fused) == 7
    assert len(fused.graph.find_nodes(op="call_function", target=OP)) == 7
    expected = [by_one(fused, of) for of in (x, x + 1)]
    with runs() as made:
        for _ in range(3):
            assert torch.equal(fused(x), expected[0]) and torch.equal(fused(x + 1), expected[1])
    assert made == [True] * 12
    torch.testing.assert_close(expected[0], model(x))
    # What nobody reads is no result.
    (last,) = [node for node in fused.graph.nodes if node.name == "cat"]
    last.args = ([last.args[0][1]] * 2, 1)
    fused.recompile()
    unread = fused(x)
    assert fused.code.count("fuseplan_run(") == 1 and torch.equal(unread, torch.cat([unread[:, :8]] * 2, 1))
    # A single chain is no run.
    alone = nn.Sequential(nn.Conv2d(8, 8, 1), nn.MaxPool2d(2), nn.Conv2d(8, 8, 1)).eval()
    assert "fuseplan_run" not in ft.optimize(alone, x, choose="all").code


@torch.no_grad()
def test_runs_of_other_tensors_than_before():
    model, fused, x = blocks(dynamic_shapes=({0: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC},))
    others = [x, x[:1], x.contiguous(memory_format=torch.channels_last), x.flip(3), torch.randn(3, 8, 5, 6).flip(0)[1:]]
    others += [torch.randn(2, 8, 5, width) for width in range(7, 26)]
    # Their memory has the opposite of their values.
    others += [torch._neg_view(x), torch._neg_view(x[:1])]
    for _ in range(3):
        for of in others:
            torch.testing.assert_close(fused(of), model(of))
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 1):
            torch.set_num_threads(count)
            for _ in range(3):
                torch.testing.assert_close(fused(x), model(x))
    finally:
        torch.set_num_threads(threads)


@torch.no_grad()
def test_runs_follow_changes_of_their_constants():
    model, fused, x = blocks()
    conv, weight = model.convs[2], next(name for name in dict(fused.named_parameters()) if name == "convs.2.weight")
    of_fused = fused.get_parameter(weight)
    changes = [
        lambda of: of.mul_(2),
        lambda of: setattr(of, "data", of.data.clone() + 1),
        lambda of: of.set_((of.detach() - 3).clone()),
        lambda of: of.transpose_(0, 1),
    ]
    for change in changes:
        for _ in range(3):
            torch.testing.assert_close(fused(x), model(x))
        change(of_fused)
        change(conv.weight)
    with runs() as made:
        for _ in range(3):
            torch.testing.assert_close(fused(x), model(x))
    assert made[-1]


class Folded(nn.Module):
    """Its weights are buffers of the result's."""

    def __init__(self):
        super().__init__()
        self.each = nn.Sequential(*(m for _ in range(3) for m in (nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU())))
        self.eval()

    def forward(self, x):
        return self.each(x)


@torch.no_grad()
def test_runs_have_the_buffers_that_the_module_has_now():
    model, x = Folded(), torch.randn(2, 8, 5, 6)
    fused = ft.optimize(model, x, choose="all")
    twin, expected = copy.deepcopy(fused), model(x)
    for _ in range(3):
        torch.testing.assert_close(fused(x), expected)
        torch.testing.assert_close(twin(x), expected)
    twin.fuseplan_weight_1 = torch.zeros_like(twin.fuseplan_weight_1)
    with runs() as made:
        for _ in range(3):
            assert not torch.equal(twin(x), fused(x))
    assert made[-2:] == [True, True]
    # As many networks of one kind as there are, each with its own weights.
    twins = [copy.deepcopy(fused) for _ in range(20)]
    for number, of in enumerate(twins):
        of.fuseplan_operand0_2.add_(number)
    with runs() as made:
        for of in twins * 3:
            assert torch.equal(of(x), by_one(of, x))
    assert made[-2:] == [True, False]
    del twin.fuseplan_weight_1
    with pytest.raises(KeyError, match="fuseplan_weight_1"):
        twin(x)
    torch.testing.assert_close(fused(x), expected)


@torch.no_grad()
def test_runs_end_with_their_weights():
    _operator._CALLS.clear()
    fused, x = ft.optimize(Folded(), torch.randn(2, 8, 5, 6), choose="all"), torch.randn(2, 8, 5, 6)
    for _ in range(3):
        fused(x)
    weight = weakref.ref(fused.fuseplan_weight_0)
    before = sys.getrefcount(weight()), sys.getrefcount(x)
    for _ in range(10):
        y = fused(x)
    after = sys.getrefcount(weight()), sys.getrefcount(x)
    of_result = sys.getrefcount(y)
    assert before == after and of_result == 2 and len(_operator._CALLS) == 3
    del fused
    gc.collect()
    assert weight() is None and len(_operator._CALLS) == 0


@torch.no_grad()
def test_runs_of_several_threads():
    model, fused, x = blocks()
    images = [x + number for number in range(4)]
    expected = [fused(of) for of in images]

    def work(number):
        with torch.no_grad():
            return all(torch.equal(fused(images[number]), expected[number]) for _ in range(50))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@torch.no_grad()
def test_runs_in_a_child_of_a_fork():
    fused, x = ft.optimize(Folded(), torch.randn(2, 8, 5, 6), choose="all"), torch.randn(2, 8, 5, 6)
    expected = [fused(x) for _ in range(3)][0].tolist()
    child = os.fork()
    if child == 0:
        # PyTorch's own operators would wait for threads that only the parent has.
        os._exit(0 if fused(x).tolist() == expected else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_gradients_are_refused_as_by_the_operator():
    _, fused, x = blocks()
    fused.requires_grad_(False)
    for _ in range(3):
        fused(x)
    with pytest.raises(RuntimeError, match="for inference, they have no gradient"):
        fused(x.clone().requires_grad_())
    with torch.no_grad():
        assert not fused(x.clone().requires_grad_()).requires_grad


@torch.no_grad()
def test_whatever_looks_at_a_network_sees_its_chains():
    model, fused, x = blocks()
    for _ in range(3):
        fused(x)
    expected = model(x)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        fused(x)
    assert sum(event.name == "fuseplan::chain" for event in profile.events()) == 7
    torch.testing.assert_close(fused(torch._neg_view(-x)), expected)
    for again in (
        torch.compile(fused, fullgraph=True, backend="aot_eager"),
        torch.export.export(fused, (x,)).module(),
        torch.export.export(fused, (x,), strict=True).module(),
        torch.fx.experimental.proxy_tensor.make_fx(fused)(x),
        torch.jit.trace(fused, x),
        copy.deepcopy(fused),
    ):
        graph = getattr(again, "graph", None)
        assert graph is None or str(graph).count("chain") >= 7
        for _ in range(3):
            torch.testing.assert_close(again(x), expected)
    assert len(ft.compare(model, fused, x).chains) == 7


@torch.no_grad()
def test_where_there_is_no_memory_in_one_piece(monkeypatch):
    own = _operator._EMPTY["cpu"]

    def empty(shape, strides, dtype):
        if dtype is torch.uint8:
            raise MemoryError
        return own(shape, strides, dtype)

    monkeypatch.setitem(_operator._EMPTY, "cpu", empty)
    # With the memory that a run before may have left.
    _operator._CALLS.clear()
    model, fused, x = blocks()
    with runs() as made:
        for _ in range(4):
            torch.testing.assert_close(fused(x), model(x))
    assert not made[-1]


@torch.no_grad()
def test_runs_leave_their_memory_to_others(monkeypatch):
    own, asked = _operator._EMPTY["cpu"], []

    def empty(shape, strides, dtype):
        if dtype is torch.uint8:
            asked.append(shape[0])
        return own(shape, strides, dtype)

    monkeypatch.setitem(_operator._EMPTY, "cpu", empty)
    _operator._CALLS.clear()
    model, fused, x = blocks(dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    small, large = x, torch.randn(40, 8, 5, 6)
    for of in (small, large, small, large, small):
        for _ in range(3):
            torch.testing.assert_close(fused(of), model(of))
    # Of more images there is more, which then is enough for all: nothing is asked for but what is larger than before.
    assert asked == sorted(set(asked)) and len(asked) >= 2
    _operator._CALLS.clear()
    for _ in range(3):
        torch.testing.assert_close(fused(small), model(small))
    # No more than 64 MiB are kept.
    many, before = torch.randn(40000, 8, 5, 6), len(asked)
    for _ in range(3):
        fused(many)
    assert len([of for of in asked[before:] if of > 64 << 20]) >= 2


@torch.no_grad()
@pytest.mark.parametrize("seed", range(8))
def test_any_chains_behind_each_other(seed):
    """What is still read is not written over, whichever chain reads whose result."""
    pick = random.Random(seed)
    torch.manual_seed(seed)
    given = [torch.randn(1, 8, pick.choice([3, 40]), 7) for _ in range(2)]
    weights = [torch.randn(8, 8, 1, 1) / 4 for _ in range(3)]
    bias = torch.randn(8)
    outside = [*given, *weights, bias]
    values, lines, results = list(outside), [], []
    for _ in range(20):
        images = [at for at in (0, 1, *range(len(outside), len(values)))]
        image, weight, constant = pick.choice(images[-6:] + images[:2]), pick.randrange(2, 5), pick.random() < 0.7
        residuals = [at for at in images if values[at].shape == values[image].shape]
        operands, text = [5], f"{CONV} -> bias"
        if pick.random() < 0.6:
            operands, text = [5, pick.choice(residuals)], f"{CONV} -> bias -> residual -> tanh"
        lines.append(f"{'constant' if constant else 'variable'} {' '.join(map(str, [image, weight, *operands]))}: {text}")
        values.append(OP(values[image], values[weight], [values[at] for at in operands], text, constant))
        if pick.random() < 0.3:
            results.append(len(values) - 1)
    results.append(len(values) - 1)
    results = list(dict.fromkeys(results))
    program = "\n".join([" ".join(map(str, results)), *lines])
    for _ in range(3):
        found = _operator.DIRECT.run(program, {}, (), None, tuple(outside))
        assert all(torch.equal(y, values[at]) for y, at in zip(found, results, strict=True))
        # Another image of the same layout.
        assert len(_operator.DIRECT.run(program, {}, (), None, (outside[0] + 1, *outside[1:]))) == len(results)


@pytest.mark.parametrize(
    "program",
    ["", "2", "2\n", "2\nconstant 0: conv", "2\nconstant 0 2: conv", "2\nother 0 1: conv", "0\nconstant 0 1: conv",
     "2 2\nconstant 0 1: conv", "3\nconstant 0 1: conv", "x\nconstant 0 1: conv", "2\nconstant 0 1 conv"],
)
def test_what_is_no_program_is_refused(program):
    x, w, _ = tensors()
    with pytest.raises(ValueError, match="with 2 tensors this is no program"):
        _operator.DIRECT.run(program, {}, (), None, (x, w))


def test_buffers_that_are_not_there():
    x, w, _ = tensors()
    assert _operator.DIRECT.run(f"2\nconstant 0 1: {CONV}", {}, ("w",), None, (x,)) is None
    assert _operator.DIRECT.run(f"2\nconstant 0 1: {CONV}", {"w": None}, ("w",), None, (x,)) is None
