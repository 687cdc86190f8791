"""Convolutions of a network that are computed as plans, in place."""

from __future__ import annotations

import torch
from torch import nn

from .._native import Plan, TensorDescriptor
from ..errors import UnsupportedError
from . import _handles, _text
from ._report import Fused, Report, Unfused


class _Convolution(nn.modules.conv._ConvNd):
    """PyTorch's module, with the operators of the chain as the operator `chain` has them."""

    fuseplan_operators: str

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As a plan; by PyTorch's own operators where gradients are wanted, under autocast, and where no plan takes the input."""
        weight, bias = self.weight, self.bias
        operands = [] if bias is None else [bias]
        wants = torch.is_grad_enabled() and any(of.requires_grad for of in (x, weight, *operands))
        if wants or x.dtype != weight.dtype or x.dim() != weight.dim() or torch.is_autocast_enabled(x.device.type):
            return super().forward(x)
        try:
            return torch.ops.fuseplan.chain.default(  # type: ignore[no-any-return]
                x, weight, operands, self.fuseplan_operators, True
            )
        except (UnsupportedError, ValueError):
            return super().forward(x)


class Conv2d(_Convolution, nn.Conv2d):
    """`torch.nn.Conv2d`, computed as a plan where one takes it."""


class Conv3d(_Convolution, nn.Conv3d):
    """`torch.nn.Conv3d`, computed as a plan where one takes it."""


_OURS: dict[type[nn.Module], type[_Convolution]] = {nn.Conv2d: Conv2d, nn.Conv3d: Conv3d}


def replace_convs(module: nn.Module, *, math: str | None = None) -> Report:
    """Makes each `Conv2d` and `Conv3d` of a network that plans take one of ours, in place, and says what became of each.

    It is the same module object with the same parameters, hooks and keys of `state_dict`, of a class that computes the
    convolution and its bias as a plan. Where gradients are wanted, under autocast, and for inputs that no plan takes, it is
    computed as before. What follows a convolution is fused by `optimize` and `torch.compile(backend="fuseplan")` alone: a module
    does not know who reads its result. `math` is that of `conv`.
    """
    _text.check_math(math)
    report = Report()
    for name, conv in module.named_modules():
        if not isinstance(conv, (nn.Conv2d, nn.Conv3d)) or isinstance(conv, _Convolution):
            continue
        reason = _refusal(conv)
        if reason is not None:
            report.unfused.append(Unfused(name, reason))
            continue
        conv.fuseplan_operators = _operators_of(conv, math)  # type: ignore[assignment]
        conv.__class__ = _OURS[type(conv)]  # type: ignore[assignment]
        operators = ("conv",) if conv.bias is None else ("conv", "bias")
        report.fused.append(Fused(name, operators, "a module computes no more"))
    return report


def _refusal(conv: nn.Conv2d | nn.Conv3d) -> str | None:
    """Why a convolution stays as it is."""
    if type(conv) not in _OURS:
        return f"it is of the class {type(conv).__name__}, whose forward may be another"
    if "weight" not in conv._parameters:
        return "its weight is computed at each call"
    if conv.padding_mode != "zeros":
        return f"padding_mode is {conv.padding_mode!r}; accepted: 'zeros'"
    weight = conv.weight
    device = None if weight.is_meta else _handles.handle_of(weight.device)
    # The smallest image that has an output; what plans take does not depend on an image's extents.
    extents = [dilation * (taps - 1) + 1 for taps, dilation in zip(conv.kernel_size, conv.dilation)]
    try:
        plan = Plan(TensorDescriptor((1, conv.in_channels, *extents), str(weight.dtype)), device=device).conv(
            TensorDescriptor(tuple(weight.shape), str(weight.dtype), strides=tuple(weight.stride())),
            stride=conv.stride,
            padding=conv.padding,
            dilation=conv.dilation,
            groups=conv.groups,
        )
        if conv.bias is not None:
            plan.bias(dtype=conv.bias.dtype)
    except (UnsupportedError, ValueError) as error:
        return str(error)
    return None


def _operators_of(conv: nn.Conv2d | nn.Conv3d, math: str | None) -> str:
    dims = len(conv.kernel_size)
    pads = _text.pads_of(conv.padding, dims, conv.kernel_size, conv.stride, conv.dilation)
    text = _text.convolution_text(conv.stride, pads, conv.dilation, conv.groups, math)
    return text if conv.bias is None else f"{text} -> bias"
