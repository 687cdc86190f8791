"""Permutations behind fully connected layers, as networks have them that compute layers on channels-last images.

A chain ends at a permutation, though it moves nothing in memory. What stands behind one and computes each element by itself gives
the same in front of it, where it is part of the layer's chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ._export import arguments
from ._nodes import descriptor_of

_ATEN = torch.ops.aten
# Functions of each element of one tensor that are operators of plans.
ACTIVATIONS = (
    *(_ATEN.relu, _ATEN.relu6, _ATEN.silu, _ATEN.hardswish, _ATEN.hardsigmoid, _ATEN.sigmoid, _ATEN.tanh, _ATEN.mish),
    *(_ATEN.hardtanh, _ATEN.clamp, _ATEN.clip, _ATEN.leaky_relu, _ATEN.elu, _ATEN.gelu, _ATEN.softplus),
)


def order_of(node: torch.fx.Node) -> list[int] | None:
    """Where a permutation takes each dimension of its result from; none where a node is something else."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    rank = value.dim()
    if node.target is _ATEN.permute.default:
        return [int(at) % rank for at in arguments(node)["dims"]]
    if node.target is _ATEN.transpose.int:
        order, of = list(range(rank)), arguments(node)
        a, b = of["dim0"] % rank, of["dim1"] % rank
        order[a], order[b] = b, a
        return order
    return None


def only_reader(node: torch.fx.Node) -> torch.fx.Node | None:
    """The node that reads a value, if it is one."""
    return next(iter(node.users)) if len(node.users) == 1 else None


def named_as(reader: torch.fx.Node, order: Sequence[int] | None) -> dict[str, Any]:
    """What a node's `meta` says where its value, with its dimensions in an order, is that of another node, by whose name comparisons
    look for it."""
    return {"fuseplan_of": reader.meta.get("fuseplan_of", reader.name), "fuseplan_order": order}


def move_behind(module: torch.fx.GraphModule) -> None:
    """Moves permutations of fully connected layers' results behind activations, and behind sums with what lies, in the layers' order of
    dimensions, in rows."""
    for layer in list(module.graph.nodes):
        if layer.target is not _ATEN.linear.default:
            continue
        value, reader = layer, only_reader(layer)
        while reader is not None and is_activation(reader, value):
            value, reader = reader, only_reader(reader)
        if reader is None or (order := order_of(reader)) is None:
            continue
        permuted = reader
        while (reader := only_reader(permuted)) is not None:
            instead = _instead(module, reader, permuted, value, order)
            if instead is None:
                break
            value = instead
            with module.graph.inserting_after(value):
                behind = module.graph.call_function(_ATEN.permute.default, (value, order))
            behind.meta["val"] = reader.meta["val"]
            reader.replace_all_uses_with(behind)
            module.graph.erase_node(reader)
            module.graph.erase_node(permuted)
            permuted = behind


def _instead(
    module: torch.fx.GraphModule,
    reader: torch.fx.Node,
    permuted: torch.fx.Node,
    value: torch.fx.Node,
    order: Sequence[int],
) -> torch.fx.Node | None:
    """The node that computes of a value what a reader computes of the permuted one, if it can be part of the value's chain."""
    back = [order.index(at) for at in range(len(order))]
    replaced = {permuted: value}
    if not is_activation(reader, permuted):
        other = _summand(reader, permuted)
        if other is None:
            return None
        descriptor = descriptor_of(other.meta["val"].permute(back))
        try:
            if descriptor is None or descriptor.rows() is None:
                return None
        except ValueError:
            return None
        replaced[other] = _permuted(module, other, back, reader)
    with module.graph.inserting_before(reader):
        new = module.graph.node_copy(reader, lambda node: replaced.get(node, node))
    new.meta = {**reader.meta, "val": reader.meta["val"].permute(back), **named_as(reader, order)}
    new.meta.pop("tensor_meta", None)
    return new


def is_activation(node: torch.fx.Node, x: torch.fx.Node) -> bool:
    """Whether a node is an activation of one value alone."""
    return getattr(node.target, "overloadpacket", None) in ACTIVATIONS and node.all_input_nodes == [x]


def _summand(node: torch.fx.Node, x: torch.fx.Node) -> torch.fx.Node | None:
    """What a node adds to a value, of the value's shape and type."""
    if node.target is not _ATEN.add.Tensor or arguments(node)["alpha"] != 1:
        return None
    others = [of for of in node.all_input_nodes if of is not x]
    tensors: list[Any] = [of.meta.get("val") for of in (node, x, *others)]
    if len(others) != 1 or not all(isinstance(of, torch.Tensor) for of in tensors):
        return None
    first, *rest = ((of.shape, of.dtype, of.device) for of in tensors)
    return others[0] if all(of == first for of in rest) else None


def _permuted(
    module: torch.fx.GraphModule, node: torch.fx.Node, order: Sequence[int], before: torch.fx.Node
) -> torch.fx.Node:
    """A value with its dimensions in an order: what it is a permutation of, if that has them so."""
    made = order_of(node)
    if made is not None and [made[at] for at in order] == list(range(len(order))):
        return node.all_input_nodes[0]
    with module.graph.inserting_before(before):
        new = module.graph.call_function(_ATEN.permute.default, (node, list(order)))
    new.meta["val"] = node.meta["val"].permute(order)
    return new
