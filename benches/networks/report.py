"""The outcomes as lines of a terminal, as Markdown, and as JSON."""

import json
import math
import statistics

# Largest errors, relative to the largest value of a network's result, that rounding alone explains.
BOUNDS = {"f32": 1e-4, "tf32": 2e-2, "f16": 2e-2, "bf16": 1e-1}


def line(row):
    """A row for a terminal."""
    ratios = {name: {ours: ms / row["ms"][ours] for ours in ours_of(row)} for name, ms in row["ms"].items()}
    parts = []
    for name, ms in row["ms"].items():
        peer = "" if name in ratios[name] else "".join(f" x{ratio:.2f}" for ratio in ratios[name].values())
        plans = f" {row['plans'][name]} plans" if name in row["plans"] else ""
        parts.append(f"{name} {ms:.3f} ms{peer}{plans} (error {row['errors'][name]:.1e})")
    lines = [f"{row['name']}: {'; '.join(parts)}"]
    lines += [f"{row['name']}: {name} failed: {why}" for name, why in row["failed"].items()]
    lines += [f"{row['name']}: {name} is WRONG, error {row['errors'][name]:.1e}" for name in wrong(row)]
    return "\n".join(lines)


def ours_of(row):
    return [name for name in row["ms"] if name.startswith("ours-")]


def peers_of(row):
    return [name for name in row["ms"] if not name.startswith("ours-")]


def wrong(row):
    """Our sides whose error neither rounding nor twice a peer's error explains."""
    known = [row["errors"][name] for name in peers_of(row) if math.isfinite(row["errors"][name])]
    most = max([BOUNDS[row["type"]], *(2 * error for error in known)])
    return [name for name in ours_of(row) if not row["errors"][name] <= most]


def best(row):
    """The fastest peer's time, if there is one."""
    return min((row["ms"][name] for name in peers_of(row)), default=None)


def markdown(head, rows):
    """Everything that has been measured so far."""
    text = [head]
    for kind in dict.fromkeys(f"{row['type']}-{row['layout']}" for row in rows):
        of = [row for row in rows if f"{row['type']}-{row['layout']}" == kind]
        text += [f"## {kind}", _summary(of), _times(of), _errors(of)]
    failed = [f"- {row['name']}, {name}: {why}" for row in rows for name, why in row["failed"].items()]
    if failed:
        text += ["## Failed", "\n".join(failed)]
    return "\n\n".join(text) + "\n"


def as_json(head, rows):
    return json.dumps({"about": head, "rows": rows}, indent=1) + "\n"


def _names(rows, which):
    return list(dict.fromkeys(name for row in rows for name in which(row)))


def _table(columns, rows):
    lines = ["| " + " | ".join(columns) + " |", "|---" + "|---:" * (len(columns) - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _mean(values):
    values = [value for value in values if value]
    return f"{math.exp(statistics.fmean(map(math.log, values))):.2f}" if values else "-"


def _summary(rows):
    """Geometric means of every peer's time over each of ours, for each batch and all."""
    ours, peers = _names(rows, ours_of), _names(rows, peers_of)
    lines = []
    for name in ours:
        # An autoencoder's batch is 1 whatever the others' is.
        batches = sorted({row["batch"] for row in rows})
        for batch in [*batches, None] if len(batches) > 1 else batches:
            of = [row for row in rows if name in row["ms"] and batch in (None, row["batch"])]
            over = lambda peer: _mean(row["ms"][peer] / row["ms"][name] for row in of if peer in row["ms"])
            fastest = _mean(best(row) / row["ms"][name] for row in of if best(row))
            lines.append([f"{name}, N = {batch or 'any'}, {len(of)} networks", *map(over, peers), f"**{fastest}**"])
    return "Geometric means of peer over ours:\n\n" + _table(["ours", *peers, "fastest peer"], lines)


def _times(rows):
    ours, peers = _names(rows, ours_of), _names(rows, peers_of)
    lines = []
    for row in rows:
        ms = [f"{row['ms'][name]:.3f}" if name in row["ms"] else "failed" for name in [*ours, *peers]]
        ratios = [f"**{best(row) / row['ms'][name]:.2f}**" if best(row) and name in row["ms"] else "-" for name in ours]
        plans = [row["plans"].get(name, "-") for name in ours]
        lines.append([row["network"], str(row["batch"]), *ms, *ratios, *plans])
    columns = ["network", "N", *ours, *peers, *(f"fastest peer over {name}" for name in ours),
               *(f"plans of {name}" for name in ours)]
    return "Milliseconds:\n\n" + _table(columns, lines)


def _errors(rows):
    names = _names(rows, ours_of) + _names(rows, peers_of)
    lines = [[row["network"], str(row["batch"]),
              *(_error(row, name) if name in row["errors"] else "failed" for name in names)] for row in rows]
    title = "Largest errors against f32 without TF32, relative to the largest value:\n\n"
    return title + _table(["network", "N", *names], lines)


def _error(row, name):
    return f"**{row['errors'][name]:.1e}**" if name in wrong(row) else f"{row['errors'][name]:.1e}"
