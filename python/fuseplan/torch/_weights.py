"""Weights and biases that a network computes of nothing but constants, at every call: standardized and normed ones, or with a part set to 0."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import torch

from ._constants import constant
from ._export import arguments

_ATEN = torch.ops.aten
# Whose weights and biases plans take as constants, or have folded in.
_LAYERS = (_ATEN.linear, _ATEN.conv2d, _ATEN.conv3d, _ATEN.convolution, _ATEN.conv_transpose2d, _ATEN.conv_transpose3d, _ATEN.batch_norm)


def once(module: torch.fx.GraphModule, values: MutableMapping[torch.fx.Node, Any]) -> None:
    """Computes them now, so that layers have constants; what they are computed of is no longer read."""
    for layer in list(module.graph.nodes):
        if getattr(layer.target, "overloadpacket", None) not in _LAYERS:
            continue
        of = arguments(layer)
        for name in ("weight", "bias"):
            given = of[name]
            if isinstance(given, torch.fx.Node) and given not in values and (tensor := _computed(given, values)) is not None:
                with module.graph.inserting_before(layer):
                    now = constant(module, values, tensor.detach().contiguous())
                layer.replace_input_with(given, now)
    module.graph.eliminate_dead_code()


def _computed(node: torch.fx.Node, values: MutableMapping[torch.fx.Node, Any]) -> torch.Tensor | None:
    """The value of a node that is the same at every call."""
    known: dict[torch.fx.Node, Any] = {}

    def is_known(of: torch.fx.Node) -> bool:
        if of in values or of in known:
            known.setdefault(of, values.get(of))
            return isinstance(known[of], torch.Tensor)
        operator = of.target
        if not isinstance(operator, torch._ops.OpOverload) or operator.namespace != "aten" or not of.all_input_nodes:
            return False
        is_random = torch.Tag.nondeterministic_seeded in operator.tags
        if is_random or operator._schema.is_mutable or not all(map(is_known, of.all_input_nodes)):
            return False
        args, kwargs = torch.fx.map_arg((of.args, of.kwargs), known.__getitem__)
        known[of] = operator(*args, **kwargs)
        return isinstance(known[of], torch.Tensor)

    return known[node] if is_known(node) else None
