"""How long PyTorch is busy with one call of `torch.ops.fuseplan.chain`, beside its own operators, on a tensor so small that the
computation is the least of it. Needs the package's release build and PyTorch.

    python benches/torch_call.py [--device cuda]

On a GPU a call is over when its kernels are queued.
"""

import argparse
import time

import fuseplan.torch  # noqa: F401
import torch

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
    for name, call in calls.items():
        print(f"{name:30} {microseconds(call, device):6.2f} µs")


if __name__ == "__main__":
    main()
