"""Thinned models are gone from the disk, and only they: rounds, digests and whatever must stay are as before."""

from __future__ import annotations

from pathlib import Path

import pytest

from disavow.errors import IntegrityError, LedgerError
from disavow.ledger import Ledger, fsck, journal
from disavow.ledger.copying import copy_run
from disavow.ledger.keys import default_folder
from disavow.ledger.retention import nearest, round_models
from tests.ledger.making import all_rows, change, create, record_next, vector
from tests.refusals import refuses

ROUNDS = 8


def ledger_of_rounds(directory: Path, rounds: int = ROUNDS) -> Ledger:
    ledger = create(directory)
    for _ in range(rounds):
        record_next(ledger)
    return ledger


def kept_in(ledger: Ledger) -> list[int]:
    """The rounds whose checkpoint is kept."""
    with ledger._connect() as connection:
        return [each.round for each in round_models(connection) if each.kept]


def budget_for(ledger: Ledger, models: int) -> int:
    """Bytes for so many of the largest models."""
    with ledger._connect() as connection:
        return models * max(each.stored_bytes for each in round_models(connection))


def test_thinned_models_are_gone_and_everything_else_is_as_before(tmp_path: Path) -> None:
    with ledger_of_rounds(tmp_path / "run") as ledger:
        digests = [ledger.initial_model, *(summary.after for summary in ledger.summaries())]
        before = ledger.summaries(), [ledger.round(number) for number in range(1, ROUNDS + 1)]
        ledger.thin(budget_for(ledger, 4))
        kept = kept_in(ledger)
        assert len(kept) == 4
        assert {kept[0], kept[-1]} == {1, ROUNDS + 1}
        assert set(ledger.store.digests()) == {digests[number - 1] for number in kept}
        assert (ledger.summaries(), [ledger.round(number) for number in range(1, ROUNDS + 1)]) == before
        assert ledger.model_before(ROUNDS + 1).tolist() == vector(ROUNDS).tolist()
        record_next(ledger)  # and it goes on
    assert fsck(tmp_path / "run") == []


@pytest.mark.parametrize("budget", [None, 10**9])
def test_within_its_budget_nothing_is_written(tmp_path: Path, budget: int | None) -> None:
    with ledger_of_rounds(tmp_path / "run") as ledger:
        before = all_rows(tmp_path / "run")
        ledger.thin(budget)
        assert len(kept_in(ledger)) == ROUNDS + 1
    assert all_rows(tmp_path / "run") == before


def test_one_byte_still_keeps_the_initial_model_and_the_newest(tmp_path: Path) -> None:
    with ledger_of_rounds(tmp_path / "run") as ledger:
        ledger.thin(1)
        assert kept_in(ledger) == [1, ROUNDS + 1]
    assert fsck(tmp_path / "run") == []


def test_the_nearest_kept_round_is_the_last_kept_at_or_before_the_round(tmp_path: Path) -> None:
    with ledger_of_rounds(tmp_path / "run") as ledger:
        ledger.thin(budget_for(ledger, 4))
        kept = kept_in(ledger)
        with ledger._connect() as connection:
            for number in range(1, ROUNDS + 1):
                assert nearest(connection, number) == max(each for each in kept if each <= number)


def test_a_thinned_model_is_asked_for_in_vain_with_a_sentence_that_says_why(tmp_path: Path) -> None:
    with ledger_of_rounds(tmp_path / "run") as ledger:
        ledger.thin(1)
        with refuses(LedgerError, "round 3", "thinned", "ledger.retention") as caught:
            ledger.model_before(4)
        assert not isinstance(caught.value, IntegrityError)
        with refuses(LedgerError, "round 4", "thinned"):
            ledger.model_after(4)


def test_a_model_that_is_really_missing_is_still_called_so(tmp_path: Path) -> None:
    with ledger_of_rounds(tmp_path / "run") as ledger:
        ledger.thin(budget_for(ledger, 4))
        lost = kept_in(ledger)[1]
        digest = ledger.digest_before(lost)
    with Ledger.open(tmp_path / "run") as ledger:
        ledger.store.path(digest).unlink()
        with refuses(IntegrityError, "missing"):
            ledger.model_before(lost)
    [finding] = fsck(tmp_path / "run")
    assert finding.fault
    assert str(finding).startswith(f"model {digest[:12]}: model file")


@pytest.mark.parametrize(
    ("which", "thinned", "named"),
    [
        ("SELECT after FROM rounds WHERE id = 5", 0, "round 5: is standing, but its model is marked as deleted"),
        ("SELECT after FROM rounds WHERE id = 8", 1, "round 8: is the newest, but its model is marked as thinned"),
        ("SELECT initial_model FROM run", 1, "table models: the initial model is marked as deleted"),
    ],
)
def test_a_model_that_must_be_there_and_is_not_is_a_fault(
    tmp_path: Path, which: str, thinned: int, named: str
) -> None:
    ledger_of_rounds(tmp_path / "run").close()
    change(tmp_path / "run", f"UPDATE models SET present = 0, thinned = {thinned} WHERE digest = ({which})")
    assert named in [str(finding) for finding in fsck(tmp_path / "run") if finding.fault]


def test_killed_between_the_row_and_the_file_the_next_opening_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ledger_of_rounds(tmp_path / "run") as ledger:
        monkeypatch.setattr(ledger.store, "remove", lambda paths: None)
        ledger.thin(1)
    notes = fsck(tmp_path / "run")
    assert len(notes) == ROUNDS - 1
    assert not any(note.fault for note in notes)
    with Ledger.open(tmp_path / "run", write=True) as ledger:
        assert len(list(ledger.store.digests())) == 2
    assert fsck(tmp_path / "run") == []


def test_a_model_that_two_rounds_end_in_stays_while_one_of_them_is_kept(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        for number in (1, 2, 3, 0):  # the newest is the initial model again
            record_next(ledger, after=vector(number))
        record_next(ledger, after=vector(2))
        ledger.thin(1)
        assert ledger.model_before(3).tolist() == vector(2).tolist()
        assert kept_in(ledger) == [1, 3, 5, 6]
    assert fsck(tmp_path / "run") == []


def test_a_thinned_model_that_a_round_ends_in_again_is_there_again(tmp_path: Path) -> None:
    with ledger_of_rounds(tmp_path / "run") as ledger:
        ledger.thin(1)
        record_next(ledger, after=vector(4))
        assert kept_in(ledger) == [1, 5, ROUNDS + 1, ROUNDS + 2]
    assert fsck(tmp_path / "run") == []


def test_models_of_superseded_rounds_are_not_counted_and_not_thinned(tmp_path: Path) -> None:
    with ledger_of_rounds(tmp_path / "run") as ledger:
        budget = budget_for(ledger, 4)
        with ledger._begin() as connection:
            journal.supersede(connection, 4, 1)
        ledger.thin(budget)
        assert kept_in(ledger) == [1, 2, 3, 4]
        assert len(list(ledger.store.digests())) == ROUNDS + 1


def test_a_copy_of_a_thinned_run_is_whole(tmp_path: Path) -> None:
    with ledger_of_rounds(tmp_path / "run") as ledger:
        ledger.thin(budget_for(ledger, 3))
        kept = kept_in(ledger)
    keys = tmp_path / "copied keys"
    copy_run(tmp_path / "run", tmp_path / "copy", keys=default_folder(), target_keys=keys)
    assert [finding for finding in fsck(tmp_path / "copy", keys=keys) if finding.fault] == []
    with Ledger.open(tmp_path / "copy", keys=keys) as ledger:
        assert kept_in(ledger) == kept
