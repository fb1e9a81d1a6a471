"""Failures on purpose, which measures must expose. They are not listed among the methods."""

from __future__ import annotations

from dataclasses import dataclass

from disavow.compare.method import Federation, Forgotten, Method


@dataclass(frozen=True)
class Keep(Method):
    """Forget nothing: the old model."""

    name = "keep"
    paper = "planted"
    claim = "none"

    def forget(self, federation: Federation) -> Forgotten:
        """See `Method`."""
        return Forgotten(federation.training.served)


@dataclass(frozen=True)
class Reset(Method):
    """Forget everything: the initial model."""

    name = "reset"
    paper = "planted"
    claim = "none"

    def forget(self, federation: Federation) -> Forgotten:
        """See `Method`."""
        return Forgotten(federation.training.initial)
