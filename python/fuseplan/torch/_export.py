"""Networks as graphs of ATen's operators that do not write to what they read."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import torch

# PyTorch traces with modes that all threads of a process share, so that only one of them may export at a time.
_EXPORTING = threading.RLock()

# The name by which an exported graph's `meta` says whether it was decomposed, by which nodes have other names.
DECOMPOSED = "fuseplan_decomposed"

# Operators that decomposing leaves as they are and whose results are memory of their own; in place as well, where there are such.
_PLAIN_OPERATORS = frozenset(
    f"aten.{name}"
    for name in (
        *("conv2d.default", "conv2d.padding", "conv3d.default", "conv3d.padding", "linear.default", "batch_norm.default"),
        *("max_pool2d.default", "avg_pool2d.default", "adaptive_avg_pool2d.default", "mean.dim", "cat.default", "gelu.default"),
        *("add.Tensor", "mul.Tensor", "clamp.default", "hardtanh.default", "leaky_relu.default", "elu.default"),
        *("relu.default", "silu.default", "hardswish.default", "hardsigmoid.default", "sigmoid.default", "tanh.default"),
    )
)
# In inference they drop nothing, and their results are what they read.
_DROPOUTS = frozenset(f"aten.{name}.default" for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"))
# Those whose results are memory of what they read; a dropout's where nothing is dropped.
_VIEWS = frozenset(("aten.flatten.using_ints", "aten.dropout.default"))


def export(
    model: torch.nn.Module,
    args: torch.Tensor | tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    *,
    decompose: bool = False,
) -> torch.fx.GraphModule:
    """The graph of a network, without operators that write to what they read; parameters are attributes.

    It is decomposed where that is asked for or needed, and `meta` says so.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"the model is of type {type(model).__name__}; accepted: a torch.nn.Module")
    if model.training:
        raise ValueError("the model is in training mode; plans are for inference, call model.eval() first")
    with _EXPORTING, torch.no_grad():
        exported = torch.export.export(model, as_tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes)
        # Decomposing traces once more, which takes more than half of the time.
        is_plain = not decompose and _is_plain(exported.graph)
        _without_dropouts(exported.graph_module)
        graph = exported.module() if is_plain else exported.run_decompositions({}).module()
    if is_plain:
        _without_writes(graph)
    if not isinstance(graph, torch.fx.GraphModule):
        raise TypeError(f"torch.export gave a {type(graph).__name__}")
    graph.meta[DECOMPOSED] = not is_plain
    return graph


def _in_place_of(node: torch.fx.Node) -> str | None:
    """The operator that does the same without writing, where a node writes to its first argument."""
    packet, _, overload = str(node.target).rpartition(".")
    return f"{packet[:-1]}.{overload}" if packet.endswith("_") and not packet.endswith("__") else None


def _is_plain(graph: torch.fx.Graph) -> bool:
    """Whether a graph has none but plain operators, and what is written to is a result that nobody else reads."""
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        written = _in_place_of(node)
        name = written or str(node.target)
        if node.op != "call_function" or name not in (_PLAIN_OPERATORS if written else _PLAIN_OPERATORS | _VIEWS):
            return False
        of_training = {"aten.batch_norm.default": "training", "aten.dropout.default": "train"}.get(name)
        if of_training is not None and arguments(node)[of_training] is not False:
            return False
        if written:
            of = node.args[0]
            is_own = isinstance(of, torch.fx.Node) and (str(of.target) in _PLAIN_OPERATORS or _in_place_of(of) is not None)
            # In place there is no promotion of types.
            types = {getattr(read.meta.get("val"), "dtype", None) for read in (node, *node.all_input_nodes)}
            if not is_own or len(of.users) > 1 or len(types) > 1:  # type: ignore[union-attr]
                return False
    return True


def _without_writes(graph: torch.fx.GraphModule) -> None:
    """Puts operators that do not write into a plain graph."""
    for node in graph.graph.nodes:
        written = _in_place_of(node) if node.op == "call_function" else None
        if written is not None:
            _, packet, overload = written.split(".")
            target = getattr(getattr(torch.ops.aten, packet), overload)
            with graph.graph.inserting_before(node):
                new = graph.graph.call_function(target, node.args, node.kwargs)
            new.meta = node.meta
            node.replace_all_uses_with(new)
            graph.graph.erase_node(node)


def _without_dropouts(graph: torch.fx.GraphModule) -> None:
    """Leaves out what drops nothing, of which decomposing makes copies. A result of the network keeps its name."""
    for node in list(graph.graph.nodes):
        if str(node.target) in _DROPOUTS and arguments(node)["train"] is False and not any(user.op == "output" for user in node.users):
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
    graph.recompile()


def as_tuple(args: torch.Tensor | tuple[Any, ...]) -> tuple[Any, ...]:
    return (args,) if isinstance(args, torch.Tensor) else tuple(args)


def arguments(node: torch.fx.Node) -> dict[str, Any]:
    """The arguments of an operator by name, with what is the default."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    arguments = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    arguments.update(zip((argument.name for argument in schema), node.args))
    arguments.update(node.kwargs)
    return arguments


def written(graph: torch.fx.Graph) -> set[str]:
    """The names of the attributes that nodes write to."""
    found = set()
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            for of, given in zip(node.target._schema.arguments, node.args):
                is_written = of.alias_info is not None and of.alias_info.is_write
                if is_written and isinstance(given, torch.fx.Node) and given.op == "get_attr":
                    found.add(str(given.target))
    return found
