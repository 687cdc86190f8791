#!/usr/bin/env python3
"""A network of PyTorch, rewritten so that each convolution and what follows it is one kernel; PyTorch says the same.

    pip install ./python torch
    python3 examples/python/network.py
"""

import time

import fuseplan.torch
import torch
from torch import nn


class Block(nn.Module):
    """Two convolutions and a sum, as residual networks have them."""

    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))
        self.activation = nn.PReLU(channels)

    def forward(self, x):
        y = self.activation(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(y)) + x)


def microseconds(call):
    """The least time of a few calls."""
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times) * 1e6


torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 32, 3, stride=2), nn.ReLU(), Block(32), Block(32), nn.AdaptiveAvgPool2d(1), nn.Flatten())
model = model.eval()
x = torch.randn(1, 3, 64, 64)

# Exported, chains of operators found, each put in the place of its nodes. What no plan takes stays PyTorch's.
fused = fuseplan.torch.optimize(model, x, choose="all")
print(fused.fuseplan_report)

with torch.inference_mode():
    torch.testing.assert_close(fused(x), model(x), rtol=1e-4, atol=1e-5)
    print(f"equal to PyTorch's; {microseconds(lambda: model(x)) / microseconds(lambda: fused(x)):.2f} times its speed")
