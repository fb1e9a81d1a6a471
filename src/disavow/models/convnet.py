"""ConvNet: two 3x3 convolutions of 20 and 10 filters, no pooling, a dense layer of 32."""

from __future__ import annotations

from torch import Tensor, nn

_SMALLEST = 5
"""Two unpadded 3x3 convolutions need a side of this; smaller images are padded instead."""


class ConvNet(nn.Module):
    """186,692 parameters for 28x28x1 and ten outputs."""

    def __init__(self, shape: tuple[int, int, int], outputs: int) -> None:
        super().__init__()
        channels, height, width = shape
        padding = 0 if min(height, width) >= _SMALLEST else 1
        shrink = 4 - 4 * padding
        self.conv1 = nn.Conv2d(channels, 20, 3, padding=padding)
        self.conv2 = nn.Conv2d(20, 10, 3, padding=padding)
        self.fc1 = nn.Linear(10 * (height - shrink) * (width - shrink), 32)
        self.fc2 = nn.Linear(32, outputs)

    def forward(self, images: Tensor) -> Tensor:
        """Score images.

        Args:
            images: A batch.

        Returns:
            One row an image.
        """
        hidden = self.conv2(self.conv1(images).relu()).relu()
        scores: Tensor = self.fc2(self.fc1(hidden.flatten(1)).relu())
        return scores
