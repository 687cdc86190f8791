"""The C libraries of the package, as C programs and programs with `ctypes` see them."""

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path

import fuseplan
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "compiler, source, library",
    [
        ("cc -std=c99", "plan.c", "libfuseplan.so.0"),
        ("c++ -std=c++17", "plan.cpp", "libfuseplan.so.0"),
        ("cc -std=c99", "cba.c", "libMIOpen.so.1"),
    ],
)
def test_a_program_is_built_with_headers_and_libraries_of_the_package(compiler, source, library, tmp_path):
    command, standard = compiler.split()
    if shutil.which(command) is None:
        pytest.fail(f"the test needs {command}")
    program, libraries = tmp_path / "program", fuseplan.library_path()
    subprocess.run(
        [command, standard, str(ROOT / "examples" / source), "-o", str(program), "-lm"]
        + [f"-I{fuseplan.include_path()}", f"-L{libraries}", f"-l:{library}", f"-Wl,-rpath,{libraries}"],
        check=True,
    )
    environment = {**os.environ, "FUSEPLAN_BACKEND": "cpu"}
    environment.pop("LD_LIBRARY_PATH", None)
    # The program compares its results with plain loops, and fails where they differ.
    subprocess.run([str(program)], check=True, env=environment, timeout=60)


def test_functions_are_those_of_one_library():
    header = (fuseplan.include_path() / "fuseplan.h").read_text()
    names = set(re.findall(r"\b(fuseplan_[a-z_]+)\(", re.sub(r"//[^\n]*|/\*.*?\*/", "", header, flags=re.DOTALL)))
    assert len(names) > 40
    libraries = [ctypes.CDLL(str(fuseplan.library_path() / name)) for name in ("libfuseplan.so.0", "libMIOpen.so.1")]
    for name in names:
        first, second = (ctypes.cast(getattr(library, name), ctypes.c_void_p).value for library in libraries)
        assert first == second, name


def test_symbols_have_versions():
    versioned = ctypes.CDLL(None).dlvsym
    versioned.argtypes, versioned.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p], ctypes.c_void_p
    for library, name, version in [
        ("libMIOpen.so.1", b"miopenCreate", b"MIOPEN_HIP_1"),
        ("libMIOpen.so.1", b"fuseplanExplainPlan", b"FUSEPLAN_1"),
        ("libMIOpen.so.1", b"fuseplan_version", b"FUSEPLAN_0"),
        ("libfuseplan.so.0", b"fuseplan_version", b"FUSEPLAN_0"),
    ]:
        handle = ctypes.CDLL(str(fuseplan.library_path() / library))._handle
        assert versioned(handle, name, version) and not versioned(handle, name, b"FUSEPLAN_X"), (library, name)


def test_the_libraries_are_of_this_version():
    library = ctypes.CDLL(str(fuseplan.library_path() / "libfuseplan.so.0"))
    library.fuseplan_version.restype = ctypes.c_char_p
    assert library.fuseplan_version().decode() == fuseplan.__version__
