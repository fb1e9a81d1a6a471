"""Convolution with a filter bank per client.

What `vmap` makes of a convolution with stacked filters is one *grouped* convolution, which cuDNN does slowly.
*Unfold* makes a matrix product of it: patches beside one another, times the filters, image by image.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

Convolution = Literal["grouped", "unfold"]


class UnfoldConv2d(nn.Conv2d):
    """The same convolution as a product of matrices."""

    def forward(self, images: Tensor) -> Tensor:
        """Maps, as `nn.Conv2d` would give them."""
        left, right, top, bottom = _margins(self)
        if left or right or top or bottom:
            images = functional.pad(images, (left, right, top, bottom))
        sides = [
            (images.shape[2 + i] - self.dilation[i] * (self.kernel_size[i] - 1) - 1) // self.stride[i] + 1
            for i in (0, 1)
        ]
        patches = _patches(images, self, sides)
        # one small product for each image: the gradient of the filters is then a sum of many products,
        # where one product for each client would leave most of the device idle
        filters = self.weight.flatten(1).expand(len(images), -1, -1)
        maps = torch.bmm(filters, patches)
        if self.bias is not None:
            maps = maps + self.bias[:, None]
        return maps.view(len(images), self.out_channels, *sides)


def unfolded(network: nn.Module) -> nn.Module:
    """The network, changed in place: its plain convolutions become products of matrices."""
    for module in network.modules():
        # subclasses may do what we do not know; groups and other paddings are rare
        if type(module) is nn.Conv2d and module.groups == 1 and module.padding_mode == "zeros":
            module.__class__ = UnfoldConv2d
    return network


def _margins(convolution: nn.Conv2d) -> tuple[int, int, int, int]:
    """Zeros on the left, the right, the top and the bottom."""
    if convolution.padding == "valid":
        return 0, 0, 0, 0
    if convolution.padding == "same":
        rows, columns = (d * (k - 1) for d, k in zip(convolution.dilation, convolution.kernel_size, strict=True))
        return columns // 2, columns - columns // 2, rows // 2, rows - rows // 2
    rows, columns = (int(side) for side in convolution.padding)
    return columns, columns, rows, rows


def _patches(images: Tensor, convolution: nn.Conv2d, sides: list[int]) -> Tensor:
    """What each place of the output sees: (images, channels x kernel, places)."""
    (high, wide), (down, across) = convolution.kernel_size, convolution.stride
    if high == wide == 1:
        return images[:, :, ::down, ::across].flatten(2)
    step, stride = convolution.dilation
    if step == stride == 1 and not torch.compiler.is_compiling():
        # views and one copy; `functional.unfold` would launch a kernel for each image
        windows = images.unfold(2, high, down).unfold(3, wide, across)
        return windows.permute(0, 1, 4, 5, 2, 3).reshape(len(images), -1, sides[0] * sides[1])
    # Inductor makes the gradient of `unfold` an atomic addition, whose order, and so whose last bits, change from
    # run to run; that of slices becomes one sum
    slices = [
        images[:, :, i : i + (sides[0] - 1) * down + 1 : down, j : j + (sides[1] - 1) * across + 1 : across]
        for i in range(0, high * step, step)
        for j in range(0, wide * stride, stride)
    ]
    return torch.stack(slices, dim=2).flatten(3).flatten(1, 2)
