"""The engine whose clients are Flower nodes: a round's messages go out through the grid, its updates come back.

To the round it is an engine like any other; only fewer clients may answer than were asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from disavow.domain import Evaluation, Layout, escaped
from disavow.errors import CannotRetrain, RoundRefused
from disavow.flower.arrays import Frame, Malformed, Vector
from disavow.flower.exchange import exchange
from disavow.flower.log import inform, warn
from disavow.flower.protocol import RECORD
from disavow.flower.roster import Roster
from disavow.flower.screening import Returned, is_by_itself, left_out, read, updates_of
from disavow.ledger import Ledger
from disavow.rounds.local_training import fewest
from disavow.rounds.vectors import Model, Updates


@dataclass(frozen=True, eq=False)
class Question:
    """What the clients of a round are asked: to train from this model, for so many epochs if that is given."""

    number: int
    arrays: ArrayRecord
    epochs: int | None = None


Compose = Callable[[Question, Sequence[str]], Iterable[Message]]
"""The train messages that put a question to these clients."""

Score = Callable[[int, ArrayRecord], MetricRecord | None]
"""Flower's `evaluate_fn`: how well the model of a round does on the server's data."""

OnReplies = Callable[[int, list[RecordDict]], None]
"""Told what the clients of a round returned, once it is sure that these take part."""


@dataclass(frozen=True, eq=False)
class Rules:
    """When a reply counts.

    `timeout`: seconds that a round waits for replies. `repeats`: how often those who are missing are asked again
    where too few answered. `too_large`: an update so many times longer than the round's median, or
    from so many times more samples, is refused; see `screening.left_out` for where that is not asked.
    """

    timeout: float
    repeats: int
    too_large: float
    weighted_by_key: str


@dataclass(eq=False)
class FlowerEngine:
    """See `Engine`."""

    grid: Grid
    ledger: Ledger
    frame: Frame
    roster: Roster
    rules: Rules
    compose: Compose
    on_replies: OnReplies = lambda number, replies: None
    score: Score | None = None
    on_score: Callable[[int, MetricRecord], None] = lambda number, metrics: None
    _scored: dict[int, int] = field(default_factory=dict)
    """The attempt of each round at which `score` was asked about its model; it is asked once about each."""
    aware: set[str] = field(default_factory=set)
    """Clients whose app takes evidence: those with `evidence_mod`."""

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        """The updates of those clients who answered; `RoundRefused` where they are fewer than k after all.

        `epochs` is told to the clients; whether they keep to it is theirs to say.
        """
        arrays, k = self.frame.record(model), self._fewest(len(clients))
        policy = self.ledger.policy
        broadcast = self.frame.vector(arrays)  # what the clients got: in float16 it is not quite the model
        good: dict[str, Returned] = {}
        bad: dict[str, str] = {}
        for attempt in range(1 + self.rules.repeats):
            missing = [client for client in clients if client not in good]
            if attempt:
                warn(f"round {round_number}: {len(good)} good replies, k = {k}; the others are asked again")
                self.roster.look()
            answered, bad = self._ask(Question(round_number, arrays, epochs), missing, broadcast)
            good |= answered
            for client, reason in left_out(good, policy, self.rules.too_large, broadcast).items():
                del good[client]
                bad[client] = reason
            if len(good) >= k or not clients:
                break
        if bad:
            warn(f"round {round_number}: left out {_listed(bad)}")
        if len(good) < k and clients:
            raise RoundRefused(
                f"round {round_number} refused: {len(good)} of {len(clients)} clients returned an update, fewer "
                f"than k = {k} ({_listed(bad)}){RoundRefused.UNCHANGED}"
            )
        inform(f"round {round_number}: {len(good)} of {len(clients)} clients returned an update")
        self.on_replies(round_number, [good[client].content for client in sorted(good)])
        return updates_of({client: good[client] for client in clients if client in good}, model)

    def _fewest(self, asked: int) -> int:
        """How many good replies make a round: k; of fixed clusters, in which fewer may be left, those asked; one
        where no client may decide whether others are asked again.
        """
        policy = self.ledger.policy
        if is_by_itself(policy):
            return fewest(policy)
        return min(policy.k, asked) if policy.clustering == "fixed" else policy.k

    def _ask(
        self, question: Question, clients: Sequence[str], broadcast: Vector
    ) -> tuple[dict[str, Returned], dict[str, str]]:
        """Send the train messages; the good replies, and why the others are none."""
        here = self.roster.members
        bad = {client: "it is not connected" for client in clients if client not in here}
        asked = {here[client]: client for client in clients if client in here}
        messages = list(self.compose(question, list(asked.values())))
        replies = exchange(self.grid, messages, timeout=self.rules.timeout)
        good = {}
        for node, client in asked.items():
            reply = replies.get(node)
            if reply is None:
                bad[client] = f"it did not answer within {self.rules.timeout:g} s"
                continue
            try:
                good[client] = read(reply, self.frame, broadcast, self.rules.weighted_by_key)
            except Malformed as malformed:
                bad[client] = str(malformed)
                continue
            if isinstance(reply.content.get(RECORD), ConfigRecord):
                self.aware.add(client)
        return good, bad

    def evaluate(self, model: Model) -> Evaluation | None:
        """What the app's `evaluate_fn` says of a model; None where there is none, where it names no accuracy, and
        where it was asked before about the round that waits for its evaluation.
        """
        if self.score is None:
            return None
        # of the rounds that wait for their evaluation the newest comes first; without any, it is the newest of all
        waiting = self.ledger.unevaluated()
        number = waiting[-1] if waiting else self.ledger.last_round
        if waiting and self._is_scored(number):
            return None
        return self._ask_score(number, self.frame.record(model))

    def evaluate_standing(self) -> None:
        """Ask about the model that stands, as FedAvg does of the model that it starts from; once, as ever.

        A round that waits for its evaluation is left to `evaluate`, whose answer is written to the ledger.
        """
        number = self.ledger.last_round
        if number not in self.ledger.unevaluated() and not self._is_scored(number):
            vector = torch.from_numpy(self.ledger.model_before(number + 1))
            self._ask_score(number, self.frame.record(Model(self.ledger.layout, vector)))

    def _is_scored(self, number: int) -> bool:
        return self._scored.get(number) == self._attempt(number)

    def _attempt(self, number: int) -> int:
        """Which attempt at a round stands; the initial model is a matter of no attempt."""
        return self.ledger.summary(number).attempt if number else 0

    def _ask_score(self, number: int, arrays: ArrayRecord) -> Evaluation | None:
        self._scored[number] = self._attempt(number)
        metrics = None if self.score is None else self.score(number, arrays)
        if metrics is None:
            return None
        self.on_score(number, metrics)
        accuracy, loss = metrics.get("accuracy"), metrics.get("loss")
        if not isinstance(accuracy, int | float) or not math.isfinite(accuracy):
            return None
        return Evaluation(float(accuracy), float(loss) if isinstance(loss, int | float) else math.nan)

    def refuse_run(self, layout: Layout, clients: Sequence[str]) -> None:
        """See `ChecksRuns`. Whether a client is here is seen when it is asked."""
        del clients
        if layout != self.frame.layout:
            raise CannotRetrain("the run's models are not those of the app: other names or shapes of arrays")

    def close(self) -> None:
        """See `Engine`: the grid is Flower's to close."""


_NAMED = 10
"""How many clients an error names before it only counts."""


def _listed(reasons: dict[str, str]) -> str:
    """Clients with the reason why their reply does not count, which may be in their own words."""
    shown = escaped("; ".join(f"{client}: {reason}" for client, reason in sorted(reasons.items())[:_NAMED]))
    return shown if len(reasons) <= _NAMED else f"{shown}; and {len(reasons) - _NAMED} more"
