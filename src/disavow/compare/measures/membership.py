"""The audit's attackers on one model a seed: can what leaves still be told from held-out records?

An attacker scores records; its *advantage* is 2·AUC - 1, 0 for one that guesses. Retrained models are attacked the
same way, and what counts is the difference from them: what leaves may be easier than held-out records for any.

One model is all there is of each seed, so only attackers that score records can be used. LiRA offline takes
retrained models for those that never held a record. An attacker that wants models that did, or that scores whole
federations, is left out, and the report says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np
from torch import Tensor

from disavow.audit.attackers.lira import OnlineLira
from disavow.audit.game import ATTACKERS, Attacker, Handed, Records, Shadows, Worlds
from disavow.audit.roc import placements_of, unusable
from disavow.audit.signals import confidences, losses, margin
from disavow.compare.problem import Problem
from disavow.errors import DisavowError
from disavow.rounds.vectors import Model
from disavow.tasks.task import targets_of

FEWEST_OUT = 2
"""Retrained models that LiRA needs beside the one that it attacks."""


@dataclass(frozen=True)
class Attackers:
    """Who can attack one model, and why the others cannot.

    Attributes:
        usable: The attackers.
        left_out: Why each other one is left out, by name.

    """

    usable: tuple[Attacker, ...]
    left_out: Mapping[str, str]


def records_of(problem: Problem, vector: Tensor) -> Records:
    """Compute how confident a model is of each record that attackers score.

    Args:
        problem: What is compared on.
        vector: The model.

    """
    subject = problem.subject
    if not subject.labelled:
        return confidences(subject, Model(subject.layout, vector))
    targets = targets_of(subject.samples.batch(np.ascontiguousarray(subject.records)))
    found = margin(problem.outputs(vector, subject.records), targets).numpy()
    return Records(own=found[: len(subject.own)], held_out=found[len(subject.own) :])


def attackers_for(problem: Problem, references: Sequence[Records]) -> Attackers:
    """Find the attackers that can be used, by letting each attack a retrained model.

    Args:
        problem: What is compared on.
        references: Retrained models.

    """
    usable, left_out = [], {}
    for attacker in ATTACKERS.complete():
        reason = _obstacle(problem, attacker)
        if reason is None:
            try:
                attacker.scores(_handed(references[0], references[1:]))
            except DisavowError as error:
                reason = str(error)
        if reason is None:
            usable.append(attacker)
        else:
            left_out[attacker.name] = reason
    return Attackers(tuple(usable), left_out)


def _obstacle(problem: Problem, attacker: Attacker) -> str | None:
    if attacker.unit == "world":
        return "it scores whole federations, and there is one model a seed"
    if isinstance(attacker, OnlineLira):
        return "it needs models that held each record, held-out ones too, and no such federation is trained"
    subject = problem.subject
    needs = [need for need in attacker.needs if need != "shadows"]  # retrained models take their place
    missing = [subject.lacking[need] for need in needs if need in subject.lacking]
    if subject.too_few is not None:
        missing.append(subject.too_few)
    return missing[0] if missing else None


def advantages(attackers: Attackers, records: Records, references: Sequence[Records]) -> dict[str, float]:
    """Attack a model: 2·AUC - 1 of each attacker.

    LiRA compares with all retrained models but one, and each is left out in turn: so many are there for a retrained
    model, too.

    Args:
        attackers: Who can.
        records: What the model says of records.
        references: What retrained models say; of another one than the model.

    """
    fewer = [[*references[:i], *references[i + 1 :]] for i in range(len(references))]
    sets = fewer if len(references) > FEWEST_OUT else [list(references)]
    return {
        attacker.name: mean(_advantage(attacker, _handed(records, some)) for some in sets)
        for attacker in attackers.usable
    }


def reference_advantages(attackers: Attackers, references: Sequence[Records]) -> list[dict[str, float]]:
    """Attack each retrained model, with the others for LiRA to compare with.

    Args:
        attackers: Who can.
        references: What retrained models say of records.

    """
    return [
        {
            attacker.name: _advantage(attacker, _handed(each, [*references[:i], *references[i + 1 :]]))
            for attacker in attackers.usable
        }
        for i, each in enumerate(references)
    ]


def loss_gap(problem: Problem, records: Records) -> float | None:
    """Compute how much lower the mean loss is on what leaves than on held-out records: the subject-level signal.

    Args:
        problem: What is compared on.
        records: What the model says of records.

    """
    if not records.own.size or not records.held_out.size:
        return None
    own, held_out = records.own, records.held_out
    if not problem.subject.classes:  # confidences are minus the task's own losses
        return float(own.mean() - held_out.mean())
    return float(losses(held_out).mean() - losses(own).mean())


def _advantage(attacker: Attacker, handed: Handed) -> float:
    scores = attacker.scores(handed)
    return 0.0 if unusable(scores) else 2 * placements_of(scores).auc - 1


def _handed(records: Records, out: Sequence[Records]) -> Handed:
    """What an attacker gets: a model's confidences, and those of models that never held a record."""
    confidence = np.array([np.concatenate([each.own, each.held_out]) for each in out])
    shadows = Shadows(confidence, np.zeros(confidence.shape, np.bool_))
    nobody = Worlds(*(np.zeros(0),) * 3, np.zeros((0, 0), np.float32), np.zeros((0, 0)))
    return Handed(records, shadows, nobody, nobody, nobody, nobody)
