"""The outcomes as Markdown."""

import math

from .timing import mean


def number(value):
    return "-" if value is None else f"{value:.1f}"


def best(row):
    """The fastest peer's time, if there is one."""
    return min((time for time in row["peers"].values() if time), default=None)


def table(rows, sides):
    """Times of all sides, the ratio of the fastest peer to ours, and of ours to the floor."""
    lines = [f"| configuration | ours | {' | '.join(sides)} | peer over ours | of floor | solver |",
             "|---" * (len(sides) + 5) + "|"]
    for row in rows:
        peer = best(row)
        cells = [row["name"], number(row["us"]), *(number(row["peers"].get(side, row.get(side))) for side in sides),
                 f"**{peer / row['us']:.2f}**" if peer else "-",
                 f"{row['floor'] / row['us']:.2f}" if "floor" in row else "-", f"`{row['solver']}`"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def summary(rows):
    """The ratio of the fastest peer to ours, geometric mean and worst, by class, network and half; a network's time, with
    its counts; and the regret: our time over the time of what find chose."""
    groups = {}
    for row in rows:
        peer, layer = best(row), row.get("layer")
        if peer is None:
            continue
        names = ["all"]
        if layer:
            names += [f"class: {layer.kind()}", f"network: {layer.network}", f"half: {layer.half}"]
        for name in names:
            groups.setdefault(name, []).append((peer, row["us"], layer.count if layer else 1, row.get("found")))
    lines = ["| layers of | kinds | geometric mean | worst | all layers, peer over ours | regret, mean | worst |",
             "|---|---:|---:|---:|---:|---:|---:|"]
    for name, members in sorted(groups.items()):
        ratios = [peer / us for peer, us, _, _ in members]
        total = sum(peer * count for peer, _, count, _ in members) / sum(us * count for _, us, count, _ in members)
        regrets = [us / found for _, us, _, found in members if found]
        regret = [f"{mean(regrets):.2f}", f"{max(regrets):.2f}"] if regrets else ["-", "-"]
        cells = [name, str(len(members)), f"{mean(ratios):.2f}", f"{min(ratios):.2f}", f"{total:.2f}", *regret]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) if groups else f"no peer takes any: {math.nan}"
