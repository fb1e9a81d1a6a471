"""Requests that are placed together: each gets its own answer, whatever is wrong with others, whenever it fails."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disavow.domain import ErasureRequest
from disavow.errors import DisavowError, KeyReused, RunInUse, StorageError, UnknownClient
from disavow.federation import Federation
from disavow.server.filing import Filed, Filing
from disavow.server.open_runs import OpenRuns
from disavow.server.settings import ServerSettings
from disavow.server.state import State
from tests.rounds.builders import PROPERTY
from tests.server.service import RUN

STEPS = ("place", "placed", "noted")
"""Where a batch fails: before it is placed, once it is placed, once its keys are noted."""


class Crash(StorageError):
    """The disk is gone at some instant; whoever waits is told, and tries again."""


@contextmanager
def filing_in(folder: Path) -> Iterator[Filing]:
    state = State(folder / "state")
    runs = OpenRuns(ServerSettings(folder / "runs", folder / "state", folder / "keys"))
    filing = Filing(state, runs.to_place)
    try:
        yield filing
    finally:
        filing.close()
        runs.close()
        state.close()


def fail_at(filing: Filing, step: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    place, note = Filing._place, Filing._note_keys

    def place_and_fail(run: str, batch: list[Filed]) -> list[tuple[Filed, int]]:
        if step == "place":
            raise Crash("before it is placed")
        placed = place(filing, run, batch)
        if step == "placed":
            raise Crash("once it is placed")
        return placed

    def note_and_fail(run: str, placed: list[tuple[Filed, int]]) -> None:
        note(filing, run, placed)
        if step == "noted":
            raise Crash("once its keys are noted")

    monkeypatch.setattr(filing, "_place", place_and_fail)
    monkeypatch.setattr(filing, "_note_keys", note_and_fail)


def answer_of(filed: Filed) -> ErasureRequest | DisavowError:
    assert filed.done.done()
    error = filed.done.exception()
    assert error is None or isinstance(error, DisavowError)
    return filed.done.result() if error is None else error


CALLS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7)), min_size=1, max_size=12)
"""Calls: whom for, where the last two are nobody, and with which idempotency key, where 0 is none."""


@settings(PROPERTY, max_examples=15)
@given(st.lists(st.tuples(CALLS, st.sampled_from([None, *STEPS])), min_size=1, max_size=3))
def test_nothing_is_lost_or_doubled_wherever_a_batch_fails(
    served_once: Path, batches: list[tuple[list[tuple[int, int]], str | None]]
) -> None:
    with tempfile.TemporaryDirectory() as made, pytest.MonkeyPatch.context() as monkeypatch:
        folder = Path(made)
        for name in ("runs", "keys"):
            shutil.copytree(served_once / name, folder / name)
        with Federation.open(folder / "runs" / RUN, keys=folder / "keys") as federation:
            clients = [*federation.clients()[:4], "nobody", "no one"]
        keys: dict[int, int] = {}  # whom a key was first used for
        numbers: dict[int, int] = {}
        with filing_in(folder) as filing:
            for calls, step in batches:
                sent = [
                    Filed(clients[who], "tests", b"%d" % key if key else None, b"%d" % who) for who, key in calls
                ]
                fail_at(filing, step, monkeypatch)
                filing._file_all(RUN, sent)
                fail_at(filing, None, monkeypatch)
                again = [i for i, filed in enumerate(sent) if isinstance(answer_of(filed), Crash)]
                for i in again:
                    sent[i] = replace(sent[i], done=type(sent[i].done)())
                filing._file_all(RUN, [sent[i] for i in again])
                for (who, key), filed in zip(calls, sent, strict=True):
                    answer = answer_of(filed)
                    if isinstance(answer, KeyReused):
                        assert keys[key] != who
                    elif who >= 4:
                        assert isinstance(answer, UnknownClient)
                    else:
                        assert isinstance(answer, ErasureRequest)
                        assert numbers.setdefault(who, answer.number) == answer.number
                        assert answer.client == clients[who]
                        if key:
                            assert keys.setdefault(key, who) == who
        with Federation.open(folder / "runs" / RUN, keys=folder / "keys") as federation:
            placed = {request.client: request.number for request in federation.requests()}
            assert placed == {clients[who]: number for who, number in numbers.items()}


def test_one_refused_request_costs_some_transactions_and_not_one_for_each(folder: Path) -> None:
    with Federation.open(folder / "runs" / RUN, keys=folder / "keys") as federation:
        clients = list(federation.clients())
    wanted = [*(clients * 8)[:31], "nobody"]
    with filing_in(folder) as filing, pytest.MonkeyPatch.context() as monkeypatch:
        sizes: list[int] = []
        place = Federation.place

        def counted(federation: Federation, ids: list[str], **more: object) -> tuple[int, ...]:
            sizes.append(len(ids))
            return place(federation, ids, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(Federation, "place", counted)
        sent = [Filed(client, "tests") for client in wanted]
        filing._file_all(RUN, sent)
        answers = [answer_of(filed) for filed in sent]
    assert isinstance(answers[-1], UnknownClient)
    assert all(isinstance(answer, ErasureRequest) for answer in answers[:-1])
    assert sizes == [32, 16, 16, 8, 8, 4, 4, 2, 2, 1, 1]


def test_a_run_that_cannot_be_written_is_tried_once(folder: Path) -> None:
    with filing_in(folder) as filing, pytest.MonkeyPatch.context() as monkeypatch:
        tried: list[int] = []

        def refuse(federation: Federation, ids: list[str], **more: object) -> tuple[int, ...]:
            tried.append(len(ids))
            raise RunInUse("others write for too long")

        monkeypatch.setattr(Federation, "place", refuse)
        sent = [Filed(f"client-{number}", "tests") for number in range(8)]
        filing._file_all(RUN, sent)
    assert tried == [8]
    assert all(isinstance(answer_of(filed), RunInUse) for filed in sent)


def test_a_run_that_was_restored_meanwhile_is_opened_again(folder: Path) -> None:
    """What is written to files that others have taken the place of would be acknowledged and lost."""
    with Federation.open(folder / "runs" / RUN, keys=folder / "keys") as federation:
        first, second, *_ = federation.clients()
    before = folder / "before"
    shutil.copytree(folder / "runs" / RUN, before)
    shutil.copytree(folder / "keys", folder / "keys before")
    with filing_in(folder) as filing:
        sent = Filed(first, "tests")
        filing._file_all(RUN, [sent])
        assert answer_of(sent).number == 1  # type: ignore[union-attr]
        for path, copy in ((folder / "runs" / RUN, before), (folder / "keys", folder / "keys before")):
            for file in [each for each in copy.rglob("*") if each.is_file()]:
                place = path / file.relative_to(copy)
                place.unlink(missing_ok=True)
                shutil.copy2(file, place)
            for left in (*path.rglob("*-wal"), *path.rglob("*-shm")):
                if not (copy / left.relative_to(path)).exists():
                    left.unlink()
        again = Filed(second, "tests")
        filing._file_all(RUN, [again])
        assert answer_of(again).number == 1  # type: ignore[union-attr]
    with Federation.open(folder / "runs" / RUN, keys=folder / "keys") as federation:
        assert [request.client for request in federation.requests()] == [second]
