"""A run is bound to what it keeps from its start, and to nothing else."""

from __future__ import annotations

import pytest

from disavow import config
from disavow.config import Settings
from disavow.errors import ConfigError


def test_a_default_said_outright_is_still_the_default() -> None:
    said = config.parse("[privacy]\ndelta = 1e-5", source="run.toml")
    assert config.settings_digest(said) == config.settings_digest(Settings())


def test_a_budget_is_a_promise() -> None:
    text = '[noise]\nmode = "calibrated"\nclip = 1.0\ntau = 0.5\n[privacy]\n'
    found = [
        config.settings_digest(config.parse(text + privacy, source="run.toml"))
        for privacy in ("", "epsilon = 8", "epsilon = 9", "epsilon = 8\ndelta = 1e-6", "delta = 1e-6")
    ]
    assert len(set(found)) == 5


def test_where_the_data_is_may_change_and_what_it_is_may_not() -> None:
    def digest(data: str) -> str:
        return config.settings_digest(config.parse(f"[data]\n{data}", source="run.toml"))

    assert digest('dir = "/here"') == digest('dir = "/there"') == digest("")
    others = [
        digest(each) for each in ("", 'digest = "a"', 'digest = "b"', "labels_per_client = 3", 'name = "mnist"')
    ]
    assert len(set(others)) == 5
    assert digest("labels_per_client = 2") == digest("")


def test_what_is_kept_on_disk_may_change_and_is_a_number_of_bytes_or_all() -> None:
    def parsed(value: str) -> Settings:
        return config.parse(f"[ledger]\nretention = {value}", source="run.toml")

    assert config.settings_digest(parsed("2_000_000")) == config.settings_digest(Settings())
    assert parsed('"all"') == Settings()
    assert config.parse(config.to_toml(parsed("7")), source="run.toml").ledger.retention == 7
    for wrong in ("0", "-1", "1.5", '"most"', "true"):
        with pytest.raises(
            ConfigError, match=r'ledger\.retention is .*; allowed: a whole number of at least 1 and .* or "all"'
        ):
            parsed(wrong)


@pytest.mark.parametrize(
    "key", ["epochs = 1", "batch_size = 9", "learning_rate = 0.2", "momentum = 0.5", "fraction = 0.5"]
)
def test_how_clients_train_may_not_change(key: str) -> None:
    """A retraining with other values would not be what the rounds would have come to."""
    changed = config.parse(f"[training]\n{key}", source="run.toml")
    assert config.settings_digest(changed) != config.settings_digest(Settings())
