"""Chains that stand behind each other in a graph's code: one call instead of one for each, where nothing but computing is wanted.

The graph stays as it is, and so does what traces, exports or compiles it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from . import _operator


def run(
    program: str, buffers: Mapping[str, torch.Tensor], names: Sequence[str], *tensors: torch.Tensor
) -> Sequence[torch.Tensor] | None:
    """The results of a program of chains on tensors, then buffers by their names; None where chains have to be called one by one."""
    direct = _operator.DIRECT
    return direct.run(program, buffers, names, tensors) if direct is not None else None


class _Chain(NamedTuple):
    """A line of code that calls the operator."""

    line: str
    name: str
    tensors: tuple[str, ...]
    operators: str
    constant: bool
    # The names that are not used behind it.
    dropped: tuple[str, ...]

    @classmethod
    def of(cls, line: str) -> _Chain | None:
        found = _CHAIN.fullmatch(line)
        if found is None:
            return None
        name, x, weight, operands, operators, constant, dropped = found.groups()
        tensors = (x, weight, *filter(None, operands.split(", ")))
        return cls(line, name, tensors, operators, constant == "True", tuple(filter(None, (dropped or "").split(" = "))))


_CHAIN = re.compile(
    r"(\w+) = torch\.ops\.fuseplan\.chain\.default\((\w+), (\w+), \[([\w, ]*)\], '([^'\\]+)', (True|False)\)"
    r"(?:;  ([\w= ]+) = None)?"
)
_ATTRIBUTE = re.compile(r"(\w+) = self\.[\w.]+")
_BUFFER = re.compile(r"(\w+) = self\._buffers\['(\w+)'\]")


def in_runs(code: Sequence[str]) -> list[str]:
    """A graph's code with a run wherever there are several chains with nothing but look-ups of attributes between them."""
    result: list[str] = []
    lines: list[str] = []
    chains: list[_Chain] = []
    reads: list[str] = []

    def end() -> None:
        result.extend(_run(chains, reads) if len(chains) > 1 else lines)
        for of in (lines, chains, reads):
            of.clear()

    for line in "".join(code).splitlines():
        chain = _Chain.of(line)
        if chain is not None:
            chains.append(chain)
        elif _ATTRIBUTE.fullmatch(line) or _BUFFER.fullmatch(line):
            reads.append(line)
        elif line and not line.startswith("#"):
            end()
            result.append(line)
            continue
        lines.append(line)
    end()
    return [f"{line}\n" for line in result]


def _run(chains: Sequence[_Chain], reads: Sequence[str]) -> list[str]:
    """The code of a run."""
    made = [chain.name for chain in chains]
    dropped = {name for chain in chains for name in chain.dropped}
    results = [name for name in made if name not in dropped]
    if not results:
        # Nobody reads the last chain's.
        return [*reads, *(chain.line for chain in chains)]
    given = [name for name in dict.fromkeys(name for chain in chains for name in chain.tensors) if name not in made]
    # Buffers that nothing else reads are looked for by the run.
    found = {of[1]: of[2] for of in map(_BUFFER.fullmatch, reads) if of and of[1] in dropped}
    buffers = [name for name in given if name in found]
    tensors = [name for name in given if name not in found]
    numbers = {name: str(number) for number, name in enumerate([*tensors, *buffers, *made])}
    steps = [
        f"{'constant' if chain.constant else 'variable'} {' '.join(numbers[name] for name in chain.tensors)}: {chain.operators}"
        for chain in chains
    ]
    program = "\n".join([" ".join(numbers[name] for name in results), *steps])
    names = tuple(found[name] for name in buffers)
    own = [line for line in reads if line.partition(" ")[0] in found]
    return [
        *(line for line in reads if line not in own),
        "if torch.compiler.is_compiling():",
        "    fuseplan_run = None",
        "else:",
        "    from fuseplan.torch._runs import run as fuseplan_run",
        f"    fuseplan_run = fuseplan_run({', '.join([repr(program), 'self._buffers', repr(names), *tensors])})",
        "if fuseplan_run is None:",
        *(f"    {line}" for line in (*own, *(chain.line for chain in chains))),
        "else:",
        f"    {', '.join(results)}, = fuseplan_run",
        f"{' = '.join(['fuseplan_run', *(name for name in tensors if name in dropped)])} = None",
    ]
