#!/usr/bin/env python3
"""Compares fuseplan with oneDNN and ONNX Runtime on the CPU of this machine; see README.md beside this file.

Every side is a server process that keeps one configuration set up. Sides run in random order, a short burst
each, round after round, so that whatever else disturbs the machine disturbs all of them alike.
"""

import argparse
import itertools
import os
import pathlib
import random
import sys
import tempfile
import time

from cpu import sides as cpu_sides

LIBRARIES = cpu_sides.REPOSITORY / "target" / "compare_cpu"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    comma = lambda text: text.split(",")
    numbers = lambda text: [int(word) for word in text.split(",")]
    parser.add_argument("--configs", type=comma, help="parts of names; default: all")
    parser.add_argument("--sides", type=comma, help="parts of names, such as ours,onednn_nhwc; default: all")
    parser.add_argument("--dtypes", type=comma, default=["f32"], help="of f32, bf16, f16; default: f32")
    parser.add_argument("--n", type=numbers, default=[1], help="batch sizes; default: 1")
    parser.add_argument("--threads", type=numbers, default=[1, 2], help="default: 1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--burst", type=float, default=0.03, help="seconds that a side runs in a round")
    parser.add_argument("--raw-weights", action="store_true", help="weights are packed anew in every call")
    parser.add_argument("--build", type=pathlib.Path, default=LIBRARIES, help=f"build folder; default: {LIBRARIES}")
    parser.add_argument("--output", type=pathlib.Path, help="where results go: OUTPUT.md and OUTPUT.csv")
    parser.add_argument("--normal-priority", action="store_true", help="no real-time priority even if allowed")
    return parser.parse_args()


def chosen(values, parts):
    return [value for value in values if not parts or any(part in value.name for part in parts)]


def measure(options, data, dtype, threads, servers):
    """A result for every side in `servers`: a dictionary of what was found, or why there is nothing."""
    from cpu.configurations import TOLERANCE

    configuration, n = data.configuration, data.n
    weights = "raw" if options.raw_weights else "packed"
    results, ready = {}, []
    for side, server in servers.items():
        result = {"config": configuration.name, "n": n, "dtype": dtype, "threads": threads, "side": side.name,
                  "flops": configuration.flops(n), "times": []}
        results[side] = result
        word, rest = server.ask(f"setup {configuration.setup(n)} {side.setup(dtype, weights, data.folder)}")
        result["chosen" if word == "ready" else "refused"] = rest
        if word != "ready":
            continue
        ready.append(side)
        server.ask("run 0")
        if side.server != "peak":
            output = data.folder / "y"
            word, rest = server.ask(f"output {output}")
            result["error"] = data.error(output) if word == "done" else float("inf")
            if result["error"] > TOLERANCE[dtype]:
                result["refused"] = f"wrong: error {result['error']:.1e} {rest}"
                ready.remove(side)
    for _ in range(options.rounds):
        random.shuffle(ready)
        for side in list(ready):
            start = time.monotonic()
            word, rest = servers[side].ask(f"run {options.burst}")
            if word == "time":
                results[side]["times"].append(float(rest.split()[0]))
            else:
                results[side]["refused"] = rest
                ready.remove(side)
            time.sleep(min(time.monotonic() - start, 0.15))
    return list(results.values())


def main():
    options = arguments()
    cpu_sides.prepare_environments(options.build)
    inside = cpu_sides.python(options.build)
    if sys.prefix != str(inside.parent.parent):
        os.execv(inside, [inside, *sys.argv])
    from cpu import report
    from cpu.configurations import CONFIGURATIONS, Data

    ours = cpu_sides.build_servers(options.build)
    real_time = not options.normal_priority and cpu_sides.real_time_allowed()
    cores = sorted(os.sched_getaffinity(0))
    servers = {threads: {side: cpu_sides.Server(side, threads, options.build, ours, cores, real_time)
                         for side in chosen(cpu_sides.SIDES, options.sides)} for threads in options.threads}
    results = []
    with tempfile.TemporaryDirectory(dir=options.build) as folder:
        for dtype, n, configuration in itertools.product(options.dtypes, options.n,
                                                         chosen(CONFIGURATIONS, options.configs)):
            data = Data(configuration, n, dtype, pathlib.Path(folder))
            for threads in options.threads:
                row = measure(options, data, dtype, threads, servers[threads])
                results += row
                print(report.line(row), file=sys.stderr, flush=True)
    for server in itertools.chain.from_iterable(sides.values() for sides in servers.values()):
        server.stop()
    head = report.machine(options, real_time, sys.argv)
    text = report.markdown(results, head)
    print(text)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.with_suffix(".md").write_text(text)
        report.write_csv(results, options.output.with_suffix(".csv"))


if __name__ == "__main__":
    main()
