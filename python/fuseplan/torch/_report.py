"""What of a network became plans, and what did not, with the reasons."""

from __future__ import annotations

from dataclasses import dataclass, field


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
        return f"{self.plan * 1e6:.4g} µs, as PyTorch's own {self.torch * 1e6:.4g} µs"


@dataclass(frozen=True)
class Fused:
    """A chain that one plan computes: the convolution's name, its operators, why it has no further one, and its times if they
    were measured."""

    name: str
    operators: tuple[str, ...]
    end: str
    times: Times | None = None


@dataclass(frozen=True)
class Unfused:
    """A convolution that stays PyTorch's, and why."""

    name: str
    reason: str


@dataclass
class Report:
    """What of a network became plans, and what did not."""

    fused: list[Fused] = field(default_factory=list)
    unfused: list[Unfused] = field(default_factory=list)
    # Whose threads plans are computed on, where they are on a CPU.
    threads: str | None = None

    def __str__(self) -> str:
        total = len(self.fused) + len(self.unfused)
        where = f", on {self.threads}" if self.fused and self.threads else ""
        lines = [f"{len(self.fused)} of {total} convolutions are plans{where}"]
        for fused in self.fused:
            times = f"; {fused.times}" if fused.times else ""
            lines.append(f"  {fused.name}: {' -> '.join(fused.operators)}; ends as {fused.end}{times}")
        lines += [f"  {unfused.name}: not fused, as {unfused.reason}" for unfused in self.unfused]
        return "\n".join(lines)
