"""`KIPFedAvg`: in place of Flower's FedAvg in any ServerApp.

A. K. Varshney and V. Torra, "Efficient Federated Unlearning under Plausible Deniability" (2024).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result

from disavow.config import Settings
from disavow.domain import ErasureRequest
from disavow.erasure.erase import judgement_due
from disavow.erasure.mechanisms import Mechanism
from disavow.erasure.proof_files import check_openings, default_openings
from disavow.errors import BudgetSpent, ConfigError
from disavow.federation import Callbacks, Federation
from disavow.flower.identity import Identity
from disavow.flower.log import inform, warn
from disavow.flower.messages import ClientGrid, Delivery, MessageConfigs
from disavow.flower.opened_requests import OpenedRequests
from disavow.flower.placement import AcceptRequests, NodeRequests
from disavow.flower.removal_words import RemovalWords
from disavow.flower.replies import ArrayFormat
from disavow.flower.roster import Roster
from disavow.flower.settings import absolute_path, check_node_requests, check_reply_rules, settings_from
from disavow.flower.training import EvaluateFn, NodeTraining
from disavow.ledger.keys import default_folder
from disavow.proof.keys import AskPassphrase, nobody_to_ask
from disavow.rounds.randomness import derive

MetricsAggregation = Callable[[list[RecordDict], str], MetricRecord]


class KIPFedAvg(FedAvg):
    """Perturbed k-anonymous integrally private federated averaging, with a ledger, on Flower nodes.

    Takes what `FedAvg` takes, with the same meaning, and beyond it what is listed here.

    Args:
        ledger: The run directory, an absolute path (`~` will do); made on the first start, continued ever after.
        k: As in config.toml (docs/configuration.md), like the next five.
        x: The survivors that a cluster must keep.
        representatives: How many are drawn of each cluster.
        noise: Which noise perturbs the representatives.
        sigma: Its scale, with `noise="paper"`.
        seed: The seed of the run.
        settings: Any other table of config.toml, such as
            `{"noise": {"mode": "calibrated", "clip": 1.0, "tau": 0.1}, "draws": "seeded"}`.
        local_epochs: What clients train in a round; only for the cost of an erasure, in client-epochs.
        identity: Where stable client ids come from, see `identity.Identity`.
        repeats: How often a round with fewer than k good replies asks again before it is refused.
        too_large: A reply is refused when its update is so many times longer than the round's median, or from so
            many times more samples; not with calibrated noise and fixed clusters, see docs/flower.md.
        keys: The folder of the operator's keys, as for the `disavow` command.
        openings: The folder for leavers' openings.
        ask: Asks for the passphrase of the signing key.
        mechanism: How rounds are rebuilt after a rollback: `Retrain()` or `RetrainFromScratch()`; the same as
            naming it in `settings`, and checked and kept with them.
        accept_node_requests: Which requests that nodes make themselves are placed: "signed" with the key that the
            client is known by, "unsigned" ones too, or "never" any; see docs/flower.md.

    Raises:
        ConfigError: An argument cannot be used.

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
        accept_node_requests: AcceptRequests = "signed",
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
        check_reply_rules(identity, repeats, too_large)
        check_node_requests(accept_node_requests)
        arguments = {
            "seed": seed,
            "training": {"fraction": fraction_train, "epochs": local_epochs},
            "clustering": {"k": k, "representatives": representatives},
            "deniability": {"x": x},
            "noise": {"mode": noise, "sigma": sigma},
        }
        self.settings: Settings = settings_from(arguments, settings, mechanism)
        self.directory = absolute_path("ledger", ledger)
        self.identity = identity
        self.repeats, self.too_large = repeats, too_large
        self.accept_node_requests = accept_node_requests
        self.keys = default_folder() if keys is None else absolute_path("keys", keys)
        self.openings = (
            default_openings(self.directory) if openings is None else absolute_path("openings", openings)
        )
        self._ask = ask
        self._training: NodeTraining | None = None

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
    ) -> Result:
        """Train until `num_rounds` rounds stand, wherever the ledger stands now.

        Between two rounds, requests that `disavow erase` has placed are answered; after a rollback the round number
        goes back.

        Args:
            grid: Flower's grid.
            initial_arrays: The model that a new run starts from.
            num_rounds: How many rounds are to stand.
            timeout: Seconds that a round waits for replies.
            train_config: Sent with every train message.
            evaluate_config: Sent with every evaluate message.
            evaluate_fn: Evaluates a model on the server's data.

        Returns:
            The model that is served, and the metrics of the rounds that stand.

        Raises:
            ConfigError: The run in the ledger has other settings or another model.
            RoundRefused: Too few clients returned an update; the run stays as it was.

        """
        check_openings(self.openings, self.directory)
        arrays = ArrayFormat.of(initial_arrays)
        with Federation.on_nodes(
            self.directory,
            self.settings.model_copy(update={"rounds": num_rounds}),
            arrays.to_model(initial_arrays),
            keys=self.keys,
            ask=self._ask,
            openings=self.openings,
        ) as federation:
            for note in federation.notes:
                warn(note)
            options = federation.options
            roster = Roster(grid, federation.ledger, identity=self.identity)
            requests = NodeRequests(federation, self.openings, self.accept_node_requests)
            opened = OpenedRequests(federation.ledger, self.openings)
            words = RemovalWords(federation, opened, self.openings)
            configs = MessageConfigs(federation.ledger, requests, words, seed=self.settings.seed)
            training = NodeTraining(
                strategy=self,
                grid=grid,
                ledger=federation.ledger,
                arrays=arrays,
                roster=roster,
                configs=configs,
                requests=requests,
                words=words,
                timeout=timeout,
                train_config=ConfigRecord() if train_config is None else train_config,
                evaluate_fn=evaluate_fn,
            )
            federation.own_engine = training
            federation.own_options = replace(
                options,
                at_least=max(self.settings.clustering.k, self.min_train_nodes),
                reachable=lambda: roster.wait_for_clients(
                    self.min_available_nodes, self.min_train_nodes, timeout=timeout
                ),
            )
            delivery = Delivery(grid, federation.ledger, roster, configs, requests, opened)
            self._training = training
            try:
                self._train(federation, training, delivery, num_rounds, evaluate_config or ConfigRecord())
            finally:
                self._training = None
            return training.result

    def _train(
        self,
        federation: Federation,
        training: NodeTraining,
        delivery: Delivery,
        num_rounds: int,
        evaluate_config: ConfigRecord,
    ) -> None:
        """Run round after round; between them answer requests, deliver proofs and evaluate."""
        ledger = federation.ledger
        self.summary()
        inform(f"{ledger.last_round} of {num_rounds} rounds stand in {self.directory}")
        training.evaluate_current()
        evaluated = ledger.served_model_digest()
        while True:
            self._answer_requests(federation, training, delivery)
            training.roster.refresh()
            delivery.send_proofs()
            training.drop_metrics_after(ledger.last_round)
            if (digest := ledger.served_model_digest()) != evaluated:
                evaluated = digest
                training.evaluate_current()  # after a rollback it may be one that no evaluation was about
                self._evaluate_on_nodes(training, evaluate_config)
            if ledger.last_round < num_rounds and _train_round(federation):
                continue
            delivery.send_receipts(training.evidence_clients)
            if not training.requests.place():  # the last replies may have brought some
                break
        training.result.arrays = training.current_arrays()

    def _answer_requests(self, federation: Federation, training: NodeTraining, delivery: Delivery) -> None:
        """Answer the requests that wait, those of nodes too, and complete what was interrupted."""
        callbacks = Callbacks(
            on_verdict=lambda verdict, requests: inform(f"{requests} erasure requests: {verdict}"),
            on_answer=_log_answer,
            on_opening=delivery.opened.add,
        )
        training.requests.place()
        while True:
            if judgement_due(federation.ledger, federation.options, federation.mechanism):
                training.roster.refresh()
                delivery.send_receipts(training.evidence_clients, before_erasure=True)
            federation.answer(callbacks)
            if not training.requests.place():  # rounds that were retrained may have brought more
                break

    def _evaluate_on_nodes(self, training: NodeTraining, config: ConfigRecord) -> None:
        """Run Flower's federated evaluation of the model that stands."""
        number = training.ledger.last_round
        if number == 0:
            return
        grid = ClientGrid(training.grid, training.roster.members)
        messages = self.configure_evaluate(number, training.current_arrays(), config, grid)
        replies = training.send(messages, grid, number)
        try:
            metrics = self.aggregate_evaluate(number, list(replies.values()))
        except Exception as error:
            warn(f"round {number}: the evaluations of the clients cannot be aggregated ({error})")
            return
        if metrics is not None:
            training.result.evaluate_metrics_clientapp[number] = metrics

    # -- extension points: `start` calls them as FedAvg does, also in rounds that are retrained --------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Make the train messages of a round.

        Args:
            server_round: The number of the round.
            arrays: The model to train from.
            config: What the app wants to send; the client's id, seeds and receipt are added to it later.
            grid: Shows the nodes of those clients that are to be asked, and no other.

        Returns:
            A message to each node of `grid`.

        Raises:
            ConfigError: It is Flower's own grid: called by another strategy, and not by `start`.

        """
        nodes = _clients_of(grid)
        return self._messages(server_round, arrays, config, list(nodes), MessageType.TRAIN)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Tell what came of a round, once it is recorded.

        The model is made before, from clusters and with noise, and is what the ledger holds: an override may look
        at it, but not return another.

        Args:
            server_round: The number of the round.
            replies: The replies that entered it.

        Returns:
            The model after the round, and the clients' metrics by `train_metrics_aggr_fn`.

        Raises:
            ConfigError: Called by another strategy, which would average by itself, and not by `start`.

        """
        if self._training is None:
            raise ConfigError(
                "KIPFedAvg closes its rounds in start(); it cannot be used inside another strategy, which would "
                "average by itself: privacy noise is set by `noise` and `settings`"
            )
        contents = [reply.content for reply in replies]
        metrics = self.train_metrics_aggr_fn(contents, self.weighted_by_key) if contents else None
        return self._training.current_arrays(), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Make the evaluate messages of a round, to a part of the clients that is drawn by a hash.

        Args:
            server_round: The number of the round.
            arrays: The model that stands.
            config: What the app wants to send.
            grid: Shows the nodes of the clients that are here; never one that has left.

        Returns:
            A message to each node that is drawn.

        """
        if self.fraction_evaluate == 0.0:
            return []
        clients, seed = _clients_of(grid), self.settings.seed
        drawn = sorted(clients, key=lambda node: derive("evaluation", seed, server_round, clients[node]))
        count = max(int(len(clients) * self.fraction_evaluate), self.min_evaluate_nodes)
        return self._messages(server_round, arrays, config, drawn[:count], MessageType.EVALUATE)

    def _messages(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, nodes: list[int], kind: str
    ) -> Iterable[Message]:
        config["server-round"] = server_round
        record = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
        messages: Iterable[Message] = self._construct_messages(record, nodes, kind)
        return messages

    def summary(self) -> None:
        """Log what the strategy does, as FedAvg does, and what it promises."""
        super().summary()
        policy = self.settings.policy
        inform(
            f"k = {policy.k}, x = {policy.x}, {policy.representatives} drawn of each cluster, "
            f"noise {policy.noise}; ledger {self.directory.resolve()}"
        )


def _clients_of(grid: Grid) -> Mapping[int, str]:
    """The clients that a round may ask, by node."""
    if not isinstance(grid, ClientGrid):
        raise ConfigError("KIPFedAvg sends messages only while start() runs, to the clients of the round")
    return grid.clients


def _train_round(federation: Federation) -> bool:
    """Train one more round; False where the privacy budget has no room for it."""
    try:
        federation.train_round()
    except BudgetSpent as spent:
        warn(f"{spent}; the model that stands is served, and erasures are still honoured")
        return False
    return True


def _log_answer(request: ErasureRequest) -> None:
    cost = request.cost
    spent = f"; {cost.rounds} rounds retrained" if cost is not None and cost.rounds else ""
    remark = f"; {request.remark}" if request.remark else ""
    inform(f"request {request.number} is answered: {request.verdict}{spent}{remark}")
