"""Arithmetic with constants around convolutions, in forms that plans have or that take less.

Exporters write trained factors and shifts as products and sums with one number for all channels or one for each, and so the parts of
an activation.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence, Set
from typing import Any, NamedTuple

import torch

from .._native import spelled_out
from . import _phases
from ._export import arguments
from ._nodes import describe
from ._permutations import ACTIVATIONS, named_as, only_reader, order_of

_ATEN = torch.ops.aten
_CONVOLUTIONS = (_ATEN.conv2d, _ATEN.conv3d, _ATEN.convolution)
# Operators that a chain goes on behind, with one tensor that is no constant.
_BETWEEN = (_ATEN.batch_norm, *ACTIVATIONS)
# Operators that give a tensor another shape, of a constant another constant.
_VIEWS = (_ATEN.view, _ATEN.reshape, _ATEN.permute, _ATEN.transpose, _ATEN.unsqueeze)


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
    written = _spelled(module, values)
    gone = set(written)
    for first in list(graph.nodes):
        if first in gone or (step := _arithmetic(first, values)) is None or not _is_in_chain(step.x, written, values):
            continue
        whole, replaced = _behind(step.x, 1, values, gone, norms=False)
        if bool((whole.factor == 1).all()) and whole.term.numel() > 1:
            continue
        channels = first.meta["val"].shape[1]
        of = first.meta["val"]
        # Beside tensors of 16 bits parameters have room for more.
        dtype = torch.promote_types(of.dtype, torch.float32)
        like = torch.ones(channels, dtype=dtype, device=of.device)
        parameters = (whole.factor.to(dtype) * like, whole.term.to(dtype) * like, torch.zeros_like(like), like)
        last = replaced[-1]
        with graph.inserting_before(last):
            nodes = [constant(module, values, tensor) for tensor in parameters]
            new = graph.call_function(_ATEN.batch_norm.default, (step.x, *nodes, False, 0.0, 0.0, False))
        # Comparisons look for the value by its name.
        new.meta = {**last.meta, "fuseplan_of": last.meta.get("fuseplan_of", last.name)}
        _leave_out(module, new, replaced)
        gone.update(replaced)


def _spelled(module: torch.fx.GraphModule, values: MutableMapping[torch.fx.Node, Any]) -> set[torch.fx.Node]:
    """What activations are written with."""
    nodes = list(module.graph.nodes)
    numbers = {node: index for index, node in enumerate(nodes)}
    spelled = spelled_out([describe(node, numbers, values) for node in nodes])
    return {node for node, is_part in zip(nodes, spelled) if is_part}


def into_transposed(module: torch.fx.GraphModule, values: MutableMapping[torch.fx.Node, Any]) -> None:
    """Folds constants and batch-norms behind transposed convolutions, which the finder of chains does not take, into their weights and
    biases."""
    graph = module.graph
    for node in list(graph.nodes):
        if not _phases.is_conv_transpose(node):
            continue
        of = arguments(node)
        weight, bias = values.get(of["weight"]), values.get(of["bias"])
        if not isinstance(weight, torch.Tensor) or (of["bias"] is not None and bias is None):
            continue
        image = node.meta.get("val")
        if not isinstance(image, torch.Tensor) or image.dim() != weight.dim():
            continue
        behind, gone = _behind(node, 1, values, set())
        if not gone:
            continue
        groups = of["groups"]
        factor = behind.factor * torch.ones(groups * weight.shape[1], dtype=torch.float64, device=weight.device)
        exact = _phases.by_groups(weight.double(), groups) * factor.view(groups, 1, -1, *[1] * (weight.dim() - 2))
        laid = torch.empty_like(weight).copy_(exact.flatten(0, 1)).detach()
        _set_parameters(module, values, node, laid, _term(behind, bias, factor).to(weight.dtype))
        node.meta.update(named_as(gone[-1], None))
        _leave_out(module, node, gone)


def into_layers(module: torch.fx.GraphModule, values: MutableMapping[torch.fx.Node, Any]) -> None:
    """Folds constants and batch-norms behind fully connected layers, also behind a permutation of their results, into weights and biases.

    A sum with one number a feature right behind a layer stays, as it is a bias, and so does what an activation is written with.
    """
    spelled = _spelled(module, values)
    for layer in list(module.graph.nodes):
        value = layer.meta.get("val")
        if layer.target is not _ATEN.linear.default or not isinstance(value, torch.Tensor):
            continue
        of = arguments(layer)
        weight, bias = values.get(of["weight"]), values.get(of["bias"])
        if not isinstance(weight, torch.Tensor) or not weight.numel() or (of["bias"] is not None and bias is None):
            continue
        result, order, features = layer, None, value.dim() - 1
        if (reader := only_reader(layer)) is not None and (order := order_of(reader)) is not None:
            result, features = reader, order.index(features)
        behind, gone = _behind(result, features, values, spelled)
        is_sum = bool((behind.factor == 1).all())
        if not gone or is_sum and order is None and behind.term.numel() > 1:
            continue
        factor = behind.factor * torch.ones(weight.shape[0], dtype=torch.float64, device=weight.device)
        exact = weight.double() * factor[:, None]
        term = _term(behind, bias, factor)
        if not _holds(exact, weight.dtype) or not bool((term.abs() <= torch.finfo(weight.dtype).max).all()):
            continue
        laid = None if is_sum else torch.empty_like(weight).copy_(exact).detach()
        _set_parameters(module, values, layer, laid, None if bias is None and not term.any() else term.to(weight.dtype))
        layer.meta.update(named_as(gone[-1], order))
        _leave_out(module, result, gone)


def _holds(matrix: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether a type has the rows of a matrix with its usual precision: what is largest in each is neither too large nor one of the
    numbers near zero that have less."""
    largest, range = matrix.abs().amax(1), torch.finfo(dtype)
    return bool(((largest == 0) | (largest >= range.tiny) & (largest <= range.max)).all())


def _behind(
    node: torch.fx.Node,
    channels: int,
    values: MutableMapping[torch.fx.Node, Any],
    without: Set[torch.fx.Node],
    norms: bool = True,
) -> tuple[_Arithmetic, list[torch.fx.Node]]:
    """What constants, and batch-norms if asked for, behind a value make of it, without some nodes; and the nodes, the last of which has the
    result."""
    value = node.meta["val"]
    one = torch.ones((), dtype=torch.float64, device=value.device)
    whole, gone, last = _Arithmetic(node, one, 0 * one), [], node
    # PyTorch's batch-norm keeps the order in memory of channels-last tensors, and of no other permutation.
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(value.dim(), torch.contiguous_format)
    takes_norms = norms and channels == 1 and (order_of(node) is None or value.is_contiguous(memory_format=layout))
    while (reader := only_reader(last)) is not None and reader not in without:
        then = _arithmetic(reader, values, channels) or (_norm(reader, values) if takes_norms else None)
        if then is None or then.x is not last:
            break
        whole = _Arithmetic(node, whole.factor * then.factor, whole.term * then.factor + then.term)
        last = next(iter(reader.users)) if str(reader.target) == _NORM_OF_THREE else reader
        gone += [reader] if last is reader else [reader, last]
    return whole, gone


def _term(behind: _Arithmetic, bias: torch.Tensor | None, factor: torch.Tensor) -> torch.Tensor:
    """The bias of what had one, or none, before."""
    return behind.term + (0 * factor if bias is None else bias.double() * factor)


def _set_parameters(
    module: torch.fx.GraphModule,
    values: MutableMapping[torch.fx.Node, Any],
    node: torch.fx.Node,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> None:
    """Gives a layer or convolution another weight, where there is one, and another bias."""
    of = arguments(node)
    with module.graph.inserting_before(node):
        of_weight = of["weight"] if weight is None else constant(module, values, weight)
        of_bias = None if bias is None else constant(module, values, bias)
    node.args = (of["input"], of_weight, of_bias, *node.args[3:])
    node.kwargs = {name: given for name, given in node.kwargs.items() if name not in ("input", "weight", "bias")}


def _leave_out(module: torch.fx.GraphModule, node: torch.fx.Node, gone: Sequence[torch.fx.Node]) -> None:
    """Lets readers of what is computed of a node's value, in nodes that only read each other, read the value itself."""
    gone[-1].replace_all_uses_with(node)
    for of_gone in reversed(gone):
        module.graph.erase_node(of_gone)


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


def _is_in_chain(
    node: torch.fx.Node, written: Set[torch.fx.Node], values: Mapping[torch.fx.Node, Any]
) -> bool:
    """Whether a value is a convolution's, or made of one's alone, that nothing else reads. Some activations are written as several
    nodes.
    """
    while len(node.users) == 1 or written >= node.users.keys():
        packet = getattr(node.target, "overloadpacket", None)
        if packet in _CONVOLUTIONS:
            # Of an image, not of one without a batch.
            return node.meta["val"].dim() in (4, 5) and not arguments(node).get("transposed", False)
        before = _read_by(node, written, values) if node in written else node.args[0] if packet in _BETWEEN else None
        if not isinstance(before, torch.fx.Node):
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


def _arithmetic(
    node: torch.fx.Node, values: MutableMapping[torch.fx.Node, Any], channels: int = 1
) -> _Arithmetic | None:
    """A sum, difference, product or quotient of an image and a constant, in f64; a dimension has the channels."""
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
    if image.dim() <= channels or not image.is_floating_point() or type(image.shape[channels]) is not int:
        return None
    number = _per_channel(other, image, channels)
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
    """A constant: a tensor, also in another shape, or a number."""
    if isinstance(given, torch.fx.Node):
        value = values.get(given)
        if value is None and getattr(given.target, "overloadpacket", None) in _VIEWS and len(given.all_input_nodes) == 1:
            source, *numbers = given.args
            of = _number(source, values)
            return given.target(of, *numbers, **given.kwargs) if isinstance(of, torch.Tensor) else None  # type: ignore[operator, no-any-return]
        return value.detach() if isinstance(value, torch.Tensor) and value.is_floating_point() else None
    return float(given) if type(given) in (int, float) else None


def _per_channel(number: torch.Tensor | float, image: torch.Tensor, channels: int) -> torch.Tensor | None:
    """One number, or one a channel, as a tensor of f64."""
    if not isinstance(number, torch.Tensor):
        return torch.tensor(number, dtype=torch.float64, device=image.device)
    number = number.to(image.device, torch.float64)
    if number.numel() == 1 and number.dim() <= image.dim():
        return number.reshape(())
    lengths = [1] * (image.dim() - number.dim()) + list(number.shape)
    wanted = [length if at == channels else 1 for at, length in enumerate(image.shape)]
    return number.flatten() if lengths == wanted else None
