"""The layout that a network's convolutions have: PyTorch's own, or channels-last where plans are faster in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import torch

from . import _operator

# The part of the expected time below which a layout is another one, as models are wrong and the network's input has to be laid
# out.
_CLEARLY = 0.9

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
_CONVOLUTIONS = {torch.ops.aten.conv2d, torch.ops.aten.conv3d, torch.ops.aten.convolution}


class _Observer(torch.fx.Interpreter):
    def run_node(self, node: torch.fx.Node) -> Any:
        value, expected = super().run_node(node), node.meta.get("val")
        if isinstance(value, torch.Tensor) and isinstance(expected, torch.Tensor) and value.layout == torch.strided:
            node.meta["val"] = expected.new_empty_strided(value.shape, value.stride())
        return value


def observe(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Runs an exported graph, and has each node say the layout that its value has.

    What exporting expects may be another: of convolutions of channels-last tensors on a GPU, for one, that they are contiguous.
    """
    _Observer(graph).run(*inputs, enable_io_processing=False)


def lay_out(
    graph: torch.fx.GraphModule,
    values: MutableMapping[torch.fx.Node, Any],
    inputs: Sequence[Any],
    memory_format: torch.memory_format | None,
    expected: Callable[[], Mapping[torch.fx.Node, float]],
) -> None:
    """Brings the weights of an observed graph's convolutions into a layout, from which PyTorch's operators go on with it.

    Without a name for it, it is channels-last where the sum of the seconds that are `expected` of plans is clearly less in it.
    """
    if memory_format is torch.preserve_format:
        return
    if memory_format not in (None, *_CHANNELS_LAST.values()):
        accepted = "None, torch.preserve_format, torch.channels_last, torch.channels_last_3d"
        raise ValueError(f"memory_format is {memory_format}; accepted: {accepted}")
    before = expected() if memory_format is None else {}
    if memory_format is None and not before:
        return
    given = {weight: values[weight] for weight in _weights(graph, values, memory_format)}
    if not given:
        return
    seen = {node: node.meta.get("val") for node in graph.graph.nodes}
    _set(graph, values, {node: weight.contiguous(memory_format=_CHANNELS_LAST[weight.dim()]) for node, weight in given.items()})
    observe(graph, inputs)
    if memory_format is None and not _is_less(expected(), before):
        _set(graph, values, given)
        for node, value in seen.items():
            node.meta["val"] = value
        return
    _restore_results(graph, seen)


def _weights(
    graph: torch.fx.GraphModule, values: Mapping[torch.fx.Node, Any], memory_format: torch.memory_format | None
) -> list[torch.fx.Node]:
    """The constant weights of convolutions that are not in a layout, or not channels-last."""
    found: dict[torch.fx.Node, None] = {}
    for node in graph.graph.nodes:
        if getattr(node.target, "overloadpacket", None) not in _CONVOLUTIONS:
            continue
        weight = node.args[1]
        value = values.get(weight)
        last = _CHANNELS_LAST.get(value.dim()) if isinstance(value, torch.Tensor) else None
        if last is not None and memory_format in (None, last) and last not in _operator.formats(value):
            found[weight] = None
    return list(found)


def _set(
    graph: torch.fx.GraphModule, values: MutableMapping[torch.fx.Node, Any], tensors: Mapping[torch.fx.Node, torch.Tensor]
) -> None:
    for node, tensor in tensors.items():
        owner, _, name = str(node.target).rpartition(".")
        holder = graph.get_submodule(owner)
        if name in holder._parameters and not isinstance(tensor, torch.nn.Parameter):
            tensor = torch.nn.Parameter(tensor, requires_grad=holder._parameters[name].requires_grad)  # type: ignore[union-attr]
        setattr(holder, name, tensor)
        values[node] = tensor


def _is_less(after: Mapping[torch.fx.Node, float], before: Mapping[torch.fx.Node, float]) -> bool:
    both = after.keys() & before.keys()
    return sum(after[node] for node in both) < _CLEARLY * sum(before[node] for node in both)


def _restore_results(graph: torch.fx.GraphModule, seen: Mapping[torch.fx.Node, Any]) -> None:
    """Brings results into the layout that they had."""
    output = graph.graph.output_node()
    for node in output.all_input_nodes:
        wanted, found = (_operator.formats(value) if isinstance(value, torch.Tensor) else []
                         for value in (seen[node], node.meta.get("val")))
        if not wanted or set(wanted) & set(found):
            continue
        with graph.graph.inserting_before(output):
            laid = graph.graph.call_function(torch.ops.aten.contiguous.default, (node,), {"memory_format": wanted[0]})
        laid.meta["val"] = seen[node]
        output.replace_input_with(node, laid)
