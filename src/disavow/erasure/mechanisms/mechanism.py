"""What a mechanism is: how a model is rebuilt after a rollback."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from disavow.errors import ConfigError
from disavow.ledger import Ledger, Reader
from disavow.rounds.conduct import Conduct

if TYPE_CHECKING:
    from disavow.rounds.local_training import Engine


@dataclass(frozen=True)
class Step:
    """One round to rebuild: how many take part, and how many local epochs each of them trains."""

    participants: int
    epochs: int


@dataclass(frozen=True)
class Work:
    """What there is to rebuild, round by round; and why not more, None where nothing stands in the way."""

    steps: tuple[Step, ...] = ()
    obstacle: str | None = None


class Mechanism(Protocol):
    """Rebuilds superseded rounds with the survivors, one at a time, so that a crash loses one at most."""

    @property
    def name(self) -> str:
        """What the ledger and the reports call it."""

    @property
    def exact(self) -> bool:
        """Whether the result is that of a run which the leavers never joined."""

    def goes_back_to(self, broken: int) -> int:
        """The round from which it rebuilds when `broken` is the first one that does not hold; not a later one."""

    def ahead(
        self,
        reader: Reader,
        conduct: Conduct,
        *,
        first: int,
        last: int,
        leavers: Collection[str] = (),
        most: int | None = None,
    ) -> Work:
        """What it does to rebuild the rounds from `first` to `last` once these have left; at most so many steps.

        Rounds from `first` on may still stand: then it is a forecast. Changes nothing.
        """

    def rebuild_next(self, ledger: Ledger, engine: Engine, conduct: Conduct) -> None:
        """Rebuild and record the next round."""


def refuse_another(ledger: Ledger, mechanism: Mechanism) -> None:
    """A run is rebuilt by the mechanism that its log names: whoever reads a proof goes by that."""
    if mechanism.name != ledger.policy.mechanism:
        raise ConfigError(
            f"{ledger.directory} promises the mechanism {ledger.policy.mechanism!r} in its log; allowed: that one, "
            f"or a new run with {mechanism.name!r}"
        )
