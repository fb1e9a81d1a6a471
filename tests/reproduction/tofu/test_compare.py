"""An author of a small federation leaves by several methods, and each model is measured as TOFU does."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

pytest.importorskip("transformers", reason="needs the extra llm")

from disavow.compare.choice import Effort
from disavow.errors import ConfigError
from reproduction.tofu.compare import BEFORE, RETRAINED, ComparedAuthor, compare_author, methods_of
from reproduction.tofu.measures import forget_quality
from reproduction.tofu.settings import SMOKE
from reproduction.tofu.study import Study, run_study
from tests.adapters.conftest import make_base
from tests.reproduction.tofu.test_federation import TOFU

pytestmark = [
    pytest.mark.torture,  # the comparison on adapters itself is tested in tests/adapters
    pytest.mark.skipif(not TOFU.is_dir(), reason="TOFU's files are not in ../shared/data/tofu"),
]

NAMES = ["ours", "npo", "not"]
EFFORT = Effort(seeds=1, references=3, quick=True)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A federation of ten authors over an untrained base, trained for a round."""
    folder = tmp_path_factory.mktemp("tofu")
    base = make_base(folder / "base")
    (base / "recipe.json").write_text('{"sha256": ""}', encoding="utf-8")
    found = Study(replace(SMOKE, authors=10, rounds=1, length=640), base, TOFU, folder / "study", "cpu", first=2)
    run_study(found, ["trained"])
    return found


@pytest.fixture(scope="module")
def found(study: Study) -> ComparedAuthor:
    """What was compared."""
    return compare_author(study, study.leaving[0], methods_of(NAMES), EFFORT)


def test_every_model_has_tofus_measures_beside_those_of_the_comparison(found: ComparedAuthor, study: Study) -> None:
    assert list(found.measured) == [BEFORE, RETRAINED, *NAMES]
    for sets in found.measured.values():
        assert {name: each.questions for name, each in sets.items()} == dict.fromkeys(
            ("forget", "retain", "held_out"), 2
        )
    headings, _, *rows = found.table()
    assert "forget quality" in headings
    assert "best attacker" in headings
    assert len(rows) == len(found.measured)
    folder = study.folder / f"compare-{found.author}"
    assert json.loads((folder / "tofu.json").read_text(encoding="utf-8"))["tofu"].keys() == found.measured.keys()
    assert (folder / "table.md").is_file()


def test_a_model_that_stays_as_it_is_has_the_forget_quality_of_the_served_one(found: ComparedAuthor) -> None:
    [ours] = [row for row in found.comparison.rows if row.method.name == "ours"]
    assert ours.remarks == ("deniable",)
    assert found.measured["ours"] == found.measured[BEFORE]
    assert found.forget_quality["ours"] == found.forget_quality[BEFORE]
    ratios = found.measured[BEFORE]["forget"].ratios
    assert forget_quality(ratios, ratios) == 1
    assert all(0 <= each <= 1 for each in found.forget_quality.values())


def test_pieces_that_are_done_are_not_done_again(found: ComparedAuthor, study: Study) -> None:
    again = compare_author(study, study.leaving[0], methods_of(NAMES), EFFORT)
    seconds = [
        {row.method.name: row.estimates["seconds"] for row in each.comparison.rows} for each in (found, again)
    ]
    assert seconds[0] == seconds[1]
    assert again.measured == found.measured


def test_a_method_that_trains_in_its_own_way_is_refused() -> None:
    with pytest.raises(ConfigError, match="fats"):
        methods_of(["retrain", "fats"])
