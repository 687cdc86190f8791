"""The types that a program's checker sees."""

import re
import subprocess
import sys

import pytest

PLANS = """
import fuseplan
import numpy as np

x = np.zeros((1, 8, 6, 6), np.float32)
plan = fuseplan.Plan(x, device=fuseplan.Handle("cpu", threads=2)).conv((8, 8, 3, 3), padding="same").bias(x).activation("elu", alpha=0.5)
reveal_type(plan.compile(math="strict"))  # fuseplan._native.CompiledPlan
reveal_type(plan.operands)  # dict[str, fuseplan._native.TensorDescriptor]
reveal_type(fuseplan.library_path())  # pathlib.Path
plan.conv(3)  # error: Argument 1 to "conv" of "Plan" has incompatible type "int"
plan.compile(math="fast")  # error: Argument "math" to "compile" of "Plan" has incompatible type
try:
    plan.bias()
except fuseplan.UnsupportedError as error:
    reveal_type((error.operator, error.index))  # tuple[str, int | None]
"""

NETWORKS = """
import fuseplan.torch as ft
import torch

x = torch.zeros(1, 2)
reveal_type(ft.conv(x, x, padding=1, activation="silu"))  # torch._tensor.Tensor
fused = ft.optimize(torch.nn.Linear(2, 3), x)
module: torch.fx.GraphModule = fused
reveal_type(fused.fuseplan_report)  # fuseplan.torch._report.Report
reveal_type(ft.replace_convs(fused).unfused[0].reason)  # str
reveal_type(ft.compare(module, fused, x).results[0].rms)  # float
ft.optimize(module, 3)  # error: Argument 2 to "optimize" has incompatible type "int"
"""


@pytest.mark.parametrize("program", [PLANS, pytest.param(NETWORKS, marks=pytest.mark.torch)])
def test_a_program_is_checked(program, tmp_path):
    file = tmp_path / "program.py"
    file.write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(file)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    said = dict(re.findall(r"^\S*program\.py:(\d+): (.*)$", ran.stdout, re.M))
    lines = enumerate(program.splitlines(), 1)
    expected = {str(number): line.partition("  # ")[2] for number, line in lines if "  # " in line}
    assert said.keys() == expected.keys(), ran.stdout
    for number, what in expected.items():
        start = what if what.startswith("error: ") else f'note: Revealed type is "{what}"'
        assert said[number].startswith(start), ran.stdout
