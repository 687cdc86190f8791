"""One way of timing for every side: on a GPU replays of a CUDA graph, on a CPU calls; sides take turns."""

import statistics
import time

import torch

# Seconds that a burst of calls lasts at least.
BURST = 5e-3
WARM_UP = 3


class Timed:
    """A program that is ready to be timed, and the result of its last call."""

    def __init__(self, program, pool):
        self.program = program
        self.graph = None
        if program.x.is_cuda:
            self._capture(pool)
        else:
            for _ in range(WARM_UP):
                self.result = program.call(program.x)

    def _capture(self, pool):
        """Graphs share memory for what lies between their inputs and results, as they never run at once."""
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self.program.call(self.program.x)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=stream):
            self.result = self.program.call(self.program.x)
        self.graph = graph
        graph.replay()
        torch.cuda.synchronize()

    def burst(self, count):
        """Seconds of one call, of so many behind each other."""
        if self.graph is None:
            start = time.perf_counter()
            for _ in range(count):
                self.program.call(self.program.x)
            return (time.perf_counter() - start) / count
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(count):
            self.graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / count / 1e3


def medians(sides, rounds):
    """Median milliseconds of each side over rounds, in each of which every side has a burst; who begins changes."""
    counts = {name: max(1, round(BURST / side.burst(1))) for name, side in sides.items()}
    times = {name: [] for name in sides}
    order = list(sides)
    for _ in range(rounds):
        for name in order:
            times[name].append(sides[name].burst(counts[name]))
        order.append(order.pop(0))
    return {name: statistics.median(of) * 1e3 for name, of in times.items()}
