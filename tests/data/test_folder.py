from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from disavow.data.catalogue import SPECS
from disavow.data.folder import FolderSource, folder_of
from disavow.errors import ConfigError
from tests.data.making import table, write
from tests.refusals import refuses

MNIST = SPECS["mnist"]


def source(folder: Path, name: str = "mnist") -> FolderSource:
    return FolderSource(SPECS[name], "data.dir", folder)


def test_the_setting_comes_before_the_variable_and_without_either_there_is_no_folder(tmp_path: Path) -> None:
    variables = {"DISAVOW_DATA_DIR": str(tmp_path)}
    assert folder_of("/somewhere", variables) == ("data.dir", Path("/somewhere"))
    assert folder_of("~/data", variables) == ("data.dir", Path.home() / "data")
    assert folder_of(None, variables) == ("DISAVOW_DATA_DIR", tmp_path)
    assert folder_of(None, {}) is None
    assert folder_of(None, {"DISAVOW_DATA_DIR": ""}) is None


@pytest.mark.parametrize("missing", ["mnist", "mnist/train.parquet", "mnist/test.parquet"])
def test_a_folder_without_the_files_is_refused_by_name_with_what_should_be_there(
    tmp_path: Path, missing: str
) -> None:
    path = write(tmp_path) / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with refuses(ConfigError, f"data.dir is {tmp_path}", "mnist/train.parquet", "mnist/test.parquet"):
        source(tmp_path).rows("train")


@pytest.mark.parametrize("damage", ["empty", "cut short", "text"])
def test_what_is_not_parquet_is_refused_by_name(tmp_path: Path, damage: str) -> None:
    path = write(tmp_path) / "mnist" / "train.parquet"
    whole = path.read_bytes()
    path.write_bytes({"empty": b"", "cut short": whole[: len(whole) // 2], "text": b"not parquet\n" * 99}[damage])
    with refuses(ConfigError, "train.parquet") as caught:
        source(tmp_path).rows("train")
    assert caught.value.code == "DSV-101"


def test_damage_inside_a_file_is_refused_by_name_when_it_is_met(tmp_path: Path) -> None:
    path = write(tmp_path) / "mnist" / "train.parquet"
    whole = bytearray(path.read_bytes())
    whole[4:400] = bytes(396)  # pages at the start; the footer stays
    path.write_bytes(whole)
    with refuses(ConfigError, "train.parquet") as caught:
        list(source(tmp_path).rows("train").batches())
    assert caught.value.code == "DSV-101"


def test_rows_are_counted_and_come_in_the_order_of_the_file(tmp_path: Path) -> None:
    rows = source(write(tmp_path, train=60)).rows("train")
    labels = [label for batch in rows.batches() for label in batch.column("label").to_pylist()]
    assert rows.count == 60
    assert labels == [i % 10 for i in range(60)]


@pytest.mark.parametrize("place", ["", "data"])
def test_a_split_in_pieces_is_read_in_their_order_there_or_one_folder_down(tmp_path: Path, place: str) -> None:
    folder = write(tmp_path) / "mnist"
    (folder / "train.parquet").unlink()
    (folder / place).mkdir(exist_ok=True)
    for i, start in enumerate((0, 4, 8)):
        part = pyarrow.array(range(start, start + 2))
        parquet.write_table(table(MNIST, 2, label=part), folder / place / f"train-0000{i}-of-00003.parquet")
    rows = source(tmp_path).rows("train")
    assert rows.count == 6
    assert [x for batch in rows.batches() for x in batch.column("label").to_pylist()] == [0, 1, 4, 5, 8, 9]
    (folder / place / "train-00001-of-00003.parquet").unlink()
    with refuses(ConfigError, "piece 1 of 3") as caught:
        source(tmp_path).rows("train")
    assert caught.value.code == "DSV-101"


def test_pieces_with_other_columns_than_the_first_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path) / "mnist"
    (folder / "train.parquet").unlink()
    parquet.write_table(table(MNIST, 2), folder / "train-00000-of-00002.parquet")
    parquet.write_table(table(MNIST, 2, more=pyarrow.array([1, 2])), folder / "train-00001-of-00002.parquet")
    with refuses(ConfigError, "train-00001-of-00002.parquet", "columns") as caught:
        source(tmp_path).rows("train")
    assert caught.value.code == "DSV-101"


def test_the_digest_is_that_of_the_content_wherever_it_is(tmp_path: Path) -> None:
    first = source(write(tmp_path / "one")).digest
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    assert source(tmp_path / "two").digest == first
    path = tmp_path / "two" / "mnist" / "test.parquet"
    path.write_bytes(path.read_bytes() + b"x")
    assert source(tmp_path / "two").digest != first
    # the same bytes as the other split are other data
    shutil.copytree(tmp_path / "one", tmp_path / "three")
    for split, other in (("train", "test"), ("test", "train")):
        shutil.copy(
            tmp_path / "one" / "mnist" / f"{split}.parquet", tmp_path / "three" / "mnist" / f"{other}.parquet"
        )
    assert source(tmp_path / "three").digest != first
