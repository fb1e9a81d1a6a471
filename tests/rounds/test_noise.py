"""What a noise may declare: an account must not count rounds that it does not cover."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from disavow.domain.strategies import NOISES
from disavow.errors import ConfigError
from disavow.rounds.noise import CalibratedNoise, Noise
from tests.refusals import refuses


def add(self: Noise, step: Tensor, **given: Any) -> None:
    """Stands for noise on the aggregate."""


def perturb(self: Noise, released: Tensor, *spreads: Any, **given: Any) -> None:
    """Stands for noise on each cluster."""


COVERED = {
    "name": "own",
    "no_figure": "",
    "clips": True,
    "may_average": False,
    "needs": ("clip", "tau"),
    "perturb_aggregate": add,
}


@pytest.mark.parametrize("base", [Noise, CalibratedNoise])
def test_a_noise_like_the_calibrated_one_may_have_a_figure(base: type[Noise]) -> None:
    type("Own", (base,), COVERED).check()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "other",
    [
        {"clips": False},
        {"may_average": True},
        {"needs": ()},
        {"needs": ("tau",)},
        {"perturb": perturb},
        {"perturb_aggregate": Noise.perturb_aggregate},
    ],
    ids=["clips", "may_average", "needs nothing", "needs tau", "perturb", "perturb_aggregate"],
)
def test_a_figure_for_what_the_account_does_not_cover_is_refused(other: dict[str, Any]) -> None:
    declared = type("Own", (Noise,), {**COVERED, **other})
    with refuses(ConfigError, "own", "no_figure"):
        NOISES.add(declared)
    assert "own" not in NOISES
    type("Own", (Noise,), {**COVERED, **other, "no_figure": "not covered"}).check()  # type: ignore[attr-defined]
