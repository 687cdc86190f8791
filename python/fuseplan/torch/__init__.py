"""Plans in PyTorch: a convolution with what follows it as one operator, and whole networks rewritten with it.

    y = fuseplan.torch.conv(x, weight, bias, residual, padding=1, activation="relu")
    fused = fuseplan.torch.optimize(model.eval(), (example,))
    print(fused.fuseplan_report)
    compiled = torch.compile(model.eval(), backend="fuseplan")

For inference only: gradients are not computed, and asking for them is an error.
"""

from __future__ import annotations

from . import _fake as _fake
from ._backend import backend
from ._compare import ChainErrors, Comparison, compare
from ._modules import Conv2d, Conv3d, replace_convs
from ._operator import conv
from ._report import Fused, Report, Times, Unfused
from ._rewrite import optimize

__all__ = [
    "ChainErrors",
    "Comparison",
    "Conv2d",
    "Conv3d",
    "Fused",
    "Report",
    "Times",
    "Unfused",
    "backend",
    "compare",
    "conv",
    "optimize",
    "replace_convs",
]
