"""The chains of a graph as the operator `chain` computes them: their tensors and texts, and which take less time by phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from .._native import find_chains
from ..errors import Error
from . import _handles, _layouts, _operator, _phases, _text
from ._export import arguments
from ._nodes import activation_of, convolution_numbers, descriptor_of, is_transposed
from ._report import Report, Unfused


@dataclass(frozen=True)
class Chain:
    """A chain of a graph, as the operator `chain` will compute it. Tensors that are no node's value are folded ones."""

    # The convolution or fully connected layer.
    head: torch.fx.Node
    tail: torch.fx.Node
    image: torch.fx.Node
    # What the image is brought into first, if anything: PyTorch's own result lies in it and the image does not.
    image_format: torch.memory_format | None
    weight: torch.fx.Node | torch.Tensor
    operands: tuple[torch.fx.Node | torch.Tensor, ...]
    # Behind the first.
    operators: tuple[str, ...]
    # That of the operator; none of a transposed convolution, which has phases alone.
    text: str
    constant: bool
    # The operands that are viewed as vectors.
    flat: frozenset[int]
    # What computes it where that is several plans, whose weights are made of the chain's, and the same chain as one plan, if there is such.
    phases: _phases.Phases | None = None
    undivided: Chain | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """What is computed of image and operands, as texts."""
        return (self.text,) if self.phases is None else tuple(phase.text for phase in self.phases.each)

    def compute(self, image: torch.Tensor, weight: torch.Tensor, operands: Sequence[torch.Tensor]) -> torch.Tensor:
        """Its value."""
        image = self.brought(image)
        if self.phases is None:
            return torch.ops.fuseplan.chain.default(image, weight, operands, self.text, self.constant)  # type: ignore[no-any-return]
        of = self.tail.meta["val"]
        return self.phases.compute(image, operands, image.new_empty_strided(of.shape, of.stride()), self.constant)

    def brought(self, image: torch.Tensor) -> torch.Tensor:
        """An image as the operator gets it."""
        return image if self.image_format is None else image.contiguous(memory_format=self.image_format)


def chain_of(
    found: Mapping[str, Any],
    nodes: Sequence[torch.fx.Node],
    values: Mapping[torch.fx.Node, Any],
    folds: bool,
    math: str | None,
    by_phases: bool,
) -> Chain:
    """What the finder of chains found, with what is folded; by phases where these are wanted and take less time."""
    (kind_of_head, at, (weight_at,), _), *steps = found["steps"]
    head, weight = nodes[at], nodes[weight_at]
    of = arguments(head)
    numbers = None
    if kind_of_head == "linear":
        text = _text.linear_text(math)
    else:
        numbers = convolution_numbers(of, values, head)
        assert numbers is not None, "the finder takes no convolution without numbers"
        pads = [pad for pair in numbers["padding"] for pad in pair]
        text = _text.convolution_text(numbers["stride"], pads, numbers["dilation"], numbers["groups"], math)
    folded = _fold(steps, nodes, values, values.get(weight)) if folds else None
    operators: list[str] = []
    operands: list[torch.fx.Node | torch.Tensor] = []
    filters: torch.fx.Node | torch.Tensor = weight
    if folded is not None:
        steps, filters, bias = folded
        operators, operands = ["bias"], [bias]
    flats: set[int] = set()
    for kind, _, given, parameters in steps:
        operators.append(_text.operator_text(kind, parameters))
        for node in (nodes[operand] for operand in given):
            # The finder takes nothing but constants for what is one value a channel.
            flat = kind != "residual" and values[node].dim() > 1
            if flat and not folds:
                # A view is another tensor at each call.
                flats.add(len(operands))
            operands.append(values[node].flatten() if flat and folds else node)
    chain = Chain(
        head=head,
        tail=nodes[found["tail"]],
        image=of["input"],
        image_format=_image_format(of["input"], head) if kind_of_head == "conv" else None,
        weight=filters,
        operands=tuple(operands),
        operators=tuple(operators),
        text=" -> ".join([text, *operators]),
        constant=weight in values and not flats,
        flat=frozenset(flats),
    )
    if numbers is None or not folds or not by_phases or not chain.constant:
        return chain
    return _of_smaller(chain, numbers, values[weight] if folded is None else folded[1], values, math)


def _of_smaller(
    chain: Chain, numbers: Mapping[str, Any], weight: torch.Tensor, values: Mapping[torch.fx.Node, Any], math: str | None
) -> Chain:
    """The chain, or where the pixels of its image were repeated and that takes less time, its phases."""
    if not _is_channels_last(chain.tail):
        return chain
    found = _phases.enlarged(chain.image, numbers, weight, chain.tail, chain.operators, math)
    if found is None:
        return chain
    image, phases = found
    smaller = replace(chain, image=image, image_format=_image_format(image, chain.head), phases=phases, undivided=chain)
    if _refusal(smaller, values) is not None or not _is_faster(smaller, chain, numbers, weight, math):
        return chain
    return smaller


def _is_faster(smaller: Chain, chain: Chain, numbers: Mapping[str, Any], weight: torch.Tensor, math: str | None) -> bool:
    """Whether phases are expected to take less time than the chain, and what enlarges its image for nobody else. Without a model of the
    device's time they are, as they have fewer products."""
    assert smaller.phases is not None
    large = chain.image.meta["val"]
    one = _expected_of(chain.brought(without_memory(large)), weight, numbers, large.device, math)
    if one is None:
        return True
    image = smaller.brought(without_memory(smaller.image.meta["val"]))
    seconds = 0.0
    for phase in smaller.phases.each:
        pairs = list(zip(phase.padding[::2], phase.padding[1::2]))
        of_phase = _expected_of(image, phase.weight, {**numbers, "padding": pairs}, large.device, math)
        if of_phase is None:
            return True
        seconds += of_phase
    is_only_reader = list(chain.image.users) == [chain.head]
    return seconds < one + (_layouts.seconds_of_copy(large) if is_only_reader else 0)


def _expected_of(
    image: torch.Tensor, weight: torch.Tensor, numbers: Mapping[str, Any], device: torch.device, math: str | None
) -> float | None:
    """The seconds that a convolution of a channels-last image is expected to take as a plan."""
    laid = torch.empty_like(weight, device="meta", memory_format=_layouts.CHANNELS_LAST[weight.dim()])
    given = [("image", "other", [], image), ("weight", "constant", [], laid), ("conv", "conv", [0, 1], None)]
    nodes = [(name, kind, of, descriptor_of(value), kind == "conv", dict(numbers) if of else {}) for name, kind, of, value in given]
    tf32 = math is None and _operator.tf32(device, image.dtype)
    chains, _ = find_chains(nodes, _handles.handle_of(device), times=True, tf32=tf32)
    return chains[0]["expected_seconds"] if chains else None


def _is_channels_last(node: torch.fx.Node) -> bool:
    return not set(_layouts.CHANNELS_LAST.values()).isdisjoint(_layouts.formats(node))


def transposed(
    nodes: Sequence[torch.fx.Node], values: Mapping[torch.fx.Node, Any], math: str | None, reason: str | None, report: Report
) -> list[tuple[Chain, str]]:
    """The transposed convolutions of a graph that plans compute, each with an activation behind it, and why it has no further operator.

    None does where there is a reason for that.
    """
    found = []
    for node in nodes:
        if not _phases.is_conv_transpose(node) or not _phases.is_on_device(node):
            continue
        chain = reason or _transposed_chain(node, values, math)
        if isinstance(chain, str):
            report.unfused.append(Unfused(node.name, chain, begins(node)))
        else:
            found.append((chain, "no plan takes another operator behind a transposed convolution"))
    return found


_OF_ONE_DIMENSION = {torch.ops.aten.conv1d, torch.ops.aten.conv_transpose1d}


def of_one_dimension(nodes: Sequence[torch.fx.Node]) -> list[Unfused]:
    """The convolutions of one dimension, which the finder of chains is not asked about."""
    found = []
    for node in nodes:
        packet = getattr(node.target, "overloadpacket", None)
        is_general = packet is torch.ops.aten.convolution
        if packet in _OF_ONE_DIMENSION or (is_general and arguments(node)["weight"].meta["val"].dim() == 3):
            found.append(Unfused(node.name, "it is of one dimension; accepted: two and three", begins(node)))
    return found


def _transposed_chain(node: torch.fx.Node, values: Mapping[torch.fx.Node, Any], math: str | None) -> Chain | str:
    """A transposed convolution as plans compute it, or why none does."""
    if not _is_channels_last(node):
        return "its result is not channels-last"
    of = arguments(node)
    bias = values.get(of["bias"]) if of["bias"] is not None else None
    if of["bias"] is not None and bias is None:
        return "its bias is no constant"
    tail, behind = node, ["bias"] if bias is not None else []
    (reader, *others) = node.users or [None]
    if reader is not None and not others and (activation := activation_of(reader)) is not None:
        tail, behind = reader, [*behind, _text.operator_text(*activation)]
    weight = values.get(of["weight"])
    phases = _phases.of_transposed(node, weight, behind, math)
    if isinstance(phases, str):
        return phases
    chain = Chain(
        head=node,
        tail=tail,
        image=of["input"],
        image_format=_image_format(of["input"], node),
        weight=of["weight"],
        operands=(of["bias"],) if bias is not None else (),
        operators=tuple(behind),
        text="",
        constant=True,
        flat=frozenset(),
        phases=phases,
    )
    return _refusal(chain, values) or chain


def _refusal(chain: Chain, values: Mapping[torch.fx.Node, Any]) -> str | None:
    """Why no plan computes one of a chain's phases."""
    assert chain.phases is not None
    image = chain.brought(without_memory(chain.image.meta["val"]))
    out = without_memory(chain.tail.meta["val"])
    given = [values.get(of, of.meta.get("val")) if isinstance(of, torch.fx.Node) else of for of in chain.operands]
    operands = [without_memory(of) for of in given]
    device = _handles.handle_of(chain.image.meta["val"].device)
    for phase in chain.phases.each:
        own, strides = chain.phases.own(operands, phase), chain.phases.part(out, phase).stride()
        try:
            _operator.plan_of(image, phase.weight, own, phase.text, device, strides)
        except (Error, ValueError) as error:
            return str(error)
    return None


def _image_format(image: torch.fx.Node, convolution: torch.fx.Node) -> torch.memory_format | None:
    """The layout of PyTorch's own result, if the image's is another: where weights are channels-last and the image is not."""
    before, after = _layouts.formats(image), _layouts.formats(convolution)
    return after[0] if before and after and not set(before) & set(after) else None


def _fold(
    steps: Sequence[Any],
    nodes: Sequence[torch.fx.Node],
    values: Mapping[torch.fx.Node, Any],
    weight: torch.Tensor | None,
) -> tuple[list[Any], torch.Tensor, torch.Tensor] | None:
    """The steps without the biases and batch-norms at their front, and these folded into constant weights and one bias."""
    count = 0
    while count < len(steps) and steps[count][0] in ("bias", "batch_norm"):
        count += 1
    if weight is None or not any(kind == "batch_norm" for kind, *_ in steps[:count]):
        return None
    factor = torch.ones(weight.shape[0], dtype=torch.float64, device=weight.device)
    shift = torch.zeros_like(factor)
    for kind, _, given, parameters in steps[:count]:
        own = [values[nodes[operand]].flatten().double() for operand in given]
        if kind == "bias":
            shift = shift + own[0]
        else:
            scale, bias, mean, variance = own
            scale = scale / torch.sqrt(variance + parameters["eps"])
            factor, shift = factor * scale, (shift - mean) * scale + bias
    folded = torch.empty_like(weight)
    folded.copy_(weight.double() * factor.view(-1, *[1] * (weight.dim() - 1)))
    # Beside tensors of 16 bits a bias has room for more.
    return list(steps[count:]), folded.detach(), shift.to(torch.promote_types(weight.dtype, torch.float32))


def begins(node: torch.fx.Node) -> str:
    """The first operator of the chain that a node begins."""
    packet = getattr(node.target, "overloadpacket", None)
    if packet is torch.ops.aten.conv_transpose1d or is_transposed(node):
        return "conv_transpose"
    return "linear" if node.target is torch.ops.aten.linear.default else "conv"


def without_memory(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that lies so and has no contents; of symbols the numbers of the example."""
    shape, stride = ([_operator.hint(number) for number in numbers] for numbers in (tensor.shape, tensor.stride()))
    return torch.empty_strided(shape, stride, dtype=tensor.dtype, device="meta")
