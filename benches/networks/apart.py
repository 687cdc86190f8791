"""Sides in processes of their own, which take turns, so that no side's threads and memory are in another's way."""

import collections
import contextlib
import json
import subprocess
import sys
import time

# Seconds of calls in a turn: enough for caches and clocks to be as they are where a network runs all the time.
TURN = 1.0

# What begins an answer, as libraries print to the same pipe.
_ANSWER = "fuseplan-side: "


class _Ended(Exception):
    """A side's process has ended."""


def serve(row, timed):
    """A side's process: says what it has prepared, and for every line of its input takes a turn and says a call's least milliseconds."""
    _say(row)
    for _ in sys.stdin if timed else ():
        least, end = float("inf"), time.perf_counter() + TURN
        while time.perf_counter() < end:
            least = min(least, timed.burst(1))
        _say(least * 1e3)


def measure(row, commands, rounds):
    """Adds to a configuration's row what the process of each side's command says: milliseconds are the least over its turns. A side whose
    process ends is left out, with the reason."""
    with contextlib.ExitStack() as stack:
        ready, times = {}, {}

        def leave_out(name, process, failure):
            ready.pop(name, None)
            times.pop(name, None)
            row["failed"][name] = f"{failure}, with {process.wait()}"

        # One after the other, as a side may choose by times, which are to be its own.
        for name, command in commands.items():
            process = stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            try:
                said = _answer(process)
            except _Ended as failure:
                leave_out(name, process, failure)
                continue
            for key in ("errors", "plans", "prepared_s", "failed"):
                row[key] |= said[key]
            if name not in said["failed"]:
                ready[name], times[name] = process, []
        for first in range(rounds):
            # Who begins changes.
            order = collections.deque(ready)
            order.rotate(-first)
            for name in order:
                try:
                    times[name].append(_turn(ready[name]))
                except _Ended as failure:
                    leave_out(name, ready[name], failure)
        row["ms"] = {name: min(of) for name, of in times.items() if of}
        return row


def _say(value):
    print(f"{_ANSWER}{json.dumps(value)}", flush=True)


def _turn(process):
    # One that has ended reads no more, and answers nothing.
    with contextlib.suppress(OSError):
        print(file=process.stdin, flush=True)
    return _answer(process)


def _answer(process):
    for line in process.stdout:
        if line.startswith(_ANSWER):
            return json.loads(line.removeprefix(_ANSWER))
    raise _Ended("its process has ended")
