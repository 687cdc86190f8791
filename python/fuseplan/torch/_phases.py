"""Convolutions of images whose pixels were repeated, and transposed convolutions, as convolutions of the image that is smaller.

Every s-th pixel of such a result is computed of the image's pixels with the same weights: a phase. So there are s phases along a
dimension, each of which is a convolution of the image without strides, and writes every s-th pixel of the result. Of pixels that
were repeated a tap reads what its neighbour does, and the weights of both are summed: where an image was doubled, 3x3 taps are 2x2 in
each of four phases, with four ninths of the products. Sums are rounded to the weights' type, as weights are that a batch-norm is
folded into.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from . import _layouts, _operator, _text
from ._export import arguments
from ._into import CHAIN_INTO, out_of

_ATEN = torch.ops.aten
_REPEATED = {_ATEN.upsample_nearest2d, _ATEN.upsample_nearest3d, _ATEN._upsample_nearest_exact2d, _ATEN._upsample_nearest_exact3d}
# Devices on which phases take less time. On a CPU they took 0.84 to 1.32 of one plan's or of PyTorch's own, since Winograd's transforms
# save products of a large image too.
DEVICES = {"cuda"}
# How many phases there are at most, since each is a plan, with weights of its own.
_MOST = 16
# The name by which a node's `meta` says that it is memory of phases.
_MEMORY = "fuseplan_phases"


class _Along(NamedTuple):
    """A phase along one dimension: its first pixel, the padding of the image, how far apart its taps are, and of each the taps whose
    weights it sums."""

    first: int
    before: int
    after: int
    dilation: int
    taps: list[list[int]]


def _of_repeated(image: int, taps: int, before: int, result: int, step: int) -> list[_Along]:
    """The phases of a convolution of pixels that were repeated: a tap reads the pixel that it is in a copy of."""
    found = []
    for first in range(min(step, result)):
        read = [(first - before + tap) // step for tap in range(taps)]
        last = (result - 1 - first) // step
        sums = [[tap for tap in range(taps) if read[tap] == pixel] for pixel in range(read[0], read[-1] + 1)]
        found.append(_Along(first, -read[0], last + read[-1] - (image - 1), 1, sums))
    return found


def _of_transposed(image: int, taps: int, before: int, result: int, step: int, dilation: int) -> list[_Along]:
    """The phases of a transposed convolution: a pixel of the result is a sum over the taps that meet a pixel of the image, which of taps
    side by side are every s-th, and the more the tap the less the pixel that it reads."""
    found = []
    for first in range(min(step, result)):
        read = {tap: at // step for tap in range(taps) if (at := first + before - tap * dilation) % step == 0}
        own, last = sorted(read, reverse=True), (result - 1 - first) // step
        least, most = (read[own[0]], read[own[-1]]) if own else (0, 0)
        apart = dilation // math.gcd(dilation, step)
        found.append(_Along(first, -least, last + most - (image - 1), apart, [[tap] for tap in own]))
    return found


class Phase(NamedTuple):
    """What computes a phase: its first pixel, and a convolution of the image, with the operators behind it in its text."""

    first: tuple[int, ...]
    padding: tuple[int, ...]
    weight: torch.Tensor
    text: str


@dataclass(frozen=True)
class Phases:
    """The phases of a result, whose pixels are so far apart in each dimension."""

    steps: tuple[int, ...]
    each: tuple[Phase, ...]

    def part(self, tensor: torch.Tensor, phase: Phase) -> torch.Tensor:
        """A phase of a tensor that has as many pixels as the result."""
        for dim, (first, step) in enumerate(zip(phase.first, self.steps), 2):
            tensor = _ATEN.slice.Tensor(tensor, dim, first, tensor.shape[dim], step)
        return tensor

    def own(self, operands: Sequence[torch.Tensor], phase: Phase) -> list[torch.Tensor]:
        """The operands of a phase: its part of a residual, and all of what is one value a channel."""
        residuals = _operator.residuals(phase.text)
        return [self.part(of, phase) if at in residuals else of for at, of in enumerate(operands)]

    def compute(
        self, image: torch.Tensor, operands: Sequence[torch.Tensor], out: torch.Tensor, constant: bool
    ) -> torch.Tensor:
        """Computes each, into the result's memory."""
        for phase in self.each:
            CHAIN_INTO(image, phase.weight, self.own(operands, phase), phase.text, self.part(out, phase), constant)
        return out

    def write(
        self,
        graph: torch.fx.Graph,
        image: torch.fx.Node,
        weights: Sequence[torch.fx.Node],
        operands: Sequence[torch.fx.Node],
        like: torch.Tensor,
        constant: bool,
    ) -> tuple[torch.fx.Node, torch.fx.Node]:
        """The same as nodes of a graph: the memory, which has its value behind the last that writes to it, and that one."""
        lengths, strides = list(like.shape), list(like.stride())
        memory = graph.call_function(_ATEN.new_empty_strided.default, (image, lengths, strides))
        memory.meta.update({"val": like, _MEMORY: True})
        writer = memory
        for phase, weight in zip(self.each, weights, strict=True):
            residuals = _operator.residuals(phase.text)
            own = [self._part_of(graph, of, phase) if at in residuals else of for at, of in enumerate(operands)]
            out = self._part_of(graph, memory, phase)
            writer = graph.call_function(CHAIN_INTO, (image, weight, own, phase.text, out, constant))
        return memory, writer

    def _part_of(self, graph: torch.fx.Graph, node: torch.fx.Node, phase: Phase) -> torch.fx.Node:
        """A phase of a node's value, as slices."""
        for dim, (first, step) in enumerate(zip(phase.first, self.steps), 2):
            if step > 1:
                value = node.meta["val"]
                node = graph.call_function(_ATEN.slice.Tensor, (node, dim, first, value.shape[dim], step))
                node.meta["val"] = _ATEN.slice.Tensor(value, dim, first, value.shape[dim], step)
        return node


def source_of(node: torch.fx.Node) -> torch.fx.Node:
    """What a node's value is a phase of, or the node."""
    return source_of(node.args[0]) if is_part(node) else node  # type: ignore[arg-type]


def is_part(node: torch.fx.Node) -> bool:
    """Whether a node is a slice of pixels of which some are left out, as phases are."""
    return node.target is _ATEN.slice.Tensor and arguments(node)["step"] != 1


def is_written_part(node: torch.fx.Node) -> bool:
    """Whether a node is a slice, or a slice's slice, that a chain writes to."""
    if not is_part(node):
        return False
    return any(user.target is CHAIN_INTO and out_of(user.args) is node or is_written_part(user) for user in node.users)


def is_memory(node: torch.fx.Node) -> bool:
    """Whether a node is the memory that phases write to."""
    return _MEMORY in node.meta


def writers(memory: torch.fx.Node) -> list[torch.fx.Node]:
    """What writes phases to memory, in their order."""
    found = []
    for user in memory.users:
        if user.target is CHAIN_INTO and source_of(out_of(user.args)) is source_of(memory):
            found.append(user)
        elif is_part(user):
            found += writers(user)
    return found


def is_conv_transpose(node: torch.fx.Node) -> bool:
    """Whether a node is a transposed convolution of two or three dimensions."""
    return getattr(node.target, "overloadpacket", None) in _layouts.TRANSPOSED


def by_groups(weight: torch.Tensor, groups: int) -> torch.Tensor:
    """A transposed convolution's weight [channels, filters of a group, taps] as [groups, channels of a group, filters of a group, taps]."""
    return weight.reshape(groups, -1, *weight.shape[1:])


def is_on_device(node: torch.fx.Node) -> bool:
    """Whether a node's value is on a device on which phases take less time."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.device.type in DEVICES


def of_transposed(
    node: torch.fx.Node, weight: torch.Tensor | None, behind: Sequence[str], mode: str | None
) -> Phases | str:
    """The phases of a transposed convolution, or why there are none."""
    of, value = arguments(node), _image_of(node)
    image = _image_of(of["input"])
    if weight is None:
        return "its weight is no constant"
    if value is None or image is None or image.dim() != weight.dim():
        return "its tensors are of no shape that plans have"
    dims = weight.dim() - 2
    steps, pads, dilations = (_each(of[name], dims) for name in ("stride", "padding", "dilation"))
    if math.prod(steps) > _MOST:
        return f"its strides are {steps}, which would be {math.prod(steps)} plans; accepted: {_MOST}"
    along = [
        _of_transposed(*numbers)
        for numbers in zip(image.shape[2:], weight.shape[2:], pads, value.shape[2:], steps, dilations)
    ]
    if any(not phase.taps for phases in along for phase in phases):
        taps = f"filters of {list(weight.shape[2:])}" + ("" if dilations == [1] * dims else f" with dilation {dilations}")
        return f"its {taps} and strides {steps} leave pixels of the result without a tap"
    groups = of["groups"]
    filters = by_groups(weight, groups).transpose(1, 2).flatten(0, 1)
    found = _phases(steps, along, filters, groups, behind, mode)
    return found or "of a phase only some of the image's pixels would be read"


def enlarged(
    image: torch.fx.Node,
    numbers: Mapping[str, Any],
    weight: torch.Tensor | None,
    result: torch.fx.Node,
    behind: Sequence[str],
    mode: str | None,
) -> tuple[torch.fx.Node, Phases] | None:
    """The image whose pixels were repeated for a convolution of these numbers, and its phases, if they have fewer products."""
    is_enlarged = getattr(image.target, "overloadpacket", None) in _REPEATED and is_on_device(image)
    if not is_enlarged or weight is None or mode == "strict":
        return None
    small: Any = image.args[0]
    before, after, value = map(_image_of, (small, image, result))
    if before is None or after is None or value is None:
        return None
    lengths = list(zip(before.shape[2:], after.shape[2:]))
    steps = [long // short for short, long in lengths]
    if any(long != short * step for (short, long), step in zip(lengths, steps)) or not _is_by(arguments(image), steps):
        return None
    if before.dim() != weight.dim() or math.prod(steps) > _MOST:
        return None
    if any(number != 1 for number in (*numbers["stride"], *numbers["dilation"])):
        return None
    along = [
        _of_repeated(short, taps, pads[0], long, step)
        for (short, _), taps, pads, long, step in zip(lengths, weight.shape[2:], numbers["padding"], value.shape[2:], steps)
    ]
    if all(len(phase.taps) == taps for phases, taps in zip(along, weight.shape[2:]) for phase in phases):
        return None
    found = _phases(steps, along, weight, numbers["groups"], behind, mode)
    if found is None or not all(bool(phase.weight.isfinite().all()) for phase in found.each):
        return None
    return small, found


def _is_by(of: Mapping[str, Any], steps: Sequence[int]) -> bool:
    """Whether an operator repeats each pixel so many times: a factor that is given may be another than that of the lengths."""
    given = of.get("scale_factors") or [of.get(name) for name in ("scales_d", "scales_h", "scales_w") if name in of]
    return all(factor is None or factor == step for factor, step in zip(given, steps))


def _phases(
    steps: Sequence[int],
    along: Sequence[Sequence[_Along]],
    weight: torch.Tensor,
    groups: int,
    behind: Sequence[str],
    mode: str | None,
) -> Phases | None:
    """The phases of each dimension taken together, if all pad an image by no less than nothing."""
    each, ones = [], [1] * len(steps)
    for of in itertools.product(*along):
        padding = [pad for phase in of for pad in (phase.before, phase.after)]
        if min(padding) < 0:
            return None
        summed = weight.detach().double()
        for dim, phase in enumerate(of, 2):
            taps = [torch.tensor(taps, device=weight.device) for taps in phase.taps]
            summed = torch.stack([summed.index_select(dim, own).sum(dim) for own in taps], dim)
        own = summed.to(weight.dtype).contiguous(memory_format=_layouts.CHANNELS_LAST[weight.dim()])
        dilations = [phase.dilation for phase in of]
        text = " -> ".join([_text.convolution_text(ones, padding, dilations, groups, mode), *behind])
        each.append(Phase(tuple(phase.first for phase in of), tuple(padding), own, text))
    return Phases(tuple(steps), tuple(each))


def _image_of(node: torch.fx.Node) -> torch.Tensor | None:
    """A node's value, if it is an image."""
    value = node.meta.get("val")
    return value if isinstance(value, torch.Tensor) and value.dim() in _layouts.CHANNELS_LAST else None


def _each(numbers: Sequence[int], dims: int) -> list[int]:
    return list(numbers) * (dims if len(numbers) == 1 else 1)
