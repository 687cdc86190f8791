"""Peers' times over ours as a bar chart: a group of bars for each network, in the form of the driver's charts."""

import html
import math
import statistics

# Height of the plot, and the margins around it.
HEIGHT, TOP, RIGHT, LEFT = 320.0, 96.0, 40.0, 86.0
# Width of a bar, and of the space between groups.
BAR, GAP = 26.0, 22.0
# The least width, so that the title has room.
LEAST = 760.0
INK, GREY, GRID = "#1d2330", "#5f6570", "#dfe3ea"
COLOURS = ("#b9c9dd", "#7fa3cf", "#2f6db5", "#1b3f6b", "#c8a53d", "#c8553d")


def of_all(machine, rows):
    """An image for each type, layout and batch, by its name: times over those of the first of our sides."""
    images = {}
    for key in dict.fromkeys((row["type"], row["layout"], row["batch"]) for row in rows):
        own = [row for row in rows if (row["type"], row["layout"], row["batch"]) == key]
        ours = next((name for row in own for name in row["ms"] if name.startswith("ours-")), None)
        if ours:
            kind, layout, batch = key
            about = f"{kind} {layout}, {batch} image{'s' if batch > 1 else ''}, {ours}, {machine}"
            images[f"{kind}-{layout}-n{batch}"] = svg("Whole networks: PyTorch's time over that with plans", about, ours, own)
    return images


def svg(title, about, ours, rows):
    """An SVG image of the rows in which `ours` and a peer were timed."""
    rows = [row for row in rows if ours in row["ms"]]
    peers = list(dict.fromkeys(name for row in rows for name in row["ms"] if not name.startswith("ours-")))
    ratios = {row["network"]: {name: row["ms"][name] / row["ms"][ours] for name in peers if name in row["ms"]} for row in rows}
    group = len(peers) * BAR + GAP
    # Labels hang at 45 degrees, characters are about 6.4 wide.
    reach = max(map(len, ratios), default=0) * 6.4 * 0.71
    width = max(LEFT + len(ratios) * group + RIGHT, LEAST)
    group = (width - LEFT - RIGHT) / max(1, len(ratios))
    step, ticks = _axis(max((ratio for of in ratios.values() for ratio in of.values()), default=1.0))
    height, base = TOP + HEIGHT + reach + 34.0, TOP + HEIGHT

    def y(value):
        return base - HEIGHT * value / (step * ticks)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="Helvetica, Arial, sans-serif">',
        '<rect width="100%" height="100%" fill="white"/>',
        _text(width / 2, 28, "middle", 18, INK, title),
        _text(width / 2, 50, "middle", 12, GREY, about),
    ]
    for tick in range(ticks + 1):
        at, colour = y(tick * step), INK if tick * step in (0, 1) else GRID
        parts.append(f'<line x1="{LEFT}" y1="{at:.1f}" x2="{width - RIGHT:.1f}" y2="{at:.1f}" stroke="{colour}"/>')
        parts.append(_text(LEFT - 8, at + 4, "end", 12, GREY, f"{tick * step:g}"))
    parts.append(f'<text transform="translate({LEFT - 50} {TOP + HEIGHT / 2}) rotate(-90)" text-anchor="middle" font-size="12" '
                 f'fill="{INK}">time / time with plans</text>')
    for index, name in enumerate(peers):
        mean = math.exp(statistics.fmean(math.log(of[name]) for of in ratios.values() if name in of))
        x = LEFT + index * 190.0
        parts.append(f'<rect x="{x:.1f}" y="66" width="12" height="12" fill="{COLOURS[index % len(COLOURS)]}"/>')
        parts.append(_text(x + 18, 77, "start", 12, INK, f"{name}, mean {mean:.2f}"))
    for at, (network, of) in enumerate(ratios.items()):
        center = LEFT + (at + 0.5) * group
        for index, name in enumerate(peers):
            if name not in of:
                continue
            x, top = center + (index - len(peers) / 2) * BAR, y(of[name])
            parts.append(f'<rect x="{x:.1f}" y="{top:.1f}" width="{BAR - 2:.0f}" height="{base - top:.1f}" '
                         f'fill="{COLOURS[index % len(COLOURS)]}"><title>{html.escape(f"{network}, {name}")}: {of[name]:.2f}</title></rect>')
            parts.append(_text(x + BAR / 2 - 1, top - 4, "middle", 9, INK, f"{of[name]:.2f}"))
        parts.append(f'<text transform="translate({center + 4:.1f} {base + 16:.1f}) rotate(-45)" text-anchor="end" font-size="12" '
                     f'fill="{INK}">{html.escape(network)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _axis(greatest):
    """A round step, and how many of them there are, with room for a number above the greatest."""
    step = next(step for step in (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, greatest) if step * 8 >= greatest * 1.08)
    return step, max(math.ceil(greatest * 1.08 / step), math.ceil(1 / step))


def _text(x, y, anchor, size, colour, text):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">'
            f'{html.escape(text)}</text>')
