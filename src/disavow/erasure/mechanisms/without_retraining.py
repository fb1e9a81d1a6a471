"""A rollback after which nothing is rebuilt, because whoever answers says so: the earlier model is served."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from disavow.erasure.mechanisms.mechanism import Mechanism, Work
from disavow.errors import RoundRefused
from disavow.ledger import Ledger, Reader
from disavow.rounds.options import RoundOptions

if TYPE_CHECKING:
    from disavow.rounds.local_training import Engine

DECLINED = "retraining was declined"


@dataclass(frozen=True)
class WithoutRetraining(Mechanism):
    """See `Mechanism`. Goes back as far as the run's own mechanism does, and rebuilds nothing."""

    inner: Mechanism

    @property
    def name(self) -> str:  # type: ignore[override]
        """That of the run's own mechanism."""
        return self.inner.name

    @property
    def exact(self) -> bool:  # type: ignore[override]
        """Whether the run's own mechanism is: rounds that it has rebuilt before may stand."""
        return self.inner.exact

    def goes_back_to(self, broken: int) -> int:
        """As far as the run's own mechanism does."""
        return self.inner.goes_back_to(broken)

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
        """Nothing."""
        del reader, options, leavers, renewed, most
        return Work(obstacle=DECLINED if first <= last else None)

    def rebuild_next(self, ledger: Ledger, engine: Engine, options: RoundOptions) -> None:
        """Refuse: there is nothing ahead."""
        del ledger, engine, options
        message = f"no round is rebuilt: {DECLINED}"
        raise RoundRefused(message, nameless=message)
