"""How far the values of a network with plans are from the original's, chain by chain."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ._modules import _Convolution
from ._export import DECOMPOSED, export
from . import _phases
from ._into import CHAIN_INTO, out_of

_Values = dict[str, torch.Tensor]


@dataclass(frozen=True)
class ChainErrors:
    """The errors of one chain's value, and those of the original network in its own precision, both against the reference."""

    name: str
    operators: str
    # The largest magnitude of the reference.
    largest: float
    max: float
    rms: float
    own_max: float
    own_rms: float


@dataclass(frozen=True)
class Comparison:
    """The errors of each chain, in their order, and of the network's results."""

    chains: tuple[ChainErrors, ...]
    results: tuple[ChainErrors, ...]

    def __iter__(self) -> Iterator[ChainErrors]:
        return iter((*self.chains, *self.results))

    def __str__(self) -> str:
        head = ("value", "largest", "max error", "rms error", "own max", "own rms", "operators")
        rows = [
            (of.name, *(f"{number:.2e}" for number in (of.largest, of.max, of.rms, of.own_max, of.own_rms)), of.operators)
            for of in self
        ]
        widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
        lines = []
        for row in (head, *rows):
            name, *numbers, operators = row
            cells = [name.ljust(widths[0]), *(text.rjust(width) for text, width in zip(numbers, widths[1:]))]
            lines.append("  ".join([*cells, operators]).rstrip())
        return "\n".join(lines)


def compare(
    model: torch.nn.Module,
    fused: torch.nn.Module,
    args: torch.Tensor | tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dtype: torch.dtype = torch.float64,
) -> Comparison:
    """Prints how far each chain's value in `fused`, of `optimize` or with `replace_convs`, is from the same value of the
    original network in `dtype`, and how far the original's own is in its own precision; returns the same as data.

    Errors are those of the whole network up to there, not of the chain alone.
    """
    args = (args,) if isinstance(args, torch.Tensor) else tuple(args)
    kwargs = dict(kwargs or {})
    exact = copy.deepcopy(model).to(dtype)
    exact_args, exact_kwargs = pytree.tree_map_only(
        torch.Tensor, lambda of: of.to(dtype) if of.is_floating_point() else of, (args, kwargs)
    )
    with torch.no_grad():
        found, operators, original = _of(model, fused, args, kwargs)
        reference, own = original(exact, exact_args, exact_kwargs), original(model, args, kwargs)
        lacking = [name for name in found if name not in reference or name not in own]
        if lacking:
            raise ValueError(f"the network has no value {lacking[0]}; accepted: the network that the other was made of")
        every = [_errors(name, operators.get(name, ""), found[name], reference[name], own[name]) for name in found]
    comparison = Comparison(
        tuple(of for of in every if of.operators), tuple(of for of in every if not of.operators)
    )
    print(comparison)
    return comparison


_Runner = Callable[[torch.nn.Module, tuple[Any, ...], dict[str, Any]], _Values]


def _of(
    model: torch.nn.Module, fused: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[_Values, dict[str, str], _Runner]:
    """The values of a network with plans, the operators of those of chains, and what gives the same values of the original."""
    if isinstance(fused, torch.fx.GraphModule):
        nodes = [node for node in fused.graph.nodes if "fuseplan" in node.meta]
        tails = {node.name: node.meta["fuseplan"] for node in nodes}
        operators = {node.meta["fuseplan"]: _words(node.args[3]) for node in nodes}

        def nodes_of(original: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Values:
            graph = export(original, args, kwargs, decompose=fused.meta.get(DECOMPOSED, False))
            return _run(graph, {name: name for name in operators}, args, kwargs)

        found, runner = _run(fused, tails, args, kwargs), nodes_of
        for node in nodes:
            if (order := node.meta.get("fuseplan_order")) is not None:
                found[node.meta["fuseplan"]] = found[node.meta["fuseplan"]].permute(order)
    else:
        names = {name: _words(of.fuseplan_operators) for name, of in fused.named_modules() if isinstance(of, _Convolution)}

        def modules_of(original: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Values:
            return _hooked(original, list(names), args, kwargs)

        found, runner = _hooked(fused, list(names), args, kwargs), modules_of
        operators = {value: names[value.partition("#")[0]] for value in found if value.partition("#")[0] in names}
    if not operators:
        raise ValueError("the network has no chain that is a plan; accepted: what optimize or replace_convs made")
    return found, operators, runner


def _words(operators: Any) -> str:
    """The operators of a chain without the convolution's numbers."""
    convolution, *rest = str(operators).split(" -> ")
    return " -> ".join([convolution.split()[0], *rest])


def _results(result: Any) -> _Values:
    leaves = [of for of in pytree.tree_leaves(result) if isinstance(of, torch.Tensor) and of.is_floating_point()]
    return {f"result {at}": leaf for at, leaf in enumerate(leaves)}


def _run(graph: torch.fx.GraphModule, names: Mapping[str, str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Values:
    """The values of some nodes, by the names that they go by."""
    values: _Values = {}
    # What phases are of, which nobody may read any more when the last one is written.
    wholes: dict[Any, torch.Tensor] = {}

    class Recorder(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            value = super().run_node(n)
            if _phases.is_written_part(n):
                wholes[n] = wholes[n.args[0]] if n.args[0] in wholes else self._value_of(n.args[0], n)
            if n.name in names:
                found = value
                if n.target is CHAIN_INTO:
                    # What writes to a slice has no value of its own.
                    out = out_of(n.args)
                    found = wholes[out] if out in wholes else self._value_of(out, n)
                    wholes.clear()
                values[names[n.name]] = found.clone()
            return value

        def _value_of(self, given: Any, n: torch.fx.Node) -> Any:
            return self.map_nodes_to_values(given, n)

    result = Recorder(graph).run(*pytree.tree_leaves((args, kwargs)))
    return {**values, **_results(result)}


def _hooked(module: torch.nn.Module, names: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Values:
    """The values of some modules, by their paths; from its second call on with the call's number."""
    values: _Values = {}
    hooks = []

    def record(name: str) -> Callable[..., None]:
        calls = 0

        def hook(_module: torch.nn.Module, _args: Any, value: torch.Tensor) -> None:
            nonlocal calls
            calls += 1
            values[name if calls == 1 else f"{name}#{calls}"] = value.clone()

        return hook

    known = dict(module.named_modules())
    try:
        hooks += [known[name].register_forward_hook(record(name)) for name in names if name in known]
        result = module(*args, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    return {**values, **_results(result)}


def _errors(name: str, operators: str, found: torch.Tensor, reference: torch.Tensor, own: torch.Tensor) -> ChainErrors:
    def of(value: torch.Tensor) -> tuple[float, float]:
        if value.shape != reference.shape:
            raise ValueError(f"{name} is of shape {tuple(value.shape)} and not {tuple(reference.shape)}")
        error = value.to(reference.dtype) - reference
        return error.abs().max().item(), error.square().mean().sqrt().item()

    return ChainErrors(name, operators, reference.abs().max().item(), *of(found), *of(own))
