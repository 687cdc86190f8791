"""The order of batch and tokens around fully connected layers.

`torch.nn.MultiheadAttention` computes with the batch second, and permutes what has it first. In front of a layer such a permutation leaves no
rows at one distance, and behind one it separates the layer from the sum that follows. A layer computes each row by itself, so that
its result is the same in any order of rows.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ._export import arguments
from ._nodes import descriptor_of
from ._permutations import is_activation, named_as, only_reader, order_of

_ATEN = torch.ops.aten
_RESHAPES = (_ATEN.reshape.default, _ATEN.view.default, _ATEN._unsafe_view.default)
# Operators whose results, or whose success, depend on strides.
_STRIDED = (_ATEN.as_strided, _ATEN.view_as_complex, _ATEN.view_as_real)


def batch_first(module: torch.fx.GraphModule) -> None:
    """Has layers compute rows in the order in which they lie: permutations in front of them go behind, and those that lead their results back
    go in front."""
    if any(getattr(node.target, "overloadpacket", None) in _STRIDED for node in module.graph.nodes):
        return
    moved: set[torch.fx.Node] = set()
    for node in list(module.graph.nodes):
        if node.target is _ATEN.linear.default:
            if not _behind(module, node, moved):
                _in_front(module, node)
        elif any(is_activation(node, of) for of in moved.intersection(node.all_input_nodes)):
            _behind(module, node, moved)
    for node in list(module.graph.nodes):
        order = order_of(node)
        inner = order_of(node.all_input_nodes[0]) if order is not None and node.all_input_nodes[0] in moved else None
        if order is not None and inner is not None and [inner[at] for at in order] == list(range(len(order))):
            of = node.all_input_nodes[0]
            node.replace_all_uses_with(of.all_input_nodes[0])
            module.graph.erase_node(node)
            if not of.users:
                module.graph.erase_node(of)


def _behind(module: torch.fx.GraphModule, node: torch.fx.Node, moved: set[torch.fx.Node]) -> bool:
    """Moves the permutation in front of a layer or of an activation behind it, if the layer gets rows at one distance by that."""
    permuted = arguments(node)["input" if node.target is _ATEN.linear.default else "self"]
    order = order_of(permuted)
    if order is None:
        return False
    x, rank = permuted.all_input_nodes[0], len(order)
    if node.target is _ATEN.linear.default and (order[-1] != rank - 1 or _lies_in_rows(permuted) or not _lies_in_rows(x)):
        return False
    back = [order.index(at) for at in range(rank)]
    value = node.meta["val"]
    with module.graph.inserting_before(node):
        new = module.graph.node_copy(node, lambda of: x if of is permuted else of)
        behind = module.graph.call_function(_ATEN.permute.default, (new, order))
    new.meta = {**node.meta, "val": _packed(value.permute(back)), **named_as(node, order)}
    behind.meta["val"] = new.meta["val"].permute(order)
    node.replace_all_uses_with(behind)
    module.graph.erase_node(node)
    if not permuted.users:
        module.graph.erase_node(permuted)
    moved.add(behind)
    return True


def _in_front(module: torch.fx.GraphModule, layer: torch.fx.Node) -> None:
    """Moves the view that gives a layer's rows their dimensions, and a permutation of them, in front of the layer, where rows are made of what
    has these dimensions, by a permutation if one follows."""
    viewed, rows = only_reader(layer), arguments(layer)["input"]
    if viewed is None or viewed.target not in _RESHAPES or rows.target not in _RESHAPES or len(rows.users) > 1:
        return
    gone = [layer, rows]
    x = rows.args[0]
    if x.target is _ATEN.clone.default and len(x.users) == 1:
        gone.append(x)
        x = x.args[0]
    # Of rows alone.
    shape, lens, features = viewed.meta["val"].shape, x.meta["val"].shape, rows.meta["val"].shape[-1]
    last = len(shape) - 1
    same = [*zip(lens, shape[:last]), (shape[last], layer.meta["val"].shape[-1]), (math.prod(lens[last:]), features)]
    if len(lens) <= last or not all(statically_known_true(a == b) for a, b in same):
        return
    end, order, whole, reader = viewed, list(range(last + 1)), None, only_reader(viewed)
    if reader is not None and (permutation := order_of(reader)) is not None:
        if (first := order_of(x)) is None or len(x.users) > 1 or permutation[last] != last:
            return
        end, order, whole = reader, permutation, [first[at] for at in (*permutation[:last], *range(last, len(first)))]
        gone = [viewed, *gone, x]
    value, target = end.meta["val"], arguments(viewed)["shape" if viewed.target is _ATEN.reshape.default else "size"]
    graph = module.graph
    with graph.inserting_before(layer):
        if whole is not None:
            permuted, x = x, graph.call_function(_ATEN.permute.default, (x.all_input_nodes[0], whole))
            x.meta["val"] = permuted.all_input_nodes[0].meta["val"].permute(whole)
        joined = graph.call_function(_ATEN.reshape.default, (x, [*(target[at] for at in order[:last]), features]))
        # Attention's result lies in the order of its queries, so that this copies where the other order did not; but sums with it are then the layers'.
        packed = graph.call_function(_ATEN.contiguous.default, (joined,))
        result = graph.call_function(_ATEN.linear.default, (packed, *layer.args[1:]), layer.kwargs)
    joined.meta["val"] = packed.meta["val"] = value.new_empty((*value.shape[:last], features))
    result.meta = {**end.meta, "val": _packed(value), **named_as(end, None)}
    end.replace_all_uses_with(result)
    for node in (end, *gone):
        graph.erase_node(node)


def _packed(value: torch.Tensor) -> torch.Tensor:
    return value.new_empty(value.shape)


def _lies_in_rows(node: torch.fx.Node) -> bool:
    """Whether a value's features lie side by side, and its rows at one distance."""
    value: Any = node.meta.get("val")
    descriptor = descriptor_of(value) if isinstance(value, torch.Tensor) else None
    try:
        return descriptor is not None and descriptor.rows() is not None
    except ValueError:
        return False
