from __future__ import annotations

import gc

import torch

from disavow.engines.stacked.data import KEPT, DeviceData, Samples
from tests.engines.stacked.federations import CPU

META = torch.device("meta")
"""A device that holds nothing, and yet is another one."""


def samples(count: int, value: float = 0.0) -> Samples:
    return torch.full((count, 1, 2, 2), value), torch.full((count,), int(value))


def test_sets_stand_one_after_the_other_and_each_only_once() -> None:
    one, other = samples(3, 1), samples(5, 2)
    placed = DeviceData(CPU).place([one, other, one])
    assert placed.starts == (0, 3, 0)
    assert placed.labels.tolist() == [1] * 3 + [2] * 5
    assert torch.equal(placed.images, torch.cat([one[0], other[0]]))


def test_a_set_is_placed_once_for_all_calls() -> None:
    data, one = DeviceData(META), samples(3)
    assert data.place([one]).images is data.place([one, one]).images
    assert len(data) == 1


def test_a_set_that_was_written_into_is_placed_anew() -> None:
    data, one = DeviceData(META), samples(3)
    before = data.place([one]).images
    one[0].fill_(7)
    assert data.place([one]).images is not before


def test_samples_that_are_on_the_device_already_are_not_copied() -> None:
    data, one = DeviceData(CPU), samples(3)
    assert data.place([one]).images is one[0]
    assert len(data) == 0


def test_nothing_stays_of_samples_that_nobody_holds_any_more() -> None:
    data, one = DeviceData(META), samples(3)
    data.place([one])
    assert len(data) == 1
    del one
    gc.collect()
    assert len(data) == 0


def test_no_more_than_a_few_placements_are_kept() -> None:
    data, sets = DeviceData(META), [samples(3) for _ in range(KEPT + 3)]
    for each in sets:
        data.place([each])
    assert len(data) == KEPT
    last = data.place([sets[-1]]).images
    assert data.place([sets[-1]]).images is last
