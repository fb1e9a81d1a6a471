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
from disavow.audit.rehearsal import place_request
from disavow.audit.signals import MOST_WEIGHTS, alignment, client_losses, confidences, group_losses, weights
from disavow.audit.subject import Subject
from disavow.engines.batched_rounds import BatchedRun, run_rounds
from disavow.engines.trainer import Trainer, VectorisedEngine
from disavow.engines.workload import Workload
from disavow.erasure.erase import answer_requests
from disavow.erasure.mechanisms import Mechanism
from disavow.erasure.purge import purge
from disavow.erasure.reporting import Reporting
from disavow.ledger import Ledger
from disavow.ledger.database import LOCAL
from disavow.ledger.files import write_durably
from disavow.rounds.options import RoundOptions
from disavow.rounds.participation import SecretOrder
from disavow.rounds.randomness import Secrets, derive, training_stream
from disavow.rounds.vectors import Model

_log = logging.getLogger(__name__)

_TOGETHER = 8
"""Worlds whose clients are trained in one call."""

_KEY_BYTES = 32

OnRound = Callable[[int], None]
"""Called with how many rounds of worlds have been trained since the last call."""


class Kind(StrEnum):
    """Whether the client takes part, and with which records."""

    WITH = "with"  # the client; at the end it is erased, or the records that are audited
    RETRAINED = "retrained"  # nobody, or the client without the records: what an exact retraining gives
    WITHOUT = "without"  # the same: the absent case that attackers are to tell from the present one
    SHADOW = "shadow"  # a random half of the records that attackers score


@dataclass(frozen=True)
class WorldKey:
    """One world that is wanted."""

    kind: Kind
    number: int

    def __str__(self) -> str:
        return f"{self.kind}-{self.number:03d}"


@dataclass(frozen=True, eq=False)
class Seen:
    """What can be seen of a world at one stage: its model's confidences, numbers and losses on the client's
    records, on held-out ones and on every client's, and the alignment of its steps.
    """

    records: Records
    own_loss: float
    held_out_loss: float
    alignment: float
    weights: Weights
    client_loss: Floats


@dataclass(frozen=True, eq=False)
class World:
    """What is kept of a world. `verdict` is that of the client's erasure."""

    key: WorldKey
    seen: dict[Stage, Seen]
    verdict: str | None = None


def world_keys(worlds: int, shadows: int) -> list[WorldKey]:
    """List all worlds of an audit: half with the client and half without, as many retrained, and shadows.

    Args:
        worlds: How many with the client or without.
        shadows: How many shadows.

    """
    counts = {Kind.WITH: worlds // 2, Kind.RETRAINED: worlds // 2, Kind.WITHOUT: worlds // 2, Kind.SHADOW: shadows}
    return [WorldKey(kind, number) for kind, count in counts.items() for number in range(count)]


def held_by(subject: Subject, key: WorldKey, seed: int) -> Flags:
    """Draw which records a shadow holds in the client's place: a random half; the next shadow holds the other half.

    So every record is in half of the shadows.

    Args:
        subject: The client and its run.
        key: The shadow.
        seed: That of the audit.

    Returns:
        Whether it holds each record.

    """
    order = training_stream(seed, f"audit, shadow {key.number // 2}").permutation(len(subject.records))
    half = len(order) // 2
    held = np.zeros(len(order), dtype=np.bool_)
    held[order[half:] if key.number % 2 else order[:half]] = True
    return held


def train_worlds(
    subject: Subject,
    wanted: Sequence[WorldKey],
    folder: Path,
    *,
    trainer: Trainer,
    mechanism: Mechanism,
    seed: int,
    participation: SecretOrder | None = None,
    purged: bool = False,
    on_round: OnRound,
) -> dict[Kind, list[World]]:
    """Train worlds, or find them in `folder` from an earlier call.

    In every world the same clients take part in the same rounds.

    Args:
        subject: The client and its run.
        wanted: The worlds.
        folder: Where they are kept.
        trainer: Trains all clients of a round.
        mechanism: How rounds are rebuilt.
        seed: That of the audit.
        participation: The run's secret order of clients, where it has one.
        purged: Purge worlds with the client, once its request is answered.
        on_round: Called with how many more rounds are done.

    Returns:
        The worlds of each kind.

    """
    options = replace(
        runs.round_options(subject.settings, participation=participation), budget=None, retention=None
    )
    folder.mkdir(parents=True, exist_ok=True)
    found = {key: _read(subject, key, folder, purged=purged) for key in wanted}
    missing = [key for key, kept in found.items() if kept is None]
    on_round((len(wanted) - len(missing)) * subject.rounds)
    for start in range(0, len(missing), _TOGETHER):
        some = missing[start : start + _TOGETHER]
        training = _train_some(subject, some, folder, trainer, mechanism, seed, options, on_round, purged=purged)
        with closing(training) as trained:
            for world in trained:
                write_durably(_path(folder, world.key), json.dumps(_to_json(world)).encode())
                found[world.key] = world
    return {kind: [kept for key in wanted if key.kind is kind and (kept := found[key])] for kind in Kind}


def _train_some(
    subject: Subject,
    wanted: Sequence[WorldKey],
    folder: Path,
    trainer: Trainer,
    mechanism: Mechanism,
    seed: int,
    options: RoundOptions,
    on_round: OnRound,
    *,
    purged: bool,
) -> Generator[World, None, None]:
    scratch = folder / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)  # what an interruption left
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        worlds = [_begin(subject, key, scratch, trainer, seed, options, stack) for key in wanted]
        for _ in range(subject.rounds):
            run_rounds(worlds)
            on_round(len(worlds))
        for key, world in zip(wanted, worlds, strict=True):
            yield _look(subject, key, world, mechanism, scratch, purged=purged)


def _begin(
    subject: Subject,
    key: WorldKey,
    scratch: Path,
    trainer: Trainer,
    seed: int,
    options: RoundOptions,
    stack: ExitStack,
) -> BatchedRun:
    """A new federation in a ledger of its own."""
    without = key.kind in (Kind.WITHOUT, Kind.RETRAINED)
    absent = {subject.client} if without and not subject.erased else set()
    ledger = Ledger.create(
        scratch / str(key),
        policy=subject.policy,
        layout=subject.layout,
        initial=subject.initial.vector.numpy(),
        clients=[client for client in subject.clients if client not in absent],
        config="",
        created_by=f"disavow {__version__}",
        at=options.clock(),
        keys=scratch / "keys",
        database=LOCAL,
    )
    stack.callback(ledger.close)
    if subject.anchors is not None:
        ledger.keep_anchors(subject.anchors)
    return BatchedRun(
        ledger=ledger,
        engine=VectorisedEngine(_workload(subject, key, seed), trainer),
        options=replace(options, secrets=Secrets(secret_seed(subject, key, seed))),
    )


def _workload(subject: Subject, key: WorldKey, seed: int) -> Workload:
    """What clients hold in a world."""
    if key.kind is Kind.SHADOW:
        return subject.workload_of_shadow(held_by(subject, key, seed))
    if subject.erased and key.kind is not Kind.WITH:
        return subject.workload_without()
    return subject.workload()


def secret_seed(subject: Subject, key: WorldKey, seed: int) -> int:
    """Derive the seed of a world's secret draws: repeatable, and nothing else's.

    Args:
        subject: The client and its run.
        key: The world.
        seed: That of the audit.

    """
    return int.from_bytes(derive("audit", seed, str(key), subject.client), "big")


def _look(
    subject: Subject, key: WorldKey, world: BatchedRun, mechanism: Mechanism, scratch: Path, *, purged: bool
) -> World:
    """What can be seen of a world; one with the client, or the records, erases them and is looked at again, and
    once more where it is purged after that.
    """
    trainer, ledger = world.engine.trainer, world.ledger
    if key.kind is not Kind.WITH:
        return World(key, {Stage.RETRAINED: _see(subject, trainer, ledger)})
    before = _see(subject, trainer, ledger)
    place_request(subject, ledger, world.options.clock())
    engine = VectorisedEngine(subject.workload_without(), trainer) if subject.erased else world.engine
    # no world is released, so none has to keep to the run's privacy budget; its erasure does as the run's would
    options = replace(world.options, budget=runs.budget_of(subject.settings))
    [answered] = answer_requests(ledger, engine, options, mechanism, Reporting(openings=scratch / "openings"))
    seen = {Stage.BEFORE: before, Stage.SERVED: _see(subject, trainer, ledger)}
    if purged:
        purge(ledger, engine, options, mechanism, Reporting(openings=scratch / "openings"))
        seen = {**seen, Stage.ANSWERED: seen[Stage.SERVED], Stage.SERVED: _see(subject, trainer, ledger)}
    return World(key, seen, str(answered.verdict))


def _see(subject: Subject, trainer: Trainer, ledger: Ledger) -> Seen:
    models = standing_models(ledger)
    last = models[-1]
    records = confidences(subject, last)
    own, held_out = group_losses(subject, last, records)
    aligned = alignment(subject, trainer, models)
    return Seen(records, own, held_out, aligned, weights(last), client_losses(subject, last))


def standing_models(ledger: Ledger) -> list[Model]:
    """Return the models an observer has: the initial one, and that of each standing round."""
    newest = ledger.last_round + 1
    return [Model(ledger.layout, torch.from_numpy(ledger.model_before(t))) for t in range(1, newest + 1)]


def _path(folder: Path, key: WorldKey) -> Path:
    return folder / f"{key}.json"


def _to_json(world: World) -> dict[str, Any]:
    seen = {
        stage.value: {
            "own": seen.records.own.tolist(),
            "held_out": seen.records.held_out.tolist(),
            "own_loss": seen.own_loss,
            "held_out_loss": seen.held_out_loss,
            "alignment": seen.alignment,
            "weights": base64.b64encode(seen.weights.astype("<f4").tobytes()).decode(),
            "client_loss": seen.client_loss.tolist(),
        }
        for stage, seen in world.seen.items()
    }
    return {"seen": seen, "verdict": world.verdict}


def _read(subject: Subject, key: WorldKey, folder: Path, *, purged: bool) -> World | None:
    """A world that an earlier call has kept; None where there is none, or none that can be used."""
    path = _path(folder, key)
    try:
        world = _from_json(key, json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        _log.warning("%s is damaged; this world is trained again", path)
        return None
    with_it = {Stage.BEFORE, Stage.SERVED, *([Stage.ANSWERED] if purged else [])}
    stages = with_it if key.kind is Kind.WITH else {Stage.RETRAINED}
    shapes = {_shapes(each) for each in world.seen.values()}
    kept = (min(subject.layout.size, MOST_WEIGHTS),)
    scored = ((0,), (0,)) if "record losses" in subject.lacking else (subject.own.shape, subject.held_out.shape)
    expected = (*scored, kept, (len(subject.clients),))
    if world.seen.keys() != stages or shapes != {expected}:
        _log.warning("%s does not hold what it should; this world is trained again", path)
        return None
    return world


def _shapes(seen: Seen) -> tuple[tuple[int, ...], ...]:
    return seen.records.own.shape, seen.records.held_out.shape, seen.weights.shape, seen.client_loss.shape


def _from_json(key: WorldKey, value: dict[str, Any]) -> World:
    seen = {
        Stage(stage): Seen(
            Records(np.array(each["own"], np.float64), np.array(each["held_out"], np.float64)),
            float(each["own_loss"]),
            float(each["held_out_loss"]),
            float(each["alignment"]),
            np.frombuffer(base64.b64decode(each["weights"], validate=True), "<f4"),
            np.array(each["client_loss"], np.float64),
        )
        for stage, each in value["seen"].items()
    }
    return World(key, seen, value["verdict"])
