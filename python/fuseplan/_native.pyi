from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, final, overload, type_check_only

__version__: str

class SupportsDlpack(Protocol):
    """An array of NumPy, PyTorch, CuPy, JAX, …"""

    def __dlpack__(self, *, stream: Any = ...) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, int]: ...

class SupportsArrayInterface(Protocol):
    """An array in memory of the host, by NumPy's protocol."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...

Array: TypeAlias = SupportsDlpack | SupportsArrayInterface
_A = TypeVar("_A", bound=Array)

def devices() -> list[tuple[str, int, str, str]]:
    """The devices of this machine, those of the preferred backend first: backend, number, name, architecture."""

@final
class Handle:
    """A device, and the stream that plans run on there. May be used by several threads at once.

    `Handle()` is the best device that can compile (or what `FUSEPLAN_BACKEND` names), `Handle("cuda")` the device that the
    calling thread has chosen by CUDA's own means, `Handle("cuda", 1)` one by its number, `Handle("cpu", threads=4)` the CPU
    with so many threads.

    `stream` is the number of a stream of the device (a `cudaStream_t` or `hipStream_t`), which outlives the handle. Without
    one, tensors of PyTorch are computed in PyTorch's current stream, and a call with arrays of other libraries on a GPU
    returns when the GPU is done.
    """

    def __new__(
        cls,
        backend: str | None = None,
        ordinal: int | None = None,
        *,
        threads: int | None = None,
        stream: int | None = None,
    ) -> Handle: ...
    @property
    def backend(self) -> str: ...
    @property
    def ordinal(self) -> int: ...
    @property
    def name(self) -> str:
        """The maker's name of the device."""

    @property
    def arch(self) -> str:
        """What kernels are compiled for: `x86-64+avx512`, `sm_90a`."""

    @property
    def compute_units(self) -> int:
        """Threads of the CPU, multiprocessors or compute units."""

    @property
    def stream(self) -> int: ...
    @property
    def openmp(self) -> Path | None:
        """The OpenMP runtime on whose threads plans run; none where they run on the library's own, as they do unless
        `fuseplan.torch` has opened the handle. A copy that was pickled has threads of the library's."""

    def synchronize(self) -> None:
        """Waits until everything in the stream has run."""

@final
class TensorDescriptor:
    """Data type, shape and strides of a tensor, the shape always as N, C, (D,) H, W.

    `layout` is "NCHW", "NHWC", "NCDHW" or "NDHWC"; strides are in elements. Without either the tensor is packed with the last
    dimension innermost. "NCHWc4", "NCHWc8" and "NCHWc16" have their channels in blocks of so many, of which C is a multiple:
    such a tensor has no strides, and its arrays are packed and of shape N, C/b, H, W, b (`array_shape`).
    """

    def __new__(
        cls,
        shape: Sequence[int],
        dtype: object = None,
        *,
        strides: Sequence[int] | None = None,
        layout: str | None = None,
    ) -> TensorDescriptor: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def layout(self) -> str | None:
        """The layout of a packed tensor: of several that it fits, the one that it was described by."""

    @property
    def array_shape(self) -> tuple[int, ...]:
        """The shape of an array with this tensor: `shape`, but where channels lie in blocks."""

    @property
    def strides(self) -> tuple[int, ...]:
        """In elements. An `OperandError` where channels lie in blocks."""

    def rows(self) -> TensorDescriptor:
        """The tensor, whose last dimension has features, as images of one pixel in the same memory: [rows, features, 1, 1].

        So a plan of a 1x1 convolution computes a fully connected layer, whose matrix [outputs, features] has the convolution's
        weights as its rows. A `ValueError` where features do not lie side by side, or rows not at one distance.
        """

Given: TypeAlias = Array | TensorDescriptor | Sequence[int]
"""An array, or what it will be: a descriptor, or a shape of the plan's data type in the plan's layout."""

_PerDimension: TypeAlias = int | Sequence[int]

@final
class Plan:
    """A chain of operators that is computed as one kernel, in the order in which they are appended.

    The input is an array (of which only type, shape and strides are looked at), a `TensorDescriptor`, or a shape with `dtype`
    (f32 if not given) and `layout` or `strides`. An array of shape N, C/b, H, W, b is a tensor of blocks of channels where `layout`
    says so ("NCHWc8"). With `device`, what that device cannot compute is refused by the method that
    appends it, else by `compile`.

    Each method appends one operator and returns the plan. A refusal is an `UnsupportedError`, which leaves the plan as it
    was. An array that is given for an operand is constant: it is kept alive, must not change, and what kernels derive from it
    (packed weights) is made once. Operands without an array are keywords of the compiled plan's calls. `name` is that
    keyword; by default it is the operand's, numbered from the second on (`bias`, `bias2`).
    """

    def __new__(
        cls,
        input: Given,
        *,
        dtype: object = None,
        strides: Sequence[int] | None = None,
        layout: str | None = None,
        device: Handle | None = None,
    ) -> Plan: ...
    def conv(
        self,
        weight: Given,
        *,
        stride: _PerDimension | None = None,
        padding: _PerDimension | Sequence[tuple[int, int]] | str | None = None,
        dilation: _PerDimension | None = None,
        groups: int = 1,
        output_layout: str | None = None,
        output_strides: Sequence[int] | None = None,
        name: str | None = None,
    ) -> Plan:
        """A convolution, as the first operator: filters K, C/groups, (D,) H, W.

        Padding is a number, one for each dimension, or a pair (before, after) for each; "same" and "valid" are PyTorch's. The
        output lies as the input does, or is packed in `output_layout`, a layout as of `TensorDescriptor`, whatever the input's is,
        or has `output_strides`, in elements, with which no elements overlap: those of a slice of a larger array, which a call is
        given as `out`. Nothing but the slice is written.
        """

    def bias(
        self, bias: Array | None = None, *, dtype: object = None, name: str | None = None
    ) -> Plan:
        """Adds one value a channel: an array of shape (C,) or (1, C, 1, 1), of the plan's data type or f32.

        Where no array is given, `dtype` is its type; by default the plan's.
        """

    def prelu(
        self,
        slope: Array | None = None,
        *,
        shared: bool = False,
        dtype: object = None,
        name: str | None = None,
    ) -> Plan:
        """`x > 0 ? x : slope * x`, with one slope a channel, or one for all: an array of shape (C,), (1, C, 1, 1) or of one
        value, of the plan's data type or f32.

        Where no array is given, `shared` says that there is one slope for all, and `dtype` is its type; by default the plan's.
        """

    def residual(self, like: Given | None = None, *, name: str | None = None) -> Plan:
        """Adds a tensor of the output's shape, with the strides of `like`, else of the output. It is given at each call."""

    def batch_norm(
        self,
        scale: Array | None = None,
        bias: Array | None = None,
        mean: Array | None = None,
        variance: Array | None = None,
        *,
        eps: float = 1e-5,
        per_activation: bool = False,
        dtype: object = None,
        name: str | None = None,
    ) -> Plan:
        """`scale * (x - mean) / sqrt(variance + eps) + bias`, for inference: parameters, one a channel, are all f32 or all of
        the plan's data type. Where no arrays are given, `dtype` is their type; by default f32.

        Operands without an array are `bn_scale`, `bn_bias`, `bn_mean` and `bn_variance` at calls, or begin with `name`.
        """

    def activation(self, mode: str, **parameters: float) -> Plan:
        """An activation by PyTorch's name, with its parameters by theirs: identity, sigmoid, tanh (alpha, beta:
        `beta * tanh(alpha * x)`), relu, relu6 (max), leaky_relu (slope), elu (alpha), clamp (min, max), silu, hardswish,
        hardsigmoid, gelu, gelu_tanh, mish, softplus, abs, power (alpha, beta, gamma: `(alpha + beta * x) ** gamma`)."""

    def compile(
        self,
        device: Handle | None = None,
        *,
        find: bool | None = None,
        math: Literal["precise", "tf32", "strict"] | None = None,
        tf32: bool = False,
        solver: str | None = None,
    ) -> CompiledPlan:
        """One kernel for a device: the one given, the plan's, the one in whose memory its arrays lie, or the best.

        `find` times the solvers' configurations and takes the fastest (by default as the environment says), `solver` names
        the only solver to consider. `math` says how far results may be from the formulas: "precise", the default, allows
        errors of the order of a sum of f32 products, which Winograd's convolution has; "strict" makes each output the sum of
        its own products; "tf32" allows f32 factors to be rounded to TF32 besides, and `tf32=True` is short for it.
        """

    def fastest_layouts(
        self,
        device: Handle | None = None,
        *,
        math: Literal["precise", "tf32", "strict"] | None = None,
        tf32: bool = False,
    ) -> list[LayoutTime]:
        """The layouts that input, output and residuals could all have on a device, whatever they have now, the fastest first.

        Every solver is timed, for up to a tenth of a second each. Filters lie as the input does, or as NCHW where that has blocks of
        channels. A layout is left out where channels are no whole blocks of it, or no solver takes it. A network that keeps its
        tensors in one layout does best in the one whose seconds, summed over its layers, are least.
        """

    @property
    def input(self) -> TensorDescriptor: ...
    @property
    def output(self) -> TensorDescriptor: ...
    @property
    def operators(self) -> list[str]: ...
    @property
    def operands(self) -> dict[str, TensorDescriptor]:
        """All operands, by the names that calls have for them."""

    def __copy__(self) -> Plan: ...

@final
class LayoutTime:
    """A layout of a plan's tensors, and how long the fastest solver takes with it."""

    @property
    def layout(self) -> str: ...
    @property
    def solver(self) -> str: ...
    @property
    def seconds(self) -> float: ...

def compile_all(
    plans: Sequence[Plan],
    device: Handle | None = None,
    *,
    find: bool | None = None,
    math: Literal["precise", "tf32", "strict"] | None = None,
    tf32: bool = False,
    solver: str | None = None,
) -> list[CompiledPlan]:
    """What `Plan.compile` makes of each plan, several at a time: as many as there are processors, one where `find` times.

    All are for one device: the one given, or the one that `compile` of the first plan takes. An error is that of the first plan that has one.
    """

@final
class CompiledPlan:
    """A plan compiled for a device. May be called by several threads at once; they compute at the same time."""

    @overload
    def __call__(self, input: _A, /, *, out: None = None, **operands: Array) -> _A: ...
    @overload
    def __call__(self, input: Array, /, *, out: _A, **operands: Array) -> _A:
        """Computes the plan, with the operands that are not constant by their names.

        Arrays are read where they lie: one with another type, shape or strides than the plan's, or on another device, is an
        `OperandError`. The result is `out`, or a new array of NumPy or PyTorch as the input is one. On a GPU tensors of
        PyTorch are computed in PyTorch's current stream; see `Handle`.
        """

    def bind(self, **operands: Array) -> CompiledPlan:
        """The same kernel with these operands as constants, in place of those of the same names."""

    def explain(self) -> str:
        """The problem, the solver that was chosen with its choices, and why others were not."""

    def to_bytes(self) -> bytes:
        """The kernel's binary, for `from_bytes` with an equal plan, a device of this architecture and this version."""

    @staticmethod
    def from_bytes(
        plan: Plan,
        data: bytes,
        device: Handle | None = None,
        *,
        math: Literal["precise", "tf32", "strict"] | None = None,
        tf32: bool = False,
    ) -> CompiledPlan:
        """What an equal plan was compiled to in the same math mode, without compiling anything.

        The bytes hold machine code, which will be run: they must come from `to_bytes` and from somebody who is trusted.
        """

    @property
    def handle(self) -> Handle: ...
    @property
    def input(self) -> TensorDescriptor: ...
    @property
    def output(self) -> TensorDescriptor: ...
    @property
    def operands(self) -> dict[str, TensorDescriptor]: ...
    @property
    def constants(self) -> list[str]:
        """The names of the operands that have an array."""

    @property
    def solver(self) -> str: ...
    @property
    def kernels(self) -> int:
        """How many kernels a call launches."""

_Node: TypeAlias = tuple[str, str, Sequence[int], TensorDescriptor | None, bool, Mapping[str, Any]]

def find_chains(
    nodes: Sequence[_Node],
    device: Handle | None = None,
    *,
    times: bool = False,
    tf32: bool = False,
) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
    """The chains of a graph that plans compute, and the convolutions and fully connected layers that none takes, by node with the
    reason.

    A node is its name, its operation, its inputs (numbers of nodes before it), its value, whether that is a result of the
    graph, and the operation's parameters. Operations: constant, conv (stride, padding as pairs, dilation, groups, transposed if it is; x,
    weight, bias), linear (x, matrix [outputs, features], bias), batch_norm (eps; x, scale, bias, mean, variance), add, multiply, maximum,
    affine (scale, shift: `scale · x + shift`), erf, cube, activation (mode and its parameters), prelu (x, slope), other.

    A chain is a dictionary: `steps`, each a tuple of the plan's method or activation, the node, the nodes of its operands,
    and its parameters; `tail`, the node whose value the chain computes; `end`, why it has no further step; with
    `times` also `expected_seconds`, the time of an execution by the device's model of it, None where it has no model.
    """

def spelled_out(nodes: Sequence[_Node]) -> list[bool]:
    """Of each of such nodes whether it is part of an activation that is written as several, which a chain has as one."""

def rebuild(
    input: Given,
    device: Handle | None,
    calls: Sequence[tuple[str, Mapping[str, Any]]],
    memory: tuple[int, int] | None,
) -> Plan:
    """A plan that was pickled."""

def restore(
    plan: Plan, device: Handle, math: str, data: bytes, constants: Mapping[str, Array]
) -> CompiledPlan:
    """A compiled plan that was pickled: its binary where that fits the device and this version, else compiled anew."""

_Tensor: TypeAlias = Any
"""A tensor of PyTorch, which the package does not need."""

@final
class PlanCall:
    """A call of a plan that `Calls` makes again.

    `given` are the places among image, weight and operands of those that are no constants, but for the image; `empty(*output)`
    makes an output as the plan describes it, where there are several devices on PyTorch's current one. `gpu` is None on a
    CPU; of a GPU it has its `number`, and functions: `current()` is the number of the current GPU, `empty()` makes the
    output on this one, and `stream()` is the number of its current stream. `kept` lives as long as this does.
    """

    def __new__(
        cls,
        plan: CompiledPlan,
        given: Sequence[int],
        empty: Callable[..., _Tensor],
        output: tuple[Any, ...],
        gpu: _Gpu | None,
        kept: object,
    ) -> PlanCall: ...

@type_check_only
class _Gpu(Protocol):
    @property
    def number(self) -> int: ...
    @property
    def current(self) -> Callable[[], int]: ...
    @property
    def empty(self) -> Callable[[], _Tensor]: ...
    @property
    def stream(self) -> Callable[[], int]: ...

def openmp_handle(threads: int, library: str) -> Handle | None:
    """The CPU on the threads of the OpenMP runtime that a loaded library calls, if it calls one, by the functions that GCC's
    programs call, whose teams on this thread have so many threads.
    """

@final
class Calls:
    """PyTorch's operators `chain` and `chain_into`, which make a call again that is like one before: with the same operators,
    with tensors of the same types, shapes, strides and devices, and where it has constants, with the same ones, unchanged by
    PyTorch's count.

    `first` makes a call that is like none before, whose last argument is what `chain_into` writes to, or None. Of its three values
    the first is the result, the second makes such a call again, as a `PlanCall` or a function of image, weight, operands and that
    last argument, and the third has the places of constants among those.
    `switches` are functions for what else says how an image on a GPU is computed. Tensors are looked at by the function in C
    that `tensor_class` has for DLPack, if it has one, else by their attributes.
    """

    def __new__(
        cls,
        tensor_class: type,
        first: Callable[
            [_Tensor, _Tensor, Sequence[_Tensor], str, bool, _Tensor | None],
            tuple[
                _Tensor,
                PlanCall | Callable[[_Tensor, _Tensor, Sequence[_Tensor], _Tensor | None], _Tensor],
                Sequence[int],
            ],
        ],
        switches: Sequence[Callable[[], bool]],
    ) -> Calls: ...
    def __call__(
        self, x: _Tensor, weight: _Tensor, operands: list[_Tensor], operators: str, constant: bool = False
    ) -> _Tensor: ...
    def into(
        self,
        x: _Tensor,
        weight: _Tensor,
        operands: list[_Tensor],
        operators: str,
        out: _Tensor,
        constant: bool = False,
    ) -> None: ...
    def refuse_gradients(self, tensors: Sequence[_Tensor]) -> None:
        """Raises the error of a call where gradients of one of the tensors would be recorded."""

    def forget(self, weight: int) -> None:
        """Lets go of the calls with constants whose weight was the object of this `id`."""

    def clear(self) -> None: ...
    def __len__(self) -> int:
        """How many calls can be made again."""

@final
class Direct:
    """PyTorch's operator `chain` as Python calls it. A call that `calls` knows to be like one before does not pass PyTorch's
    dispatcher where that would hand it to the kernel as it is: where no mode, transform, tracer, profiler or autocast takes it on
    its way, and tensors are nothing but tensors that record no gradient. Every other call is `dispatched`'s.

    `library` is a loaded library of PyTorch's; `of_inference` are the keys (`dispatch_keys`) of a thread in inference mode; `own`
    are PyTorch's operators that runs have beside `chain`.
    """

    def __new__(
        cls,
        calls: Calls,
        dispatched: Callable[..., _Tensor],
        library: str,
        of_inference: tuple[int, int],
        own: Mapping[str, Callable[..., _Tensor]],
    ) -> Direct: ...
    def __call__(self, *args: Any, **kwargs: Any) -> _Tensor: ...
    def hands_on(self) -> bool:
        """Whether the dispatcher would hand calls of this thread to the kernel as they are, unless a tensor is more than one."""

    def run(
        self,
        program: str,
        buffers: Mapping[str, _Tensor],
        names: Sequence[str],
        guards: tuple[Any, ...] | None,
        tensors: Sequence[_Tensor],
    ) -> list[_Tensor] | None:
        """The results of calls behind each other, if each is like one before and goes directly; None if not.

        The first line of the program has the numbers of the results, each further one a call: `constant 0 1 2: conv … -> bias` of
        the tensors 0 to 2, `variable` where weight and biases are no constants; behind the first `mean 3: …` and `product 3 4: …` too,
        of f32 on a CPU and by the names of PyTorch's operators, for the mean of an image over its pixels and its product with numbers
        of each image and channel, and `view 5: 1,1000` for a call's result with other lengths, by which alone it is read. Numbers are
        those of `tensors`, then of the buffers that have these names, then of the calls' results in their order. What is not returned
        has memory that other runs are given afterwards. Before the first run with tensors of such layouts `guards` is called, a function in front of
        its arguments.
        """

def dispatch_keys(library: str) -> tuple[int, int] | None:
    """What the calling thread adds to tensors' dispatch keys and takes from them, beside what all threads begin with; None
    where the libraries that this one of PyTorch's depends on do not tell.
    """
