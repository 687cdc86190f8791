"""Chains that stand behind each other in a graph's code, with what weighs an image's channels or views a result between them: one call
instead of one for each, where nothing but computing is wanted.

The graph stays as it is, and so does what traces, exports or compiles it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from . import _handles, _operator
from ._head import is_mean


def run(
    program: str,
    buffers: Mapping[str, torch.Tensor],
    names: Sequence[str],
    guards: tuple[Any, ...] | None,
    *tensors: torch.Tensor,
) -> Sequence[torch.Tensor] | None:
    """The results of a program of chains on tensors, then buffers by their names; None where chains have to be called one by one.

    `guards` are what looks at the network's inputs in front of the first run with tensors of such layouts, and these inputs.
    """
    direct = _operator.DIRECT
    return direct.run(program, buffers, names, guards, tensors) if direct is not None else None


class Step(NamedTuple):
    """What a line of code calls."""

    tensors: tuple[str, ...]
    # "constant", "variable", "mean", "product" or "view", as in the text of a program.
    kind: str
    operators: str


class _Line(NamedTuple):
    """A line of code that is a step of a run."""

    line: str
    name: str
    step: Step
    # The names that are not used behind it.
    dropped: tuple[str, ...]

    @classmethod
    def of(cls, line: str, between: Mapping[str, Step]) -> _Line | None:
        statement, _, ends = line.partition(";  ")
        name, _, value = statement.partition(" = ")
        step = between.get(value) or _chain(value)
        return None if step is None else cls(line, name, step, tuple(ends.split(" = ")[:-1]))


def _chain(value: str) -> Step | None:
    found = _CHAIN.fullmatch(value)
    if found is None:
        return None
    x, weight, operands, operators, constant = found.groups()
    tensors = (x, weight, *filter(None, operands.split(", ")))
    return Step(tensors, "constant" if constant == "True" else "variable", operators)


_CHAIN = re.compile(r"torch\.ops\.fuseplan\.chain\.default\((\w+), (\w+), \[([\w, ]*)\], '([^'\\]+)', (True|False)\)")
_ATTRIBUTE = re.compile(r"(\w+) = self(\.\w+|\['\w+'\])+")
_BUFFER = re.compile(r"(\w+) = self\._buffers\['(\w+)'\]")
# A module of `torch.export` that holds lengths of inputs against those of the example.
_GUARDS = re.compile(r"_guards_fn = self\._guards_fn\((\w+(?:, \w+)*)\);  _guards_fn = None")


def between(graph: torch.fx.Graph) -> dict[str, Step]:
    """What runs have beside chains, by its code: results with other lengths; on a CPU whose threads plans share, the mean of an image
    over its pixels, and an image's product with one number for each image and channel, in f32."""
    found = {}
    weighs = _handles.openmp_looks_for_work()
    for node in graph.nodes:
        step = _view(node) or (weighs and (_mean(node) or _product(node))) or None
        if step is not None and not node.kwargs:
            given = ", ".join(of.name if isinstance(of, torch.fx.Node) else repr(of) for of in node.args)
            found[f"torch.ops.{node.target}({given})"] = step
    return found


def _view(node: torch.fx.Node) -> Step | None:
    """A result of one pixel with other lengths, which lies as before in whatever layout the result was."""
    if node.target is not torch.ops.aten.reshape.default:
        return None
    image, lengths = node.args
    if not isinstance(image, torch.fx.Node) or not isinstance(lengths, Sequence) or not all(type(of) is int for of in lengths):
        return None
    value = image.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dim() < 2 or any(length != 1 for length in value.shape[2:]):
        return None
    return Step((image.name,), "view", ",".join(map(str, lengths)))


def _mean(node: torch.fx.Node) -> Step | None:
    if not is_mean(node) or not node.meta["val"].dim() == 4 or _lengths(node.args[0]) is None:
        return None
    assert isinstance(node.args[0], torch.fx.Node)
    return Step((node.args[0].name,), "mean", node.target._opname)  # type: ignore[union-attr]


def _product(node: torch.fx.Node) -> Step | None:
    if node.target is not torch.ops.aten.mul.Tensor:
        return None
    for image, numbers in (node.args, node.args[::-1]):
        of_image, of_numbers = _lengths(image), _lengths(numbers)
        if of_image is not None and of_numbers is not None and of_numbers == (*of_image[:2], "1", "1"):
            return Step((image.name, numbers.name), "product", "mul")  # type: ignore[union-attr, arg-type]
    return None


def _lengths(node: object) -> tuple[str, ...] | None:
    """The lengths of a node's value of four dimensions in f32 on a CPU, as texts, by which symbols are compared without a guard."""
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    if not isinstance(value, torch.Tensor) or (value.dim(), value.dtype, value.device.type) != (4, torch.float32, "cpu"):
        return None
    return tuple(map(str, value.shape))


def in_runs(code: Sequence[str], between: Mapping[str, Step]) -> list[str]:
    """A graph's code with a run wherever there are several chains with nothing but steps of runs and look-ups of attributes between them."""
    result: list[str] = []
    lines: list[str] = []
    steps: list[_Line] = []
    reads: list[str] = []
    guards: list[str] = []

    def end() -> None:
        result.extend(_run(steps, reads, guards) if len(steps) > 1 else [*guards, *lines])
        for of in (lines, steps, reads, guards):
            of.clear()

    def follows(step: _Line) -> bool:
        """Whether a run may go on by this step, or begin with it if it is a chain."""
        if step.step.kind != "view":
            return bool(steps) or step.step.kind in ("constant", "variable")
        (image,) = step.step.tensors
        is_own = any(image == before.name for before in steps)
        return is_own and image in step.dropped and not any(image in before.step.tensors for before in steps)

    for line in "".join(code).splitlines():
        step = _Line.of(line, between)
        if step is not None and follows(step):
            steps.append(step)
        elif _ATTRIBUTE.fullmatch(line) or _BUFFER.fullmatch(line):
            reads.append(line)
        elif line and not line.startswith("#"):
            end()
            (guards if _GUARDS.fullmatch(line) else result).append(line)
            continue
        lines.append(line)
    end()
    return [f"{line}\n" for line in result]


def _run(steps: Sequence[_Line], reads: Sequence[str], guards: Sequence[str]) -> list[str]:
    """The code of a run. Guards of nothing but its own tensors are asked where these have other layouts than before."""
    made = [step.name for step in steps]
    dropped = {name for step in steps for name in step.dropped}
    results = [name for name in made if name not in dropped]
    if not results:
        # Nobody reads the last one's.
        return [*guards, *reads, *(step.line for step in steps)]
    given = [name for name in dict.fromkeys(name for step in steps for name in step.step.tensors) if name not in made]
    # Buffers that nothing else reads are looked for by the run.
    found = {of[1]: of[2] for of in map(_BUFFER.fullmatch, reads) if of and of[1] in dropped}
    buffers = [name for name in given if name in found]
    tensors = [name for name in given if name not in found]
    numbers = {name: str(number) for number, name in enumerate([*tensors, *buffers, *made])}
    calls = [f"{of.kind} {' '.join(numbers[name] for name in of.tensors)}: {of.operators}" for _, _, of, _ in steps]
    program = "\n".join([" ".join(numbers[name] for name in results), *calls])
    names = tuple(found[name] for name in buffers)
    own = [line for line in reads if line.partition(" ")[0] in found]
    guarded = [of[1] for of in map(_GUARDS.fullmatch, guards) if of]
    first, within = ([], guards) if all(name in tensors for of in guarded for name in of.split(", ")) else (guards, [])
    asked = f"(self._modules['_guards_fn'], {guarded[0]})" if within else "None"
    return [
        *first,
        *(line for line in reads if line not in own),
        "if torch.compiler.is_compiling():",
        "    fuseplan_run = None",
        "else:",
        "    from fuseplan.torch._runs import run as fuseplan_run",
        f"    fuseplan_run = fuseplan_run({', '.join([repr(program), 'self._buffers', repr(names), asked, *tensors])})",
        "if fuseplan_run is None:",
        *(f"    {line}" for line in (*within, *own, *(step.line for step in steps))),
        "else:",
        f"    {', '.join(results)}, = fuseplan_run",
        f"{' = '.join(['fuseplan_run', *(name for name in tensors if name in dropped)])} = None",
    ]
