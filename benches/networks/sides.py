"""Who is timed: PyTorch's ways of running a network, and ours. Each makes a program of a model and an example."""

import dataclasses
from collections.abc import Callable
from typing import Any

import fuseplan.torch
import torch

from . import engines


@dataclasses.dataclass
class Program:
    """A network that is ready to be called, on an input of the layout that it was made for."""

    call: Callable[[torch.Tensor], Any]
    x: torch.Tensor
    # What became of the convolutions, where plans compute some.
    reports: list = dataclasses.field(default_factory=list)


def arranged(model, x, layout):
    """A model and its input in a layout."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}[x.dim()]
    memory_format = last if layout == "nhwc" else torch.contiguous_format
    return model.to(memory_format=memory_format), x.to(memory_format=memory_format)


def eager(model, x, layout):
    return Program(*arranged(model, x, "nchw"))


def channels_last(model, x, layout):
    return Program(*arranged(model, x, "nhwc"))


def compiled(**options):
    def make(model, x, layout):
        model, x = arranged(model, x, layout)
        return Program(torch.compile(model, dynamic=False, **options), x)

    return make


def engine(load, dtypes):
    def make(model, x, layout):
        if x.is_cuda or x.dtype not in dtypes:
            raise ValueError(f"this engine is timed on CPUs, in {' and '.join(str(dtype) for dtype in dtypes)}")
        model, x = arranged(model, x, "nchw")
        return Program(load(model, x), x)

    return make


def optimized(choose):
    def make(model, x, layout):
        model, x = arranged(model, x, layout)
        fused = fuseplan.torch.optimize(model, x, choose=choose)
        return Program(fused, x, [fused.fuseplan_report])

    return make


def optimized_and_compiled(model, x, layout):
    model, x = arranged(model, x, layout)
    fused = fuseplan.torch.optimize(model, x, choose="all", rest="inductor")
    return Program(torch.compile(fused, dynamic=False), x, [fused.fuseplan_report])


def compiled_with_plans(model, x, layout):
    model, x = arranged(model, x, layout)
    program = Program(model, x)
    # The function and not its name, which is known only where the package is installed.
    program.call = torch.compile(
        model, dynamic=False, backend=fuseplan.torch.backend, options={"report": program.reports.append})
    return program


# `eager` and the engines run on contiguous tensors whatever the configuration's layout is, the others but `channels-last` in the
# configuration's.
PEERS = {
    "eager": eager,
    "channels-last": channels_last,
    "compile": compiled(),
    "freezing": compiled(options={"freezing": True}),
    "max-autotune": compiled(mode="max-autotune-no-cudagraphs"),
    "onnxruntime": engine(engines.onnxruntime, [torch.float32]),
    "openvino": engine(engines.openvino, [torch.float32, torch.bfloat16]),
}
OURS = {
    "measure": optimized("measure"),
    "all": optimized("all"),
    "inductor": optimized_and_compiled,
    "compile": compiled_with_plans,
}
SIDES = {**PEERS, **{f"ours-{name}": make for name, make in OURS.items()}}
