"""What most networks of images end with, a fully connected layer of the mean of each channel, as a convolution of one pixel.

So both are steps of the run in front of them, where PyTorch's operators would be code and memory that plans have pushed out of the
caches.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import torch

from ._constants import constant
from ._export import arguments

_ATEN = torch.ops.aten
_SAME = {_ATEN.view.default, _ATEN.reshape.default, _ATEN.flatten.using_ints, _ATEN.squeeze.dims, _ATEN.clone.default}

# The name by which a node's `meta` says how PyTorch computes its value, by a function of its arguments, where that is not what the
# node is.
_OWN = "fuseplan_own"


def own(node: torch.fx.Node) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """What PyTorch computes a node's value by: a function, its arguments, and those with names."""
    made = node.meta.get(_OWN)
    return (node.target, node.args, node.kwargs) if made is None else (*made(*node.args), {})


def as_they_were(module: torch.fx.GraphModule) -> None:
    """Gives back what no plan has taken: convolutions are slower than what they stand for where PyTorch computes them."""
    for node in module.graph.nodes:
        if _OWN in node.meta:
            node.target, node.args, node.kwargs = own(node)
            del node.meta[_OWN]


def _own_layer(pixel: Any, weight: Any, bias: Any) -> tuple[Any, tuple[Any, ...]]:
    return linear_of_pixel, (pixel, weight, bias)


def linear_of_pixel(pixel: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """A fully connected layer of images of one pixel, by a weight that is viewed as filters."""
    return torch.nn.functional.linear(pixel.flatten(1), weight.flatten(1), bias)[..., None, None]


def as_convolutions(module: torch.fx.GraphModule, values: MutableMapping[torch.fx.Node, Any]) -> None:
    """Puts a convolution in the place of a fully connected layer that reads the mean of an image and is the network's last operator,
    in f32 on a CPU."""
    for layer in list(module.graph.nodes):
        mean = _mean_in_front_of(layer)
        if mean is None or not all(reader.op == "output" for reader in layer.users):
            continue
        weight = values.get(arguments(layer)["weight"])
        if isinstance(weight, torch.Tensor) and weight.dtype == torch.float32 and weight.device.type == "cpu":
            _as_convolution(module, values, layer, _as_pixel(module, mean))
    module.graph.eliminate_dead_code()


def _as_pixel(module: torch.fx.GraphModule, mean: torch.fx.Node) -> torch.fx.Node:
    """The mean of an image as an image of one pixel."""
    graph, of, image = module.graph, mean.meta["val"], mean.args[0]
    if of.dim() == 4:
        return mean
    with graph.inserting_before(mean):
        pixel = graph.call_function(_ATEN.mean.dim, (image, [2, 3], True))
        # Comparisons look for a value by its name, and that has one shape.
        pixel.meta = {**mean.meta, "val": of.new_empty((*of.shape, 1, 1)), "fuseplan_of": None}
    return pixel


def _as_convolution(
    module: torch.fx.GraphModule,
    values: MutableMapping[torch.fx.Node, Any],
    layer: torch.fx.Node,
    pooled: torch.fx.Node,
) -> None:
    """Puts a convolution of a single pixel in the place of a fully connected layer."""
    graph, of, shape = module.graph, arguments(layer), list(layer.meta["val"].shape)
    with graph.inserting_before(layer):
        # A view, so that whoever changes the weight changes both.
        weight = constant(module, values, values[of["weight"]].detach()[:, :, None, None])
        new = graph.create_node(
            "call_function", _ATEN.conv2d.default, (pooled, weight, of["bias"]), name=f"{layer.name}_convolution"
        )
        new.meta = {**layer.meta, "val": layer.meta["val"].new_empty((*shape, 1, 1)), "fuseplan_of": None, _OWN: _own_layer}
        flat = graph.call_function(_ATEN.reshape.default, (new, shape))
        flat.meta = dict(layer.meta)
    layer.replace_all_uses_with(flat)
    graph.erase_node(layer)


def _mean_in_front_of(layer: torch.fx.Node) -> torch.fx.Node | None:
    """The mean over all pixels of an image, which a fully connected layer reads, and nobody else."""
    if layer.target is not _ATEN.linear.default or not _is_of_numbers(layer, 2):
        return None
    vector = mean = layer.args[0]
    if not isinstance(vector, torch.fx.Node) or not _is_of_numbers(vector, 2):
        return None
    while isinstance(mean, torch.fx.Node) and len(mean.users) == 1 and mean.target in _SAME:
        mean = mean.args[0]
    if not isinstance(mean, torch.fx.Node) or len(mean.users) != 1 or not is_mean(mean):
        return None
    image = mean.args[0]
    if not isinstance(image, torch.fx.Node) or not _is_of_numbers(image, 4):
        return None
    return mean if vector.meta["val"].shape == image.meta["val"].shape[:2] else None


def is_mean(node: torch.fx.Node) -> bool:
    """Whether a node is the mean over height and width."""
    if node.target is _ATEN.adaptive_avg_pool2d.default:
        return list(arguments(node)["output_size"]) == [1, 1]
    if node.target is _ATEN.mean.dim:
        of = arguments(node)
        return sorted(int(at) % 4 for at in of["dim"] or ()) == [2, 3] and of["dtype"] is None
    return False


def _is_of_numbers(node: torch.fx.Node, rank: int) -> bool:
    """Whether a node's value has so many dimensions, none of which is a symbol."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dim() == rank and all(type(number) is int for number in value.shape)
