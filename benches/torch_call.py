"""How long PyTorch is busy with one call of `torch.ops.fuseplan.chain`, beside its own operators, on a tensor so small that the
computation is the least of it, and what of that is whose. Needs the package's release build and PyTorch.

    python benches/torch_call.py [--device cuda]

On a GPU a call is over when its kernels are queued.

A call that is like one before does not pass PyTorch's dispatcher. The parts of one that does: `dispatcher` is an operator of the same
declaration whose kernel does nothing, PyTorch's way from Python to a kernel and back; `kernel` is the operator's kernel called by
itself, within which `output` is what makes its result. The rest of the kernel looks at tensors, finds the plan and computes or
launches it. `in a run` is one of twenty calls behind each other as the code of rewritten networks makes them.
"""

import argparse
import time

import fuseplan.torch  # noqa: F401
import torch
from fuseplan.torch import _operator

CONV = "conv stride=1,1 padding=0,0,0,0 dilation=1,1 groups=1"


def microseconds(call, device):
    """The least processor time of a call over some repeats."""
    # On a GPU no more calls than its queue has room for, so that none waits.
    count, repeats = (200, 50) if device == "cuda" else (2000, 15)
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        for _ in range(count):
            call()
        times.append((time.thread_time() - start) / count * 1e6)
        if device == "cuda":
            torch.cuda.synchronize()
    return min(times)


def without_a_kernel(device):
    """An operator that is declared as `chain` is, and gives its first tensor back."""
    library = torch.library.Library("fuseplan_bench", "DEF")
    library.define("chain(Tensor x, Tensor weight, Tensor[] operands, str operators, bool constant=False) -> Tensor")
    library.impl("chain", lambda x, *_: x, device.upper())
    return library, torch.ops.fuseplan_bench.chain.default


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    device = parser.parse_args().device
    torch.set_num_threads(1)
    # What kernels for a GPU's tensor cores want: 16 bits, and channels innermost.
    dtype, channels = (torch.float16, 64) if device == "cuda" else (torch.float32, 8)

    def tensor(*shape):
        made = torch.randn(shape, device=device, dtype=dtype)
        return made.to(memory_format=torch.channels_last) if device == "cuda" and len(shape) == 4 else made

    x, residual = tensor(1, channels, 4, 4), tensor(1, channels, 4, 4)
    weight, bias = tensor(channels, channels, 1, 1), tensor(channels)
    chain, conv2d = torch.ops.fuseplan.chain.default, torch.nn.functional.conv2d
    relu, with_residual = f"{CONV} -> bias -> relu", f"{CONV} -> bias -> residual -> relu"
    calls = {
        "torch.relu": lambda: torch.relu(x),
        "conv2d": lambda: conv2d(x, weight),
        "chain: no operator": lambda: chain(x, weight, [], CONV, True),
        "conv2d with bias": lambda: conv2d(x, weight, bias),
        "conv2d with bias, relu": lambda: torch.relu(conv2d(x, weight, bias)),
        "chain: bias, relu": lambda: chain(x, weight, [bias], relu, True),
        "conv2d with bias, add, relu": lambda: torch.relu(conv2d(x, weight, bias) + residual),
        "chain: bias, residual, relu": lambda: chain(x, weight, [bias, residual], with_residual, True),
    }
    library, nothing = without_a_kernel(device)
    y, kernel, empty = chain(x, weight, [bias], relu, True), _operator._CALLS, _operator._EMPTY[device]
    output = tuple(y.shape), y.stride(), y.dtype
    calls |= {
        "of bias, relu: dispatcher": lambda: nothing(x, weight, [bias], relu, True),
        "of bias, relu: kernel": lambda: kernel(x, weight, [bias], relu, True),
        "of that: output": lambda: empty(*output),
    }
    for name, call in calls.items():
        print(f"{name:30} {microseconds(call, device):6.2f} µs")
    if _operator.DIRECT is not None:
        program = "\n".join(["22", *(f"constant {2 + at if at else 0} 1 2: {relu}" for at in range(20))])
        one = microseconds(lambda: _operator.DIRECT.run(program, {}, (), None, (x, weight, bias)), device) / 20
        print(f"{'chain: bias, relu, in a run':30} {one:6.2f} µs")


if __name__ == "__main__":
    main()
