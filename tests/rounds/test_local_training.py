from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from disavow.errors import RoundRefused
from disavow.rounds import vectors
from disavow.rounds.local_training import accept
from disavow.rounds.vectors import Updates
from tests.refusals import refuses
from tests.rounds.builders import PROPERTY, gaussian, layout_of_size, permuted, updates_of

GOOD = updates_of(gaussian(6, 4))


def accepted(updates: Updates, k: int = 3) -> Updates:
    return accept(updates, layout=layout_of_size(4), k=k, round_number=9)


def with_value(row: int, value: float) -> Updates:
    rows = GOOD.vectors.clone()
    rows[row, 2] = value
    return replace(GOOD, vectors=rows)


def test_good_updates_come_back_in_id_order() -> None:
    assert accepted(GOOD) is GOOD
    back = accepted(permuted(GOOD, [3, 0, 5, 1, 4, 2]))
    assert back.clients == GOOD.clients
    assert torch.equal(back.vectors, GOOD.vectors)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("row", [0, 3, 5])
def test_an_update_that_is_not_finite_is_refused_and_its_client_named(value: float, row: int) -> None:
    with refuses(RoundRefused, "round 9", GOOD.clients[row]):
        accepted(with_value(row, value))


@PROPERTY
@given(st.lists(st.integers(0, 29), unique=True, min_size=1), st.sampled_from([math.nan, math.inf, -math.inf]))
def test_exactly_those_with_numbers_that_are_not_finite_are_named(rows: list[int], value: float) -> None:
    updates = updates_of(gaussian(30, 4))
    updates.vectors[rows, 0] = value
    with pytest.raises(RoundRefused) as refusal:
        accepted(updates)
    bad = sorted(updates.clients[row] for row in rows)
    shown, more = bad[:5], len(bad) - 5
    names = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
    assert f" {names} " in str(refusal.value)


def test_the_largest_finite_numbers_are_accepted() -> None:
    largest = torch.full((6, 4), torch.finfo(torch.float32).max)
    assert len(accepted(replace(GOOD, vectors=largest))) == 6


def test_numbers_that_are_not_finite_are_found_in_every_block_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "_BLOCK_NUMBERS", 8)
    with refuses(RoundRefused, GOOD.clients[5]):
        accepted(with_value(5, math.nan))


def test_fewer_than_k_are_refused() -> None:
    with refuses(RoundRefused, 6, "k = 7"):
        accepted(GOOD, k=7)
    assert len(accepted(GOOD, k=6)) == 6


def test_no_updates_at_all_are_refused() -> None:
    with refuses(RoundRefused, 0, "k = 3"):
        accepted(Updates((), (), torch.zeros(0, 4)))


def test_a_client_that_returned_two_updates_is_named() -> None:
    twice = replace(GOOD, clients=("a", "b", "c", "b", "d", "e"))
    with refuses(RoundRefused, ": b "):
        accepted(twice)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int32])
def test_another_type_of_number_is_refused(dtype: torch.dtype) -> None:
    with refuses(RoundRefused, dtype, torch.float32):
        accepted(replace(GOOD, vectors=GOOD.vectors.to(dtype)))


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (torch.zeros(6, 5), "5"),
        (torch.zeros(6, 3), "3"),
        (torch.zeros(6, 0), "0"),
        (torch.zeros(6), "no"),
        (torch.zeros(6, 4, 1), "4"),
        (torch.zeros(5, 4), "4"),
    ],
)
def test_updates_of_another_shape_are_refused(rows: torch.Tensor, found: str) -> None:
    with refuses(RoundRefused, f" {found} ", 4):
        accepted(replace(GOOD, vectors=rows))


@pytest.mark.parametrize("samples", [(1, 1, 1, 0, 1, 1), (1, -2, 1, 1, 1, 1), (1, 1, 1)])
def test_every_participant_holds_a_sample(samples: tuple[int, ...]) -> None:
    with refuses(RoundRefused, "sample"):
        accepted(replace(GOOD, samples=samples))


def test_a_refusal_says_that_nothing_was_recorded() -> None:
    with refuses(RoundRefused, RoundRefused.UNCHANGED):
        accepted(GOOD, k=7)
