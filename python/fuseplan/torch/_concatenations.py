"""Concatenations of channels, and of a video's frames, whose chains write into the result, so that nobody copies what they have computed.

The result is memory that is there before the first of the chains, each of which writes a slice of it (`chain_into`), and readers
of a chain's value read the slice. What is no chain is copied to its slice behind the operator that makes it, where Inductor
computes that operator into the slice.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from . import _layouts, _operator, _phases
from ._export import arguments
from ._into import CHAIN_INTO, out_of

_ATEN = torch.ops.aten
_CHAIN = torch.ops.fuseplan.chain.default
# Slices begin at multiples of so many bytes, of which kernels load and write vectors.
_ALIGNMENT = 16
# Operators that read a concatenation from memory. What Inductor makes of others reads the parts, and needs no whole.
_CONVOLUTIONS = {_ATEN.conv2d, _ATEN.conv3d, _ATEN.convolution}
_READ_MEMORY = _CONVOLUTIONS | {_ATEN.conv_transpose2d, _ATEN.conv_transpose3d}
_SPLITS = {_ATEN.chunk, _ATEN.split, _ATEN.split_with_sizes}


class _Part(NamedTuple):
    """What is concatenated: a value, and which channels or frames of the result it is."""

    node: torch.fx.Node
    first: int
    length: int


class _Joined(NamedTuple):
    """A concatenation, and what has its value as readers want it: the node, or its only reader, which brings it into a layout."""

    cat: torch.fx.Node
    laid: torch.fx.Node
    # Of channels or frames.
    dim: int

    @classmethod
    def of(cls, cat: torch.fx.Node) -> _Joined:
        users = list(cat.users)
        laid = users[0] if len(users) == 1 and users[0].target is _ATEN.contiguous.default else cat
        value = cat.meta.get("val")
        rank = value.dim() if isinstance(value, torch.Tensor) else 1
        return cls(cat, laid, int(arguments(cat)["dim"]) % rank)

    @property
    def value(self) -> Any:
        return self.laid.meta.get("val")

    def part(self, part: _Part) -> torch.Tensor:
        """Where a part lies in memory of the whole's layout."""
        return self.value.narrow(self.dim, part.first, part.length)  # type: ignore[no-any-return]


def rewrite(module: torch.fx.GraphModule, *, devices: Collection[str] = ("cuda",)) -> None:
    """Rewrites the concatenations of a graph's chains on devices of these types.

    Those are left that no chain could write to as fast as to memory of its own, and those that Inductor computes within their
    readers.
    """
    rewriter = _Rewriter(module.graph)
    for node in list(module.graph.nodes):
        if node.target is not _ATEN.cat.default:
            continue
        joined = _Joined.of(node)
        if _is_wanted(joined, devices):
            parts = _parts(joined)
            chains = _written_in_place(joined, parts)
            if chains:
                rewriter.replace(joined, parts, chains)
    if rewriter.writers:
        module.graph.eliminate_dead_code()
        module.graph.lint()  # type: ignore[no-untyped-call]
        every = (node for of in (_CHAIN, CHAIN_INTO) for node in module.graph.find_nodes(op="call_function", target=of))
        readers = (chain for chain in every if rewriter.written & set(chain.all_input_nodes))
        _compile_ahead(module, dict.fromkeys([*rewriter.writers, *readers]))
        module.recompile()


def is_written_as_read(node: torch.fx.Node) -> bool:
    """Whether a node of a graph without chains is expected to be a concatenation that `rewrite` puts into memory of the layout that its
    reader wants, if that is channels-last: what chains begin with computes some of it, and one convolution reads it."""
    if node.target is not _ATEN.cat.default or not _is_of_images(joined := _Joined.of(node)):
        return False
    value, readers = joined.value, list(node.users)
    is_aligned = value.shape[1] * value.element_size() % _ALIGNMENT == 0
    is_read = len(readers) == 1 and _packet(readers[0]) in _CONVOLUTIONS and readers[0].args[0] is node
    return is_aligned and is_read and any(map(_may_be_of_a_chain, arguments(node)["tensors"]))


def _may_be_of_a_chain(node: torch.fx.Node) -> bool:
    """Whether a value is a convolution's, behind operators that have one or two operands of its lengths."""
    seen: set[torch.fx.Node] = set()
    left = [node]
    while left:
        at = left.pop()
        if _packet(at) in _CONVOLUTIONS:
            return True
        value: Any = at.meta.get("val")
        if at in seen or at.op != "call_function" or not _is_image(value):
            continue
        seen.add(at)
        alike = [of for of in at.all_input_nodes if _is_image(of.meta.get("val")) and of.meta["val"].shape == value.shape]
        left += alike if len(alike) <= 2 else []
    return False


def _is_of_images(joined: _Joined) -> bool:
    """Whether images are concatenated by their channels, or those of a video by their frames."""
    value: Any = joined.value
    values: list[Any] = [node.meta.get("val") for node in arguments(joined.cat)["tensors"]]
    is_image = _is_image(value) and all(_is_image(part) and (part.dim(), part.dtype) == (value.dim(), value.dtype) for part in values)
    return is_image and (joined.dim == 1 or (joined.dim == 2 and value.dim() == 5))


def _is_wanted(joined: _Joined, devices: Collection[str]) -> bool:
    """Whether images are concatenated by their channels, or channels-last ones by their frames, in a layout that has a name, to be
    read as a whole."""
    if not _is_of_images(joined) or joined.value.device.type not in devices:
        return False
    names = _layouts.formats(joined.laid)
    is_named = bool(names) if joined.dim == 1 else torch.channels_last_3d in names
    of_chains = {_CHAIN, CHAIN_INTO}
    reads = (user.op == "output" or user.target in of_chains or _packet(user) in _READ_MEMORY for user in joined.laid.users)
    return is_named and any(reads)


def _is_image(value: Any) -> bool:
    """Whether a value is an image, none of whose lengths is a symbol."""
    is_image = isinstance(value, torch.Tensor) and value.layout == torch.strided and value.dim() in (4, 5)
    return is_image and all(type(number) is int for number in (*value.shape, *value.stride()))


def _packet(node: Any) -> Any:
    return getattr(node.target, "overloadpacket", None)


def _parts(joined: _Joined) -> list[_Part]:
    """What is concatenated. Slices of a value's channels that are all of it, in their order, are the value."""
    tensors, parts, first = list(arguments(joined.cat)["tensors"]), [], 0
    while tensors:
        node, slices = _unsliced(tensors) if joined.dim == 1 else (tensors[0], 1)
        parts.append(_Part(node, first, node.meta["val"].shape[joined.dim]))
        first += parts[-1].length
        del tensors[:slices]
    return parts


def _unsliced(tensors: Sequence[torch.fx.Node]) -> tuple[torch.fx.Node, int]:
    """The value whose slices the first of these are, and how many; the first by itself where they are not all of a value."""
    source, stop = None, 0
    for number, node in enumerate(tensors, 1):
        found = _slice(node)
        if found is None or found != (source or found[0], stop):
            break
        source, stop = found[0], stop + node.meta["val"].shape[1]
        if stop == source.meta["val"].shape[1]:
            return source, number
    return tensors[0], 1


def _slice(node: torch.fx.Node) -> tuple[torch.fx.Node, int] | None:
    """The value of which a node is a slice of channels, and the first of them."""
    view: Any = node.args[0] if node.target is operator.getitem else node
    if _packet(view) not in _SPLITS and view.target is not _ATEN.slice.Tensor:
        return None
    of = arguments(view)
    source, before = of["self"], 0
    value = source.meta.get("val")
    if not _is_image(value) or of["dim"] % value.dim() != 1 or of.get("step", 1) != 1:
        return None
    if view is node:
        before = of["start"] or 0
    else:
        parts: Any = view.meta["val"]
        before = sum(part.shape[1] for part in parts[: node.args[1]])
    return (source, before) if 0 <= before < value.shape[1] else None


def _written_in_place(joined: _Joined, parts: Sequence[_Part]) -> dict[torch.fx.Node, _Part]:
    """The chains, and the memory of phases, that write what they compute to their slice of a concatenation as fast as to memory of
    their own."""
    value = joined.value
    bytes = value.element_size()
    if value.shape[1] * value.stride(1) * bytes % _ALIGNMENT:
        return {}
    found: dict[torch.fx.Node, _Part] = {}
    for part in parts:
        node = part.node
        is_chain = node.target is _CHAIN and str(node.args[3]).startswith("conv ") or _phases.is_memory(node)
        is_aligned = part.first * value.stride(joined.dim) * bytes % _ALIGNMENT == 0
        is_like = is_aligned and set(_layouts.formats(node)) & set(_layouts.formats(joined.laid))
        # A single channel would be taken for one of another layout.
        is_chain = is_chain and node.meta["val"].shape[1] > 1
        if is_chain and is_like and node not in found and all(map(_takes_strides, node.users)):
            found[node] = part
    # Kernels read residuals by vectors where these lie as the result does: both are slices of this memory, or neither is, unless
    # a slice lies as memory of its own does.
    apart = {node for node, part in found.items() if not _lies_as(joined.part(part), node.meta["val"])}
    while True:
        kept = {
            node: part
            for node, part in found.items()
            if node not in apart
            or all(_source(added) in found for added in _residuals(node)) and all(adds in found for adds in _adding(node))
        }
        if len(kept) == len(found):
            return found
        found = kept


def _lies_as(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of the same shape have the same strides, but where a length is 1."""
    return all(length == 1 or first == second for length, first, second in zip(one.shape, one.stride(), other.stride()))


def _takes_strides(user: torch.fx.Node) -> bool:
    """Whether an operator reads a slice as it reads a tensor by itself, and neither is a result of the graph."""
    if user.target is operator.getitem:
        return all(map(_takes_strides, user.users))
    if not isinstance(user.target, torch._ops.OpOverload) or user.target.namespace not in ("aten", "fuseplan"):
        return False
    return not _layouts.goes_by_strides(user) and (not _is_view(user) or all(map(_takes_strides, user.users)))


def _residuals(node: torch.fx.Node) -> list[torch.fx.Node]:
    """What a chain adds, or what writes phases to memory."""
    if _phases.is_memory(node):
        return [_phases.source_of(added) for writer in _phases.writers(node) for added in _residuals(writer)]
    operands: Any = node.args[2]
    return [operands[at] for at in _operator.residuals(str(node.args[3]))]


def _source(node: torch.fx.Node) -> torch.fx.Node:
    """The value that a node is, or is a slice of channels of."""
    found = _slice(node)
    return node if found is None else _source(found[0])


def _adding(node: torch.fx.Node) -> Iterable[torch.fx.Node]:
    """The chains that add a value, or a slice of its channels."""
    for user in node.users:
        if user.target in (_CHAIN, CHAIN_INTO):
            # Of phases the memory that they write to.
            adds = user if user.target is _CHAIN else _phases.source_of(out_of(user.args))
            yield from [adds] if node in _residuals(user) else []
        elif user.target is operator.getitem or _packet(user) in _SPLITS or user.target is _ATEN.slice.Tensor:
            yield from _adding(user)


class _Rewriter:
    """A graph, and what has become of it so far."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self._graph = graph
        self._order = {node: at for at, node in enumerate(graph.nodes)}
        # Memory of results and its slices, which have their values behind what writes to them.
        self.written: set[torch.fx.Node] = set()
        self.writers: list[torch.fx.Node] = []

    def replace(self, joined: _Joined, parts: Sequence[_Part], chains: Mapping[torch.fx.Node, _Part]) -> None:
        """Puts memory in the place of a concatenation, which these chains, and copies of the other parts, write to."""
        value, graph = joined.value, self._graph
        first = min(chains, key=self._order.__getitem__)
        with graph.inserting_before(first):
            like = first.args[0], list(value.shape), list(value.stride())
            memory = graph.call_function(_ATEN.new_empty_strided.default, like)
        memory.meta["val"] = value
        self._order[memory] = self._order[first]
        self.written.add(memory)
        slices = {chain: self._write(chain, memory, part, joined) for chain, part in chains.items()}
        for part in parts:
            if part not in chains.values():
                self._copy(slices.get(part.node, part.node), memory, part, joined)
        joined.laid.replace_all_uses_with(memory)
        for node in dict.fromkeys((joined.laid, joined.cat, *chains)):
            graph.erase_node(node)

    def _write(self, chain: torch.fx.Node, memory: torch.fx.Node, part: _Part, joined: _Joined) -> torch.fx.Node:
        """Has a chain, or phases, write to its slice, which has its value from then on."""
        with self._graph.inserting_before(chain):
            of_memory = memory, joined.dim, part.first, part.first + part.length
            target = self._graph.call_function(_ATEN.slice.Tensor, of_memory)
        if _phases.is_memory(chain):
            writers = _phases.writers(chain)
        else:
            writers = [self._writer(chain, target)]
        target.meta["val"] = joined.part(part)
        self._order[target] = self._order[chain]
        self.writers += writers
        chain.replace_all_uses_with(target)
        self._see_again(target)
        return target

    def _writer(self, chain: torch.fx.Node, target: torch.fx.Node) -> torch.fx.Node:
        image, weight, operands, text, *constant = chain.args
        with self._graph.inserting_before(chain):
            writer = self._graph.call_function(CHAIN_INTO, (image, weight, operands, text, target, *constant))
        # Comparisons look for the value by what writes it.
        writer.meta.update({key: chain.meta[key] for key in ("fuseplan", "fuseplan_order") if key in chain.meta})
        return writer

    def _see_again(self, node: torch.fx.Node) -> None:
        """Gives views of what is written the strides that they have now."""
        self.written.add(node)
        for user in node.users:
            if user.target is operator.getitem or _is_view(user):
                args, kwargs = torch.fx.map_arg((user.args, user.kwargs), lambda of: of.meta["val"])
                user.meta["val"] = user.target(*args, **kwargs)  # type: ignore[operator]
                self._see_again(user)

    def _copy(self, source: torch.fx.Node, memory: torch.fx.Node, part: _Part, joined: _Joined) -> None:
        """Copies a value to its slice as soon as there are both."""
        graph, target = self._graph, joined.part(part)
        if source in self.written or _phases.is_memory(source):
            place = graph.inserting_before(joined.cat)
        else:
            place = graph.inserting_after(max(source, memory, key=self._order.__getitem__))
        # Inductor writes to such a view where it is. For a slice it would make another memory, with a copy of the rest.
        of_memory = memory, list(target.shape), list(target.stride()), part.first * target.stride(joined.dim)
        with place:
            view = graph.call_function(_ATEN.as_strided.default, of_memory)
        with graph.inserting_after(view):
            graph.call_function(_ATEN.copy_.default, (view, source))


def _is_view(node: torch.fx.Node) -> bool:
    """Whether a node's value is a view of what it reads."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    return any(of.alias_info is not None and not of.alias_info.is_write for of in node.target._schema.returns)


def _compile_ahead(module: torch.fx.GraphModule, chains: Iterable[torch.fx.Node]) -> None:
    """Compiles the plans of chains together, before each is called for the first time."""

    def value(node: Any) -> torch.Tensor:
        found = operator.attrgetter(node.target)(module) if node.op == "get_attr" else node.meta["val"]
        return found  # type: ignore[no-any-return]

    calls: dict[torch.device, list[Any]] = {}
    for node in chains:
        given: Any = node.args
        x, weight, operands = value(given[0]), value(given[1]), [value(operand) for operand in given[2]]
        strides = value(out_of(given)).stride() if node.target is CHAIN_INTO else None
        calls.setdefault(x.device, []).append((x, weight, operands, given[3], strides))
    for device, of_device in calls.items():
        _operator.compile_ahead(device, of_device)
