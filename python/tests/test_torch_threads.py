"""Plans of `fuseplan.torch` on PyTorch's own threads. Each test is a process of its own, as threads and their numbers are."""

import os
import subprocess
import sys
import textwrap

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads by Linux's /proc"),
    pytest.mark.skipif(
        "ATen parallel backend: OpenMP" not in torch.__config__.parallel_info(), reason="PyTorch has no threads of OpenMP's"
    ),
]

PRELUDE = """
import ctypes, os, pathlib, sys, threading, time
import torch
import fuseplan
import fuseplan.torch as ft
from fuseplan.torch import _handles

def threads():
    "The threads of the process, by their numbers, with their names."
    return {int(task.name): (task / "comm").read_text().strip() for task in pathlib.Path("/proc/self/task").iterdir()}

def seconds(thread):
    "How long a thread has run."
    return int(pathlib.Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[0]) / 1e9

torch.manual_seed(0)
x, w, b = torch.randn(1, 32, 40, 40), torch.randn(64, 32, 3, 3), torch.randn(64)

def plan():
    with torch.no_grad():
        return ft.conv(x, w, b, padding=1, activation="relu")
"""


def run(program, **environment):
    code = PRELUDE + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_plans_and_pytorchs_operators_share_threads():
    run("""
        torch.set_num_threads(3)
        before = set(threads())
        torch.randn(1 << 22).relu_()
        team = set(threads()) - before
        assert len(team) == 2, team
        for _ in range(20):
            plan()
        assert set(threads()) - before == team, threads()
        assert not any(name.startswith("fuseplan") for name in threads().values()), threads()
        handle = _handles.handle_of(x.device)
        assert handle.compute_units == 3 and handle.openmp, handle
        assert str(handle.openmp) in pathlib.Path("/proc/self/maps").read_text()
    """)


def test_pytorchs_threads_compute():
    # Threads that wait use no time here, so that what they use is work.
    run("""
        torch.set_num_threads(2)
        before = set(threads())
        plan()
        (worker,) = set(threads()) - before
        began, own = seconds(worker), seconds(os.getpid())
        end = time.monotonic() + 60
        while seconds(worker) - began < 0.02:
            assert time.monotonic() < end, (seconds(worker) - began, seconds(os.getpid()) - own)
            plan()
    """, GOMP_SPINCOUNT="0")


def test_threads_that_sleep_are_left_alone():
    run("""
        torch.set_num_threads(2)
        assert _handles.handle_of(x.device).openmp is None
        end = time.monotonic() + 60
        while not any(name.startswith("fuseplan") for name in threads().values()):
            assert time.monotonic() < end, threads()
            plan()
    """, OMP_WAIT_POLICY="Passive")


def test_threads_that_do_not_come_are_not_waited_for_again_and_again():
    run("""
        torch.set_num_threads(2)
        before = set(threads())
        plan()
        (worker,) = set(threads()) - before
        # The other thread comes when this one sleeps, which OpenMP's runtime has it do after milliseconds.
        processor = {min(os.sched_getaffinity(0))}
        for thread in (os.getpid(), worker):
            os.sched_setaffinity(thread, processor)
        os.sched_setscheduler(worker, os.SCHED_IDLE, os.sched_param(0))

        def seconds_of(count):
            torch.set_num_threads(count)
            for _ in range(5):
                plan()
            start = time.perf_counter()
            for _ in range(300):
                plan()
            return time.perf_counter() - start

        ratios = []
        while not ratios or ratios[-1] > 4:
            assert len(ratios) < 10, ratios
            ratios.append(seconds_of(2) / seconds_of(1))
    """)


def test_results_do_not_depend_on_the_number_of_threads():
    run("""
        before, results = len(threads()), []
        for count in (1, 2, 5, 3, 1):
            torch.set_num_threads(count)
            results.append(plan())
            assert _handles.handle_of(x.device).compute_units == count
            # Of a smaller team PyTorch's runtime ends threads.
            assert count == 1 or len(threads()) - before == count - 1, (count, threads())
        own = fuseplan.Handle("cpu", threads=2)
        layer = fuseplan.Plan(x).conv(w, padding=1).bias(b).activation("relu").compile(own)
        assert own.openmp is None
        assert all(torch.equal(result, layer(x)) for result in results)
    """)


def test_each_thread_has_its_own_number():
    run("""
        results = {}

        def work(count):
            torch.set_num_threads(count)
            results[count] = [plan() for _ in range(10)], _handles.handle_of(x.device).compute_units

        own = [threading.Thread(target=work, args=(count,)) for count in (1, 2, 3, 4)]
        for thread in own:
            thread.start()
        for thread in own:
            thread.join()
        expected = plan()
        assert results.keys() == {1, 2, 3, 4}
        for count, (of, units) in results.items():
            assert units == count and all(torch.equal(result, expected) for result in of)
    """)


def test_in_a_region_of_openmps_plans_are_computed_by_the_calling_thread():
    run("""
        torch.set_num_threads(2)
        expected = plan()
        runtime = ctypes.CDLL(str(_handles.handle_of(x.device).openmp))
        # Teams within teams are possible, so that they would be seen.
        runtime.omp_set_max_active_levels(2)
        results, inside = [], []

        @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        def region(_):
            before = set(threads())
            results.append(plan())
            inside.append(set(threads()) - before)

        runtime.GOMP_parallel(region, None, 2, 0)
        assert len(results) == 2 and all(torch.equal(result, expected) for result in results)
        assert not any(inside), inside
    """)


def test_children_of_a_fork_compute_by_themselves():
    run("""
        torch.set_num_threads(2)
        expected = plan()
        child = os.fork()
        if child == 0:
            # PyTorch's own operators would wait for a thread of the parent's.
            same = plan().numpy().tobytes() == expected.numpy().tobytes()
            alone = len(threads()) == 1
            torch.set_num_threads(3)
            with torch.no_grad():
                again = ft.conv(x, w, None, padding=1)
            os._exit(0 if same and alone and again.shape == expected.shape else 1)
        end = time.monotonic() + 60
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() > end:
                os.kill(child, 9)
                raise AssertionError("the child hangs")
            time.sleep(0.01)
        assert ended[1] == 0, ended
        assert torch.equal(plan(), expected)
    """)


def test_children_of_a_fork_before_any_plan_compute():
    run("""
        torch.set_num_threads(2)
        torch.randn(1 << 20).relu_()
        child = os.fork()
        if child == 0:
            result = plan()
            handle = _handles.handle_of(x.device)
            os._exit(0 if result.shape == (1, 64, 40, 40) and handle.openmp is None else 1)
        end = time.monotonic() + 60
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() > end:
                os.kill(child, 9)
                raise AssertionError("the child hangs")
            time.sleep(0.01)
        assert ended[1] == 0, ended
    """)


def test_explanations_say_whose_threads_they_are():
    printed = run("""
        torch.set_num_threads(2)
        network = torch.nn.Sequential(torch.nn.Conv2d(32, 64, 3, padding=1), torch.nn.ReLU()).eval()
        print(ft.optimize(network, x, choose="all").fuseplan_report)
        layer = fuseplan.Plan(x).conv(w, padding=1)
        print(layer.compile(_handles.handle_of(x.device)).explain())
        print(layer.compile(fuseplan.Handle("cpu", threads=2)).explain())
        # As where PyTorch has threads of another kind.
        _handles._handle.cache_clear()
        _handles.openmp_looks_for_work = lambda: False
        assert _handles.handle_of(x.device).openmp is None
        print(ft.optimize(network, x, choose="all").fuseplan_report)
    """)
    assert "1 of 1 convolutions are plans, on PyTorch's threads\n" in printed
    assert "1 of 1 convolutions are plans, on threads of the library's\n" in printed
    lines = [line for line in printed.splitlines() if line.startswith("threads ")]
    assert lines[0].startswith("threads    2 of /") and "omp" in lines[0], lines
    assert lines[1] == "threads    2 of the library's own"


def test_another_runtime_than_pytorchs_is_not_taken():
    run("""
        from fuseplan._native import openmp_handle
        torch.set_num_threads(2)
        assert openmp_handle(2, torch._C.__file__).openmp
        assert openmp_handle(3, torch._C.__file__) is None
    """)


def test_chains_of_a_run_share_a_region():
    """They are the same bits for any number of threads, called by several threads at once, and behind an operator that fails."""
    run("""
        from concurrent.futures import ThreadPoolExecutor
        layers = [layer for at in range(6) for layer in (torch.nn.Conv2d(32, 32, (1, 3)[at % 2], padding=at % 2), torch.nn.ReLU())]
        net, y = torch.nn.Sequential(*layers).eval(), torch.randn(1, 32, 24, 24)
        torch.set_num_threads(1)
        fused = ft.optimize(net, y, choose="all")
        assert "fuseplan_run" in fused.code
        with torch.no_grad():
            expected = fused(y)
            for count in (2, 3, 2):
                torch.set_num_threads(count)
                for _ in range(50):
                    assert torch.equal(fused(y), expected)
                before = set(threads())
                torch.randn(1 << 22).relu_()
                assert set(threads()) == before

        def work(_):
            torch.set_num_threads(2)
            with torch.no_grad():
                return [fused(y) for _ in range(20)]

        with ThreadPoolExecutor(4) as pool:
            assert all(torch.equal(of, expected) for of in sum(pool.map(work, range(4)), []))
    """)
