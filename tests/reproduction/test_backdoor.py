"""The backdoored leaver: what each answer leaves of its backdoor, one line each, and none made twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reproduction import backdoor
from reproduction.backdoor import ANSWERS, BackdoorLine, Study
from reproduction.backdoor_table import backdoor as table_of

SMALL = Study(
    rows=(("MNIST-iid", "digits", "lenet5"),),
    clients=8,
    rounds=3,
    batch_size=8,
    learning_rate=0.1,
    seeds=(1,),
    quick=True,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("backdoor")
    backdoor.run(SMALL.points(device="cpu"), folder / "lines.jsonl", folder / "work")
    return folder


@pytest.fixture(scope="module")
def lines(folder: Path) -> dict[str, BackdoorLine]:
    return {line.answer: line for line in backdoor.read(folder / "lines.jsonl")}


def test_every_answer_has_its_line(lines: dict[str, BackdoorLine]) -> None:
    assert list(lines) == list(ANSWERS)


def test_a_deniable_leaver_stays_in_the_model_until_the_purge(lines: dict[str, BackdoorLine]) -> None:
    stays, purged = lines["deniable, it stays"], lines["deniable, then purged"]
    assert stays.remark == "deniable"
    assert (stays.after, stays.accuracy_after, stays.client_epochs) == (stays.before, stays.accuracy_before, 0)
    assert purged.before == stays.before
    assert purged.client_epochs == 3 * 3 * 7


def test_a_rollback_trains_every_round_again_without_it(lines: dict[str, BackdoorLine]) -> None:
    assert lines["rollback"].remark == "rollback to round 1"
    assert lines["rollback"].client_epochs == lines["retrained from scratch"].client_epochs == 3 * 3 * 7
    assert 0 < lines["fedEraser"].client_epochs < 3 * 3 * 7


def test_what_is_there_is_not_made_again_and_what_is_missing_is(folder: Path, tmp_path: Path) -> None:
    points, made = SMALL.points(device="cpu"), []
    text = (folder / "lines.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "lines.jsonl").write_text("".join(text[:-1]))
    backdoor.run(
        points, tmp_path / "lines.jsonl", folder / "work", on_point=lambda point, _: made.append(point.answer)
    )
    assert made == ["rollback"]
    assert backdoor.read(tmp_path / "lines.jsonl")[-1] == backdoor.read(folder / "lines.jsonl")[-1]


def test_the_table_has_means_and_intervals_over_seeds(lines: dict[str, BackdoorLine]) -> None:
    found = list(lines.values())
    alone = table_of(found, quick=True)
    [piece] = alone.pieces
    assert [row[0] for row in piece.rows] == list(ANSWERS)
    assert piece.rows[2][1] == f"{lines['deniable, it stays'].before:.3f}"
    several = [replace(line, seed=seed, after=0.1 * seed) for line in found for seed in (1, 2, 3)]
    [piece] = table_of(several).pieces
    assert {row[2] for row in piece.rows} == {"0.200 ± 0.248"}
    assert "seeds: 1, 2, 3" in table_of(several).markdown()
    assert "nothing has been run yet" in table_of([]).markdown()


def test_a_line_that_was_made_twice_counts_once(lines: dict[str, BackdoorLine]) -> None:
    found = [replace(line, seed=seed, after=0.1 * seed) for line in lines.values() for seed in (1, 2, 3)]
    twice, once = table_of([*found, *found]), table_of(found)
    assert twice.pieces == once.pieces
    assert twice.csv() == once.csv()
    assert f"from {len(found)} lines" in twice.markdown()


def test_missing_seeds_are_marked(lines: dict[str, BackdoorLine]) -> None:
    found = [
        replace(line, seed=seed)
        for line in lines.values()
        for seed in (1, 2, 3)
        if seed == 1 or line.answer != "rollback"
    ]
    [piece] = table_of(found).pieces
    marked = {row[0] for row in piece.rows if row[1].endswith(" a")}
    assert marked == {"rollback"}
    assert piece.remarks == {"a": "1 of 3 seeds were run"}
