from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from disavow import config
from disavow.config import PROJECTION_LIMIT, Settings
from disavow.errors import ConfigError
from tests.federation.builders import PROPERTY


def complaints(text: str) -> list[str]:
    """The lines of the error that a TOML text meets, without the name of the file that each begins with."""
    with pytest.raises(ConfigError) as refusal:
        config.parse(text, source="run.toml")
    lines = str(refusal.value).splitlines()
    assert all(line.startswith("run.toml: ") for line in lines)
    return [line.removeprefix("run.toml: ") for line in lines]


# -- what is refused, one line a problem: the key, what it was, what is allowed ---------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("sede = 1", "sede is not a setting; allowed: seed, rounds, draws, data, model, training, clustering, "),
        ("[dta]\nclients = 3", "dta is not a setting; allowed: seed, "),
        ("[data]\nclinets = 3", "data.clinets is not a setting; allowed: name, clients, partition, alpha, "),
        ("[noise.extra]\na = 1", "noise.extra is not a setting; allowed: mode, distribution, sigma, clip, tau"),
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
        ("[training]\nlearning_rate = inf", "training.learning_rate is Infinity; allowed: a number above 0"),
        ("[training]\nlearning_rate = -inf", "training.learning_rate is -Infinity; allowed: a number above 0"),
        ("[training]\nmomentum = 1.0", "training.momentum is 1.0; allowed: a number of at least 0 and below 1"),
        ("[training]\nfraction = 1.5", "training.fraction is 1.5; allowed: a number above 0 and of at most 1"),
        ("[training]\nfraction = nan", "training.fraction is NaN; allowed: a number above 0 and of at most 1"),
        ("[clustering]\nk = 0", "clustering.k is 0; allowed: a whole number of at least 1"),
        ("[clustering]\nsticky = 1", "clustering.sticky is 1; allowed: true or false"),
        (
            '[clustering]\nmethod = "dbscan"',
            'clustering.method is "dbscan"; allowed: "mdav", "constrained-kmeans", "fixed"',
        ),
        ('[deniability]\ndelta = "wide"', 'deniability.delta is "wide"; allowed: a number above 0 or "adaptive"'),
        ("[deniability]\ndelta = 0", 'deniability.delta is 0; allowed: a number above 0 or "adaptive"'),
        ("[deniability]\ndelta = nan", 'deniability.delta is NaN; allowed: a number above 0 or "adaptive"'),
        ("[deniability]\ndelta = inf", 'deniability.delta is Infinity; allowed: a number above 0 or "adaptive"'),
        ("[deniability]\ndelta = true", 'deniability.delta is true; allowed: a number above 0 or "adaptive"'),
        ("[noise]\nsigma = -0.1", "noise.sigma is -0.1; allowed: a number of at least 0"),
        ("[noise]\nclip = 0.0", "noise.clip is 0.0; allowed: a number above 0"),
        ('[noise]\ntau = "small"', 'noise.tau is "small"; allowed: a number above 0'),
        ("[privacy]\nepsilon = 0", "privacy.epsilon is 0; allowed: a number above 0"),
        ("[privacy]\nepsilon = inf", "privacy.epsilon is Infinity; allowed: a number above 0"),
        ("[privacy]\ndelta = 0", "privacy.delta is 0; allowed: a number above 0 and below 1"),
        ("[privacy]\ndelta = 1.0", "privacy.delta is 1.0; allowed: a number above 0 and below 1"),
    ],
)
def test_each_problem_is_one_line_with_the_key_what_it_was_and_what_is_allowed(text: str, line: str) -> None:
    (found,) = complaints(text)
    assert found.startswith(line)


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
        ("[deniability]\nx = 5", "deniability.x is 5; allowed: 1 to clustering.k, which is 4"),
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


def test_several_problems_are_several_lines() -> None:
    lines = complaints('rounds = 0\ncolour = 1\n[data]\nclients = "x"\n[deniability]\ndelta = "y"\n')
    assert sorted(line.split()[0] for line in lines) == ["colour", "data.clients", "deniability.delta", "rounds"]


def test_with_more_clients_than_a_round_takes_published_is_allowed() -> None:
    text = (
        f'[data]\nclients = {2 * PROJECTION_LIMIT}\n[training]\nfraction = 0.5\n[clustering]\nmetric = "published"'
    )
    assert config.parse(text, source="run.toml").participants == PROJECTION_LIMIT


def test_what_calibrated_needs_is_not_asked_of_the_other_modes() -> None:
    settings = config.parse('[noise]\nmode = "calibrated"\nclip = 1\ntau = 0.5', source="run.toml")
    assert (settings.policy.clip, settings.policy.tau) == (1.0, 0.5)
    assert config.parse('[noise]\nmode = "none"', source="run.toml").policy.clip is None


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


# -- values ----------------------------------------------------------------------------------------------------


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        Settings().seed = 2  # type: ignore[misc]


def test_a_whole_number_serves_as_a_number() -> None:
    settings = config.parse("[deniability]\ndelta = 3\n[training]\nlearning_rate = 1", source="run.toml")
    assert settings.policy.delta == 3.0
    assert settings.training.learning_rate == 1.0


def test_the_policy_holds_every_promise() -> None:
    settings = config.parse(
        'draws = "seeded"\n[clustering]\nk = 5\nmetric = "cosine"\n'
        '[deniability]\nx = 3\ncriterion = "neighbourhood"\ndelta = 0.5\n'
        '[noise]\ndistribution = "laplace"\nsigma = 0.3\n',
        source="run.toml",
    )
    assert dataclasses.asdict(settings.policy) == {
        "k": 5,
        "x": 3,
        "criterion": "neighbourhood",
        "delta": 0.5,
        "clustering": "mdav",
        "sticky": True,
        "metric": "cosine",
        "noise": "paper",
        "distribution": "laplace",
        "sigma": 0.3,
        "clip": None,
        "tau": None,
        "draws": "seeded",
    }
    assert Settings().policy.delta is None


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


# -- to TOML and back ------------------------------------------------------------------------------------------


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
    elif kind is str:
        found = st.text(st.characters(codec="utf-8"))
    elif kind is type(None):
        found = st.none()
    else:
        found = st.one_of(*(values_of(part, metadata) for part in get_args(kind)))
    return found


def numbers(kind: type[int] | type[float], metadata: Iterable[Any]) -> st.SearchStrategy[Any]:
    bounds = {key: getattr(m, key) for m in metadata for key in ("gt", "ge", "lt", "le") if hasattr(m, key)}
    if kind is int:
        assert not {"gt", "le"} & set(bounds), "no setting has these bounds yet"
        return st.integers(bounds["ge"], bounds.get("lt", 5001) - 1)
    return st.floats(
        bounds.get("gt", bounds.get("ge")),
        bounds.get("lt", bounds.get("le")),
        exclude_min="gt" in bounds,
        exclude_max="lt" in bounds,
        allow_nan=False,
        allow_infinity=False,
    )


@st.composite
def any_settings(draw: st.DrawFn) -> Settings:
    """Whatever the settings allow, each alone and all together."""
    values = draw(values_of(Settings))
    clients, noise = draw(st.integers(2, 5000)), values["noise"]
    share = draw(st.just(1.0) | st.floats(2 / clients, 1))
    participants = config.participants_of(clients, share)
    k = draw(st.integers(2, participants))
    values["data"] |= {"clients": clients}
    values["training"] |= {"fraction": share}
    values["clustering"] |= {"k": k} | ({"metric": "l2"} if participants > PROJECTION_LIMIT else {})
    values["deniability"] |= {"x": draw(st.integers(1, k))}
    if noise["mode"] == "calibrated":
        noise |= {"clip": noise["clip"] or 1.5, "tau": noise["tau"] or 0.1}
        values["mechanism"]["name"] = "retrain"
    else:
        values["privacy"]["epsilon"] = None
    if values["mechanism"]["name"] == "federaser":
        values["ledger"]["retention"] = "all"
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
            assert field.description, key
            assert f"# {field.description} ({config.allowed(field)})" in written
    values = tomllib.loads(written)
    assert set(values) == set(Settings.model_fields)
    # what has no default is shown, and shown as unset
    assert "# clip = " in written
    assert "# tau = " in written


def test_sections_list_every_setting_once() -> None:
    keys = [f"{name}.{key}" for name, _, fields in config.sections() for key in fields]
    assert len(keys) == len(set(keys))
    assert {name for name, _, _ in config.sections() if name} | {
        key.removeprefix(".") for key in keys if key.startswith(".")
    } == set(Settings.model_fields)


def test_without_comments_there_are_only_keys_and_sections() -> None:
    for line in config.to_toml(Settings(), comments=False).splitlines():
        assert re.fullmatch(r"|\[\w+\]|\w+ = \S+|# (dir|digest|clip|tau|epsilon) = ", line)


# -- the digest that a run keeps -----------------------------------------------------------------------------------


def test_digests_of_runs_from_before_a_section_existed_stay_what_they_were() -> None:
    """Both were computed by the code as it was before there was a section `privacy`."""
    default = "8581d8c08b634b1d6b9051c890f5da4e4ac35dc60c43df215f82832dc6ee6ff9"
    changed = "8b0ba2fd98f06132e6bb0951f276df1c89c2a9ec247645e84731b526afe3da12"
    text = (
        "seed = 7\nrounds = 3\n"
        '[clustering]\nmethod = "fixed"\nk = 5\n[noise]\nmode = "calibrated"\nclip = 1.0\ntau = 0.5\n'
    )
    assert config.settings_digest(Settings()) == default
    assert config.settings_digest(config.parse(text, source="run.toml")) == changed
    # said outright, a default is still the default
    assert config.settings_digest(config.parse(f"{text}[privacy]\ndelta = 1e-5", source="run.toml")) == changed


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
            ConfigError, match=r'ledger\.retention is .*; allowed: a whole number of at least 1 or "all"'
        ):
            parsed(wrong)
