"""Settings become TOML that shows every key, and reads back as the same settings."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from typing import Annotated, Any, Literal, get_args, get_origin

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from disavow import config
from disavow.config import PROJECTION_LIMIT, Settings
from disavow.domain.strategies import Registry
from tests.rounds.builders import PROPERTY


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
        found = st.text(st.characters(codec="utf-8"))
    elif kind is type(None):
        found = st.none()
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
        assert re.fullmatch(r"|\[\w+\]|\w+ = \S+|# (dir|digest|odds|clip|tau|epsilon) = ", line)
