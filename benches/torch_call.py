"""How long PyTorch is busy with one call of `torch.ops.fuseplan.chain`, beside its own operators, on a tensor so small that the
computation is the least of it. Needs the package's release build and PyTorch.

    python benches/torch_call.py
"""

import time

import fuseplan.torch  # noqa: F401
import torch

CONV = "conv stride=1,1 padding=0,0,0,0 dilation=1,1 groups=1"


def microseconds(call, count=2000, repeats=15):
    """The least processor time of a call over some repeats."""
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        for _ in range(count):
            call()
        times.append((time.thread_time() - start) / count * 1e6)
    return min(times)


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    x, weight, bias = torch.randn(1, 8, 4, 4), torch.randn(8, 8, 1, 1), torch.randn(8)
    residual = torch.randn(1, 8, 4, 4)
    chain, conv2d = torch.ops.fuseplan.chain.default, torch.nn.functional.conv2d
    relu, with_residual = f"{CONV} -> bias -> relu", f"{CONV} -> bias -> residual -> relu"
    calls = {
        "torch.relu": lambda: torch.relu(x),
        "conv2d with bias": lambda: conv2d(x, weight, bias),
        "conv2d with bias, relu": lambda: torch.relu(conv2d(x, weight, bias)),
        "chain: bias, relu": lambda: chain(x, weight, [bias], relu, True),
        "conv2d with bias, add, relu": lambda: torch.relu(conv2d(x, weight, bias) + residual),
        "chain: bias, residual, relu": lambda: chain(x, weight, [bias, residual], with_residual, True),
    }
    for name, call in calls.items():
        print(f"{name:30} {microseconds(call):6.2f} µs")


if __name__ == "__main__":
    main()
