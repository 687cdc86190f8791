"""Plans and compiled plans as objects: names, constants, threads, storing."""

import copy
import gc
import pickle
import threading
import time
import weakref

import fuseplan
import numpy as np
import pytest

RNG = np.random.default_rng(3)
X = RNG.uniform(-1, 1, (1, 8, 10, 10)).astype(np.float32)
W = RNG.uniform(-1, 1, (16, 8, 3, 3)).astype(np.float32)
B = RNG.uniform(-1, 1, 16).astype(np.float32)


def test_a_plan_says_what_it_is():
    plan = fuseplan.Plan(X).conv(W, padding=1).bias().bias().residual().batch_norm().activation("silu")
    assert list(plan.operands) == [
        *("weight", "bias", "bias2", "residual"),
        *("bn_scale", "bn_bias", "bn_mean", "bn_variance"),
    ]
    assert plan.operands["weight"] == fuseplan.TensorDescriptor(W.shape)
    assert plan.operands["residual"] == plan.output
    assert (plan.output.shape, plan.output.dtype) == ((1, 16, 10, 10), "float32")
    assert plan.operators[-1] == "ActivationForward(SILU)" and len(plan.operators) == 6


def test_descriptors():
    last = fuseplan.TensorDescriptor((2, 3, 4, 5), "float16", layout="NHWC")
    assert last.strides == (60, 1, 15, 3)
    assert last == fuseplan.TensorDescriptor((2, 3, 4, 5), np.float16, strides=(60, 1, 15, 3))
    assert last != fuseplan.TensorDescriptor((2, 3, 4, 5), np.dtype("float16"))
    assert pickle.loads(pickle.dumps(last)) == last and hash(last) == hash(copy.copy(last))
    plan = fuseplan.Plan((2, 3, 4, 5), dtype="float16", layout="NHWC")
    assert plan.input == last
    # Filters given as a shape lie as the input does.
    assert plan.conv((8, 3, 1, 1)).output.strides[1] == 1


def test_names_are_the_callers_to_choose():
    plan = fuseplan.Plan(X).conv(W.shape, name="w").bias(name="shift")
    layer = plan.compile()
    assert np.array_equal(layer(X, w=W, shift=B), fuseplan.Plan(X).conv(W).bias(B).compile()(X))


def test_a_copy_goes_its_own_way():
    plan = fuseplan.Plan(X).conv(W)
    other = copy.copy(plan).bias(B)
    assert (len(plan.operators), len(other.operators)) == (1, 2)


def test_constants_are_kept_alive_and_bound_to_one_kernel():
    w = W.copy()
    alive = weakref.ref(w)
    layer = fuseplan.Plan(X).conv(w).bias().compile()
    expected = fuseplan.Plan(X).conv(W).bias(B).compile()(X)
    del w
    gc.collect()
    assert alive() is not None
    assert layer.constants == ["weight"] and np.array_equal(layer(X, bias=B), expected)
    both = layer.bind(bias=B)
    assert np.array_equal(both(X), expected)
    doubled = both.bind(weight=2 * W, bias=2 * B)
    np.testing.assert_allclose(doubled(X), 2 * expected, rtol=1e-6)
    with pytest.raises(fuseplan.OperandError):
        layer.bind(bias=B[:3])
    with pytest.raises(TypeError, match="no operand shift"):
        layer.bind(shift=B)
    del layer, both, doubled
    gc.collect()
    assert alive() is None


def test_out_is_written_and_returned():
    layer = fuseplan.Plan(X).conv(W).compile()
    out = np.empty((1, 16, 8, 8), np.float32)
    assert layer(X, out=out) is out and np.array_equal(out, layer(X))


def test_explain_and_info():
    layer = fuseplan.Plan(X).conv(W).bias(B).compile(fuseplan.Handle("cpu"), solver="cpu.reference.v1")
    assert layer.solver == "cpu.reference.v1" and layer.kernels == 1
    assert "cpu.reference.v1" in layer.explain() and "conv 16 3x3 -> bias" in layer.explain()
    # Two solvers take it.
    found = fuseplan.Plan(X).conv((8, 1, 3, 3), groups=8).compile(find=True)
    assert "measured" in found.explain()


def test_plans_and_compiled_plans_are_pickled():
    plan = fuseplan.Plan(X).conv(W, padding="same").bias().residual().activation("elu", alpha=0.5)
    layer = plan.compile()
    arguments = {"bias": B, "residual": RNG.uniform(-1, 1, (1, 16, 10, 10)).astype(np.float32)}
    expected = layer(X, **arguments)
    again = pickle.loads(pickle.dumps(plan))
    assert repr(again) == repr(plan) and np.array_equal(again.compile()(X, **arguments), expected)
    restored = pickle.loads(pickle.dumps(layer.bind(bias=B)))
    assert restored.constants == ["weight", "bias"] and restored.solver == layer.solver
    assert np.array_equal(restored(X, residual=arguments["residual"]), expected)


def test_math_modes():
    plan, winograd = fuseplan.Plan(X).conv(W, padding=1), {"solver": "cpu.winograd.v1"}
    handle = fuseplan.Handle("cpu")
    layers = {math: plan.compile(handle, math=math) for math in ("precise", "tf32", "strict")}
    marks = {math: repr(layer).partition(" by ")[0].rpartition("(")[2] for math, layer in layers.items()}
    assert marks["strict"] == "strict)" and marks["tf32"] == "TF32 allowed)"
    assert repr(plan.compile(handle, tf32=True)) == repr(plan.compile(handle, math="tf32", tf32=True)) == repr(layers["tf32"])
    assert repr(plan.compile(handle)) == repr(layers["precise"])
    # Winograd's convolution multiplies sums of neighbours, which a strict plan has none of.
    assert plan.compile(handle, **winograd).solver == "cpu.winograd.v1"
    with pytest.raises(fuseplan.UnsupportedError, match="accuracy is exact products"):
        plan.compile(handle, math="strict", **winograd)
    # The mode is stored with the plan, and has to be that of the bytes.
    strict = layers["strict"]
    assert repr(pickle.loads(pickle.dumps(strict))) == repr(strict)
    assert repr(fuseplan.CompiledPlan.from_bytes(plan, strict.to_bytes(), handle, math="strict")) == repr(strict)
    with pytest.raises(fuseplan.Error):
        fuseplan.CompiledPlan.from_bytes(plan, strict.to_bytes(), handle)
    with pytest.raises(ValueError, match="math is exact; accepted: precise, tf32, strict"):
        plan.compile(handle, math="exact")
    with pytest.raises(ValueError, match="math is strict, and tf32 is True"):
        plan.compile(handle, math="strict", tf32=True)


def test_bytes_load_for_an_equal_plan_only():
    plan = fuseplan.Plan(X).conv(W)
    data = plan.compile().to_bytes()
    assert np.array_equal(fuseplan.CompiledPlan.from_bytes(plan, data)(X), plan.compile()(X))
    with pytest.raises(fuseplan.Error):
        fuseplan.CompiledPlan.from_bytes(fuseplan.Plan(X).conv(W, padding=1), data)
    with pytest.raises(fuseplan.Error):
        fuseplan.CompiledPlan.from_bytes(plan, data[:-1])
    with pytest.raises(fuseplan.Error):
        fuseplan.CompiledPlan.from_bytes(plan, b"")


def test_a_plan_is_compiled_for_where_its_arrays_lie(monkeypatch):
    monkeypatch.setenv("FUSEPLAN_BACKEND", "nowhere")
    x, w = np.ones((1, 2, 3, 3), np.float32), np.ones((1, 2, 3, 3), np.float32)
    of_input, of_weights = fuseplan.Plan(x).conv(w.shape), fuseplan.Plan(x.shape).conv(w)
    for plan in (of_input, of_weights, copy.copy(of_input), pickle.loads(pickle.dumps(of_input))):
        assert plan.compile()(x, **({} if plan is of_weights else {"weight": w})) == [18]
    # Without arrays the best device is taken, which here cannot be had.
    with pytest.raises(fuseplan.DeviceError):
        fuseplan.Plan(x.shape).conv(w.shape).compile()


def test_a_handle_is_pickled_as_its_device():
    handle = pickle.loads(pickle.dumps(fuseplan.Handle("cpu", threads=2)))
    assert (handle.backend, handle.compute_units) == ("cpu", 2)
    assert fuseplan.devices()[-1][:2] == ("cpu", 0)


def test_other_threads_run_python_while_a_plan_computes():
    x = RNG.uniform(-1, 1, (1, 64, 64, 64)).astype(np.float32)
    w = RNG.uniform(-1, 1, (64, 64, 3, 3)).astype(np.float32)
    # The slowest solver, so that a call takes a while.
    slow = fuseplan.Handle("cpu", threads=1)
    layer = fuseplan.Plan(x).conv(w, padding=1).compile(slow, solver="cpu.reference.v1")
    span = []

    def compute():
        span.append(time.perf_counter())
        layer(x)
        span.append(time.perf_counter())

    thread = threading.Thread(target=compute)
    thread.start()
    ticks = []
    while thread.is_alive():
        ticks.append(time.perf_counter())
        time.sleep(0.001)
    thread.join()
    begin, end = span
    quarter = (end - begin) / 4
    # Well within the call, which is the only thing that the other thread does meanwhile.
    assert any(begin + quarter < tick < end - quarter for tick in ticks)


def test_many_threads_share_a_compiled_plan():
    layer = fuseplan.Plan(X).conv(W, padding=1).bias(B).activation("gelu").compile()
    inputs = [X * (1 + i) for i in range(8)]
    expected = [layer(x) for x in inputs]
    wrong = []

    def run(i):
        for _ in range(20):
            if not np.array_equal(layer(inputs[i]), expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
