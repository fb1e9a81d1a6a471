"""`KIPFedAvg`: in place of Flower's FedAvg in any ServerApp.

A. K. Varshney and V. Torra, "Efficient Federated Unlearning under Plausible Deniability" (2024).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result

from disavow.config import Settings
from disavow.domain.strategies import MECHANISMS
from disavow.erasure.mechanisms import Mechanism
from disavow.erasure.mechanisms import build as build_mechanism
from disavow.erasure.prove import check_openings, default_openings
from disavow.errors import BudgetSpent, ConfigError
from disavow.flower.arguments import absolute, check_rules
from disavow.flower.arrays import frame_of, model_from
from disavow.flower.engine import FlowerEngine, Question, Rules, Score
from disavow.flower.exchange import exchange
from disavow.flower.identity import Identity
from disavow.flower.message_config import MessageConfigs
from disavow.flower.names import EPOCHS
from disavow.flower.reporting import inform, warn
from disavow.flower.roster import Roster
from disavow.flower.run import open_run, settings_from
from disavow.flower.session import Session
from disavow.ledger.keys import default_folder, tombstone_key
from disavow.proof.keys import AskPassphrase, load_signer, nobody_to_ask
from disavow.rounds.options import RoundOptions
from disavow.rounds.participation import participation_of
from disavow.runs import round_options

MetricsAggregation = Callable[[list[RecordDict], str], MetricRecord]


class KIPFedAvg(FedAvg):
    """Perturbed k-anonymous integrally private federated averaging, with a ledger, on Flower nodes.

    Takes what `FedAvg` takes, with the same meaning, and beyond it:

    ledger: the run directory, an absolute path (`~` will do); made on the first start, continued ever after.
    k, x, representatives, noise, sigma, seed: as in config.toml (docs/configuration.md). `settings` takes any other
        of its tables, such as `{"noise": {"mode": "calibrated", "clip": 1.0, "tau": 0.1}, "draws": "seeded"}`.
    local_epochs: what clients train in a round; only for the cost of an erasure, in client-epochs.
    identity: where stable client ids come from, see `identity.Identity`.
    repeats: how often a round with fewer than k good replies asks again before it is refused.
    too_large: a reply is refused when its update is so many times longer than the round's median, or from so many
        times more samples; not with calibrated noise and fixed clusters, see docs/flower.md.
    keys, openings: folders, as for the `disavow` command; `ask` asks for the passphrase of the signing key.
    mechanism: how rounds are rebuilt after a rollback: `Retrain()` or `RetrainFromScratch()`; the same as naming it
        in `settings`, and checked and kept with them.
    """

    def __init__(
        self,
        fraction_train: float = 1.0,
        fraction_evaluate: float = 1.0,
        min_train_nodes: int = 2,
        min_evaluate_nodes: int = 2,
        min_available_nodes: int = 2,
        weighted_by_key: str = "num-examples",
        arrayrecord_key: str = "arrays",
        configrecord_key: str = "config",
        train_metrics_aggr_fn: MetricsAggregation | None = None,
        evaluate_metrics_aggr_fn: MetricsAggregation | None = None,
        *,
        ledger: str | Path,
        k: int = 4,
        x: int = 2,
        representatives: int = 1,
        noise: str = "paper",
        sigma: float = 0.02,
        seed: int = 1,
        settings: Mapping[str, Any] | None = None,
        local_epochs: int = 1,
        identity: Identity = "auto",
        repeats: int = 2,
        too_large: float = 100.0,
        keys: str | Path | None = None,
        openings: str | Path | None = None,
        ask: AskPassphrase = nobody_to_ask,
        mechanism: Mechanism | None = None,
    ) -> None:
        super().__init__(
            fraction_train=fraction_train,
            fraction_evaluate=fraction_evaluate,
            min_train_nodes=min_train_nodes,
            min_evaluate_nodes=min_evaluate_nodes,
            min_available_nodes=min_available_nodes,
            weighted_by_key=weighted_by_key,
            arrayrecord_key=arrayrecord_key,
            configrecord_key=configrecord_key,
            train_metrics_aggr_fn=train_metrics_aggr_fn,
            evaluate_metrics_aggr_fn=evaluate_metrics_aggr_fn,
        )
        check_rules(identity, repeats, too_large)
        told = {
            "seed": seed,
            "training": {"fraction": fraction_train, "epochs": local_epochs},
            "clustering": {"k": k, "representatives": representatives},
            "deniability": {"x": x},
            "noise": {"mode": noise, "sigma": sigma},
        }
        if mechanism is not None:  # not past the settings, which say what goes with it, and which the run keeps
            told["mechanism"] = {"name": getattr(mechanism, "name", None)}
        self.settings: Settings = settings_from(told, settings)
        self.mechanism: Mechanism = build_mechanism(self.settings.mechanism)
        if self.mechanism.needs_every_survivor:
            others = ", ".join(f'"{name}"' for name, each in MECHANISMS.items() if not each.needs_every_survivor)
            raise ConfigError(
                f'mechanism.name is "{self.mechanism.name}", which needs an answer of every survivor in every '
                f"round; allowed on Flower nodes, of which some may be away: {others}"
            )
        if mechanism is not None and (type(mechanism), mechanism) != (type(self.mechanism), self.mechanism):
            raise ConfigError(
                f"mechanism is {mechanism!r}, where the settings say {self.settings.mechanism.name!r}; allowed: "
                "one that settings can name, and that these do not contradict (`disavow erase` rolls back by the "
                "run's settings, and would know nothing of another)"
            )
        self.directory = absolute("ledger", ledger)
        self.identity = identity
        self.repeats, self.too_large = repeats, too_large
        self.keys = default_folder() if keys is None else absolute("keys", keys)
        self.openings = default_openings(self.directory) if openings is None else absolute("openings", openings)
        self._ask = ask
        self._session: Session | None = None
        self._asked: Sequence[str] = ()

    # -- what Flower calls -----------------------------------------------------------------------------------

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Score | None = None,
    ) -> Result:
        """Train until `num_rounds` rounds stand, wherever the ledger stands now; what came of it.

        Between two rounds, requests that `disavow erase` has placed are answered; after a rollback the round number
        goes back. A round waits `timeout` seconds for replies. The result holds the model that is served.
        """
        settings = self.settings.model_copy(update={"rounds": num_rounds})
        check_openings(self.openings, self.directory)
        frame = frame_of(initial_arrays)
        signer = load_signer(self.keys, self._ask)
        with open_run(self.directory, settings, model_from(frame, initial_arrays), signer, self.keys) as ledger:
            for note in ledger.restored.notes:
                warn(note)
            participation = participation_of(settings, ledger, self.keys)  # refuses where the next line made a key
            key = tombstone_key(self.keys, run=self.directory)
            roster = Roster(grid, ledger, key=key, identity=self.identity)
            session = Session(
                grid=grid,
                ledger=ledger,
                frame=frame,
                roster=roster,
                configs=MessageConfigs(ledger, seed=settings.seed),
                options=self._options(settings, participation, roster, timeout),
                mechanism=self.mechanism,
                openings=self.openings,
                timeout=timeout,
            )
            self._session = session
            try:
                self._run(session, num_rounds, timeout, train_config, evaluate_config, evaluate_fn)
            finally:
                self._session = None
            return session.result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The train messages of a round, to the clients that take part. Called by `start` alone."""
        config["server-round"] = server_round
        keys = self.arrayrecord_key, self.configrecord_key
        return self._open_session.train_messages(server_round, arrays, config, self._asked, keys)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Refused: a round is closed inside `start`, where it is recorded. A plain average would be neither."""
        raise ConfigError(
            "KIPFedAvg closes its rounds in start(); it cannot be used inside another strategy, which would "
            "average by itself: privacy noise is set by `noise` and `settings`"
        )

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The evaluate messages of a round; never to a client that has left."""
        if self.fraction_evaluate == 0.0:
            return []
        session = self._open_session
        config["server-round"] = server_round
        chosen = session.evaluators(server_round, fraction=self.fraction_evaluate, at_least=self.min_evaluate_nodes)
        keys = self.arrayrecord_key, self.configrecord_key
        return session.evaluate_messages(server_round, arrays, config, chosen, keys)

    def summary(self) -> None:
        """Log what the strategy does, as FedAvg does, and what it promises."""
        super().summary()
        policy = self.settings.policy
        inform(
            f"k = {policy.k}, x = {policy.x}, {policy.representatives} drawn of each cluster, "
            f"noise {policy.noise}; ledger {self.directory.resolve()}"
        )

    # -- a session -------------------------------------------------------------------------------------------

    @property
    def _open_session(self) -> Session:
        if self._session is None:
            raise ConfigError("KIPFedAvg sends messages only while start() runs")
        return self._session

    def _options(
        self, settings: Settings, participation: bytes | None, roster: Roster, timeout: float
    ) -> RoundOptions:
        return replace(
            round_options(settings, participation=participation),
            at_least=max(settings.clustering.k, self.min_train_nodes),
            reachable=lambda: roster.gather(self.min_available_nodes, self.min_train_nodes, timeout=timeout),
        )

    def _run(
        self,
        session: Session,
        num_rounds: int,
        timeout: float,
        train_config: ConfigRecord | None,
        evaluate_config: ConfigRecord | None,
        evaluate_fn: Score | None,
    ) -> None:
        train_config = ConfigRecord() if train_config is None else train_config
        evaluate_config = ConfigRecord() if evaluate_config is None else evaluate_config
        result = session.result
        engine = FlowerEngine(
            grid=session.grid,
            ledger=session.ledger,
            frame=session.frame,
            roster=session.roster,
            rules=Rules(timeout, self.repeats, self.too_large, self.weighted_by_key),
            compose=lambda question, clients: self._compose(question, train_config, clients),
            on_replies=lambda number, replies: self._note_replies(session, number, replies),
            score=evaluate_fn,
            on_score=result.evaluate_metrics_serverapp.__setitem__,
        )
        standing, _ = session.standing()
        self.summary()
        inform(f"{standing} of {num_rounds} rounds stand in {self.directory}")
        engine.evaluate_standing()

        def on_standing(number: int) -> None:
            session.forget_after(number)
            engine.evaluate_standing()  # after a rollback it may be one that no evaluation of this start was about
            self._evaluate_on_clients(session, number, evaluate_config, timeout)

        try:
            session.run(engine, rounds=num_rounds, on_standing=on_standing)
        except BudgetSpent as spent:
            warn(f"{spent}; the model that stands is served, and erasures are still honoured")
        session.forget_after(session.standing()[0])
        result.arrays = session.arrays()

    def _compose(self, question: Question, config: ConfigRecord, clients: Sequence[str]) -> Iterable[Message]:
        self._asked = clients
        told = ConfigRecord(dict(config))
        if question.epochs is not None:
            told[EPOCHS] = question.epochs
        return self.configure_train(question.number, question.arrays, told, self._open_session.grid)

    def _note_replies(self, session: Session, number: int, replies: list[RecordDict]) -> None:
        session.forget_after(number - 1)
        try:
            session.note_train(number, self.train_metrics_aggr_fn(replies, self.weighted_by_key))
        except Exception as error:
            warn(f"round {number}: the metrics of the clients cannot be aggregated ({error})")

    def _evaluate_on_clients(self, session: Session, number: int, config: ConfigRecord, timeout: float) -> None:
        """Flower's federated evaluation of the model that stands."""
        if number == 0:
            return
        messages = list(self.configure_evaluate(number, session.arrays(), config, session.grid))
        replies = exchange(session.grid, messages, timeout=timeout)
        try:
            metrics = self.aggregate_evaluate(number, list(replies.values()))
        except Exception as error:
            warn(f"round {number}: the evaluations of the clients cannot be aggregated ({error})")
            return
        if metrics is not None:
            session.result.evaluate_metrics_clientapp[number] = metrics
