"""The example programs run as programs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"


def output_of(name, *options, launcher=(sys.executable,), **environment):
    command = [*launcher, str(EXAMPLES / name), *options]
    environment = {**os.environ, "FUSEPLAN_BACKEND": "cpu", **environment}
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=300)
    assert ran.returncode == 0
    return ran.stdout


def test_a_plan():
    printed = output_of("plan.py")
    assert "refused: ConvForward (operator 4): the plan already has a convolution" in printed
    assert "6272 outputs of 1 kernel, as NumPy has them" in printed


def test_a_chain_in_blocks():
    printed = output_of("blocks.py")
    assert "NCHWc8   NCHWc8 -> NCHWc8 -> NCHWc8 -> NCHWc8 -> NCHW as arrays (1, 4, 28, 28, 8)" in printed
    assert "7840 outputs in 5 layouts are equal" in printed


def test_the_c_library_of_the_package_by_ctypes():
    import fuseplan

    library = fuseplan.library_path() / "libMIOpen.so.1"
    assert "as numpy has it" in output_of("cba.py", MIOPEN_LIBRARY=str(library))


@pytest.mark.torch
def test_a_network():
    printed = output_of("network.py")
    assert "5 of 5 convolutions are plans" in printed and "conv -> bias -> residual -> relu" in printed
    assert "conv -> bias -> prelu" in printed and "times its speed" in printed


@pytest.mark.torch
def test_several_processes():
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    options = ["--network", "resnet18", "--batch", "1", "--size", "64", "--seconds", "0.1"]
    printed = output_of("several_gpus.py", *options, launcher=launcher, CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
    assert "2 at once" in printed and "equal results" in printed
