"""A server app at work on its run: everything put together, from `start` to the last round."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from disavow.domain import RequestState
from disavow.erasure.erase import erase
from disavow.erasure.mechanisms import Mechanism
from disavow.erasure.repetition import repetition
from disavow.flower.arrays import Frame
from disavow.flower.delivery import Delivery
from disavow.flower.engine import FlowerEngine
from disavow.flower.log import inform
from disavow.flower.message_config import MessageConfigs
from disavow.flower.roster import Roster
from disavow.ledger import Ledger
from disavow.rounds.conduct import Conduct
from disavow.rounds.randomness import derive
from disavow.rounds.training import train
from disavow.rounds.vectors import Model

_PURGES, _PAUSE = 50, 0.1
"""How often, and how many seconds apart, deleted rows are purged again from files that somebody reads."""

OnStanding = Callable[[int], None]
"""Told which round is the newest that stands, whenever that has changed."""


@dataclass(eq=False)
class Session:
    """One life of a server app. Its state is what the ledger holds, and what Flower's Result is to hold."""

    grid: Grid
    ledger: Ledger
    frame: Frame
    roster: Roster
    configs: MessageConfigs
    conduct: Conduct
    mechanism: Mechanism
    openings: Path
    timeout: float
    """Seconds that messages wait for replies; whoever gets one later than that does not begin with it."""
    result: Result = field(default_factory=Result)

    def run(self, engine: FlowerEngine, *, rounds: int, on_standing: OnStanding) -> None:
        """Train until so many rounds stand; requests are honoured between rounds, proofs handed over."""
        delivery = Delivery(self.grid, self.ledger, self.roster, self.openings)
        seen = self.standing()[1]

        def between_rounds() -> None:
            nonlocal seen
            if any(request.state is RequestState.WAITING for request in self.ledger.requests()):
                delivery.receipts_before_erasure(engine.aware, self.configs)
            self._honour_requests(engine, delivery)
            self.roster.look()
            delivery.proofs()
            number, digest = self.standing()
            if digest != seen:
                seen = digest
                on_standing(number)

        train(self.ledger, engine, self.conduct, rounds=rounds, between_rounds=between_rounds)
        delivery.last_receipts(engine.aware, self.configs)

    def _honour_requests(self, engine: FlowerEngine, delivery: Delivery) -> None:
        self._honour_once(engine, delivery)
        for _ in range(_PURGES):
            if not self.ledger.purging():
                return
            # somebody was reading the ledger just then; the next round may be an hour away
            time.sleep(_PAUSE)
            self._honour_once(engine, delivery)

    def _honour_once(self, engine: FlowerEngine, delivery: Delivery) -> None:
        answered = erase(
            self.ledger,
            engine,
            self.conduct,
            self.mechanism,
            on_verdict=lambda verdict, requests: inform(f"{requests} erasure requests: {verdict}"),
            openings=self.openings,
            on_opening=delivery.note_opening,
            remark=repetition,
        )
        for request in answered:
            cost = request.cost
            spent = f"; {cost.rounds} rounds retrained" if cost is not None and cost.rounds else ""
            remark = f"; {request.remark}" if request.remark else ""
            inform(f"request {request.number} is answered: {request.verdict}{spent}{remark}")

    def standing(self) -> tuple[int, str]:
        """The newest round that stands, and the digest of its model."""
        number = self.ledger.last_round
        return number, self.ledger.digest_before(number + 1)

    def arrays(self) -> ArrayRecord:
        """The model that is served now."""
        vector = self.ledger.model_before(self.ledger.last_round + 1)
        return self.frame.record(Model(self.ledger.layout, torch.from_numpy(vector)))

    def train_messages(
        self, number: int, arrays: ArrayRecord, config: ConfigRecord, clients: Sequence[str], keys: tuple[str, str]
    ) -> list[Message]:
        """A train message to each of these clients, under the record keys (arrays, config)."""
        return self._messages(MessageType.TRAIN, number, arrays, config, clients, keys)

    def evaluate_messages(
        self, number: int, arrays: ArrayRecord, config: ConfigRecord, clients: Sequence[str], keys: tuple[str, str]
    ) -> list[Message]:
        """An evaluate message to each of these clients."""
        return self._messages(MessageType.EVALUATE, number, arrays, config, clients, keys)

    def _messages(
        self,
        kind: str,
        number: int,
        arrays: ArrayRecord,
        config: ConfigRecord,
        clients: Sequence[str],
        keys: tuple[str, str],
    ) -> list[Message]:
        self.configs.prepare()
        here = self.roster.members
        return [
            Message(
                RecordDict({keys[0]: arrays, keys[1]: self.configs.config(config, client, number)}),
                here[client],
                kind,
                ttl=self.timeout,
            )
            for client in clients
        ]

    def evaluators(self, number: int, *, fraction: float, at_least: int) -> list[str]:
        """Who evaluates the model of a round: so large a part of the clients here, drawn by a hash."""
        here = sorted(self.roster.members)
        count = max(int(len(here) * fraction), at_least)
        seed = self.conduct.seed
        return sorted(here, key=lambda client: derive("evaluation", seed, number, client))[:count]

    def forget_after(self, number: int) -> None:
        """Metrics of rounds that a rollback has undone are metrics of no model that stands."""
        kept = self.result
        for told in (
            kept.train_metrics_clientapp,
            kept.evaluate_metrics_clientapp,
            kept.evaluate_metrics_serverapp,
        ):
            for undone in [known for known in told if known > number]:
                del told[undone]

    def note_train(self, number: int, metrics: MetricRecord) -> None:
        """Metrics that the clients returned with their updates."""
        self.result.train_metrics_clientapp[number] = metrics
