"""The operator `torch.ops.fuseplan.chain`: a convolution and the operators behind it, by their names.

What follows the convolution is a text such as `bias -> residual -> leaky_relu slope=0.1`: methods of `fuseplan.Plan` and names
of activations, with their numbers. Each takes its tensors from the list of operands in turn.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch

from .._native import CompiledPlan, Handle, Plan, TensorDescriptor

_LIBRARY = torch.library.Library("fuseplan", "DEF")
_LIBRARY.define(
    "chain(Tensor x, Tensor weight, Tensor[] operands, int[] stride, int[] padding, int[] dilation, int groups, "
    "str operators, bool constant=False) -> Tensor",
    tags=(torch.Tag.needs_exact_strides,),
)

# How many tensors an operator takes; an activation takes none.
_OPERANDS = {"bias": 1, "residual": 1, "batch_norm": 4}

# Compiled plans with their constants, those used last at the end.
_PLANS: OrderedDict[Any, tuple[CompiledPlan, list[str]]] = OrderedDict()
_MOST_PLANS = 256
_LOCK = threading.Lock()


def conv(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    *,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] | Sequence[tuple[int, int]] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    activation: str | None = None,
    **parameters: float,
) -> torch.Tensor:
    """`activation(conv(x, weight) + bias + residual)` as one kernel, of two or three spatial dimensions.

    Padding is as in `torch.nn.functional.conv2d`, or a pair (before, after) for each dimension. Activations and their
    parameters are those of `fuseplan.Plan.activation`. The result lies in memory as the input does: channels last if that is.
    """
    dims = x.dim() - 2
    strides, dilations = _per_dimension(stride, dims), _per_dimension(dilation, dims)
    operators, operands = [], []
    for word, tensor in (("bias", bias), ("residual", residual)):
        if tensor is not None:
            operators.append(word)
            operands.append(tensor)
    if activation is not None:
        operators.append(operator_text(activation, parameters))
    elif parameters:
        raise TypeError(f"there is no activation that {', '.join(parameters)} would belong to")
    return torch.ops.fuseplan.chain(  # type: ignore[no-any-return]
        x,
        weight,
        operands,
        strides,
        pads_of(padding, dims, weight.shape[2:], strides, dilations),
        dilations,
        groups,
        " -> ".join(operators),
    )


def operator_text(name: str, parameters: dict[str, float]) -> str:
    """An operator with its numbers, as the operator `chain` has them."""
    return " ".join([name, *(f"{key}={float(value)!r}" for key, value in parameters.items())])


def _per_dimension(value: int | Sequence[int], dims: int) -> list[int]:
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


@functools.lru_cache
def _parse(operators: str) -> tuple[tuple[str, dict[str, float]], ...]:
    """Names and numbers of the operators of a text."""
    parsed = []
    for text in filter(None, operators.split(" -> ")):
        name, *numbers = text.split()
        pairs = (number.partition("=") for number in numbers)
        parsed.append((name, {key: float(value) for key, _, value in pairs}))
    return tuple(parsed)


def _descriptor(tensor: torch.Tensor) -> TensorDescriptor:
    return TensorDescriptor(tuple(tensor.shape), str(tensor.dtype), strides=tuple(tensor.stride()))


def _plan(
    x: TensorDescriptor,
    weight: TensorDescriptor,
    operands: Sequence[torch.Tensor],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    operators: str,
    device: Handle | None,
) -> Plan:
    pads = list(zip(padding[::2], padding[1::2]))
    plan = Plan(x, device=device).conv(weight, stride=stride, padding=pads, dilation=dilation, groups=groups)
    left = list(operands)
    for name, numbers in _parse(operators):
        own = [left.pop(0) for _ in range(min(_OPERANDS.get(name, 0), len(left)))]
        if len(own) < _OPERANDS.get(name, 0):
            raise ValueError(f"there are too few operands for {operators!r}")
        if name == "bias":
            plan.bias(dtype=own[0].dtype)
        elif name == "residual":
            plan.residual(_descriptor(own[0]))
        elif name == "batch_norm":
            plan.batch_norm(dtype=own[0].dtype, **numbers)  # type: ignore[arg-type]
        else:
            plan.activation(name, **numbers)
    if left:
        raise ValueError(f"there are {len(left)} operands more than {operators!r} takes")
    return plan


@functools.lru_cache
def _handle(kind: str, index: int, threads: int) -> Handle:
    if kind != "cpu":
        return Handle("rocm" if torch.version.hip else "cuda", index)
    handle = Handle("cpu")
    return handle if handle.compute_units == threads else Handle("cpu", threads=threads)


def handle_of(device: torch.device) -> Handle:
    """The handle of a device of PyTorch; on the CPU with as many threads as PyTorch has."""
    index = torch.cuda.current_device() if device.type == "cuda" and device.index is None else device.index
    return _handle(device.type, index or 0, torch.get_num_threads())


def _key_of(tensor: torch.Tensor, constant: bool) -> Any:
    kind = (tensor.dtype, tensor.shape, tensor.stride())
    if not constant:
        return kind
    # As long as the plan is kept, so is the memory, so that no other tensor can come to lie there.
    version = 0 if tensor.is_inference() else tensor._version
    return (*kind, tensor.data_ptr(), version)


def _chain(
    x: torch.Tensor,
    weight: torch.Tensor,
    operands: Sequence[torch.Tensor],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    operators: str,
    constant: bool = False,
) -> torch.Tensor:
    tensors = [weight, *operands]
    if torch.is_grad_enabled() and (x.requires_grad or any(tensor.requires_grad for tensor in tensors)):
        raise RuntimeError(
            "fuseplan's operators are for inference, they have no gradient; call them under torch.no_grad() or "
            "torch.inference_mode()"
        )
    steps = _parse(operators)
    residuals = _residuals(steps)
    tf32 = x.is_cuda and x.dtype == torch.float32 and torch.backends.cudnn.allow_tf32
    key = (
        x.device,
        torch.get_num_threads(),
        _key_of(x, False),
        *(_key_of(tensor, constant and at not in residuals) for at, tensor in enumerate(tensors)),
        *(tuple(stride), tuple(padding), tuple(dilation), groups, operators, tf32),
    )
    with _LOCK:
        found = _PLANS.get(key)
        if found is not None:
            _PLANS.move_to_end(key)
    if found is None:
        device = handle_of(x.device)
        described = (_descriptor(x), _descriptor(weight))
        plan = _plan(*described, operands, stride, padding, dilation, groups, operators, device)
        names = list(plan.operands)
        layer = plan.compile(device, tf32=tf32)
        if constant:
            layer = layer.bind(
                **{name: t.detach() for at, (name, t) in enumerate(zip(names, tensors)) if at not in residuals}
            )
            names = [name if at in residuals else "" for at, name in enumerate(names)]
        found = (layer, names)
        with _LOCK:
            _PLANS[key] = found
            if len(_PLANS) > _MOST_PLANS:
                _PLANS.popitem(last=False)
    layer, names = found
    return layer(x.detach(), **{name: tensor.detach() for name, tensor in zip(names, tensors) if name})


def _residuals(steps: Sequence[tuple[str, Any]]) -> set[int]:
    """Where residuals stand among the weights and the operands."""
    found, at = set(), 1
    for name, _ in steps:
        if name == "residual":
            found.add(at)
        at += _OPERANDS.get(name, 0)
    return found


_LIBRARY.impl("chain", _chain, "CPU")  # type: ignore[no-untyped-call]
_LIBRARY.impl("chain", _chain, "CUDA")  # type: ignore[no-untyped-call]


@torch.library.register_fake("fuseplan::chain", lib=_LIBRARY)
def _fake(
    x: torch.Tensor,
    weight: torch.Tensor,
    operands: Sequence[torch.Tensor],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    operators: str,
    constant: bool = False,
) -> torch.Tensor:
    every = (x, weight, *operands)
    if all(type(number) is int for tensor in every for number in (*tensor.shape, *tensor.stride())):
        described = (_descriptor(x), _descriptor(weight))
        plan = _plan(*described, operands, stride, padding, dilation, groups, operators, None)
        return torch.empty_strided(plan.output.shape, plan.output.strides, dtype=x.dtype, device=x.device)
    # With sizes that are symbols: the layouts that PyTorch has a name for.
    sums = [before + after for before, after in zip(padding[::2], padding[1::2])]
    extents = [
        (x.shape[2 + d] + sums[d] - dilation[d] * (weight.shape[2 + d] - 1) - 1) // stride[d] + 1
        for d in range(x.dim() - 2)
    ]
    last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    is_last = x.is_contiguous(memory_format=last) and not x.is_contiguous()
    return torch.empty(
        (x.shape[0], weight.shape[0], *extents),
        dtype=x.dtype,
        device=x.device,
        memory_format=last if is_last else torch.contiguous_format,
    )
