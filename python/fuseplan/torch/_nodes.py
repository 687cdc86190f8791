"""Nodes of PyTorch's graphs as the finder of chains takes them."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .._native import TensorDescriptor
from . import _layouts, _operator, _text
from ._export import arguments

# Name, operation, inputs by their numbers, value, whether it is a result, parameters.
Described = tuple[str, str, list[int], TensorDescriptor | None, bool, dict[str, Any]]


def value_of(node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> TensorDescriptor | None:
    """A node's value; none where it is no tensor that plans have."""
    return descriptor_of(values.get(node, node.meta.get("val")))


def descriptor_of(tensor: Any) -> TensorDescriptor | None:
    """A tensor as plans have it; of symbols the numbers of the example."""
    if not isinstance(tensor, torch.Tensor) or not 1 <= tensor.dim() <= 5 or tensor.layout != torch.strided:
        return None
    try:
        return TensorDescriptor(
            [_operator.hint(length) for length in tensor.shape],
            str(tensor.dtype),
            strides=[_operator.hint(stride) for stride in tensor.stride()],
        )
    except ValueError:
        return None


_BATCH_NORM = "aten._native_batch_norm_legit_no_training.default"

_WITHOUT_PARAMETERS = {
    f"aten.{name}.default": name
    for name in ("relu", "silu", "hardswish", "hardsigmoid", "sigmoid", "tanh", "mish", "abs", "relu6")
}


def activation_of(node: torch.fx.Node) -> tuple[str, dict[str, float]] | None:
    """The name and parameters of an activation, if a node is one."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    target, of = str(node.target), arguments(node)
    if target in _WITHOUT_PARAMETERS:
        return _WITHOUT_PARAMETERS[target], {}
    match target:
        case "aten.hardtanh.default":
            least, most = float(of["min_val"]), float(of["max_val"])
            return ("relu6", {"max": most}) if least == 0 else ("clamp", {"min": least, "max": most})
        case "aten.clamp.default" | "aten.clip.default" if isinstance(of["min"], (int, float)) and isinstance(of["max"], (int, float)):
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


_OF_TWO = {"aten.add.Tensor": "add", "aten.mul.Tensor": "multiply", "aten.maximum.default": "maximum"}


def _affine(
    target: str, of: dict[str, Any], node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]
) -> tuple[torch.fx.Node, float, float] | None:
    """The tensor, scale and shift, if an operator is a sum or product with a number, or a constant tensor of one."""
    if target == "aten.neg.default":
        return of["self"], -1, 0
    x, other, kind = of.get("self"), of.get("other"), target.rpartition(".")[0]
    number = _one_number(other, values)
    if number is None and kind in ("aten.add", "aten.mul") and of.get("alpha", 1) == 1:
        x, number = other, _one_number(x, values)
    if not isinstance(x, torch.fx.Node) or number is None:
        return None
    value, result = x.meta.get("val"), node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not isinstance(result, torch.Tensor):
        return None
    if (value.dtype, value.shape) != (result.dtype, result.shape):
        return None
    match kind:
        case "aten.add":
            return x, 1, number * of["alpha"]
        case "aten.sub":
            return x, 1, -number * of["alpha"]
        case "aten.rsub":
            return x, -of["alpha"], number
        case "aten.mul":
            return x, number, 0
        case "aten.div" if number != 0 and of.get("rounding_mode") is None:
            return x, 1 / number, 0
    return None


def _one_number(given: Any, values: Mapping[torch.fx.Node, Any]) -> float | None:
    """A number, also of a constant tensor that has no other."""
    if isinstance(given, torch.fx.Node):
        given = values.get(given)
        if not isinstance(given, torch.Tensor) or given.numel() != 1 or not given.is_floating_point():
            return None
        return float(given.item())
    return given if isinstance(given, (int, float)) else None


def describe(
    node: torch.fx.Node, numbers: Mapping[torch.fx.Node, int], values: Mapping[torch.fx.Node, Any]
) -> Described:
    """A node as the finder of chains takes it."""
    value = value_of(node, values)
    is_result = any(user.op == "output" for user in node.users)

    def as_node(
        kind: str, inputs: Sequence[Any], parameters: dict[str, Any] | None = None
    ) -> Described:
        return node.name, kind, [numbers[of] for of in inputs], value, is_result, parameters or {}

    if node in values:
        return as_node("constant" if isinstance(values[node], torch.Tensor) else "other", [])
    other = as_node("other", node.all_input_nodes)
    if node.op != "call_function":
        return other
    if node.target is operator.getitem:
        # The first result of a batch-norm is the only one that matters, so it stands for the whole.
        source, index = node.args
        if index == 0 and isinstance(source, torch.fx.Node) and str(source.target) == _BATCH_NORM:
            of = arguments(source)
            inputs = [of["input"], of["weight"], of["bias"], of["running_mean"], of["running_var"]]
            if all(isinstance(given, torch.fx.Node) for given in inputs):
                return as_node("batch_norm", inputs, {"eps": of["eps"]})
        return other
    if not isinstance(node.target, torch._ops.OpOverload):
        return other
    target, of = str(node.target), arguments(node)
    if target == "aten.batch_norm.default" and of["training"] is False:
        inputs = [of[name] for name in ("input", "weight", "bias", "running_mean", "running_var")]
        is_whole = all(isinstance(given, torch.fx.Node) for given in inputs)
        return as_node("batch_norm", inputs, {"eps": of["eps"]}) if is_whole else other
    if target == _BATCH_NORM and all(user.target is operator.getitem for user in node.users):
        weight, bias = of["weight"], of["bias"]
        return as_node("other", [] if weight is not None and bias is not None else node.all_input_nodes)
    if target.startswith(("aten.conv2d.", "aten.conv3d.")) or target == "aten.convolution.default" or is_transposed(node):
        parameters = convolution_numbers(of, values, node)
        inputs = [of["input"], of["weight"], *([of["bias"]] if of["bias"] is not None else [])]
        return as_node("conv", inputs, {**parameters, "transposed": is_transposed(node)}) if parameters else other
    if target == "aten.linear.default":
        return as_node("linear", [of["input"], of["weight"], *([of["bias"]] if of["bias"] is not None else [])])
    affine = _affine(target, of, node, values)
    if affine is not None:
        x, scale, shift = affine
        return as_node("affine", [x], {"scale": scale, "shift": shift})
    if target in _OF_TWO:
        pair = [of["self"], of["other"]]
        if of.get("alpha", 1) != 1 or not all(isinstance(given, torch.fx.Node) for given in pair):
            return other
        return as_node(_OF_TWO[target], pair)
    if target == "aten.erf.default" or target == "aten.pow.Tensor_Scalar" and of["exponent"] == 3:
        return as_node("erf" if target == "aten.erf.default" else "cube", [of["self"]])
    if target == "aten.prelu.default":
        return as_node("prelu", [of["self"], of["weight"]])
    activation = activation_of(node)
    if activation is not None:
        mode, parameters = activation
        return as_node("activation", [of["self"]], {"mode": mode, **parameters})
    return other


def is_transposed(node: torch.fx.Node) -> bool:
    """Whether a node is a transposed convolution, by PyTorch's operator of two or three dimensions or by its general one."""
    packet = getattr(node.target, "overloadpacket", None)
    return packet in _layouts.TRANSPOSED or (packet is torch.ops.aten.convolution and bool(arguments(node)["transposed"]))


def convolution_numbers(
    of: dict[str, Any], values: Mapping[torch.fx.Node, Any], node: torch.fx.Node
) -> dict[str, Any] | None:
    """The numbers of a convolution; none where they are symbols."""
    weight = value_of(of["weight"], values)
    if weight is None:
        return None
    dims = len(weight.shape) - 2
    each = {key: list(of[key]) * (dims if len(of[key]) == 1 else 1) for key in ("stride", "dilation")}
    padding = of["padding"] if isinstance(of["padding"], str) else list(of["padding"])
    pads = _text.pads_of(padding, dims, weight.shape[2:], each["stride"], each["dilation"])
    numbers = [*each["stride"], *each["dilation"], *pads, of["groups"]]
    if not all(type(number) is int for number in numbers):
        return None
    return {**each, "padding": list(zip(pads[::2], pads[1::2])), "groups": of["groups"]}
