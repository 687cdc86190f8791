"""The texts of the operator `torch.ops.fuseplan.chain`, from numbers as PyTorch's functions take them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def text_of(
    taps: Sequence[int],
    dims: int,
    stride: int | Sequence[int],
    padding: int | str | Sequence[int] | Sequence[tuple[int, int]],
    dilation: int | Sequence[int],
    groups: int,
    has_bias: bool,
    has_residual: bool,
    activation: str | None,
    math: str | None,
    parameters: Iterable[tuple[str, float]],
) -> str:
    """The operator's text for options of `conv`."""
    strides, dilations = per_dimension(stride, dims), per_dimension(dilation, dims)
    operators = [word for word, has in (("bias", has_bias), ("residual", has_residual)) if has]
    if activation is not None:
        operators.append(operator_text(activation, dict(parameters)))
    elif parameters:
        raise TypeError(f"there is no activation that {', '.join(dict(parameters))} would belong to")
    pads = pads_of(padding, dims, taps, strides, dilations)
    return " -> ".join([convolution_text(strides, pads, dilations, groups, math), *operators])


def convolution_text(
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int, math: str | None = None
) -> str:
    """A convolution with its numbers, as the operator `chain` has it; padding is before and after each dimension, in a row."""
    check_math(math)
    rows = (("stride", stride), ("padding", padding), ("dilation", dilation), ("groups", [groups]))
    words = [f"{key}={','.join(map(str, row))}" for key, row in rows]
    return " ".join(["conv", *words, *([f"math={math}"] if math else [])])


def linear_text(math: str | None = None) -> str:
    """A fully connected layer, as the operator `chain` has it."""
    check_math(math)
    return f"linear math={math}" if math else "linear"


def check_math(math: str | None) -> None:
    """Refuses what is not a mode; TF32 is PyTorch's switch."""
    if math not in (None, "strict"):
        raise ValueError(f"math is {math!r}; accepted: None, 'strict'")


def operator_text(name: str, parameters: Mapping[str, float]) -> str:
    """An operator behind the convolution with its numbers, as the operator `chain` has it."""
    return " ".join([name, *(f"{key}={float(value)!r}" for key, value in parameters.items())])


def per_dimension(value: int | Sequence[int], dims: int) -> list[int]:
    return [value] * dims if isinstance(value, int) else list(value)


def pads_of(
    padding: int | str | Sequence[int] | Sequence[tuple[int, int]],
    dims: int,
    taps: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[int]:
    """What is added before and after each dimension, in a row."""
    if isinstance(padding, str):
        if padding == "valid":
            return [0] * (2 * dims)
        if padding != "same":
            raise ValueError(f"padding is {padding!r}; accepted: numbers, pairs of numbers, 'same', 'valid'")
        if any(stride != 1 for stride in strides):
            raise ValueError("padding 'same' needs a stride of 1")
        sums = [dilation * (count - 1) for count, dilation in zip(taps, dilations)]
        return [part for total in sums for part in (total // 2, total - total // 2)]
    each: list[Any] = [padding] * dims if isinstance(padding, int) else list(padding)
    if len(each) == 1:
        each = each * dims
    pairs = [pad if isinstance(pad, Sequence) else (pad, pad) for pad in each]
    return [part for pair in pairs for part in pair]
