"""Plans in PyTorch: a convolution with what follows it as one operator, and whole networks rewritten with it.

    y = fuseplan.torch.conv(x, weight, bias, residual, padding=1, activation="relu")
    fused = fuseplan.torch.optimize(model.eval(), (example,))
    print(fused.fuseplan_report)

For inference only: gradients are not computed, and asking for them is an error.
"""

from __future__ import annotations

from ._operator import conv
from ._rewrite import Fused, Report, Unfused, optimize

__all__ = ["Fused", "Report", "Unfused", "conv", "optimize"]
