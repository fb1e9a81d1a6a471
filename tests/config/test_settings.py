"""What settings mean together: what does not fit is refused, and what they promise is the policy."""

from __future__ import annotations

import dataclasses

import pytest
from pydantic import ValidationError

from disavow import config
from disavow.config import PROJECTION_LIMIT, Settings
from disavow.errors import ConfigError
from tests.config.refusing import complaints


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "[clustering]\nk = 21",
            "clustering.k is 21; allowed: 1 to 20, the participants of a round (data.clients 20",
        ),
        (
            "[training]\nfraction = 0.1\n[clustering]\nk = 3\n",
            "clustering.k is 3; allowed: 1 to 2, the participants of a round (data.clients 20, training.frac",
        ),
        ("[deniability]\nx = 5", "deniability.x is 5; allowed: 1 to 4 ("),
        ("[clustering]\nrepresentatives = 2\n[deniability]\nx = 4", "deniability.x is 4; allowed: 1 to 3 "),
        ("[clustering]\nrepresentatives = 4", "clustering.representatives is 4; allowed: "),
        (
            '[noise]\nmode = "calibrated"\ntau = 1.0',
            'noise.clip is not set; noise.mode "calibrated" needs a number',
        ),
        (
            '[noise]\nmode = "calibrated"\nclip = 1.0',
            'noise.tau is not set; noise.mode "calibrated" needs a number',
        ),
        (
            "[privacy]\nepsilon = 8",
            'privacy.epsilon is 8 with noise.mode "paper"; allowed: noise.mode "calibrated", the only one',
        ),
        (
            '[noise]\nmode = "none"\n[privacy]\nepsilon = 0.5',
            'privacy.epsilon is 0.5 with noise.mode "none"; allowed: noise.mode "calibrated"',
        ),
        (
            '[noise]\nmode = "calibrated"\nclip = 2\n[privacy]\nepsilon = 8\ndelta = 1e-6',
            'noise.tau is not set; noise.mode "calibrated" needs a number above 0: `disavow account --epsilon 8 '
            "--delta 1e-06 --rounds 20 --clients 20 --k 4 --clip 2` finds it",
        ),
        (
            '[data]\nclients = 2001\n[clustering]\nmetric = "published"',
            'clustering.metric is "published" with 2001 participants; allowed: up to 2000 (it cannot be projected)',
        ),
    ],
)
def test_settings_that_do_not_fit_together_are_named(text: str, line: str) -> None:
    (found,) = complaints(text)
    assert found.startswith(line)


def test_with_more_clients_than_a_round_takes_published_is_allowed() -> None:
    text = (
        f'[data]\nclients = {2 * PROJECTION_LIMIT}\n[training]\nfraction = 0.5\n[clustering]\nmetric = "published"'
    )
    assert config.parse(text, source="run.toml").participants == PROJECTION_LIMIT


def test_what_calibrated_needs_is_not_asked_of_the_other_modes() -> None:
    settings = config.parse('[noise]\nmode = "calibrated"\nclip = 1\ntau = 0.5', source="run.toml")
    assert (settings.policy.clip, settings.policy.tau) == (1.0, 0.5)
    assert config.parse('[noise]\nmode = "none"', source="run.toml").policy.clip is None


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        Settings().seed = 2  # type: ignore[misc]


def test_a_whole_number_serves_as_a_number() -> None:
    settings = config.parse("[deniability]\ndelta = 3\n[training]\nlearning_rate = 1", source="run.toml")
    assert settings.policy.delta == 3.0
    assert settings.training.learning_rate == 1.0


def test_the_policy_holds_every_promise() -> None:
    settings = config.parse(
        'draws = "seeded"\n[clustering]\nk = 5\nmetric = "cosine"\nrepresentatives = 2\n'
        "[deniability]\nx = 3\ndelta = 0.5\nodds = 100\n"
        '[noise]\ndistribution = "laplace"\nsigma = 0.3\n',
        source="run.toml",
    )
    assert dataclasses.asdict(settings.policy) == {
        "k": 5,
        "x": 3,
        "representatives": 2,
        "delta": 0.5,
        "relative_delta": None,
        "odds": 100.0,
        "clustering": "mdav",
        "sticky": True,
        "metric": "cosine",
        "noise": "paper",
        "distribution": "laplace",
        "sigma": 0.3,
        "statistics": "mean",
        "clip": None,
        "tau": None,
        "draws": "seeded",
        "mechanism": "retrain",
    }
    assert Settings().policy.adaptive


def test_a_relative_delta_is_read_as_a_multiple() -> None:
    policy = config.parse('[deniability]\ndelta = "0.5x"', source="run.toml").policy
    assert (policy.delta, policy.relative_delta, policy.adaptive) == (None, 0.5, False)
    assert policy.delta_at(3.0) == 1.5


@pytest.mark.parametrize("wrong", ['"x"', '"-1x"', '"0.5"', '"1e3x"', '"adaptively"', "0.0", '"0x"', '"0.0x"'])
def test_a_delta_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError):
        config.parse(f"[deniability]\ndelta = {wrong}", source="run.toml")


def test_calibrated_noise_releases_running_statistics_as_drawn() -> None:
    """The account covers what is drawn; a mean over the whole cluster would be released with certainty."""
    calibrated = config.parse('[noise]\nmode = "calibrated"\nclip = 1.0\ntau = 1.0', source="run.toml")
    assert (calibrated.policy.statistics, Settings().policy.statistics) == ("drawn", "mean")


def test_fixed_clusters_are_never_sticky() -> None:
    settings = config.parse('[clustering]\nmethod = "fixed"\nsticky = true', source="run.toml")
    assert settings.policy.sticky is False


@pytest.mark.parametrize(
    ("clients", "fraction", "count"), [(20, 1.0, 20), (20, 0.5, 10), (3, 0.01, 1), (10, 0.26, 3)]
)
def test_the_participants_are_the_fraction_rounded_but_at_least_one(
    clients: int, fraction: float, count: int
) -> None:
    assert config.participants_of(clients, fraction) == count
