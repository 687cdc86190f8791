"""The layout that a network's convolutions have: PyTorch's own, or channels-last where plans are faster in it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import torch

from . import _operator
from ._export import written

# The part of the expected time below which a layout is another one. What was expected to take 0.87 took 0.84 and 0.87.
_MARGIN = 0.95
# Bytes that a copy reads or writes in a second, fewer than on any GPU whose plans have a model of time.
_COPIED = 1.5e12

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
_CONVOLUTIONS = {torch.ops.aten.conv2d, torch.ops.aten.conv3d, torch.ops.aten.convolution}
TRANSPOSED = {torch.ops.aten.conv_transpose2d, torch.ops.aten.conv_transpose3d}
# Operators whose results, or whose success, depend on strides.
_STRIDED = {
    torch.ops.aten.as_strided,
    torch.ops.aten._unsafe_view,
    torch.ops.aten.view,
    torch.ops.aten.view_as_complex,
    torch.ops.aten.view_as_real,
}


class _Observer(torch.fx.Interpreter):
    def __init__(self, graph: torch.fx.GraphModule) -> None:
        super().__init__(graph)
        # What nodes say of values that are alike is one tensor without memory, as making one takes longer than most operators.
        self._made: dict[Any, torch.Tensor] = {}

    def run_node(self, node: torch.fx.Node) -> Any:
        value, expected = super().run_node(node), node.meta.get("val")
        if isinstance(value, torch.Tensor) and isinstance(expected, torch.Tensor) and value.layout == torch.strided:
            if not _lies_as(value, expected):
                key = value.shape, value.stride(), expected.dtype, expected.device
                if key not in self._made:
                    self._made[key] = expected.new_empty_strided(value.shape, value.stride())
                node.meta["val"] = self._made[key]
        return value


def _lies_as(value: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether a value has the shape and strides that are expected of it, none of which is a symbol."""
    numbers = (*expected.shape, *expected.stride())
    return all(type(number) is int for number in numbers) and numbers == (*value.shape, *value.stride())


def observe(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Runs an exported graph, and has each node say the layout that its value has. What it writes to stays as it was.

    What exporting expects may be another: of convolutions of channels-last tensors on a GPU, for one, that they are contiguous.
    """
    attributes: list[torch.Tensor] = [operator.attrgetter(name)(graph) for name in sorted(written(graph.graph))]
    before = [tensor.clone() for tensor in attributes]
    try:
        _Observer(graph).run(*inputs, enable_io_processing=False)
    finally:
        for tensor, values in zip(attributes, before):
            tensor.copy_(values)


def lay_out(
    graph: torch.fx.GraphModule,
    values: MutableMapping[torch.fx.Node, Any],
    inputs: Sequence[Any],
    memory_format: torch.memory_format | None,
    expected: Callable[[], Mapping[torch.fx.Node, float]],
    is_laid_anyway: Callable[[torch.fx.Node], bool] = lambda node: False,
) -> bool:
    """Brings the weights of an observed graph's convolutions into a layout, from which PyTorch's operators go on with it.

    Without a name for it, it is channels-last where results can have the layout that they had and, on a GPU, the sum of the
    seconds that are `expected` of plans, with the copies that it takes, is clearly less in it. On a CPU plans have no model of
    time, and they and PyTorch's operators were faster in it in all networks that were timed. Of an image that `is_laid_anyway`, in
    whichever layout its reader wants, no copy is counted. Whether anything was changed is the result.
    """
    if memory_format is torch.preserve_format:
        return False
    if memory_format not in (None, *CHANNELS_LAST.values()):
        accepted = "None, torch.preserve_format, torch.channels_last, torch.channels_last_3d"
        raise ValueError(f"memory_format is {memory_format}; accepted: {accepted}")
    if memory_format is None and not _knows_any_layout(graph):
        return False
    decides = memory_format is None and not _is_on_cpu(values)
    before = expected() if decides else {}
    if decides and not before:
        return False
    given = {weight: values[weight] for weight in _weights(graph, values, memory_format)}
    if not given:
        return False
    seen = {node: node.meta.get("val") for node in graph.graph.nodes}
    # A tensor that several nodes have is copied once.
    copies = {id(weight): _laid(weight) for weight in given.values()}
    _set(graph, values, {node: copies[id(weight)] for node, weight in given.items()})
    try:
        observe(graph, inputs)
        is_wanted = memory_format is not None or _keeps_results(graph, seen)
        if is_wanted and decides:
            is_wanted = _is_less(graph, expected(), before, seen, is_laid_anyway)
    except RuntimeError:
        # An operator does not take the layout, which nobody asked for.
        if memory_format is not None:
            raise
        is_wanted = False
    if not is_wanted:
        _set(graph, values, given)
        for node, value in seen.items():
            node.meta["val"] = value
        return False
    _restore_results(graph, seen)
    return True


def formats(node: torch.fx.Node) -> list[torch.memory_format]:
    """The names of the layout that a node's value has."""
    return _formats(node.meta.get("val"))


def _formats(value: Any) -> list[torch.memory_format]:
    if not isinstance(value, torch.Tensor):
        return []
    shape, stride = ([_operator.hint(number) for number in numbers] for numbers in (value.shape, value.stride()))
    return _operator.formats(torch.empty_strided(shape, stride, device="meta"))


def _knows_any_layout(graph: torch.fx.GraphModule) -> bool:
    """Whether every operator is one of PyTorch's that give the same values for every layout."""
    for node in graph.graph.nodes:
        # What export adds to check inputs gives no value.
        if node.op in ("call_module", "call_method") and node.users:
            return False
        if node.op == "call_function" and node.target is not operator.getitem:
            if goes_by_strides(node) or not str(node.target).startswith("aten."):
                return False
    return True


def goes_by_strides(node: torch.fx.Node) -> bool:
    """Whether an operator's result, or its success, depends on strides."""
    return getattr(node.target, "overloadpacket", None) in _STRIDED


def _laid(weight: torch.Tensor) -> torch.Tensor:
    """A copy with channels innermost, said by its strides also where lengths are 1, by which PyTorch goes on with the layout."""
    laid = torch.empty_like(weight, memory_format=CHANNELS_LAST[weight.dim()])
    return laid.copy_(weight).detach()


def _weights(
    graph: torch.fx.GraphModule, values: Mapping[torch.fx.Node, Any], memory_format: torch.memory_format | None
) -> list[torch.fx.Node]:
    """The constant weights of convolutions that are not in a layout, also of transposed ones, or where it has no name, not channels-last."""
    found: dict[torch.fx.Node, None] = {}
    wanted = _CONVOLUTIONS if memory_format is None else _CONVOLUTIONS | TRANSPOSED
    for node in graph.graph.nodes:
        if getattr(node.target, "overloadpacket", None) not in wanted:
            continue
        weight = node.args[1]
        value = values.get(weight)
        if not isinstance(value, torch.Tensor):
            continue
        last = CHANNELS_LAST.get(value.dim())
        if last is None or memory_format not in (None, last):
            continue
        if value.stride() != torch.empty_like(value, memory_format=last, device="meta").stride():
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


def _is_on_cpu(values: Mapping[torch.fx.Node, Any]) -> bool:
    return {value.device.type for value in values.values() if isinstance(value, torch.Tensor)} == {"cpu"}


def _keeps_results(graph: torch.fx.GraphModule, seen: Mapping[torch.fx.Node, Any]) -> bool:
    """Whether each result can have the layout that it had."""
    results = graph.graph.output_node().all_input_nodes
    return all(_formats(seen[node]) or _strides(seen[node]) == _strides(node.meta.get("val")) for node in results)


def _is_less(
    graph: torch.fx.GraphModule,
    after: Mapping[torch.fx.Node, float],
    before: Mapping[torch.fx.Node, float],
    seen: Mapping[torch.fx.Node, Any],
    is_laid_anyway: Callable[[torch.fx.Node], bool],
) -> bool:
    if not before.keys() <= after.keys():
        return False
    results = graph.graph.output_node().all_input_nodes
    images = {node: node.all_input_nodes[0] for node in after}
    laid = (image for node, image in images.items() if not set(formats(image)) & set(formats(node)))
    copied = [image for image in laid if not is_laid_anyway(image)]
    copied += [node for node in results if not set(formats(node)) & set(_formats(seen[node]))]
    values = (seen[node] for node in copied)
    copies = sum(seconds_of_copy(value) for value in values if isinstance(value, torch.Tensor))
    seconds = sum(after[node] for node in before) + copies
    return seconds < _MARGIN * sum(before.values())


def seconds_of_copy(tensor: torch.Tensor) -> float:
    """What reading a tensor and writing it takes on a GPU at least."""
    return 2 * tensor.numel() * tensor.element_size() / _COPIED


def _strides(value: Any) -> tuple[int, ...] | None:
    return tuple(map(_operator.hint, value.stride())) if isinstance(value, torch.Tensor) else None


def _restore_results(graph: torch.fx.GraphModule, seen: Mapping[torch.fx.Node, Any]) -> None:
    """Brings results that were contiguous or channels-last back into that layout."""
    output = graph.graph.output_node()
    for node in output.all_input_nodes:
        wanted = _formats(seen[node])
        if not wanted or set(wanted) & set(formats(node)):
            continue
        with graph.graph.inserting_before(output):
            laid = graph.graph.call_function(torch.ops.aten.contiguous.default, (node,), {"memory_format": wanted[0]})
        laid.meta["val"] = seen[node]
        output.replace_input_with(node, laid)
