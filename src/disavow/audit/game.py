"""The security game SG_FL of the paper, played for real.

    ① the challenger trains with a client, or without it -> ② erases it -> ③ hands the model to an attacker
    -> ④ the attacker scores how likely the client took part -> ⑤ scores of both cases make a ROC curve

An attacker never decides: it scores, and the curve shows every decision it could have made. Two kinds of unit are
scored. A *record* is one sample: the client's own against held-out ones of its distribution, all on one model. A
*world* is one whole federation, trained again with secret draws of its own: with the client, or without it.

A. K. Varshney and V. Torra, "Efficient Federated Unlearning under Plausible Deniability" (2024), section 3.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt

from disavow.domain.strategies import Registry, Strategy
from disavow.errors import ConfigError

Floats = npt.NDArray[np.float64]
Weights = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]
Unit = Literal["record", "world"]
Need = Literal["record losses", "held-out records", "shadows"]
"""What not every task has: a loss that says something of a single record, test data, and shadow federations that
hold other records in the client's place.
"""


class Stage(StrEnum):
    """Which model an attacker is handed. `answered` is there where a purge is audited: served until that."""

    BEFORE = "before"
    ANSWERED = "answered"
    SERVED = "served"
    RETRAINED = "retrained"


@dataclass(frozen=True, eq=False)
class Scores:
    """What an attacker made of each unit; higher says "took part". All are finite.

    `present` are the units to be told from `absent`: the client's own records, or worlds in which it took part
    before it was erased; `absent` are held-out records, or worlds that it never joined.
    """

    present: Floats
    absent: Floats


@dataclass(frozen=True, eq=False)
class Records:
    """How confident one model is of each record's true label: φ = log p - log(1 - p); its loss is log(1 + e^-φ).

    Where the loss is another one than that of classes or attributes, φ is minus the loss of the record by itself.
    Both are empty where a task has no such loss.
    """

    own: Floats
    held_out: Floats


@dataclass(frozen=True, eq=False)
class Shadows:
    """The same for shadow federations, one row each, over the own records and then the held-out ones.

    In each of them a random half of these records is held in the client's place; `held` says which.
    """

    confidence: Floats
    held: Flags


@dataclass(frozen=True, eq=False)
class Worlds:
    """What can be seen of some worlds, one entry each.

    `own_loss` and `held_out_loss` are the final model's mean losses on the client's records and on held-out ones;
    `alignment` is the mean, over the rounds whose models an observer has, of the cosine between the client's update
    and the global step. `weights` are the final model's numbers, one row a world; `client_loss` is its mean loss on
    the records of each client of the run, one row a world, the audited client first.
    """

    own_loss: Floats
    held_out_loss: Floats
    alignment: Floats
    weights: Weights
    client_loss: Floats


@dataclass(frozen=True, eq=False)
class Handed:
    """What the challenger hands out about one stage.

    `records` are signals of that stage's model, `shadows` are the attacker's own; `present` are worlds at that
    stage, `absent` are worlds that the client never joined. `before` are worlds with the client before its erasure:
    those whose models `present` supersedes, in the same order. `never` are more worlds that it never joined.
    """

    records: Records
    shadows: Shadows
    present: Worlds
    absent: Worlds
    before: Worlds
    never: Worlds


class Attacker(Strategy, ABC):
    """Scores units. It gets the client's data and update and the models, never a secret draw.

    Attributes:
        unit: What it scores: records of one model, or whole worlds.
        needs: What it cannot do without; where a task does not have it, it is left out, and the report says so.

    """

    unit: ClassVar[Unit]
    needs: ClassVar[tuple[Need, ...]] = ("record losses", "held-out records", "shadows")

    @classmethod
    def check(cls) -> None:
        """Refuse to score what nobody hands out.

        Raises:
            ConfigError: The class declares a unit or needs that no audit has.
        """
        super().check()
        unit = getattr(cls, "unit", None)
        if unit not in ("record", "world"):
            raise ConfigError(f'attacker {cls.name!r} has the unit {unit!r}; allowed: "record", "world"')
        if not isinstance(cls.needs, tuple) or not {*cls.needs} <= {*get_args(Need)}:
            raise ConfigError(
                f"attacker {cls.name!r} has needs = {cls.needs!r}; allowed: a tuple of some of {get_args(Need)}"
            )

    @abstractmethod
    def scores(self, handed: Handed) -> Scores:
        """Score each unit.

        Args:
            handed: What the challenger hands out about one stage.

        Returns:
            A finite number for each unit; higher says "took part".

        Raises:
            ConfigError: What was handed out is not enough for it.

        """

    @classmethod
    def unusable(cls, method: str, arguments: tuple[Any, ...], result: Any) -> str:
        """See `Strategy`."""
        del arguments
        if method != "scores":
            return ""
        if not isinstance(result, Scores):
            return f"a {type(result).__name__}; allowed: Scores"
        finite = all(np.ndim(each) == 1 and np.isfinite(each).all() for each in (result.present, result.absent))
        return "" if finite else "scores that are no rows of finite numbers"


ATTACKERS = Registry[Attacker](
    "attacker",
    {
        "loss threshold": ("disavow.audit.attackers.loss:LossThreshold", ""),
        "LiRA online": ("disavow.audit.attackers.lira:OnlineLira", ""),
        "LiRA offline": ("disavow.audit.attackers.lira:OfflineLira", ""),
        "subject level": ("disavow.audit.attackers.subject_level:SubjectLevel", ""),
        "update alignment": ("disavow.audit.attackers.alignment:UpdateAlignment", ""),
        "parameters": ("disavow.audit.attackers.parameters:ParameterProjection", ""),
    },
)
"""Those who may accuse a server, in the order of reports."""

Attacker.registry = ATTACKERS
