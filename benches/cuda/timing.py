"""One way of timing for every side: calls on rotating operands, captured into one CUDA graph."""

import math
import statistics
import sys
import time

import torch

# Bytes of all sets together: several times what the GPU's caches hold.
ROTATE = 256_000_000
LAYOUTS = {"nhwc": {4: torch.channels_last, 5: torch.channels_last_3d},
           "nchw": dict.fromkeys((4, 5), torch.contiguous_format)}


def sets(elements, itemsize):
    """How many sets of operands of so many elements take turns."""
    return min(64, max(2, ROTATE // (elements * itemsize)))


def random(shape, dtype, layout):
    values = torch.randn(shape, device="cuda", dtype=torch.float32).mul_(0.1).to(dtype)
    return values.to(memory_format=LAYOUTS[layout][len(shape)])


def empty(shape, dtype, layout):
    return torch.empty(shape, device="cuda", dtype=dtype, memory_format=LAYOUTS[layout][len(shape)])


def replays(call, sets):
    """Median microseconds of `call` on each of `sets`, captured together; None if it cannot be captured."""
    try:
        # Another stream must not write to memory that what makes the operands still reads.
        torch.cuda.synchronize()
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


def rest(us):
    """Waits 300 times as long as a call takes, a third of a second at most; not at all where none was timed. Clocks stay low for some time after
    long work at the limit of power, by up to a fifth."""
    time.sleep(min(0.3, 300e-6 * (us or 0)))


def mean(values):
    """The geometric mean; none of nothing."""
    return math.exp(statistics.fmean(map(math.log, values))) if values else None
