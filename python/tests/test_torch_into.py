"""The operator `fuseplan::chain_into` in PyTorch: it writes what `chain` computes to a tensor, and nothing else."""

import itertools

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

from fuseplan._native import Calls  # noqa: E402
from fuseplan.errors import UnsupportedError  # noqa: E402
from fuseplan.torch import _into, _operator  # noqa: E402
from test_torch_operator import SAMPLES, conv_text, sample, tensors  # noqa: E402
from torch._inductor.utils import run_and_get_code  # noqa: E402

CHAIN, INTO = torch.ops.fuseplan.chain.default, torch.ops.fuseplan.chain_into.default
NAN = float("nan")
# Channels of the whole, and those that are written.
WHOLE, FIRST, STOP = 40, 8, 24


@pytest.fixture(autouse=True)
def without_gradients():
    torch._dynamo.reset()
    with torch.no_grad():
        yield
    torch._dynamo.reset()


@pytest.fixture(params=["operator", "by attributes"])
def into(request):
    """The operator, and what it is where PyTorch has no functions of DLPack in C."""
    return INTO if request.param == "operator" else Calls(object, _operator._first, _operator._SWITCHES).into


def whole_of(x, filters=WHOLE):
    last = {4: torch.channels_last, 5: torch.channels_last_3d}[x.dim()]
    layout = last if x.is_contiguous(memory_format=last) else torch.contiguous_format
    return torch.empty((x.shape[0], filters, *x.shape[2:]), dtype=x.dtype, memory_format=layout).fill_(NAN)


@pytest.mark.parametrize("operands, operators, groups", SAMPLES)
@pytest.mark.parametrize("dims, dtype, last", list(itertools.product((2, 3), (torch.float32, torch.bfloat16), (False, True))))
def test_a_slice_has_the_bits_of_the_chain_and_nothing_else_is_written(operands, operators, groups, dims, dtype, last, into):
    given = sample(dims, operands, operators, groups, dtype, last)
    whole = whole_of(given[0])
    for _ in range(3):
        whole.fill_(NAN)
        assert into(*given, whole[:, FIRST:STOP]) is None
        assert torch.equal(whole[:, FIRST:STOP], CHAIN(*given))
        assert whole[:, :FIRST].isnan().all() and whole[:, STOP:].isnan().all()
        into(*given, whole[:, STOP:WHOLE], True)
        assert torch.equal(whole[:, STOP:WHOLE], whole[:, FIRST:STOP]) and whole[:, :FIRST].isnan().all()


@pytest.mark.parametrize("last", (False, True))
def test_image_and_residual_may_be_slices_of_the_same_tensor(last):
    x, w, _ = tensors(2, channels=16, filters=16, last=last)
    whole = whole_of(x, 48)
    a, b, c = whole.split(16, 1)
    a.copy_(x), b.copy_(x.cos())
    text = f"{conv_text()} -> residual -> relu"
    expected = CHAIN(x, w, [x.cos()], text)
    for _ in range(2):
        INTO(a, w, [b], text, c)
        assert torch.equal(c, expected) and torch.equal(a, x) and torch.equal(b, x.cos())
    with pytest.raises(ValueError, match="the output: memory shared with the input"):
        INTO(a, w, [b], text, whole[:, 8:24])


def test_another_order_and_a_linear_layer(into):
    x, w, b = tensors(2, last=True)
    text = f"{conv_text()} -> bias"
    out = torch.empty(2, 16, 9, 10)
    rows, matrix = torch.randn(2, 3, 8), torch.randn(16, 8)
    wide = torch.full((2, 3, 32), NAN)
    for _ in range(2):
        into(x, w, [b], text, out)
        assert torch.equal(out, CHAIN(x, w, [b], text))
        into(rows, matrix, [b], "linear -> bias", wide[..., 4:20])
        assert torch.equal(wide[..., 4:20], CHAIN(rows, matrix, [b], "linear -> bias"))
        assert wide[..., :4].isnan().all() and wide[..., 20:].isnan().all()


def test_where_no_kernel_writes_an_order_the_result_is_copied(monkeypatch):
    plan, x, w = _operator._Steps.plan, *tensors(2)[:2]

    def of_a_gpu(self, x, weight, operands, device, output_strides=None):
        if output_strides is not None:
            raise UnsupportedError("no solver", property="layout")
        return plan(self, x, weight, operands, device)

    monkeypatch.setattr(_operator._Steps, "plan", of_a_gpu)
    out = torch.empty(2, 9, 10, 16).permute(0, 3, 1, 2)
    for _ in range(2):
        INTO(x, w, [], conv_text(), out.fill_(NAN))
        assert torch.equal(out, CHAIN(x, w, [], conv_text()))


@pytest.mark.parametrize(
    "out, found",
    [
        (torch.empty(2, 15, 9, 10), r"float32 \[2, 15, 9, 10\] on cpu"),
        (torch.empty(1, 16, 9, 10), r"float32 \[1, 16, 9, 10\] on cpu"),
        (torch.empty(2, 16, 9, 10, dtype=torch.float16), r"float16 \[2, 16, 9, 10\] on cpu"),
        (torch.empty(2, 16, 9, 10, device="meta"), r"float32 \[2, 16, 9, 10\] on meta"),
    ],
)
def test_refusals_name_what_is_accepted(out, found):
    x, w, _ = tensors(2)
    accepted = r"chain_into: out is torch.{}; accepted: torch.float32 \[2, 16, 9, 10\] on cpu"
    with pytest.raises(ValueError, match=accepted.format(found)):
        INTO(x, w, [], conv_text(), out)
    with pytest.raises(Exception, match="chain_into: out is"):
        torch.compile(lambda out: INTO(x, w, [], conv_text(), out), backend="eager", fullgraph=True)(out)


def test_gradients_are_refused_and_changes_counted():
    x, w, _ = tensors(2)
    out = torch.empty(2, 16, 9, 10)
    before = out._version
    INTO(x, w, [], conv_text(), out)
    INTO(x, w, [], conv_text(), out)
    assert out._version == before + 2
    with torch.inference_mode():
        made = torch.empty(2, 16, 9, 10)
        INTO(x, w, [], conv_text(), made)
    assert torch.equal(made, out)
    with torch.enable_grad(), pytest.raises(RuntimeError, match="for inference"):
        INTO(x.requires_grad_(), w, [], conv_text(), out)


@pytest.mark.parametrize("operands, operators, groups", SAMPLES[::2])
@pytest.mark.parametrize("dims, dtype, last", [(2, torch.float32, False), (2, torch.float16, True), (3, torch.float32, True)])
def test_the_declaration_is_true(operands, operators, groups, dims, dtype, last):
    given = sample(dims, operands, operators, groups, dtype, last)
    torch.library.opcheck(INTO, (*given, whole_of(given[0])[:, FIRST:STOP]))


def test_calls_are_made_again_and_forgotten():
    x, w, b = tensors(2)
    text = f"{conv_text()} -> bias"
    _operator._CALLS.clear()
    whole = whole_of(x)
    for _ in range(2):
        INTO(x, w, [b], text, whole[:, :16], True)
        INTO(x, w, [b], text, whole[:, 16:32], True)
        CHAIN(x, w, [b], text, True)
    assert len(_operator._CALLS) == 2
    # What is written to is no operand.
    with pytest.raises(ValueError, match="too many operands"):
        CHAIN(x, w, [b, whole[:, :16]], text)
    del w
    assert len(_operator._CALLS) == 0


def test_an_output_whose_elements_overlap_is_refused():
    x, w, b = tensors(2)
    y = CHAIN(x, w, [b], f"{conv_text()} -> bias")
    images, channels, lines, columns = y.stride()
    out = torch.empty(y.numel()).as_strided(y.shape, (images, channels - columns, lines, columns))
    with pytest.raises(UnsupportedError, match="strides with which no elements overlap"):
        INTO(x, w, [b], f"{conv_text()} -> bias", out)


@pytest.mark.parametrize("last", (False, True))
def test_compiled_as_one_graph(last):
    x, w, b = tensors(2, last=last)
    text = f"{conv_text()} -> bias -> relu"

    def both(x):
        whole = whole_of(x, 32)
        INTO(x, w, [b], text, whole[:, :16])
        INTO(x.cos(), w, [b], text, whole[:, 16:])
        return whole.sin()

    y, (code,) = run_and_get_code(torch.compile(both, fullgraph=True), x)
    expected = torch.cat([CHAIN(of, w, [b], text) for of in (x, x.cos())], 1).sin()
    torch.testing.assert_close(y, expected)
    assert code.count("torch.ops.fuseplan.chain_into.default(") == 2 and "fuseplan.chain.default" not in code
