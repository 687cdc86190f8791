"""What is compared: shapes, their data and the exact answer."""

import dataclasses
import pathlib

import numpy as np


@dataclasses.dataclass(frozen=True)
class Configuration:
    """Convolution + bias + ReLU, or (op "bn") inference batch-norm + ReLU, on square images."""

    name: str
    c: int
    size: int
    k: int
    kernel: int
    stride: int = 1
    pad: int = 0
    dilation: int = 1
    groups: int = 1
    op: str = "conv"

    @property
    def output_size(self):
        return (self.size + 2 * self.pad - self.dilation * (self.kernel - 1) - 1) // self.stride + 1

    def flops(self, n):
        """Operations of a direct computation; multiply and add count as two."""
        if self.op == "bn":
            return 2 * n * self.c * self.size**2
        return 2 * n * self.k * self.output_size**2 * (self.c // self.groups) * self.kernel**2

    def setup(self, n):
        """The part of a server's `setup` command that describes the shape."""
        return (f"op={self.op} n={n} c={self.c} h={self.size} w={self.size} k={self.k} kernel={self.kernel} "
                f"stride={self.stride} pad={self.pad} dilation={self.dilation} groups={self.groups}")


CONFIGURATIONS = [
    Configuration("r7x7s2_3-64@224", 3, 224, 64, 7, stride=2, pad=3),
    Configuration("1x1_64-256@56", 64, 56, 256, 1),
    Configuration("3x3_64-64@56", 64, 56, 64, 3, pad=1),
    Configuration("3x3_128-128@28", 128, 28, 128, 3, pad=1),
    Configuration("3x3_256-256@14", 256, 14, 256, 3, pad=1),
    Configuration("3x3_512-512@7", 512, 7, 512, 3, pad=1),
    Configuration("1x1s2_256-512@56", 256, 56, 512, 1, stride=2),
    Configuration("1x1_1024-256@14", 1024, 14, 256, 1),
    Configuration("1x1_2048-512@7", 2048, 7, 512, 1),
    Configuration("vgg3x3_64-64@224", 64, 224, 64, 3, pad=1),
    Configuration("3x3_256-256@56", 256, 56, 256, 3, pad=1),
    Configuration("5x5_32-64@28", 32, 28, 64, 5, pad=2),
    Configuration("g32_3x3_128-128@56", 128, 56, 128, 3, pad=1, groups=32),
    Configuration("dw3x3_256@28", 256, 28, 256, 3, pad=1, groups=256),
    Configuration("dil2_3x3_128-128@28", 128, 28, 128, 3, pad=2, dilation=2),
    Configuration("bnrelu_64@56", 64, 56, 64, 1, op="bn"),
]

# Largest |error| / largest |exact value| that counts as right. Direct sums and Winograd in f32 stay below
# 2e-5; for 16-bit types the rounding of the stored result decides.
TOLERANCE = {"f32": 5e-5, "bf16": 1e-2, "f16": 4e-3}


def rounded(values, dtype):
    """`values` (f32) rounded to what `dtype` can hold, so that every side computes with the same numbers."""
    if dtype == "f16":
        return values.astype(np.float16).astype(np.float32)
    if dtype == "bf16":
        bits = values.view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return values


class Data:
    """Inputs of one configuration, written to files that every side reads, and the exact output in f64."""

    def __init__(self, configuration, n, dtype, folder):
        self.configuration, self.n, self.folder = configuration, n, folder
        cfg, random = configuration, np.random.default_rng(1)

        def uniform(low, high, *shape):
            return rounded(random.random(shape, dtype=np.float32) * np.float32(high - low) + np.float32(low), dtype)

        self.values = {"x": uniform(-1, 1, n, cfg.c, cfg.size, cfg.size)}
        if cfg.op == "conv":
            fan_in = cfg.c // cfg.groups * cfg.kernel**2
            self.values["w"] = uniform(-1, 1, cfg.k, cfg.c // cfg.groups, cfg.kernel, cfg.kernel)
            self.values["w"] = rounded(self.values["w"] * np.float32(fan_in**-0.5), dtype)
            self.values["b"] = uniform(-0.5, 0.5, cfg.k)
        else:
            for name, low, high in ("scale", 0.5, 2), ("shift", -1, 1), ("mean", -0.5, 0.5), ("variance", 0.5, 2):
                self.values[name] = uniform(low, high, cfg.c)
        folder.mkdir(parents=True, exist_ok=True)
        for name, values in self.values.items():
            values.tofile(folder / name)
        # A batch's images are computed alike: the first and the last stand for all.
        self.checked = sorted({0, n - 1})
        self.exact = np.stack([self._exact(self.values["x"][image].astype(np.float64)) for image in self.checked])

    def _exact(self, image):
        cfg, values = self.configuration, {name: v.astype(np.float64) for name, v in self.values.items() if name != "x"}
        if cfg.op == "bn":
            factor = values["scale"] / np.sqrt(values["variance"] + 1e-5)
            shift = values["shift"] - values["mean"] * factor
            return np.maximum(image * factor[:, None, None] + shift[:, None, None], 0)
        out, groups = cfg.output_size, cfg.groups
        padded = np.pad(image, ((0, 0), (cfg.pad, cfg.pad), (cfg.pad, cfg.pad)))
        weights = values["w"].reshape(groups, cfg.k // groups, cfg.c // groups, cfg.kernel, cfg.kernel)
        result = np.zeros((groups, cfg.k // groups, out * out))
        span = cfg.stride * (out - 1) + 1
        for row in range(cfg.kernel):
            for column in range(cfg.kernel):
                top, left = row * cfg.dilation, column * cfg.dilation
                tap = padded[:, top:top + span:cfg.stride, left:left + span:cfg.stride]
                result += weights[..., row, column] @ tap.reshape(groups, cfg.c // groups, -1)
        result = result.reshape(cfg.k, out, out) + values["b"][:, None, None]
        return np.maximum(result, 0)

    def error(self, file: pathlib.Path):
        """Largest |error| / largest |exact value| of an output file (f32, NCHW); infinite if any is NaN."""
        found = np.memmap(file, dtype=np.float32, mode="r").reshape(self.n, *self.exact.shape[1:])
        error = np.abs(found[self.checked] - self.exact).max() / np.abs(self.exact).max()
        return float(error) if np.isfinite(error) else float("inf")
