"""What the native module asks of Python: NVIDIA's compiler among Python's packages, and objects that are unpickled."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

from . import _native

# Folders of NVIDIA's packages, and the libraries there: of CUDA 13, and of CUDA 12.
_NVRTC = (("cu13/lib", "libnvrtc.so.13"), ("cuda_nvrtc/lib", "libnvrtc.so.12"))


@functools.cache
def load_nvrtc() -> None:
    """Loads NVIDIA's run-time compiler from the packages of this interpreter, whether its environment was activated or not.

    The native module finds it by its name then, as it finds one that PyTorch has loaded. Nothing is done where there is no
    driver, or where `FUSEPLAN_NVRTC_PATH` names a folder.
    """
    if os.environ.get("FUSEPLAN_NVRTC_PATH"):
        return
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    found = importlib.util.find_spec("nvidia")
    for folder in (found.submodule_search_locations or ()) if found else ():
        for inner, name in _NVRTC:
            file = Path(folder) / inner / name
            if file.is_file():
                try:
                    ctypes.CDLL(str(file))
                except OSError:
                    continue
                return


def tensor_descriptor(
    shape: Sequence[int], dtype: str, strides: Sequence[int] | None, layout: str | None = None
) -> _native.TensorDescriptor:
    """A descriptor that was pickled."""
    return _native.TensorDescriptor(shape, dtype, strides=strides, layout=layout)


def open_handle(backend: str, ordinal: int | None, threads: int | None) -> _native.Handle:
    """A handle that was pickled."""
    return _native.Handle(backend, ordinal, threads=threads)
