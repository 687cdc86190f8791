#!/usr/bin/env python3
"""Times every solver that takes a convolution on the CPU, and gives the regret of the choice: its time over the fastest's.

    benches/cpu_choice.py --field fit --layouts nhwc --output times.json
    benches/cpu_choice.py --field judge --only resnet18 --rounds 15

Each call finds what it would find in a network: filters in memory, the input in the caches that it fits. Solvers run in turns, and
medians over the rounds count. Needs NumPy, for bfloat16 ml_dtypes, and the package, by installation or on PYTHONPATH.
"""

import argparse
import json
import math
import pathlib
import random
import statistics
import time

import fuseplan
import numpy as np

from cuda import layers

SOLVERS = ("cpu.amx.v1", "cpu.avx512_bf16.v1", "cpu.pointwise_bf16.v1", "cpu.winograd.v1", "cpu.pointwise.v1", "cpu.direct.v1")
# Bytes that are written between two calls, so that the caches have nothing of the filters.
BETWEEN = 96 << 20


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--field", default="judge", help="a network of the field list, a half of them (fit, judge), or all")
    parser.add_argument("--only", default="", help="layers whose name has this text")
    parser.add_argument("--sample", type=int, default=0, help="so many layers, of every class some")
    parser.add_argument("--layouts", default="nhwc", help="of nhwc, nchw")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--output", type=pathlib.Path, help="writes the times as JSON")
    return parser.parse_args()


def tensor(draw, shape, layout, dtype):
    """Random numbers in a layout."""
    if layout == "nchw":
        return draw.standard_normal(shape, dtype=np.float32).astype(dtype)
    last = (shape[0], *shape[2:], shape[1])
    return np.moveaxis(draw.standard_normal(last, dtype=np.float32).astype(dtype), -1, 1)


class Calls:
    """A layer by each solver that takes it, on the same tensors."""

    def __init__(self, layer, layout, dtype, device):
        draw = np.random.default_rng(1)
        self.x = tensor(draw, (layer.batch, layer.channels, *layer.image), layout, dtype)
        weight = tensor(draw, (layer.filters, layer.channels // layer.groups, *layer.taps), "nchw", dtype)
        plan = fuseplan.Plan(self.x, device=device).conv(
            weight, stride=list(layer.strides), padding=list(layer.pads), dilation=list(layer.dilations), groups=layer.groups)
        if layer.shift:
            plan.bias(draw.standard_normal(layer.filters, dtype=np.float32))
        self.operands = {}
        if layer.residual:
            self.operands["residual"] = tensor(draw, plan.output.shape, layout, dtype)
            plan.residual(self.operands["residual"])
        if layer.activation != "none":
            plan.activation(layer.activation)
        self.chosen = plan.compile(device).solver
        self.by_solver = {}
        for solver in SOLVERS:
            try:
                self.by_solver[solver] = plan.compile(device, solver=solver)
            except fuseplan.errors.UnsupportedError:
                continue
        self.out = tensor(draw, plan.output.shape, layout, dtype)

    def time(self, solver, between):
        """Seconds of a call whose filters are in memory and whose tensors were written just before."""
        between += 1
        for of in (*self.operands.values(), self.out, self.x):
            of *= np.array(0.5, of.dtype)
        start = time.perf_counter()
        self.by_solver[solver](self.x, out=self.out, **self.operands)
        return time.perf_counter() - start


def measure(layer, options, layout, device, between):
    calls = Calls(layer, layout, options.dtype, device)
    if calls.chosen not in calls.by_solver or len(calls.by_solver) < 2:
        return None
    times = {solver: [] for solver in calls.by_solver}
    for solver in times:
        calls.time(solver, between)
    order = list(times)
    for _ in range(options.rounds):
        for solver in order:
            times[solver].append(calls.time(solver, between))
        random.shuffle(order)
    times = {solver: statistics.median(of) for solver, of in times.items()}
    return {"layer": layer.name, "half": layer.half, "layout": layout, "chosen": calls.chosen, "seconds": times,
            "shape": [layer.batch, layer.channels, *layer.image, layer.filters, *layer.taps, *layer.strides, *layer.pads,
                      *layer.dilations], "regret": times[calls.chosen] / min(times.values())}


def geomean(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def main():
    options = arguments()
    if options.dtype == "bfloat16":
        import ml_dtypes  # noqa: F401, which gives NumPy the type
    device = fuseplan.Handle("cpu", threads=options.threads)
    between = np.zeros(BETWEEN // 8)
    of = [layer for layer in layers.field(options.field, options.batch)
          if layer.groups == 1 and len(layer.image) == 2 and options.only in layer.name]
    of = list({layer.shape(): layer for layer in layers.sample(of, options.sample, 1)}.values())
    rows = []
    for layout in options.layouts.split(","):
        for layer in of:
            row = measure(layer, options, layout, device, between)
            if row is None:
                continue
            rows.append(row)
            each = ", ".join(f"{solver.split('.')[1]} {seconds * 1e6:.0f} us" for solver, seconds in row["seconds"].items())
            print(f"{row['regret']:.2f} {layout} {layer.name}: {row['chosen']} of {each}", flush=True)
            if options.output:
                options.output.write_text(json.dumps(rows, indent=1))
    for half in sorted({row["half"] for row in rows}):
        regrets = [row["regret"] for row in rows if row["half"] == half]
        print(f"{half}: {len(regrets)} layers, regret {geomean(regrets):.3f} in the geometric mean, {max(regrets):.2f} at most, "
              f"{sum(regret > 1.15 for regret in regrets)} above 1.15")


if __name__ == "__main__":
    main()
