"""What is compared: MIOpen's charts and the field list of known networks."""

import dataclasses
import pathlib
import random
import sys

FIELD = pathlib.Path(__file__).resolve().parents[2] / "driver/src/bench/field.tsv"

# C-H-W-K-fx-fy-px-py of MIOpen's convolution+bias+activation chart, and C-H-W of its batch-norm+activation chart.
CBA = """2048-7-7-512-1-1-0-0 512-7-7-2048-1-1-0-0 512-7-7-512-3-3-1-1 1024-14-14-256-1-1-0-0 256-14-14-1024-1-1-0-0
256-14-14-256-3-3-1-1 128-28-28-128-3-3-1-1 128-28-28-512-1-1-0-0 512-28-28-128-1-1-0-0 256-55-55-64-1-1-0-0
64-55-55-256-1-1-0-0 64-55-55-64-1-1-0-0 64-55-55-64-3-3-1-1""".split()
NA = "512-7-7 2048-7-7 256-14-14 1024-14-14 128-28-28 512-28-28 64-55-55 256-55-55".split()


@dataclasses.dataclass(frozen=True)
class Layer:
    """A convolution with the operators behind it."""

    name: str
    network: str
    half: str
    count: int
    batch: int
    channels: int
    image: tuple
    filters: int
    taps: tuple
    strides: tuple
    pads: tuple
    dilations: tuple
    groups: int
    shift: bool
    activation: str
    residual: bool

    def output(self):
        """The output's image."""
        return tuple((i + 2 * p - d * (t - 1) - 1) // s + 1 for i, p, d, t, s in
                     zip(self.image, self.pads, self.dilations, self.taps, self.strides))

    def kind(self):
        """The class that it is counted in."""
        if self.groups > 1:
            return "depthwise" if self.groups == self.channels else "grouped"
        if len(self.image) == 3:
            return "three dimensions"
        if self.channels < 8:
            return "stem"
        if self.filters < 8:
            return "few filters"
        taps = "x".join(map(str, self.taps))
        if taps not in ("1x1", "3x3"):
            return "other filters"
        return taps + (" strided" if max(self.strides) > 1 else "")

    def shape(self):
        """Everything that a kernel sees of it."""
        return dataclasses.astuple(self)[4:]


def chart(batch):
    """The thirteen convolutions of MIOpen's chart."""
    layers = []
    for name in CBA:
        c, h, w, k, extent, _, pad, _ = map(int, name.split("-"))
        layers.append(Layer(name, "chart", "fit", 1, batch, c, (h, w), k, (extent,) * 2, (1, 1), (pad, pad), (1, 1), 1,
                            True, "relu", False))
    return layers


def field(which, batch):
    """The layers of a network, of a half of the networks or of all; autoencoders, whose images are large, at batch 1."""
    names, *lines = (line.split("\t") for line in FIELD.read_text().splitlines())
    lines = [dict(zip(names, line)) for line in lines]
    chosen = [line for line in lines if which in ("all", line["half"], line["network"])]
    if not chosen:
        sys.exit(f"--field: known are all, fit, judge, {', '.join(sorted({line['network'] for line in lines}))}")
    return [of_line(line, batch) for line in chosen]


def of_line(line, batch):
    by = lambda name: tuple(map(int, line[name].split("x")))
    layer = Layer("", line["network"], line["half"], int(line["count"]),
                  1 if line["network"].endswith("vae") else batch, int(line["channels"]), by("image"),
                  int(line["filters"]), by("taps"), by("strides"), by("pads"), by("dilations"), int(line["groups"]),
                  line["shift"] != "none", line["activation"], line["residual"] == "yes")
    return dataclasses.replace(layer, name=name_of(layer))


def name_of(layer):
    """As `fuseplan bench field` names it: `resnet50:64-56x56-64-3x3-1x1-s2x2-g32+b+r+relu`."""
    by = lambda values: "x".join(map(str, values))
    name = f"{layer.network}:{layer.channels}-{by(layer.image)}-{layer.filters}-{by(layer.taps)}-{by(layer.pads)}"
    name += f"-s{by(layer.strides)}" if max(layer.strides) > 1 else ""
    name += f"-d{by(layer.dilations)}" if max(layer.dilations) > 1 else ""
    name += f"-g{layer.groups}" if layer.groups > 1 else ""
    name += ("+b" if layer.shift else "") + ("+r" if layer.residual else "")
    return name if layer.activation == "none" else f"{name}+{layer.activation}"


def sample(layers, count, seed):
    """`count` layers, as many of each class as the class has a share of, but at least one of each; no shape twice."""
    unlike = list({layer.shape(): layer for layer in layers}.values())
    if not count or count >= len(unlike):
        return layers
    draw, kinds = random.Random(seed), {}
    for layer in unlike:
        kinds.setdefault(layer.kind(), []).append(layer)
    chosen = []
    for _, members in sorted(kinds.items()):
        chosen += draw.sample(members, max(1, round(count * len(members) / len(unlike))))
    return chosen
