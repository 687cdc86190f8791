#!/usr/bin/env python3
"""Compares fuseplan with cuDNN and PyTorch on the NVIDIA GPU of this machine, in one run.

The thirteen convolution+bias+ReLU and eight batch-norm+ReLU configurations of MIOpen's published charts. Every
side runs on operands that rotate through 256 MB, captured into one CUDA graph: the median of seven replays,
microseconds for one call. Sides:

  ours     fuseplan, the solver that a plan would get
  fused    PyTorch's cudnn_convolution_relu, which is one call of cuDNN
  unfused  convolution, bias and ReLU (or batch-norm and ReLU) as PyTorch's own calls
  graph    the fastest of cuDNN's graph-API plans that the heuristics name first (--plans), where the Python
           package nvidia-cudnn-frontend is installed
  copy     for batch-norm: one pass over as many bytes

Needs PyTorch with CUDA, and cargo or, with --binary, the compiled example `time` of fuseplan-cuda.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys

import torch
import torch.nn.functional as F

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
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
    parser.add_argument("--plans", type=int, default=8, help="graph-API plans to time; 0: none")
    parser.add_argument("--binary", type=pathlib.Path, help="the compiled example; default: cargo run")
    parser.add_argument("--output", type=pathlib.Path, help="Markdown file to write")
    return parser.parse_args()


def ours(options):
    """Rows of fuseplan's own program, by type, layout and name; bandwidth-bound ones begin with `na`."""
    command = [options.binary] if options.binary else [
        "cargo", "run", "--release", "--quiet", "-p", "fuseplan-cuda", "--example", "time", "--"]
    words = ["--json", "--types", ",".join(options.types), "--layouts", ",".join(options.layouts)]
    words += ["--only", options.only] if options.only else []
    result = subprocess.run([*command, *words], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
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


def random(shape, dtype, layout):
    return torch.randn(shape, device="cuda", dtype=torch.float32).mul_(0.1).to(dtype).to(memory_format=layout)


def convolution(row, options):
    c, h, w, k, extent, _, pad, _ = map(int, row["name"].split("-"))
    dtype, layout = TYPES[row["type"]], LAYOUTS[row["layout"]]
    out = [BATCH, k, h + 2 * pad - extent + 1, w + 2 * pad - extent + 1]
    once = (BATCH * c * h * w + k * c * extent * extent + k + math.prod(out)) * dtype.itemsize
    sets = [(random([BATCH, c, h, w], dtype, layout), random([k, c, extent, extent], dtype, layout),
             torch.randn(k, device="cuda").to(dtype)) for _ in range(min(64, max(2, ROTATE // once)))]
    found = {
        "fused": replays(lambda s: torch.cudnn_convolution_relu(s[0], s[1], s[2], [1, 1], [pad, pad], [1, 1], 1), sets),
        "unfused": replays(lambda s: F.conv2d(s[0], s[1], s[2], padding=pad).relu_(), sets),
    }
    if options.plans:
        found["graph"] = graph_plans(sets, out, pad, row, options.plans)
    return found


def graph_plans(sets, out, pad, row, most):
    """The fastest of the plans that cuDNN's heuristics name first."""
    try:
        import cudnn
    except ImportError:
        return None
    types = {"f16": cudnn.data_type.HALF, "bf16": cudnn.data_type.BFLOAT16, "f32": cudnn.data_type.FLOAT}
    io, dtype, layout = types[row["type"]], TYPES[row["type"]], LAYOUTS[row["layout"]]
    try:
        handle = cudnn.create_handle()
        graph = cudnn.pygraph(io_data_type=io, intermediate_data_type=cudnn.data_type.FLOAT,
                              compute_data_type=cudnn.data_type.FLOAT, handle=handle)
        x, weights = (graph.tensor_like(operand) for operand in sets[0][:2])
        bias = graph.tensor(dim=[1, out[1], 1, 1], stride=[out[1], 1, out[1], out[1]], data_type=io)
        sum_ = graph.conv_fprop(image=x, weight=weights, padding=[pad, pad], stride=[1, 1], dilation=[1, 1])
        y = graph.relu(graph.bias(input=sum_, bias=bias))
        # Left to itself, the graph writes NHWC whatever the input is.
        like = torch.empty(out, device="cuda", dtype=dtype).to(memory_format=layout)
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
                graph.execute_plan_at_index({x: s[0], weights: s[1], bias: s[2], y: results[index]}, workspace, plan,
                                            handle=handle)

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


def main():
    options = arguments()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    rows = ours(options)
    text = [f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, "
            f"batch {BATCH}, microseconds. Command: `benches/compare_cuda.py {' '.join(sys.argv[1:])}`"]
    for dtype in options.types:
        for layout in options.layouts:
            here = [row for row in rows if (row["type"], row["layout"]) == (dtype, layout)]
            convolutions = [(row, convolution(row, options)) for row in here if not row["name"].startswith("na")]
            torch.cuda.empty_cache()
            norms = [(row, batch_norm(row)) for row in here if row["name"].startswith("na")]
            torch.cuda.empty_cache()
            # The graph API computes f32 in TF32 unasked, so it is no peer of ours there.
            peers = ["fused", "unfused"] + (["graph"] if dtype != "f32" and options.plans else [])
            sides = ["fused", "unfused"] + (["graph"] if options.plans else [])
            text.append(f"\n## {dtype} {layout.upper()}, convolution+bias+ReLU\n\n{table(convolutions, sides, peers)}")
            text.append(f"\n## {dtype} {layout.upper()}, batch-norm+ReLU\n\n{table(norms, ['unfused', 'copy'], ['copy'])}")
            print("\n".join(text[-2:]), flush=True)
    if options.output:
        options.output.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
