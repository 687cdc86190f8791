"""What of a network became plans, and what did not, with the reasons."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import torch

# What chains begin with.
_KINDS = {"conv": "convolutions", "conv_transpose": "transposed convolutions", "linear": "fully connected layers"}


@dataclass(frozen=True)
class Times:
    """Seconds that a chain takes as a plan, and as PyTorch's own operators."""

    plan: float
    torch: float

    @property
    def slower(self) -> bool:
        """Whether the plan is slower, by more than what two measurements of the same differ by."""
        return self.plan > 1.02 * self.torch

    def __str__(self) -> str:
        return f"{_time(self.plan)}, as PyTorch's own {_time(self.torch)}"


def _time(seconds: float) -> str:
    """Three digits in the largest unit of which there is at least one."""
    for unit, size in (("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)):
        number = float(f"{seconds / size:.3g}")
        if number < 1000 or unit == "s":
            break
    return f"{number:.15g} {unit}"


@dataclass(frozen=True)
class Fused:
    """A chain that one plan computes, or several, each of them a phase of its pixels: the name of the convolution or fully
    connected layer, its operators, why it has no further one, and its times if they were measured."""

    name: str
    operators: tuple[str, ...]
    end: str
    times: Times | None = None
    plans: int = 1


@dataclass(frozen=True)
class Unfused:
    """A convolution or fully connected layer that stays PyTorch's, and why."""

    name: str
    reason: str
    operator: str = "conv"


@dataclass
class Report:
    """What of a network became plans, and what did not."""

    fused: list[Fused] = field(default_factory=list)
    unfused: list[Unfused] = field(default_factory=list)
    # Whose threads plans are computed on, where they are on a CPU.
    threads: str | None = None

    def __str__(self) -> str:
        of_fused = Counter(of.operators[0] for of in self.fused)
        total = of_fused + Counter(of.operator for of in self.unfused)
        kinds = [kind for kind in _KINDS if total[kind]] or ["conv"]
        counts = [f"{of_fused[kind]} of {total[kind]} {_KINDS[kind]}" for kind in kinds]
        where = f", on {self.threads}" if self.fused and self.threads else ""
        lines = [f"{' and '.join(counts)} are plans{where}"]
        for fused in self.fused:
            times = f"; {fused.times}" if fused.times else ""
            plans = f", in {fused.plans} phases" if fused.plans > 1 else ""
            lines.append(f"  {fused.name}: {' -> '.join(fused.operators)}{plans}; ends as {fused.end}{times}")
        lines += [f"  {unfused.name}: not fused, as {unfused.reason}" for unfused in self.unfused]
        return "\n".join(lines)


class Optimized(torch.fx.GraphModule):
    """What `optimize` returns, for checkers of types: a `GraphModule` with a report."""

    fuseplan_report: Report  # type: ignore[assignment]
