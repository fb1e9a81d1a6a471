"""Which methods are compared: those that were named, or all that this run allows, and how much is tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from disavow.compare.measures.reconstruction import QUICK, Inversion
from disavow.compare.method import METHODS, Method
from disavow.compare.problem import Problem
from disavow.compare.scheme import SCHEMES
from disavow.errors import ConfigError, UnknownMethod, UpdatesNotKept
from disavow.ledger import Ledger

FEWEST_REFERENCES = 5
FEWEST_QUICK_REFERENCES = 3
"""LiRA needs two beside the one that it attacks."""

MOST = 1000
"""Seeds or references; a typing error is not taken for a wish."""

DEFAULT_SEEDS = 3


@dataclass(frozen=True)
class Effort:
    """How much is tried.

    Attributes:
        seeds: Trainings of each scheme; the first is the run itself.
        references: Exact retrainings of each scheme.
        quick: Give up relearning and reconstruction early.
        recompute: Compute updates that the run did not keep.

    """

    seeds: int = DEFAULT_SEEDS
    references: int = FEWEST_REFERENCES
    quick: bool = False
    recompute: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.seeds <= MOST:
            raise ConfigError(f"--seeds is {self.seeds}; allowed: 1 to {MOST:,}")
        fewest = FEWEST_QUICK_REFERENCES if self.quick else FEWEST_REFERENCES
        if not fewest <= self.references <= MOST:
            raise ConfigError(
                f"--references is {self.references}; allowed: {fewest} to {MOST:,} (their scatter is the yardstick)"
            )

    @classmethod
    def chosen(
        cls, seeds: int | None, references: int | None, *, quick: bool = False, recompute: bool = False
    ) -> Effort:
        """Fill in what was not said.

        Args:
            seeds: Trainings of each scheme; None for the default.
            references: Exact retrainings; None for the default.
            quick: Try little.
            recompute: Compute updates that the run did not keep.

        """
        return cls(
            (1 if quick else DEFAULT_SEEDS) if seeds is None else seeds,
            (FEWEST_QUICK_REFERENCES if quick else FEWEST_REFERENCES) if references is None else references,
            quick,
            recompute,
        )

    @property
    def relearning(self) -> int:
        """Rounds after which relearning is given up."""
        return 3 if self.quick else 10

    @property
    def inversion(self) -> Inversion:
        """How hard the reconstruction attacker tries."""
        return QUICK if self.quick else Inversion()


def methods_named(names: Sequence[str]) -> list[Method]:
    """Find methods by name, in the order of the registry.

    Args:
        names: Of methods, or "all"; none: all.

    Raises:
        UnknownMethod: There is none of that name.

    """
    known = list(METHODS)
    for name in names:
        if name not in {*known, "all"}:
            near = get_close_matches(name, [*known, "all"], n=1)
            hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(known)}, all"
            raise UnknownMethod(f"there is no method {name!r}; {hint}")
    wanted = {*known} if not names or "all" in names else {*names}
    return [METHODS[name] for name in known if name in wanted]


def allowed(
    problem: Problem, methods: Sequence[Method], effort: Effort, *, named: bool
) -> tuple[list[Method], Mapping[str, str]]:
    """Leave methods out that this run does not allow.

    Args:
        problem: What is compared on.
        methods: Those that are wanted.
        effort: How much is tried.
        named: Whether somebody asked for them by name: then what is not allowed is refused.

    Returns:
        The others, and why each was left out.

    Raises:
        UpdatesNotKept: A method that was asked for needs updates, and the run kept none.
        ConfigError: One that was asked for cannot be used for another reason.

    """
    kept = _keeps_updates(problem)
    usable, skipped = [], {}
    for method in methods:
        reason = _obstacle(problem, method)
        if reason is None and method.stores == "updates" and not (kept or effort.recompute):
            reason = (
                "needs every client's update of every round, which the run did not keep; --recompute-updates "
                "computes them from the clients' data, which a server could not"
            )
            if named:
                raise UpdatesNotKept(f"{method.name} {reason}")
        if reason is None:
            usable.append(method)
        elif named:
            raise ConfigError(f"method {method.name} cannot be compared on this run: {reason}")
        else:
            skipped[method.name] = reason
    if not usable:
        raise ConfigError("none of the methods can be compared on this run: " + "; ".join(skipped.values()))
    return usable, skipped


def _obstacle(problem: Problem, method: Method) -> str | None:
    if problem.subject.erased and not method.records:
        return "forgets whole clients, and records are to be forgotten"
    if method.needs_public_data and not len(problem.public):
        return "needs unlabelled data, and the task has no test data to take for it"
    if method.needs_public_data and problem.outputs_obstacle is not None:
        return f"needs what the model says of unlabelled data, and {problem.outputs_obstacle}"
    if method.needs_likelihood and (reason := problem.likelihood_obstacle) is not None:
        return reason
    return SCHEMES[method.scheme].obstacle(problem)


def _keeps_updates(problem: Problem) -> bool:
    """Whether the updates of every round are there."""
    with Ledger.open(problem.subject.directory, keys=problem.keys) as ledger:
        return len(ledger.kept_rounds(1)) >= problem.rounds
