"""Fully connected layers of a graph in the one form that chains begin with: `aten.linear` of a matrix [outputs, features]."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ._export import arguments

_LINEAR = torch.ops.aten.linear.default
_PRODUCTS = {
    torch.ops.aten.mm.default: ("self", "mat2"),
    torch.ops.aten.matmul.default: ("self", "other"),
    torch.ops.aten.addmm.default: ("mat1", "mat2"),
}
_VIEWS = {torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default, torch.ops.aten.reshape.default}


def unify(module: torch.fx.GraphModule, values: MutableMapping[torch.fx.Node, Any], keeps_constants: bool) -> None:
    """Makes products with matrices that do not change into `aten.linear`, under the names that they have.

    Decomposing writes a layer as the product with a transposed matrix, between views where the tensor has more dimensions than two.
    A matrix [features, outputs] is transposed where constants stay what they are: the module gets a copy.
    """
    graph = module.graph
    for node in list(graph.nodes):
        layer = _product(module, node, values, keeps_constants)
        if layer is not None:
            node.target, node.args, node.kwargs = _LINEAR, layer, {}
    for node in list(graph.nodes):
        x = _viewed(node)
        if x is not None:
            _, weight, *bias = node.args[0].args
            node.target, node.args, node.kwargs = _LINEAR, (x, weight, *bias), {}
    graph.eliminate_dead_code()


def _product(
    module: torch.fx.GraphModule, node: torch.fx.Node, values: MutableMapping[torch.fx.Node, Any], keeps_constants: bool
) -> tuple[torch.fx.Node, ...] | None:
    """The arguments of `aten.linear` for a product; none where it is something else."""
    names = _PRODUCTS.get(node.target)  # type: ignore[call-overload]
    if names is None:
        return None
    of = arguments(node)
    x, matrix, bias = of[names[0]], of[names[1]], of.get("self") if names[0] == "mat1" else None
    if of.get("alpha", 1) != 1 or of.get("beta", 1) != 1 or _rank(matrix) != 2 or (_rank(x) or 0) < 2:
        return None
    # What is added to a product may be of any shape.
    if bias is not None and _rank(bias) != 1:
        return None
    weight = _transposed(matrix)
    if weight not in values:
        if not keeps_constants or not isinstance(values.get(matrix), torch.Tensor):
            return None
        weight = _copied(module, node, values, matrix)
    return (x, weight) if bias is None else (x, weight, bias)  # type: ignore[return-value]


def _copied(
    module: torch.fx.GraphModule, before: torch.fx.Node, values: MutableMapping[torch.fx.Node, Any], matrix: torch.fx.Node
) -> torch.fx.Node:
    """The transposition of a constant, of which the module has a copy; all nodes that want it share one."""
    name = f"fuseplan_transposed_{matrix.name}"
    if name not in module._buffers:
        module.register_buffer(name, values[matrix].detach().t().contiguous())
    with module.graph.inserting_before(before):
        copy = module.graph.get_attr(name)
    copy.meta["val"] = values[copy] = module._buffers[name]
    return copy


def _transposed(node: torch.fx.Node) -> torch.fx.Node | None:
    """The matrix that a node is the transposition of."""
    match str(node.target):
        case "aten.t.default" | "aten.numpy_T.default":
            return node.args[0]  # type: ignore[return-value]
        case "aten.transpose.int" if {int(of) % 2 for of in node.args[1:]} == {0, 1}:  # type: ignore[arg-type]
            return node.args[0]  # type: ignore[return-value]
        case "aten.permute.default" if [int(of) % 2 for of in node.args[1]] == [1, 0]:  # type: ignore[arg-type, union-attr]
            return node.args[0]  # type: ignore[return-value]
    return None


def _viewed(node: torch.fx.Node) -> torch.fx.Node | None:
    """What a layer between views computes on: a view of a layer's rows, which a view made, as many as there were."""
    if node.target not in _VIEWS:
        return None
    layer = node.args[0]
    if not isinstance(layer, torch.fx.Node) or layer.target is not _LINEAR or len(layer.users) != 1:
        return None
    rows = layer.args[0]
    if not isinstance(rows, torch.fx.Node) or rows.target not in _VIEWS or not isinstance(rows.args[0], torch.fx.Node):
        return None
    x = rows.args[0]
    tensors: list[Any] = [of.meta.get("val") for of in (x, rows, layer, node)]
    if not all(isinstance(of, torch.Tensor) for of in tensors):
        return None
    before, flat, product, after = (of.shape for of in tensors)
    is_same = before[-1:] == flat[-1:] and after[-1:] == product[-1:] and len(before) == len(after)
    return x if is_same and all(statically_known_true(a == b) for a, b in zip(before[:-1], after[:-1])) else None


def _rank(node: Any) -> int | None:
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return value.dim() if isinstance(value, torch.Tensor) else None
