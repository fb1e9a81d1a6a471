"""Requests page by page and counted, and the weakest clusters of rounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from disavow.domain import Decision, EventKind, RequestState
from disavow.ledger import Ledger
from tests.ledger.making import IDS, MOMENT, create, record_next


@pytest.fixture
def three_requests(tmp_path: Path) -> Ledger:
    """Three requests: one waits, one is paused, one is cancelled."""
    ledger = create(tmp_path / "run")
    ledger.place_requests(IDS[:3], at=MOMENT)
    ledger.decide_request(2, EventKind.PAUSED, Decision("o", MOMENT, "who is it"))
    ledger.decide_request(3, EventKind.CANCELLED, Decision("o", MOMENT, "withdrawn"))
    return ledger


def test_paused_requests_are_counted_apart_from_those_that_wait(three_requests: Ledger) -> None:
    counts = {state: count for state, count in three_requests.request_counts().items() if count}
    assert counts == {RequestState.WAITING: 1, RequestState.PAUSED: 1, RequestState.CANCELLED: 1}


def test_pages_begin_with_the_newest_or_with_the_oldest(three_requests: Ledger) -> None:
    assert [each.number for each in three_requests.request_page(most=2)] == [3, 2]
    assert [each.number for each in three_requests.request_page(most=2, oldest_first=True)] == [1, 2]
    assert [each.number for each in three_requests.request_page(most=2, after=2, oldest_first=True)] == [3]
    open_ones = (RequestState.WAITING, RequestState.PAUSED)
    assert [each.number for each in three_requests.request_page(states=open_ones, most=9, oldest_first=True)] == [
        1,
        2,
    ]


def test_the_last_changed_are_those_of_the_last_events(three_requests: Ledger) -> None:
    assert [each.number for each in three_requests.last_changed_requests(2)] == [2, 3]


def test_the_weakest_cluster_is_the_one_with_the_fewest_members_left(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        record_next(ledger)
        [found] = ledger.weakest_clusters([1]).values()
        assert (found.size, found.left, found.spread) == (2, 2, 0.25), "of the alike, the widest"
        assert ledger.weakest_clusters([]) == {}


def test_the_log_is_listed_from_its_end(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        record_next(ledger)
        newest, first = ledger.log_page(most=5)
        assert (newest.place, first.place) == (1, 0)
        assert [newest.hash, first.hash] == ledger.log_hashes()[::-1]
        assert ledger.log_page(before=1, most=5) == (first,)
