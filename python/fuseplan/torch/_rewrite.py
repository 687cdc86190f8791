"""Whole networks: exported, chains found, and each chain's nodes replaced by one operator."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .._native import TensorDescriptor, find_chains
from . import _operator


@dataclass(frozen=True)
class Fused:
    """A chain that one plan computes: the convolution's name, its operators, and why it has no further one."""

    name: str
    operators: tuple[str, ...]
    end: str


@dataclass(frozen=True)
class Unfused:
    """A convolution that stays PyTorch's, and why."""

    name: str
    reason: str


@dataclass
class Report:
    """What of a network became plans, and what did not."""

    fused: list[Fused] = field(default_factory=list)
    unfused: list[Unfused] = field(default_factory=list)

    def __str__(self) -> str:
        total = len(self.fused) + len(self.unfused)
        lines = [f"{len(self.fused)} of {total} convolutions are plans"]
        for fused in self.fused:
            lines.append(f"  {fused.name}: {' -> '.join(fused.operators)}; ends as {fused.end}")
        lines += [f"  {unfused.name}: not fused, as {unfused.reason}" for unfused in self.unfused]
        return "\n".join(lines)


def optimize(
    model: torch.nn.Module,
    args: torch.Tensor | tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
) -> torch.fx.GraphModule:
    """The network with each convolution, and the batch-norm, bias, residual and activation behind it, as one kernel.

    The model has to be in `eval()`; `args` are example inputs, as for `torch.export.export`, by which it is exported. What no
    plan takes stays PyTorch's. The result's attribute `fuseplan_report` says what became of each convolution. Its weights
    have batch-norms folded in and do not follow the model's; whoever changes them does it by PyTorch's in-place operators.
    """
    if model.training:
        raise ValueError("the model is in training mode; plans are for inference, call model.eval() first")
    args = (args,) if isinstance(args, torch.Tensor) else tuple(args)
    with torch.no_grad():
        exported = torch.export.export(model, args, dict(kwargs or {}), dynamic_shapes=dynamic_shapes)
        # Without operators that write to what they read.
        graph = exported.run_decompositions({}).module()
        if not isinstance(graph, torch.fx.GraphModule):
            raise TypeError(f"torch.export gave a {type(graph).__name__}")
        graph.fuseplan_report = rewrite(graph)  # type: ignore[assignment]
    return graph


def rewrite(module: torch.fx.GraphModule) -> Report:
    """Replaces the chains of a graph without in-place operators, whose parameters are attributes."""
    nodes = list(module.graph.nodes)
    tensors = {node: _attribute(module, node.target) for node in nodes if node.op == "get_attr"}
    devices = {tensor.device for tensor in tensors.values() if isinstance(tensor, torch.Tensor)}
    device = _operator.handle_of(next(iter(devices))) if len(devices) == 1 else None
    numbers = {node: index for index, node in enumerate(nodes)}
    described = [_describe(node, numbers, tensors) for node in nodes]
    chains, unfused = find_chains(described, device)
    report = Report(unfused=[Unfused(nodes[index].name, reason) for index, reason in unfused])
    for number, chain in enumerate(chains):
        operators = _replace(module, nodes, tensors, chain, number)
        name = nodes[chain["steps"][0][1]].name
        report.fused.append(Fused(name, ("conv", *operators), chain["end"]))
    module.graph.eliminate_dead_code()
    _drop_unused(module, tensors)
    module.graph.lint()  # type: ignore[no-untyped-call]
    module.recompile()
    return report


def _attribute(module: torch.nn.Module, path: str) -> Any:
    return operator.attrgetter(path)(module)


def _value(node: torch.fx.Node, tensors: Mapping[torch.fx.Node, Any]) -> TensorDescriptor | None:
    tensor = tensors.get(node, node.meta.get("val"))
    if not isinstance(tensor, torch.Tensor) or not 1 <= tensor.dim() <= 5 or tensor.layout != torch.strided:
        return None
    try:
        return TensorDescriptor(
            [_hint(length) for length in tensor.shape],
            str(tensor.dtype),
            strides=[_hint(stride) for stride in tensor.stride()],
        )
    except ValueError:
        return None


def _hint(number: int | torch.SymInt) -> int:
    """A length, of a symbol that of the example."""
    return number if isinstance(number, int) else int(number.node.hint)


def _arguments(node: torch.fx.Node) -> dict[str, Any]:
    """The arguments of an operator by name, with what is the default."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    arguments = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    arguments.update(zip((argument.name for argument in schema), node.args))
    arguments.update(node.kwargs)
    return arguments


_BATCH_NORM = "aten._native_batch_norm_legit_no_training.default"

# Activations without parameters.
_PLAIN = {
    f"aten.{name}.default": name
    for name in ("relu", "silu", "hardswish", "hardsigmoid", "sigmoid", "tanh", "mish", "abs", "relu6")
}


def _activation(target: str, of: dict[str, Any]) -> tuple[str, dict[str, float]] | None:
    """The name and parameters of an activation, if an operator is one."""
    if target in _PLAIN:
        return _PLAIN[target], {}
    match target:
        case "aten.hardtanh.default":
            least, most = float(of["min_val"]), float(of["max_val"])
            return ("relu6", {"max": most}) if least == 0 else ("clamp", {"min": least, "max": most})
        case "aten.clamp.default" if isinstance(of["min"], (int, float)) and isinstance(of["max"], (int, float)):
            return "clamp", {"min": float(of["min"]), "max": float(of["max"])}
        case "aten.clamp_min.default" if of["min"] == 0:
            return "relu", {}
        case "aten.leaky_relu.default":
            return "leaky_relu", {"slope": float(of["negative_slope"])}
        case "aten.elu.default" if of["scale"] == 1 and of["input_scale"] == 1:
            return "elu", {"alpha": float(of["alpha"])}
        case "aten.gelu.default":
            return ("gelu_tanh" if of["approximate"] == "tanh" else "gelu"), {}
        case "aten.softplus.default" if of["beta"] == 1:
            return "softplus", {}
    return None


def _describe(
    node: torch.fx.Node, numbers: Mapping[torch.fx.Node, int], tensors: Mapping[torch.fx.Node, Any]
) -> tuple[str, str, list[int], TensorDescriptor | None, bool, dict[str, Any]]:
    """A node as the finder of chains takes it."""
    value = _value(node, tensors)
    is_result = any(user.op == "output" for user in node.users)

    def as_node(
        kind: str, inputs: Sequence[Any], parameters: dict[str, Any] | None = None
    ) -> tuple[str, str, list[int], TensorDescriptor | None, bool, dict[str, Any]]:
        return node.name, kind, [numbers[of] for of in inputs], value, is_result, parameters or {}

    if node.op == "get_attr":
        return as_node("constant" if isinstance(tensors[node], torch.Tensor) else "other", [])
    other = as_node("other", node.all_input_nodes)
    if node.op != "call_function":
        return other
    if node.target is operator.getitem:
        # The first result of a batch-norm is the only one that matters, so it stands for the whole.
        source, index = node.args
        if index == 0 and isinstance(source, torch.fx.Node) and str(source.target) == _BATCH_NORM:
            of = _arguments(source)
            inputs = [of["input"], of["weight"], of["bias"], of["running_mean"], of["running_var"]]
            if all(isinstance(given, torch.fx.Node) for given in inputs):
                return as_node("batch_norm", inputs, {"eps": of["eps"]})
        return other
    if not isinstance(node.target, torch._ops.OpOverload):
        return other
    target, of = str(node.target), _arguments(node)
    if target == _BATCH_NORM and all(user.target is operator.getitem for user in node.users):
        weight, bias = of["weight"], of["bias"]
        return as_node("other", [] if weight is not None and bias is not None else node.all_input_nodes)
    if target.startswith(("aten.conv2d.", "aten.conv3d.")) or target == "aten.convolution.default":
        if of.get("transposed"):
            return other
        parameters = _convolution(of, tensors, node)
        inputs = [of["input"], of["weight"], *([of["bias"]] if of["bias"] is not None else [])]
        return as_node("conv", inputs, parameters) if parameters else other
    if target in ("aten.add.Tensor", "aten.mul.Tensor"):
        pair = [of["self"], of["other"]]
        if of.get("alpha", 1) != 1 or not all(isinstance(given, torch.fx.Node) for given in pair):
            return other
        return as_node("add" if target == "aten.add.Tensor" else "multiply", pair)
    activation = _activation(target, of)
    if activation is not None:
        mode, parameters = activation
        return as_node("activation", [of["self"]], {"mode": mode, **parameters})
    return other


def _convolution(
    of: dict[str, Any], tensors: Mapping[torch.fx.Node, Any], node: torch.fx.Node
) -> dict[str, Any] | None:
    """The numbers of a convolution; none where they are symbols."""
    weight = _value(of["weight"], tensors)
    if weight is None:
        return None
    dims = len(weight.shape) - 2
    each = {key: list(of[key]) * (dims if len(of[key]) == 1 else 1) for key in ("stride", "dilation")}
    padding = of["padding"] if isinstance(of["padding"], str) else list(of["padding"])
    pads = _operator.pads_of(padding, dims, weight.shape[2:], each["stride"], each["dilation"])
    numbers = [*each["stride"], *each["dilation"], *pads, of["groups"]]
    if not all(type(number) is int for number in numbers):
        return None
    return {**each, "padding": list(zip(pads[::2], pads[1::2])), "groups": of["groups"]}


def _replace(
    module: torch.fx.GraphModule,
    nodes: Sequence[torch.fx.Node],
    tensors: Mapping[torch.fx.Node, Any],
    chain: dict[str, Any],
    number: int,
) -> list[str]:
    """Puts one operator in the place of a chain; gives the operators behind the convolution."""
    (_, at, (weight_at,), _), *steps = chain["steps"]
    convolution, tail = nodes[at], nodes[chain["tail"]]
    of = _arguments(convolution)
    numbers = _convolution(of, tensors, convolution)
    assert numbers is not None, "the finder takes no convolution without numbers"
    weight_node = nodes[weight_at]
    weight = tensors.get(weight_node)
    graph = module.graph

    def constant(name: str, tensor: torch.Tensor) -> torch.fx.Node:
        full = f"fuseplan_{name}_{number}"
        while hasattr(module, full):
            full += "_"
        module.register_buffer(full, tensor)
        return graph.get_attr(full)

    with graph.inserting_before(tail):
        steps, weight, bias = _fold(steps, nodes, tensors, weight)
        folded = weight is not tensors.get(weight_node)
        image = of["input"]
        filters = constant("weight", weight) if folded and weight is not None else weight_node
        pads = [pad for pair in numbers["padding"] for pad in pair]
        text = _operator.convolution_text(numbers["stride"], pads, numbers["dilation"], numbers["groups"])
        operators, operands = [], []
        if bias is not None:
            operators.append("bias")
            operands.append(constant("bias", bias))
        for index, (kind, _, given, parameters) in enumerate(steps):
            operators.append(_operator.operator_text(kind, parameters))
            for operand in given:
                node = nodes[operand]
                # The finder takes nothing but constants for what is one value a channel.
                flat = kind != "residual" and tensors[node].dim() > 1
                operands.append(constant(f"{kind}{index}", tensors[node].flatten()) if flat else node)
        new = graph.call_function(
            torch.ops.fuseplan.chain.default,
            (image, filters, operands, " -> ".join([text, *operators]), weight is not None),
        )
        new.meta.update({key: value for key, value in tail.meta.items() if key in ("val", "tensor_meta")})
    tail.replace_all_uses_with(new)
    # Later chains may read this value.
    _rename(nodes, tail, new)
    return operators


def _rename(nodes: Sequence[torch.fx.Node], old: torch.fx.Node, new: torch.fx.Node) -> None:
    assert isinstance(nodes, list)
    nodes[nodes.index(old)] = new


def _fold(
    steps: Sequence[Any],
    nodes: Sequence[torch.fx.Node],
    tensors: Mapping[torch.fx.Node, Any],
    weight: torch.Tensor | None,
) -> tuple[list[Any], torch.Tensor | None, torch.Tensor | None]:
    """The steps without the biases and batch-norms at their front, and these folded into constant weights and one bias."""
    steps = list(steps)
    if weight is None or not any(kind == "batch_norm" for kind, *_ in steps):
        return steps, weight, None
    count = 0
    while count < len(steps) and steps[count][0] in ("bias", "batch_norm"):
        count += 1
    if not any(kind == "batch_norm" for kind, *_ in steps[:count]):
        return steps, weight, None
    factor = torch.ones(weight.shape[0], dtype=torch.float64, device=weight.device)
    shift = torch.zeros_like(factor)
    for kind, _, given, parameters in steps[:count]:
        values = [tensors[nodes[operand]].flatten().double() for operand in given]
        if kind == "bias":
            shift = shift + values[0]
        else:
            scale, bias, mean, variance = values
            scale = scale / torch.sqrt(variance + parameters["eps"])
            factor, shift = factor * scale, (shift - mean) * scale + bias
    folded = torch.empty_like(weight)
    folded.copy_(weight.double() * factor.view(-1, *[1] * (weight.dim() - 1)))
    # Beside tensors of 16 bits a bias has room for more.
    return steps[count:], folded.detach(), shift.to(torch.promote_types(weight.dtype, torch.float32))


def _drop_unused(module: torch.fx.GraphModule, tensors: Mapping[torch.fx.Node, Any]) -> None:
    """Lets go of parameters that were folded."""
    used = {node.target for node in module.graph.nodes if node.op == "get_attr"}
    for path in {str(node.target) for node in tensors} - used:
        owner, _, name = path.rpartition(".")
        holder = _attribute(module, owner) if owner else module
        if name in holder._parameters or name in holder._buffers:
            delattr(holder, name)
