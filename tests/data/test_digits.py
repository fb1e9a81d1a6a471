from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from disavow.data.digits import digits


def test_there_are_1797_images_of_8x8_between_0_and_1_in_ten_classes() -> None:
    data = digits()
    assert len(data) == 1797
    assert data.shape == (1, 8, 8)
    assert data.images.shape == (1797, 1, 8, 8)
    assert data.images.dtype == torch.float32
    assert data.labels.dtype == torch.int64
    assert (float(data.images.min()), float(data.images.max())) == (0.0, 1.0)
    assert data.classes == 10
    assert sorted(set(data.labels.tolist())) == list(range(10))


def test_images_of_one_digit_look_more_alike_than_images_of_two() -> None:
    # labels belong to their images: the mean image of a class is nearest to most of its own
    data = digits()
    flat = data.images.flatten(1)
    means = torch.stack([flat[data.labels == label].mean(dim=0) for label in range(10)])
    nearest = torch.cdist(flat, means).argmin(dim=1)
    assert float((nearest == data.labels).double().mean()) > 0.85


def test_the_images_are_those_of_scikit_learn_however_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = load_digits()
    quick = digits()
    assert np.array_equal(quick.images.numpy()[:, 0] * 16, expected.images)
    assert np.array_equal(quick.labels.numpy(), expected.target)
    # by name, because the function of that name hides the module
    monkeypatch.setattr(sys.modules["disavow.data.digits"], "find_spec", lambda name: None)
    slow = digits()
    assert torch.equal(slow.images, quick.images)
    assert torch.equal(slow.labels, quick.labels)
