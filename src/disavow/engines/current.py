"""The engine that a run has now, for whoever holds it over several rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from disavow.rounds.local_training import ChecksRuns

if TYPE_CHECKING:
    from disavow.domain import EngineChoice, Evaluation, Layout
    from disavow.rounds.local_training import Engine
    from disavow.rounds.vectors import Model, Updates


class CurrentEngine:
    """Trains by the engine that a run has now. It is built again when records of a client were erased.

    A record may be erased between two rounds of one training, or while requests are answered. Whoever holds this
    trains on none that was erased before.

    Args:
        current: Gives the engine to train with now.

    """

    def __init__(self, current: Callable[[], Engine]) -> None:
        self._current = current

    @property
    def choice(self) -> EngineChoice | None:
        """What trains, and why nothing faster does; None where the engine does not say."""
        return getattr(self._current(), "choice", None)

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        """See `Engine`."""
        return self._current().train(model, clients, round_number, epochs=epochs)

    def evaluate(self, model: Model) -> Evaluation | None:
        """See `Engine`."""
        return self._current().evaluate(model)

    def refuse_run(self, layout: Layout, clients: Sequence[str]) -> None:
        """See `ChecksRuns`."""
        engine = self._current()
        if isinstance(engine, ChecksRuns):
            engine.refuse_run(layout, clients)

    def close(self) -> None:
        """See `Engine`."""
        self._current().close()
