"""What a mechanism is: how a model is rebuilt after a rollback."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, cast

from disavow.config import MechanismSettings
from disavow.domain.strategies import MECHANISMS, MechanismSpec
from disavow.errors import ConfigError
from disavow.ledger import Ledger, Reader
from disavow.rounds.options import RoundOptions

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


class Mechanism(MechanismSpec, ABC):
    """Rebuilds superseded rounds with the survivors, one at a time, so that a crash loses one at most."""

    def configured(self, settings: MechanismSettings) -> Self:
        """Return the mechanism as the section `[mechanism]` of the settings wants it.

        Args:
            settings: That section.

        Returns:
            A mechanism of the same class.

        """
        del settings
        return self

    def goes_back_to(self, broken: int) -> int:
        """Return the round from which it rebuilds where `broken` is the first that does not hold; none later.

        Args:
            broken: The number of that round.

        Returns:
            The number of a round, at most `broken`.

        """
        return broken

    @abstractmethod
    def ahead(
        self,
        reader: Reader,
        options: RoundOptions,
        *,
        first: int,
        last: int,
        leavers: Collection[str] = (),
        renewed: Collection[str] = (),
        most: int | None = None,
    ) -> Work:
        """What it does to rebuild the rounds from `first` to `last` once these have left; at most so many steps.

        Rounds from `first` on may still stand: then it is a forecast. Changes nothing.

        Args:
            reader: The ledger.
            options: How rounds are run.
            first: The first round to rebuild.
            last: The last one.
            leavers: Ids of those who have left by then.
            renewed: Ids of those who go on without some records, and whose updates so far are withdrawn.
            most: How many steps at the most; None for all.

        Returns:
            The steps, and why there are no more of them.

        """

    @abstractmethod
    def rebuild_next(self, ledger: Ledger, engine: Engine, options: RoundOptions) -> None:
        """Rebuild and record the next round.

        Args:
            ledger: The run, open for writing.
            engine: What trains the clients.
            options: How rounds are run.

        """


def build(settings: MechanismSettings) -> Mechanism:
    """Return the mechanism that the settings name.

    Args:
        settings: The section `[mechanism]`.

    """
    return cast(Mechanism, MECHANISMS[settings.name]).configured(settings)


def refuse_another(ledger: Ledger, mechanism: Mechanism) -> None:
    """Refuse a mechanism that the run's log does not name: whoever reads a proof goes by that.

    Args:
        ledger: The run.
        mechanism: What is to rebuild it.

    Raises:
        ConfigError: The log names another one.

    """
    if mechanism.name != ledger.policy.mechanism:
        raise ConfigError(
            f"{ledger.directory} promises the mechanism {ledger.policy.mechanism!r} in its log; allowed: that one, "
            f"or a new run with {mechanism.name!r}"
        )
