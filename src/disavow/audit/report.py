"""What an audit came to: each attacker on three models side by side, and a conclusion in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from disavow.audit.difference import Difference
from disavow.audit.epsilon import EpsilonBound
from disavow.audit.forging import ForgedRound, Histories
from disavow.audit.game import Scores, Stage, Unit
from disavow.audit.power import POWER, power, smallest_seen
from disavow.audit.roc import Measure, auc
from disavow.domain import ErasureRequest, VerdictKind, escaped

LEVEL = 0.95
"""Confidence of every interval; those of the differences hold for all attackers together."""

CHANCE = 0.5
"""The AUC of an attacker who guesses."""

RATES = (0.01, 0.001)
"""False-positive rates at which the true-positive rate is asked for."""


@dataclass(frozen=True, eq=False)
class Attacked:
    """How well an attacker does on one stage."""

    scores: Scores
    auc: Measure
    tpr: tuple[Measure, ...]
    advantage: Measure


@dataclass(frozen=True, eq=False)
class Found:
    """One attacker: its success on each stage, and how much better it does on the served model than on retrained
    ones. The stage *retrained* shows the median of `retrainings`. `interim` is the same difference for the model
    that is served between the answer and a purge; None where none is audited.
    """

    attacker: str
    unit: Unit
    stages: dict[Stage, Attacked]
    retrainings: int
    difference: Difference
    interim: Difference | None = None


@dataclass(frozen=True, eq=False)
class GivenAway:
    """What an attacker makes of two models, the one before the erasure and the one after it. It accuses nobody.

    `first` counts the pairs, of `pairs`, in which the leaver is ranked first of `clients`: with the model that is
    served, and with one that is exactly retrained. `rank` is its place in the run's own pair.
    """

    attacker: str
    stages: dict[Stage, Attacked]
    clients: int
    pairs: int
    first: dict[Stage, int]
    rank: int


@dataclass(frozen=True, eq=False)
class Audit:
    """The whole of it. `skipped` are attackers who lack something that the task does not have, and what; `classes`
    says that held-out records have the labels of the client's. `detect` is the advantage that was to be seen, and
    `needed` how many worlds that takes. `erased` are the records that were audited; where there are none, the whole
    client was. `purged`: the served model is the one after a purge, which followed the erasure.
    """

    client: str
    rounds: int
    answer: ErasureRequest
    moved: float
    verdicts: dict[str, int]
    own: int
    held_out: int
    worlds: int
    shadows: int
    found: tuple[Found, ...]
    forged: tuple[ForgedRound, ...]
    left_out: int
    thinned: int
    histories: Histories
    given_away: GivenAway
    detect: float | None
    needed: int | None
    departed: int
    bound: EpsilonBound | None
    seconds: float
    skipped: Mapping[str, str] = field(default_factory=dict)
    classes: bool = True
    erased: tuple[str, ...] = ()
    purged: bool = False

    @property
    def unit(self) -> str:
        """What was audited: a client, or records of one."""
        return "record" if self.erased else "client"

    @property
    def what(self) -> str:
        """The audited client, or how many records of it, as part of a sentence."""
        if not self.erased:
            return escaped(self.client)
        number = len(self.erased)
        return f"{number} record{'s' if number > 1 else ''} of {escaped(self.client)}"

    @property
    def _it(self) -> str:
        return "them" if len(self.erased) > 1 else "it"

    @property
    def remembering(self) -> tuple[Found, ...]:
        """The attackers who do better on the served model than on retrained ones, beyond chance."""
        return tuple(found for found in self.found if found.difference.interval.low > 0)

    @property
    def unlike(self) -> tuple[Found, ...]:
        """The attackers who do worse on the served model than on retrained ones, beyond chance."""
        return tuple(found for found in self.found if found.difference.interval.high < 0)

    @property
    def clean(self) -> bool:
        """Whether served minus retrained contains 0 for every attacker."""
        return not self.remembering and not self.unlike

    @property
    def level(self) -> float:
        """The level of each interval of a difference, so that they hold together."""
        return simultaneous(LEVEL, len(self.found) + len(self.skipped))

    @property
    def power(self) -> float | None:
        """How likely these worlds show the advantage that was to be seen."""
        return None if self.detect is None else power(self.detect, self.worlds, self.level)

    @property
    def blind(self) -> bool:
        """Whether nothing was found, and the advantage that was to be seen could not have been."""
        return self.clean and self.needed is not None and self.worlds < self.needed

    @property
    def recognised(self) -> bool:
        """Whether an attacker tells, beyond chance, that the client is in the model before its erasure."""
        intervals = [auc(found.stages[Stage.BEFORE].scores, self.level).interval for found in self.found]
        return any(interval is not None and interval.low > CHANCE for interval in intervals)

    def conclusion(self) -> tuple[str, ...]:
        """What the numbers say, in sentences."""
        number, what = len(self.found), self.what
        if self.clean:
            intervals = ", ".join(f"{found.attacker} {_interval(found)}" for found in self.found)
            return (
                f"Served minus retrained, in AUC, contains 0 for all {number} attackers ({intervals}): none of "
                f"them tells the model served after {what} {'are' if len(self.erased) > 1 else 'is'} "
                f"{'purged' if self.purged else 'erased'} from models retrained without {self._it}.",
                *self._until_purged(),
                *self._sight(),
                *self._left_out(),
            )
        sentences = [f"{_words(found)}: the served model still remembers {what}." for found in self.remembering]
        sentences += [f"{_words(found)}: the served model is told from retrained ones." for found in self.unlike]
        same = [found for found in self.found if found.difference.contains_zero]
        if same:
            intervals = ", ".join(f"{found.attacker} {_interval(found)}" for found in same)
            sentences.append(f"{len(same)} of {number} attackers see no difference: 0 is in {intervals}.")
        verdict = self.answer.verdict
        if self.purged:
            sentences += self._until_purged()
        elif verdict is not None and verdict.kind is VerdictKind.DENIABLE:
            sentences.append(
                "The verdict is deniable: the model was kept, because in every round others could have been drawn "
                "instead. Deniability is not deletion; with a larger x, fewer departures are deniable."
            )
        elif verdict is not None and verdict.undoes is not None and verdict.undoes > 1:
            sentences.append(
                f"The model went back to round {verdict.undoes}: the rounds before it stand, and in them the "
                "client is deniable, not deleted."
            )
        return (*sentences, *self._left_out())

    def _until_purged(self) -> Iterator[str]:
        """What remains in the model between the answer and the purge."""
        if not self.purged:
            return
        seeing = [found for found in self.found if found.interim is not None and not found.interim.contains_zero]
        names = f" ({', '.join(found.attacker for found in seeing)})" if seeing else ""
        yield (
            f"Until the purge, after the answer alone, {len(seeing)} of {len(self.found)} attackers tell the model "
            f"from retrained ones{names}."
        )

    def _left_out(self) -> Iterator[str]:
        """Who could not attack."""
        if self.skipped:
            yield (
                f"{len(self.skipped)} attackers were left out ({', '.join(self.skipped)}): what they would have "
                "seen, nobody has looked for."
            )

    def _sight(self) -> Iterator[str]:
        """What would have been seen, had it been there."""
        seen = smallest_seen(self.worlds, self.level)
        yield (
            f"{self.worlds} worlds show an attacker's advantage of {seen:.2f} or more in {POWER:.0%} of audits; a "
            "smaller one may go unseen. Batch-norm statistics alone, or a tenth of an update, stay hard to see."
        )
        if not self.recognised:
            yield (
                f"No attacker recognises {self.what} before the erasure, either: that none does after it says "
                "little."
            )
        if self.blind and self.power is not None:
            yield (
                f"An advantage of {self.detect:g} was to be seen. With {self.worlds} worlds it is in "
                f"{self.power:.0%} of audits: this one could not have seen it. {self.needed:,} worlds would."
            )


def _words(found: Found) -> str:
    return (
        f"{found.attacker}: served minus retrained is {found.difference.estimate:+.3f} in AUC {_interval(found)}, "
        "which does not contain 0"
    )


def _interval(found: Found) -> str:
    interval = found.difference.interval
    return f"[{interval.low:+.3f}, {interval.high:+.3f}]"


def median(scored: Sequence[tuple[float, Scores]]) -> Scores:
    """Return the scores whose AUC lies in the middle."""
    ranked = sorted(scored, key=lambda pair: pair[0])
    return ranked[(len(ranked) - 1) // 2][1]


def simultaneous(level: float, count: int) -> float:
    """Compute the level of each of `count` intervals that all hold together (Bonferroni).

    >>> round(simultaneous(0.95, 5), 3)
    0.99

    Args:
        level: Of all together.
        count: How many there are.

    Returns:
        The level of each.

    """
    return 1 - (1 - level) / count
