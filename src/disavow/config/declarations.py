"""The sections of the settings: every key in them, its default and its meaning."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from disavow.domain.strategies import CLUSTERINGS, DISTRIBUTIONS, MECHANISMS, NOISES, Registry


class Section(BaseModel):
    """Some settings: frozen, and refused where a key is unknown or a value of another type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


MOST = 1_000_000
"""The largest count of anything in the settings: a typing error is refused."""

SMALLEST, LARGEST = 1e-38, 1e38
"""Of numbers with a fraction: about what float32 can hold, in which models are."""

Positive = Annotated[float, Field(ge=SMALLEST, le=LARGEST)]
NotNegative = Annotated[float, Field(ge=0, le=LARGEST)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1, le=MOST)]
Odds = Annotated[float, Field(gt=1, le=LARGEST)]
RelativeDelta = Annotated[
    str,
    Field(pattern=r"^(\d{1,6}\.\d*[1-9]\d*|\d*[1-9]\d*)x$", max_length=16, description='a multiple such as "0.5x"'),
]
Bytes = Annotated[int, Field(ge=1, le=10**15)]


def _registered(registry: Registry[Any]) -> AfterValidator:
    """Validate the name of a strategy, also of one that is registered later than this."""

    def check(name: str) -> str:
        if name not in registry:
            raise ValueError(f"{name} is not registered")
        return name

    return AfterValidator(check)


ClusteringName = Annotated[str, _registered(CLUSTERINGS), CLUSTERINGS]
NoiseName = Annotated[str, _registered(NOISES), NOISES]
DistributionName = Annotated[str, _registered(DISTRIBUTIONS), DISTRIBUTIONS]
MechanismName = Annotated[str, _registered(MECHANISMS), MECHANISMS]


class TaskSettings(Section):
    """A task of your own, in place of [data] and [model]."""

    factory: str | None = Field(
        None,
        description="module:callable that returns a disavow.Task, such as hospitals:build (docs/tasks.md), or "
        "adapters, for language models (docs/adapters.md); not set: the built-in images of [data] and [model]",
    )
    path: str | None = Field(
        None,
        description="folder in which the module is looked for first; not set: the current one. A run keeps the "
        "full path",
    )
    options: dict[str, Any] = Field({}, description="what the callable is called with")
    clients: Count | None = Field(None, description="how many clients the task has; a run sets it when it starts")

    @property
    def is_used(self) -> bool:
        """Whether a task trains the run, one that settings name or one that was given in Python."""
        return self.factory is not None or self.clients is not None


class DataSettings(Section):
    """What the clients hold."""

    name: Literal["digits", "mnist", "fashion-mnist", "cifar10", "celeba"] = Field(
        "digits",
        description="the data set; digits: 1,797 real handwritten digits of 8x8, embedded; the others need the "
        "extra data and come from data.dir or the Hugging Face hub (docs/data.md)",
    )
    clients: Count = Field(20, description="how many clients the training data is partitioned over")
    partition: Literal["iid", "quantity", "dirichlet", "shards", "pathological"] = Field(
        "iid",
        description="iid; quantity: unequal sizes; dirichlet: unequal sizes and labels; shards: a few pieces of "
        "the samples sorted by label; pathological: a few labels each",
    )
    alpha: Annotated[float, Field(gt=0, le=MOST)] = Field(
        0.5, description="concentration of quantity and dirichlet partitions; smaller is more unequal"
    )
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.2,
        description="share of digits held out to measure accuracy; it plays no part in the other data sets, which "
        "have official test images",
    )
    validation: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0,
        description="share of the training data that the server holds out to measure accuracy, in place of the "
        "test data: for runs by which a choice is made. 0: accuracy is measured on the test data",
    )
    dir: str | None = Field(
        None,
        description="folder with the data sets as parquet files, such as mnist/train.parquet; not set: the folder "
        "that DISAVOW_DATA_DIR names, or else the Hugging Face hub. A run keeps the full path",
    )
    labels_per_client: Count = Field(
        2, description="labels that a client holds of a pathological partition; pieces of a shards partition"
    )
    digest: str | None = Field(
        None,
        description="which files the data is from, as SHA-256; a run sets it when it starts and refuses others "
        "from then on (not for digits)",
    )


class ModelSettings(Section):
    """What they train."""

    name: Literal["convnet", "lenet5", "resnet-mini"] = Field("lenet5", description="the network")


class TrainingSettings(Section):
    """How each client trains locally. A run keeps it: rounds that are trained again must be trained the same."""

    epochs: Count = Field(3, description="local epochs in each round")
    batch_size: Count = Field(8, description="samples in a batch; the last one may be shorter")
    learning_rate: Positive = Field(0.1, description="step size of SGD")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="momentum of SGD")
    weight_decay: NotNegative = Field(0.0, description="weight decay of SGD")
    fraction: Fraction = Field(1.0, description="share of the clients that takes part in each round")


class ClusteringSettings(Section):
    """How the clients of a round are grouped."""

    k: Count = Field(
        4,
        description="every cluster has at least k and fewer than 2k members; 1: everybody is a cluster, which is "
        "plain federated averaging, and nobody is deniable",
    )
    representatives: Count = Field(
        1,
        description="members of each cluster that are drawn; their mean is released, with noise divided by their "
        "number, which keeps the odds of one leaver. 1: the paper's; fewer than k",
    )
    method: ClusteringName = "mdav"
    sticky: bool = Field(
        True, description="keep the last round's clusters, repair only what leavers broke (not with fixed)"
    )
    metric: Literal["l2", "cosine", "published"] = Field(
        "l2",
        description="distance between updates that decides who is grouped; published: for comparison only",
    )


class DeniabilitySettings(Section):
    """When a request can be answered at once."""

    x: Count = Field(
        2,
        description="survivors a cluster must keep for a leaver to be deniable; with s representatives x + s - 1, "
        "which is at most k",
    )
    delta: Positive | RelativeDelta | Literal["adaptive"] = Field(
        "adaptive",
        description="how wide a leaver's cluster may be: a distance; a multiple of the round's median update norm, "
        'such as "0.5x"; or adaptive: each round\'s largest spread, which excludes nobody',
    )
    odds: Odds | None = Field(
        None,
        description="what the leaver's odds over its standing rounds (docs/erasure.md) must not exceed, such as "
        "100; not set: they are not asked for",
    )

    purge: Literal["never", "deadline"] = Field(
        "never",
        description="when leavers who were denied are removed from the model by one exact retraining. never: by "
        "`disavow purge` alone; deadline: by itself, before the first of their requests is due (docs/erasure.md)",
    )

    @property
    def relative_delta(self) -> float | None:
        """Δ as a multiple of the median update norm; None where it is not given so."""
        if isinstance(self.delta, str) and self.delta != "adaptive":
            return float(self.delta.removesuffix("x"))
        return None


class NoiseSettings(Section):
    """How the representatives are perturbed."""

    mode: NoiseName = "paper"
    distribution: DistributionName = Field("gaussian", description="of the noise in mode paper")
    sigma: NotNegative = Field(
        0.02,
        description="standard deviation per coordinate. Mode paper: of each cluster, as a multiple of its spread; "
        "mode sensitivity: of the aggregate, as a multiple of the most that one exchanged representative moves it, "
        "so that odds over T rounds are those of the ratio √T/sigma (`disavow account --odds` finds it)",
    )
    statistics: Literal["mean", "drawn"] = Field(
        "mean",
        description="running statistics of batch norm. mean: over all members of a cluster, with noise divided by "
        "k; drawn: those of the representatives, with the same noise as all else, as in the paper. Mode "
        "calibrated and sensitivity: always as drawn",
    )
    clip: Positive | None = Field(None, description="mode calibrated: largest L2 norm of an update")
    tau: Positive | None = Field(
        None, description="mode calibrated: standard deviation per coordinate, added once to the aggregate"
    )


class PrivacySettings(Section):
    """What the run may spend, and at which delta its account is taken."""

    epsilon: Positive | None = Field(
        None,
        description="privacy budget: training stops before the round that would exceed it; not set: no budget. "
        "Needs noise.mode calibrated; held to the sampled claim with fixed clusters, else to the unconditional one",
    )
    delta: Annotated[float, Field(gt=0, lt=1)] = Field(1e-5, description="the delta of every figure")


class RequestSettings(Section):
    """Who must agree before a request is answered; and a stream of requests, for experiments."""

    approval: Literal["never", "rollback", "always"] = Field(
        "never",
        description="which requests wait until somebody approves them (`disavow request approve`): none; those "
        "that would undo rounds; all (docs/requests.md)",
    )
    rate: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="probability that after a round one client asks to be forgotten; seeded by seed"
    )


class MechanismSettings(Section):
    """How a model is rebuilt after a rollback."""

    name: MechanismName = "retrain"
    calibration: Fraction = Field(
        0.5,
        description="federaser: local epochs of a calibration, as a share of training.epochs, rounded up",
    )
    interval: Count = Field(2, description="federaser: updates are kept every so many rounds, from round 1 on")
    compress: bool = Field(
        True, description="federaser: compress the updates that are kept; false: they take what plain float32 takes"
    )


class EngineSettings(Section):
    """What runs the local training."""

    name: Literal["auto", "sequential", "vectorised", "flower"] = Field(
        "auto",
        description="auto: the fastest here; sequential: one client after the other, the reference; vectorised: "
        "all clients at once on a GPU, all cores on a CPU; flower: on Flower nodes, set by runs that a Flower "
        "server app trains (docs/flower.md)",
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: a GPU where there is one")
    precision: Literal["float32", "tf32", "bf16"] = Field(
        "float32", description="tf32 and bf16 are faster on a GPU, and further from the reference"
    )
    compile: Literal["auto", "never"] = Field(
        "auto", description="auto: with compiled code where it pays and a compiler is at hand"
    )


class TrackingSettings(Section):
    """Where rounds, metrics, verdicts and costs are also written, by every command that trains or answers."""

    tensorboard: str | None = Field(
        None,
        min_length=1,
        description="folder for TensorBoard's event files, one folder in it for each run; not set: none. Needs the "
        "extra tensorboard. A run keeps the full path",
    )
    mlflow: str | None = Field(
        None,
        min_length=1,
        description="MLflow's tracking URI, such as sqlite:///mlflow.db or http://localhost:5000; not set: none. "
        "Needs the extra mlflow. A run keeps the full path of a database",
    )
    experiment: str = Field("disavow", description="MLflow's experiment; made where it is not there")

    @property
    def is_used(self) -> bool:
        """Whether anything is written."""
        return self.tensorboard is not None or self.mlflow is not None


class WitnessServer(Section):
    """A witness that is asked: where it is, and whose cosignatures are expected."""

    url: str = Field(pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$", max_length=500)
    key: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,99}\+[0-9a-f]{8}\+B[A-P][A-Za-z0-9+/]{42}$", max_length=200
    )


class WitnessSettings(Section):
    """Who cosigns each head of the run's log, so that nobody can be shown another history (docs/witness.md)."""

    servers: list[WitnessServer] = Field(
        [],
        max_length=20,
        description="witnesses, each with the url under which it serves add-checkpoint and its verifier key, "
        "name+hash+base64; none: heads are not cosigned",
    )
    quorum: Count | None = Field(
        None, description="how many of them must have cosigned a head before it counts as cosigned; not set: all"
    )
    timeout: Annotated[float, Field(gt=0, le=60)] = Field(
        2.0, description="seconds that a round waits for them at most; training goes on without those that are late"
    )

    @property
    def needed(self) -> int:
        """How many must have cosigned a head."""
        return len(self.servers) if self.quorum is None else self.quorum


class LedgerSettings(Section):
    """What the run keeps, and where."""

    retention: Bytes | Literal["all"] = Field(
        "all",
        description="bytes for the models of standing rounds; what does not fit is thinned, and a rollback then "
        "goes to the nearest earlier model that is kept. However small: the initial model and the newest stay, and "
        "what an unfinished erasure has undone comes on top until it is rebuilt",
    )
    models: str | None = Field(
        None,
        min_length=1,
        description="where a new run keeps its models, such as s3://bucket/prefix; not set: in its directory. "
        "Needs the extra s3; credentials and the endpoint come from AWS's variables or profile (docs/storage.md). "
        "The run notes it in models.url, and no longer here",
    )
    database: str | None = Field(
        None,
        min_length=1,
        description="where a new run keeps its rows: a URL such as postgresql+psycopg://role@host/database (extra "
        "postgres, docs/databases.md), without a password; not set: DISAVOW_DATABASE, or else a file in the run. A "
        "run says it in its database.json instead",
    )
