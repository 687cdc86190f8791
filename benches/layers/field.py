#!/usr/bin/env python3
"""Writes the field list: the convolution layers of known networks, with their counts and the operators behind them.

    benches/layers/field.py [--check] [FILE]        default: driver/src/bench/field.tsv; --check compares instead

Networks of torchvision and timm are traced (torch.fx) on tensors without data, so layers, shapes and what follows a
layer are the definitions' own. Four networks have no definition there and are written down in `small.py`, after
published ones. Needs torch, torchvision and timm, of any build: no weights are loaded and nothing is computed.

One line is one kind of layer of one network:

    network half count dims channels image filters taps strides pads dilations groups shift activation residual

`half` is `fit` for networks that choices may be fitted to and `judge` for those that they are judged by. `count` layers
of the network are alike. `dims` is 2 or 3; extents are joined by `x`, depth first. `shift` is what is added behind the
products: `bias`, `bn` (batch-norm, which folds into filters and a bias) or `none`. `residual` says whether another
tensor of the output's shape is added, before the activation; where two layers' results are added, it is the one that
the definition computes last. Images are of one batch entry: batch sizes are given when the list is run. A linear layer
on every pixel of an image is a 1x1 convolution; other linear layers, transposed convolutions and attention are left out.
"""

import argparse
import collections
import operator
import pathlib
import sys

import torch
import torch.nn.functional as F
from torch import fx, nn

from definitions import NETWORKS

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
COLUMNS = "network half count dims channels image filters taps strides pads dilations groups shift activation residual"

ACTIVATIONS = {
    nn.ReLU: "relu", F.relu: "relu", torch.relu: "relu", nn.ReLU6: "relu6", F.relu6: "relu6",
    nn.SiLU: "silu", F.silu: "silu", nn.Hardswish: "hardswish", F.hardswish: "hardswish",
    nn.Hardsigmoid: "hardsigmoid", F.hardsigmoid: "hardsigmoid", nn.Sigmoid: "sigmoid", torch.sigmoid: "sigmoid",
    nn.GELU: "gelu", F.gelu: "gelu", nn.Tanh: "tanh",
}
ADDITIONS = {operator.add, operator.iadd, torch.add, "add", "add_"}
NORMS = (nn.BatchNorm2d, nn.BatchNorm3d)


class Shapes(fx.Interpreter):
    """Notes the shape of every node's result."""

    def run_node(self, node):
        result = super().run_node(node)
        if isinstance(result, torch.Tensor):
            node.meta["shape"] = tuple(result.shape)
        return result


class Tracer(fx.Tracer):
    """Looks into timm's modules that are several operators, and no further than torch's own."""

    def is_leaf_module(self, module, name):
        return type(module).__module__.startswith("torch.nn") and not isinstance(module, nn.Sequential)


def trace(build, shape):
    network = build().eval().to("meta")
    graph = Tracer().trace(network)
    module = fx.GraphModule(network, graph)
    with torch.no_grad():
        Shapes(module).run(torch.empty((1, *shape), device="meta"))
    return module


def behind(module, node):
    """The shift, activation and residual that follow a layer's node and belong to nothing else."""
    layer = module.get_submodule(node.target)
    shift, activation, residual = "bias" if layer.bias is not None else "none", "none", "no"
    order = {other: at for at, other in enumerate(module.graph.nodes)}
    # timm's modules look at shapes, which computes nothing.
    while len(users := [user for user in node.users if user.target is not getattr]) == 1:
        before, node = node, users[0]
        what = module.get_submodule(node.target) if node.op == "call_module" else node.target
        kind = type(what) if node.op == "call_module" else what
        if (isinstance(what, NORMS) or kind is F.batch_norm) and shift != "bn" and residual == "no":
            shift = "bn"
        elif isinstance(what, (nn.Dropout, nn.Identity)) or kind is F.dropout or is_identity(node):
            continue
        elif kind in ADDITIONS and residual == "no" and is_last(node, before, order):
            residual = "yes"
        elif kind in ACTIVATIONS:
            activation = ACTIVATIONS[kind]
            break
        else:
            break
    return shift, activation, residual


def is_identity(node):
    """Whether a node gives its operand in evaluation, as stochastic depth does."""
    return getattr(node.target, "__name__", "") == "stochastic_depth"


def is_last(addition, operand, order):
    """Whether an operand of an addition of two tensors is the one that is computed last."""
    others = [other for other in addition.all_input_nodes if other is not operand]
    return (len(others) == 1 and order[others[0]] < order[operand]
            and others[0].meta["shape"] == addition.meta["shape"] == operand.meta["shape"])


def layers(module):
    """Every convolution's columns behind `count`, in the order of the network."""
    by = lambda extents: "x".join(map(str, extents))
    for node in module.graph.nodes:
        layer = module.get_submodule(node.target) if node.op == "call_module" else None
        if isinstance(layer, (nn.Conv2d, nn.Conv3d)):
            pads, image = layer.padding, node.all_input_nodes[0].meta["shape"][2:]
            if pads == "same":
                pads = [(k - 1) * d // 2 for k, d in zip(layer.kernel_size, layer.dilation)]
            yield (len(image), layer.in_channels, by(image), layer.out_channels, by(layer.kernel_size),
                   by(layer.stride), by(pads), by(layer.dilation), layer.groups, *behind(module, node))
        elif isinstance(layer, nn.Linear) and len(node.meta["shape"]) == 4:
            image = node.meta["shape"][1:3]
            yield (2, layer.in_features, by(image), layer.out_features, "1x1", "1x1", "0x0", "1x1", 1,
                   *behind(module, node))


def text():
    lines = [COLUMNS.replace(" ", "\t")]
    for name, half, build, shape in NETWORKS:
        counts = collections.Counter(layers(trace(build, shape)))
        lines += ["\t".join(map(str, (name, half, count, *layer))) for layer, count in counts.items()]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare the file with what would be written")
    parser.add_argument("file", nargs="?", type=pathlib.Path, default=REPOSITORY / "driver/src/bench/field.tsv")
    options = parser.parse_args()
    found = text()
    if not options.check:
        options.file.write_text(found)
    elif options.file.read_text() != found:
        sys.exit(f"{options.file} is not what the definitions give; without --check it is written anew")


if __name__ == "__main__":
    main()
