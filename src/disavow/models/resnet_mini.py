"""ResNet-mini: two residual blocks with batch norm and a dense layer, seven layers that learn."""

from __future__ import annotations

import math

from torch import Tensor, nn


class Block(nn.Module):
    """3x3 with stride 2, then 1x1, beside a 1x1 shortcut with stride 2; batch norm after each."""

    def __init__(self, inputs: int, middle: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, middle, 3, stride=2, padding=1)
        self.norm1 = nn.BatchNorm2d(middle)
        self.conv2 = nn.Conv2d(middle, outputs, 1)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride=2)
        self.shortcut_norm = nn.BatchNorm2d(outputs)

    def forward(self, images: Tensor) -> Tensor:
        """Convolve maps.

        Args:
            images: Maps of a batch.

        Returns:
            Maps of half the side.
        """
        hidden = self.norm1(self.conv1(images)).relu()
        hidden = self.norm2(self.conv2(hidden)) + self.shortcut_norm(self.shortcut(images))
        maps: Tensor = hidden.relu()
        return maps


class ResNetMini(nn.Module):
    """17,986 parameters for 28x28x1 and ten outputs."""

    def __init__(self, shape: tuple[int, int, int], outputs: int) -> None:
        super().__init__()
        channels, height, width = shape
        self.block1 = Block(channels, 4, 8)
        self.block2 = Block(8, 16, 32)
        self.fc = nn.Linear(32 * math.ceil(height / 4) * math.ceil(width / 4), outputs)

    def forward(self, images: Tensor) -> Tensor:
        """Score images.

        Args:
            images: A batch.

        Returns:
            One row an image.
        """
        scores: Tensor = self.fc(self.block2(self.block1(images)).flatten(1))
        return scores
