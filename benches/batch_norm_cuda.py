#!/usr/bin/env python3
"""Compares batch-norm for training, with ReLU, with PyTorch's on the NVIDIA GPU of this machine, in one run.

Forward with the batch's statistics, which are saved, and running ones, and its gradient: fuseplan by its C library, one
plan each. PyTorch takes two calls each, of which the batch-norm is cuDNN's or its own: the lesser time counts. Both sides
have the same operands, which rotate through 256 MB, captured into one CUDA graph: the median of seven replays, microseconds
for one call. Results, gradients and running and saved statistics are compared with PyTorch's; a wrong one ends the run with status 1.

Needs PyTorch with CUDA, and `libMIOpen.so.1`, given with --library.
"""

import argparse
import math
import pathlib
import sys

import torch
import torch.nn.functional as F

from cuda import ours, report, timing

SHAPES = """64-64-56-56 64-128-28-28 64-256-56-56 64-512-28-28 64-256-14-14 64-1024-14-14 64-2048-7-7 8-64-56-56
8-1024-14-14""".split()
TYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
# RMS of the difference over that of the result.
TOLERANCES = {"f16": 2e-3, "bf16": 1.5e-2, "f32": 2e-5}
EPSILON, FACTOR = 1e-5, 0.1


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    comma = lambda text: text.split(",")
    parser.add_argument("--types", type=comma, default=["f16", "f32"], help="of f16, bf16, f32; default: f16,f32")
    parser.add_argument("--layouts", type=comma, default=["nhwc", "nchw"])
    parser.add_argument("--shapes", type=comma, default=SHAPES, metavar="N-C-H-W,…")
    parser.add_argument("--library", type=pathlib.Path, required=True, help="the compiled library")
    return parser.parse_args()


def error(found, expected):
    """The root mean square of the difference, over that of what is expected."""
    return ((found.float() - expected.float()).square().mean() / expected.float().square().mean()).sqrt().item()


def forward(library, handle, x, y):
    plan = ours.Plan(library, handle, x, y)
    operator = plan.operator("miopenCreateOpBatchNormForward", ours.SPATIAL, True)
    plan.setters.append((operator, "miopenSetOpArgsBatchNormForward", 6, [FACTOR, EPSILON]))
    plan.activation("relu")
    plan.compile()
    return plan


def backward(library, handle, dy, dx):
    plan = ours.Plan(library, handle, dy, dx)
    operator = plan.operator("miopenCreateOpBatchNormBackward", ours.SPATIAL)
    plan.setters.append((operator, "miopenSetOpArgsBatchNormBackward", 7, []))
    operator = plan.operator("miopenCreateOpActivationBackward", ours.ACTIVATIONS["relu"][0])
    plan.setters.append((operator, "miopenSetOpArgsActivBackward", 2, [0.0, 0.0, 0.0]))
    plan.compile()
    return plan


def measure(library, handle, name, layout, shape):
    """Microseconds of ours and PyTorch's, forward and backward, and the errors of both results."""
    dtype, channels = TYPES[name], shape[1]
    count = timing.sets(4 * math.prod(shape), dtype.itemsize)
    sets = [tuple(timing.random(shape, dtype, layout) for _ in range(2)) for _ in range(count)]
    scale, bias, mean, running = (torch.rand(channels, device="cuda") + 0.5 for _ in range(4))
    saved, inverse, dscale, dbias = (torch.empty(channels, device="cuda") for _ in range(4))
    results = {id(s): tuple(timing.empty(shape, dtype, layout).fill_(math.nan) for _ in range(2)) for s in sets}

    ahead, back = forward(library, handle, *sets[0]), backward(library, handle, *sets[0])
    given = ahead.arguments([scale, bias, saved, inverse, mean, running])
    gradients = {id(s): back.arguments([s[0], scale, bias, dscale, dbias, saved, inverse, results[id(s)][0], None]) for s in sets}
    # What is saved of the first set is what its gradient reads.
    statistics = [mean.clone(), running.clone()]
    ahead.execute(sets[0][0], results[id(sets[0])][0], given)
    statistics += torch.ops.aten.native_batch_norm(sets[0][0], scale, bias, *statistics, True, FACTOR, EPSILON)[1:]
    errors = [error(*pair) for pair in zip((mean, running, saved, inverse), statistics)]
    back.execute(sets[0][1], results[id(sets[0])][1], gradients[id(sets[0])])
    aten = torch.ops.aten
    rest = (scale, bias, mean.clone(), running.clone())
    cudnn = [aten.cudnn_batch_norm(s[0], *rest, True, FACTOR, EPSILON) for s in sets]
    of_cudnn = {id(s): made[1:] for s, made in zip(sets, cudnn)}
    own = {id(s): aten.native_batch_norm(s[0], *rest, True, FACTOR, EPSILON)[1:] for s in sets[:1]}
    own = {id(s): own[id(sets[0])] for s in sets}

    def gradient_of_cudnn(s):
        masked = aten.threshold_backward(s[1], results[id(s)][0], 0)
        *saved_by_cudnn, reserved = of_cudnn[id(s)]
        return aten.cudnn_batch_norm_backward(s[0], masked, scale, mean, running, *saved_by_cudnn, EPSILON, reserved)

    def gradient(s):
        masked = aten.threshold_backward(s[1], results[id(s)][0], 0)
        return aten.native_batch_norm_backward(masked, s[0], scale, mean, running, *own[id(s)], True, EPSILON, [True] * 3)

    expected = gradient(sets[0])
    errors += [error(results[id(sets[0])][0], F.relu(cudnn[0][0])), error(results[id(sets[0])][1], expected[0]),
               error(dscale, expected[1]), error(dbias, expected[2])]
    del cudnn
    us = timing.replays(lambda s: ahead.execute(s[0], results[id(s)][0], given), sets)
    # The gradients are those of the first set's statistics.
    ahead.execute(sets[0][0], results[id(sets[0])][0], given)
    back_us = timing.replays(lambda s: back.execute(s[1], results[id(s)][1], gradients[id(s)]), sets)
    ahead_by = [timing.replays(lambda s: aten.cudnn_batch_norm(s[0], *rest, True, FACTOR, EPSILON)[0].relu_(), sets),
                timing.replays(lambda s: aten.native_batch_norm(s[0], *rest, True, FACTOR, EPSILON)[0].relu_(), sets)]
    back_by = [timing.replays(gradient_of_cudnn, sets), timing.replays(gradient, sets)]
    least = lambda times: min((time for time in times if time), default=None)
    return us, least(ahead_by), back_us, least(back_by), max(errors)


def main():
    options = arguments()
    library = ours.Library(options.library)
    handle, wrong = library.create("miopenCreate"), []
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, microseconds")
    for name in options.types:
        for layout in options.layouts:
            print(f"\n| {name} {layout.upper()} | forward | PyTorch | PyTorch / ours | gradient | PyTorch | PyTorch / ours |")
            print(f"|---{'|--:' * 6}|")
            ratios = [[], []]
            for text in options.shapes:
                ahead, ahead_by, back, back_by, largest = measure(library, handle, name, layout, [*map(int, text.split("-"))])
                torch.cuda.empty_cache()
                if not largest < TOLERANCES[name]:
                    wrong.append(f"{name} {layout} {text}: error {largest:.2e}")
                if ahead_by is None or back_by is None:
                    print(f"| {text} | PyTorch's calls were not captured |")
                    continue
                ratios[0].append(ahead_by / ahead)
                ratios[1].append(back_by / back)
                cells = [ahead, ahead_by, ratios[0][-1], back, back_by, ratios[1][-1]]
                cells = [f"{cell:.2f}" if at % 3 == 2 else report.number(cell) for at, cell in enumerate(cells)]
                print(f"| {text} | {' | '.join(cells)} |", flush=True)
            if ratios[0]:
                print(f"| geometric mean | | | **{timing.mean(ratios[0]):.2f}** | | | **{timing.mean(ratios[1]):.2f}** |")
    if wrong:
        sys.exit("wrong results:\n" + "\n".join(wrong))


if __name__ == "__main__":
    main()
