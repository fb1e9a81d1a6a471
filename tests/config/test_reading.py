"""A settings file is read, or refused in one line for each problem."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from disavow import config
from disavow.config import Settings
from disavow.errors import ConfigError
from tests.config.refusing import complaints

# -- what is refused, one line a problem: the key, what it was, what is allowed ---------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("sede = 1", "sede is not a setting; allowed: seed, rounds, draws, data, model, training, clustering, "),
        ("[dta]\nclients = 3", "dta is not a setting; allowed: seed, "),
        ("[data]\nclinets = 3", "data.clinets is not a setting; allowed: name, clients, partition, alpha, "),
        ("[noise.extra]\na = 1", "noise.extra is not a setting; allowed: mode, distribution, sigma, statistics, "),
        ('seed = "1"', 'seed is "1"; allowed: a whole number of at least 0 and below 4,294,967,296'),
        ("seed = -1", "seed is -1; allowed: a whole number of at least 0"),
        (
            "seed = 9223372036854775808",
            "seed is 9223372036854775808; allowed: a whole number of at least 0 and below",
        ),
        ("rounds = 0", "rounds is 0; allowed: a whole number of at least 1"),
        ("rounds = 2.5", "rounds is 2.5; allowed: a whole number of at least 1"),
        ("rounds = true", "rounds is true; allowed: a whole number of at least 1"),
        ("rounds = 2024-01-01", 'rounds is "2024-01-01"; allowed: a whole number of at least 1'),
        ('draws = "random"', 'draws is "random"; allowed: "fresh", "seeded"'),
        (
            'data = "digits"',
            'data is "digits"; allowed: a table with name, clients, partition, alpha, test_fraction',
        ),
        ("training = 3", "training is 3; allowed: a table with epochs, "),
        ("noise = [1, 2]", "noise is [1, 2]; allowed: a table with mode, "),
        ("[[model]]\nname = 'lenet5'", 'model is [{"name": "lenet5"}]; allowed: a table with name'),
        ("[seed]\na = 1", 'seed is {"a": 1}; allowed: a whole number of at least 0'),
        ('[data]\nclients = "20"', 'data.clients is "20"; allowed: a whole number of at least 1'),
        (
            '[data]\nname = "imagenet"',
            'data.name is "imagenet"; allowed: "digits", "mnist", "fashion-mnist", "cifar10", "celeba"',
        ),
        ("[data]\ndir = 3", "data.dir is 3; allowed: a text"),
        ("[data]\nlabels_per_client = 0", "data.labels_per_client is 0; allowed: a whole number of at least 1"),
        ("[data]\ntest_fraction = 1", "data.test_fraction is 1; allowed: a number above 0 and below 1"),
        ("[data]\nalpha = 0", "data.alpha is 0; allowed: a number above 0"),
        ("[data]\nalpha = nan", "data.alpha is NaN; allowed: a number above 0"),
        ('[model]\nname = "vgg"', 'model.name is "vgg"; allowed: "convnet", "lenet5", "resnet-mini"'),
        (
            "[training]\nlearning_rate = inf",
            "training.learning_rate is Infinity; allowed: a number of at least 1e-38",
        ),
        (
            "[training]\nlearning_rate = -inf",
            "training.learning_rate is -Infinity; allowed: a number of at least 1e-38",
        ),
        ("[training]\nmomentum = 1.0", "training.momentum is 1.0; allowed: a number of at least 0 and below 1"),
        ("[training]\nfraction = 1.5", "training.fraction is 1.5; allowed: a number above 0 and of at most 1"),
        ("[training]\nfraction = nan", "training.fraction is NaN; allowed: a number above 0 and of at most 1"),
        ("[clustering]\nk = 0", "clustering.k is 0; allowed: a whole number of at least 1"),
        ("[clustering]\nsticky = 1", "clustering.sticky is 1; allowed: true or false"),
        (
            '[clustering]\nmethod = "dbscan"',
            'clustering.method is "dbscan"; allowed: "mdav", "constrained-kmeans", "fixed"',
        ),
        (
            '[deniability]\ndelta = "wide"',
            'deniability.delta is "wide"; allowed: a number of at least 1e-38 and of at most 1e+38',
        ),
        (
            "[deniability]\ndelta = 0",
            "deniability.delta is 0; allowed: a number of at least 1e-38 and of at most 1e+38",
        ),
        (
            "[deniability]\ndelta = nan",
            "deniability.delta is NaN; allowed: a number of at least 1e-38 and of at most 1e+38",
        ),
        (
            "[deniability]\ndelta = inf",
            "deniability.delta is Infinity; allowed: a number of at least 1e-38 and of at most 1e+38",
        ),
        (
            "[deniability]\ndelta = true",
            "deniability.delta is true; allowed: a number of at least 1e-38 and of at most 1e+38",
        ),
        ("[noise]\nsigma = -0.1", "noise.sigma is -0.1; allowed: a number of at least 0"),
        ("[noise]\nclip = 1e-300", "noise.clip is 1e-300; allowed: a number of at least 1e-38"),
        ("[noise]\nclip = 0.0", "noise.clip is 0.0; allowed: a number of at least 1e-38"),
        ('[noise]\ntau = "small"', 'noise.tau is "small"; allowed: a number of at least 1e-38'),
        ("[privacy]\nepsilon = 0", "privacy.epsilon is 0; allowed: a number of at least 1e-38"),
        ("[privacy]\nepsilon = inf", "privacy.epsilon is Infinity; allowed: a number of at least 1e-38"),
        ("[privacy]\ndelta = 0", "privacy.delta is 0; allowed: a number above 0 and below 1"),
        (
            "rounds = 999999999999999999999",
            "rounds is 999999999999999999999; allowed: a whole number of at least 1 and",
        ),
        (
            "[data]\nclients = 1000001",
            "data.clients is 1000001; allowed: a whole number of at least 1 and of at most",
        ),
        (
            "[training]\nepochs = 999999999999999999999",
            "training.epochs is 999999999999999999999; allowed: a whole",
        ),
        (
            "[training]\nbatch_size = 9223372036854775808",
            "training.batch_size is 9223372036854775808; allowed: a wh",
        ),
        (
            "[training]\nlearning_rate = 1e300",
            "training.learning_rate is 1e+300; allowed: a number of at least 1e-38",
        ),
        (
            "[training]\nweight_decay = 1e300",
            "training.weight_decay is 1e+300; allowed: a number of at least 0 and",
        ),
        (
            "[mechanism]\ninterval = 99999999999",
            "mechanism.interval is 99999999999; allowed: a whole number of at l",
        ),
        (
            "[ledger]\nretention = 99999999999999999999",
            "ledger.retention is 99999999999999999999; allowed: a whole n",
        ),
        (f"[noise]\nsigma = {'9' * 400}", f"noise.sigma is {'9' * 80}...; allowed: a number of at least 0 and"),
        (f"rounds = {'9' * 5000}", "not TOML: "),
        (f"a = {'[' * 100_000}", "not TOML: "),
        ("[privacy]\ndelta = 1.0", "privacy.delta is 1.0; allowed: a number above 0 and below 1"),
    ],
)
def test_each_problem_is_one_line_with_the_key_what_it_was_and_what_is_allowed(text: str, line: str) -> None:
    (found,) = complaints(text)
    assert found.startswith(line)


def test_several_problems_are_several_lines() -> None:
    lines = complaints('rounds = 0\ncolour = 1\n[data]\nclients = "x"\n[deniability]\ndelta = "y"\n')
    assert sorted(line.split()[0] for line in lines) == ["colour", "data.clients", "deniability.delta", "rounds"]


# -- files -----------------------------------------------------------------------------------------------------


def test_a_missing_file_is_named_with_the_command_that_writes_one(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    with pytest.raises(ConfigError, match=f"^{re.escape(str(path))}: there is no such file; `disavow init {path}`"):
        config.load(path)


@pytest.mark.parametrize("text", ["seed 1", "seed = ", "[data", "seed = 1\nseed = 2", "rounds = 01"])
def test_what_is_not_toml_is_refused_with_its_place(text: str) -> None:
    (line,) = complaints(text)
    assert re.match(r"not TOML: .*\((at line \d+, column \d+|at end of document)\)", line)


def test_a_folder_and_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        config.load(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00seed")
    with pytest.raises(ConfigError, match="cannot be read"):
        config.load(tmp_path / "binary.toml")


def test_a_file_is_read_as_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("# größer\nseed = 5\n", encoding="utf-8")
    assert config.load(path).seed == 5


def test_an_empty_file_means_the_defaults() -> None:
    assert config.parse("", source="run.toml") == Settings()
