"""Moved: import `disavow.flower.client` instead."""

from __future__ import annotations

from disavow.flower.client import answer, evidence_mod, seed_everything, train_reproducibly

__all__ = ["answer", "evidence_mod", "seed_everything", "train_reproducibly"]
