from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow
import pytest

from disavow.data.catalogue import SPECS, Spec
from disavow.data.decode import Block, blocks
from disavow.data.rows import Rows, refuse_other_schema
from disavow.errors import ConfigError
from tests.data.making import column, encoded, pixels, table
from tests.refusals import refuses


def rows_of(made: pyarrow.Table, count: int | None = None, batch: int = 7) -> Rows:
    def batches() -> Iterator[Any]:
        yield from made.to_batches(max_chunksize=batch)

    return Rows("somewhere.parquet", made.num_rows if count is None else count, made.schema, batches)


def decoded(spec: Spec, made: pyarrow.Table, count: int | None = None) -> Block:
    found = list(blocks(rows_of(made), spec, made.num_rows if count is None else count))
    return np.concatenate([images for images, _ in found]), np.concatenate([labels for _, labels in found])


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_pixels_and_labels_come_back_as_they_were(name: str) -> None:
    spec = SPECS[name]
    images, labels = decoded(spec, table(spec, 30))
    assert images.dtype == labels.dtype == np.uint8
    assert np.array_equal(images, pixels(spec, 30).transpose(0, 3, 1, 2))
    assert labels.tolist() == [i % 10 for i in range(30)]


def test_attributes_are_0_or_1_in_the_official_order_whatever_the_order_of_the_columns() -> None:
    spec = SPECS["celeba"]
    made = table(spec, 9)
    shuffled = made.select([*reversed(made.column_names)])
    expected = np.stack([np.asarray(made[name].to_pylist()) for name in spec.labels], axis=1)
    for each in (made, shuffled):
        images, labels = decoded(spec, each)
        assert images.shape == (9, 3, 64, 64)
        assert np.array_equal(labels, expected)


@pytest.mark.parametrize(("height", "width"), [(109, 89), (218, 178), (64, 64), (50, 200), (1, 1)])
def test_faces_are_cut_to_their_central_square_and_resized(height: int, width: int) -> None:
    spec = SPECS["celeba"]
    image = np.zeros((height, width, 3), dtype=np.uint8)
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    image[top : top + side, left : left + side] = 200  # and black around it, of which nothing may be left
    found, _ = decoded(spec, table(spec, 1, image=column([encoded(image)])))
    assert found.shape == (1, 3, 64, 64)
    assert (found == 200).all()


def test_only_as_many_rows_are_decoded_as_are_asked_for() -> None:
    spec = SPECS["mnist"]
    broken = [encoded(each) for each in pixels(spec, 10)] + [b"no image"] * 10
    images, labels = decoded(spec, table(spec, 20, image=column(broken)), 10)
    assert (len(images), len(labels)) == (10, 10)


def test_a_file_that_ends_too_early_is_refused() -> None:
    spec = SPECS["mnist"]
    with refuses(ConfigError, "somewhere.parquet", "5 rows", " 8") as caught:
        list(blocks(rows_of(table(spec, 5), count=8), spec, 8))
    assert caught.value.code == "DSV-101"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (None, "no bytes"),
        (b"", "cannot identify"),
        (b"GIF89a", "cannot identify"),
        (encoded(pixels(SPECS["mnist"], 1)[0])[:60], ""),
        (encoded(pixels(SPECS["mnist"], 1)[0])[:-30], ""),
        (encoded(pixels(SPECS["mnist"], 1, size=(20, 28))[0]), "28x20, not 28x28"),
    ],
    ids=["none", "empty", "gif", "cut short", "cut at the end", "another size"],
)
def test_an_image_that_cannot_be_used_is_named_by_its_row(bad: bytes | None, reason: str) -> None:
    spec = SPECS["mnist"]
    images: list[bytes | None] = [encoded(each) for each in pixels(spec, 12)]
    images[9] = bad
    with refuses(ConfigError, "somewhere.parquet", "row 9", reason) as e:
        decoded(spec, table(spec, 12, image=column(images)))
    assert e.value.code == "DSV-101"
    assert "\n" not in str(e.value)


def test_a_truncated_jpeg_is_refused_too() -> None:
    spec = SPECS["cifar10"]
    whole = encoded(pixels(spec, 1)[0], "JPEG")
    assert decoded(spec, table(spec, 1, img=column([whole])))[0].shape == (1, 3, 32, 32)
    with refuses(ConfigError, "row 0") as caught:
        decoded(spec, table(spec, 1, img=column([whole[: len(whole) // 2]])))
    assert caught.value.code == "DSV-101"


@pytest.mark.parametrize("label", [-1, 10, 256])
def test_a_label_that_is_no_class_is_named_by_its_row(label: int) -> None:
    spec = SPECS["mnist"]
    labels = [0] * 9 + [label] + [0] * 2
    with refuses(ConfigError, "row 9", f"label is {label}") as caught:
        decoded(spec, table(spec, 12, label=pyarrow.array(labels)))
    assert caught.value.code == "DSV-101"


def test_a_label_that_is_missing_is_named_by_its_row() -> None:
    for name, key in (("mnist", "label"), ("celeba", "Smiling")):
        spec = SPECS[name]
        kind = pyarrow.bool_() if spec.attributes else pyarrow.int64()
        labels = pyarrow.array([1, 0, None], pyarrow.int64()).cast(kind)
        with refuses(ConfigError, "row 2", key) as caught:
            decoded(spec, table(spec, 3, **{key: labels}))
        assert caught.value.code == "DSV-101"


# -- schemas -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "instead", "named"),
    [
        ("mnist", {"label": None}, ["column label"]),
        ("mnist", {"image": None}, ["column image"]),
        ("cifar10", {"img": None}, ["column img"]),
        ("celeba", {"Young": None, "Bald": None}, ["column Bald", "1 more"]),
        ("mnist", {"label": pyarrow.array(["a", "b"])}, ["column label", "string", "int64"]),
        ("mnist", {"label": pyarrow.array([0.5, 1])}, ["column label", "double", "int64"]),
        ("celeba", {"Young": pyarrow.array([1, -1])}, ["column Young", "int64", "bool"]),
        ("mnist", {"image": pyarrow.array([b"a", b"b"])}, ["column image", "struct<bytes: binary,"]),
        ("mnist", {"image": pyarrow.array([{"path": "a"}] * 2)}, ["column image", "struct<path: string>"]),
    ],
)
def test_another_schema_is_refused_by_column(name: str, instead: dict[str, Any], named: list[str]) -> None:
    spec = SPECS[name]
    with refuses(ConfigError, "somewhere.parquet: ", spec.hub, *named):
        refuse_other_schema(rows_of(table(spec, 2, **instead)), spec)


@pytest.mark.parametrize("name", SPECS)
def test_the_schema_of_the_hub_is_taken_and_no_rows_are_not(name: str) -> None:
    spec = SPECS[name]
    refuse_other_schema(rows_of(table(spec, 2)), spec)
    with pytest.raises(ConfigError) as caught:
        refuse_other_schema(rows_of(table(spec, 2).slice(0, 0)), spec)
    assert caught.value.code == "DSV-101"


def test_whole_numbers_of_any_width_are_labels() -> None:
    spec = SPECS["mnist"]
    made = table(spec, 3, label=pyarrow.array([1, 2, 3], pyarrow.uint8()))
    refuse_other_schema(rows_of(made), spec)
    assert decoded(spec, made)[1].tolist() == [1, 2, 3]
