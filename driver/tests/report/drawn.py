#!/usr/bin/env python3
"""Compares a browser's picture of a report with the numbers in it: bars are as long as the times that they stand for, if these are
not so short that bars are no longer than a key's square.

    driver/tests/report/drawn.py report.html report.png      the picture has the whole page, in light colours
"""

import re
import sys
from pathlib import Path

import numpy as np
from PIL import Image

# The key has squares of the bars' colours.
SQUARE = 20


def bars(picture, colour):
    """Where the bars of a colour begin, and their lengths, from top to bottom."""
    found, last = [], None
    for y, row in enumerate((picture == colour).all(axis=2)):
        edges = np.flatnonzero(np.diff(np.concatenate(([0], row.view(np.int8), [0]))))
        runs = [(start, end) for start, end in zip(edges[::2], edges[1::2]) if end - start > SQUARE]
        if runs and runs != last:
            found.extend((y, int(end - start)) for start, end in runs)
        last = runs
    return found


def main():
    page, picture = Path(sys.argv[1]).read_text(), np.asarray(Image.open(sys.argv[2]).convert("RGB"))
    light = page.partition("@media")[0]
    colours = {name: tuple(bytes.fromhex(code)) for name, code in re.findall(r"--(\w+): #([0-9a-f]{6})", light)}
    times = [(float(fused), float(unfused)) for fused, unfused in re.findall(r"(\d+\.\d+) / (\d+\.\d+)</", page)]
    assert times, "the page has no times"
    fused, slow, unfused = (bars(picture, colours[name]) for name in ("fused", "slow", "unfused"))
    # What is on top is the shares of the arithmetic, as one bar of several colours.
    top = fused[0][0]
    below = [[bar for bar in of if bar[0] > top] for of in (fused + slow, unfused)]
    # Pairs stand by their times, the longest first, so that only the last may be too short to be seen.
    longest = max(length for of in below for _, length in of)
    visible = [of for of in times if min(of) / max(map(max, times)) * longest > SQUARE + 2]
    assert visible == times[: len(visible)] and all(len(visible) <= len(of) <= len(times) for of in below), (below, times)
    for (first_at, of_fused), (second_at, of_unfused), (first, second) in zip(*map(sorted, below), visible):
        assert first_at < second_at, (first_at, second_at)
        # Times are rounded to a microsecond.
        assert abs(of_fused / of_unfused - first / second) < 0.002 / second + 0.02, (of_fused, of_unfused, first, second)
    print(f"{len(visible)} pairs of bars are as long as their times")


if __name__ == "__main__":
    main()
