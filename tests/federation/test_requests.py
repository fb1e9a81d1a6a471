"""Requests through `Federation`: approval, forecasts that approvals are bound to, deadlines, register, releases."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from disavow import config
from disavow.domain import Approval, Cost, EventKind, RequestState, Verdict, VerdictKind
from disavow.erasure.dry_run import Forecast
from disavow.erasure.erase import judgement_due
from disavow.errors import (
    DeadlineRefused,
    ForecastChanged,
    RequestNotOpen,
    RunInUse,
    TextNamesClient,
    UnknownRequest,
)
from disavow.federation import Callbacks, Federation
from disavow.ledger import Ledger, database
from tests.federation.making import PASSPHRASE, pair
from tests.refusals import refuses

NOW = datetime(2027, 1, 31, 12, tzinfo=UTC)


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


def opened(run: Path, approval: str = "never", clock: Clock | None = None) -> Federation:
    path = run / "config.toml"
    text, changed = re.subn(r"^approval = .*$", f'approval = "{approval}"', path.read_text(), flags=re.M)
    assert changed == 1
    path.write_text(text)
    return Federation.open(run, ask=lambda path: PASSPHRASE, clock=clock or Clock())


@pytest.fixture
def rollback(run: Path) -> list[str]:
    """Two clients of one cluster, who are deniable alone and not together."""
    return pair(run)


def test_the_setting_may_be_changed_in_a_run(run: Path) -> None:
    with opened(run, "always") as federation:
        assert federation.settings.requests.approval == "always"
        assert federation.erase(["client-03"]).requests["client-03"].on_hold


def test_never_answers_at_once_as_before(run: Path) -> None:
    with opened(run) as federation:
        request = federation.erase(["client-03"], by="officer").requests["client-03"]
    assert (request.state, request.approval) == (RequestState.ANSWERED, Approval.NOT_NEEDED)
    assert [(event.kind.value, event.actor) for event in request.history] == [
        ("received", "officer"),
        ("judged", ""),
        ("answered", ""),
    ]
    assert request.in_time


def test_always_waits_for_approval_and_answers_only_what_is_approved(run: Path) -> None:
    with opened(run, "always") as federation:
        answer = federation.erase(["client-03", "client-05"])
        assert [(r.state, r.approval) for r in answer.requests.values()] == [
            (RequestState.WAITING, Approval.AWAITED)
        ] * 2
        assert federation.answer() == ()
        approved = federation.approve(1, by="officer")
        assert (approved.approval, approved.on_hold) == (Approval.APPROVED, False)
        assert [request.number for request in federation.answer()] == [1]
        assert [request.state for request in federation.requests()] == [RequestState.ANSWERED, RequestState.WAITING]
        assert federation.clients().count("client-05") == 1


def test_rollback_answers_what_is_deniable_and_leaves_the_rest_to_an_approver(
    run: Path, rollback: list[str]
) -> None:
    first, second = rollback
    with opened(run, "rollback") as federation:
        assert federation.forecast(rollback).forecast is not None
        # by itself each is deniable; whoever comes second is not, and nothing is undone for it
        answer = federation.erase(rollback)
        assert answer.requests[first].state is RequestState.ANSWERED
        waiting = answer.requests[second]
        assert (waiting.state, waiting.approval, waiting.on_hold) == (RequestState.WAITING, Approval.AWAITED, True)
        assert not any(not summary.standing for summary in federation.ledger.summaries())
        seen = federation.forecast_of(waiting.number)
        assert seen.forecast is not None
        assert seen.forecast.verdict.kind is VerdictKind.ROLLBACK
        federation.approve(waiting.number, by="officer", forecast_digest=seen.digest)
        [answered] = federation.answer()
        assert answered.verdict is not None
        assert answered.verdict.kind is VerdictKind.ROLLBACK
        assert answered.history[1].forecast == seen.digest
    assert Federation.open(run).check(absent=rollback) != []  # openings beside the run, which are no fault
    assert not any(finding.fault for finding in Federation.open(run).check(absent=rollback))


def test_an_approval_is_bound_to_the_forecast_that_was_seen(run: Path, rollback: list[str]) -> None:
    with opened(run, "always") as federation:
        federation.erase(rollback)
        seen = federation.forecast_of(2)
        assert seen.digest == federation.forecast_of(2).digest  # though seconds may be estimated otherwise
        federation.approve(1, by="officer")  # the first leaves with it: together they go back to round 1
        with refuses(ForecastChanged, "request 2") as refusal:
            federation.approve(2, by="officer", forecast_digest=seen.digest)
        present = federation.forecast_of(2)
        assert isinstance(refusal.value, ForecastChanged)
        assert refusal.value.digest == present.digest != seen.digest
        assert federation.request(2).approval is Approval.AWAITED
        assert federation.approve(2, by="officer", forecast_digest=present.digest).approval is Approval.APPROVED


def test_a_run_that_trains_on_does_not_change_a_forecast_until_the_work_has_doubled() -> None:
    forecast = Forecast(Verdict(VerdictKind.ROLLBACK, round=1), Cost(rounds=9, client_epochs=900), served=9)
    trained = replace(forecast, cost=Cost(rounds=12, client_epochs=1000), served=12)
    doubled = replace(forecast, cost=Cost(rounds=18, client_epochs=1800), served=18)
    earlier = replace(forecast, verdict=Verdict(VerdictKind.ROLLBACK, round=2))
    assert forecast.digest == trained.digest
    assert len({forecast.digest, doubled.digest, earlier.digest}) == 3


def test_a_forecast_of_what_is_closed_is_none(run: Path) -> None:
    with opened(run) as federation:
        federation.erase(["client-03"])
        assert federation.forecast_of(1).digest is None
        federation.ledger.place_requests(["client-05"], at=NOW)
        federation.refuse(2, by="officer", reason="not the person it claims to be")
        with refuses(RequestNotOpen, "refused"):
            federation.forecast_of(2)
        with refuses(UnknownRequest, 9):
            federation.forecast_of(9)


def test_paused_and_refused_requests_are_not_answered_and_erasing_does_not_wait_for_them(run: Path) -> None:
    clock = Clock()
    with opened(run, "always", clock) as federation:
        federation.erase(["client-03"])
        assert federation.pause(1, by="officer", reason="whose is it?").paused
    with opened(run, "never", clock) as federation:
        assert federation.answer() == ()
        assert federation.erase(["client-03"]).requests["client-03"].paused
        clock.now += timedelta(days=10)
        [open_one] = federation.due()
        assert (open_one.days_left, open_one.overdue) == (28, False)
        resumed = federation.resume_request(1, by="officer", reason="passport")
        assert resumed.due == datetime(2027, 3, 10, 12, tzinfo=UTC)
        refused = federation.refuse(1, by="officer", reason="unfounded")
        assert (refused.state, refused.approval) == (RequestState.REFUSED, Approval.REFUSED)
        assert federation.due() == ()
        # who was refused asks again: that is a request of its own
        assert federation.erase(["client-03"]).requests["client-03"].number == 2


def test_what_is_due_is_sorted_by_the_time_that_is_left(run: Path) -> None:
    clock = Clock()
    with opened(run, "always", clock) as federation:
        for client in ("client-03", "client-05", "client-07"):
            federation.erase([client])
            clock.now += timedelta(days=1)
        extended = federation.extend(1, by="officer", reason="many at once")
        assert extended.due == datetime(2027, 4, 30, 12, tzinfo=UTC)
        assert [each.request.number for each in federation.due()] == [2, 3, 1]
        late = federation.due(datetime(2027, 3, 1, 13, tzinfo=UTC))
        assert [(each.request.number, each.days_left, each.overdue) for each in late] == [
            (2, -1, True),
            (3, 0, False),
            (1, 59, False),
        ]
        status = federation.status()
        assert [each.request.number for each in status.due] == [2, 3, 1]
        assert status.to_json()["open_requests"] == 3


def test_the_register_has_everything_and_names_nobody_without_the_keyring(run: Path, tmp_path: Path) -> None:
    with opened(run, "always") as federation:
        federation.erase(["client-03", "client-05", "client-07"])
        federation.erase(["client-03"])
        federation.refuse(2, by="=SUM(A1)", reason="unfounded, twice")
        federation.cancel(3, by="officer", reason="withdrawn by phone")
        assert federation.cancel(3).state is RequestState.CANCELLED
        register = federation.register()
    lines = list(csv.DictReader(io.StringIO(register.to_csv())))
    assert [(line["request"], line["client"], line["state"]) for line in lines] == [
        ("1", "client-03", "waiting"),
        ("2", "client-05", "refused"),
        ("3", "client-07", "cancelled"),
    ]
    assert (lines[0]["asked_again"], lines[1]["decided_by"]) == ("1", "'=SUM(A1)")
    assert lines[1]["decided_why"] == "unfounded, twice"
    document = register.to_json()
    assert [event["kind"] for event in document["requests"][0]["history"]] == ["received", "duplicate"]
    with Federation.open(run, keys=tmp_path / "nowhere") as nobody:
        bare = nobody.register()
    assert not bare.named
    for text in (bare.to_csv(), str(bare.to_json())):
        assert not any(word in text for word in ("client-0", "officer", "SUM", "unfounded", "phone"))
        assert "refused" in text


def test_releases_and_returns_through_a_rollback(run: Path, rollback: list[str]) -> None:
    with opened(run) as federation:
        model = federation.export(to="Ministry of Health")
        assert (model.release, model.digest) == (1, federation.releases()[0].digest)
        federation.export(average=2, to="University")
        assert federation.export().release is None
        with refuses(TextNamesClient):
            federation.export(to="client-03")
        federation.erase(rollback)
        federation.export(to="Ministry of Health")
        assert [each.superseded for each in federation.releases()] == [True, True, False]
        federation.readmit(rollback[0], by="officer", reason="consents again")
        assert rollback[0] in federation.clients()
        federation.train(rounds=3)
        assert federation.ledger.rounds_with(rollback[0]) == (3,)
        [again] = federation.erase([rollback[0]]).requests.values()
        assert (again.number, again.state) == (3, RequestState.ANSWERED)
        assert federation.request_of(rollback[0]) == again  # not the one from before it returned
    assert not any(finding.fault for finding in Federation.open(run).check(absent=rollback))


@pytest.fixture
def held(run: Path) -> Iterator[Path]:
    """A run that another holder of its lock is at work on."""
    with Ledger.open(run, shared=True) as ledger:
        ledger.place_requests(["client-03", "client-05"], at=NOW)
    with database.lock(run):
        yield run


def test_decisions_need_neither_the_lock_nor_torch_nor_data(held: Path, moved: None) -> None:
    program = f"""
import sys
from pathlib import Path
from disavow.federation import Federation
with Federation.open(Path({str(held)!r})) as federation:
    seen = federation.forecast_of(1)
    federation.pause(1, by="officer", reason="whose?")
    federation.resume_request(1, by="officer", reason="seen")
    federation.approve(1, by="officer", forecast_digest=seen.digest)
    federation.refuse(2, by="officer", reason="unfounded")
    federation.export(to="Ministry of Health")
    federation.due(), federation.register().to_csv(), federation.releases(), federation.status()
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    with Ledger.open(held) as ledger:
        assert [event.kind for event in ledger.request(1).history][1:] == [
            EventKind.PAUSED,
            EventKind.RESUMED,
            EventKind.APPROVED,
        ]
        assert len(ledger.releases()) == 1


def test_every_allowed_value_of_the_setting_is_the_ones_documented() -> None:
    for value in ("never", "rollback", "always"):
        assert config.from_values({"requests": {"approval": value}}, source="tests").requests.approval == value


def test_an_interim_answer_is_extended_where_a_purge_is_promised(run: Path) -> None:
    clock = Clock()
    with opened(run, clock=clock) as federation:
        federation.erase(["client-03"])
        with refuses(RequestNotOpen):
            federation.extend(1, by="officer", reason="a purge takes long")  # nobody promised one
        promised = federation.settings.deniability.model_copy(update={"purge": "deadline"})
        federation.settings = federation.settings.model_copy(update={"deniability": promised})
        [before] = federation.due()
        assert (before.to_purge, before.request.due) == (True, datetime(2027, 2, 28, 12, tzinfo=UTC))
        extended = federation.extend(1, by="officer", reason="a purge takes long")
        assert (extended.state, extended.in_time) == (RequestState.ANSWERED, True)
        assert extended.history[-1].kind is EventKind.EXTENDED
        [after] = federation.due()
        assert after.request.due == datetime(2027, 4, 30, 12, tzinfo=UTC)
        assert federation.purge_outlook().due == after.request.due
        clock.now = before.request.due
        assert not federation.purge_outlook().begins
        federation.answer()
        assert federation.request(1).purged_at is None
        with refuses(DeadlineRefused):
            federation.extend(1, by="officer", reason="and longer")  # once
        clock.now = after.request.due
        federation.answer()
        assert federation.request(1).purged_at is not None
        with refuses(RequestNotOpen):
            federation.extend(1, by="officer", reason="what for")
    assert not any(finding.fault for finding in Federation.open(run).check())


def test_requests_that_nobody_has_approved_are_not_due_to_be_judged(run: Path, rollback: list[str]) -> None:
    first, second = rollback

    def due(federation: Federation) -> bool:
        return judgement_due(federation.ledger, federation.options, federation.mechanism)

    with opened(run, "always") as federation:
        assert not due(federation)
        federation.erase([first])
        assert not due(federation)
    with opened(run, "never") as federation:
        assert due(federation)
        federation.pause(1, by="officer", reason="whose?")
        assert not due(federation)
        federation.resume_request(1, by="officer", reason="seen")
    with opened(run, "rollback") as federation:
        assert due(federation)  # it is deniable, which nobody has to approve
        federation.erase([second])
        assert federation.request(2).on_hold
        assert not due(federation)
        federation.approve(2, by="officer")
        assert due(federation)


def test_a_purge_waits_for_whoever_holds_the_run_and_says_whether_that_purges(run: Path) -> None:
    with opened(run) as federation:
        federation.erase(["client-03"])
        messages: list[str] = []
        with database.lock(run):
            with refuses(RunInUse, "only with deniability.purge"):
                federation.purge(wait=0.3, callbacks=Callbacks(on_wait=messages.append))
            promised = federation.settings.deniability.model_copy(update={"purge": "deadline"})
            federation.settings = federation.settings.model_copy(update={"deniability": promised})
            with refuses(RunInUse, "does it by itself between its rounds, by 2027-02-28 12:00 UTC"):
                federation.purge(wait=0, callbacks=Callbacks(on_wait=messages.append))
        assert len(messages) == 1
        holding = threading.Event()

        def hold() -> None:
            with database.lock(run):
                holding.set()
                time.sleep(0.5)

        holder = threading.Thread(target=hold)
        holder.start()
        assert holding.wait(10)
        assert [request.number for request in federation.purge().requests] == [1]
        holder.join()


def test_it_ends_once_whoever_holds_the_run_has_purged(run: Path) -> None:
    with opened(run) as federation:
        federation.erase(["client-03"])
    with opened(run) as waiting, opened(run) as holder:
        holder.train(rounds=2)  # it takes the lock, and keeps it

        def meanwhile(why: str) -> None:
            holder.purge()

        done = waiting.purge(callbacks=Callbacks(on_wait=meanwhile))
        assert ([request.number for request in done.requests], done.left) == ([1], 0)
