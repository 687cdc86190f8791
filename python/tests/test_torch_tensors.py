"""Tensors of PyTorch as arrays; a build of PyTorch for CPUs is enough."""

import fuseplan
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytestmark = pytest.mark.torch


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_convolution_beside_torch(dtype, memory_format):
    torch.manual_seed(0)
    x = torch.randn(2, 8, 9, 9).to(dtype).to(memory_format=memory_format)
    w = torch.randn(16, 8, 3, 3).to(dtype).to(memory_format=memory_format)
    b = torch.randn(16).to(dtype)
    y = fuseplan.Plan(x).conv(w, padding=1).bias(b).activation("relu").compile(fuseplan.Handle("cpu"))(x)
    expected = torch.relu(torch.conv2d(x.double(), w.double(), b.double(), padding=1))
    assert y.dtype == dtype and y.is_contiguous(memory_format=memory_format)
    torch.testing.assert_close(y.double(), expected, rtol=2 * torch.finfo(dtype).eps, atol=1e-4)


def test_a_constant_keeps_its_memory_when_the_tensor_is_given_other():
    x, w = torch.randn(1, 8, 5, 5), torch.randn(16, 8, 3, 3)
    expected, address = torch.conv2d(x, w), w.data_ptr()
    # The reference derives nothing from weights, so that each call reads them.
    layer = fuseplan.Plan(x).conv(w).compile(fuseplan.Handle("cpu"), solver="cpu.reference.v1")
    w.set_(torch.zeros(1))
    others = [torch.zeros(16, 8, 3, 3) for _ in range(200)]
    assert all(other.data_ptr() != address for other in others)
    for of in (layer, layer.bind()):
        torch.testing.assert_close(of(x), expected, rtol=1e-4, atol=1e-4)


def test_a_constant_that_wants_its_gradient_is_refused():
    x, w = torch.randn(1, 8, 5, 5), torch.randn(16, 8, 3, 3, requires_grad=True)
    with pytest.raises(BufferError, match="detach"):
        fuseplan.Plan(x).conv(w).compile(fuseplan.Handle("cpu"))


def test_a_tensor_that_wants_its_gradient_is_refused():
    x = torch.zeros(1, 1, 2, 2)
    layer = fuseplan.Plan(x).activation("relu").compile(fuseplan.Handle("cpu"))
    with pytest.raises(BufferError, match="detach"):
        layer(x.clone().requires_grad_())


def test_a_tensor_that_is_not_the_plans_is_refused():
    x = torch.full((1, 1, 2, 2), 3.0)
    layer = fuseplan.Plan(x).activation("relu").compile(fuseplan.Handle("cpu"))
    assert torch.equal(layer(x), x)
    with pytest.raises(fuseplan.OperandError, match="dtype torch.int64"):
        layer(x.long())
    with pytest.raises(fuseplan.OperandError, match="strides"):
        layer(torch.ones(1, 1, 2, 4)[..., ::2])
    with pytest.raises((BufferError, RuntimeError)):
        layer(x.to_sparse())


def test_an_output_lies_as_the_plan_says():
    x = torch.randn(1, 4, 3, 3).to(memory_format=torch.channels_last)
    layer = fuseplan.Plan(x).activation("relu").compile(fuseplan.Handle("cpu"))
    y = layer(x)
    assert y.stride() == x.stride() and torch.equal(y, x.relu())
