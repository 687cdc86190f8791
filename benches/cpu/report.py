"""Tables of the results."""

import csv
import datetime
import importlib.metadata
import math
import os
import pathlib
import platform
import shlex
import statistics
import subprocess

from . import sides

COLUMNS = ["config", "n", "dtype", "threads", "side", "median_gflops", "best_gflops", "median_us", "best_us", "rounds",
           "error", "chosen", "refused"]


def rates(result):
    """GFLOP/s of a result by its median and by its best round."""
    return tuple(result["flops"] / time / 1e9 for time in (statistics.median(result["times"]), min(result["times"])))


def peak(result):
    """The peak's server answers with the time of 10^9 operations."""
    return 1 / statistics.median(result["times"])


def measured(row):
    """The results of one configuration that have times, by side."""
    return {result["side"]: result for result in row if result["times"] and not result.get("refused")}


def fastest(found, *names):
    """The fastest of some sides, or nothing."""
    present = [found[name] for name in names if name in found]
    return max(present, key=lambda result: rates(result)[0], default=None)


def peers(found, layout):
    """The fastest way of using oneDNN, any package, from the user's layout; `any`: the user has no layout."""
    ways = {"nchw": ["nchw_direct", "nchw_reorder"], "nhwc": ["nhwc"], "any": ["any"]}[layout]
    return fastest(found, *(f"{package}_{way}" for package in ("onednn", "onednn-omp") for way in ways))


def line(row):
    """One configuration in one line, for watching a run."""
    text = [f"{row[0]['config']} N{row[0]['n']} {row[0]['dtype']} T{row[0]['threads']}:"]
    for result in row:
        if not result["times"] or result.get("refused"):
            text.append(f"{result['side']}=-")
        elif result["side"] == "peak":
            text.append(f"peak={peak(result):.0f}")
        else:
            text.append(f"{result['side']}={rates(result)[0]:.0f}")
    return " ".join(text)


class Ratios:
    """A column of ratios and the geometric mean of its convolutions."""

    def __init__(self):
        self.logarithms = []

    def cell(self, ours, peer):
        if not ours or not peer:
            return "-"
        median, best = (a / b for a, b in zip(rates(ours), rates(peer)))
        if not ours["config"].startswith("bn"):
            self.logarithms.append(math.log(median))
        return f"**{median:.2f}** ({best:.2f})"

    def mean(self):
        return f"**{math.exp(statistics.fmean(self.logarithms)):.2f}**" if self.logarithms else "-"


def number(result):
    if not result:
        return "-"
    rate = rates(result)[0]
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.1f}"


def table(rows):
    """The table of one batch size, data type and number of threads."""
    lines = ["| configuration | f32 peak | ours NCHW | oneDNN NCHW | ours / oneDNN | ours NHWC | oneDNN NHWC "
             "| ours / oneDNN | oneDNN any | ours NCHW / any | ORT NCHW | ours / ORT |",
             "|---|" + "--:|" * 11]
    columns = [Ratios() for _ in range(4)]
    for row in rows:
        found = measured(row)
        nchw, nhwc, ort = (found.get(name) for name in ("ours_nchw", "ours_nhwc", "onnxruntime_nchw"))
        plain, last, blocked = (peers(found, layout) for layout in ("nchw", "nhwc", "any"))
        cells = [row[0]["config"], f"{peak(found['peak']):.0f}" if "peak" in found else "-",
                 number(nchw), number(plain), columns[0].cell(nchw, plain),
                 number(nhwc), number(last), columns[1].cell(nhwc, last),
                 number(blocked), columns[2].cell(nchw, blocked), number(ort), columns[3].cell(nchw, ort)]
        lines.append(f"| {' | '.join(cells)} |")
    means = ["geometric mean of convolutions", "", "", "", columns[0].mean(), "", "", columns[1].mean(), "", columns[2].mean(), "",
             columns[3].mean()]
    lines.append(f"| {' | '.join(means)} |")
    return "\n".join(lines)


def details(rows):
    """What every side chose, and its error."""
    lines = ["| configuration | ours NCHW | ours NHWC | fastest oneDNN NCHW | fastest oneDNN NHWC | largest error "
             "ours / peers |", "|---|---|---|---|---|---|"]
    for row in rows:
        found, by_side = measured(row), {result["side"]: result for result in row}

        def choice(result):
            return f"{result['side'].removeprefix('onednn').strip('-_')}: {result['chosen']}" if result else "-"

        def ours(name):
            result = by_side.get(name, {})
            return result.get("refused") or result.get("chosen", "-")

        errors = {True: [], False: []}
        for result in row:
            if "error" in result:
                errors[result["side"].startswith("ours")].append(result["error"])
        worst = " / ".join(f"{max(errors[who]):.1e}" if errors[who] else "-" for who in (True, False))
        lines.append(f"| {row[0]['config']} | {ours('ours_nchw')} | {ours('ours_nhwc')} "
                     f"| {choice(peers(found, 'nchw'))} | {choice(peers(found, 'nhwc'))} | {worst} |")
    return "\n".join(lines)


def refusals(rows):
    """Peers that gave no answer, each reason once."""
    reasons = {}
    for row in rows:
        for result in row:
            if result.get("refused") and not result["side"].startswith("ours"):
                reasons.setdefault((result["side"], result["refused"]), []).append(result["config"])
    return [f"* {side}: {reason} ({len(names)} of {len(rows)})" for (side, reason), names in reasons.items()]


def markdown(results, head):
    """The whole report."""
    groups = {}
    for result in results:
        group = groups.setdefault((result["dtype"], result["n"], result["threads"]), {})
        group.setdefault(result["config"], []).append(result)
    text = [head]
    for (dtype, n, threads), rows in groups.items():
        rows = list(rows.values())
        text.append(f"## {dtype}, N = {n}, {threads} thread{'s' if threads > 1 else ''}\n\n"
                    f"GFLOP/s by the median round; ratios by the median and, in brackets, by the best round. "
                    f"Above 1: fuseplan is faster.\n\n{table(rows)}\n")
        text.append("\n".join(["<details><summary>What every side chose</summary>\n", details(rows), "",
                               *refusals(rows), "\n</details>\n"]))
    return "\n".join(text)


def write_csv(results, file: pathlib.Path):
    """One line for each configuration and side."""
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, COLUMNS, extrasaction="ignore")
        writer.writeheader()
        for result in results:
            cells = dict(result, rounds=len(result["times"]))
            if result["times"]:
                median, best = rates(result) if result["side"] != "peak" else (peak(result), 1 / min(result["times"]))
                cells |= {"median_gflops": f"{median:.2f}", "best_gflops": f"{best:.2f}"}
                if result["side"] != "peak":
                    cells |= {"median_us": f"{statistics.median(result['times']) * 1e6:.2f}",
                              "best_us": f"{min(result['times']) * 1e6:.2f}"}
            if "error" in cells:
                cells["error"] = f"{cells['error']:.2e}"
            writer.writerow(cells)


def essential(words):
    """Command-line words without the options that only say where files lie."""
    places = ("--build", "--output")
    return [word for before, word in zip(["", *words], words)
            if before not in places and word.partition("=")[0] not in places]


def machine(options, real_time, command):
    """Everything that a reader needs to judge or repeat the figures."""

    def output(*words):
        return subprocess.run(words, check=True, capture_output=True, text=True, cwd=sides.REPOSITORY).stdout.strip()

    cpu = {key.strip(): value.strip() for key, _, value in
           (entry.partition(":") for entry in output("lscpu").splitlines())}
    caches = ", ".join(f"{name} {cpu[name]}" for name in ("L1d cache", "L2 cache", "L3 cache") if name in cpu)
    features = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_tile")
                if flag in cpu.get("Flags", "").split()]
    versions = [f"{name} {importlib.metadata.version(name)}" for name in
                ("onednn", "tbb", "intel-sycl-rt", "intel-opencl-rt", "onnxruntime", "numpy")]
    for found in (options.build / "openmp").glob("lib/python*/site-packages/onednn_cpu_gomp-*.dist-info"):
        versions.append(found.name.removesuffix(".dist-info").replace("-", " ").replace("_", "-"))
    commit = output("git", "rev-parse", "--short", "HEAD")
    if output("git", "status", "--porcelain", "--untracked-files=no"):
        commit += " with local changes"
    facts = {
        "CPU": f"{cpu.get('Model name')} (family {cpu.get('CPU family')}, model {cpu.get('Model')}, stepping "
               f"{cpu.get('Stepping')}), {os.cpu_count()} processors, "
               f"hypervisor {cpu.get('Hypervisor vendor', 'none')}",
        "Caches": caches,
        "Vector units": " ".join(features),
        "System": f"{platform.system()} {platform.release()}, {output('rustc', '--version')}, "
                  f"{output(os.environ.get('CXX', 'c++'), '--version').splitlines()[0]}",
        "Packages": ", ".join(versions),
        "fuseplan": commit,
        "Date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "Command": f"`{shlex.join(['benches/compare_cpu.py', *essential(command[1:])])}`",
        "Scheduling": f"{options.rounds} rounds of {options.burst * 1e3:.0f} ms, "
                      f"{'real-time' if real_time else 'normal'} priority, load before the run "
                      f"{os.getloadavg()[0]:.1f}",
    }
    return "".join(f"* {key}: {value}\n" for key, value in facts.items())
