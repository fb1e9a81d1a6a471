"""Which runs a table or a figure is made of, and what they come to together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

from disavow.compare.report import Estimate
from reproduction.lines import PLAIN, UNCLUSTERED, Line, Method, Network

XS = (2, 3, 4)
"""The degrees of deniability of the paper; its cells are means over them."""
NO_X = (1,)
"""What stands in the place of x for the baselines."""
KS = (4, 6, 8, 10)
"""The sizes of clusters of the paper."""

Quantity = Callable[[Line], float | None]
_Kind = TypeVar("_Kind")


@dataclass(frozen=True)
class Cell:
    """Runs that differ in x and seed alone, as one number: the mean over seeds of the means over x.

    `interval` is half of Student's 95 % interval over seeds, each of which has a stream of requests of its own;
    None with one seed. The paper's is the standard deviation over x, which says nothing of other seeds.
    """

    mean: float
    interval: float | None
    xs: tuple[int, ...]
    runs: int
    seeds: tuple[int, ...]
    possible: tuple[int, ...] = XS
    """Every x of the paper that could be run; `NO_X` for methods without."""

    @property
    def whole(self) -> bool:
        """Whether every x was run."""
        return self.xs == self.possible


def possible_xs(method: Method, k: int) -> tuple[int, ...]:
    """The paper's x that a method can have: of a cluster of k, x + s - 1 must be able to survive.

    >>> possible_xs("sticky-3", 4), possible_xs("sticky", 4), possible_xs("fedavg-sampled", 4)
    ((2,), (2, 3, 4), (1,))
    """
    if method in UNCLUSTERED:
        return NO_X
    return tuple(x for x in XS if x + (2 if method == "sticky-3" else 0) <= k)


def cell_of(found: Sequence[tuple[Line, float]], possible: tuple[int, ...]) -> Cell:
    """Put runs together, each with its value.

    Args:
        found: At least one.
        possible: Every x that could have been run.

    """
    seeds = tuple(sorted({line.seed for line, _ in found}))
    over_seeds = Estimate(tuple(fmean(value for line, value in found if line.seed == seed) for seed in seeds))
    interval = over_seeds.interval
    return Cell(
        mean=over_seeds.mean,
        interval=None if interval is None else (interval.high - interval.low) / 2,
        xs=tuple(sorted({line.x for line, _ in found})),
        runs=len(found),
        seeds=seeds,
        possible=possible,
    )


@dataclass(frozen=True)
class Selection:
    """Runs of one network, each once; full ones, or quick ones where there are no others."""

    lines: tuple[Line, ...]
    quick: bool
    left_out: int
    """Quick runs that were left out because there are full ones."""

    def runs(self, row: str, method: Method, k: int = 1) -> list[Line]:
        """The runs of one cell: as their grid has them, without its variants."""
        wanted = row, method, k, ""
        return [line for line in self.lines if (line.row, line.method, line.k, line.variant) == wanted]

    def cell(self, row: str, method: Method, k: int, quantity: Quantity) -> Cell | None:
        """A cell of a table; nothing where it was not run, or where its runs do not have the quantity."""
        found = [(line, value) for line in self.runs(row, method, k) if (value := quantity(line)) is not None]
        if not found:
            return None
        return cell_of(found, possible_xs(method, k))

    def difference(self, row: str, method: Method, k: int, quantity: Callable[[Line], float]) -> Cell | None:
        """A cell of differences to FedAvg's run of the same seed; nothing where either was not run."""
        found = [
            (line, quantity(line) - quantity(fedavg))
            for line in self.runs(row, method, k)
            if (fedavg := self.baseline(line)) is not None
        ]
        return cell_of(found, possible_xs(method, k)) if found else None

    def baseline(self, line: Line, method: Method = "fedavg") -> Line | None:
        """The run of a baseline on the same row with the same seed, and so with the same requests.

        A random 1/k of the clients is that of the run's own k.
        """
        k = 1 if method in PLAIN else line.k
        same = (found for found in self.runs(line.row, method, k) if found.seed == line.seed)
        return next(same, None)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Every seed that was run."""
        return tuple(sorted({line.seed for line in self.lines}))

    def has(self, method: Method) -> bool:
        """Whether any run is of that method."""
        return any(line.method == method for line in self.lines)

    def shown(self, possible: Sequence[_Kind], what: Callable[[Line], object]) -> tuple[_Kind, ...]:
        """Say which of all rows, or sizes of clusters, are shown: of quick runs, those that they have.

        A small version has few of them. In any other table and figure, what was not run is to be seen.

        Args:
            possible: All of them.
            what: Which of them a run is of.

        """
        run = {what(line) for line in self.lines}
        return tuple(each for each in possible if not self.quick or each in run)

    def distinct(self, what: Callable[[Line], _Kind]) -> list[_Kind]:
        """What the runs say, each value once, in their order."""
        return list(dict.fromkeys(what(line) for line in self.lines))


def select(lines: Iterable[Line], network: Network, methods: Sequence[Method] | None = None) -> Selection:
    """The runs of a network. Of runs of the same place in the grid, the last counts."""
    wanted = [line for line in lines if line.network == network and (methods is None or line.method in methods)]
    full = [line for line in wanted if not line.quick]
    chosen = full or wanted
    once = {(line.row, line.method, line.variant, line.k, line.x, line.seed): line for line in chosen}
    return Selection(
        lines=tuple(once.values()),
        quick=bool(wanted) and not full,
        left_out=len(wanted) - len(full) if full else 0,
    )
