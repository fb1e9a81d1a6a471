"""Rows of the comparison's tables: settings that a run can have, and patients in two classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from disavow import config
from reproduction.compare import rows, settings_of
from reproduction.tcga_deaths import REGIONS, build
from tests.cli.forked import module


@pytest.mark.parametrize("row", rows())
def test_every_row_has_settings_that_a_run_can_have(row: str, tmp_path: Path) -> None:
    values = settings_of(row, seed=1, patients=tmp_path, device="cpu")
    settings = config.from_values(values, source=row)
    assert settings.clustering.k >= settings.deniability.x
    assert settings.task.is_used == row.startswith("tcga")


def test_a_row_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = module("reproduction.compare", "--row", "mnist-lenet5", "--out", tmp_path)
    assert done.returncode == 2, done.stderr
    assert "mnist-iid-lenet5" in done.stderr


def test_patients_are_dealt_to_regions_and_held_out_as_the_split_says(tmp_path: Path) -> None:
    codes = {f"C{number}": region for number, region in enumerate(REGIONS)}
    (tmp_path / "centers.csv").write_text(
        "TSS Code,Region\n" + "".join(f"{code},{region}\n" for code, region in codes.items()) + "XX,Other\n"
    )
    patients = [f"TCGA-{code}-{number}" for code in [*codes, "XX"] for number in range(4)]
    lines = [f"{pid},{50 + at},1,{float(at % 2)},100.0\n" for at, pid in enumerate(patients)]
    (tmp_path / "brca.csv").write_text("pid,age_at_index,stage,E,T\n" + "".join(lines))
    folds = [f"{pid},{'test' if pid.endswith('3') else 'train'}\n" for pid in patients]
    (tmp_path / "train_test_split.csv").write_text("pid,fold\n" + "".join(folds))
    task = build(str(tmp_path))
    held = task.clients()
    assert set(held) == set(REGIONS)
    inputs, died = held["South"]
    assert inputs.tolist() == [[pytest.approx((50 + at) / 100), 1.0] for at in (4, 5, 6)]
    assert died.tolist() == [0, 1, 0]
    assert task.record_keys("South") == ["TCGA-C1-0", "TCGA-C1-1", "TCGA-C1-2"]
    held_out = task.test_data()
    assert held_out is not None
    assert len(held_out[1]) == len(REGIONS)
