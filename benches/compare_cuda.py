#!/usr/bin/env python3
"""Compares fuseplan with cuDNN and PyTorch on the NVIDIA GPU of this machine, in one run.

The thirteen convolution+bias+ReLU and eight batch-norm+ReLU configurations of MIOpen's published charts; or, with
--field, the convolutions of known networks (`driver/src/bench/field.tsv`), with ratios by class, by network and by half
of the networks. Every side runs on operands that rotate through 256 MB, captured into one CUDA graph: the median of
seven replays, microseconds for one call. Sides:

  ours     fuseplan, the solver that a plan would get
  fused    PyTorch's cudnn_convolution_relu or cudnn_convolution_add_relu, which are one call of cuDNN
  unfused  convolution, bias and ReLU (or batch-norm and ReLU) as PyTorch's own calls
  graph    the fastest of cuDNN's graph-API plans that the heuristics name first (--plans), where the Python
           package nvidia-cudnn-frontend is installed
  copy     for batch-norm: one pass over as many bytes

Needs PyTorch with CUDA, and cargo or, with --binary, the compiled example `time` of fuseplan-cuda; with --field the
compiled command `fuseplan` instead, which also compares its first and last image with the CPU reference.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import statistics
import subprocess
import sys

import torch
import torch.nn.functional as F

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
FIELD = REPOSITORY / "driver/src/bench/field.tsv"
BATCH = 64
ROTATE = 256_000_000
TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
LAYOUTS = {"nhwc": torch.channels_last, "nchw": torch.contiguous_format}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    comma = lambda text: text.split(",")
    parser.add_argument("--types", type=comma, default=["f16", "f32"], help="of f16, bf16, f32; default: f16,f32")
    parser.add_argument("--layouts", type=comma, default=["nhwc", "nchw"])
    parser.add_argument("--only", default="", help="part of a configuration's name")
    parser.add_argument("--field", metavar="NETWORK", help="the field list: a network, fit, judge or all")
    parser.add_argument("--batch", type=int, default=BATCH, help="of the field list; autoencoders are given 1")
    parser.add_argument("--plans", type=int, default=8, help="graph-API plans to time; 0: none")
    parser.add_argument("--binary", type=pathlib.Path, help="the compiled example; default: cargo run")
    parser.add_argument("--output", type=pathlib.Path, help="Markdown file to write")
    return parser.parse_args()


@dataclasses.dataclass(frozen=True)
class Layer:
    """A convolution with what follows it."""

    channels: int
    image: tuple
    filters: int
    taps: tuple
    strides: tuple
    pads: tuple
    dilations: tuple
    groups: int
    shift: bool
    activation: str
    residual: bool

    @classmethod
    def of_chart(cls, name):
        c, h, w, k, extent, _, pad, _ = map(int, name.split("-"))
        return cls(c, (h, w), k, (extent,) * 2, (1, 1), (pad, pad), (1, 1), 1, True, "relu", False)

    @classmethod
    def of_line(cls, line):
        by = lambda name: tuple(map(int, line[name].split("x")))
        return cls(int(line["channels"]), by("image"), int(line["filters"]), by("taps"), by("strides"), by("pads"),
                   by("dilations"), int(line["groups"]), line["shift"] != "none", line["activation"],
                   line["residual"] == "yes")

    def output(self):
        return tuple((i + 2 * p - d * (t - 1) - 1) // s + 1 for i, p, d, t, s in
                     zip(self.image, self.pads, self.dilations, self.taps, self.strides))

    def kind(self):
        """The class that it is counted in."""
        if self.groups > 1:
            return "depthwise" if self.groups == self.channels else "grouped"
        if len(self.image) == 3:
            return "three dimensions"
        if self.channels < 8:
            return "stem"
        taps = "x".join(map(str, self.taps))
        if taps not in ("1x1", "3x3"):
            return "other filters"
        return taps + (" strided" if max(self.strides) > 1 else "")


def field(options):
    """The lines of the field list that are asked for."""
    names, *lines = (line.split("\t") for line in FIELD.read_text().splitlines())
    lines = [dict(zip(names, line)) for line in lines]
    chosen = [line for line in lines if options.field in ("all", line["half"], line["network"])]
    return chosen or sys.exit(f"--field: known are all, fit, judge, {', '.join(sorted({l['network'] for l in lines}))}")


def ours(options):
    """Rows of fuseplan's own program, by type, layout and name; bandwidth-bound ones begin with `na`."""
    if options.field:
        return [row for dtype in options.types for layout in options.layouts
                for row in ours_of_field(options, dtype, layout)]
    command = [options.binary] if options.binary else [
        "cargo", "run", "--release", "--quiet", "-p", "fuseplan-cuda", "--example", "time", "--"]
    words = ["--json", "--types", ",".join(options.types), "--layouts", ",".join(options.layouts)]
    words += ["--only", options.only] if options.only else []
    rows = run([*command, *words])
    return [{**row, "batch": BATCH, "layer": None if row["name"].startswith("na") else Layer.of_chart(row["name"])}
            for row in rows]


def ours_of_field(options, dtype, layout):
    """The field list by the command, whose rows are in the order of the list."""
    command = [options.binary] if options.binary else [
        "cargo", "run", "--release", "--quiet", "-p", "fuseplan-driver", "--"]
    words = ["--json", "bench", "field", "--backend", "cuda", "--dtype", dtype, "--layout", layout.upper(),
             "--batch", str(options.batch), "--seconds", "0.2"]
    words += [] if options.field == "all" else ["--network", options.field]
    found = [row for row in run([*command, *words]) if row["kind"] == "bench"]
    lines = field(options)
    if len(found) != len(lines):
        sys.exit("fuseplan's list is another than this tree's")
    rows = [{"type": dtype, "layout": layout, "name": row["configuration"], "us": row["fused_ms"] * 1e3,
             "solver": row["solver"], "batch": row["batch"], "layer": Layer.of_line(line), "line": line}
            for row, line in zip(found, lines)]
    return [row for row in rows if options.only in row["name"]]


def run(command):
    result = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    if result.returncode != 0:
        sys.exit("fuseplan's program failed")
    return [json.loads(line) for line in result.stdout.splitlines()]


def replays(call, sets):
    """Median microseconds of `call` on each of `sets`, captured together; None if it cannot be captured."""
    try:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for operands in sets[:2]:
                call(operands)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            # Results stay alive until the end, so that every call writes to memory of its own.
            kept = [call(operands) for operands in sets]
        times = []
        for _ in range(8):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e3 / len(sets))
        del kept, graph
        return statistics.median(times[1:])
    except RuntimeError as error:
        print(f"  refused: {str(error).splitlines()[0]}", file=sys.stderr)
        return None


def format_of(layout, rank):
    return torch.channels_last_3d if layout == "nhwc" and rank == 5 else LAYOUTS[layout]


def random(shape, dtype, layout):
    values = torch.randn(shape, device="cuda", dtype=torch.float32).mul_(0.1).to(dtype)
    return values.to(memory_format=format_of(layout, len(shape)))


# What fuseplan has of the networks' activations; a layer with another is compared without it, on every side.
ACTIVATIONS = {"relu": F.relu_, "relu6": lambda y: F.hardtanh_(y, 0.0, 6.0), "sigmoid": torch.sigmoid_,
               "tanh": torch.tanh_}


def convolution(row, options):
    layer, batch, dtype = row["layer"], row["batch"], TYPES[row["type"]]
    image, out = [batch, layer.channels, *layer.image], [batch, layer.filters, *layer.output()]
    weights = [layer.filters, layer.channels // layer.groups, *layer.taps]
    tensors = math.prod(image) + math.prod(weights) + math.prod(out) * (2 if layer.residual else 1)
    sets = [(random(image, dtype, row["layout"]), random(weights, dtype, row["layout"]),
             torch.randn(layer.filters, device="cuda").to(dtype) if layer.shift else None,
             random(out, dtype, row["layout"]) if layer.residual else None)
            for _ in range(min(64, max(2, ROTATE // (tensors * dtype.itemsize))))]
    geometry = [list(layer.strides), list(layer.pads), list(layer.dilations), layer.groups]
    convolve = F.conv3d if len(layer.image) == 3 else F.conv2d
    activation = ACTIVATIONS.get(layer.activation, lambda y: y)

    def unfused(s):
        y = convolve(s[0], s[1], s[2], *geometry)
        return activation(y if s[3] is None else y.add_(s[3]))

    found = {"unfused": replays(unfused, sets)}
    if layer.activation == "relu" and layer.residual:
        call = lambda s: torch.cudnn_convolution_add_relu(s[0], s[1], s[3], 1.0, s[2], *geometry)
        found["fused"] = replays(call, sets)
    elif layer.activation == "relu":
        found["fused"] = replays(lambda s: torch.cudnn_convolution_relu(s[0], s[1], s[2], *geometry), sets)
    if options.plans:
        found["graph"] = graph_plans(sets, out, row, options.plans)
    return found


def graph_plans(sets, out, row, most):
    """The fastest of the plans that cuDNN's heuristics name first."""
    try:
        import cudnn
    except ImportError:
        return None
    types = {"f16": cudnn.data_type.HALF, "bf16": cudnn.data_type.BFLOAT16, "f32": cudnn.data_type.FLOAT}
    io, dtype, layer = types[row["type"]], TYPES[row["type"]], row["layer"]
    try:
        handle = cudnn.create_handle()
        graph = cudnn.pygraph(io_data_type=io, intermediate_data_type=cudnn.data_type.FLOAT,
                              compute_data_type=cudnn.data_type.FLOAT, handle=handle)
        x, weights = (graph.tensor_like(operand) for operand in sets[0][:2])
        y = graph.conv_fprop(image=x, weight=weights, padding=list(layer.pads), stride=list(layer.strides),
                             dilation=list(layer.dilations))
        bias = residual = None
        if layer.shift:
            ones = [1] * len(layer.image)
            bias = graph.tensor(dim=[1, out[1], *ones], stride=[out[1], 1, *(out[1] for _ in ones)], data_type=io)
            y = graph.bias(input=y, bias=bias)
        if layer.residual:
            residual = graph.tensor_like(sets[0][3])
            y = graph.add(a=y, b=residual)
        if layer.activation == "relu":
            y = graph.relu(y)
        elif layer.activation == "relu6":
            y = graph.relu(y, upper_clip=6.0)
        elif layer.activation == "sigmoid":
            y = graph.sigmoid(y)
        elif layer.activation == "tanh":
            y = graph.tanh(y)
        # Left to itself, the graph writes NHWC whatever the input is.
        like = torch.empty(out, device="cuda", dtype=dtype).to(memory_format=format_of(row["layout"], len(out)))
        y.set_output(True).set_data_type(io).set_dim(out).set_stride(list(like.stride()))
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.B, cudnn.heur_mode.FALLBACK])
    except Exception as error:  # noqa: BLE001 cuDNN's exceptions have no common base
        print(f"  graph API refuses: {str(error).splitlines()[0]}", file=sys.stderr)
        return None
    best, results = None, [torch.empty_like(like) for _ in sets]
    for plan in range(min(most, graph.get_execution_plan_count())):
        try:
            graph.build_plan_at_index(plan)
            workspace = torch.empty(max(1, graph.get_workspace_size_plan_at_index(plan)), device="cuda", dtype=torch.uint8)

            def call(s):
                cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
                index = next(i for i, t in enumerate(sets) if t is s)
                named = {x: s[0], weights: s[1], bias: s[2], residual: s[3], y: results[index]}
                tensors = {name: tensor for name, tensor in named.items() if name is not None}
                graph.execute_plan_at_index(tensors, workspace, plan, handle=handle)

            time = replays(call, sets)
        except Exception as error:  # noqa: BLE001
            print(f"  plan {plan}: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        if time and (best is None or time < best):
            best = time
    return best


def batch_norm(row):
    c, h, w = map(int, row["name"].split()[1].split("-"))
    dtype, layout = TYPES[row["type"]], LAYOUTS[row["layout"]]
    once = 2 * BATCH * c * h * w * dtype.itemsize
    sets = [(random([BATCH, c, h, w], dtype, layout), torch.empty([BATCH, c, h, w], device="cuda", dtype=dtype)
             .to(memory_format=layout)) for _ in range(min(64, max(2, ROTATE // once)))]
    mean, scale, bias = (torch.randn(c, device="cuda") for _ in range(3))
    variance = torch.rand(c, device="cuda") + 0.5
    return {
        "unfused": replays(lambda s: F.batch_norm(s[0], mean, variance, scale, bias).relu_(), sets),
        "copy": replays(lambda s: s[1].copy_(s[0]), sets),
    }


def number(value):
    return "-" if value is None else f"{value:.1f}"


def mean(values):
    return math.exp(statistics.fmean(map(math.log, values))) if values else None


def table(rows, sides, peers):
    """Markdown: times of all sides, and the ratio of the fastest peer to ours."""
    lines = [f"| configuration | ours | {' | '.join(sides)} | {'/'.join(peers)} over ours | solver |",
             "|---" * (len(sides) + 4) + "|"]
    ratios = []
    for row, found in rows:
        best = min((found[side] for side in peers if found.get(side)), default=None)
        if best:
            ratios.append(best / row["us"])
        cells = [row["name"], number(row["us"]), *(number(found.get(side)) for side in sides),
                 f"**{ratios[-1]:.2f}**" if best else "-", f"`{row['solver']}`"]
        lines.append(f"| {' | '.join(cells)} |")
    lines.append(f"| geometric mean {'| ' * (len(sides) + 2)}| **{mean(ratios) or math.nan:.2f}** | |")
    return "\n".join(lines)


def summary(rows, peers):
    """Markdown: the ratio of the fastest peer to ours, geometric mean and worst, by class, by network and by half; and a
    network's time, with its counts."""
    groups = {}
    for row, found in rows:
        best = min((found[side] for side in peers if found.get(side)), default=None)
        if best:
            line = row["line"]
            names = f"class: {row['layer'].kind()}", f"network: {line['network']}", f"half: {line['half']}", "all"
            for name in names:
                groups.setdefault(name, []).append((best, row["us"], int(line["count"])))
    lines = ["| layers of | kinds | geometric mean | worst | all layers, peer over ours |", "|---|---|---|---|---|"]
    for name, members in sorted(groups.items()):
        ratios = [best / us for best, us, _ in members]
        total = sum(best * count for best, _, count in members) / sum(us * count for _, us, count in members)
        lines.append(f"| {name} | {len(members)} | {mean(ratios):.2f} | {min(ratios):.2f} | {total:.2f} |")
    return "\n".join(lines)


def main():
    options = arguments()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    rows = ours(options)
    batch = options.batch if options.field else BATCH
    text = [f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, "
            f"batch {batch}, microseconds. Command: `benches/compare_cuda.py {' '.join(sys.argv[1:])}`"]
    for dtype in options.types:
        for layout in options.layouts:
            here = [row for row in rows if (row["type"], row["layout"]) == (dtype, layout)]
            convolutions = [(row, convolution(row, options)) for row in here if row["layer"]]
            torch.cuda.empty_cache()
            norms = [(row, batch_norm(row)) for row in here if not row["layer"]]
            torch.cuda.empty_cache()
            # The graph API computes f32 in TF32 unasked, so it is no peer of ours there.
            peers = ["fused", "unfused"] + (["graph"] if dtype != "f32" and options.plans else [])
            sides = ["fused", "unfused"] + (["graph"] if options.plans else [])
            title = f"\n## {dtype} {layout.upper()}"
            if options.field:
                text.append(f"{title}, {options.field}\n\n{summary(convolutions, peers)}")
                text.append(table(convolutions, sides, peers))
            else:
                text.append(f"{title}, convolution+bias+ReLU\n\n{table(convolutions, sides, peers)}")
                text.append(f"{title}, batch-norm+ReLU\n\n{table(norms, ['unfused', 'copy'], ['copy'])}")
            print("\n".join(text[-2:]), flush=True)
    if options.output:
        options.output.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
