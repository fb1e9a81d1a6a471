"""An audit of one client, from the rehearsal of its erasure to a conclusion.

    ① rehearse the erasure -> ② forge the standing rounds -> ③ train worlds -> ④ hand out -> ⑤ attack -> ⑥ conclude

Worlds are what takes the time. They are kept in a work folder one by one, so that an audit goes on where it was
interrupted; the folder is deleted when the audit ends.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from disavow import __version__, config
from disavow.audit.attackers.before_after import BEFORE_AFTER, ranks
from disavow.audit.difference import difference
from disavow.audit.epsilon import epsilon_bound
from disavow.audit.forging import compare_histories, forge, recompute
from disavow.audit.game import ATTACKERS, Attacker, Floats, Handed, Records, Scores, Shadows, Stage, Worlds
from disavow.audit.power import worlds_for
from disavow.audit.rehearsal import rehearse
from disavow.audit.report import LEVEL, RATES, Attacked, Audit, Found, GivenAway, median, simultaneous
from disavow.audit.roc import advantage, auc, tpr_at
from disavow.audit.signals import client_losses, confidences, weights
from disavow.audit.subject import Subject, subject_of
from disavow.audit.trainer import trainer_of
from disavow.audit.worlds import Kind, OnRound, World, WorldKey, held_by, train_worlds, world_keys
from disavow.erasure.mechanisms import Mechanism
from disavow.erasure.mechanisms.retrain import Retrain
from disavow.errors import ConfigError
from disavow.federation import Federation
from disavow.ledger.work_folders import hold_work_folder, work_folder
from disavow.rounds.participation import SecretOrder

RETRAIN = Retrain()

FEWEST_WORLDS = 32
"""With fewer, even an attacker who is always right could pass for chance: of 16 worlds, in three cases of five."""

FEWEST_SHADOWS = 4

MOST = 100_000
"""Worlds, shadows or forgings; a typing error is not taken for a wish."""


@dataclass(frozen=True)
class Effort:
    """How much is tried. `worlds` are half with the client, half without; as many as half are retrained.

    `detect` is the advantage that the audit is to see if there is one; None: whatever these worlds show. With
    `purge` the erasure is followed by a purge, and the model after that is the one that is served.
    """

    worlds: int = 64
    shadows: int = 32
    forgings: int = 10
    seed: int = 1
    detect: float | None = None
    purge: bool = False

    def __post_init__(self) -> None:
        _require_even("worlds", self.worlds, FEWEST_WORLDS, "half of them with the client, half without")
        _require_even("shadows", self.shadows, FEWEST_SHADOWS, "every record is held by half of them")
        if not 1 <= self.forgings <= MOST:
            raise ConfigError(
                f"--forgings is {self.forgings}; allowed: a whole number of at least 1, at most {MOST:,}"
            )

    @property
    def needed(self) -> int | None:
        """How many worlds it takes to see the advantage that is to be seen."""
        return None if self.detect is None else worlds_to_detect(self.detect)

    def worlds_of(self, subject: Subject) -> list[WorldKey]:
        """List the federations that are trained: shadows only where an attacker can use them.

        Args:
            subject: The client and its run.

        """
        used = any("shadows" in attacker.needs for attacker in able(subject))
        return world_keys(self.worlds, self.shadows if used else 0)


def able(subject: Subject) -> list[Attacker]:
    """List the attackers who have all that they need.

    Args:
        subject: The client and its run.

    """
    return [attacker for attacker in ATTACKERS.complete() if _obstacle(subject, attacker) is None]


def left_out(subject: Subject) -> dict[str, str]:
    """Tell which attackers are left out, and why, by name."""
    found = {attacker.name: _obstacle(subject, attacker) for attacker in ATTACKERS.complete()}
    return {name: obstacle for name, obstacle in found.items() if obstacle is not None}


def _obstacle(subject: Subject, attacker: Attacker) -> str | None:
    """Why an attacker cannot attack; None where it can."""
    missing = [subject.lacking[need] for need in attacker.needs if need in subject.lacking]
    if attacker.unit == "record" and subject.too_few is not None:
        missing.append(subject.too_few)
    return missing[0] if missing else None


def worlds_to_detect(advantage: float) -> int:
    """Compute the smallest number of worlds with which an audit sees such an advantage."""
    return worlds_for(advantage, simultaneous(LEVEL, len(ATTACKERS)), fewest=FEWEST_WORLDS, most=MOST)


def _require_even(option: str, value: int, fewest: int, why: str) -> None:
    if not fewest <= value <= MOST or value % 2:
        raise ConfigError(
            f"--{option} is {value}; allowed: an even number of at least {fewest}, at most {MOST:,} ({why})"
        )


def audit(
    subject: Subject,
    effort: Effort,
    *,
    work: Path,
    keys: Path,
    mechanism: Mechanism = RETRAIN,
    on_round: OnRound = lambda rounds: None,
) -> Audit:
    """Audit a client.

    Args:
        subject: The client and its run.
        effort: How much is tried.
        work: The folder that makes it resumable.
        keys: The folder of the operator's keys.
        mechanism: How rounds are rebuilt.
        on_round: Called with how many more rounds are done, of `subject.rounds` for each of `effort.worlds_of`.

    Raises:
        ConfigError: Nothing can be compared.
        StorageError: The work folder cannot be written to; the run is as it was.

    """
    folder = work / _identity(subject, effort, mechanism)
    with hold_work_folder(folder, "the audit"):
        report = _audit(subject, effort, folder, keys, mechanism, on_round)
        shutil.rmtree(folder, ignore_errors=True)
    if work == work_folder(subject.directory, "audit"):
        with suppress(OSError):  # others may be at work in it
            work.rmdir()
    return report


def audit_client(
    federation: Federation,
    client: str,
    effort: Effort | None = None,
    *,
    records: Sequence[str] = (),
    work: Path | None = None,
) -> Audit:
    """Audit a client of an open run, or some of its records, with the task that the run was opened with.

    Args:
        federation: The run.
        client: Who is audited: a client still in.
        effort: How much is tried; by default, what `disavow audit` does.
        records: The keys of the client's records that are audited; none: the whole client is.
        work: The folder that makes it resumable; by default one beside the run.

    Raises:
        UnknownClient: It is not in the run.
        UnknownRecord: It does not hold one of the records.
        ConfigError: It cannot be audited, and why.
        CannotRetrain: The run cannot be trained here.

    """
    effort = effort or Effort()
    subject = subject_of(
        federation.directory,
        client,
        task=federation.task,
        seed=effort.seed,
        keys=federation.keys,
        records=records,
    )
    work = work or work_folder(federation.directory, "audit")
    return audit(subject, effort, work=work, keys=federation.keys, mechanism=federation.mechanism)


def _audit(
    subject: Subject, effort: Effort, folder: Path, keys: Path, mechanism: Mechanism, on_round: OnRound
) -> Audit:
    began = time.monotonic()
    attackers = able(subject)  # before hours of work
    with rehearse(subject, folder, keys=keys, mechanism=mechanism, purged=effort.purge) as rehearsal:
        forgery = forge(rehearsal.ledger, recompute(rehearsal.engine), forgings=effort.forgings, seed=effort.seed)
        models = (rehearsal.before, rehearsal.served)
        before, served = (confidences(subject, model) for model in models)
        interim = None if rehearsal.answered is None else confidences(subject, rehearsal.answered)
        superseding = np.stack([client_losses(subject, model) for model in models])
        scored = [each for each in (before, served, interim) if each is not None]
        _refuse_overflow(superseding, *(part for each in scored for part in (each.own, each.held_out)))
        served_weights = weights(rehearsal.served)
        moved = float((rehearsal.served.vector.double() - rehearsal.before.vector.double()).norm())
        departed = len(rehearsal.ledger.unpurged().rounds.keys() - {rehearsal.answer.number})
    subject = replace(subject, rounds=rehearsal.rounds)  # a run that is being trained goes on
    worlds = _worlds(subject, effort, folder, mechanism, rehearsal.participation, on_round)
    handed = hand_out(subject, before, served, worlds, effort.seed, interim)
    found = tuple(attack(attacker, handed) for attacker in attackers)
    retrained = handed[Stage.RETRAINED]
    answers = {
        attacker.name: (attacker.scores(handed[Stage.SERVED][0]), [attacker.scores(each) for each in retrained])
        for attacker in attackers
        if attacker.unit == "record"
    }
    worldly = {each.attacker: each.stages[Stage.BEFORE].scores for each in found if each.unit == "world"}
    bound = None
    if not subject.erased:  # the account is about a client that is there or not, and here it is there in both cases
        delta = subject.settings.privacy.delta
        bound = epsilon_bound(worldly, subject.policy, rounds=subject.rounds, delta=delta)
    return Audit(
        client=subject.client,
        erased=subject.erased,
        rounds=subject.rounds,
        answer=rehearsal.answer,
        moved=moved,
        verdicts=dict(Counter(str(world.verdict) for world in worlds[Kind.WITH])),
        own=len(subject.own),
        held_out=len(subject.held_out),
        worlds=effort.worlds,
        shadows=len(worlds[Kind.SHADOW]),
        found=found,
        skipped=left_out(subject),
        classes=subject.classes,
        forged=forgery.rounds,
        left_out=forgery.left_out,
        thinned=forgery.thinned,
        histories=compare_histories(served_weights, retrained[0].never.weights, answers),
        given_away=give_away(handed, superseding),
        detect=effort.detect,
        needed=effort.needed,
        departed=departed,
        purged=effort.purge,
        bound=bound,
        seconds=time.monotonic() - began,
    )


def _worlds(
    subject: Subject,
    effort: Effort,
    folder: Path,
    mechanism: Mechanism,
    participation: SecretOrder | None,
    on_round: OnRound,
) -> dict[Kind, list[World]]:
    with closing(trainer_of(subject)) as trainer:
        return train_worlds(
            subject,
            effort.worlds_of(subject),
            folder / f"{subject.rounds}-rounds",
            trainer=trainer,
            mechanism=mechanism,
            seed=effort.seed,
            participation=participation,
            purged=effort.purge,
            on_round=on_round,
        )


def _identity(subject: Subject, effort: Effort, mechanism: Mechanism) -> str:
    """What an audit must share with an earlier one to go on with its worlds; names nobody."""
    identity = {
        "version": __version__,
        "run": str(subject.directory.resolve()),
        "client": subject.client,
        "clients": subject.clients,
        "settings": config.to_toml(subject.settings, comments=False),
        "mechanism": mechanism.name,
        "seed": effort.seed,
        "records": subject.records.tolist(),
        "unit": "record" if subject.erased else "client",
        "purge": effort.purge,
        "policy": asdict(subject.policy),
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def _refuse_overflow(*signals: Floats) -> None:
    """Before worlds are trained for models that nothing can be said about."""
    if not all(np.isfinite(each).all() for each in signals):
        raise ConfigError("the model's scores of some records are not finite numbers: nothing can be compared")


def hand_out(
    subject: Subject,
    before: Records,
    served: Records,
    worlds: dict[Kind, list[World]],
    seed: int,
    interim: Records | None = None,
) -> dict[Stage, list[Handed]]:
    """④ Hand out what attackers get at each stage; the stage *retrained* comes once for each retraining.

    Args:
        subject: The client and its run.
        before: Signals of the model before the erasure.
        served: Those of the model after it.
        worlds: All worlds.
        seed: That of the audit.
        interim: Signals of the model between the answer and a purge, where that is audited.

    Returns:
        What is handed out at each stage.

    """
    shadows = Shadows(
        confidence=np.array([_confidence(world) for world in worlds[Kind.SHADOW]]),
        held=np.array([held_by(subject, world.key, seed) for world in worlds[Kind.SHADOW]], dtype=np.bool_),
    )
    absent = _as_worlds(worlds[Kind.WITHOUT], Stage.RETRAINED)
    signals = {Stage.BEFORE: before, Stage.ANSWERED: interim, Stage.SERVED: served}
    records_by_stage = {stage: records for stage, records in signals.items() if records is not None}
    present = {stage: _as_worlds(worlds[Kind.WITH], stage) for stage in records_by_stage}
    never = _as_worlds(worlds[Kind.RETRAINED], Stage.RETRAINED)
    seen = Handed(before, shadows, present[Stage.BEFORE], absent, present[Stage.BEFORE], never)
    retrained = replace(seen, present=never)
    return {
        **{
            stage: [replace(seen, records=records_by_stage[stage], present=present[stage])]
            for stage in records_by_stage
        },
        Stage.RETRAINED: [
            replace(retrained, records=world.seen[Stage.RETRAINED].records) for world in worlds[Kind.RETRAINED]
        ],
    }


def _confidence(world: World) -> Floats:
    records = world.seen[Stage.RETRAINED].records
    return np.concatenate([records.own, records.held_out])


def _as_worlds(worlds: Sequence[World], stage: Stage) -> Worlds:
    seen = [world.seen[stage] for world in worlds]
    return Worlds(
        own_loss=np.array([each.own_loss for each in seen]),
        held_out_loss=np.array([each.held_out_loss for each in seen]),
        alignment=np.array([each.alignment for each in seen]),
        weights=np.stack([each.weights for each in seen]),
        client_loss=np.stack([each.client_loss for each in seen]),
    )


def attack(attacker: Attacker, handed: dict[Stage, list[Handed]]) -> Found:
    """⑤ Run one attacker on every stage, and compare served with retrained.

    Args:
        attacker: The attacker.
        handed: What it gets at each stage.

    """
    retrainings = handed[Stage.RETRAINED]
    if attacker.unit == "world":
        retrainings = retrainings[:1]  # every retraining is in it already, as a world
    retrained = [attacker.scores(each) for each in retrainings]
    scores = {stage: attacker.scores(each[0]) for stage, each in handed.items()}
    scores[Stage.RETRAINED] = median([(_estimate(each), each) for each in retrained])
    level, interim = simultaneous(LEVEL, len(ATTACKERS)), scores.get(Stage.ANSWERED)
    return Found(
        attacker=attacker.name,
        unit=attacker.unit,
        stages={stage: measure(each) for stage, each in scores.items()},
        retrainings=len(retrained),
        difference=difference(scores[Stage.SERVED], retrained, level),
        interim=None if interim is None else difference(interim, retrained, level),
    )


def give_away(handed: dict[Stage, list[Handed]], superseding: Floats) -> GivenAway:
    """Measure what is given away by releasing a model and then the one that supersedes it.

    Args:
        handed: What attackers get at each stage.
        superseding: Losses of the run's own two models on each client's records.

    Returns:
        What is given away.

    """
    pairs = {stage: handed[stage][0] for stage in (Stage.SERVED, Stage.RETRAINED)}
    ranks_by_stage = {
        stage: ranks(each.before.client_loss, each.present.client_loss) for stage, each in pairs.items()
    }
    return GivenAway(
        attacker=BEFORE_AFTER.name,
        stages={stage: measure(BEFORE_AFTER.scores(each)) for stage, each in pairs.items()},
        clients=superseding.shape[1],
        pairs=len(ranks_by_stage[Stage.SERVED]),
        first={stage: int((each == 1).sum()) for stage, each in ranks_by_stage.items()},
        rank=int(ranks(superseding[:1], superseding[1:])[0]),
    )


def _estimate(scores: Scores) -> float:
    found = auc(scores, LEVEL).estimate
    return 0.5 if found is None else found


def measure(scores: Scores) -> Attacked:
    """Measure AUC, true-positive rates and advantage, each with its interval."""
    return Attacked(
        scores=scores,
        auc=auc(scores, LEVEL),
        tpr=tuple(tpr_at(scores, rate, LEVEL) for rate in RATES),
        advantage=advantage(scores, LEVEL),
    )
