"""What most networks of images end with, the mean of each channel and fully connected layers, as convolutions.

Behind each other with the convolutions in front of them they are chains of one run, where PyTorch's operators would be code and
memory that plans have pushed out of the caches. The mean is a convolution of each channel by itself with a filter as large as the
image, and a fully connected layer of one pixel is a convolution with one tap.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import torch

from ._constants import constant
from ._export import arguments

_ATEN = torch.ops.aten
_SAME = {_ATEN.view.default, _ATEN.reshape.default, _ATEN.flatten.using_ints, _ATEN.squeeze.dims, _ATEN.clone.default}

# Pixels of the largest image, as the filters of the mean are as many numbers.
_MOST_PIXELS = 64

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


def _own_mean(image: Any, *_: Any) -> tuple[Any, tuple[Any, ...]]:
    return _ATEN.mean.dim, (image, [2, 3], True)


def _own_layer(pixel: Any, weight: Any, bias: Any) -> tuple[Any, tuple[Any, ...]]:
    return linear_of_pixel, (pixel, weight, bias)


def linear_of_pixel(pixel: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """A fully connected layer of images of one pixel, by a weight that is viewed as filters."""
    return torch.nn.functional.linear(pixel.flatten(1), weight.flatten(1), bias)[..., None, None]


def as_convolutions(module: torch.fx.GraphModule, values: MutableMapping[torch.fx.Node, Any]) -> None:
    """Puts a convolution in the place of a small image's mean that a fully connected layer reads, and another in that of the layer
    where it is the network's last operator, in f32 on a CPU."""
    graph = module.graph
    for layer in list(graph.nodes):
        found = _mean_in_front_of(layer)
        if found is None:
            continue
        weight = values.get(arguments(layer)["weight"])
        if not isinstance(weight, torch.Tensor) or weight.dtype != torch.float32 or weight.device.type != "cpu":
            continue
        pooled = _pooled(module, values, *found)
        if all(reader.op == "output" for reader in layer.users):
            _as_convolution(module, values, layer, pooled)
    graph.eliminate_dead_code()


def _pooled(
    module: torch.fx.GraphModule,
    values: MutableMapping[torch.fx.Node, Any],
    image: torch.fx.Node,
    mean: torch.fx.Node,
) -> torch.fx.Node:
    """The convolution that has taken the place of an image's mean."""
    graph, of = module.graph, image.meta["val"]
    batch, channels, *extent = of.shape
    shape = mean.meta["val"].shape
    filters = torch.full((channels, 1, *extent), 1 / (extent[0] * extent[1]))
    with graph.inserting_before(mean):
        weight = constant(module, values, filters)
        new = graph.create_node(
            "call_function",
            _ATEN.conv2d.default,
            (image, weight, None, [1, 1], [0, 0], [1, 1], channels),
            name=f"{mean.name}_convolution",
        )
        new.meta = {**mean.meta, "val": of.new_empty((batch, channels, 1, 1)), _OWN: _own_mean}
        result = new
        if len(shape) != 4:
            result = graph.call_function(_ATEN.reshape.default, (new, list(shape)))
            result.meta = dict(mean.meta)
    # Comparisons look for the value by its name, and a name's value has one shape.
    new.meta["fuseplan_of"] = mean.meta.get("fuseplan_of", mean.name) if result is new else None
    mean.replace_all_uses_with(result)
    graph.erase_node(mean)
    return new


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


def _mean_in_front_of(layer: torch.fx.Node) -> tuple[torch.fx.Node, torch.fx.Node] | None:
    """A small image and the mean over all of its pixels, which a fully connected layer reads, and nobody else."""
    if layer.target is not _ATEN.linear.default or not _is_of_numbers(layer, 2):
        return None
    vector = mean = layer.args[0]
    if not isinstance(vector, torch.fx.Node) or not _is_of_numbers(vector, 2):
        return None
    while isinstance(mean, torch.fx.Node) and len(mean.users) == 1 and mean.target in _SAME:
        mean = mean.args[0]
    if not isinstance(mean, torch.fx.Node) or len(mean.users) != 1 or not _is_mean(mean):
        return None
    image = mean.args[0]
    if not isinstance(image, torch.fx.Node) or not _is_of_numbers(image, 4):
        return None
    batch, channels, height, width = image.meta["val"].shape
    is_same = tuple(vector.meta["val"].shape) == (batch, channels)
    return (image, mean) if is_same and height * width <= _MOST_PIXELS else None


def _is_mean(node: torch.fx.Node) -> bool:
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
