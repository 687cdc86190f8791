"""What is timed: networks of given weights, and the data types, layouts and batches that they run in."""

import copy
import dataclasses
import functools

import torch
import torchvision
from torch import nn

import definitions

NETWORKS = {name: (build, shape) for name, _, build, shape in definitions.NETWORKS}
# Networks of fully connected layers, which the list of convolutions does not have.
NETWORKS |= {"convnext": (torchvision.models.convnext_tiny, (3, 224, 224))}

# An autoencoder decodes one latent at a time.
ONE_AT_A_TIME = ("imagevae", "videovae")

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "tf32": torch.float32}
LAYOUTS = ("nhwc", "nchw")


@dataclasses.dataclass(frozen=True)
class Configuration:
    network: str
    type: str
    layout: str
    batch: int

    def __str__(self):
        return f"{self.network} {self.type}-{self.layout} N={self.batch}"

    @property
    def dtype(self):
        return DTYPES[self.type]

    def model(self, device):
        """The network with its weights rounded to the data type, contiguous."""
        return copy.deepcopy(weights(self.network, device)).to(self.dtype)

    def input(self, device):
        """The input, rounded to the data type, contiguous."""
        generator = torch.Generator(device).manual_seed(self.batch)
        shape = (self.batch, *NETWORKS[self.network][1])
        return torch.randn(shape, generator=generator, device=device).to(self.dtype)

    def set_math(self):
        """Tells PyTorch, and by that fuseplan, how f32 is multiplied."""
        set_tf32(self.type == "tf32")


def set_tf32(allowed):
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = allowed


def all_of(networks, types, batches):
    """Every configuration, of one type and batch behind each other, so that a run that ends early has whole groups."""
    found = []
    for kind in types:
        name, _, layout = kind.partition("-")
        for batch in batches:
            for network in networks:
                one = Configuration(network, name, layout, 1 if network in ONE_AT_A_TIME else batch)
                if one not in found:
                    found.append(one)
    return found


@functools.cache
def weights(network, device):
    """The network in f32 with random weights, in evaluation.

    Every convolution and linear layer is scaled, and every batch-norm's statistics are set, so that on random data its
    result has a deviation of 1: values neither vanish nor exceed f16, and an error in any layer reaches the result.
    """
    build, shape = NETWORKS[network]
    torch.manual_seed(0)
    with torch.device(device):
        model = build().eval()
        x = torch.randn(2, *shape)
    hooks = [module.register_forward_hook(_scale) for module in model.modules()
             if isinstance(module, (nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.Linear))]
    hooks += [module.register_forward_hook(_normalise) for module in model.modules()
              if isinstance(module, nn.BatchNorm2d)]
    set_tf32(False)
    with torch.no_grad():
        model(x)
    for hook in hooks:
        hook.remove()
    return model.requires_grad_(False)


def _scale(layer, inputs, result):
    factor = 1 / result.std().clamp(min=1e-6)
    layer.weight.mul_(factor)
    if layer.bias is not None:
        layer.bias.mul_(factor)
    return result * factor


def _normalise(norm, inputs, result):
    variance, mean = torch.var_mean(inputs[0], (0, 2, 3))
    norm.running_mean.copy_(mean)
    # Of the two values of a channel behind a global pooling the deviation may be next to nothing.
    norm.running_var.copy_(variance.clamp(min=1e-2))
    return torch.nn.functional.batch_norm(inputs[0], norm.running_mean, norm.running_var, norm.weight, norm.bias)
