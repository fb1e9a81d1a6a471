from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from disavow.config import DataSettings
from disavow.data.catalogue import ATTRIBUTES, SPECS


def test_every_data_set_of_the_settings_but_digits_is_here() -> None:
    names = get_args(DataSettings.model_fields["name"].annotation)
    assert set(names) == {"digits", *SPECS}


def test_the_public_names_are_those_that_people_know() -> None:
    assert {name: spec.hub for name, spec in SPECS.items()} == {
        "mnist": "ylecun/mnist",
        "fashion-mnist": "zalando-datasets/fashion_mnist",
        "cifar10": "uoft-cs/cifar10",
        "celeba": "flwrlabs/celeba",
    }


def test_celeba_has_40_attributes_in_the_official_order() -> None:
    assert len(set(ATTRIBUTES)) == 40
    assert list(ATTRIBUTES) == sorted(ATTRIBUTES)
    assert (SPECS["celeba"].classes, SPECS["celeba"].attributes) == (40, True)
    assert set(SPECS["celeba"].strata) < set(ATTRIBUTES)


@pytest.mark.parametrize("name", SPECS)
def test_a_digest_changes_with_the_files_and_with_how_they_are_read(name: str) -> None:
    spec = SPECS[name]
    digests = {
        spec.digest(files=["a"]),
        spec.digest(files=["b"]),
        replace(spec, shape=(1, 9, 9)).digest(files=["a"]),
        replace(spec, most=(5, 5)).digest(files=["a"]),
    }
    assert len(digests) == 4
    assert spec.digest(files=["a"]) in digests
