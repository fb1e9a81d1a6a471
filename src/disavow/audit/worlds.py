"""Worlds: the federation trained again in a scratch folder, with secret draws of its own, and what is seen of it.

All worlds share the run's seed, and with it initial model and batches: only what is secret differs, and whether
the client takes part. That is the attacker who knows everything else. A world's rounds are recorded in a real
ledger and its erasure is a real one; when it ends, what was seen of it is kept in a small file and the rest is
deleted, so that an audit that was interrupted goes on with the next.
"""

from __future__ import annotations

import base64
import json
import logging
import secrets
import shutil
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import torch

from disavow import __version__, runs
from disavow.audit.game import Flags, Floats, Records, Stage, Weights
from disavow.audit.signals import MOST_WEIGHTS, alignment, client_losses, confidences, weights
from disavow.audit.subject import Subject
from disavow.engines.batched_rounds import BatchedRun, run_rounds
from disavow.engines.trainer import Trainer, VectorisedEngine
from disavow.erasure.erase import erase
from disavow.erasure.mechanisms import Mechanism
from disavow.ledger import Ledger
from disavow.ledger.files import write_durably
from disavow.rounds.conduct import Conduct
from disavow.rounds.randomness import Secrets, derive, training_stream
from disavow.rounds.vectors import Model

_log = logging.getLogger(__name__)

_TOGETHER = 8
"""Worlds whose clients are trained in one call."""

_KEY_BYTES = 32

OnRound = Callable[[int], None]
"""Told how many rounds of worlds have been trained since it was told last."""


class Kind(StrEnum):
    """Who sits in the client's seat."""

    WITH = "with"  # the client; at the end it is erased
    RETRAINED = "retrained"  # nobody: what an exact retraining gives
    WITHOUT = "without"  # nobody: the absent case that attackers are to tell from the present one
    SHADOW = "shadow"  # a random half of the records that attackers score


@dataclass(frozen=True)
class Seat:
    """One world that is wanted."""

    kind: Kind
    number: int

    def __str__(self) -> str:
        return f"{self.kind}-{self.number:03d}"


@dataclass(frozen=True, eq=False)
class Seen:
    """What can be seen of a world at one stage: its model's confidences, numbers and losses on every client's
    records, and the alignment of its steps.
    """

    records: Records
    alignment: float
    weights: Weights
    client_loss: Floats


@dataclass(frozen=True, eq=False)
class World:
    """What is kept of a world. `verdict` is that of the client's erasure."""

    seat: Seat
    seen: dict[Stage, Seen]
    verdict: str | None = None


def seats_of(worlds: int, shadows: int) -> list[Seat]:
    """All worlds of an audit: half of `worlds` with the client and half without, as many retrained, and shadows."""
    counts = {Kind.WITH: worlds // 2, Kind.RETRAINED: worlds // 2, Kind.WITHOUT: worlds // 2, Kind.SHADOW: shadows}
    return [Seat(kind, number) for kind, count in counts.items() for number in range(count)]


def held_by(subject: Subject, seat: Seat, seed: int) -> Flags:
    """Which records a shadow's seat holds: a random half; the next shadow holds the other half.

    So every record is in half of the shadows.
    """
    order = training_stream(seed, f"audit, shadow {seat.number // 2}").permutation(len(subject.records))
    half = len(order) // 2
    held = np.zeros(len(order), dtype=np.bool_)
    held[order[half:] if seat.number % 2 else order[:half]] = True
    return held


def train_worlds(
    subject: Subject,
    seats: Sequence[Seat],
    folder: Path,
    *,
    trainer: Trainer,
    mechanism: Mechanism,
    seed: int,
    participation: bytes | None = None,
    on_round: OnRound,
) -> dict[Kind, list[World]]:
    """Every world, trained here or found in `folder` from an earlier call.

    `participation` is the run's key where it has one: in every world the same clients take part in the same rounds.
    """
    conduct = replace(runs.conduct_of(subject.settings, participation=participation), budget=None, retention=None)
    folder.mkdir(parents=True, exist_ok=True)
    found = {seat: _read(subject, seat, folder) for seat in seats}
    missing = [seat for seat, kept in found.items() if kept is None]
    on_round((len(seats) - len(missing)) * subject.rounds)
    for start in range(0, len(missing), _TOGETHER):
        some = missing[start : start + _TOGETHER]
        with closing(_train_some(subject, some, folder, trainer, mechanism, seed, conduct, on_round)) as trained:
            for world in trained:
                write_durably(_path(folder, world.seat), json.dumps(_to_json(world)).encode())
                found[world.seat] = world
    return {kind: [kept for seat in seats if seat.kind is kind and (kept := found[seat])] for kind in Kind}


def _train_some(
    subject: Subject,
    seats: Sequence[Seat],
    folder: Path,
    trainer: Trainer,
    mechanism: Mechanism,
    seed: int,
    conduct: Conduct,
    on_round: OnRound,
) -> Generator[World, None, None]:
    scratch = folder / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)  # what an interruption left
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        worlds = [_begin(subject, seat, scratch, trainer, seed, conduct, stack) for seat in seats]
        for _ in range(subject.rounds):
            run_rounds(worlds)
            on_round(len(worlds))
        for seat, world in zip(seats, worlds, strict=True):
            yield _look(subject, seat, world, mechanism, scratch)


def _begin(
    subject: Subject, seat: Seat, scratch: Path, trainer: Trainer, seed: int, conduct: Conduct, stack: ExitStack
) -> BatchedRun:
    """A new federation in a ledger of its own."""
    absent = {subject.client} if seat.kind in (Kind.WITHOUT, Kind.RETRAINED) else set()
    held = subject.records[held_by(subject, seat, seed)] if seat.kind is Kind.SHADOW else None
    ledger = Ledger.create(
        scratch / str(seat),
        policy=subject.policy,
        layout=subject.layout,
        initial=subject.initial.vector.numpy(),
        clients=[client for client in subject.clients if client not in absent],
        config="",
        created_by=f"disavow {__version__}",
        at=conduct.clock(),
    )
    stack.callback(ledger.close)
    if subject.anchors is not None:
        ledger.keep_anchors(subject.anchors)
    return BatchedRun(
        ledger=ledger,
        engine=VectorisedEngine(subject.workload(seat=held), trainer),
        conduct=replace(conduct, secrets=Secrets(secret_seed(subject, seat, seed))),
    )


def secret_seed(subject: Subject, seat: Seat, seed: int) -> int:
    """Where a world's secret draws come from: repeatable, and nothing else's."""
    return int.from_bytes(derive("audit", seed, str(seat), subject.client), "big")


def _look(subject: Subject, seat: Seat, world: BatchedRun, mechanism: Mechanism, scratch: Path) -> World:
    """What can be seen of a world; one with the client erases it and is looked at again."""
    trainer, ledger = world.engine.trainer, world.ledger
    if seat.kind is not Kind.WITH:
        return World(seat, {Stage.RETRAINED: _see(subject, trainer, ledger)})
    before = _see(subject, trainer, ledger)
    ledger.place_requests([subject.client], key=secrets.token_bytes(_KEY_BYTES), at=world.conduct.clock())
    # no world is released, so none has to keep to the run's privacy budget; its erasure does as the run's would
    conduct = replace(world.conduct, budget=runs.budget_of(subject.settings))
    [answered] = erase(ledger, world.engine, conduct, mechanism, openings=scratch / "openings")
    return World(seat, {Stage.BEFORE: before, Stage.SERVED: _see(subject, trainer, ledger)}, str(answered.verdict))


def _see(subject: Subject, trainer: Trainer, ledger: Ledger) -> Seen:
    models = standing_models(ledger)
    last = models[-1]
    return Seen(
        confidences(subject, last), alignment(subject, trainer, models), weights(last), client_losses(subject, last)
    )


def standing_models(ledger: Ledger) -> list[Model]:
    """The models an observer has: the initial one, and that of each standing round."""
    newest = ledger.last_round + 1
    return [Model(ledger.layout, torch.from_numpy(ledger.model_before(t))) for t in range(1, newest + 1)]


def _path(folder: Path, seat: Seat) -> Path:
    return folder / f"{seat}.json"


def _to_json(world: World) -> dict[str, Any]:
    seen = {
        stage.value: {
            "own": seen.records.own.tolist(),
            "held_out": seen.records.held_out.tolist(),
            "alignment": seen.alignment,
            "weights": base64.b64encode(seen.weights.astype("<f4").tobytes()).decode(),
            "client_loss": seen.client_loss.tolist(),
        }
        for stage, seen in world.seen.items()
    }
    return {"seen": seen, "verdict": world.verdict}


def _read(subject: Subject, seat: Seat, folder: Path) -> World | None:
    """A world that an earlier call has kept; None where there is none, or none that can be used."""
    path = _path(folder, seat)
    try:
        world = _from_json(seat, json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        _log.warning("%s is damaged; this world is trained again", path)
        return None
    stages = {Stage.BEFORE, Stage.SERVED} if seat.kind is Kind.WITH else {Stage.RETRAINED}
    shapes = {_shapes(each) for each in world.seen.values()}
    kept = (min(subject.layout.size, MOST_WEIGHTS),)
    expected = (subject.own.shape, subject.held_out.shape, kept, (len(subject.clients),))
    if world.seen.keys() != stages or shapes != {expected}:
        _log.warning("%s does not hold what it should; this world is trained again", path)
        return None
    return world


def _shapes(seen: Seen) -> tuple[tuple[int, ...], ...]:
    return seen.records.own.shape, seen.records.held_out.shape, seen.weights.shape, seen.client_loss.shape


def _from_json(seat: Seat, told: dict[str, Any]) -> World:
    seen = {
        Stage(stage): Seen(
            Records(np.array(each["own"], np.float64), np.array(each["held_out"], np.float64)),
            float(each["alignment"]),
            np.frombuffer(base64.b64decode(each["weights"], validate=True), "<f4"),
            np.array(each["client_loss"], np.float64),
        )
        for stage, each in told["seen"].items()
    }
    return World(seat, seen, told["verdict"])
