#!/usr/bin/env python3
"""Compares fuseplan with cuDNN and PyTorch on the NVIDIA GPU of this machine, in one run.

The thirteen convolution+bias+ReLU and eight batch-norm+ReLU configurations of MIOpen's published charts; or, with
--field, the convolutions of known networks (`driver/src/bench/field.tsv`), with ratios by class, by network and by half
of the networks. Every side runs from this process on the same operands, which rotate through 256 MB, captured into one
CUDA graph: the median of seven replays, microseconds for one call. Sides:

  ours     fuseplan's C library, the solver that a plan would get
  found    the same with the solver that find mode measures to be the fastest (--find)
  fused    PyTorch's cudnn_convolution_relu or cudnn_convolution_add_relu, which are one call of cuDNN
  unfused  convolution, bias and ReLU (or batch-norm and ReLU) as PyTorch's own calls
  graph    the fastest of cuDNN's graph-API plans that the heuristics name first (--plans), where the Python
           package nvidia-cudnn-frontend is installed; not for f32, which it computes in TF32 unasked. --json has
           the time of each
  copy     for batch-norm: one pass over as many bytes

The first image of our results is compared with PyTorch's f32 before anything is timed; a wrong one ends the run with
status 1. The floor is the larger of bytes over the bandwidth of a copy and multiply-adds over the rate of a large matrix
product of cuBLAS, both measured in this run.

Needs PyTorch with CUDA, and `libMIOpen.so.1`, compiled by cargo or given with --library.
"""

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import re
import subprocess
import sys

import torch
import torch.nn.functional as F

from cuda import layers, ours, peers, report, timing

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "tf32": torch.float32}
# RMS error over the largest magnitude.
TOLERANCES = {"f16": 2e-3, "bf16": 1.5e-2, "f32": 1e-5, "tf32": 2e-3}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    comma = lambda text: text.split(",")
    parser.add_argument("--types", type=comma, default=["f16", "f32"], help="of f16, bf16, f32, tf32; default: f16,f32")
    parser.add_argument("--layouts", type=comma, default=["nhwc", "nchw"])
    parser.add_argument("--only", default="", help="part of a configuration's name")
    parser.add_argument("--field", metavar="NETWORK", help="the field list: a network, fit, judge or all")
    parser.add_argument("--sample", type=int, default=0, help="so many of its layers, of every class some")
    parser.add_argument("--seed", type=int, default=1, help="draws the sample")
    parser.add_argument("--batch", type=int, default=64, help="autoencoders are given 1")
    parser.add_argument("--plans", type=int, default=8, help="graph-API plans to time; 0: none")
    parser.add_argument("--find", action="store_true", help="time find mode's choice too")
    parser.add_argument("--no-peers", action="store_true", help="time ours alone, as for the regret of its choice")
    parser.add_argument("--library", type=pathlib.Path, help="the compiled library; default: cargo build")
    parser.add_argument("--output", type=pathlib.Path, help="Markdown file to write")
    parser.add_argument("--json", type=pathlib.Path, help="file to write, a line for each configuration")
    return parser.parse_args()


def build():
    subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "miopen-capi"], cwd=REPOSITORY, check=True)
    return REPOSITORY / "target/release/libMIOpen.so"


class Rates:
    """What the GPU can do at most: bytes of a copy, and multiply-adds of a matrix product, a second."""

    def __init__(self):
        source = torch.empty(256_000_000, dtype=torch.uint8, device="cuda")
        copies = [(source, torch.empty_like(source)) for _ in range(2)]
        self.bytes = 2 * source.numel() / timing.replays(lambda s: s[1].copy_(s[0]), copies) * 1e6
        self.products = {}

    def floor(self, name, layer, moved):
        """Microseconds that no kernel goes below."""
        products = layer.batch * layer.filters * math.prod(layer.output()) * layer.channels // layer.groups
        return max(moved / self.bytes, products * math.prod(layer.taps) / self.rate(name)) * 1e6

    def rate(self, name):
        if name not in self.products:
            torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
            extent = 8192 if name != "f32" else 4096
            square = [tuple(torch.randn(extent, extent, device="cuda").to(TYPES[name]) for _ in range(2))
                      for _ in range(2)]
            self.products[name] = extent**3 / timing.replays(lambda s: s[0] @ s[1], square) * 1e6
            torch.backends.cuda.matmul.allow_tf32 = False
        return self.products[name]


class Ours:
    """The library with a handle."""

    def __init__(self, path):
        self.library = ours.Library(path)
        self.handle = self.library.create("miopenCreate")

    def plan(self, layer, name, layout):
        """The plan of a layer, on descriptors alone."""
        dtype = TYPES[name]
        x = torch.empty([layer.batch, layer.channels, *layer.image], dtype=dtype, device="meta")
        weights = torch.empty([layer.filters, layer.channels // layer.groups, *layer.taps], dtype=dtype, device="meta")
        y = torch.empty([layer.batch, layer.filters, *layer.output()], dtype=dtype, device="meta")
        x, weights, y = (t.to(memory_format=timing.LAYOUTS[layout][t.dim()]) for t in (x, weights, y))
        bias = torch.empty(layer.filters, dtype=dtype, device="meta") if layer.shift else None
        return ours.convolution(self.library, self.handle, layer, name == "tf32", x, weights, bias,
                                y if layer.residual else None, y)

    def compile(self, chosen, name, layout):
        """The plans of all layers; compiled side by side, since the compiler is what takes the time."""
        plans = [self.plan(layer, name, layout) for layer in chosen]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda plan: plan.compile(), plans))
        return plans


def operands(layer, dtype, layout):
    """Sets of input, filters, bias and residual, and the bytes of one set and its output."""
    image, out = [layer.batch, layer.channels, *layer.image], [layer.batch, layer.filters, *layer.output()]
    weights = [layer.filters, layer.channels // layer.groups, *layer.taps]
    elements = math.prod(image) + math.prod(weights) + math.prod(out) * (2 if layer.residual else 1)
    sets = [(timing.random(image, dtype, layout), timing.random(weights, dtype, layout),
             torch.randn(layer.filters, device="cuda").to(dtype) if layer.shift else None,
             timing.random(out, dtype, layout) if layer.residual else None)
            for _ in range(timing.sets(elements, dtype.itemsize))]
    return sets, elements * dtype.itemsize, out


def time_of(plan, sets, out, dtype, layout):
    """Microseconds of our plan, and the first set's result."""
    given = {id(s): plan.arguments(t for t in s[1:] if t is not None) for s in sets}
    results = {id(s): timing.empty(out, dtype, layout) for s in sets}
    for result in results.values():
        result.fill_(math.nan)

    def call(s):
        plan.execute(s[0], results[id(s)], given[id(s)])

    return timing.replays(call, sets), results[id(sets[0])]


def compared(layer, result, expected, tolerance):
    """The error of a result's first image, and whether it is wrong or any of the result is not finite."""
    # Behind a ReLU all of a small image may be 0.
    largest = expected.abs().max().clamp(min=1e-3)
    error = ((result[:1].float() - expected).square().mean().sqrt() / largest).item()
    wrong = not error < tolerance or not result.isfinite().all().item()
    if wrong:
        count = lambda tensor: (~tensor.isfinite()).sum().item()
        print(f"  {layer.name}: error {error:.2e}, not finite: {count(result)} of ours, {count(expected)} of PyTorch's",
              file=sys.stderr)
    return error, wrong


def convolution(side, plan, layer, name, layout, rates, options):
    dtype = TYPES[name]
    sets, moved, out = operands(layer, dtype, layout)
    us, result = time_of(plan, sets, out, dtype, layout)
    expected = peers.exact(layer, sets[0])
    error, wrong = compared(layer, result, expected, TOLERANCES[name])
    solver = re.search(r"cuda\.\w+\.v\d+", plan.explanation())
    row = {"name": layer.name, "layer": layer, "us": us, "error": error, "wrong": wrong,
           "solver": solver.group() if solver else "unknown", "floor": rates.floor(name, layer, moved)}
    if options.find:
        found = side.plan(layer, name, layout)
        found.compile(find=True)
        row["choice"], row["choice found"] = plan.kernel(), found.kernel()
        row["found"] = us
        # What is timed twice has two times.
        if row["choice"] != row["choice found"]:
            row["found"], result = time_of(found, sets, out, dtype, layout)
            row["wrong"] |= compared(layer, result, expected, TOLERANCES[name])[1]
        row["times of find"] = found.chosen()
    row["peers"], row["plans"] = {}, []
    if not options.no_peers:
        row["peers"], row["plans"] = peers.times(layer, dtype, layout, name == "tf32", sets, options.plans)
    timing.rest(us)
    return row


def batch_norm(side, name, layout, configuration, batch):
    c, h, w = map(int, configuration.split("-"))
    dtype, shape = TYPES[name], [batch, c, h, w]
    elements = 2 * math.prod(shape)
    sets = [(timing.random(shape, dtype, layout), timing.empty(shape, dtype, layout))
            for _ in range(timing.sets(elements, dtype.itemsize))]
    mean, scale, bias = (torch.randn(c, device="cuda") for _ in range(3))
    variance = torch.rand(c, device="cuda") + 0.5
    plan = ours.batch_norm(side.library, side.handle, *sets[0], scale)
    plan.compile()
    given = plan.arguments([scale, bias, mean, variance])
    us = timing.replays(lambda s: plan.execute(*s, given), sets)
    norm = lambda x: F.batch_norm(x, mean, variance, scale, bias).relu_()
    expected = norm(sets[0][0].float())
    error = ((sets[0][1].float() - expected).square().mean().sqrt() / expected.abs().max()).item()
    solver = re.search(r"cuda\.\w+\.v\d+", plan.explanation())
    return {"name": f"na {configuration}", "us": us, "error": error, "wrong": not error < TOLERANCES[name],
            "solver": solver.group() if solver else "unknown",
            "unfused": timing.replays(lambda s: norm(s[0]), sets),
            "peers": {"copy": timing.replays(lambda s: s[1].copy_(s[0]), sets)}}


def main():
    options = arguments()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    side, rates = Ours(options.library or build()), Rates()
    chosen = layers.field(options.field, options.batch) if options.field else layers.chart(options.batch)
    chosen = [layer for layer in layers.sample(chosen, options.sample, options.seed) if options.only in layer.name]
    text = [f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, "
            f"batch {options.batch}, microseconds. Command: `benches/compare_cuda.py {' '.join(sys.argv[1:])}`"]
    every, lines = [], options.json.open("w") if options.json else None

    def kept(row, name, layout):
        """The row, which is written at once, so that a run that is ended early leaves what it has measured."""
        every.append({**row, "type": name, "layout": layout})
        if lines:
            plain = {**every[-1], "layer": row["layer"].name} if "layer" in row else every[-1]
            print(json.dumps(plain), file=lines, flush=True)
        return row

    for name in options.types:
        for layout in options.layouts:
            rows = [kept(convolution(side, plan, layer, name, layout, rates, options), name, layout)
                    for layer, plan in zip(chosen, side.compile(chosen, name, layout))]
            torch.cuda.empty_cache()
            sides = (["found"] if options.find else []) + ([] if options.no_peers else ["fused", "unfused"])
            sides += ["graph"] if options.plans and name != "f32" and not options.no_peers else []
            title = f"\n## {name} {layout.upper()}, {options.field or 'convolution+bias+ReLU'}"
            text.append(f"{title}\n\n{report.summary(rows)}\n\n{report.table(rows, sides)}")
            if not options.field and name != "tf32":
                norms = [kept(batch_norm(side, name, layout, configuration, options.batch), name, layout)
                         for configuration in layers.NA if options.only in configuration]
                text[-1] += f"\n\nBatch-norm+ReLU:\n\n{report.table(norms, ['unfused', 'copy'])}"
                torch.cuda.empty_cache()
            print(text[-1], flush=True)
            if options.output:
                options.output.write_text("\n".join(text) + "\n")
    wrong = [f"{row['type']} {row['layout']} {row['name']}: error {row['error']:.2e}" for row in every if row["wrong"]]
    if wrong:
        sys.exit("wrong results:\n" + "\n".join(wrong))


if __name__ == "__main__":
    main()
