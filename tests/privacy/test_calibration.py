from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disavow.errors import ConfigError
from disavow.privacy.accountants import sampled, unconditional
from disavow.privacy.calibration import HOPELESS, Setting, noise_ratio, sampled_tau, unconditional_tau
from disavow.privacy.events import fixed_sizes
from tests.rounds.builders import PROPERTY

DESIGN = Setting(rounds=50, sizes=fixed_sizes(50, 10), clip=1.0)
LENET5 = 51_902


def test_eight_unconditional_on_lenet5_means_noise_1934_times_the_clip() -> None:
    tau = unconditional_tau(DESIGN, 8.0, 1e-5)
    assert noise_ratio(tau, 1.0, LENET5) == pytest.approx(1934, abs=0.5)
    assert noise_ratio(tau, 1.0, LENET5) > HOPELESS


@PROPERTY
@given(st.floats(0.01, 100), st.floats(-12, -2), st.integers(1, 500), st.floats(0.1, 10))
def test_unconditional_noise_keeps_to_epsilon_and_is_the_least(
    epsilon: float, log_delta: float, rounds: int, clip: float
) -> None:
    setting, delta = Setting(rounds, (4, 5), clip), 10**log_delta
    tau = unconditional_tau(setting, epsilon, delta)
    found = unconditional(setting.events(tau, fixed=False), delta).epsilon
    assert found == pytest.approx(epsilon, rel=1e-6)


def sampled_noise_is_the_least(epsilon: float, rounds: int, sizes: tuple[int, ...]) -> None:
    setting = Setting(rounds, sizes, clip=2.0)
    tau = sampled_tau(setting, epsilon, 1e-5)
    assert (sampled(setting.events(tau, fixed=True), 1e-5).epsilon or 0) <= epsilon
    assert (sampled(setting.events(tau * (1 - 3e-4), fixed=True), 1e-5).epsilon or 0) > epsilon * (1 - 1e-6)
    assert tau < unconditional_tau(setting, epsilon, 1e-5)


@pytest.mark.parametrize(("epsilon", "rounds", "sizes"), [(0.5, 7, (5, 6)), (8.0, 1, (4, 4, 4))])
def test_sampled_noise_keeps_to_epsilon_and_is_the_least_to_a_ten_thousandth(
    epsilon: float, rounds: int, sizes: tuple[int, ...]
) -> None:
    sampled_noise_is_the_least(epsilon, rounds, sizes)


@pytest.mark.torture
@settings(PROPERTY, max_examples=20)
@given(st.floats(0.1, 20), st.sampled_from([1, 7, 60]), st.sampled_from([(4, 4, 4), (5, 6), (10,) * 5]))
def test_any_sampled_noise_keeps_to_epsilon(epsilon: float, rounds: int, sizes: tuple[int, ...]) -> None:
    sampled_noise_is_the_least(epsilon, rounds, sizes)


def test_the_clip_is_a_unit_of_noise() -> None:
    other = replace(DESIGN, clip=5.0)
    assert sampled_tau(other, 1.0, 1e-5) == pytest.approx(5 * sampled_tau(DESIGN, 1.0, 1e-5))
    assert unconditional_tau(other, 1.0, 1e-5) == pytest.approx(5 * unconditional_tau(DESIGN, 1.0, 1e-5))


def test_sigma_and_tau_are_two_names_of_one_noise() -> None:
    assert DESIGN.tau_of(1.0) == pytest.approx(2 / 5**0.5)
    assert DESIGN.sigma_of(DESIGN.tau_of(0.37)) == pytest.approx(0.37)
    uneven = Setting(3, fixed_sizes(11, 4), 1.0)
    assert uneven.weights == pytest.approx((5 / 11, 6 / 11))
    assert uneven.tau_of(1.0) == pytest.approx(2 * (25 + 36) ** 0.5 / 11)


@pytest.mark.parametrize(
    ("epsilon", "delta", "message"),
    [
        (
            1e-9,
            1e-5,
            "--epsilon is 1e-09; allowed: more: noise for it costs less than can be computed at δ = 1e-05",
        ),
        (1.0, 0.999, "--delta is 0.999; allowed: below 0.9948, the chance to be drawn in any round"),
    ],
)
def test_what_cannot_be_met_is_refused(epsilon: float, delta: float, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        sampled_tau(DESIGN, epsilon, delta)
    assert str(refused.value) == message


def test_hardly_any_noise_is_found_too() -> None:
    tau = sampled_tau(DESIGN, 1e7, 1e-5)
    assert 0 < tau < 1e-3
    assert (sampled(DESIGN.events(tau, fixed=True), 1e-5).epsilon or 0) <= 1e7
