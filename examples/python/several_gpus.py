#!/usr/bin/env python3
"""Data-parallel inference on all GPUs of a machine: one process each, started by PyTorch, with nothing of fuseplan between them.

    pip install ./python torch torchvision
    torchrun --standalone --nproc-per-node gpu examples/python/several_gpus.py --batch 64

Every process has the whole network and computes its share of the images. Their results together are compared with those of one
process, and the images a second of all at once with those of one alone. Without GPUs the processes are on the CPU.
"""

import argparse
import os
import time

import fuseplan.torch
import torch
import torch.distributed as dist
import torchvision


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="resnet50", help="of torchvision.models")
    parser.add_argument("--batch", type=int, default=64, help="images of a process")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    return parser.parse_args()


def network(name, x):
    """The network with plans, on the device of its example, as a CUDA graph if that is a GPU: it computes what is in `x`."""
    torch.manual_seed(0)
    model = torchvision.models.get_model(name).eval().to(x.device, x.dtype, memory_format=torch.channels_last)
    fused = fuseplan.torch.optimize(model, x, choose="all")
    if not x.is_cuda:
        return lambda: fused(x)
    for _ in range(3):
        fused(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = fused(x)

    def replay():
        graph.replay()
        return y

    return replay


def images_a_second(call, batch, seconds, device):
    done, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        for _ in range(10):
            call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        done += 10 * batch
    return done / (time.perf_counter() - begin)


@torch.no_grad()
def main():
    options, rank = parsed(), int(os.environ["LOCAL_RANK"])
    if torch.cuda.is_available():
        device, dtype = torch.device("cuda", rank), torch.float16
        torch.cuda.set_device(device)
    else:
        device, dtype = torch.device("cpu"), torch.float32
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    count = dist.get_world_size()

    generator = torch.Generator().manual_seed(0)
    images = torch.randn(count, options.batch, 3, options.size, options.size, generator=generator)
    x = images[dist.get_rank()].to(device, dtype, memory_format=torch.channels_last)
    call = network(options.network, x)
    y = call().clone()
    shares = [torch.empty_like(y) for _ in range(count)]
    dist.all_gather(shares, y)

    alone = 0.0
    if dist.get_rank() == 0:
        for share, of in zip(shares, images, strict=True):
            x.copy_(of)
            assert torch.equal(call(), share), "two processes have different results for the same images"
        alone = images_a_second(call, options.batch, options.seconds, device)
    dist.barrier()
    together = torch.tensor(images_a_second(call, options.batch, options.seconds, device), device=device)
    dist.all_reduce(together)
    if dist.get_rank() == 0:
        print(f"{options.network}, {options.batch} images a process, {dtype}: one process {alone:.1f} images/s, "
              f"{count} at once {together.item():.1f} images/s, {together.item() / alone:.2f} times as many; equal results")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
