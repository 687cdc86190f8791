"""`torch.compile(model, backend="fuseplan")`, and the choice between plans and PyTorch's own operators."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

import fuseplan.torch as ft  # noqa: E402
from fuseplan.torch import _backend, _choice, _operator  # noqa: E402
from torch import nn  # noqa: E402


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding="same")
        self.act = nn.ReLU(inplace=True)
        self.norm.running_mean.normal_(0, 0.1)
        self.norm.running_var.uniform_(0.5, 1.5)

    def forward(self, x):
        y = self.act(self.norm(self.first(x)))
        return self.act(self.second(y) + y).mean((2, 3)), nn.functional.silu(self.first(x)), x.flatten()


@pytest.fixture
def compiled(monkeypatch):
    """Compiles a network; gives what was reported, and counts the plans that are made."""
    torch._dynamo.reset()
    reports = []
    make = _operator._Call.__init__

    def counted(self, *arguments):
        reports.plans += 1
        make(self, *arguments)

    class Reports(list):
        plans = 0

    reports = Reports()
    monkeypatch.setattr(_operator._Call, "__init__", counted)

    def compile(model, backend="fuseplan", **options):
        options = {"report": reports.append, "choose": "all", **options}
        return torch.compile(model, backend=backend, options=options), reports

    yield compile
    torch._dynamo.reset()


def check(compiled, model, x):
    for y, expected in zip(compiled(x), model(x), strict=True):
        assert y.stride() == expected.stride()
        torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)


CHAINS = [
    ("conv", "batch_norm eps=1e-05", "relu"),
    ("conv", "bias", "residual", "relu"),
    ("conv", "silu"),
]


@torch.no_grad()
@pytest.mark.parametrize("last", [False, True])
def test_chains_are_plans_and_the_rest_is_eager(compiled, last):
    model = Net().eval()
    x = torch.randn(2, 3, 9, 9)
    if last:
        model, x = (of.to(memory_format=torch.channels_last) for of in (model, x))
    fast, reports = compiled(model, rest="eager")
    check(fast, model, x)
    assert [[fused.operators for fused in report.fused] for report in reports] == [CHAINS]
    check(fast, model, x)
    assert reports.plans == 3
    # Weights may change in place: only the plans that have them are made again.
    model.second.weight.mul_(2)
    check(fast, model, x)
    assert reports.plans == 4
    model.load_state_dict({key: value * 2 for key, value in model.state_dict().items()})
    check(fast, model, x)
    # From the second batch size on it is a symbol.
    for batch in (3, 5, 4):
        check(fast, model, torch.cat([x] * batch)[:batch])
    assert len(reports) == 2


@torch.no_grad()
def test_operators_that_make_tensors_of_their_own(compiled):
    class Up(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x):
            # Which pixel each one is a copy of is computed, from no input.
            return (nn.functional.interpolate(self.conv(x).relu(), scale_factor=2),)

    fast, reports = compiled(model := Up().eval(), rest="eager")
    check(fast, model, torch.randn(2, 3, 9, 9))
    assert [fused.operators for fused in reports[0].fused] == [("conv", "bias", "relu")]


@torch.no_grad()
def test_the_rest_is_compiled_by_inductor(compiled):
    model, x = Net().eval(), torch.randn(2, 3, 9, 9)
    fast, reports = compiled(model, rest="inductor", fallback_random=True)
    check(fast, model, x)
    check(fast, model, x)
    assert [fused.operators for fused in reports[0].fused] == CHAINS and reports.plans == 3
    model.norm.bias.add_(1)
    check(fast, model, x)
    assert reports.plans == 4


def test_by_function_and_in_inference_mode(compiled):
    model, x = Net().eval(), torch.randn(2, 3, 9, 9)
    fast, reports = compiled(model, ft.backend, rest="eager")
    with torch.inference_mode():
        check(fast, model, x)
    assert len(reports[0].fused) == 3


def test_graphs_with_gradients_are_left(compiled):
    model, x = Net().eval(), torch.randn(2, 3, 9, 9)
    twin = copy.deepcopy(model)
    fast, reports = compiled(model, rest="eager")
    with pytest.warns(UserWarning, match="nothing is fused"):
        fast(x)[0].sum().backward()
    twin(x)[0].sum().backward()
    assert not reports
    torch.testing.assert_close(model.first.weight.grad, twin.first.weight.grad)
    with torch.no_grad():
        check(fast, model, x)
    assert len(reports) == 1


@torch.no_grad()
def test_graphs_that_change_their_inputs(compiled):
    conv = nn.Conv2d(3, 3, 1)

    def model(x):
        return conv(x.relu_()), x

    fast, reports = compiled(model, rest="eager")
    x = torch.randn(1, 3, 4, 4)
    twin = x.clone()
    y, same = fast(x)
    expected, _ = model(twin)
    assert same is x and torch.equal(x, twin)
    torch.testing.assert_close(y, expected)


@torch.no_grad()
def test_wrong_options(compiled):
    for options in ({"rest": "nothing"}, {"choose": "fast"}):
        fast, _ = compiled(Net().eval(), **options)
        with pytest.raises(Exception, match="accepted: '"):
            fast(torch.randn(1, 3, 8, 8))
        torch._dynamo.reset()
    with pytest.raises(ValueError, match="accepted: 'measure', 'all'"):
        ft.optimize(Net().eval(), torch.randn(1, 3, 8, 8), choose="some")


@torch.no_grad()
def test_what_is_slower_as_a_plan_stays(monkeypatch):
    """Both sides compute the same, and the slower one is not taken."""
    sides = []

    def times(plan, own, device):
        sides.append((plan(), own()))
        return ft.Times(2e-6, 1e-6) if len(sides) == 2 else ft.Times(1e-6, 1e-6)

    monkeypatch.setattr(_choice, "_times", times)
    model, x = Net().eval(), torch.randn(2, 3, 9, 9)
    fused = ft.optimize(model, x)
    for plan, own in sides:
        torch.testing.assert_close(plan, own, rtol=1e-5, atol=1e-5)
    report = fused.fuseplan_report
    assert [of.operators[-1] for of in report.fused] == ["relu", "silu"] and report.fused[0].times.plan == 1e-6
    assert "slower as a plan: 2 µs, as PyTorch's own 1 µs" in str(report)
    check(fused, model, x)


@torch.no_grad()
@pytest.mark.parametrize("graph_is_slower", [False, True])
@pytest.mark.parametrize("cuda_graphs", [False, True])
def test_beside_inductor_chains_and_graphs_are_timed(monkeypatch, compiled, graph_is_slower, cuda_graphs):
    sides = []

    def times(plan, own, device):
        sides.append((plan(), own()))
        return ft.Times(2e-6, 1e-6) if graph_is_slower and len(sides) == 4 else ft.Times(1e-6, 1e-6)

    monkeypatch.setattr(_choice, "_times", times)
    model, x = Net().eval(), torch.randn(2, 3, 9, 9)
    made, inductor = [], _backend._inductor
    monkeypatch.setattr(_backend, "_inductor", lambda *given: made.append(given[2]) or inductor(*given))
    fast, reports = compiled(model, rest="inductor", choose="measure", **{"triton.cudagraphs": cuda_graphs})
    check(fast, model, x)
    # What Inductor is taken to do is no more than the chain; a graph is the same with plans and without.
    *chains, (with_plans, without) = sides
    assert len(chains) == 3 and all(plan.shape == own.shape for plan, own in chains)
    torch.testing.assert_close(with_plans, without, rtol=1e-5, atol=1e-5)
    # CUDA graphs are recorded of the one that is kept alone.
    assert [options["triton.cudagraphs"] for options in made] == [False, False, *[True] * cuda_graphs]
    assert len(reports[0].fused) == (0 if graph_is_slower else 3)
    assert all("whole graph is slower with plans: 2" in of.reason for of in reports[0].unfused)
    assert len(reports[0].unfused) == (3 if graph_is_slower else 0)


@torch.no_grad()
def test_times_are_measured():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).eval()
    x = torch.randn(1, 8, 12, 12)
    report = ft.optimize(model, x).fuseplan_report
    assert len(report.fused) + len(report.unfused) == 3
    for of in report.fused:
        assert 0 < of.times.plan < 1 and not of.times.slower
