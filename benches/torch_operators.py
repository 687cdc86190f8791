#!/usr/bin/env python3
"""What of torchvision's networks becomes plans in PyTorch, and which operators stay PyTorch's: docs/pytorch-networks.md.

    benches/torch_operators.py --write                    writes the page's table anew
    benches/torch_operators.py --check resnet18 swin_t    compares rows with it

Needs PyTorch, torchvision and the package.
"""

import argparse
import pathlib
import re
import sys
import warnings
from collections import Counter

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import fuseplan.torch as ft

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs/pytorch-networks.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of the table -->\n"
NETWORKS = (
    *("alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "googlenet", "inception_v3", "maxvit_t"),
    *("mnasnet1_0", "mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small", "regnet_y_400mf", "resnet18", "resnet50"),
    *("resnext50_32x4d", "shufflenet_v2_x1_0", "squeezenet1_1", "swin_t", "swin_v2_t", "vgg11_bn", "vgg16", "vit_b_32"),
)
# Operators that move elements or copy them.
MOVES = {
    *("as_strided", "cat", "clone", "constant_pad_nd", "copy", "index", "pad", "roll", "slice_scatter", "split"),
    *("fill", "new_zeros", "zero", "eq", "ne", "masked_fill"),
}


def model(name):
    import torchvision

    torch.manual_seed(0)
    # Their own ways to begin take a minute.
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    return torchvision.models.get_model(name, weights=None, **options).eval()


def image(name):
    side = 299 if name == "inception_v3" else 224
    return torch.randn(1, 3, side, side)


def multiply_adds(network, x):
    """Of PyTorch's own convolutions, fully connected layers and products of matrices."""
    # Attention's own kernels are not counted, so that it is computed by products.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        network(x)
    return counter.get_total_flops() // 2


def remaining(fused):
    """How often a network calls which of PyTorch's operators; views aside, and what moves elements as one number."""
    found = Counter()
    for node in fused.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "aten":
            # Whose results are memory of what they read, or may be.
            is_view = any(of.alias_info is not None for of in node.target._schema.returns) or "_unsafe_view" in str(node.target)
            name = node.target._schema.name.removeprefix("aten::").removeprefix("_").replace("native_batch_norm_legit_no_training", "batch_norm")
            if not is_view:
                found["moves" if name in MOVES else name] += 1
    return found


def row(name, network, fused, x):
    """A network's line of the table."""
    report = fused.fuseplan_report
    # The mean of the last image, and a layer behind it, are convolutions where that is faster.
    of_head = re.compile(r"(adaptive_avg_pool2d|mean|linear)(_\d+)?_convolution")
    plans, total = Counter(), Counter()
    for of in report.fused:
        head = of_head.fullmatch(of.name)
        kind = of.operators[0] if head is None else "linear" if head[1] == "linear" else "mean"
        plans[kind] += 1
        total[kind] += 1
    total.update(of.operator for of in report.unfused)
    counts = [f"{plans[kind]} of {total[kind]}" if total[kind] else "none" for kind in ("conv", "linear")]
    all_of_it, rest = multiply_adds(network, x), multiply_adds(fused, x)
    share = f"{100 * (1 - rest / all_of_it):.4g} %"
    stay = [f"{count} `{kind}`" if kind != "moves" else f"{count} that move" for kind, count in sorted(remaining(fused).items())]
    return f"| `{name}` | {counts[0]} | {counts[1]} | {share} | {', '.join(stay) or 'none'} |\n"


def written(name):
    """A network's line of the page."""
    lines = [line for line in PAGE.read_text().splitlines(keepends=True) if line.startswith(f"| `{name}` |")]
    return lines[0] if lines else None


@torch.no_grad()
def made(name):
    network, x = model(name), image(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return row(name, network, ft.optimize(network, x, choose="all"), x)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    does = parser.add_mutually_exclusive_group(required=True)
    does.add_argument("--write", action="store_true", help="all networks")
    does.add_argument("--check", nargs="*", metavar="NETWORK", choices=NETWORKS, help="those named, or all")
    given = parser.parse_args()
    if given.write:
        text = PAGE.read_text()
        (before, rest), rows = text.split(BEGIN), []
        for name in NETWORKS:
            rows.append(made(name))
            print(rows[-1], end="", flush=True)
        head = "| network | convolutions that are plans | fully connected layers | multiply-adds in plans | operators that stay PyTorch's |\n"
        PAGE.write_text(before + BEGIN + head + "|---|---|---|---|---|\n" + "".join(rows) + END + rest.split(END)[1])
        return 0
    differ = [(name, now) for name in given.check or NETWORKS if (now := made(name)) != written(name)]
    for name, now in differ:
        print(f"{PAGE.name} has\n{written(name)}and {name} is\n{now}", end="", file=sys.stderr)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
