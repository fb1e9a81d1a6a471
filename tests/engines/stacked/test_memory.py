from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from disavow.engines.stacked import StackedTrainer
from disavow.engines.stacked.memory import RowCost, even_chunks, in_chunks
from disavow.engines.stacked.stack import Stack
from tests.engines.stacked.federations import CPU, a_workload, an_ask


class Machine:
    """Does any number of items at once up to a limit, and counts how often it was asked for more."""

    def __init__(self, limit: int) -> None:
        self.limit, self.shortages, self.tried = limit, 0, []  # type: ignore[var-annotated]

    def work(self, items: Sequence[int]) -> list[int]:
        self.tried.append(len(items))
        if len(items) > self.limit:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return [10 * item for item in items]

    def shortage(self) -> None:
        self.shortages += 1


def test_without_a_shortage_the_chunks_are_as_asked_for() -> None:
    machine = Machine(4)
    chunks = list(in_chunks(range(10), 4, machine.work, after_shortage=machine.shortage))
    assert [list(items) for items, _ in chunks] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [done for _, done in chunks] == [[0, 10, 20, 30], [40, 50, 60, 70], [80, 90]]
    assert machine.shortages == 0


def test_a_chunk_that_does_not_fit_is_done_again_in_halves_and_so_are_the_rest() -> None:
    machine = Machine(3)
    chunks = list(in_chunks(range(10), 10, machine.work, after_shortage=machine.shortage))
    assert [done for _, part in chunks for done in part] == [10 * item for item in range(10)]
    assert machine.tried == [10, 5, 3, 3, 3, 1]
    assert machine.shortages == 2


def test_what_does_not_fit_alone_raises_after_making_room_once_more() -> None:
    machine = Machine(0)
    with pytest.raises(torch.OutOfMemoryError):
        list(in_chunks(range(3), 3, machine.work, after_shortage=machine.shortage))
    assert machine.tried == [3, 2, 1, 1]


def test_other_errors_are_not_taken_for_a_shortage() -> None:
    def work(items: Sequence[int]) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        list(in_chunks(range(3), 3, work, after_shortage=lambda: None))


def test_rows_that_fit_follow_from_what_a_row_adds_to_the_peak() -> None:
    measured = []

    def peak(rows: int) -> int:
        measured.append(rows)
        return 1_000_000 + 1_000 * rows

    cost = RowCost(8, peak)
    assert cost.at_most(100_000) == 60
    assert cost.at_most(200_000) == 120
    assert measured == [4, 2]
    cost.was_too_low()
    assert cost.at_most(100_000) == 30
    assert cost.at_most(1) == 1


def test_where_nobody_knows_what_is_free_nothing_is_measured() -> None:
    def peak(rows: int) -> int:
        raise AssertionError

    assert RowCost(8, peak).at_most(None) > 1


@pytest.mark.parametrize(("rows", "at_most", "size"), [(1000, 600, 500), (50, 64, 50), (7, 3, 3), (0, 5, 5)])
def test_chunks_are_even(rows: int, at_most: int, size: int) -> None:
    assert even_chunks(rows, at_most) == size


def test_a_trainer_that_runs_out_of_memory_goes_on_with_fewer_clients_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask = an_ask(a_workload([9, 20, 3, 14, 8, 8, 1]))
    [expected] = StackedTrainer(CPU).train([ask])
    whole, trained = Stack.updates, []

    def at_most_two(self: Stack, rows: Sequence[object], *rest: object, **options: object) -> torch.Tensor:
        result = whole(self, rows, *rest, **options)  # type: ignore[arg-type]
        if len(rows) > 2:
            # after the work is done, when most of it would have to be undone
            raise torch.OutOfMemoryError("CUDA out of memory")
        trained.append(len(rows))
        return result

    monkeypatch.setattr(Stack, "updates", at_most_two)
    [updates] = StackedTrainer(CPU).train([ask])
    assert trained == [2, 2, 2, 1]
    assert updates.clients == expected.clients
    torch.testing.assert_close(updates.vectors, expected.vectors, rtol=0.0, atol=2e-6)
