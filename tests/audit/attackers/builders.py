"""What a challenger might hand out, made up so that the best possible attack is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from disavow.audit.game import Flags, Floats, Handed, Records, Shadows, Weights, Worlds


def worlds_of(
    count: int,
    *,
    own_loss: Floats | None = None,
    held_out_loss: Floats | None = None,
    alignment: Floats | None = None,
    weights: Weights | None = None,
    client_loss: Floats | None = None,
) -> Worlds:
    """So many worlds of which this is seen, and nothing else."""
    nothing = np.zeros(count)
    return Worlds(
        own_loss=nothing if own_loss is None else own_loss,
        held_out_loss=nothing if held_out_loss is None else held_out_loss,
        alignment=nothing if alignment is None else alignment,
        weights=np.zeros((count, 1), np.float32) if weights is None else weights,
        client_loss=np.zeros((count, 2)) if client_loss is None else client_loss,
    )


NO_WORLDS = worlds_of(0)


def halves(shadows: int, records: int) -> Flags:
    """Every record is held by every other shadow, half of them by the even ones."""
    return np.asarray((np.arange(shadows)[:, None] + np.arange(records)) % 2 == 0)


def handed(own: Floats, held_out: Floats, shadows: Shadows | None = None) -> Handed:
    """Records and shadows, without worlds."""
    none = Shadows(np.zeros((0, own.size + held_out.size)), np.zeros((0, own.size + held_out.size), dtype=bool))
    return Handed(Records(own, held_out), shadows or none, NO_WORLDS, NO_WORLDS, NO_WORLDS, NO_WORLDS)


def game(
    shift: float, *, own: int, held_out: int, shadows: int, seed: int, difficulty: float = 3.0, noise: float = 1.0
) -> Handed:
    """Records of different difficulty, whose φ a model that held them raises by `shift`; all is Gaussian.

    Who knows each record's difficulty has an AUC of Φ(shift / (√2 noise)); who does not, of
    Φ(shift / √(2 (noise² + difficulty²))).
    """
    rng = np.random.default_rng(seed)
    records = own + held_out
    means = difficulty * rng.normal(size=records)
    took_part = np.arange(records) < own
    observed = means + shift * took_part + noise * rng.normal(size=records)
    held = rng.permuted(halves(shadows, records), axis=0)
    confidence = means + shift * held + noise * rng.normal(size=held.shape)
    return handed(observed[:own], observed[own:], Shadows(confidence, held))


def with_worlds(
    present: Worlds, absent: Worlds, *, before: Worlds = NO_WORLDS, never: Worlds = NO_WORLDS
) -> Handed:
    """Worlds, without records."""
    return replace(handed(np.zeros(0), np.zeros(0)), present=present, absent=absent, before=before, never=never)
