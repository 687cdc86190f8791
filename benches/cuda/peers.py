"""cuDNN by PyTorch's calls and by its own graph API, and the results that all sides must give."""

import sys

import torch
import torch.nn.functional as F

from .timing import LAYOUTS, replays

try:
    import cudnn
except ImportError as error:
    cudnn = None
    print(f"no plans of cuDNN's graph API: {error}", file=sys.stderr)

# What fuseplan's C library has of the networks' activations.
ACTIVATIONS = {"relu": F.relu_, "relu6": lambda y: F.hardtanh_(y, 0.0, 6.0), "sigmoid": torch.sigmoid_,
               "silu": lambda y: F.silu(y, inplace=True), "hardswish": lambda y: F.hardswish(y, inplace=True),
               "hardsigmoid": lambda y: F.hardsigmoid(y, inplace=True), "gelu": F.gelu}

# Those that a plan of the graph API is built with here; a layer with another has no such plan beside it.
GRAPH_ACTIVATIONS = {
    "relu": lambda graph, y: graph.relu(y),
    "relu6": lambda graph, y: graph.relu(y, upper_clip=6.0),
    "sigmoid": lambda graph, y: graph.sigmoid(y),
}


def geometry(layer):
    return [list(layer.strides), list(layer.pads), list(layer.dilations), layer.groups]


def unfused(layer, x, weights, bias, residual):
    """Convolution, addition and activation as PyTorch's own calls."""
    convolve = F.conv3d if len(layer.image) == 3 else F.conv2d
    y = convolve(x, weights, bias, *geometry(layer))
    return ACTIVATIONS.get(layer.activation, lambda y: y)(y if residual is None else y.add_(residual))


def exact(layer, operands):
    """The result in f32 of one image, whose products and sums are f32."""
    x, weights, bias, residual = operands
    first = [tensor if tensor is None else tensor.float() for tensor in
             (x[:1], weights, bias, None if residual is None else residual[:1])]
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        return unfused(layer, *first)


def fused(layer, operands):
    """The one call of cuDNN that PyTorch has for the layer, if it has one."""
    x, weights, bias, residual = operands
    if layer.activation != "relu":
        return None
    if residual is None:
        return torch.cudnn_convolution_relu(x, weights, bias, *geometry(layer))
    return torch.cudnn_convolution_add_relu(x, weights, residual, 1.0, bias, *geometry(layer))


def times(layer, dtype, layout, tf32, sets, plans):
    """Microseconds of every side that takes the layer, and of each of the graph API's plans, in their order; None of one that
    does not run."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=tf32):
        found = {"unfused": replays(lambda s: unfused(layer, *s), sets)}
        if layer.activation == "relu":
            found["fused"] = replays(lambda s: fused(layer, s), sets)
    # The graph API computes f32 in TF32 unasked, so it is no peer of f32's.
    of_plans = graph_plans(layer, dtype, layout, sets, plans) if plans and (dtype != torch.float32 or tf32) else []
    found["graph"] = min((time for time in of_plans if time), default=None)
    return found, of_plans


def graph_plans(layer, dtype, layout, sets, most):
    """The times of the plans that cuDNN's heuristics name first."""
    if cudnn is None or layer.activation not in ("none", *GRAPH_ACTIVATIONS):
        return []
    types = {torch.float16: cudnn.data_type.HALF, torch.bfloat16: cudnn.data_type.BFLOAT16,
             torch.float32: cudnn.data_type.FLOAT}
    io, out = types[dtype], [layer.batch, layer.filters, *layer.output()]
    try:
        handle = cudnn.create_handle()
        graph = cudnn.pygraph(io_data_type=io, intermediate_data_type=cudnn.data_type.FLOAT,
                              compute_data_type=cudnn.data_type.FLOAT, handle=handle)
        x, weights = (graph.tensor_like(operand) for operand in sets[0][:2])
        y = graph.conv_fprop(image=x, weight=weights, padding=list(layer.pads), stride=list(layer.strides),
                             dilation=list(layer.dilations))
        bias = residual = None
        if layer.shift:
            ones = [1] * len(layer.image)
            bias = graph.tensor(dim=[1, out[1], *ones], stride=[out[1], 1, *(out[1] for _ in ones)], data_type=io)
            y = graph.bias(input=y, bias=bias)
        if layer.residual:
            residual = graph.tensor_like(sets[0][3])
            y = graph.add(a=y, b=residual)
        if layer.activation in GRAPH_ACTIVATIONS:
            y = GRAPH_ACTIVATIONS[layer.activation](graph, y)
        # Left to itself, the graph writes NHWC whatever the input is.
        like = torch.empty(out, device="cuda", dtype=dtype, memory_format=LAYOUTS[layout][len(out)])
        y.set_output(True).set_data_type(io).set_dim(out).set_stride(list(like.stride()))
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.B, cudnn.heur_mode.FALLBACK])
    except Exception as error:  # noqa: BLE001 cuDNN's exceptions have no common base
        print(f"  graph API refuses: {str(error).splitlines()[0]}", file=sys.stderr)
        return []
    times, results = [], [torch.empty_like(like) for _ in sets]
    for plan in range(min(most, graph.get_execution_plan_count())):
        try:
            graph.build_plan_at_index(plan)
            workspace = torch.empty(max(1, graph.get_workspace_size_plan_at_index(plan)), device="cuda", dtype=torch.uint8)

            def call(s):
                cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
                index = next(i for i, t in enumerate(sets) if t is s)
                named = {x: s[0], weights: s[1], bias: s[2], residual: s[3], y: results[index]}
                tensors = {name: tensor for name, tensor in named.items() if name is not None}
                graph.execute_plan_at_index(tensors, workspace, plan, handle=handle)

            times.append(replays(call, sets))
        except Exception as error:  # noqa: BLE001
            print(f"  plan {plan}: {str(error).splitlines()[0]}", file=sys.stderr)
            times.append(None)
    return times
