"""Deadlines: calendar months, pauses and extensions, whatever the day."""

from __future__ import annotations

import calendar
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disavow.domain import Approval, Deadline, ErasureRequest, EventKind, RequestEvent, RequestState
from disavow.domain.history import months_after

moments = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
lengths = st.timedeltas(timedelta(), timedelta(days=400))
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("received", "due"),
    [
        ("2027-01-31T09:00:00+00:00", "2027-02-28T09:00:00+00:00"),
        ("2028-01-31T09:00:00+00:00", "2028-02-29T09:00:00+00:00"),
        ("2027-02-28T23:59:59+00:00", "2027-03-28T23:59:59+00:00"),
        ("2026-12-17T00:00:00+00:00", "2027-01-17T00:00:00+00:00"),
        # what counts is the day in UTC: there it is still January
        ("2027-02-01T01:00:00+02:00", "2027-02-28T23:00:00+00:00"),
    ],
)
def test_a_request_is_due_on_the_same_day_of_the_next_month_or_its_last(received: str, due: str) -> None:
    moment = datetime.fromisoformat(received)
    assert Deadline.after(moment, ()).due == datetime.fromisoformat(due)


@given(moments, st.integers(0, 40))
def test_so_many_months_later_is_in_that_month_and_never_a_later_day(moment: datetime, months: int) -> None:
    later = months_after(moment, months)
    assert (later.year * 12 + later.month) - (moment.year * 12 + moment.month) == months
    assert later.time() == moment.time()
    last = calendar.monthrange(later.year, later.month)[1]
    assert later.day == min(moment.day, last)
    assert months_after(moment.astimezone(timezone(timedelta(hours=9))), months) == later


@given(moments, moments, st.integers(0, 12))
def test_who_asks_earlier_is_due_no_later(one: datetime, other: datetime, months: int) -> None:
    first, second = sorted((one, other))
    assert months_after(first, months) <= months_after(second, months)


@given(moments, st.lists(st.tuples(lengths, lengths), max_size=4))
def test_pauses_move_the_deadline_by_as_long_as_they_last(
    received: datetime, pauses: list[tuple[timedelta, timedelta]]
) -> None:
    events, at = [], received
    for before, length in pauses:
        events.append(RequestEvent(EventKind.PAUSED, at + before))
        at += before + length
        events.append(RequestEvent(EventKind.RESUMED, at))
    deadline = Deadline.after(received, events)
    total = sum((length for _, length in pauses), timedelta())
    assert deadline.due == months_after(received, 1) + total
    assert (deadline.paused, deadline.paused_since) == (total, None)
    assert deadline.latest == months_after(received, 3) + total
    assert deadline.left(received) == deadline.due - received


@given(moments, lengths, lengths)
def test_time_stands_still_during_a_pause_and_goes_on_after_it(
    received: datetime, before: timedelta, length: timedelta
) -> None:
    paused = RequestEvent(EventKind.PAUSED, received + before)
    left = Deadline.after(received, []).left(paused.at)
    meanwhile = Deadline.after(received, [paused])
    assert meanwhile.left(paused.at) == meanwhile.left(paused.at + length) == left
    resumed = RequestEvent(EventKind.RESUMED, paused.at + length)
    assert Deadline.after(received, [paused, resumed]).left(resumed.at) == left


@given(moments, lengths, lengths)
def test_an_extension_is_absolute_and_moved_by_pauses_after_it_alone(
    received: datetime, earlier: timedelta, later: timedelta
) -> None:
    until = months_after(received, 2)
    events = [
        RequestEvent(EventKind.PAUSED, received),
        RequestEvent(EventKind.RESUMED, received + earlier),
        RequestEvent(EventKind.EXTENDED, received + earlier, until=until),
        RequestEvent(EventKind.PAUSED, received + earlier),
        RequestEvent(EventKind.RESUMED, received + earlier + later),
    ]
    deadline = Deadline.after(received, events)
    assert (deadline.due, deadline.extended_until) == (until + later, until)


def test_a_clock_that_was_set_back_takes_nothing_off_a_deadline() -> None:
    received = datetime(2027, 1, 1, tzinfo=UTC)
    events = [RequestEvent(EventKind.PAUSED, received + DAY), RequestEvent(EventKind.RESUMED, received)]
    assert Deadline.after(received, events).due == months_after(received, 1)


def request(state: RequestState, *events: RequestEvent, answered_at: datetime | None = None) -> ErasureRequest:
    return ErasureRequest(
        1, None, datetime(2027, 1, 1, tzinfo=UTC), state, answered_at=answered_at, history=tuple(events)
    )


def test_days_left_are_whole_days_and_negative_once_it_is_overdue() -> None:
    waiting = request(RequestState.WAITING)
    due = datetime(2027, 2, 1, tzinfo=UTC)
    assert [waiting.days_left(due - each) for each in (DAY, DAY / 2, timedelta(), -DAY / 2)] == [1, 0, 0, -1]
    assert not waiting.overdue(due)
    assert waiting.overdue(due + timedelta(seconds=1))
    for closed in (RequestState.ANSWERED, RequestState.CANCELLED, RequestState.REFUSED):
        assert not request(closed).overdue(due + DAY)
    late = request(RequestState.ANSWERED, answered_at=due + DAY)
    assert (late.in_time, waiting.in_time) == (False, None)
    assert request(RequestState.ANSWERED, answered_at=due).in_time


def test_what_was_overdue_before_a_pause_stays_so() -> None:
    due = datetime(2027, 2, 1, tzinfo=UTC)
    late = request(RequestState.PAUSED, RequestEvent(EventKind.PAUSED, due + DAY))
    in_time = request(RequestState.PAUSED, RequestEvent(EventKind.PAUSED, due - DAY))
    assert (late.overdue(due + 9 * DAY), in_time.overdue(due + 9 * DAY)) == (True, False)


def test_json_tells_all_of_it() -> None:
    event = RequestEvent(
        EventKind.EXTENDED,
        datetime(2027, 1, 2, tzinfo=UTC),
        "bob",
        "many",
        months_after_due := (datetime(2027, 3, 1, tzinfo=UTC)),
    )
    document = request(RequestState.WAITING, event).to_json()
    assert (document["due"], document["extended_until"]) == (months_after_due.isoformat(),) * 2
    assert (document["approval"], document["paused_since"], document["purged_at"]) == (
        Approval.NOT_NEEDED,
        None,
        None,
    )
    assert document["history"] == [
        {
            "kind": "extended",
            "at": "2027-01-02T00:00:00+00:00",
            "actor": "bob",
            "reason": "many",
            "until": "2027-03-01T00:00:00+00:00",
            "forecast": None,
        }
    ]
