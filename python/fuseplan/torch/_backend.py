"""`torch.compile(model, backend="fuseplan")`: chains of the graph as plans, the rest compiled by Inductor."""

from __future__ import annotations

import contextlib
import copy
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx

from . import _choice, _concatenations, _linear, _pools, _text
from ._report import Report, Unfused
from ._rewrite import rewrite

_LOG = logging.getLogger("fuseplan.torch")


def backend(
    graph: torch.fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compiles a graph of `torch.compile`, whose backend "fuseplan" this is.

    Options: `choose` and `math`, as of `optimize`; `rest`, who computes what is in no chain: "inductor", "eager", or "auto", which is
    Inductor where there is a compiler for it; `report`, a function that is called with the report of each graph. Every other
    option, and `mode`, is Inductor's.

    Plans are for inference: a graph whose gradients are wanted is left to Inductor as it is, with a warning.
    """
    patches = dict(options or {})
    choose, rest, tell = patches.pop("choose", "measure"), patches.pop("rest", "auto"), patches.pop("report", None)
    math = patches.pop("math", None)
    _text.check_math(math)
    if rest not in ("auto", "inductor", "eager"):
        raise ValueError(f"rest is {rest!r}; accepted: 'auto', 'inductor', 'eager'")
    if rest == "auto":
        rest = "inductor" if _has_compiler(inputs) else "eager"
    choice = _choice.of_name(choose, rest)
    if torch.is_grad_enabled() and any(_wants_gradient(given) for given in inputs):
        warnings.warn(
            "fuseplan's plans are for inference, and gradients are wanted: nothing is fused. Call the compiled model under "
            "torch.no_grad() or torch.inference_mode()",
            stacklevel=2,
        )
        return _rest(graph, inputs, rest, mode, patches)
    lowered, report = _lower(graph, inputs, choice, math)
    if rest == "inductor" and report.fused:
        _concatenations.rewrite(lowered)
        _pools.rewrite(lowered, compiled=True)
    if choice is None or rest != "inductor" or not report.fused:
        compiled = _rest(lowered, inputs, rest, mode, patches)
    else:
        # Inductor computes a whole network in a layout of its choice, of which a chain by itself knows nothing.
        options = _inductor_options(mode, patches)
        with_plans, whole = (_timed(of, inputs, options) for of in (lowered, graph))
        times = _choice.of_graphs(with_plans, whole, inputs)
        if times.slower:
            reason = f"the whole graph is slower with plans: {times}"
            report = Report(unfused=[*(Unfused(of.name, reason, of.operators[0]) for of in report.fused), *report.unfused])
        chosen = (graph, whole) if times.slower else (lowered, with_plans)
        compiled = _inductor(chosen[0], inputs, options) if _uses_cuda_graphs(options) else chosen[1]
    _LOG.info("%s", report)
    if tell is not None:
        tell(report)
    return compiled


def _wants_gradient(given: Any) -> bool:
    return isinstance(given, torch.Tensor) and given.requires_grad


def _lower(
    graph: torch.fx.GraphModule, inputs: Sequence[Any], choice: _choice.Choice | None, math: str | None
) -> tuple[torch.fx.GraphModule, Report]:
    """The graph of ATen's operators with its chains replaced, of the same inputs."""
    before = graph.graph.find_nodes(op="placeholder")
    fakes = [node.meta["example_value"] for node in before]
    # Python's own decompositions keep the inference form of batch-norm. The tensors that they make are fake as well.
    modes = (fake.fake_mode for fake in fakes if isinstance(fake, FakeTensor))
    with next(modes, contextlib.nullcontext()), enable_python_dispatcher():
        traced = make_fx(torch.func.functionalize(graph, remove="mutations"))(*fakes)
    traced.graph.eliminate_dead_code()
    after = traced.graph.find_nodes(op="placeholder")
    writes = traced.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    if any(node.args[0] in after for node in writes):
        # What is returned may be the input itself, which only the graph as it was says.
        _LOG.info("a graph that changes its inputs is left as it is")
        return graph, Report()
    # What Inductor and its CUDA graphs know of inputs, such as which lie at the same place at every call.
    for old, new in zip(before, after, strict=True):
        new._dynamo_source = old._dynamo_source
        new.meta.update((key, old.meta[key]) for key in ("tensor_dict", "grapharg") if key in old.meta)
    traced.meta.update(graph.meta)
    traced._param_name_to_source = graph._param_name_to_source
    constants = {
        new: given
        for new, given in zip(after, inputs)
        if isinstance(given, torch.nn.Parameter)
        or new.meta.get("tensor_dict", {}).get("_dynamo_static_input_type")
    }
    _linear.unify(traced, constants, keeps_constants=False)
    with torch.no_grad():
        return traced, rewrite(traced, constants, choice, folds=False, math=math)


def _has_compiler(inputs: Sequence[Any]) -> bool:
    """Whether Inductor finds what it compiles for the inputs' devices with."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler
    from torch.utils._triton import has_triton

    if any(isinstance(given, torch.Tensor) and given.is_cuda for given in inputs):
        return has_triton()
    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return False
    return True


def _inductor_options(mode: str | None, patches: Mapping[str, Any]) -> dict[str, Any]:
    import torch._inductor

    return {**(torch._inductor.list_mode_options(mode) if mode else {}), **patches}


def _uses_cuda_graphs(options: Mapping[str, Any]) -> bool:
    import torch._inductor.config

    return bool(options.get("triton.cudagraphs", torch._inductor.config.triton.cudagraphs))


def _timed(graph: torch.fx.GraphModule, inputs: Sequence[Any], options: Mapping[str, Any]) -> Callable[..., Any]:
    """The graph as Inductor compiles it without CUDA graphs, whose first calls are recordings; what it was stays for those."""
    if _uses_cuda_graphs(options):
        # Of the same tensors.
        graph = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
        options = {**options, "triton.cudagraphs": False}
    return _inductor(graph, inputs, options)


def _rest(
    graph: torch.fx.GraphModule,
    inputs: Sequence[Any],
    rest: str,
    mode: str | None,
    patches: Mapping[str, Any],
) -> Callable[..., Any]:
    return graph.forward if rest == "eager" else _inductor(graph, inputs, _inductor_options(mode, patches))


def _inductor(graph: torch.fx.GraphModule, inputs: Sequence[Any], options: Mapping[str, Any]) -> Callable[..., Any]:
    import torch._inductor

    return torch._inductor.compile(graph, list(inputs), options=dict(options))  # type: ignore[no-any-return]
