"""Settings are read, or refused in one line for each problem; what is written reads back the same."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from disavow import config
from disavow.config import PROJECTION_LIMIT, Settings
from disavow.domain.strategies import Registry
from disavow.errors import ConfigError
from tests.config.refusing import complaints
from tests.refusals import refuses
from tests.rounds.builders import PROPERTY

# -- what is refused, one line a problem: the key, what it was, what is allowed ---------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "sede = 1",
            "sede is not a setting; allowed: seed, rounds, draws, task, data, model, training, clustering, ",
        ),
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
    with refuses(ConfigError, f"{path}: ", f"`disavow init {path}`"):
        config.load(path)


@pytest.mark.parametrize("text", ["seed 1", "seed = ", "[data", "seed = 1\nseed = 2", "rounds = 01"])
def test_what_is_not_toml_is_refused_with_its_place(text: str) -> None:
    (line,) = complaints(text)
    assert re.match(r"not TOML: .*\((at line \d+, column \d+|at end of document)\)", line)


def test_a_folder_and_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    with refuses(ConfigError, tmp_path):
        config.load(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00seed")
    with refuses(ConfigError, tmp_path / "binary.toml"):
        config.load(tmp_path / "binary.toml")


def test_a_file_is_read_as_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("# größer\nseed = 5\n", encoding="utf-8")
    assert config.load(path).seed == 5


def test_an_empty_file_means_the_defaults() -> None:
    assert config.parse("", source="run.toml") == Settings()


def values_of(kind: Any, metadata: Iterable[Any] = ()) -> st.SearchStrategy[Any]:
    """Whatever a declared type and its bounds allow."""
    found: st.SearchStrategy[Any]
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        found = st.fixed_dictionaries(
            {k: values_of(f.annotation, f.metadata) for k, f in kind.model_fields.items()}
        )
    elif get_origin(kind) is Annotated:
        inner, *more = get_args(kind)
        found = values_of(inner, [m for item in more for m in getattr(item, "metadata", [item])])
    elif get_origin(kind) is Literal:
        found = st.sampled_from(get_args(kind))
    elif kind in (int, float):
        found = numbers(kind, metadata)
    elif kind is bool:
        found = st.booleans()
    elif kind is str and (names := [sorted(m) for m in metadata if isinstance(m, Registry)]):
        found = st.sampled_from(names[0])
    elif kind is str and (patterns := [m.pattern for m in metadata if getattr(m, "pattern", None)]):
        found = st.from_regex(patterns[0], fullmatch=True).filter(lambda text: len(text) <= 16)
    elif kind is str:
        shortest = max((getattr(m, "min_length", 0) for m in metadata), default=0)
        found = st.text(st.characters(codec="utf-8"), min_size=shortest)
    elif kind is type(None):
        found = st.none()
    elif get_origin(kind) is list:
        found = st.just([])
    else:
        found = st.one_of(*(values_of(part, metadata) for part in get_args(kind)))
    return found


def numbers(kind: type[int] | type[float], metadata: Iterable[Any]) -> st.SearchStrategy[Any]:
    bounds = {key: getattr(m, key) for m in metadata for key in ("gt", "ge", "lt", "le") if hasattr(m, key)}
    if kind is int:
        assert "gt" not in bounds, "no setting has this bound yet"
        return st.integers(bounds["ge"], bounds["le"] if "le" in bounds else bounds["lt"] - 1)
    return st.floats(
        bounds.get("gt", bounds.get("ge")),
        bounds.get("lt", bounds.get("le")),
        exclude_min="gt" in bounds,
        exclude_max="lt" in bounds,
        allow_nan=False,
        allow_infinity=False,
    )


WITNESSES = [
    {"url": f"https://witness.example.org:8322/{name}", "key": f"{name}.example.org+0123abcd+B{name * 43}"}
    for name in ("A", "B")
]


def test_witnesses_are_named_once_and_no_more_are_needed_than_there_are() -> None:
    def parsed(servers: list[dict[str, str]], **more: object) -> Settings:
        return config.from_values({"witness": {"servers": servers, **more}}, source="run.toml")

    assert parsed(WITNESSES).witness.needed == 2
    assert parsed(WITNESSES, quorum=1).witness.needed == 1
    assert Settings().witness.needed == 0
    renamed = {**WITNESSES[0], "key": WITNESSES[0]["key"].replace("A.example", "C.example")}
    for servers, more in (
        ([WITNESSES[0], renamed], {}),
        (WITNESSES, {"quorum": 3}),
        (WITNESSES, {"quorum": 0}),
        (WITNESSES, {"timeout": 61.0}),
        ([{**WITNESSES[0], "url": "ftp://witness.example.org"}], {}),
        ([{**WITNESSES[0], "url": "https://user@witness.example.org"}], {}),
        ([{**WITNESSES[0], "key": "A.example.org+0123abcd+A" + "A" * 43}], {}),
        ([{"url": "https://witness.example.org"}], {}),
    ):
        with refuses(ConfigError, "witness"):
            parsed(servers, **more)


def test_witnesses_of_a_run_may_change() -> None:
    named = config.from_values({"witness": {"servers": WITNESSES}}, source="run.toml")
    assert config.settings_digest(named) == config.settings_digest(Settings())


@st.composite
def any_settings(draw: st.DrawFn) -> Settings:
    """Whatever the settings allow, each alone and all together."""
    values = draw(values_of(Settings))
    clients, noise = draw(st.integers(2, 5000)), values["noise"]
    share = draw(st.just(1.0) | st.floats(2 / clients, 1))
    participants = config.participants_of(clients, share)
    k = draw(st.integers(2, participants))
    values["data"] |= {"clients": clients}
    plain = st.text() | st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
    nested = st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5)
    values["task"] |= {"clients": None, "options": draw(st.dictionaries(st.text(), nested, max_size=3))}
    values["training"] |= {"fraction": share}
    drawn = draw(st.integers(1, k - 1))
    values["clustering"] |= {"k": k, "representatives": drawn} | (
        {"metric": "l2"} if participants > PROJECTION_LIMIT else {}
    )
    values["deniability"] |= {"x": draw(st.integers(1, k - drawn + 1))}
    if noise["mode"] == "calibrated":
        noise |= {"clip": noise["clip"] or 1.5, "tau": noise["tau"] or 0.1}
        values["mechanism"]["name"] = "retrain"
    else:
        values["privacy"]["epsilon"] = None
    if values["mechanism"]["name"] == "federaser":
        values["ledger"]["retention"] = "all"
        values["deniability"]["purge"] = "never"
    servers = draw(st.lists(st.sampled_from(WITNESSES), unique_by=lambda server: server["key"]))
    quorum = draw(st.none() | st.integers(1, len(servers))) if servers else None
    values["witness"] |= {"servers": servers, "quorum": quorum}
    if values["engine"]["name"] == "sequential":
        values["engine"] |= {"device": "cpu", "precision": "float32"}
    return Settings(**values)


@PROPERTY
@given(any_settings(), st.booleans())
def test_any_settings_survive_toml(settings: Settings, comments: bool) -> None:
    written = config.to_toml(settings, comments=comments)
    assert config.parse(written, source="run.toml") == settings


def test_the_defaults_as_toml_show_every_key_with_its_meaning() -> None:
    written = config.to_toml(Settings())
    for name, about, fields in config.sections():
        assert not name or f"[{name}]  # {about}" in written
        for key, field in fields.items():
            assert re.search(rf"^(# )?{key} = ", written, flags=re.MULTILINE), key
            assert config.meaning(field), key
            assert f"# {config.meaning(field)} ({config.allowed(field)})" in written
    values = tomllib.loads(written)
    assert set(values) == set(Settings.model_fields)
    # what has no default is shown, and shown as unset
    assert "# clip = " in written
    assert "# tau = " in written


def test_without_comments_there_are_only_keys_and_sections() -> None:
    for line in config.to_toml(Settings(), comments=False).splitlines():
        assert re.fullmatch(r"|\[\w+\]|\w+ = \S+|# (dir|digest|odds|clip|tau|epsilon|database|models) = ", line)


def test_a_default_said_outright_is_still_the_default() -> None:
    said = config.parse("[privacy]\ndelta = 1e-5", source="run.toml")
    assert config.settings_digest(said) == config.settings_digest(Settings())


def test_a_new_setting_leaves_the_digests_of_earlier_runs_as_they_were() -> None:
    first = "d624fe1c3b73a14bcad1ffee64f0956c3ef70f52da8c1eb862094459a0ed61a0"
    assert config.settings_digest(Settings()) == first
    validated = config.parse("[data]\nvalidation = 0.1", source="run.toml")
    assert config.settings_digest(validated) != first


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
        with refuses(ConfigError, "ledger.retention", "at least 1", '"all"'):
            parsed(wrong)


@pytest.mark.parametrize(
    "key", ["epochs = 1", "batch_size = 9", "learning_rate = 0.2", "momentum = 0.5", "fraction = 0.5"]
)
def test_how_clients_train_may_not_change(key: str) -> None:
    """A retraining with other values would not be what the rounds would have come to."""
    changed = config.parse(f"[training]\n{key}", source="run.toml")
    assert config.settings_digest(changed) != config.settings_digest(Settings())


def test_sections_list_every_setting_once() -> None:
    keys = [f"{name}.{key}" for name, _, fields in config.sections() for key in fields]
    assert len(keys) == len(set(keys))
    assert {name for name, _, _ in config.sections() if name} | {
        key.removeprefix(".") for key in keys if key.startswith(".")
    } == set(Settings.model_fields)
