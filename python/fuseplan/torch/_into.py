"""The operator `torch.ops.fuseplan.chain_into`: what `chain` computes, written to a tensor, such as some channels of a larger one.

Nothing but that tensor's elements is written. Strides may be any with which no elements overlap; where the result would lie in
another order than the image, a GPU computes it in the image's and copies it, and what a fully connected layer computes is copied
everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from . import _operator

_LIBRARY = torch.library.Library("fuseplan", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define(  # type: ignore[no-untyped-call]
    "chain_into(Tensor x, Tensor weight, Tensor[] operands, str operators, Tensor(a!) out, bool constant=False) -> ()",
    tags=(torch.Tag.needs_exact_strides,),
)
CHAIN_INTO = torch.ops.fuseplan.chain_into.default


def out_of(arguments: Sequence[Any]) -> Any:
    """Of the operator's arguments the one that is written."""
    return arguments[4]


_LIBRARY.impl("chain_into", _operator._CALLS.into, "CPU")  # type: ignore[no-untyped-call]
_LIBRARY.impl("chain_into", _operator._CALLS.into, "CUDA")  # type: ignore[no-untyped-call]


def _count_change(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> None:
    """Has PyTorch count a change to what is written, as its own operators do."""
    torch.autograd.graph.increment_version(out_of(args))
    with torch._C._AutoDispatchBelowADInplaceOrView():
        CHAIN_INTO.redispatch(keys & torch._C._after_ADInplaceOrView_keyset, *args, **kwargs)


_LIBRARY.impl("chain_into", _count_change, "ADInplaceOrView", with_keyset=True)  # type: ignore[no-untyped-call]
