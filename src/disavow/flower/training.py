"""Train the clients of a round on their Flower nodes: messages go out through the grid, screened updates come back.

    configure_train -> send -> screen (ask again where too few answered) -> [cluster ... record] -> aggregate_train

What stands in brackets is the round of every run (`rounds.round`), to which this is an engine like any other; only
fewer clients may answer than were asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from disavow.domain import Evaluation, Layout, escaped
from disavow.errors import CannotRetrain, ConfigError, RoundRefused
from disavow.flower.log import inform, warn
from disavow.flower.messages import ClientGrid, MessageConfigs, exchange
from disavow.flower.placement import NodeRequests
from disavow.flower.protocol import EPOCHS, EVIDENCE, RECORD
from disavow.flower.removal_words import RemovalWords
from disavow.flower.replies import (
    ArrayFormat,
    InvalidReply,
    Reply,
    Vector,
    outliers,
    read_reply,
    screened_alone,
    stack_updates,
)
from disavow.flower.roster import Roster
from disavow.ledger import Ledger
from disavow.rounds.local_training import fewest
from disavow.rounds.vectors import Model, Updates

if TYPE_CHECKING:
    from disavow.flower.strategy import KIPFedAvg

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]
"""Flower's `evaluate_fn`: how well the model of a round does on the server's data."""

_MOST_NAMED = 10
"""How many clients an error names before it only counts."""


@dataclass(frozen=True, eq=False)
class _Collected:
    """The replies that were collected for an attempt at a round."""

    number: int
    attempt: int
    messages: list[Message]


@dataclass(eq=False)
class NodeTraining:
    """Trains the clients of one start of the strategy; see `Engine`.

    Args:
        strategy: Whose extension points make the messages and hear of the replies.
        grid: Flower's grid.
        ledger: The run, open for writing.
        arrays: What the run's ArrayRecords look like.
        roster: Who is connected.
        configs: What each client's message carries.
        requests: The requests that nodes make themselves, which their replies bring.
        words: The clients' words that they removed records, which their replies bring.
        timeout: Seconds that messages wait for replies; whoever gets one later does not begin with it.
        train_config: What the app wants to send with every train message.
        evaluate_fn: Evaluates a model on the server's data, if the app has such a function.
        result: Collects metrics, as FedAvg does.

    Attributes:
        evidence_clients: Clients whose app takes evidence: those with `evidence_mod`.

    """

    strategy: KIPFedAvg
    grid: Grid
    ledger: Ledger
    arrays: ArrayFormat
    roster: Roster
    configs: MessageConfigs
    requests: NodeRequests
    words: RemovalWords
    timeout: float
    train_config: ConfigRecord = field(default_factory=ConfigRecord)
    evaluate_fn: EvaluateFn | None = None
    result: Result = field(default_factory=Result)
    evidence_clients: set[str] = field(default_factory=set)
    _evaluated: dict[int, int] = field(default_factory=dict)
    """The attempt of each round at which `evaluate_fn` was asked about its model; it is asked once about each."""
    _collected: _Collected | None = None

    # -- training a round ----------------------------------------------------------------------------------------

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        """Train these clients on their nodes.

        Args:
            model: What they start from.
            clients: Who takes part.
            round_number: The round.
            epochs: Sent to the clients, where a rebuild asks for it; whether they keep to it is theirs to say.

        Returns:
            The updates of those who answered well.

        Raises:
            RoundRefused: They are fewer than k, after they were asked again.

        """
        self.drop_metrics_after(round_number - 1)
        record, policy = self.arrays.to_record(model), self.ledger.policy
        broadcast = self.arrays.to_vector(record)  # what the clients got: in float16 it is not quite the model
        needed = self._replies_needed(len(clients))
        good: dict[str, Reply] = {}
        bad: dict[str, str] = {}
        for attempt in range(1 + self.strategy.repeats):
            missing = [client for client in clients if client not in good]
            if attempt:
                warn(f"round {round_number}: {len(good)} good replies, k = {needed}; the others are asked again")
                self.roster.refresh()
            config = ConfigRecord({**self.train_config, **({} if epochs is None else {EPOCHS: epochs})})
            answered, bad = self._collect(round_number, record, config, missing, broadcast)
            good |= answered
            for client, reason in outliers(good, policy, self.strategy.too_large, broadcast).items():
                del good[client]
                bad[client] = reason
            if len(good) >= needed or not clients:
                break
        if bad:
            warn(f"round {round_number}: left out {_listed(bad)}")
        if len(good) < needed and clients:
            message = (
                f"round {round_number} refused: {len(good)} of {len(clients)} clients returned an update, fewer "
                f"than k = {needed}"
            )
            raise RoundRefused(f"{message} ({_listed(bad)}){RoundRefused.UNCHANGED}", nameless=message)
        inform(f"round {round_number}: {len(good)} of {len(clients)} clients returned an update")
        messages = [good[client].message for client in sorted(good)]
        self._collected = _Collected(*self.ledger.next_round(), messages)
        return stack_updates({client: good[client] for client in clients if client in good}, model)

    def _replies_needed(self, clients: int) -> int:
        """How many good replies make a round: k; of fixed clusters, in which fewer may be left, those asked; one
        where no client may decide whether others are asked again.
        """
        policy = self.ledger.policy
        if screened_alone(policy):
            return fewest(policy)
        return min(policy.k, clients) if policy.anchored else policy.k

    def _collect(
        self, number: int, record: ArrayRecord, config: ConfigRecord, clients: Sequence[str], broadcast: Vector
    ) -> tuple[dict[str, Reply], dict[str, str]]:
        """Send the train messages; the good replies, and why the others are none."""
        members = self.roster.members
        grid = ClientGrid(self.grid, {client: members[client] for client in clients if client in members})
        bad = {client: "it is not connected" for client in clients if client not in members}
        replies = self.send(self.strategy.configure_train(number, record, config, grid), grid, number)
        good = {}
        for node, client in grid.clients.items():
            reply = replies.get(node)
            if reply is None:
                bad[client] = f"it did not answer within {self.timeout:g} s"
                continue
            try:
                good[client] = read_reply(reply, self.arrays, broadcast, self.strategy.weighted_by_key)
            except InvalidReply as invalid:
                bad[client] = str(invalid)
                continue
            reply_record = reply.content.get(RECORD)
            if isinstance(reply_record, ConfigRecord) and reply_record.get(EVIDENCE) is True:
                self.evidence_clients.add(client)
            if isinstance(reply_record, ConfigRecord):
                self.words.take(client, reply_record)
        return good, bad

    def send(self, messages: Iterable[Message], grid: ClientGrid, round_number: int) -> dict[int, Message]:
        """Send the messages of a round to the clients of this grid, each with its own config; replies by node."""
        completed = self.configs.complete(
            messages, grid.clients, round_number, key=self.strategy.configrecord_key, ttl=self.timeout
        )
        replies = exchange(self.grid, completed, timeout=self.timeout)
        self.requests.collect(replies, grid.clients)
        return replies

    # -- once it is recorded -------------------------------------------------------------------------------------

    def evaluate(self, model: Model) -> Evaluation | None:
        """Pass the newest round on to `aggregate_train` if it was recorded just now, and evaluate its model.

        Returns:
            What the app's `evaluate_fn` says; None where there is none, where it names no finite number, and where
            it was asked before about the round that waits for its evaluation.

        """
        self._aggregate_train(model)
        if self.evaluate_fn is None:
            return None
        # of the rounds that wait for their evaluation the newest comes first; without any, it is the newest of all
        waiting = self.ledger.unevaluated()
        number = waiting[-1] if waiting else self.ledger.last_round
        if waiting and self._is_evaluated(number):
            return None
        return self._ask_evaluate_fn(number, self.arrays.to_record(model))

    def _aggregate_train(self, model: Model) -> None:
        """Call the strategy's `aggregate_train` with the replies of the round that was recorded with this model."""
        done, self._collected = self._collected, None
        if done is None or (done.number, done.attempt) != (self.ledger.last_round, self._attempt(done.number)):
            return
        try:
            arrays, metrics = self.strategy.aggregate_train(done.number, done.messages)
        except Exception as error:
            warn(f"round {done.number}: the metrics of the clients cannot be aggregated ({error})")
            return
        if arrays is not None and not self._holds(arrays, model):
            raise ConfigError(
                f"aggregate_train returned other arrays than round {done.number} was recorded with: the model of a "
                "run is what its ledger holds; allowed: those that KIPFedAvg.aggregate_train returns, or None"
            )
        if metrics is not None:
            self.result.train_metrics_clientapp[done.number] = metrics

    def _holds(self, arrays: ArrayRecord, model: Model) -> bool:
        try:
            returned = self.arrays.to_vector(arrays)
        except InvalidReply:
            return False
        return bool((returned == self.arrays.to_vector(self.arrays.to_record(model))).all())

    def evaluate_current(self) -> None:
        """Ask `evaluate_fn` about the model that stands, as FedAvg does of the model that it starts from; once.

        A round that waits for its evaluation is left to `evaluate`, whose answer is written to the ledger.
        """
        number = self.ledger.last_round
        if self.evaluate_fn is None or number in self.ledger.unevaluated() or self._is_evaluated(number):
            return
        self._ask_evaluate_fn(number, self.current_arrays())

    def current_arrays(self) -> ArrayRecord:
        """Read the model that is served now."""
        vector = self.ledger.model_before(self.ledger.last_round + 1)
        return self.arrays.to_record(Model(self.ledger.layout, torch.from_numpy(vector)))

    def drop_metrics_after(self, number: int) -> None:
        """Drop the metrics of rounds after this one: a rollback has undone them."""
        result = self.result
        for metrics in (
            result.train_metrics_clientapp,
            result.evaluate_metrics_clientapp,
            result.evaluate_metrics_serverapp,
        ):
            for undone in [known for known in metrics if known > number]:
                del metrics[undone]

    def _is_evaluated(self, number: int) -> bool:
        return self._evaluated.get(number) == self._attempt(number)

    def _attempt(self, number: int) -> int:
        """Which attempt at a round stands, 0 where none does."""
        return self.ledger.summary(number).attempt if 0 < number <= self.ledger.last_round else 0

    def _ask_evaluate_fn(self, number: int, arrays: ArrayRecord) -> Evaluation | None:
        self._evaluated[number] = self._attempt(number)
        metrics = None if self.evaluate_fn is None else self.evaluate_fn(number, arrays)
        if metrics is None:
            return None
        self.result.evaluate_metrics_serverapp[number] = metrics
        # Flower also takes lists of numbers, of which a round keeps none
        measured = {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}
        finite = {name: value for name, value in measured.items() if math.isfinite(value)}
        return Evaluation(**finite) if finite else None

    def refuse_run(self, layout: Layout, clients: Sequence[str]) -> None:
        """See `ChecksRuns`. Whether a client is here is seen when it is asked."""
        del clients
        if layout != self.arrays.layout:
            raise CannotRetrain("the run's models are not those of the app: other names or shapes of arrays")

    def close(self) -> None:
        """See `Engine`: the grid is Flower's to close."""


def _listed(reasons: dict[str, str]) -> str:
    """Clients with the reason why their reply does not count, which may be in their own words."""
    shown = escaped("; ".join(f"{client}: {reason}" for client, reason in sorted(reasons.items())[:_MOST_NAMED]))
    return shown if len(reasons) <= _MOST_NAMED else f"{shown}; and {len(reasons) - _MOST_NAMED} more"
