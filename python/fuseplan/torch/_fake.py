"""What the operators `chain` and `chain_into` give of tensors without memory: shape and strides of the result, and what is refused.

Whatever traces a network for gradients sees the operators only here, and compiled code would lose them without a word, so they are
refused here as well. Exported programs have no gradients, whatever their example's tensors say.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from . import _into, _operator


def _refuse(operator: str, x: torch.Tensor, tensors: Sequence[torch.Tensor], written: Sequence[torch.Tensor] = ()) -> None:
    """Refuses gradients, also of what is written to, and tensors of another device than the image's."""
    if not torch.compiler.is_exporting():
        _operator._CALLS.refuse_gradients((x, *tensors, *written))
    other = next((of.device for of in tensors if of.device != x.device), None)
    if other is not None:
        raise ValueError(f"{operator}: a tensor lies on {other}; accepted: {x.device}, where the image lies")


@torch.library.register_fake("fuseplan::chain", lib=_operator._LIBRARY)
def _chain(
    x: torch.Tensor, weight: torch.Tensor, operands: Sequence[torch.Tensor], operators: str, constant: bool = False
) -> torch.Tensor:
    _refuse("chain", x, (weight, *operands))
    return _result(x, weight, operands, operators)


@torch.library.register_fake("fuseplan::chain_into", lib=_into._LIBRARY)
def _chain_into(
    x: torch.Tensor,
    weight: torch.Tensor,
    operands: Sequence[torch.Tensor],
    operators: str,
    out: torch.Tensor,
    constant: bool = False,
) -> None:
    _refuse("chain_into", x, (weight, *operands), (out,))
    _operator.check_out(_result(x, weight, operands, operators).shape, x, out)


def _result(x: torch.Tensor, weight: torch.Tensor, operands: Sequence[torch.Tensor], operators: str) -> torch.Tensor:
    every = (x, weight, *operands)
    steps = _operator._steps(operators)
    if all(type(number) is int for tensor in every for number in (*tensor.shape, *tensor.stride())):
        plan = steps.plan(_operator._descriptor(x), _operator._descriptor(weight), operands, None)
        return torch.empty_strided(*steps.output(plan, x), dtype=x.dtype, device=x.device)
    if steps.is_linear:
        return torch.empty((*x.shape[:-1], weight.shape[0]), dtype=x.dtype, device=x.device)
    # With sizes that are symbols: the layouts that PyTorch has a name for.
    sums = [before + after for before, after in zip(steps.padding[::2], steps.padding[1::2])]
    extents = [
        (x.shape[2 + d] + sums[d] - steps.dilation[d] * (weight.shape[2 + d] - 1) - 1) // steps.stride[d] + 1
        for d in range(x.dim() - 2)
    ]
    last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    is_last = x.is_contiguous(memory_format=last) and not x.is_contiguous()
    return torch.empty(
        (x.shape[0], weight.shape[0], *extents),
        dtype=x.dtype,
        device=x.device,
        memory_format=last if is_last else torch.contiguous_format,
    )
