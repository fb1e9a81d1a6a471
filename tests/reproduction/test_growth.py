"""The study of odds: the odds of its lines are those of proofs, and it goes on where it was."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from disavow.ledger.lock import Lock
from reproduction import growth, odds_lines
from reproduction.growth import Point, Study
from reproduction.odds_lines import OddsLine

STUDY = Study(
    "digits", clients=(20, 40), sigmas=(0.0, 0.5), seeds=(1,), rounds=2, batch_size=64, learning_rate=0.05
)


def run(folder: Path) -> tuple[list[OddsLine], list[Point]]:
    finished: list[Point] = []
    (folder / "work").mkdir(parents=True, exist_ok=True)
    found = growth.run(STUDY.points(), folder / "odds.jsonl", folder / "work", on_point=finished.append)
    return found, finished


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[OddsLine]]:
    folder = tmp_path_factory.mktemp("odds")
    return folder, run(folder)[0]


def test_every_federation_has_a_line(found: tuple[Path, list[OddsLine]]) -> None:
    _, lines = found
    assert [(line.clients, line.sigma) for line in lines] == [(20, 0.0), (20, 0.5), (40, 0.0), (40, 0.5)]
    assert all(line.rounds == 2 for line in lines)
    assert lines[0].fedavg_accuracy == lines[1].fedavg_accuracy


def test_without_noise_there_are_no_odds_and_with_it_those_of_the_design(
    found: tuple[Path, list[OddsLine]],
) -> None:
    _, (none, noisy, _, more) = found
    assert (none.log10_gamma_round, none.worst_composed) == (None, None)
    # m clusters of equal weight and spread: s = 1/(σ√m)
    for line, clusters in ((noisy, 2), (more, 4)):
        s = 1 / (0.5 * math.sqrt(clusters))
        assert line.log10_gamma_round is not None
        assert line.log10_gamma_round == pytest.approx((s * s / 2 + 1.645 * s) / math.log(10), rel=0.25)
        assert line.worst_round is not None
        assert line.log10_gamma_composed is not None
        assert line.worst_round >= line.log10_gamma_round
        assert line.log10_gamma_composed > line.log10_gamma_round
    assert (more.log10_gamma_round or 0) < (noisy.log10_gamma_round or 0)


def test_odds_that_were_chosen_are_kept_by_the_client_that_is_worst_off(tmp_path: Path) -> None:
    study = replace(STUDY, clients=(40,), epochs=1, representatives=3, odds=(5.0, 100.0))
    strict, loose = growth.run(study.points(), tmp_path / "odds.jsonl", tmp_path / "work")
    for line, odds in ((strict, 5.0), (loose, 100.0)):
        assert (line.noise, line.representatives, line.epochs) == ("sensitivity", 3, 1)
        assert line.worst_composed is not None
        assert 0.5 * math.log10(odds) <= line.worst_composed <= math.log10(odds)
    assert strict.sigma > loose.sigma
    assert odds_lines.read(tmp_path / "odds.jsonl") == [strict, loose]


def test_what_is_finished_is_not_trained_again(found: tuple[Path, list[OddsLine]], tmp_path: Path) -> None:
    _, lines = found
    for line in lines[:-1]:
        odds_lines.append(tmp_path / "odds.jsonl", line)
    again, finished = run(tmp_path)
    assert [(point.clients, point.sigma) for point in finished] == [(40, 0.5)]
    assert [line.accuracy for line in again] == [line.accuracy for line in lines]


def test_federations_that_another_process_is_at_are_left_to_it(
    found: tuple[Path, list[OddsLine]], tmp_path: Path
) -> None:
    _, lines = found
    for line in lines[:-1]:
        odds_lines.append(tmp_path / "odds.jsonl", line)
    room = tmp_path / "work" / "odds-40-seed-1"
    notes: list[str] = []
    room.mkdir(parents=True)
    with Lock(room):
        left = growth.run(STUDY.points(), tmp_path / "odds.jsonl", tmp_path / "work", on_note=notes.append)
    assert [line.key for line in left] == [line.key for line in lines[:-1]]
    [note] = notes
    assert note.startswith("40 clients, seed 1, are left to others: ")


def test_a_model_that_noise_destroys_is_recorded_as_far_as_it_came(tmp_path: Path) -> None:
    wild = Study("digits", clients=(20,), sigmas=(50.0,), seeds=(1,), rounds=8, batch_size=8, learning_rate=0.5)
    (line,) = growth.run(wild.points(), tmp_path / "odds.jsonl", tmp_path / "work")
    assert line.rounds < 8
