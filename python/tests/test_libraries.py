"""NVIDIA's compiler among Python's packages."""

import os
import subprocess
import sys

import pytest

LOADED = """
import pathlib, fuseplan
fuseplan.devices()
print([line.split()[-1] for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if "libnvrtc" in line][:1])
"""


@pytest.mark.parametrize("folder, name", [("cu13/lib", "libnvrtc.so.13"), ("cuda_nvrtc/lib", "libnvrtc.so.12")])
def test_the_compiler_is_found_in_an_environment_that_was_not_activated(folder, name, tmp_path):
    """Beside a driver and a compiler that only have to be loaded."""

    def library(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-nostdlib", "-o", path, "-x", "c", os.devnull], check=True)
        return path

    compiler = library(tmp_path / "packages" / "nvidia" / folder / name)
    driver = library(tmp_path / "driver" / "libcuda.so.1")
    kept = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "FUSEPLAN_NVRTC_PATH")}
    for given, expected in (({}, [str(compiler)]), ({"FUSEPLAN_NVRTC_PATH": str(tmp_path)}, [])):
        environment = {**kept, **given, "LD_LIBRARY_PATH": str(driver.parent), "PYTHONPATH": str(tmp_path / "packages")}
        ran = subprocess.run([sys.executable, "-c", LOADED], env=environment, stdout=subprocess.PIPE, text=True, check=True)
        assert ran.stdout.strip() == str(expected)
