"""Networks with plans in files."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

import fuseplan.torch as ft  # noqa: E402
from torch import nn  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

LOAD = """
import sys, torch, fuseplan.torch
network = torch.export.load(sys.argv[1]).module()
assert sum(node.target is torch.ops.fuseplan.chain.default for node in network.graph.nodes) == 2
x, y = torch.load(sys.argv[2])
with torch.no_grad():
    for _ in range(3):
        assert torch.equal(network(x), y)
"""


@torch.no_grad()
def test_a_network_with_plans_is_stored_as_an_exported_program(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3, stride=2), nn.SiLU()).eval()
    x = torch.randn(2, 3, 12, 12)
    fused = ft.optimize(model, x, choose="all")
    torch.testing.assert_close(fused(x), model(x), rtol=1e-4, atol=1e-5)
    torch.export.save(torch.export.export(fused, (x,)), tmp_path / "fused.pt2")
    torch.save((x, fused(x)), tmp_path / "expected.pt")
    subprocess.run([sys.executable, "-c", LOAD, tmp_path / "fused.pt2", tmp_path / "expected.pt"], check=True, timeout=300)
