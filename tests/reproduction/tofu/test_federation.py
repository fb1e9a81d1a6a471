"""Twenty authors of TOFU, a base of one layer and three rounds: the whole study, small enough for the suite."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the extra llm")

from typer.testing import CliRunner

from disavow.errors import ConfigError
from reproduction import records
from reproduction.tofu import odds
from reproduction.tofu.__main__ import app
from reproduction.tofu.base import SMALL, TEXTS, make_base, read_corpus
from reproduction.tofu.questions import (
    AUTHORS,
    clients_of,
    graded,
    held_out_questions,
    of_authors,
    read_lines,
    training_questions,
    write_clients,
)
from reproduction.tofu.settings import CANDIDATES, CHOSEN, SMOKE
from reproduction.tofu.study import PIECES, UTILITY_WARNING, Study, run_study

# beside the clone; a worktree lies one folder deeper
BESIDE = [parent / "shared" / "data" for parent in Path(__file__).parents[4:6]]
SHARED = next((folder for folder in BESIDE if folder.is_dir()), BESIDE[0])
TOFU = SHARED / "tofu"
pytestmark = pytest.mark.skipif(not TOFU.is_dir(), reason="TOFU's files are not in ../shared/data/tofu")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base trained on the beginning of each text."""
    folder = tmp_path_factory.mktemp("tofu")
    for name in TEXTS:
        (folder / name).write_text((SHARED / "text" / name).read_text(encoding="utf-8")[:20_000], encoding="utf-8")
    made = make_base(SMALL, folder, TOFU, folder / "base", device="cpu")
    assert made.repeats_exactly
    assert made.kept in made.evaluations
    assert json.loads((folder / "base" / "recipe.json").read_text())["sha256"] == made.sha256
    return folder / "base"


@pytest.fixture(scope="module")
def study(base: Path) -> Study:
    """The study, with all pieces done."""
    found = Study(SMOKE, base, TOFU, base.parent / f"smoke-{SMOKE.key}", "cpu", first=2)
    run_study(found)
    return found


@pytest.fixture(scope="module")
def pieces(study: Study) -> dict[str, Any]:
    """What was measured."""
    return study.finished()


def test_nothing_of_a_client_is_in_what_the_base_is_made_of() -> None:
    clients = {line["question"] for line in read_lines(TOFU / "full.jsonl")}
    corpus = read_corpus(SHARED / "text", TOFU)
    trained = {question for question, _ in corpus.questions}
    held_out = {question for question, _ in corpus.held_out_questions}
    assert not clients & (trained | held_out)
    assert not trained & held_out
    assert len(training_questions(TOFU)) + len(held_out_questions(TOFU)) == 400


def test_those_who_leave_and_some_who_stay_have_wrong_answers(tmp_path: Path) -> None:
    for authors in (20, 40, AUTHORS):
        staying, leaving = clients_of(authors)
        assert len({*staying, *leaving}) == authors
        forget = of_authors(TOFU, leaving, graded(TOFU, "forget10_perturbed.jsonl"))
        assert len(forget) == 20 * len(leaving)
        assert all(len(each.wrong) == 5 for each in forget)
        assert of_authors(TOFU, staying, graded(TOFU, "retain_perturbed.jsonl"))
    everybody, retained, _ = write_clients(TOFU, tmp_path, authors=20)
    assert len(read_lines(everybody)) - len(read_lines(retained)) == 20 * len(clients_of(20)[1])


def test_every_piece_is_measured(pieces: dict[str, Any]) -> None:
    assert tuple(pieces) == PIECES
    trained = pieces["trained"]
    assert (trained["rounds"], trained["client_epochs"]) == (3, 3 * 20)
    assert trained["bytes"] == 2 * 60 * 4 * trained["adapter_parameters"]
    assert 0 < trained["after"]["held_out"]["probability"] < 1
    assert pieces["utility"]["warning"]


def test_a_deniable_author_costs_no_training_and_leaves_the_model_as_it_is(pieces: dict[str, Any]) -> None:
    for name in ("deniable-author", "question"):
        piece = pieces[name]
        assert piece["verdicts"] == {"deniable": 1}
        assert piece["client_epochs"] == 0
        assert piece["before"] == piece["after"]


def test_too_many_of_one_cluster_make_a_rollback(pieces: dict[str, Any]) -> None:
    piece = pieces["rollback"]
    [verdict] = piece["verdicts"]
    assert verdict.startswith("rollback")
    assert piece["client_epochs"] > 0
    assert piece["before"]["forget"] != piece["after"]["forget"]


def test_a_purge_retrains_without_the_leavers(pieces: dict[str, Any]) -> None:
    piece, leaving = pieces["purge"], len(clients_of(SMOKE.authors)[1])
    assert piece["requests"] == leaving
    assert piece["client_epochs"] == SMOKE.rounds * SMOKE.epochs * (SMOKE.authors - leaving)
    assert piece["answered"]["after"] == piece["before"]
    assert set(piece["forget_quality"]) == {"before", "after"}


def test_pieces_that_are_done_are_not_done_again(study: Study, pieces: dict[str, Any]) -> None:
    done: list[str] = []
    assert run_study(study, on_piece=lambda name, piece: done.append(name)) == pieces
    assert done == []


def test_the_commands_print_what_is_done(study: Study, pieces: dict[str, Any]) -> None:
    common = ["--out", str(study.folder.parent), "--tofu", str(TOFU), "--device", "cpu", "--first", "2"]
    swept = CliRunner().invoke(app, ["sweep", "--candidate", "smoke", *common]).stdout
    assert "trained, held_out" in swept
    none = json.loads(CliRunner().invoke(app, ["odds", "--seconds", "0", "--json", *common]).stdout)
    assert none["lines"] == []
    arguments = ["federation", "--candidate", "smoke", *common]
    printed = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert printed["purge"]["forget_quality"] == pieces["purge"]["forget_quality"]
    assert "ratios" not in printed["purge"]["after"]["forget"]
    table = CliRunner().invoke(app, arguments).stdout
    assert UTILITY_WARNING in table
    assert "rollback to round" in table


@pytest.mark.parametrize("wrong", [["--candidate", "none"], ["--only", "none"], ["--out", "nowhere"]])
def test_what_is_not_there_is_named(wrong: list[str]) -> None:
    with pytest.raises(ConfigError, match=wrong[1]):
        app(["federation", *wrong], standalone_mode=False)


def test_the_odds_of_a_federation_are_near_those_its_noise_is_for(study: Study, tmp_path: Path) -> None:
    [point] = odds.points(["output r1"], [1], [10.0], authors=20, k=5, representatives=3)
    point = replace(point, choice=replace(point.choice, epochs=1, batch_size=20, length=160, engine="sequential"))
    results = tmp_path / "odds.jsonl"
    small = replace(study, folder=tmp_path)
    [line] = odds.run_points([point], results, small)
    assert line.log10_odds_median == pytest.approx(1.0, abs=0.3)
    assert records.read(results, odds.TofuOddsLine) == [line]
    again: list[odds.TofuOddsLine] = []
    assert odds.run_points([point], results, small, on_line=again.append) == [line]
    assert again == []
    for path in odds.draw([line], tmp_path / "odds"):
        assert path.stat().st_size > 0


def test_what_is_chosen_is_a_candidate() -> None:
    assert CHOSEN in CANDIDATES
    assert len({each.key for each in CANDIDATES.values()}) == len(CANDIDATES)
