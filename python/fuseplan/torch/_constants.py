"""Arithmetic with constants around convolutions, in forms that plans have or that take less.

Exporters write trained factors and shifts as products and sums with one number for all channels or one for each, and so the parts of
an activation.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Set
from typing import Any, NamedTuple

import torch

from .._native import spelled_out
from ._export import arguments
from ._nodes import describe

_ATEN = torch.ops.aten
_CONVOLUTIONS = (_ATEN.conv2d, _ATEN.conv3d, _ATEN.convolution)
# Operators that a chain goes on behind, with one tensor that is no constant.
_BETWEEN = (
    *(_ATEN.batch_norm, _ATEN.relu, _ATEN.relu6, _ATEN.silu, _ATEN.hardswish, _ATEN.hardsigmoid, _ATEN.sigmoid, _ATEN.tanh),
    *(_ATEN.mish, _ATEN.hardtanh, _ATEN.clamp, _ATEN.clip, _ATEN.leaky_relu, _ATEN.elu, _ATEN.gelu, _ATEN.softplus),
)


class _Arithmetic(NamedTuple):
    """`x · factor + term`, each one number or one a channel."""

    x: torch.fx.Node
    factor: torch.Tensor
    term: torch.Tensor


def gates_once(module: torch.fx.GraphModule) -> None:
    """Makes `x + x · s` of f32, where s is smaller than x, `x · (s + 1)`: one pass over x instead of two."""
    for node in list(module.graph.nodes):
        if not _is(node, _ATEN.add) or arguments(node).get("alpha", 1) != 1:
            continue
        for x, product in (node.args[:2], node.args[1::-1]):
            if not isinstance(product, torch.fx.Node) or not _is(product, _ATEN.mul):
                continue
            gate = next((of for of, other in (product.args[:2], product.args[1::-1]) if other is x), None)
            value, image = (of.meta.get("val") if isinstance(of, torch.fx.Node) else None for of in (gate, x))
            if not isinstance(value, torch.Tensor) or not isinstance(image, torch.Tensor) or len(product.users) > 1:
                continue
            if not value.dtype == image.dtype == torch.float32 or value.numel() >= image.numel() or product.meta["val"].shape != image.shape:
                continue
            with module.graph.inserting_before(node):
                more = module.graph.call_function(_ATEN.add.Tensor, (gate, 1.0))
                new = module.graph.call_function(_ATEN.mul.Tensor, (x, more))
            # The first is a value that the network has not.
            more.meta.update(val=value, fuseplan_of=None)
            new.meta = {**node.meta, "fuseplan_of": node.name}
            node.replace_all_uses_with(new)
            module.graph.erase_node(node)
            module.graph.erase_node(product)
            break


def _is(node: torch.fx.Node, packet: Any) -> bool:
    """Whether a node calls an operator, in whichever of its overloads."""
    return getattr(node.target, "overloadpacket", None) is packet


def as_batch_norms(module: torch.fx.GraphModule, values: MutableMapping[torch.fx.Node, Any]) -> None:
    """Puts one batch-norm in the place of sums and products with constants behind each other, where a chain may go on with it.

    A sum with one number a channel stays, as it is a bias, and so does what an activation is written with.
    """
    graph = module.graph
    nodes = list(graph.nodes)
    numbers = {node: index for index, node in enumerate(nodes)}
    spelled = spelled_out([describe(node, numbers, values) for node in nodes])
    written = {node for node, is_part in zip(nodes, spelled) if is_part}
    gone = set(written)
    for first in nodes:
        if first in gone or (step := _arithmetic(first, values)) is None or not _is_in_chain(step.x, written, values):
            continue
        last, whole, replaced = first, step, [first]
        while (reader := _only_reader(last)) not in gone and reader is not None and (then := _arithmetic(reader, values)) is not None:
            whole = _Arithmetic(step.x, whole.factor * then.factor, whole.term * then.factor + then.term)
            replaced.append(reader)
            last = reader
        if bool((whole.factor == 1).all()) and whole.term.numel() > 1:
            continue
        channels = first.meta["val"].shape[1]
        of = first.meta["val"]
        # Beside tensors of 16 bits parameters have room for more.
        dtype = torch.promote_types(of.dtype, torch.float32)
        like = torch.ones(channels, dtype=dtype, device=of.device)
        parameters = (whole.factor.to(dtype) * like, whole.term.to(dtype) * like, torch.zeros_like(like), like)
        with graph.inserting_before(last):
            nodes = [constant(module, values, tensor) for tensor in parameters]
            new = graph.call_function(_ATEN.batch_norm.default, (step.x, *nodes, False, 0.0, 0.0, False))
        # Comparisons look for the value by its name.
        new.meta = {**last.meta, "fuseplan_of": last.meta.get("fuseplan_of", last.name)}
        last.replace_all_uses_with(new)
        for node in reversed(replaced):
            graph.erase_node(node)
            gone.add(node)


def into_transposed(module: torch.fx.GraphModule, values: MutableMapping[torch.fx.Node, Any]) -> None:
    """Folds constants and batch-norms behind transposed convolutions, which stay PyTorch's, into their weights and biases."""
    graph = module.graph
    for node in list(graph.nodes):
        if getattr(node.target, "overloadpacket", None) not in (_ATEN.conv_transpose2d, _ATEN.conv_transpose3d):
            continue
        of = arguments(node)
        weight, bias = values.get(of["weight"]), values.get(of["bias"])
        if not isinstance(weight, torch.Tensor) or of["groups"] != 1 or (of["bias"] is not None and bias is None):
            continue
        factor = torch.ones(weight.shape[1], dtype=torch.float64, device=weight.device)
        term = 0 * factor if bias is None else bias.double()
        last, gone = node, []
        while (reader := _only_reader(last)) is not None:
            then = _arithmetic(reader, values) or _norm(reader, values)
            if then is None or then.x is not last:
                break
            factor, term = factor * then.factor, term * then.factor + then.term
            result = next(iter(reader.users)) if str(reader.target) == _NORM_OF_THREE else reader
            gone += [reader] if result is reader else [reader, result]
            last = result
        if not gone:
            continue
        laid = torch.empty_like(weight).copy_(weight.double() * factor.view(1, -1, *[1] * (weight.dim() - 2))).detach()
        with graph.inserting_before(node):
            parameters = [constant(module, values, tensor) for tensor in (laid, term.to(weight.dtype))]
            node.args = (of["input"], *parameters, *node.args[3:])
            node.kwargs = {name: given for name, given in node.kwargs.items() if name not in ("input", "weight", "bias")}
        last.replace_all_uses_with(node)
        for of_gone in reversed(gone):
            graph.erase_node(of_gone)


_NORM_OF_THREE = "aten._native_batch_norm_legit_no_training.default"


def _norm(node: torch.fx.Node, values: MutableMapping[torch.fx.Node, Any]) -> _Arithmetic | None:
    """A batch-norm with constant parameters."""
    is_of_three = str(node.target) == _NORM_OF_THREE
    if not is_of_three and str(node.target) != "aten.batch_norm.default":
        return None
    of = arguments(node)
    names = ("weight", "bias", "running_mean", "running_var")
    given = [value for value in (values.get(of[name]) for name in names) if isinstance(value, torch.Tensor)]
    if of.get("training", False) or len(given) < len(names):
        return None
    if is_of_three and [user.args[1:] for user in node.users] != [(0,)]:
        return None
    scale, bias, mean, variance = (value.detach().double() for value in given)
    factor = scale / torch.sqrt(variance + of["eps"])
    return _Arithmetic(of["input"], factor, bias - mean * factor)


def constant(
    module: torch.fx.GraphModule, values: MutableMapping[torch.fx.Node, Any], tensor: torch.Tensor
) -> torch.fx.Node:
    """A node of a tensor that does not change, which the module has from now on."""
    number = 0
    while hasattr(module, name := f"fuseplan_constant_{number}"):
        number += 1
    module.register_buffer(name, tensor)
    node = module.graph.get_attr(name)
    node.meta["val"] = tensor
    values[node] = tensor
    return node


def _only_reader(node: torch.fx.Node) -> torch.fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _is_in_chain(
    node: torch.fx.Node, written: Set[torch.fx.Node], values: Mapping[torch.fx.Node, Any]
) -> bool:
    """Whether a value is a convolution's, or made of one's alone, that nothing else reads. Some activations are written as several
    nodes.
    """
    while len(node.users) == 1 or written >= node.users.keys():
        packet = getattr(node.target, "overloadpacket", None)
        if packet in _CONVOLUTIONS:
            return not arguments(node).get("transposed", False)
        before = _read_by(node, written, values) if node in written else None
        if packet in _BETWEEN and isinstance(node.args[0], torch.fx.Node):
            before = node.args[0]
        if before is None:
            return False
        node = before
    return False


def _read_by(
    last: torch.fx.Node, written: Set[torch.fx.Node], values: Mapping[torch.fx.Node, Any]
) -> torch.fx.Node | None:
    """The value that an activation is of, which several nodes write."""
    inside, read = [last], set()
    for node in inside:
        for given in node.all_input_nodes:
            if given in written:
                inside += [given] if given not in inside else []
            elif given not in values:
                read.add(given)
    return next(iter(read)) if len(read) == 1 else None


def _arithmetic(node: torch.fx.Node, values: MutableMapping[torch.fx.Node, Any]) -> _Arithmetic | None:
    """A sum, difference, product or quotient of an image and a constant, in f64."""
    packet = getattr(node.target, "overloadpacket", None)
    if packet not in (_ATEN.add, _ATEN.sub, _ATEN.mul, _ATEN.div) or node in values:
        return None
    of = arguments(node)
    if of.get("rounding_mode") is not None or not isinstance(of.get("alpha", 1), (int, float)):
        return None
    pair = [_number(given, values) for given in (of["self"], of["other"])]
    at = next((at for at in (0, 1) if pair[at] is None), None)
    x = node.args[at] if at is not None and at < len(node.args) else None
    other = pair[1 - at] if at is not None else None
    if not isinstance(x, torch.fx.Node) or other is None:
        return None
    image, result = x.meta.get("val"), node.meta.get("val")
    if not isinstance(image, torch.Tensor) or not isinstance(result, torch.Tensor):
        return None
    if image.dim() not in (4, 5) or not image.is_floating_point() or type(image.shape[1]) is not int:
        return None
    number = _per_channel(other, image)
    if number is None or (image.shape, image.dtype, image.device) != (result.shape, result.dtype, result.device):
        return None
    one, alpha = torch.ones((), dtype=torch.float64, device=number.device), of.get("alpha", 1)
    if packet is _ATEN.mul:
        return _Arithmetic(x, number, 0 * one)
    if packet is _ATEN.div:
        return _Arithmetic(x, 1 / number, 0 * one) if at == 0 else None
    sign = -alpha if packet is _ATEN.sub else alpha
    return _Arithmetic(x, one, sign * number) if at == 0 else _Arithmetic(x, sign * one, number)


def _number(given: Any, values: MutableMapping[torch.fx.Node, Any]) -> torch.Tensor | float | None:
    """A constant: a tensor or a number."""
    if isinstance(given, torch.fx.Node):
        value = values.get(given)
        return value.detach() if isinstance(value, torch.Tensor) and value.is_floating_point() else None
    return float(given) if type(given) in (int, float) else None


def _per_channel(number: torch.Tensor | float, image: torch.Tensor) -> torch.Tensor | None:
    """One number, or one a channel, as a tensor of f64."""
    if not isinstance(number, torch.Tensor):
        return torch.tensor(number, dtype=torch.float64, device=image.device)
    number = number.to(image.device, torch.float64)
    if number.numel() == 1 and number.dim() <= image.dim():
        return number.reshape(())
    lengths = [1] * (image.dim() - number.dim()) + list(number.shape)
    wanted = [1, image.shape[1], *[1] * (image.dim() - 2)]
    return number.flatten() if lengths == wanted else None
