"""All settings of a run, and what must hold between them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from disavow.config.declarations import (
    ClusteringSettings,
    Count,
    DataSettings,
    DeniabilitySettings,
    EngineSettings,
    LedgerSettings,
    MechanismSettings,
    ModelSettings,
    NoiseSettings,
    PrivacySettings,
    RequestSettings,
    Section,
    TaskSettings,
    TrackingSettings,
    TrainingSettings,
    WitnessSettings,
)
from disavow.domain import Policy
from disavow.domain.strategies import CLUSTERINGS, MECHANISMS, NOISES

PROJECTION_LIMIT = 2000
"""Above this many participants, a random projection decides who is grouped with whom."""


CHANGEABLE = (
    "rounds",
    "requests",
    "deniability.purge",
    "engine",
    "data.dir",
    "task.path",
    "ledger.retention",
    "tracking",
    "witness",
)
"""Settings that may be edited in a run's config.toml; the others are its data, its model, its training and its
promises. When leavers are purged is between the operator and them: no answer depends on it, no round is trained
otherwise, and a second proof says what was done. So it may begin with a run that is there.
"""


UNKEPT = ("ledger.database", "ledger.models")
"""Settings that count when a run is started, and are not kept in its config.toml."""


class Settings(Section):
    """All settings of a run."""

    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(
        1, description="every training draw (data split, initial model, batches) derives from it"
    )
    rounds: Count = Field(20, description="rounds to train")
    draws: Literal["fresh", "seeded"] = Field(
        "fresh",
        description="secret draws (representatives, noise): fresh from the operating system and never kept; "
        "seeded: repeatable, so its privacy claims are void and the seed tells who takes part in which round",
    )
    task: TaskSettings = TaskSettings()
    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    training: TrainingSettings = TrainingSettings()
    clustering: ClusteringSettings = ClusteringSettings()
    deniability: DeniabilitySettings = DeniabilitySettings()
    noise: NoiseSettings = NoiseSettings()
    requests: RequestSettings = RequestSettings()
    mechanism: MechanismSettings = MechanismSettings()
    engine: EngineSettings = EngineSettings()
    privacy: PrivacySettings = PrivacySettings()
    ledger: LedgerSettings = LedgerSettings()
    tracking: TrackingSettings = TrackingSettings()
    witness: WitnessSettings = WitnessSettings()

    @property
    def participants(self) -> int:
        """How many clients take part in a round while nobody has left."""
        return participants_of(self.task.clients or self.data.clients, self.training.fraction)

    @property
    def policy(self) -> Policy:
        """The promises these settings make."""
        return Policy(
            k=self.clustering.k,
            x=self.deniability.x,
            delta=self.deniability.delta if isinstance(self.deniability.delta, float) else None,
            relative_delta=self.deniability.relative_delta,
            odds=self.deniability.odds,
            clustering=self.clustering.method,
            sticky=self.clustering.sticky and CLUSTERINGS[self.clustering.method].sticky,
            metric=self.clustering.metric,
            noise=self.noise.mode,
            distribution=self.noise.distribution,
            sigma=self.noise.sigma,
            clip=self.noise.clip,
            tau=self.noise.tau,
            draws=self.draws,
            representatives=self.clustering.representatives,
            statistics=self.noise.statistics if NOISES[self.noise.mode].may_average else "drawn",
            mechanism=self.mechanism.name,
        )

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        k, participants = self.clustering.k, self.participants
        # who takes part on nodes, or in a task that is not loaded yet, nobody knows beforehand
        unknown = self.engine.name == "flower" or (self.task.factory is not None and self.task.clients is None)
        if k > participants and not unknown:
            source = "data.clients" if self.task.clients is None else "task.clients"
            raise ValueError(
                f"clustering.k is {k}; allowed: 1 to {participants}, the participants of a round "
                f"({source} {self.task.clients or self.data.clients}, training.fraction "
                f"{self.training.fraction:g})"
            )
        drawn, x = self.clustering.representatives, self.deniability.x
        if drawn >= k and drawn > 1:
            raise ValueError(
                f"clustering.representatives is {drawn}; allowed: fewer than clustering.k, which is {k}"
            )
        if x + drawn - 1 > k:
            raise ValueError(
                f"deniability.x is {x}; allowed: 1 to {k - drawn + 1} (x + clustering.representatives - 1 is "
                f"at most clustering.k, which is {k})"
            )
        if self.clustering.metric == "published" and participants > PROJECTION_LIMIT:
            raise ValueError(
                f'clustering.metric is "published" with {participants} participants; allowed: up to '
                f"{PROJECTION_LIMIT} (it cannot be projected), or l2, cosine"
            )
        elsewhere = self.engine.device == "cuda" or self.engine.precision != "float32"
        if self.engine.name == "sequential" and elsewhere:
            raise ValueError('engine.name is "sequential", which runs on the CPU in float32; allowed: "vectorised"')
        if self.ledger.retention != "all" and not MECHANISMS[self.mechanism.name].exact:
            raise ValueError(
                f'ledger.retention is {self.ledger.retention} with mechanism.name "{self.mechanism.name}"; '
                'allowed: "all" (going back further than the broken round, it would only rebuild what was undone)'
            )
        if self.deniability.purge != "never" and not MECHANISMS[self.mechanism.name].exact:
            raise ValueError(
                f'deniability.purge is "{self.deniability.purge}" with mechanism.name "{self.mechanism.name}"; '
                f"allowed: {_quoted(other for other in MECHANISMS if MECHANISMS[other].exact)} (what is not "
                "retrained exactly has traces of the leavers)"
            )
        self._check_noise()
        self._check_witnesses()
        return self

    def _check_witnesses(self) -> None:
        """Each witness is named once, and no more are needed than there are."""
        servers = self.witness.servers
        keys = {server.key.split("+", 2)[2] for server in servers}  # under two names it is one witness
        if len(keys) < len(servers):
            raise ValueError("witness.servers has one key twice; allowed: each witness once")
        if self.witness.quorum is not None and self.witness.quorum > len(servers):
            raise ValueError(
                f"witness.quorum is {self.witness.quorum}; allowed: 1 to {len(servers)}, the number of witnesses"
            )

    def _check_noise(self) -> None:
        """What the noise needs is set, and it gives what is asked of it: a figure, odds that the log can bound."""
        mode, noise, name = self.noise.mode, NOISES[self.noise.mode], self.mechanism.name
        if self.privacy.epsilon is not None and not noise.accounted:
            raise ValueError(
                f'privacy.epsilon is {self.privacy.epsilon:g} with noise.mode "{mode}"; allowed: noise.mode '
                f"{_quoted(other for other in NOISES if NOISES[other].accounted)}, the only one with a figure that "
                "a budget could be held to"
            )
        if self.deniability.odds is not None and NOISES.added(mode):
            raise ValueError(
                f'deniability.odds is {self.deniability.odds:g} with noise.mode "{mode}"; allowed: none, or a '
                "noise of disavow's own (the log has no τ of a registered one: nobody clustered would be deniable)"
            )
        for key in noise.needs:
            if getattr(self.noise, key) is None:
                raise ValueError(
                    f'noise.{key} is not set; noise.mode "{mode}" needs a number above 0{self._how_to(key)}'
                )
        if noise.accounted and not MECHANISMS[name].exact:
            raise ValueError(
                f'mechanism.name is "{name}" with noise.mode "{mode}"; allowed: '
                f"{_quoted(other for other in MECHANISMS if MECHANISMS[other].exact)} ({name} releases rounds "
                "without noise, which no account covers)"
            )

    def _how_to(self, key: str) -> str:
        """How to find the noise for a budget."""
        if key != "tau" or self.privacy.epsilon is None:
            return ""
        return (
            f": `disavow account --epsilon {self.privacy.epsilon:g} --delta {self.privacy.delta:g} --rounds "
            f"{self.rounds} --clients {self.participants} --k {self.clustering.k} --clip {self.noise.clip:g}` "
            "finds it"
        )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def participants_of(clients: int, fraction: float, at_least: int = 1) -> int:
    """Count who takes part in a round: the fraction, rounded, but so many at least if there are.

    Args:
        clients: How many there are.
        fraction: The share that takes part.
        at_least: How many do, if there are so many.

    """
    return max(1, round(clients * fraction), min(clients, at_least))
