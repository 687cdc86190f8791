"""Networks of the field list that neither torchvision nor timm defines: convolutions as published, nothing else.

Normalisations that stand before a convolution, attention and transposed convolutions have no part in the list, so they
are left out, or replaced by what has the same shape.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """Convolution, batch-norm, SiLU."""

    def __init__(self, channels, filters, extent=3, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, extent, stride, extent // 2, bias=False)
        self.norm, self.activation = nn.BatchNorm2d(filters), nn.SiLU()

    def forward(self, x):
        return self.activation(self.norm(self.conv(x)))


class Split(nn.Module):
    """A stage of YOLOv8: half of the channels through pairs of 3x3, everything joined by 1x1."""

    def __init__(self, channels, filters, pairs, residual):
        super().__init__()
        half = filters // 2
        self.first, self.residual = Block(channels, filters, 1), residual
        self.pairs = nn.ModuleList(nn.Sequential(Block(half, half), Block(half, half)) for _ in range(pairs))
        self.last = Block((2 + pairs) * half, filters, 1)

    def forward(self, x):
        halves = self.first(x).chunk(2, 1)
        parts = [halves[0], halves[1]]
        for pair in self.pairs:
            parts.append(parts[-1] + pair(parts[-1]) if self.residual else pair(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Detector(nn.Module):
    """YOLO-like: the layers of YOLOv8-s for 80 classes at 640x640."""

    def __init__(self):
        super().__init__()
        self.stem, self.down2 = Block(3, 32, 3, 2), Block(32, 64, 3, 2)
        self.stage2, self.down3 = Split(64, 64, 1, True), Block(64, 128, 3, 2)
        self.stage3, self.down4 = Split(128, 128, 2, True), Block(128, 256, 3, 2)
        self.stage4, self.down5 = Split(256, 256, 2, True), Block(256, 512, 3, 2)
        self.stage5 = Split(512, 512, 1, True)
        self.before, self.after = Block(512, 256, 1), Block(1024, 512, 1)
        self.up4, self.up3 = Split(768, 256, 1, False), Split(384, 128, 1, False)
        self.to4, self.low4 = Block(128, 128, 3, 2), Split(384, 256, 1, False)
        self.to5, self.low5 = Block(256, 256, 3, 2), Split(768, 512, 1, False)
        head = lambda channels, width, outputs: nn.Sequential(
            Block(channels, width), Block(width, width), nn.Conv2d(width, outputs, 1))
        self.boxes = nn.ModuleList(head(channels, 64, 64) for channels in (128, 256, 512))
        self.classes = nn.ModuleList(head(channels, 128, 80) for channels in (128, 256, 512))

    def forward(self, x):
        third = self.stage3(self.down3(self.stage2(self.down2(self.stem(x)))))
        fourth = self.stage4(self.down4(third))
        pooled = [self.before(self.stage5(self.down5(fourth)))]
        for _ in range(3):
            pooled.append(F.max_pool2d(pooled[-1], 5, 1, 2))
        fifth = self.after(torch.cat(pooled, 1))
        fourth = self.up4(torch.cat([F.interpolate(fifth, scale_factor=2.0), fourth], 1))
        third = self.up3(torch.cat([F.interpolate(fourth, scale_factor=2.0), third], 1))
        fourth = self.low4(torch.cat([self.to4(third), fourth], 1))
        fifth = self.low5(torch.cat([self.to5(fourth), fifth], 1))
        scales = (third, fourth, fifth)
        return [head(scale) for heads in (self.boxes, self.classes) for head, scale in zip(heads, scales)]


class UNet(nn.Module):
    """Ronneberger's U-Net with padded convolutions, three channels at 512x512."""

    WIDTHS = (64, 128, 256, 512, 1024)

    def __init__(self):
        super().__init__()
        pair = lambda channels, filters: nn.Sequential(
            nn.Conv2d(channels, filters, 3, padding=1), nn.ReLU(), nn.Conv2d(filters, filters, 3, padding=1), nn.ReLU())
        self.down = nn.ModuleList(pair(*ends) for ends in zip((3, *self.WIDTHS), self.WIDTHS))
        self.widen = nn.ModuleList(
            nn.ConvTranspose2d(2 * width, width, 2, 2) for width in reversed(self.WIDTHS[:-1]))
        self.up = nn.ModuleList(pair(2 * width, width) for width in reversed(self.WIDTHS[:-1]))
        self.last = nn.Conv2d(64, 2, 1)

    def forward(self, x):
        kept = []
        for stage in self.down:
            x = stage(F.max_pool2d(x, 2) if kept else x)
            kept.append(x)
        for widen, stage, other in zip(self.widen, self.up, reversed(kept[:-1])):
            x = stage(torch.cat([other, widen(x)], 1))
        return self.last(x)


class Residual(nn.Module):
    """Two 3x3 and an addition, through 1x1 where the width changes."""

    def __init__(self, channels, filters):
        super().__init__()
        self.first, self.second = nn.Conv2d(channels, filters, 3, padding=1), nn.Conv2d(filters, filters, 3, padding=1)
        self.shortcut = nn.Conv2d(channels, filters, 1) if channels != filters else nn.Identity()

    def forward(self, x):
        shortcut = self.shortcut(x)
        return shortcut + self.second(F.silu(self.first(F.silu(x)).abs()))


class ImageDecoder(nn.Module):
    """SD-like: the decoder of Stable Diffusion's image autoencoder, 64x64 latents to 512x512. Group norms, which are
    between each SiLU and what is before it, are absolute values here."""

    def __init__(self):
        super().__init__()
        self.quant, self.first = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 512, 3, padding=1)
        self.middle = nn.Sequential(Residual(512, 512), Residual(512, 512))
        stages, width = [], 512
        for at, filters in enumerate((512, 512, 256, 128)):
            stages += [Residual(width, filters), Residual(filters, filters), Residual(filters, filters)]
            if at < 3:
                stages += [nn.Upsample(scale_factor=2.0), nn.Conv2d(filters, filters, 3, padding=1)]
            width = filters
        self.stages, self.last = nn.Sequential(*stages), nn.Conv2d(128, 3, 3, padding=1)

    def forward(self, x):
        return self.last(F.silu(self.stages(self.middle(self.first(self.quant(x)))).abs()))


class Causal(nn.Module):
    """A convolution over frames that looks back only. Its two frames of the past come from the chunk before, so that
    the image that it reads is longer by them, and no pads are behind or before it in time."""

    def __init__(self, channels, filters, taps):
        super().__init__()
        self.past = taps[0] - 1
        self.conv = nn.Conv3d(channels, filters, taps, padding=(0, taps[1] // 2, taps[2] // 2))

    def forward(self, x):
        past = x[:, :, :1].expand(-1, -1, self.past, -1, -1) if self.past else None
        return self.conv(x if past is None else torch.cat([past, x], 2))


class CausalResidual(nn.Module):
    """Two causal 3x3x3 and an addition, through 1x1x1 where the width changes."""

    def __init__(self, channels, filters):
        super().__init__()
        self.first, self.second = Causal(channels, filters, (3, 3, 3)), Causal(filters, filters, (3, 3, 3))
        self.shortcut = Causal(channels, filters, (1, 1, 1)) if channels != filters else nn.Identity()

    def forward(self, x):
        shortcut = self.shortcut(x)
        return shortcut + self.second(F.silu(self.first(F.silu(x)).abs()))


class Widen(nn.Module):
    """Twice the height and width, and half of the channels; before it twice the frames, if asked for. Published as a
    convolution of two dimensions on every frame, which is this one."""

    def __init__(self, channels, frames):
        super().__init__()
        self.frames = Causal(channels, 2 * channels, (3, 1, 1)) if frames else None
        self.conv = nn.Conv3d(channels, channels // 2, (1, 3, 3), padding=(0, 1, 1))

    def forward(self, x):
        if self.frames is not None:
            x = torch.cat(self.frames(x).chunk(2, 1), 2)
        return self.conv(F.interpolate(x, scale_factor=(1.0, 2.0, 2.0)))


class VideoDecoder(nn.Module):
    """Wan-like: the decoder of Wan 2.1's causal video autoencoder, one latent frame of 60x104 to four of 480x832.
    RMS norms, which are between each SiLU and what is before it, are absolute values here."""

    def __init__(self):
        super().__init__()
        self.quant, self.first = Causal(16, 16, (1, 1, 1)), Causal(16, 384, (3, 3, 3))
        self.middle = nn.Sequential(CausalResidual(384, 384), CausalResidual(384, 384))
        stages, width = [], 384
        for at, filters in enumerate((384, 384, 192, 96)):
            stages += [CausalResidual(width, filters), CausalResidual(filters, filters),
                       CausalResidual(filters, filters)]
            width = filters
            if at < 3:
                stages.append(Widen(filters, at < 2))
                width = filters // 2
        self.stages, self.last = nn.Sequential(*stages), Causal(96, 3, (3, 3, 3))

    def forward(self, x):
        return self.last(F.silu(self.stages(self.middle(self.first(self.quant(x)))).abs()))
