#!/usr/bin/env python3
"""A chain of plans whose tensors lie in blocks of channels from the first convolution's output to the last one's input.

    pip install ./python numpy
    python3 examples/python/blocks.py
"""

import fuseplan
import numpy as np

rng = np.random.default_rng(1)
handle = fuseplan.Handle("cpu")

# The filters of five 3x3 convolutions; the third and fourth add the tensor that the second gave. Small whole numbers, so that
# sums are exact in f32 and results in any layout are the same bits.
CHANNELS = [3, 32, 32, 32, 32, 10]
weights = [rng.integers(-1, 2, (k, c, 3, 3)).astype(np.float32) for c, k in zip(CHANNELS, CHANNELS[1:])]
biases = [rng.integers(-2, 3, k).astype(np.float32) for k in CHANNELS[1:]]
SUMS = {2, 3}
image = rng.integers(-1, 2, (1, 3, 28, 28)).astype(np.float32)


def plan_of(at, input, output_layout=None):
    """The plan of a layer for an input, with an output in a layout of its own."""
    plan = fuseplan.Plan(input).conv(weights[at], padding=1, output_layout=output_layout).bias(biases[at])
    if at in SUMS:
        plan.residual()
    # Values stay small.
    return plan.activation("clamp", min=0, max=3)


def run(inside):
    """The network with all tensors between the first and the last convolution in a layout."""
    value, tensor, skipped, between = image, image, None, []
    for at in range(len(weights)):
        layout = inside if at == 0 else "NCHW" if at == len(weights) - 1 else None
        plan = plan_of(at, tensor, layout)
        # Each output lies as its input does, but where the network enters blocks and where it leaves them.
        tensor = plan.output
        layer = plan.compile(handle, math="strict")
        value = layer(value, residual=skipped) if at in SUMS else layer(value)
        skipped = value if at == 1 else skipped
        between.append(tensor.layout)
    print(f"{inside:8}", " -> ".join(between), "as arrays", plan.input.array_shape)
    return value


# 1. The layouts that a layer within the network could have, the fastest first; a network takes the one whose times, summed over its
# layers, are least.
inside = fuseplan.TensorDescriptor((1, 32, 28, 28))
totals = {}
for at in range(1, len(weights) - 1):
    for time in plan_of(at, inside).fastest_layouts(handle):
        totals[time.layout] = totals.get(time.layout, 0) + time.seconds
for layout, seconds in sorted(totals.items(), key=lambda item: item[1]):
    print(f"{layout:8} {seconds * 1e6:8.1f} us in the layers within")

# 2. The same numbers whatever the layout is.
expected = run("NCHW")
for layout in ("NHWC", "NCHWc4", "NCHWc8", "NCHWc16"):
    assert np.array_equal(run(layout), expected)
assert 0 < np.count_nonzero(expected) < expected.size
print(f"{expected.size} outputs in 5 layouts are equal")
