"""The operator without PyTorch's dispatcher: which calls go that way."""

import concurrent.futures
import contextlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

from fuseplan.torch import _operator  # noqa: E402
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
    with pytest.raises(RuntimeError, match="lack"):
        type(_direct)(_operator._CALLS, dispatched, "/no/such/library.so", (0, 0))


_direct = _operator.DIRECT


@pytest.mark.parametrize("within", ["torch.autocast('cpu')", "torch.inference_mode()", "torch.device('meta')"])
def test_imported_within_a_mode(within):
    program = f"import torch\nwith {within}:\n    import fuseplan.torch\nassert fuseplan.torch._operator.DIRECT is not None"
    subprocess.run([sys.executable, "-c", program], check=True)
