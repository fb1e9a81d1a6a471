"""LeNet5 as the paper's scripts have it: one dense hidden layer of 120, max pooling, ReLU."""

from __future__ import annotations

import math

from torch import Tensor, nn

_SMALLEST = 6
"""Where the maps that reach the second convolution are smaller, it is padded, or nothing would be left."""


class LeNet5(nn.Module):
    """51,902 parameters for 28x28x1 and ten outputs.

    Y. LeCun, L. Bottou, Y. Bengio and P. Haffner, "Gradient-based learning applied to document recognition"
    (1998).
    """

    def __init__(self, shape: tuple[int, int, int], outputs: int) -> None:
        super().__init__()
        channels, height, width = shape
        sides = [math.ceil(side / 2) for side in (height, width)]
        padding = 0 if min(sides) >= _SMALLEST else 2
        sides = [math.ceil((side - 4 + 2 * padding) / 2) for side in sides]
        self.conv1 = nn.Conv2d(channels, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5, padding=padding)
        self.pool = nn.MaxPool2d(2, ceil_mode=True)
        self.fc1 = nn.Linear(16 * math.prod(sides), 120)
        self.fc2 = nn.Linear(120, outputs)

    def forward(self, images: Tensor) -> Tensor:
        """Score images.

        Args:
            images: A batch.

        Returns:
            One row an image.
        """
        hidden = self.pool(self.conv1(images).relu())
        hidden = self.pool(self.conv2(hidden).relu())
        scores: Tensor = self.fc2(self.fc1(hidden.flatten(1)).relu())
        return scores
