from __future__ import annotations

import numpy as np
import torch

from disavow.data.dataset import Dataset


def test_selecting_keeps_the_order_given_and_the_labels_with_their_images() -> None:
    images = torch.arange(4.0)[:, None, None, None].expand(4, 3, 2, 5)
    data = Dataset(images, torch.tensor([10, 11, 12, 13]), classes=14)
    chosen = data.select(np.array([3, 1]))
    assert chosen.labels.tolist() == [13, 11]
    assert chosen.images[:, 0, 0, 0].tolist() == [3, 1]
    assert (len(chosen), chosen.shape, chosen.classes) == (2, (3, 2, 5), 14)
