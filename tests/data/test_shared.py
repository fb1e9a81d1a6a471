"""The real data sets, where they are at hand: whole by their metadata, and the first 2,000 rows decoded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pyarrow import parquet

from disavow.config import DataSettings
from disavow.data.catalogue import SPECS
from disavow.data.images import official
from disavow.data.progress import nothing
from tests.data.making import SHARED, needs_shared

pytestmark = needs_shared

COUNTS = {
    "mnist": (60_000, 10_000),
    "fashion-mnist": (60_000, 10_000),
    "cifar10": (50_000, 10_000),
    "celeba": (8_000, 2_000),
}
MNIST_LABELS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MEANS = {"mnist": [0.1307], "fashion-mnist": [0.2860], "cifar10": [0.4913, 0.4821, 0.4465]}


@pytest.mark.parametrize("name", SPECS)
def test_all_images_are_there(name: str) -> None:
    found = tuple(parquet.read_metadata(SHARED / name / f"{s}.parquet").num_rows for s in ("train", "test"))
    assert found == COUNTS[name]


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_labels_of_the_whole_are_counted_as_published(name: str) -> None:
    labels = parquet.read_table(SHARED / name / "train.parquet", columns=["label"])["label"].to_numpy()
    counts = np.bincount(labels).tolist()
    assert counts == (MNIST_LABELS if name == "mnist" else [COUNTS[name][0] // 10] * 10)


@pytest.mark.parametrize("name", SPECS)
def test_the_first_images_are_what_they_should_be(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SPECS, name, replace(SPECS[name], most=(2000, 500)))
    found = official(DataSettings(name=name, dir=str(SHARED)), nothing)  # type: ignore[arg-type]
    assert (len(found.train), len(found.test)) == (2000, 500)
    assert found.train.shape == SPECS[name].shape
    assert 0 <= float(found.train.images.min()) < 0.05
    assert 0.95 < float(found.train.images.max()) <= 1
    if name in MEANS:
        assert found.train.images.mean(dim=(0, 2, 3)).tolist() == pytest.approx(MEANS[name], abs=0.01)
    columns = list(SPECS[name].labels)
    rows = parquet.read_table(SHARED / name / "train.parquet", columns=columns).slice(0, 2000)
    expected = np.stack([rows[each].to_numpy() for each in columns], axis=1).squeeze()
    assert np.array_equal(found.train.labels.numpy(), expected.astype(found.train.labels.numpy().dtype))


def test_men_and_women_of_celeba_look_different_as_their_labels_say(monkeypatch: pytest.MonkeyPatch) -> None:
    # labels belong to their images: a line through pixels tells held-out faces apart
    monkeypatch.setitem(SPECS, "celeba", replace(SPECS["celeba"], most=(2000, 500)))
    found = official(DataSettings(name="celeba", dir=str(SHARED)), nothing)
    place = SPECS["celeba"].labels.index("Male")
    pixels, held = (data.images[:, :, ::4, ::4].flatten(1).numpy() for data in (found.train, found.test))
    male = found.train.labels[:, place].numpy()
    centred = pixels - pixels.mean(axis=0)
    ridge = centred.T @ centred + 100 * np.eye(centred.shape[1])
    line = np.linalg.solve(ridge, centred.T @ (male - male.mean()))
    said = (held - pixels.mean(axis=0)) @ line + male.mean() > 0.5
    assert np.mean(said == (found.test.labels[:, place].numpy() > 0.5)) > 0.75
