"""Whole networks: exported, chains found, and each chain's nodes replaced by one operator."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch.utils import _pytree as pytree

from .._native import Handle, TensorDescriptor, find_chains
from . import (
    _calls,
    _choice,
    _concatenations,
    _constants,
    _handles,
    _head,
    _layouts,
    _linear,
    _operator,
    _permutations,
    _phases,
    _pools,
    _runs,
    _text,
    _tokens,
    _weights,
)
from ._chains import Chain, begins, chain_of, of_one_dimension, transposed, without_memory
from ._export import as_tuple, export, written
from ._nodes import Described, describe
from ._report import Fused, Optimized, Report, Unfused

def optimize(
    model: torch.nn.Module,
    args: torch.Tensor | tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    choose: str = "measure",
    memory_format: torch.memory_format | None = None,
    math: str | None = None,
    rest: str = "eager",
) -> Optimized:
    """The network with each convolution and each fully connected layer, and the batch-norm, bias, residual and activation behind
    it, as one kernel.

    The model has to be in `eval()`; `args` are example inputs, as for `torch.export.export`, by which it is exported. What no
    plan takes stays PyTorch's; with `choose="measure"` so does what PyTorch computes faster on the example's shapes and on
    this machine, with `choose="all"` it does not. The result's attribute `fuseplan_report` says what became of each
    of them. Weights with batch-norms or constants folded in, of phases, that the network computes, or in another layout, are its own and do not follow the model's, and
    numbers that activations are written with do not either; whoever changes weights does it by PyTorch's in-place operators.

    Convolutions have the layout that `memory_format` names: `torch.preserve_format` is the one that PyTorch gives them,
    `torch.channels_last` and `torch.channels_last_3d` bring weights of four and five dimensions into it, so that what follows
    from the first of them has it too. By default they are channels-last where all operators are PyTorch's and take any layout: on
    CPUs always, on GPUs where the device's model of the plans' time expects less than 0.95 times as much of it, copies included.
    Elsewhere they are what PyTorch gives them. Results that are contiguous or channels-last stay so either way; those of a call
    in another layout than the example's may lie as the example's do.

    `math` is that of `conv`, for all plans; what stays PyTorch's is computed as PyTorch does.

    `rest` is who computes what is in no plan: "eager", PyTorch operator by operator, or "inductor", for a result that is given to
    `torch.compile`, whose plans write to where their values are concatenated on a GPU, where transposed convolutions and those of
    images whose pixels were repeated are a plan for each phase of the result's pixels, and whose operators behind a convolution are
    taken for one kernel where PyTorch is asked how fast it is.
    """
    if rest not in ("eager", "inductor"):
        raise ValueError(f"rest is {rest!r}; accepted: 'eager', 'inductor'")
    choice = _choice.of_name(choose, rest)
    _text.check_math(math)
    graph = _calls.by_position(export(model, args, kwargs, dynamic_shapes))
    with torch.no_grad():
        changing = written(graph.graph)
        constants = [node for node in graph.graph.nodes if node.op == "get_attr" and node.target not in changing]
        values = {node: _attribute(graph, node.target) for node in constants}
        _weights.once(graph, values)
        _linear.unify(graph, values, keeps_constants=True)
        _reshape_any_layout(graph)
        inputs = pytree.tree_leaves((as_tuple(args), dict(kwargs or {})))
        if math != "strict":
            _constants.gates_once(graph)
            _head.as_convolutions(graph, values)
        _constants.as_batch_norms(graph, values)
        _constants.into_transposed(graph, values)
        _constants.into_layers(graph, values)
        if memory_format is not torch.preserve_format:
            _tokens.batch_first(graph)
        _layouts.observe(graph, inputs)
        # What observing has put down are the example's lengths, also for symbols.
        writes_concatenations = rest == "inductor" and dynamic_shapes is None
        is_laid_anyway = _concatenations.is_written_as_read if writes_concatenations else lambda node: False
        laid_out = _layouts.lay_out(
            graph, values, inputs, memory_format, lambda: _expected(graph, values, math), is_laid_anyway
        )
        _permutations.move_behind(graph)
        without_phases = None
        if dynamic_shapes is not None:
            without_phases = "its lengths are not fixed"
        elif rest != "inductor":
            # Where nothing compiles the network or captures it, `chain_into` keeps the host busy for longer than `chain` does.
            without_phases = "it would be several plans, which is for rest='inductor'"
        report = rewrite(graph, values, choice, folds=True, math=math, without_phases=without_phases)
        if laid_out and memory_format is None and not any(of.operators[0] != "linear" for of in report.fused):
            # The layout was chosen for plans of convolutions, of which there are none.
            options: dict[str, Any] = {"dynamic_shapes": dynamic_shapes, "choose": choose, "math": math, "rest": rest}
            return optimize(model, args, kwargs, memory_format=torch.preserve_format, **options)
        result = cast("Optimized", graph)
        result.fuseplan_report = report
        _drop_unused(graph, values)
        if writes_concatenations:
            _concatenations.rewrite(graph)
        _pools.rewrite(graph, compiled=False)
    return result


def _reshape_any_layout(graph: torch.fx.GraphModule) -> None:
    """Makes views into reshapes, which are right for every layout.

    Exporting turns a reshape into a view where the strides that it was traced with allow one. Tensors of a call have others
    where its input has another layout than the example, and where an operator of PyTorch keeps a layout that tracing did not
    expect. Nothing writes into a view, so that it may be a copy.
    """
    for node in graph.graph.nodes:
        if node.op == "call_function" and node.target is torch.ops.aten.view.default:
            node.target = torch.ops.aten.reshape.default


def rewrite(
    module: torch.fx.GraphModule,
    values: Mapping[torch.fx.Node, Any],
    choice: _choice.Choice | None,
    *,
    folds: bool,
    math: str | None,
    without_phases: str | None = None,
) -> Report:
    """Replaces the chains of a graph without in-place operators.

    `values` has the nodes that are the same at every call, attributes or inputs, with their values. Where these stay what
    they are, batch-norms are folded into weights, and what has phases is computed by them, unless there is a reason for none. Where
    there is a choice, only the chains that it finds faster are replaced.
    """
    nodes, chains, unfused = _find(module, values, math)
    handle = _handle(values)

    def has_phases(node: torch.fx.Node) -> bool:
        """Whether `transposed` says more of a node."""
        return folds and _phases.is_conv_transpose(node) and _phases.is_on_device(node)

    said = [(nodes[at], reason) for at, reason in unfused if not has_phases(nodes[at])]
    report = Report(
        unfused=[Unfused(node.name, reason, begins(node)) for node, reason in said],
        threads=_handles.whose_threads(handle) if handle is not None else None,
    )
    tails = []
    of_graph = [(chain_of(found, nodes, values, folds, math, without_phases is None), found["end"]) for found in chains]
    if folds:
        of_graph += transposed(nodes, values, math, without_phases, report)
    report.unfused += of_one_dimension(nodes)
    _compile_ahead([chain for chain, _ in of_graph], values)
    for number, (chain, end) in enumerate(of_graph):
        times = choice(module, chain, values) if choice is not None else None
        if choice is not None and times is not None and times.slower and chain.undivided is not None:
            chain = chain.undivided
            times = choice(module, chain, values)
        if times is not None and times.slower:
            reason = f"it is slower as a plan: {times}"
            report.unfused.append(Unfused(chain.head.name, reason, begins(chain.head)))
        else:
            tails.append((number, chain))
            operators = (begins(chain.head), *chain.operators)
            plans = len(chain.phases.each) if chain.phases is not None else 1
            report.fused.append(Fused(chain.head.name, operators, end, times, plans))
    replaced: dict[torch.fx.Node, torch.fx.Node] = {}
    for number, chain in tails:
        replaced[chain.tail] = _replace(module, chain, number, replaced)
    module.graph.eliminate_dead_code()
    _head.as_they_were(module)
    module.graph.lint()  # type: ignore[no-untyped-call]
    _read_tensors_directly(module)
    between = _runs.between(module.graph)
    module.graph.on_generate_code(lambda before: lambda lines: _runs.in_runs(before(lines) if before else lines, between))
    module.recompile()
    return report


def _read_tensors_directly(module: torch.fx.GraphModule) -> None:
    """Lets a graph's code look for parameters and buffers where PyTorch keeps them.

    As attributes they are found by a function of Python's, behind all that attributes may be, at each step of their path; with two
    tensors for each chain that takes longer than the dispatcher.
    """
    direct = {}
    for node in module.graph.find_nodes(op="get_attr"):
        *path, name = node.target.split(".")
        owner = operator.attrgetter(".".join(path))(module) if path else module
        kept = next((kept for kept in ("_parameters", "_buffers") if name in getattr(owner, kept, {})), None)
        if kept is not None:
            steps = "".join(f"._modules[{of!r}]" for of in path)
            direct[torch.fx.graph._format_target("self", node.target)] = f"self{steps}.{kept}[{name!r}]"

    def read(line: str) -> str:
        name, _, value = line.rstrip("\n").partition(" = ")
        return f"{name} = {direct[value]}\n" if value in direct else line

    def lines(code: Sequence[str]) -> list[str]:
        return [read(line) for line in "".join(code).splitlines(keepends=True)]

    module.graph.on_generate_code(lambda before: lambda code: lines(before(code) if before else code))


def _compile_ahead(chains: Sequence[Chain], values: Mapping[torch.fx.Node, Any]) -> None:
    """Compiles the plans of chains together, before each is called for the first time."""
    calls: dict[torch.device, list[Any]] = {}
    for chain in chains:
        of = (chain.image, chain.weight, *chain.operands)
        tensors = [values.get(given, given.meta.get("val")) if isinstance(given, torch.fx.Node) else given for given in of]
        if not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
            continue
        image, weight, *operands = map(without_memory, tensors)
        image = chain.brought(image)
        operands = [operand.flatten() if at in chain.flat else operand for at, operand in enumerate(operands)]
        of_device = calls.setdefault(tensors[0].device, [])
        if chain.phases is None:
            of_device.append((image, weight, operands, chain.text, None))
            continue
        out = without_memory(chain.tail.meta["val"])
        for phase in chain.phases.each:
            strides = chain.phases.part(out, phase).stride()
            of_device.append((image, without_memory(phase.weight), chain.phases.own(operands, phase), phase.text, strides))
    for device, of_device in calls.items():
        if device.type != "meta":
            _operator.compile_ahead(device, of_device)


def _handle(values: Mapping[torch.fx.Node, Any]) -> Handle | None:
    """The handle of the device that all constants are on, if it is one."""
    devices = {tensor.device for tensor in values.values() if isinstance(tensor, torch.Tensor)}
    return _handles.handle_of(next(iter(devices))) if len(devices) == 1 else None


def _find(
    module: torch.fx.GraphModule, values: Mapping[torch.fx.Node, Any], math: str | None, *, times: bool = False
) -> tuple[list[torch.fx.Node], list[dict[str, Any]], list[tuple[int, str]]]:
    """The nodes of a graph, and what the finder of chains says of them by their numbers."""
    nodes = list(module.graph.nodes)
    constants = [tensor for tensor in values.values() if isinstance(tensor, torch.Tensor)]
    device = _handle(values)
    numbers = {node: index for index, node in enumerate(nodes)}
    described = [describe(node, numbers, values) for node in nodes]
    if times:
        _describe_as_run(nodes, described)
    tf32 = math is None and any(_operator.tf32(tensor.device, tensor.dtype) for tensor in constants)
    chains, unfused = find_chains(described, device, times=times, tf32=tf32)
    return nodes, chains, unfused


def _describe_as_run(nodes: Sequence[torch.fx.Node], described: list[Described]) -> None:
    """Gives images and weights of convolutions the layout of PyTorch's result, into which they are brought."""
    for index, (_, kind, inputs, value, *_) in enumerate(described):
        wanted = _layouts.formats(nodes[index]) if kind == "conv" and value is not None else []
        for at in inputs[:2] if wanted else ():
            name, what, of, tensor, is_result, parameters = described[at]
            if tensor is not None and value is not None and len(tensor.shape) == len(value.shape):
                strides = torch.empty(tensor.shape, memory_format=wanted[-1], device="meta").stride()
                tensor = TensorDescriptor(tensor.shape, tensor.dtype, strides=list(strides))
                described[at] = (name, what, of, tensor, is_result, parameters)


def _expected(
    module: torch.fx.GraphModule, values: Mapping[torch.fx.Node, Any], math: str | None
) -> dict[torch.fx.Node, float]:
    """The seconds that the plans of convolutions are expected to take, where the device has a model."""
    nodes, chains, _ = _find(module, values, math, times=True)
    begins = ((found["steps"][0], found["expected_seconds"]) for found in chains)
    times = ((nodes[first[1]], seconds) for first, seconds in begins if first[0] == "conv")
    return {node: seconds for node, seconds in times if seconds is not None}


def _attribute(module: torch.nn.Module, path: str) -> Any:
    return operator.attrgetter(path)(module)


def _replace(
    module: torch.fx.GraphModule,
    chain: Chain,
    number: int,
    replaced: Mapping[torch.fx.Node, torch.fx.Node],
) -> torch.fx.Node:
    """Puts one operator in the place of a chain."""
    graph = module.graph

    def node(name: str, given: torch.fx.Node | torch.Tensor) -> torch.fx.Node:
        if isinstance(given, torch.fx.Node):
            return replaced.get(given, given)
        full = f"fuseplan_{name}_{number}"
        while hasattr(module, full):
            full += "_"
        module.register_buffer(full, given)
        return graph.get_attr(full)

    with graph.inserting_before(chain.tail):
        image = node("image", chain.image)
        filters = node("weight", chain.weight) if chain.phases is None else None
        if chain.image_format is not None:
            value = chain.brought(image.meta["val"])
            kwargs: dict[str, Any] = {"memory_format": chain.image_format}
            image = graph.call_function(torch.ops.aten.contiguous.default, (image,), kwargs)
            image.meta["val"] = value
        operands = [node(f"operand{at}", given) for at, given in enumerate(chain.operands)]
        for at in chain.flat:
            value = operands[at].meta["val"].view(-1)
            operands[at] = graph.call_function(torch.ops.aten.view.default, (operands[at], [-1]))
            operands[at].meta["val"] = value
        if chain.phases is None:
            new = writer = graph.call_function(
                torch.ops.fuseplan.chain.default, (image, filters, operands, chain.text, chain.constant)
            )
        else:
            weights = [node(f"weight{at}", phase.weight) for at, phase in enumerate(chain.phases.each)]
            like = chain.tail.meta["val"]
            new, writer = chain.phases.write(graph, image, weights, operands, like, chain.constant)
        new.meta.update({key: value for key, value in chain.tail.meta.items() if key in ("val", "tensor_meta")})
        # The value of the graph before, which comparisons look for, if there is one.
        if (of := chain.tail.meta.get("fuseplan_of", chain.tail.name)) is not None:
            writer.meta.update(fuseplan=of, fuseplan_order=chain.tail.meta.get("fuseplan_order"))
    chain.tail.replace_all_uses_with(new)
    return new


def _drop_unused(module: torch.fx.GraphModule, values: Mapping[torch.fx.Node, Any]) -> None:
    """Lets go of parameters that were folded."""
    used = {node.target for node in module.graph.nodes if node.op == "get_attr"}
    for path in {str(node.target) for node in values} - used:
        owner, _, name = path.rpartition(".")
        holder = _attribute(module, owner) if owner else module
        if name in holder._parameters or name in holder._buffers:
            delattr(holder, name)
