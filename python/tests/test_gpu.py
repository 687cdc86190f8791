"""Plans on a GPU: arrays there, streams, stored binaries."""

import pickle

import fuseplan
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]


@pytest.fixture
def layer():
    """A plan for the GPU with weights that are given at a call, its arguments, and its result."""
    torch.manual_seed(0)
    x, w, b = torch.randn(2, 16, 9, 9).cuda(), torch.randn(32, 16, 3, 3).cuda() / 8, torch.randn(32).cuda()
    plan = fuseplan.Plan(x).conv((32, 16, 3, 3), padding=1).bias().activation("silu")
    expected = torch.nn.functional.silu(torch.nn.functional.conv2d(x.double(), w.double(), b.double(), padding=1))
    return plan, x, {"weight": w, "bias": b}, expected


def check(y, expected):
    torch.testing.assert_close(torch.as_tensor(y).double(), expected, rtol=1e-5, atol=1e-5)


def test_handles():
    best, named = fuseplan.Handle(), fuseplan.Handle("cuda", 0)
    assert (best.backend, best.ordinal, named.arch) == ("cuda", 0, best.arch)
    assert ("cuda", 0) in [(backend, number) for backend, number, *_ in fuseplan.devices()]


def test_tensors_constants_and_outputs(layer):
    plan, x, operands, expected = layer
    compiled = plan.compile(fuseplan.Handle("cuda"))
    check(compiled(x, **operands), expected)
    bound, out = compiled.bind(**operands), torch.empty_like(expected, dtype=torch.float32)
    assert bound(x, out=out) is out and "cuda." in compiled.explain() and compiled.kernels == 1
    check(out, expected)


def test_a_plan_is_compiled_for_where_its_arrays_lie(layer):
    plan, x, operands, expected = layer
    check(plan.compile()(x, **operands), expected)
    on_host = {name: operand.cpu().numpy() for name, operand in operands.items()}
    on_cpu = fuseplan.Plan(x.cpu().numpy()).conv((32, 16, 3, 3), padding=1).bias().activation("silu")
    check(on_cpu.compile()(x.cpu().numpy(), **on_host), expected.cpu())


def test_stored_and_pickled(layer):
    plan, x, operands, expected = layer
    handle = fuseplan.Handle("cuda")
    compiled = plan.compile(handle)
    check(fuseplan.CompiledPlan.from_bytes(plan, compiled.to_bytes(), handle)(x, **operands), expected)
    check(pickle.loads(pickle.dumps(compiled))(x, **operands), expected)


def test_a_stream_of_the_callers(layer):
    plan, x, operands, expected = layer
    stream = torch.cuda.Stream()
    handle = fuseplan.Handle("cuda", stream=stream.cuda_stream)
    assert handle.stream == stream.cuda_stream
    y = plan.compile(handle)(x, **operands)
    stream.synchronize()
    check(y, expected)


def test_arrays_of_another_library(layer):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    plan, x, operands, expected = layer
    arrays = {name: cupy.from_dlpack(of) for name, of in operands.items()}
    out = cupy.empty(expected.shape, cupy.float32)
    assert plan.compile(fuseplan.Handle("cuda"))(cupy.from_dlpack(x), out=out, **arrays) is out
    check(torch.from_dlpack(out), expected)


def test_arrays_of_the_host_are_not_copied(layer):
    plan, x, operands, _ = layer
    compiled = plan.compile(fuseplan.Handle("cuda"))
    for given in (x.cpu(), x.cpu().numpy()):
        with pytest.raises(fuseplan.OperandError) as caught:
            compiled(given, **operands)
        assert caught.value.property == "device"
    on_host = fuseplan.Plan(np.ones((1, 3, 4, 4), np.float32)).activation("relu").compile(fuseplan.Handle("cpu"))
    with pytest.raises(fuseplan.OperandError):
        on_host(torch.ones(1, 3, 4, 4, device="cuda"))
