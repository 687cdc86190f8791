"""The handles of PyTorch's devices."""

from __future__ import annotations

import functools
import os

import torch

from .._native import Handle, openmp_handle


@functools.lru_cache
def _handle(kind: str, index: int, threads: int) -> Handle:
    if kind != "cpu":
        return Handle("rocm" if torch.version.hip else "cuda", index)
    # On PyTorch's own threads, as others would wait for cores on which these look for work.
    shared = openmp_handle(threads, torch._C.__file__) if openmp_looks_for_work() else None
    if shared is not None:
        return shared
    handle = Handle("cpu")
    return handle if handle.compute_units == threads else Handle("cpu", threads=threads)


if hasattr(os, "register_at_fork"):
    # A child has none of the threads that a handle was made for.
    os.register_at_fork(after_in_child=_handle.cache_clear)


def openmp_looks_for_work() -> bool:
    """Whether PyTorch's threads are OpenMP's, and wait for work without sleeping. Sleeping ones hold no core, and waking them for
    each plan takes longer than the library's own threads do."""
    sleeps = os.environ.get("OMP_WAIT_POLICY", "").strip().lower() == "passive"
    return not sleeps and "ATen parallel backend: OpenMP" in torch.__config__.parallel_info()


def handle_of(device: torch.device) -> Handle:
    """The handle of a device of PyTorch; on the CPU with as many threads as PyTorch has."""
    index = torch.cuda.current_device() if device.type == "cuda" and device.index is None else device.index
    return _handle(device.type, index or 0, torch.get_num_threads())


def whose_threads(handle: Handle) -> str | None:
    """What plans of a CPU's handle are computed on, in words."""
    if handle.backend != "cpu":
        return None
    return "PyTorch's threads" if handle.openmp else "threads of the library's"
