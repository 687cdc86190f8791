"""The outcomes as Markdown."""

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
        names = ["all"]
        if layer:
            names += [f"class: {layer.kind()}", f"network: {layer.network}", f"half: {layer.half}"]
        for name in names:
            groups.setdefault(name, []).append((peer, row["us"], layer.count if layer else 1, row.get("found")))
    lines = ["| layers of | kinds | geometric mean | worst | all layers, peer over ours | regret, mean | worst |",
             "|---|---:|---:|---:|---:|---:|---:|"]
    for name, members in sorted(groups.items()):
        peers = [(peer, us, count) for peer, us, count, _ in members if peer]
        ratios = [peer / us for peer, us, _ in peers]
        cells = [name, str(len(peers or members)), *(["-"] * 3)]
        if peers:
            total = sum(peer * count for peer, _, count in peers) / sum(us * count for _, us, count in peers)
            cells[2:] = [f"{mean(ratios):.2f}", f"{min(ratios):.2f}", f"{total:.2f}"]
        regrets = [us / found for _, us, _, found in members if found]
        cells += [f"{mean(regrets):.3f}", f"{max(regrets):.2f}"] if regrets else ["-", "-"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
