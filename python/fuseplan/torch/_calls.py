"""How an optimized network is called.

A module of `torch.export` holds what it is given against the trees of arguments that it was exported with, in Python, and takes its
results through another such tree. On a CPU core of 2.5 GHz that is 0.1 ms a call, which is what ten or twenty plans take to launch.
"""

from __future__ import annotations

import torch
from torch.utils import _pytree as pytree


def by_position(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The same network as Python's own function of its tensors, where it is exported with tensors by position and has one as its result;
    else itself. It holds the lengths of what it is given against the example's as before."""
    codegen = module.graph._codegen
    if not isinstance(codegen, torch.fx.graph._PyTreeCodeGen):
        return module
    given = module.graph.find_nodes(op="placeholder")
    are_tensors = all(isinstance(node.meta.get("val"), torch.Tensor) for node in given)
    trees = codegen.pytree_info
    if not are_tensors or trees.in_spec != pytree.tree_structure(((0,) * len(given), {})) or trees.out_spec != pytree.tree_structure(0):
        return module
    # Where a graph does not call this module, it is the hook that looks at the lengths as well.
    if not module.graph.find_nodes(op="call_module", target="_guards_fn"):
        return module
    module.graph.set_codegen(torch.fx.graph.CodeGen())  # type: ignore[no-untyped-call]
    (output,) = module.graph.find_nodes(op="output")
    ((result,),) = output.args
    output.args = (result,)
    # The hooks of a module of `torch.export` stay behind with it.
    called = torch.fx.GraphModule(module, module.graph)
    called.meta.update(module.meta)
    return called.eval()
