"""What a method of federated unlearning is: from a trained federation and a leaver to another model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, get_args

from disavow.domain.strategies import Registry, Strategy
from disavow.errors import ConfigError

if TYPE_CHECKING:  # methods are registered in modules that commands without torch import, too
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from disavow.compare.training import Training
    from disavow.engines.stacked.task_stack import StackedOptimizer
    from disavow.ledger import Ledger
    from disavow.rounds.randomness import Stream
    from disavow.rounds.vectors import Updates

Stored = Literal["nothing", "models", "updates"]
"""What a server must have kept of each round: nothing but the newest model, every model, or all updates as well."""

Scheme = str
"""The name of the way a federation is trained; "run" is the run's own."""


class Federation(Protocol):
    """What a method may ask of the federation. Whatever clients do here is counted as the method's work."""

    @property
    def leaver(self) -> str:
        """The id of the client that leaves, or some of whose records do."""

    @property
    def remaining(self) -> tuple[str, ...]:
        """Who stays, by id and in the run's order; with the leaver, where only some of its records leave."""

    @property
    def training(self) -> Training:
        """The training that the method starts from: its scheme's, with the leaver."""

    @property
    def epochs(self) -> int:
        """Local epochs of a round."""

    @property
    def seed(self) -> int:
        """What the training's batches and draws of clients derive from."""

    def train(
        self, vector: Tensor, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        """Let clients train from a model as in a round of the run, without what leaves; see `Engine.train`.

        Args:
            vector: The model that is broadcast.
            clients: Some of those who remain.
            round_number: Seeds the batches.
            epochs: Local epochs; None: those of the settings.

        """

    def train_with(
        self, vector: Tensor, clients: Sequence[str], round_number: int, optimizer: StackedOptimizer
    ) -> Tensor:
        """Let clients train from a model by another optimizer than the task's, on the batches that `batches` gives.

        Args:
            vector: The model that is broadcast.
            clients: Some of those who remain.
            round_number: Seeds the batches.
            optimizer: Makes what steps the parameters of several clients at once.

        Returns:
            The update of each, one row a client, on the CPU.

        """

    def train_leaver(self, vector: Tensor, round_number: int, *, epochs: int | None = None) -> Updates:
        """Let the leaver train on all that it holds; only for methods that declare `leaver_helps`."""

    def run_rounds(self, vector: Tensor, first: int, last: int) -> Iterator[Tensor]:
        """Run whole rounds of the run's own scheme with those who remain: choose, train, cluster, aggregate.

        Args:
            vector: The model to start from.
            first: The number of the first round.
            last: Of the last one.

        Yields:
            The model after each round.

        """

    def network(self, vector: Tensor) -> nn.Module:
        """Build the network with these numbers, in training mode, on the device that trains."""

    def vector_of(self, network: nn.Module) -> Tensor:
        """Read the numbers of a network that `network` gave, on the CPU."""

    def loss(self, network: nn.Module, batch: Any) -> Tensor:
        """Compute the task's mean loss of a batch."""

    def log_likelihoods(self, network: nn.Module, batch: Any) -> Tensor:
        """Compute log p(target | input) of each record; only for methods that declare `needs_likelihood`."""

    def optimizer(self, network: nn.Module, round_number: int) -> Optimizer:
        """Build the optimizer that a client of the task begins a round with."""

    def batches(self, client: str, round_number: int, *, epochs: int = 1, gradients: bool = False) -> Iterator[Any]:
        """Give a client's batches as a round would, on the device; counted as that many local epochs of its.

        Args:
            client: One of those who remain; or the leaver, for methods that declare `leaver_helps`: what leaves.
            round_number: Seeds their order.
            epochs: How often each record comes.
            gradients: Whether the client gets a model and sends a gradient for each batch, rather than once in all.

        """

    def public_batches(self, seed: int, *, epochs: int = 1) -> Iterator[Any]:
        """Give batches of held-out inputs, with zeros for targets; none where the task has no test data."""

    def samples_of(self, client: str) -> int:
        """Count the records that a client who remains trains on, or that leave with the leaver."""

    def copied_run(self) -> AbstractContextManager[Ledger]:
        """Open a copy of the training's ledger, for methods that are the product's own; deleted afterwards."""

    def stream(self, purpose: str) -> Stream:
        """Give seeded random numbers of the method's own."""

    def tell(self, done: int, total: int) -> None:
        """Report progress in rounds, or in steps of about that size."""


@dataclass(frozen=True, eq=False)
class Forgotten:
    """What a method came to.

    Attributes:
        model: A float32 vector on the CPU.
        remark: What a reader of the table should know of this very case, such as "deniable: the model stays"; or
            "".

    """

    model: Tensor
    remark: str = ""


class Method(Strategy, ABC):
    """One method of federated unlearning. Hyperparameters are fields with the defaults of its paper.

    Attributes:
        paper: Who wrote it, title, venue and year.
        scheme: How the federation is trained that it starts from.
        stores: What the server must keep while it trains.
        leaver_helps: Whether the client that leaves must compute something.
        exact: Whether the model is one that training without the leaver would give, in distribution or bit for bit.
        claim: What it formally claims, in one sentence.
        records: Whether it can forget some records of a client that stays.
        needs_public_data: Whether it needs unlabelled data.
        needs_likelihood: Whether it needs the likelihood of single records; see `Task.log_likelihoods`.

    """

    paper: ClassVar[str]
    scheme: ClassVar[Scheme] = "run"
    stores: ClassVar[Stored] = "nothing"
    leaver_helps: ClassVar[bool] = False
    exact: ClassVar[bool] = False
    claim: ClassVar[str]
    records: ClassVar[bool] = True
    needs_public_data: ClassVar[bool] = False
    needs_likelihood: ClassVar[bool] = False

    @classmethod
    def check(cls) -> None:
        """Refuse a method that does not say where it comes from, what it claims, or what it stores.

        Raises:
            ConfigError: Its declaration cannot be.

        """
        super().check()
        for name in ("paper", "claim"):
            if not isinstance(getattr(cls, name, None), str) or not getattr(cls, name):
                raise ConfigError(f"method {cls.name!r} has no {name}; allowed: a text")
        if cls.stores not in get_args(Stored):
            raise ConfigError(f"method {cls.name!r} has stores = {cls.stores!r}; allowed: {get_args(Stored)}")

    @abstractmethod
    def forget(self, federation: Federation) -> Forgotten:
        """Make a model that is to have forgotten the leaver.

        Args:
            federation: The trained federation, and who leaves it.

        Returns:
            The model.

        """

    def bytes_stored(self, rounds: int, participants: int, model_bytes: int) -> int:
        """Count what a server keeps for it while it trains, beyond the newest model.

        Args:
            rounds: Rounds of a training.
            participants: Who take part in a round, on average and rounded.
            model_bytes: What a model takes, and an update.

        """
        vectors = {"nothing": 0, "models": rounds, "updates": rounds + rounds * participants}[self.stores]
        return vectors * model_bytes


METHODS = Registry[Method](
    "method",
    {
        "retrain-from-scratch": ("disavow.compare.methods.retrain:RetrainFromScratch", ""),
        "retrain": ("disavow.compare.methods.retrain:Retrain", ""),
        "ours": ("disavow.compare.methods.ours:Ours", ""),
        "ours-purged": ("disavow.compare.methods.ours:OursPurged", ""),
        "ours-s3": ("disavow.compare.methods.ours:OursThree", ""),
        "ours-s3-purged": ("disavow.compare.methods.ours:OursThreePurged", ""),
        "fats": ("disavow.compare.methods.fats:Fats", ""),
        "shards": ("disavow.compare.methods.shards:Shards", ""),
        "sifu": ("disavow.compare.methods.sifu:Sifu", ""),
        "rapid-retraining": ("disavow.compare.methods.rapid_retraining:RapidRetraining", ""),
        "federaser": ("disavow.compare.methods.federaser:FedEraser", ""),
        "fedrecover": ("disavow.compare.methods.fedrecover:FedRecover", ""),
        "fedaccum": ("disavow.compare.methods.fedaccum:FedAccum", ""),
        "distillation": ("disavow.compare.methods.distillation:Distillation", ""),
        "gradient-ascent": ("disavow.compare.methods.gradient_ascent:GradientAscent", ""),
        "gradient-difference": ("disavow.compare.methods.gradient_difference:GradientDifference", ""),
        "npo": ("disavow.compare.methods.npo:NegativePreference", ""),
        "not": ("disavow.compare.methods.negation:Negation", ""),
        "fine-tune": ("disavow.compare.methods.fine_tune:FineTune", ""),
    },
)
"""All methods, in the order of tables."""

Method.registry = METHODS

OnProgress = Callable[[int, int], None]
