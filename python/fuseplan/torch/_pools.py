"""Max pools of windows that Inductor computes as reductions on GPUs, written as what it computes in one pass or two.

A window of more than eight taps, such as 3x3, is to Inductor a reduction with a group of threads for each result. Its maximum is also
that of the maxima of its rows, each of which is one of slices.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import torch

from ._export import arguments

_ATEN = torch.ops.aten
# Taps that Inductor reads one by one, without a reduction.
_READ_ONE_BY_ONE = 8


def max_pool2d(x: torch.Tensor, window: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> torch.Tensor:
    """PyTorch's max pool, by slices where `torch.compile` compiles it."""
    if torch.compiler.is_dynamo_compiling():
        return by_slices(x, window, stride, padding)
    return torch.max_pool2d(x, list(window), list(stride), list(padding))


def by_slices(x: torch.Tensor, window: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> torch.Tensor:
    """The same values: maxima of columns of maxima of rows."""
    if any(padding):
        high, wide = padding
        x = torch.constant_pad_nd(x, [wide, wide, high, high], float("-inf"))
    for dim in (3, 2):
        x = _maxima(x, dim, window[dim - 2], stride[dim - 2])
    return x


def _maxima(x: torch.Tensor, dim: int, window: int, stride: int) -> torch.Tensor:
    """The maxima of windows along a dimension."""
    length = (x.shape[dim] - window) // stride * stride + 1
    return functools.reduce(torch.maximum, (_ATEN.slice(x, dim, at, at + length, stride) for at in range(window)))


def rewrite(module: torch.fx.GraphModule, *, compiled: bool) -> None:
    """Puts these in the place of PyTorch's max pools of a graph; `by_slices` where the graph is one that Inductor compiles."""
    graph, replaces = module.graph, False
    for node in list(graph.nodes):
        pool = _pool(node)
        if pool is None:
            continue
        replaces = True
        value, (x, *numbers) = pool
        with graph.inserting_before(value):
            new = graph.call_function(by_slices if compiled else max_pool2d, (x, *numbers))
            new.meta = dict(value.meta)
        value.replace_all_uses_with(new)
        graph.erase_node(value)
        if value is not node:
            graph.erase_node(node)
    if replaces:
        module.recompile()


def _pool(node: torch.fx.Node) -> tuple[torch.fx.Node, tuple[Any, ...]] | None:
    """The node of the maxima, and what `max_pool2d` is given for them."""
    value = node
    if node.target is _ATEN.max_pool2d_with_indices.default:
        if len(node.users) != 1:
            return None
        (value,) = node.users
        if value.target is not operator.getitem or value.args[1] != 0:
            return None
    elif node.target is not _ATEN.max_pool2d.default:
        return None
    of, maxima = arguments(node), value.meta.get("val")
    if not isinstance(maxima, torch.Tensor) or not maxima.is_cuda or maxima.dim() != 4 or not maxima.is_floating_point():
        return None
    window, stride, padding, dilation = (_pair(of[name]) for name in ("kernel_size", "stride", "padding", "dilation"))
    if of["ceil_mode"] or dilation != (1, 1) or window[0] * window[1] <= _READ_ONE_BY_ONE:
        return None
    return value, (of["self"], window, stride or window, padding)


def _pair(numbers: Sequence[int]) -> tuple[int, ...]:
    return tuple(numbers) * 2 if len(numbers) == 1 else tuple(numbers)
