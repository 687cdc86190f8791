"""The operator `torch.ops.fuseplan.chain`: a convolution or a fully connected layer and the operators behind it, by their names.

What it computes is a text such as `conv stride=1,1 padding=1,1,1,1 dilation=1,1 groups=1 -> bias -> leaky_relu slope=0.1` or
`linear -> bias -> gelu`, the latter on tensors of any rank whose last dimension has the features and whose rows lie at one distance:
methods of `fuseplan.Plan` and names of activations, with their numbers. Each takes its tensors from the list of operands in
turn. A text and not numbers each by itself, as the dispatcher takes longer to hand those to Python than to compute a small
convolution.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import torch

from .._native import (
    Calls,
    CompiledPlan,
    Direct,
    Handle,
    Plan,
    PlanCall,
    TensorDescriptor,
    compile_all,
    dispatch_keys,
)
from ..errors import Error, UnsupportedError
from . import _handles, _text

_LIBRARY = torch.library.Library("fuseplan", "DEF")  # type: ignore[no-untyped-call]
_LIBRARY.define(  # type: ignore[no-untyped-call]
    "chain(Tensor x, Tensor weight, Tensor[] operands, str operators, bool constant=False) -> Tensor",
    tags=(torch.Tag.needs_exact_strides,),
)

# How many tensors an operator takes; an activation takes none.
_OPERANDS = {"bias": 1, "prelu": 1, "residual": 1, "batch_norm": 4}


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
    math: str | None = None,
    **parameters: float,
) -> torch.Tensor:
    """`activation(conv(x, weight) + bias + residual)` as one kernel, of two or three spatial dimensions.

    Padding is as in `torch.nn.functional.conv2d`, or a pair (before, after) for each dimension. Activations and their
    parameters are those of `fuseplan.Plan.activation`. With `math="strict"` each output is the sum of its own products, without
    TF32; else PyTorch's switch says whether that may be used. The result lies in memory as the input does: channels last if that is.
    """
    operands = [of for of in (bias, residual) if of is not None]
    options = (
        x.dim() - 2,
        _fixed(stride),
        _fixed(padding),
        _fixed(dilation),
        groups,
        bias is not None,
        residual is not None,
        activation,
        math,
        tuple((name, float(value)) for name, value in parameters.items()),
    )
    # A padding by its name goes by the weight as well. Where PyTorch traces, it would trace the look-up.
    is_kept = not isinstance(padding, str) and not torch.compiler.is_compiling()
    known = _TEXTS.get(options) if is_kept else None
    text = known or _text.text_of(weight.shape[2:], *options)
    y = torch.ops.fuseplan.chain.default(x, weight, operands, text)
    if is_kept and known is None:
        # What is right of options is right of those that are equal to them, such as 1 and 1.0; what is wrong may not be.
        if len(_TEXTS) >= _MOST_TEXTS:
            _TEXTS.clear()
        _TEXTS[options] = text
    return y  # type: ignore[no-any-return]


# The operator's texts by the options of `conv`, as putting one together takes as long as calling the operator.
_TEXTS: dict[tuple[Any, ...], str] = {}
_MOST_TEXTS = 4096


def _fixed(value: Any) -> Any:
    """An option of numbers, which nobody changes any more."""
    if isinstance(value, (int, str)):
        return value
    return tuple(tuple(of) if isinstance(of, Sequence) else of for of in value)


class _Steps:
    """A text of operators, read."""

    def __init__(self, text: str) -> None:
        convolution, *rest = (self._step(part) for part in text.split(" -> "))
        name, numbers = convolution
        math = numbers.pop("math", None)
        self.math: Literal["strict"] | None = "strict" if math else None
        self.is_linear = name == "linear"
        keys = {"stride", "padding", "dilation", "groups"} if name == "conv" else set()
        if name not in ("conv", "linear") or math not in (None, "strict") or numbers.keys() != keys:
            raise ValueError(
                f"the operators are {text!r}; accepted: conv with stride, padding, dilation and groups, or linear, and math=strict "
                "if that is wanted, then others"
            )
        self.text = text
        if self.is_linear:
            numbers = {"stride": "1,1", "padding": "0,0,0,0", "dilation": "1,1", "groups": "1"}
        rows = {key: [int(number) for number in row.split(",")] for key, row in numbers.items()}
        self.stride, self.padding, self.dilation = (rows[key] for key in ("stride", "padding", "dilation"))
        self.groups = rows["groups"][0]
        self.behind = [(name, {key: float(number) for key, number in row.items()}) for name, row in rest]
        # Where residuals stand among the operands.
        self.residuals = set()
        self.count = 0
        for name, _ in self.behind:
            if name == "residual":
                self.residuals.add(self.count)
            self.count += _OPERANDS.get(name, 0)

    @staticmethod
    def _step(text: str) -> tuple[str, dict[str, str]]:
        name, *numbers = text.split() or [""]
        return name, {key: number for key, _, number in (number.partition("=") for number in numbers)}

    def allows_tf32(self, device: torch.device, dtype: torch.dtype) -> bool:
        return self.math is None and tf32(device, dtype, self.is_linear)

    def plan(
        self,
        x: TensorDescriptor,
        weight: TensorDescriptor,
        operands: Sequence[torch.Tensor],
        device: Handle | None,
        output_strides: Sequence[int] | None = None,
    ) -> Plan:
        if len(operands) != self.count:
            few_or_many = "too few" if len(operands) < self.count else "too many"
            raise ValueError(f"there are {few_or_many} operands for {self.text!r}: {len(operands)}, accepted: {self.count}")
        if self.is_linear:
            if len(weight.shape) != 2 or x.shape[-1:] != weight.shape[1:]:
                sizes = f"{list(x.shape)} and {list(weight.shape)}"
                raise ValueError(f"tensor and matrix are {sizes}; accepted: [..., features] and [outputs, features]")
            x, weight = _rows(x), _rows(weight)
        plan = Plan(x, device=device).conv(
            weight,
            stride=self.stride,
            padding=list(zip(self.padding[::2], self.padding[1::2])),
            dilation=self.dilation,
            groups=self.groups,
            output_strides=output_strides,
        )
        left = iter(operands)
        for name, numbers in self.behind:
            own = [next(left) for _ in range(_OPERANDS.get(name, 0))]
            if name == "bias":
                plan.bias(dtype=own[0].dtype)
            elif name == "prelu":
                plan.prelu(shared=own[0].numel() == 1, dtype=own[0].dtype)
            elif name == "residual":
                like = _descriptor(own[0])
                plan.residual(_rows(like) if self.is_linear else like)
            elif name == "batch_norm":
                plan.batch_norm(dtype=own[0].dtype, **numbers)  # type: ignore[arg-type]
            else:
                plan.activation(name, **numbers)
        return plan

    def output(self, plan: Plan, x: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shape and strides of the result, of the plan for such a tensor."""
        if not self.is_linear:
            return plan.output.shape, plan.output.strides
        shape = (*x.shape[:-1], plan.output.shape[1])
        return shape, TensorDescriptor(shape, plan.output.dtype).strides

    def tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """An image, a weight or a residual as the plan has it: in the same memory, where it lies there as plans take it."""
        if _is_repeated(tensor):
            tensor = tensor.clone(memory_format=torch.contiguous_format)
        if not self.is_linear:
            return tensor
        tensor = tensor if _lies_in_rows(tensor) else tensor.contiguous()
        rows = _descriptor(tensor).rows()
        return tensor.as_strided(rows.shape, rows.strides)


_steps = functools.lru_cache(maxsize=4096)(_Steps)


def check_out(shape: Sequence[int], x: torch.Tensor, out: torch.Tensor) -> None:
    """Refuses a tensor that a result of a shape is not."""
    if (tuple(out.shape), out.dtype, out.device) != (tuple(shape), x.dtype, x.device):
        found, accepted = (f"{of.dtype} {list(lens)} on {of.device}" for of, lens in ((out, out.shape), (x, shape)))
        raise ValueError(f"chain_into: out is {found}; accepted: {accepted}")


def plan_of(
    x: torch.Tensor, weight: torch.Tensor, operands: Sequence[torch.Tensor], operators: str, device: Handle | None, strides: Sequence[int]
) -> Plan:
    """The plan of a call that writes to a tensor of these strides, uncompiled."""
    return _steps(operators).plan(_descriptor(x), _descriptor(weight), operands, device, strides)


def residuals(operators: str) -> set[int]:
    """Where a text's residuals stand among its operands."""
    return _steps(operators).residuals


def _rows(tensor: TensorDescriptor) -> TensorDescriptor:
    """The rows of a tensor, or of its copy where they do not lie as plans take them."""
    try:
        return tensor.rows()
    except ValueError:
        return TensorDescriptor(tensor.shape, tensor.dtype).rows()


def _lies_in_rows(tensor: torch.Tensor) -> bool:
    try:
        _descriptor(tensor).rows()
    except ValueError:
        return False
    return True


def _descriptor(tensor: torch.Tensor) -> TensorDescriptor:
    """A tensor, or its copy where elements are the same memory."""
    strides = None if _is_repeated(tensor) else tuple(tensor.stride())
    return TensorDescriptor(tuple(tensor.shape), str(tensor.dtype), strides=strides)


def _is_repeated(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one that was expanded, of which plans are given a copy, as PyTorch's own kernels are."""
    return 0 in tensor.stride()


def hint(number: int | torch.SymInt) -> int:
    """A length, of a symbol that of the example."""
    return number if isinstance(number, int) else int(number.node.hint)


def formats(tensor: torch.Tensor) -> list[torch.memory_format]:
    """The names that PyTorch has for a tensor's layout; both of two where lengths of 1 make them the same."""
    last = {4: [torch.channels_last], 5: [torch.channels_last_3d]}.get(tensor.dim(), [])
    return [name for name in (torch.contiguous_format, *last) if tensor.is_contiguous(memory_format=name)]


# Devices whose kernels want weights in the image's layout, and are many times slower where these have another. On a CPU
# weights are packed anyway.
_ONE_LAYOUT = {"cuda"}


def _weight_format(device: torch.device, x: torch.Tensor, weight: torch.Tensor) -> torch.memory_format | None:
    """The layout that a weight has to be brought into on a device."""
    if device.type not in _ONE_LAYOUT:
        return None
    # Of a slice of channels that of the whole.
    wanted = formats(x) or formats(torch.empty_like(x, device="meta"))
    return wanted[0] if wanted and not set(wanted) & set(formats(weight)) else None


def _current(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Makes a GPU PyTorch's current one, as it hands out none of another's tensors."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


_Again = Callable[[torch.Tensor, torch.Tensor, Sequence[torch.Tensor], torch.Tensor | None], torch.Tensor]


class _Call:
    """A compiled plan, and what has to be handed to it at a call. Results are new tensors, or written to one like `out`."""

    def __init__(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        operands: Sequence[torch.Tensor],
        operators: str,
        constant: bool,
        out: torch.Tensor | None,
    ) -> None:
        steps, device = _steps(operators), _handles.handle_of(x.device)
        self._format = None if steps.is_linear else _weight_format(x.device, x, weight)
        if self._format is not None:
            weight = _kept_of(weight).laid(weight, self._format) if constant else self._laid(weight)
        given = _descriptor(x), _descriptor(weight), operands, device
        strides = None if out is None or steps.is_linear else out.stride()
        try:
            plan = steps.plan(*given, strides)
        except UnsupportedError as error:
            if out is None or strides is None:
                raise
            plan, strides = steps.plan(*given), None
            check_out(steps.output(plan, x)[0], x, out)
            # On a GPU the result lies in the order of the image, so that another one takes a copy.
            if error.property != "layout":
                raise
        self._copies_result = out is not None and strides is None
        self._layer: CompiledPlan = plan.compile(device, math=steps.math, tf32=steps.allows_tf32(x.device, x.dtype))
        self._steps, self._output = steps, steps.output(plan, x)
        if out is not None:
            check_out(self._output[0], x, out)
        # By their places among image, weight and operands.
        tensors = dict(enumerate((weight, *operands), 1))
        # Those that are not one value a channel.
        self._whole = {1, *(at + 2 for at in steps.residuals)}
        names = dict(enumerate(plan.operands, 1))
        self.constants = [at for at in tensors if at - 2 not in steps.residuals] if constant else []
        if constant:
            # The memory stays as long as the plan does, so that no other tensor can come to lie there.
            self._layer = self._layer.bind(**{names[at]: self._seen(at, tensors[at]) for at in self.constants})
        # Constants are known again by their identity, so the objects stay as well; the weight's end is the plan's.
        self._kept = [tensors[at] for at in self.constants if at != 1]
        self._given = [at for at in tensors if at not in self.constants]
        whole = (x, *(tensors[at] for at in self._whole if at in self._given))
        self._copies = self._copies_result or any(map(_is_repeated, whole)) or (steps.is_linear and not all(map(_lies_in_rows, whole)))
        self._names = {at: names[at] for at in self._given}

    def _laid(self, weight: torch.Tensor) -> torch.Tensor:
        return weight if self._format is None else weight.contiguous(memory_format=self._format)

    def checked(
        self, x: torch.Tensor, weight: torch.Tensor, operands: Sequence[torch.Tensor], out: torch.Tensor | None
    ) -> torch.Tensor:
        """The call, with each tensor looked at."""
        tensors = (x, self._laid(weight) if 1 in self._names else weight, *operands)
        with _current(x.device):
            given = {name: self._seen(at, tensors[at]) for at, name in self._names.items()}
            y = self._layer(self._steps.tensor(x.detach()), out=None if self._copies_result else out, **given)
            y = y.view(self._output[0]) if self._steps.is_linear else y
            return out.copy_(y) if out is not None and self._copies_result else y

    def _seen(self, at: int, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor as the plan has it."""
        tensor = tensor.detach()
        return self._steps.tensor(tensor) if at in self._whole else tensor

    def again(self, x: torch.Tensor) -> PlanCall | _Again:
        """What `checked` computes, in the way that takes least time."""
        if self._copies or (self._format is not None and 1 in self._names):
            return self.checked
        (shape, strides), device = self._output, x.device
        if not x.is_cuda:
            return PlanCall(self._layer, self._given, _EMPTY["cpu"], (shape, strides, x.dtype), None, self._kept)
        # Functions of PyTorch with their arguments, so that a call runs no code of Python.
        elsewhere = functools.partial(torch.empty_strided, shape, strides, dtype=x.dtype, device=device)
        stream = functools.partial(torch._C._cuda_getCurrentRawStream, device.index)  # type: ignore[attr-defined]
        gpu = _Gpu(device.index, torch._C._cuda_getDevice, elsewhere, stream)  # type: ignore[attr-defined]
        return PlanCall(self._layer, self._given, _EMPTY["cuda"], (shape, strides, x.dtype), gpu, self._kept)


class _Gpu(NamedTuple):
    """A GPU: its number, and functions that give that of the current one, an output on this one, and this one's current stream."""

    number: int
    current: Callable[[], int]
    empty: Callable[[], torch.Tensor]
    stream: Callable[[], int]


def _empty_strided(device: str) -> Callable[[Sequence[int], Sequence[int], torch.dtype], torch.Tensor]:
    """What makes a tensor of the host, or of the current GPU. Inductor's way takes a fifth of the public one's time."""
    found = getattr(torch._C._dynamo.guards, f"_empty_strided_{device}", None)
    return found or (lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device=device))


_EMPTY = {device: _empty_strided(device) for device in ("cpu", "cuda")}


class _Kept:
    """What is kept for as long as there is a constant weight: the weight in another layout. Its calls end with it as well."""

    def __init__(self, weight: torch.Tensor) -> None:
        at = id(weight)
        self._end = weakref.ref(weight, lambda _: _forget(at))
        self._laid: tuple[Any, torch.Tensor] | None = None

    def laid(self, weight: torch.Tensor, name: torch.memory_format) -> torch.Tensor:
        """The weight in a layout, which all calls share."""
        key = name, _identity(weight)
        if self._laid is None or self._laid[0] != key:
            self._laid = key, weight.detach().contiguous(memory_format=name)
        return self._laid[1]


# By the identity of weights.
_OF_WEIGHTS: dict[int, _Kept] = {}


def _forget(weight: int) -> None:
    _OF_WEIGHTS.pop(weight, None)
    _CALLS.forget(weight)


def _kept_of(weight: torch.Tensor) -> _Kept:
    known = _OF_WEIGHTS.get(id(weight))
    if known is None:
        known = _OF_WEIGHTS[id(weight)] = _Kept(weight)
    return known


def _identity(tensor: torch.Tensor) -> tuple[Any, ...]:
    """The same as long as a tensor is not changed by PyTorch's operators.

    With its layout, as `.data` and operators in inference mode can give a tensor another without a count.
    """
    # Tensors of inference mode count no changes.
    version = 0 if tensor.is_inference() else tensor._version
    return id(tensor), tensor.data_ptr(), version, tensor.dtype, tensor.shape, tensor.stride()


# PyTorch's switches for convolutions and for products of matrices, as functions without code of Python.
_SWITCHES: tuple[Callable[[], bool], Callable[[], bool]] = (torch._C._get_cudnn_allow_tf32, torch._C._get_cublas_allow_tf32)


def tf32(device: torch.device, dtype: torch.dtype, is_linear: bool = False) -> bool:
    """Whether PyTorch computes the convolution, or the fully connected layer, of such a tensor in TF32."""
    return device.type == "cuda" and dtype == torch.float32 and _SWITCHES[is_linear]()


def compile_ahead(
    device: torch.device,
    calls: Iterable[tuple[torch.Tensor, torch.Tensor, Sequence[torch.Tensor], str, Sequence[int] | None]],
) -> None:
    """Compiles, several at a time, the plans that calls of the operators will need: of image, weight, operands, text and the
    result's strides, if it has its own. Tensors may be without memory.

    What cannot be compiled is said by the call itself.
    """
    handle = _handles.handle_of(device)
    plans: dict[tuple[Literal["strict"] | None, bool], list[Plan]] = {}
    for x, weight, operands, operators, strides in calls:
        steps = _steps(operators)
        laid = None if steps.is_linear else _weight_format(device, x, weight)
        if laid is not None:
            weight = weight.to(device="meta").contiguous(memory_format=laid)
        products = steps.math, steps.allows_tf32(device, x.dtype)
        with contextlib.suppress(Error, ValueError):
            plans.setdefault(products, []).append(
                steps.plan(_descriptor(x), _descriptor(weight), operands, handle, strides)
            )
    for (math, allowed), of in plans.items():
        with contextlib.suppress(Error):
            compile_all(of, handle, math=math, tf32=allowed)


def _first(
    x: torch.Tensor,
    weight: torch.Tensor,
    operands: Sequence[torch.Tensor],
    operators: str,
    constant: bool,
    out: torch.Tensor | None,
) -> tuple[torch.Tensor, PlanCall | _Again, list[int]]:
    """A call that is like none before: its result, what makes such calls again, and the places of its constants."""
    if constant:
        _kept_of(weight)
    with _current(x.device):
        call = _Call(x, weight, operands, operators, constant, out)
    return call.checked(x, weight, operands, out), call.again(x), call.constants


_CALLS = Calls(torch.Tensor, _first, _SWITCHES)
_LIBRARY.impl("chain", _CALLS, "CPU")  # type: ignore[no-untyped-call]
_LIBRARY.impl("chain", _CALLS, "CUDA")  # type: ignore[no-untyped-call]


# PyTorch's own operators that runs have, on tensors alone: what they give says how results lie.
_OWN: dict[str, Callable[..., torch.Tensor]] = {
    "adaptive_avg_pool2d": lambda image: torch.ops.aten.adaptive_avg_pool2d.default(image, [1, 1]),
    "mean": lambda image: torch.ops.aten.mean.dim(image, [2, 3], True),
    "mul": torch.mul,
}


def _direct(dispatched: Callable[..., torch.Tensor]) -> Direct | None:
    """The operator without PyTorch's dispatcher where that would hand a call on; none where PyTorch does not tell, or says
    something else than it does today of modes whose effect is known."""
    library, found = torch._C.__file__, []

    def look() -> None:
        before = dispatch_keys(library)
        with torch.inference_mode():
            within = dispatch_keys(library)
        if before != (0, 0) or within is None or within == before:
            return
        direct = Direct(_CALLS, dispatched, library, within, _OWN)

        def hands_on(mode: contextlib.AbstractContextManager[Any]) -> bool:
            with mode:
                return direct.hands_on()

        plain: tuple[Any, ...] = (contextlib.nullcontext(), torch.no_grad(), torch.inference_mode())
        other: tuple[Any, ...] = (torch.autocast("cpu"), torch.device("cpu"))
        if all(map(hands_on, plain)) and not any(map(hands_on, other)):
            found.append(direct)

    if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        # A thread of its own is in none of the modes that this one may be in.
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    return found[0] if found else None


DIRECT = _direct(torch.ops.fuseplan.chain.default._op)
if DIRECT is not None:
    # What the operator's object calls, whoever calls that: half of a small call's time is PyTorch's way to a kernel and back.
    torch.ops.fuseplan.chain.default._op = DIRECT
