"""Where the package has the C libraries and their headers."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def include_path() -> Path:
    """The folder of `fuseplan.h`, `fuseplan.hpp` and `miopen/miopen.h`, for a compiler's `-I`."""
    return _folder("include")


def library_path() -> Path:
    """The folder of `libfuseplan.so.0` and `libMIOpen.so.1`, which need nothing of Python.

    All code is in libMIOpen; libfuseplan is a filter, which sends the loader there. So keep them together.

    A linker takes them as `-l:libfuseplan.so.0`, and the loader by `ctypes.CDLL` or an rpath to this folder.
    """
    return _folder("lib")


def _folder(name: str) -> Path:
    folder = _PACKAGE / name
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is missing; `pip install ./python` in a checkout builds the C libraries too")
    return folder
