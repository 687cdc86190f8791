"""What the operators refuse where tensors have no memory yet, and images whose elements are the same memory."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

import fuseplan.torch as ft  # noqa: E402
from torch import nn  # noqa: E402

pytestmark = pytest.mark.torch

TEXT = "conv stride=1,1 padding=1,1,1,1 dilation=1,1 groups=1 -> bias"
GRADIENTS = "for inference, they have no gradient"


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(8, 3, 3, 3)), nn.Parameter(torch.randn(8))

    def forward(self, x):
        return 2 * ft.conv(torch.sin(x), self.weight, self.bias, padding=1)


class Into(Layer):
    def forward(self, x):
        out = x.new_empty(x.shape[0], 8, *x.shape[2:])
        torch.ops.fuseplan.chain_into(x, self.weight, [self.bias], TEXT, out)
        return out


class IntoRecorded(Layer):
    """What it writes to is a tensor whose gradient would be recorded."""

    def __init__(self):
        super().__init__()
        self.requires_grad_(False)
        self.factor = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        out = self.factor * x.new_ones(x.shape[0], 8, *x.shape[2:])
        torch.ops.fuseplan.chain_into(x, self.weight, [self.bias], TEXT, out)
        return out


@pytest.mark.parametrize("layer", [Layer, Into, IntoRecorded])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.filterwarnings("default")
def test_compiled_programs_lose_no_gradient_without_a_word(layer, backend):
    torch._dynamo.reset()
    model, x = layer(), torch.randn(1, 3, 6, 7)
    compiled = torch.compile(model, backend=backend)
    with pytest.raises(RuntimeError, match=GRADIENTS):
        compiled(x)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))


def test_gradients_are_refused_of_tensors_without_memory():
    weight = torch.randn(8, 3, 3, 3, device="meta", requires_grad=True)
    x = torch.randn(1, 3, 6, 7, device="meta")
    with pytest.raises(RuntimeError, match=GRADIENTS):
        ft.conv(x, weight)
    with torch.no_grad():
        assert ft.conv(x, weight).shape == (1, 8, 4, 5)


def test_networks_are_exported_whether_their_weights_record_gradients_or_not():
    model, x = Layer(), torch.randn(1, 3, 6, 7)
    exported = torch.export.export(model, (x,)).module()
    with torch.no_grad():
        torch.testing.assert_close(exported(x), model(x))
    with pytest.raises(RuntimeError, match=GRADIENTS):
        exported(x)


@torch.no_grad()
def test_tensors_on_another_device_are_refused():
    x, weight, bias = torch.randn(1, 3, 6, 7), torch.randn(8, 3, 3, 3, device="meta"), torch.randn(8)
    with pytest.raises(ValueError, match="chain: a tensor lies on meta; accepted: cpu, where the image lies"):
        ft.conv(x, weight, bias)
    with pytest.raises(ValueError, match="chain: a tensor lies on cpu; accepted: meta"):
        ft.conv(x.to("meta"), weight, bias)


@torch.no_grad()
def test_images_that_were_expanded_are_read_as_their_copies():
    gray, weight, bias = torch.randn(2, 1, 6, 7), torch.randn(8, 3, 3, 3), torch.randn(8)
    x = gray.expand(-1, 3, -1, -1)
    expected = torch.nn.functional.conv2d(x, weight, bias, padding=1)
    for _ in range(3):
        y = ft.conv(x, weight, bias, padding=1)
        torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
        assert y.stride() == expected.stride()
    torch.library.opcheck(torch.ops.fuseplan.chain.default, (x, weight, [bias], TEXT))
    torch.library.opcheck(torch.ops.fuseplan.chain.default, (x, weight[:1].expand(8, -1, -1, -1), [bias], TEXT, True))
    tokens, matrix = torch.randn(4, 1, 5).expand(-1, 3, -1), torch.randn(6, 5)
    torch.testing.assert_close(
        torch.ops.fuseplan.chain(tokens, matrix, [], "linear"), torch.nn.functional.linear(tokens, matrix), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("memory_format", [None, torch.preserve_format])
@torch.no_grad()
def test_a_network_takes_an_image_that_was_expanded(memory_format):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)).eval()
    fused = ft.optimize(model, torch.randn(2, 3, 9, 9), choose="all", memory_format=memory_format)
    assert len(fused.fuseplan_report.fused) == 2
    x = torch.randn(2, 1, 9, 9).expand(-1, 3, -1, -1)
    for _ in range(3):
        torch.testing.assert_close(fused(x), model(x), rtol=1e-4, atol=1e-5)
