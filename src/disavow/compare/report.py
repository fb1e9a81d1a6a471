"""What a comparison came to: for each method its figures over seeds, beside those of exact retrainings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, median, stdev
from typing import Any, Literal

from scipy import stats

from disavow.audit.intervals import Interval
from disavow.compare.method import Method

LEVEL = 0.95
"""Of all intervals."""

Unit = Literal["share", "advantage", "loss", "rounds", "epochs", "bytes", "seconds", "likeness"]


@dataclass(frozen=True)
class Figure:
    """One thing that is measured.

    Attributes:
        name: In JSON and CSV.
        title: In tables.
        unit: What its numbers are.
        references: Whether exact retrainings have it, too.

    """

    name: str
    title: str
    unit: Unit
    references: bool = True


FIGURES = (
    Figure("accuracy", "accuracy", "share"),
    Figure("loss", "loss", "loss"),
    Figure("leaver_accuracy", "accuracy on the leaver", "share"),
    Figure("leaver_loss", "loss on the leaver", "loss"),
    Figure("agreement", "agreement", "share"),
    Figure("best_attacker", "best attacker", "advantage"),
    Figure("loss_gap", "loss gap", "loss"),
    Figure("backdoor", "backdoor", "share"),
    Figure("relearning", "relearning", "rounds"),
    Figure("reconstruction", "reconstruction", "likeness"),
    Figure("client_epochs", "client-epochs", "epochs", references=False),
    Figure("work", "work", "share", references=False),
    Figure("bytes_sent", "sent", "bytes", references=False),
    Figure("bytes_stored", "stored", "bytes", references=False),
    Figure("seconds", "seconds", "seconds", references=False),
)
"""All of them, in the order of tables. `work` is client-epochs as a share of those of a retraining from scratch."""

BY_NAME = {figure.name: figure for figure in FIGURES}


@dataclass(frozen=True)
class Estimate:
    """A figure over seeds.

    Attributes:
        values: One for each seed.

    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over seeds."""
        return mean(self.values)

    @property
    def interval(self) -> Interval | None:
        """Student's interval of the mean; None with one seed, which says nothing of others."""
        count = len(self.values)
        if count < 2:  # noqa: PLR2004
            return None
        half = float(stats.t.ppf(0.5 + LEVEL / 2, count - 1)) * stdev(self.values) / math.sqrt(count)
        return Interval(self.mean - half, self.mean + half)


@dataclass(frozen=True)
class Scatter:
    """A figure over exact retrainings: the yardstick.

    Attributes:
        values: One for each retraining.

    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over retrainings."""
        return mean(self.values)

    @property
    def deviation(self) -> float:
        """Standard deviation between them."""
        return stdev(self.values) if len(self.values) > 1 else 0.0

    def expects(self, estimate: Estimate) -> bool:
        """Say whether another retraining could have had a figure: its median is in the prediction interval.

        The median and not the mean: a single seed that went astray says little of the method.

        Args:
            estimate: Of a method.

        """
        count = len(self.values)
        if count < 2:  # noqa: PLR2004
            return False
        half = float(stats.t.ppf(0.5 + LEVEL / 2, count - 1)) * self.deviation * math.sqrt(1 + 1 / count)
        return abs(median(estimate.values) - self.mean) <= half + 1e-12


@dataclass(frozen=True, eq=False)
class Row:
    """One method.

    Attributes:
        method: With what it declares.
        scheme: The references that it is held against.
        estimates: By figure; without those that could not be measured.
        attackers: The difference of each attacker's advantage from that on retrained models, by attacker.
        remarks: One for each seed; "" for nothing.
        backdoor_before: Success of the backdoor before the method, one value a seed.

    """

    method: Method
    scheme: str
    estimates: Mapping[str, Estimate]
    attackers: Mapping[str, Estimate] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    backdoor_before: Estimate | None = None


@dataclass(frozen=True, eq=False)
class SchemeReport:
    """What a scheme gives before anybody leaves, and without the leaver.

    Attributes:
        before: By figure, over seeds: the model that the leaver is in.
        references: By figure, over exact retrainings.
        attackers: The advantage of each attacker on retrained models.

    """

    before: Mapping[str, Estimate]
    references: Mapping[str, Scatter]
    attackers: Mapping[str, Scatter] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Comparison:
    """All of it.

    Attributes:
        run: The run's folder, as it was named.
        leaver: The client, or records of it, in words.
        described: The federation: how many clients, rounds and so on.
        rows: One for each method, in the order of the registry.
        schemes: By name.
        skipped: Why methods were left out, by name.
        left_out: Why attackers were, by name.
        unmeasured: Why figures are missing, by name.
        recomputed: Whether updates were computed that the run did not keep.
        relearning_cap: Rounds after which relearning was given up.
        seconds: That it took.

    """

    run: str
    leaver: str
    described: Mapping[str, Any]
    rows: tuple[Row, ...]
    schemes: Mapping[str, SchemeReport]
    skipped: Mapping[str, str]
    left_out: Mapping[str, str]
    unmeasured: Mapping[str, str]
    recomputed: bool
    relearning_cap: int
    seconds: float

    def ranked(self, figure: str) -> list[str]:
        """Order methods from the best to the worst by a figure.

        Best is least for attackers, backdoors, costs and what came back; and nearest to the mean of exact
        retrainings for everything else.

        Args:
            figure: Its name.

        Returns:
            The names of those that have it.

        """

        def distance(row: Row) -> float:
            value = row.estimates[figure].mean
            reference = self.schemes[row.scheme].references.get(figure)
            if figure in LESS_IS_BETTER or reference is None:
                return value
            return abs(value - reference.mean)

        return [row.method.name for row in sorted((r for r in self.rows if figure in r.estimates), key=distance)]

    def to_json(self) -> dict[str, Any]:
        """The same for machines."""
        return {
            "run": self.run,
            "leaver": self.leaver,
            **self.described,
            "level": LEVEL,
            "recomputed_updates": self.recomputed,
            "relearning_cap": self.relearning_cap,
            "methods": [self._row(row) for row in self.rows],
            "schemes": {name: _scheme(each) for name, each in self.schemes.items()},
            "skipped": dict(self.skipped),
            "attackers_left_out": dict(self.left_out),
            "not_measured": dict(self.unmeasured),
            "seconds": self.seconds,
        }

    def _row(self, row: Row) -> dict[str, Any]:
        method, references = row.method, self.schemes[row.scheme].references
        return {
            "method": method.name,
            "paper": method.paper,
            "claim": method.claim,
            "exact": method.exact,
            "scheme": row.scheme,
            "stores": method.stores,
            "leaver_helps": method.leaver_helps,
            "needs_public_data": method.needs_public_data,
            "figures": {
                name: {
                    **_estimate(each),
                    "within_references": references[name].expects(each) if name in references else None,
                }
                for name, each in row.estimates.items()
            },
            "attackers": {name: _estimate(each) for name, each in row.attackers.items()},
            "backdoor_before": None if row.backdoor_before is None else _estimate(row.backdoor_before),
            "remarks": list(row.remarks),
        }


LESS_IS_BETTER = frozenset(
    {
        "best_attacker",
        "backdoor",
        "reconstruction",
        "client_epochs",
        "work",
        "bytes_sent",
        "bytes_stored",
        "seconds",
    }
)
"""Figures by which less is better, whatever retrained models have."""


def _estimate(each: Estimate) -> dict[str, Any]:
    interval = each.interval
    return {
        "mean": each.mean,
        "low": None if interval is None else interval.low,
        "high": None if interval is None else interval.high,
        "values": list(each.values),
    }


def _scatter(each: Scatter) -> dict[str, Any]:
    return {"mean": each.mean, "deviation": each.deviation, "values": list(each.values)}


def _scheme(each: SchemeReport) -> dict[str, Any]:
    return {
        "before": {name: _estimate(found) for name, found in each.before.items()},
        "references": {name: _scatter(found) for name, found in each.references.items()},
        "attackers": {name: _scatter(found) for name, found in each.attackers.items()},
    }


def estimates_of(found: Sequence[Mapping[str, float | None]]) -> dict[str, Estimate]:
    """Gather figures over seeds; one that a seed does not have, or that is no number, is left out.

    Args:
        found: One for each seed.

    """
    made = {name: [each.get(name) for each in found] for name in (found[0] if found else {})}
    return {
        name: Estimate(tuple(float(each) for each in values if each is not None))
        for name, values in made.items()
        if all(each is not None and math.isfinite(each) for each in values)
    }


def scatter_of(found: Sequence[Mapping[str, float | None]]) -> dict[str, Scatter]:
    """Gather figures over retrainings, in the same way.

    Args:
        found: One for each retraining.

    """
    return {name: Scatter(each.values) for name, each in estimates_of(found).items()}
