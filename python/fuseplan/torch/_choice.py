"""Whether a chain is faster as a plan or as PyTorch's own operators: both are timed on the example's shapes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from . import _head, _operator
from ._report import Times

if TYPE_CHECKING:
    from ._chains import Chain

Choice = Callable[[torch.fx.GraphModule, "Chain", Mapping[torch.fx.Node, Any]], Times | None]
"""The times of a chain of a graph, whose constant nodes have these values; none where it cannot be timed."""

_Call = Callable[[], torch.Tensor]

# How long a burst of calls lasts, how many calls it has at most, so that a GPU's queue has room for them, and how many bursts
# there are of each side, in turns: the least and the most, between which they end once so much time has gone by, or PyTorch's fastest
# takes so many times the plan's slowest. Where the plan is the slower one, a machine that is busy otherwise may be why.
_BURST = 300e-6
_MOST = 100
_BURSTS = (5, 25)
_ENOUGH = 0.2
_CLEARLY = 1.3
# Cycles of a GPU's clock for each second that its host is waited for, of any GPU's clock more than a second, and how many seconds
# that is at most: the host waits itself where more is queued than a GPU's queue has room for.
_CYCLES = 4e9
_LONGEST = 0.05


def of_name(name: str, rest: str) -> Choice | None:
    """The choice that an option names, beside PyTorch's own side as who computes the rest has it."""
    if name not in ("measure", "all"):
        raise ValueError(f"choose is {name!r}; accepted: 'measure', 'all'")
    return _Measured(one_kernel_behind if rest == "inductor" else operator_by_operator) if name == "measure" else None


class _Measured:
    """Times each chain, equal ones once."""

    def __init__(
        self, own: Callable[[torch.fx.GraphModule, Chain, dict[torch.fx.Node, Any]], _Call]
    ) -> None:
        self._own = own
        self._known: dict[Any, Times] = {}

    def __call__(
        self, module: torch.fx.GraphModule, chain: Chain, values: Mapping[torch.fx.Node, Any]
    ) -> Times | None:
        inside = _inside(chain)
        outside = {node for of in inside for node in of.all_input_nodes} - set(inside)
        outside |= {node for node in (chain.image, chain.weight, *chain.operands) if isinstance(node, torch.fx.Node)}
        layouts = {node: _layout_of(node, values) for node in outside}
        if any(layout is None for layout in layouts.values()):
            return None
        given = (chain.image, chain.weight, *chain.operands)
        like = (layouts[of] if isinstance(of, torch.fx.Node) else _layout(of) for of in given)
        key = (chain.key, chain.image_format, *(str(node.target) for node in inside), *like)
        if key not in self._known:
            examples = {node: _example(node, layout, values) for node, layout in layouts.items() if layout is not None}
            of: list[Any] = [examples[node] if isinstance(node, torch.fx.Node) else node for node in given]
            image, weight, *operands = of
            operands = [operand.flatten() if at in chain.flat else operand for at, operand in enumerate(operands)]

            def plan() -> torch.Tensor:
                return chain.compute(image, weight, operands)

            self._known[key] = _times(plan, self._own(module, chain, examples), image.device)
        return self._known[key]


def operator_by_operator(
    module: torch.fx.GraphModule, chain: Chain, examples: dict[torch.fx.Node, Any]
) -> _Call:
    """The chain as the graph has it."""
    inside = _inside(chain)
    return _program(module, inside, chain.tail, examples)


def one_kernel_behind(
    module: torch.fx.GraphModule, chain: Chain, examples: dict[torch.fx.Node, Any]
) -> _Call:
    """The chain as Inductor has it: the convolution or product, and one pass over its result for all that follows."""
    first = _program(module, [chain.head], chain.head, examples)
    inside = _inside(chain)
    if len(inside) == 1:
        return first
    y = first()
    others = [node for of in inside[1:] for node in of.all_input_nodes if node in examples]
    whole = next((examples[node] for node in others if examples[node].shape == y.shape), None)
    if whole is None:
        return lambda: torch.relu(first())
    return lambda: torch.add(first(), whole)


def of_graphs(plan: Callable[..., Any], own: Callable[..., Any], inputs: Sequence[Any]) -> Times:
    """The times of a graph compiled with plans and without, on its inputs; what was random stays so."""
    given = [_operator.hint(of) if isinstance(of, torch.SymInt) else of for of in inputs]
    devices = {of.device for of in given if isinstance(of, torch.Tensor) and of.is_cuda}
    device = next(iter(devices), torch.device("cpu"))
    with torch.random.fork_rng([of.index for of in devices]):
        return _times(lambda: plan(*given), lambda: own(*given), device)


def _inside(chain: Chain) -> list[torch.fx.Node]:
    """The nodes that compute a chain, in their order."""
    needed, queue = set(), [chain.tail]
    while queue:
        node = queue.pop()
        if node not in needed:
            needed.add(node)
            queue += node.all_input_nodes
    inside = [chain.head]
    node = chain.head
    while node is not chain.tail:
        node = node.next
        if node in needed and not set(node.all_input_nodes).isdisjoint(inside):
            inside.append(node)
    return inside


_Layout = tuple[torch.device, torch.dtype, tuple[int, ...], tuple[int, ...]]


def _layout_of(node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> _Layout | None:
    """The layout of a node's value, if there can be an example of it."""
    if node in values:
        value = values[node]
        return _layout(value) if isinstance(value, torch.Tensor) else None
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.device.type == "meta":
        return None
    return _layout(value)


def _layout(tensor: torch.Tensor) -> _Layout:
    shape, stride = (tuple(map(_operator.hint, numbers)) for numbers in (tensor.shape, tensor.stride()))
    return tensor.device, tensor.dtype, shape, stride


def _example(node: torch.fx.Node, layout: _Layout, values: Mapping[torch.fx.Node, Any]) -> torch.Tensor:
    """A tensor like the value of a node, of random numbers unless it is a constant."""
    if node in values:
        return values[node].detach()  # type: ignore[no-any-return]
    device, dtype, shape, stride = layout
    return torch.empty_strided(shape, stride, dtype=dtype, device=device).uniform_(-1, 1)


def _program(
    module: torch.fx.GraphModule,
    nodes: list[torch.fx.Node],
    result: torch.fx.Node,
    examples: dict[torch.fx.Node, Any],
) -> _Call:
    """Some nodes of a graph as a program of their own, with tensors for what they read."""
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    inputs: list[torch.Tensor] = []
    for outside in dict.fromkeys(node for of in nodes for node in of.all_input_nodes if node not in nodes):
        copies[outside] = graph.placeholder(f"in{len(inputs)}")
        inputs.append(examples[outside])
    for node in nodes:
        copies[node] = copy = graph.node_copy(node, copies.__getitem__)
        copy.target, copy.args, copy.kwargs = _head.own(copy)
    graph.output(copies[result])
    program = torch.fx.GraphModule(module, graph)
    return lambda: program.forward(*inputs)  # type: ignore[no-any-return]


def _times(plan: _Call, own: _Call, device: torch.device) -> Times:
    """The least times of two programs, that run in turns."""
    burst = _Bursts(device)
    counts = {}
    for call in (plan, own):
        call()
        burst(call, 1)
        counts[call] = min(_MOST, max(1, int(_BURST / burst(call, 1))))
    of_plan: list[float] = []
    of_own: list[float] = []
    begin = time.perf_counter()
    for done in range(_BURSTS[1]):
        if done >= _BURSTS[0]:
            if min(of_own) > _CLEARLY * max(of_plan) or time.perf_counter() - begin > _ENOUGH:
                break
        of_plan.append(burst(plan, counts[plan]))
        of_own.append(burst(own, counts[own]))
    return Times(min(of_plan), min(of_own))


class _Bursts:
    """Times calls behind each other: on a CPU as they are called, on a GPU from when all of them are queued.

    The latter is what a CUDA graph takes, and a program whose host is ahead of the device. Where the host is what takes long,
    plans are not slower either: one is a single call in the place of several.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # Seconds that the host took for a call the last time.
        self._of_host: dict[_Call, float] = {}

    def __call__(self, call: _Call, count: int) -> float:
        """Seconds of one call, of so many."""
        if self._device.type != "cuda":
            return self._called(call, count) / count
        with torch.cuda.device(self._device):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            # The device is busy until the host has queued what is timed.
            torch.cuda._sleep(int(_CYCLES * min(_LONGEST, self._of_host.get(call, 0) * count)))  # type: ignore[no-untyped-call]
            start.record()
            host = self._called(call, count)
            end.record()
            end.synchronize()
        self._of_host[call] = host / count
        return start.elapsed_time(end) / count / 1e3  # type: ignore[no-any-return]

    @staticmethod
    def _called(call: _Call, count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            call()
        return time.perf_counter() - begin
