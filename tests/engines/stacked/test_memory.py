from __future__ import annotations

import gc
from collections.abc import Sequence

import pytest
import torch

from disavow.engines.stacked import StackedTrainer
from disavow.engines.stacked.trainer import _COPIES, even_chunks, in_chunks
from tests.engines.stacked.workloads import CPU, a_workload, an_ask

META = torch.device("meta")
"""A device that holds nothing, and yet is another one."""


class Machine:
    """Does any number of items at once up to a limit, and notes when it was asked for more."""

    def __init__(self, limit: int) -> None:
        self.limit, self.tried = limit, list[int]()
        self.shortages: list[int] = []

    def work(self, items: Sequence[int]) -> list[int]:
        self.tried.append(len(items))
        if len(items) > self.limit:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return [10 * item for item in items]


def test_without_a_shortage_the_chunks_are_as_asked_for() -> None:
    machine = Machine(4)
    chunks = list(in_chunks(range(10), 4, machine.work, shortage=machine.shortages.append))
    assert [list(items) for items, _ in chunks] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [done for _, done in chunks] == [[0, 10, 20, 30], [40, 50, 60, 70], [80, 90]]
    assert machine.shortages == []


def test_a_chunk_that_does_not_fit_is_done_again_in_halves_and_so_are_the_rest() -> None:
    machine = Machine(3)
    chunks = list(in_chunks(range(10), 10, machine.work, shortage=machine.shortages.append))
    assert [done for _, part in chunks for done in part] == [10 * item for item in range(10)]
    assert machine.tried == [10, 5, 3, 3, 3, 1]
    assert machine.shortages == [10, 5]


def test_what_does_not_fit_alone_raises_after_making_room_once_more() -> None:
    machine = Machine(0)
    with pytest.raises(torch.OutOfMemoryError):
        list(in_chunks(range(3), 3, machine.work, shortage=machine.shortages.append))
    assert machine.tried == [3, 2, 1, 1]


def test_other_errors_are_not_taken_for_a_shortage() -> None:
    def work(items: Sequence[int]) -> None:
        raise KeyError

    with pytest.raises(KeyError):
        list(in_chunks(range(3), 3, work, shortage=lambda _: None))


@pytest.mark.parametrize(("items", "at_most", "size"), [(1000, 600, 500), (50, 64, 50), (7, 3, 3), (0, 5, 5)])
def test_chunks_are_even(items: int, at_most: int, size: int) -> None:
    assert even_chunks(items, at_most) == size


def test_a_trainer_that_runs_out_of_memory_goes_on_with_fewer_clients_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask = an_ask(a_workload([9, 20, 3, 14, 8, 8, 1]))
    [expected] = StackedTrainer(CPU).train([ask])
    whole, trained = StackedTrainer._train_stack, list[int]()

    def at_most_two(
        self: StackedTrainer, prepared: object, clients: Sequence[object], *rest: object
    ) -> torch.Tensor:
        result = whole(self, prepared, clients, *rest)  # type: ignore[arg-type]
        if len(clients) > 2:
            # after the work is done, when most of it would have to be undone
            raise torch.OutOfMemoryError("CUDA out of memory")
        trained.append(len(clients))
        return result

    monkeypatch.setattr(StackedTrainer, "_train_stack", at_most_two)
    [updates] = StackedTrainer(CPU).train([ask])
    assert trained == [2, 2, 2, 1]
    assert updates.clients == expected.clients
    torch.testing.assert_close(updates.vectors, expected.vectors, rtol=0.0, atol=2e-6)


def test_samples_are_copied_once_for_all_calls_until_they_are_written_into() -> None:
    trainer, images = StackedTrainer(META), torch.zeros(3, 1, 2, 2)
    first = trainer._on_device(images)
    assert first.device == META
    assert trainer._on_device(images) is first
    images.fill_(7)
    assert trainer._on_device(images) is not first


def test_samples_that_are_on_the_device_already_are_not_copied() -> None:
    trainer, images = StackedTrainer(CPU), torch.zeros(3, 1, 2, 2)
    assert trainer._on_device(images) is images
    assert len(trainer._copies) == 0


def test_nothing_stays_of_samples_that_nobody_holds_any_more() -> None:
    trainer, images = StackedTrainer(META), torch.zeros(3, 1, 2, 2)
    trainer._on_device(images)
    assert len(trainer._copies) == 1
    del images
    gc.collect()
    assert len(trainer._copies) == 0


def test_no_more_than_a_few_copies_are_kept() -> None:
    trainer, many = StackedTrainer(META), [torch.zeros(3) for _ in range(2 * _COPIES + 3)]
    for each in many:
        trainer._on_device(each)
        assert len(trainer._copies) <= _COPIES
