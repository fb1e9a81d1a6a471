"""What the server promises."""

from __future__ import annotations

from dataclasses import dataclass

from disavow.domain.strategies import CLUSTERINGS, NOISES


@dataclass(frozen=True)
class Policy:
    """What the server promises before the first round. Part of the ledger, never of a single round.

    `representatives` (s) members of each cluster are drawn, and their mean is released. `statistics` says what is
    released of the running statistics of batch norm: those of the drawn (`drawn`), or the mean over all members of
    the cluster (`mean`).

    `delta` is a fixed distance; `relative_delta` a multiple of the round's median update norm; with both None, Δ is
    *adaptive*: each round's largest spread, which excludes nobody. `odds`, where given, is what the leaver's odds
    over its standing rounds must not exceed. `mechanism` is what rebuilds a model after a rollback: it decides what
    the run keeps beside its models.

    Attributes:
        k: The fewest clients of a cluster.
        x: The survivors that each cluster of a leaver must keep.
        delta: Δ, a fixed L2 distance, or None.
        clustering: How clients are clustered.
        sticky: Whether clusters are kept from round to round.
        metric: The distance by which they are clustered.
        noise: Which noise perturbs the representatives.
        distribution: How it is distributed.
        sigma: Its scale, with `paper` noise.
        clip: The norm to which updates are clipped, with calibrated noise.
        tau: Its standard deviation, with calibrated noise.
        draws: Whether draws are `fresh`, or `seeded` and repeatable.
    """

    k: int = 4
    x: int = 2
    delta: float | None = None
    clustering: str = "mdav"
    sticky: bool = True
    metric: str = "l2"
    noise: str = "paper"
    distribution: str = "gaussian"
    sigma: float = 0.02
    clip: float | None = None
    tau: float | None = None
    draws: str = "fresh"
    representatives: int = 1
    statistics: str = "mean"
    relative_delta: float | None = None
    odds: float | None = None
    mechanism: str = "retrain"

    def delta_at(self, update_norm: float) -> float | None:
        """Return Δ of a round whose median update norm this is; None where it is adaptive.

        Args:
            update_norm: The median L2 norm of the round's updates.

        Returns:
            An L2 distance between updates, or None.
        """
        if self.relative_delta is not None:
            return self.relative_delta * update_norm
        return self.delta

    @property
    def adaptive(self) -> bool:
        """Whether Δ is each round's largest spread."""
        return self.delta is None and self.relative_delta is None

    @property
    def averages_statistics(self) -> bool:
        """Whether running statistics are means over whole clusters; some noises do not allow it."""
        return self.statistics == "mean" and NOISES[self.noise].may_average

    @property
    def anchored(self) -> bool:
        """Whether clusters are settled before the first round, and keep gaps where clients left."""
        return CLUSTERINGS[self.clustering].anchored

    @property
    def accounted(self) -> bool:
        """Whether the noise gives the released models a differential-privacy figure."""
        return NOISES[self.noise].accounted

    @property
    def survivors_needed(self) -> int:
        """How many survivors a cluster must keep: x to take the leaver's place beside the s - 1 drawn with it."""
        return self.x + self.representatives - 1
