"""Fused neural-network operators from one plan: convolution, bias, batch-norm, residual and activation as one kernel.

    plan = fuseplan.Plan(x)
    plan.conv(weight, padding=1).bias(bias).residual().activation("relu")
    layer = plan.compile()
    y = layer(x, residual=r)

Arrays are read where they lie, of NumPy, PyTorch or any library with DLPack; nothing is copied or converted.
"""

from __future__ import annotations

from ._c_libraries import include_path, library_path
from ._native import CompiledPlan, Handle, LayoutTime, Plan, TensorDescriptor, __version__, compile_all, devices
from .errors import DeviceError, Error, OperandError, UnsupportedError

__all__ = [
    "CompiledPlan",
    "DeviceError",
    "Error",
    "Handle",
    "LayoutTime",
    "OperandError",
    "Plan",
    "TensorDescriptor",
    "UnsupportedError",
    "__version__",
    "compile_all",
    "devices",
    "include_path",
    "library_path",
]
