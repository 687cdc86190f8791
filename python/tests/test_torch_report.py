"""Reports name every convolution of a network, with why it is no plan."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

import fuseplan.torch as ft  # noqa: E402
from fuseplan.torch import Times  # noqa: E402
from torch import nn  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

ONE_DIMENSION = "it is of one dimension; accepted: two and three"
TRANSPOSED = "ConvForward (operator 0): transposed convolution is not supported; accepted: a convolution with mode Convolution"


@pytest.mark.parametrize(
    "layer, shape, operator, reason",
    [
        (nn.Conv1d(3, 4, 3), (1, 3, 8), "conv", ONE_DIMENSION),
        (nn.Conv1d(3, 4, 3), (3, 8), "conv", ONE_DIMENSION),
        (nn.ConvTranspose1d(3, 4, 2, 2), (1, 3, 8), "conv_transpose", ONE_DIMENSION),
        (nn.ConvTranspose2d(3, 4, 2, 2), (1, 3, 8, 8), "conv_transpose", TRANSPOSED),
        (nn.ConvTranspose3d(3, 4, 2, 2), (1, 3, 4, 4, 4), "conv_transpose", TRANSPOSED),
    ],
)
@pytest.mark.parametrize("rest", ["eager", "inductor"])
@torch.no_grad()
def test_convolutions_that_no_plan_takes_are_named(layer, shape, operator, reason, rest):
    model, x = nn.Sequential(layer, nn.ReLU()).eval(), torch.randn(shape)
    reports = [ft.optimize(model, x, choose="all", rest=rest).fuseplan_report]
    torch._dynamo.reset()
    options = {"choose": "all", "rest": "eager", "report": reports.append}
    torch.testing.assert_close(torch.compile(model, backend="fuseplan", options=options)(x), model(x))
    assert len(reports) == 2
    for report in reports:
        (unfused,) = report.unfused
        assert not report.fused and unfused.operator == operator
        assert unfused.reason.removeprefix(f"{unfused.name}: ") == reason
        kind = "transposed convolutions" if operator == "conv_transpose" else "convolutions"
        assert str(report) == f"0 of 1 {kind} are plans\n  {unfused.name}: not fused, as {unfused.reason}"


@torch.no_grad()
def test_an_image_whose_elements_are_the_same_memory_begins_no_chain():
    class Gray(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)

        def forward(self, x):
            return self.conv(x.expand(-1, 3, -1, -1))

    model, x = Gray().eval(), torch.randn(1, 1, 8, 8)
    fused = ft.optimize(model, x, choose="all")
    (unfused,) = fused.fuseplan_report.unfused
    assert unfused.reason == "its tensors are of no type, shape or strides that plans have"
    torch.testing.assert_close(fused(x), model(x))


@pytest.mark.parametrize(
    "seconds, text",
    [(3.4774e-6, "3.48 µs"), (1.606e-4, "161 µs"), (9.996e-4, "1 ms"), (5.948e-2, "59.5 ms"), (1.25, "1.25 s"), (1250.4, "1250 s")],
)
def test_times_are_in_the_unit_that_fits_them(seconds, text):
    assert str(Times(seconds, 2 * seconds)).startswith(f"{text}, as PyTorch's own ")
    assert str(Times(1e-6, seconds)) == f"1 µs, as PyTorch's own {text}"
