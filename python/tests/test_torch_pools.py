"""Max pools as they are written for Inductor."""

import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

from fuseplan.torch import _pools  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402

POOLS = [
    ((5, 5), (1, 1), (2, 2)),
    ((3, 3), (2, 2), (1, 1)),
    ((3, 3), (2, 2), (0, 0)),
    ((3, 5), (2, 1), (1, 0)),
    ((9, 1), (4, 3), (4, 0)),
    ((13, 13), (1, 1), (6, 6)),
]


def image(layout=torch.contiguous_format, dtype=torch.float32):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 14, 17, dtype=dtype)
    x[0, 0, 3, 4], x[0, 1, :5], x[1, 2, 13, 16] = math.nan, -math.inf, math.inf
    return x.contiguous(memory_format=layout)


@pytest.mark.parametrize("pool", POOLS, ids=str)
@pytest.mark.parametrize("layout", (torch.contiguous_format, torch.channels_last), ids=str)
def test_slices_have_the_pools_maxima(pool, layout):
    for dtype in (torch.float32, torch.bfloat16):
        x = image(layout, dtype)
        maxima = _pools.by_slices(x, *pool)
        torch.testing.assert_close(maxima, torch.max_pool2d(x, *pool), rtol=0, atol=0, equal_nan=True)
        assert maxima.is_contiguous(memory_format=layout)


def test_only_what_is_compiled_is_written_by_slices():
    seen = []

    def backend(graph, inputs):
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op != "output")
        return graph.forward

    x, pool = image(), POOLS[0]
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: _pools.max_pool2d(x, *pool), backend=backend, fullgraph=True)
    for of in (compiled, lambda x: _pools.max_pool2d(x, *pool)):
        torch.testing.assert_close(of(x), torch.max_pool2d(x, *pool), rtol=0, atol=0, equal_nan=True)
    assert not any("max_pool" in target for target in seen) and any("maximum" in target for target in seen)


class Pools(torch.nn.Module):
    """A pool of each kind that is written otherwise, then some that are not."""

    def forward(self, x):
        for pool in POOLS[:4]:
            x = torch.max_pool2d(x, *pool)
        x = torch.max_pool2d(x, (2, 2), (1, 1))
        x = torch.max_pool2d(x, (3, 3), (1, 1), (1, 1), ceil_mode=True)
        return torch.max_pool2d(x, (3, 3), (1, 1), (1, 1), (2, 1))


@pytest.mark.parametrize("decomposed", (False, True))
@pytest.mark.parametrize("compiled", (False, True))
def test_pools_of_graphs_are_replaced_on_gpus(decomposed, compiled):
    x = image()
    x = torch.nn.functional.pad(x, (0, 40, 0, 40))
    exported = torch.export.export(Pools(), (x,))
    module = (exported.run_decompositions({}) if decomposed else exported).module()
    pools = [torch.ops.aten.max_pool2d.default, torch.ops.aten.max_pool2d_with_indices.default]

    def counts():
        targets = [node.target for node in module.graph.nodes]
        return [sum(targets.count(of) for of in pools), targets.count(_pools.by_slices), targets.count(_pools.max_pool2d)]

    before = counts()
    _pools.rewrite(module, compiled=compiled)
    assert counts() == before and before[0] == 7, "on a CPU they stay"
    with FakeTensorMode():
        for node in module.graph.nodes:
            if isinstance(node.meta.get("val"), torch.Tensor):
                node.meta["val"] = torch.empty(node.meta["val"].shape, device="cuda")
    _pools.rewrite(module, compiled=compiled)
    module.graph.lint()
    assert counts() == ([3, 4, 0] if compiled else [3, 0, 4])
    torch.testing.assert_close(module(x), Pools()(x), rtol=0, atol=0, equal_nan=True)
