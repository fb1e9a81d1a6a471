from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from disavow.config import DataSettings
from disavow.data import load
from disavow.data.catalogue import ATTRIBUTES, SPECS
from disavow.data.images import official
from disavow.data.progress import nothing
from disavow.errors import ConfigError, how_to_install
from tests.cli.process import environment
from tests.data.making import pixels, table, write
from tests.refusals import refuses
from tests.selection import some_of


def settings_for(folder: Path, name: str = "mnist", **more: object) -> DataSettings:
    return DataSettings.model_validate({"name": name, "dir": str(folder), **more})


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_images_are_float32_from_0_to_1_in_the_official_split(name: str, tmp_path: Path) -> None:
    found = official(settings_for(write(tmp_path, name), name), nothing)
    spec = SPECS[name]
    for data, count, seed in ((found.train, 60, 1), (found.test, 20, 2)):
        assert data.images.dtype == torch.float32
        assert data.images.shape == (count, *spec.shape)
        expected = pixels(spec, count, seed).transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)
        assert np.array_equal(data.images.numpy(), expected)
        assert data.labels.tolist() == [i % 10 for i in range(count)]
        assert data.labels.dtype == torch.int64
        assert data.groups is data.labels
        assert (data.classes, data.shape) == (10, spec.shape)


def test_celeba_has_attributes_and_strata_by_three_of_them(tmp_path: Path) -> None:
    found = official(settings_for(write(tmp_path, "celeba", 30, 8), "celeba"), nothing)
    made, train = table(SPECS["celeba"], 30, 1), found.train
    assert train.images.shape == (30, 3, 64, 64)
    assert (train.labels.shape, train.labels.dtype, train.classes) == ((30, 40), torch.float32, 40)
    for i, name in enumerate(ATTRIBUTES):
        assert train.labels[:, i].tolist() == made[name].to_pylist()
    male, smiling, young = (np.asarray(made[name].to_pylist()) for name in ("Male", "Smiling", "Young"))
    expected = (male + 2 * smiling + 4 * young).tolist()
    assert train.groups.tolist() == expected
    assert train.groups.dtype == torch.int64
    chosen = train.select(np.array([3, 1]))
    assert chosen.groups.tolist() == [expected[3], expected[1]]


def test_what_is_not_at_hand_is_noted_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write(tmp_path, "celeba", 30, 8)
    with caplog.at_level(logging.INFO, "disavow"):
        data = load(settings_for(folder, "celeba", clients=3), seed=1)
    note = "celeba is not all at hand: 30 of 50,000 training images and 8 of 19,962 test images are used"
    assert data.notes == (note,)
    assert note in caplog.messages


def test_of_celeba_no_more_than_the_paper_used_is_taken_and_then_there_is_no_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(SPECS["celeba"], official=(40, 9), most=(30, 10))
    monkeypatch.setitem(SPECS, "celeba", small)
    found = official(settings_for(write(tmp_path, "celeba", 40, 9), "celeba"), nothing)
    assert (len(found.train), len(found.test)) == (30, 9)
    assert found.notes == ()
    made = table(small, 40, 1)
    assert found.train.labels[:, 0].tolist() == made[ATTRIBUTES[0]].to_pylist()[:30]


def test_the_variable_names_the_folder_where_the_setting_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISAVOW_DATA_DIR", str(write(tmp_path / "data")))
    assert len(official(DataSettings(name="mnist"), nothing).train) == 60
    monkeypatch.setenv("DISAVOW_DATA_DIR", str(tmp_path / "none"))
    with refuses(ConfigError, "DISAVOW_DATA_DIR", "/none") as caught:
        official(DataSettings(name="mnist"), nothing)
    assert caught.value.code == "DSV-101"


def test_other_files_than_those_of_the_digest_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "one")
    digest = official(settings_for(folder), nothing).digest
    assert digest is not None
    assert official(settings_for(folder, digest=digest), nothing).digest == digest
    with refuses(ConfigError, f"data.digest is {digest[:16]}") as caught:
        official(settings_for(write(tmp_path / "two", train=61), digest=digest), nothing)
    assert caught.value.code == "DSV-101"


def test_the_share_of_test_images_plays_no_part(tmp_path: Path) -> None:
    folder = write(tmp_path)
    one, other = (load(settings_for(folder, clients=5, test_fraction=f), seed=1) for f in (0.1, 0.9))
    assert torch.equal(one.test.images, other.test.images)
    assert len(one.test) == 20


@pytest.mark.parametrize("partition", ["iid", "quantity", "dirichlet", "shards", "pathological"])
@pytest.mark.parametrize("name", ["mnist", "celeba"])
def test_every_partition_of_every_kind_of_labels_is_settled_by_the_seed(
    name: str, partition: str, tmp_path: Path
) -> None:
    settings = settings_for(write(tmp_path, name), name, clients=12, partition=partition)

    def drawn(seed: int) -> list[list[int]]:
        return [part.tolist() for part in load(settings, seed=seed).parts.values()]

    first = drawn(1)
    assert sorted(i for part in first for i in part) == list(range(60))
    assert min(map(len, first)) >= 1
    assert drawn(1) == first
    assert drawn(2) != first


def test_more_clients_than_images_are_refused_by_name(tmp_path: Path) -> None:
    with refuses(ConfigError, "data.clients is 61", 60) as caught:
        load(settings_for(write(tmp_path), clients=61), seed=1)
    assert caught.value.code == "DSV-101"


# -- what is imported ----------------------------------------------------------------------------------------------

HEAVY = ["datasets", "flwr_datasets", "pyarrow", "pandas", "PIL", "huggingface_hub"]


def loaded_by(code: str) -> str:
    program = f"{code}\nimport sys; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    return result.stdout.strip()


def test_digits_and_the_auditors_part_import_none_of_the_extra() -> None:
    code = "from disavow.config import DataSettings\nfrom disavow.data import load\n"
    for partition in ("iid", "quantity", "dirichlet"):
        code += f"load(DataSettings(partition={partition!r}), seed=1)\n"
    assert loaded_by(code + "import disavow.runs, disavow.proof.verify, disavow.cli.app") == "[]"


@pytest.mark.parametrize(
    "absent", some_of(["pyarrow", "PIL", "datasets", "flwr_datasets"], ["pyarrow", "datasets"])
)
def test_without_the_extra_the_command_that_installs_it_is_named(absent: str, tmp_path: Path) -> None:
    write(tmp_path)
    code = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from disavow.config import DataSettings
from disavow.data import load
from disavow.errors import MissingExtra
for settings in (DataSettings(name="mnist", dir={str(tmp_path)!r}), DataSettings(partition="shards")):
    try:
        load(settings, seed=1)
    except MissingExtra as error:
        print(error)
"""
    lines = loaded_by(code).splitlines()[:-1]
    assert lines
    for line in lines:
        assert line.endswith(f"needs {absent}; {how_to_install('data')}")
        assert line.startswith(('data.name "mnist"', 'data.partition "'))
