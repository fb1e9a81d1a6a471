"""Noise by name: what is added to what each cluster releases, or to the aggregate.

Importing this module does not load torch: settings and accounts ask what a noise declares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from disavow.domain import Layout, Policy
from disavow.domain.strategies import DISTRIBUTIONS, NOISES, DistributionSpec, NoiseSpec
from disavow.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from disavow.rounds.randomness import Stream

_DRAWN = 1 << 18
"""Numbers that are drawn at a time: few enough for a processor's caches, enough for a GPU."""


class Noise(NoiseSpec):
    """A noise: `noise.mode` of the settings names it. Either method may be left as it is, and adds nothing then."""

    @classmethod
    def check(cls) -> None:
        """See `NoiseSpec`. A figure is that of noise on the aggregate, and of nothing else."""
        super().check()
        on_the_sum = cls.perturb_aggregate is not Noise.perturb_aggregate and cls.perturb is Noise.perturb
        if not cls.no_figure and not on_the_sum:
            raise ConfigError(
                f'noise.mode {cls.name!r} has no_figure = ""; allowed where perturb_aggregate adds the noise, and '
                "perturb is left as it is: the account counts on one Gaussian of tau on the aggregate"
            )

    @classmethod
    def unusable(cls, method: str, arguments: tuple[Any, ...], result: Any) -> str:
        """See `Strategy`."""
        del arguments
        if method.startswith("perturb") and result is not None:
            return f"a {type(result).__name__}; allowed: nothing, the noise is added in place"
        if method.startswith("tau") and not (isinstance(result, int | float) and 0 <= result < math.inf):
            return f"{result!r}; allowed: a finite number from 0 on"
        return ""

    def perturb(
        self, released: Tensor, spreads: Sequence[float], *, policy: Policy, layout: Layout, stream: Stream
    ) -> None:
        """Add noise, in place, to what each cluster releases.

        Args:
            released: The mean of the drawn updates, one row a cluster, in float64.
            spreads: The spread of each cluster.
            policy: The promises of the run.
            layout: Which numbers belong to which tensor.
            stream: Secret random numbers, which nobody keeps.

        """

    def perturb_aggregate(
        self, step: Tensor, clusters: Sequence[tuple[float, float]], *, policy: Policy, stream: Stream
    ) -> None:
        """Add noise, in place, to the weighted sum of what the clusters release.

        Args:
            step: The step of the global model, in float64.
            clusters: Weight and spread of each cluster of the round.
            policy: The promises of the run.
            stream: Secret random numbers, which nobody keeps.

        """

    def tau_on_variances(self, policy: Policy, clusters: Sequence[tuple[float, float]]) -> float:
        """Return the standard deviation of the noise on each running variance; arguments as for `tau`.

        Args:
            policy: The promises of the run.
            clusters: Weight and spread of each cluster of the round.

        Returns:
            That standard deviation; 0 for no noise.
        """
        return self.tau(policy, clusters)


class Distribution(DistributionSpec):
    """A distribution of mean 0 and standard deviation 1: `noise.distribution` of the settings names it."""

    @classmethod
    def check(cls) -> None:
        """See `DistributionSpec`. Refuse a class that does not say how to draw."""
        super().check()
        if cls.draw is Distribution.draw:
            raise ConfigError(f"noise.distribution {cls.name!r} lacks draw")

    def draw(self, stream: Stream, count: int, device: torch.device | str) -> Tensor:
        """Draw independent numbers.

        Args:
            stream: Where they come from.
            count: How many.
            device: Where they are made.

        Returns:
            The numbers, in float64.

        """
        raise NotImplementedError

    @classmethod
    def unusable(cls, method: str, arguments: tuple[Any, ...], result: Any) -> str:
        """See `Strategy`."""
        if method != "draw" or getattr(result, "shape", None) == (arguments[1],):
            return ""
        return f"no row of numbers; allowed: a tensor of {arguments[1]}"


class Gaussian(Distribution):
    """The normal distribution."""

    name = "gaussian"
    variance_of_squares = 8.0

    def draw(self, stream: Stream, count: int, device: torch.device | str) -> Tensor:
        """See `Distribution`."""
        return stream.normal(count, device)


class Laplace(Distribution):
    """The Laplace distribution."""

    name = "laplace"
    variance_of_squares = 14.0

    def draw(self, stream: Stream, count: int, device: torch.device | str) -> Tensor:
        """See `Distribution`."""
        return stream.laplace(count, device)


class PaperNoise(Noise):
    """Algorithm 1: noise of standard deviation σ·spread/s on each number that a cluster releases."""

    name = "paper"
    no_figure = "its scale is the clusters' spread, which depends on the data and so says something about it"

    def tau(self, policy: Policy, clusters: Sequence[tuple[float, float]]) -> float:
        """See `NoiseSpec`."""
        sigma = policy.sigma / policy.representatives
        return math.hypot(*(weight * sigma * spread for weight, spread in clusters))

    def tau_on_variances(self, policy: Policy, clusters: Sequence[tuple[float, float]]) -> float:
        """See `Noise`."""
        averaged = policy.k if policy.averages_statistics else policy.representatives
        return policy.sigma * math.sqrt(sum((weight * spread) ** 2 for weight, spread in clusters)) / averaged

    def distribution(self, policy: Policy) -> str:
        """See `NoiseSpec`."""
        return policy.distribution

    def describe(self, policy: Policy) -> str:
        """See `NoiseSpec`."""
        return f"paper, {policy.distribution}, σ = {policy.sigma:g}"

    def perturb(
        self, released: Tensor, spreads: Sequence[float], *, policy: Policy, layout: Layout, stream: Stream
    ) -> None:
        """See `Noise`. Where a spread is 0, nothing is drawn."""
        import torch

        distribution = cast(Distribution, DISTRIBUTIONS[policy.distribution])
        device, length = released.device, released.shape[1]
        scales = noise_scales(policy, layout).to(device)
        widths = torch.tensor(spreads, dtype=torch.float64)
        noisy = torch.nonzero(widths * policy.sigma > 0).flatten()
        for rows in noisy.split(max(1, _DRAWN // length)):
            noise = distribution.draw(stream, len(rows) * length, device).view(-1, length)
            released[rows.to(device)] += widths[rows, None].to(device) * scales * noise


def noise_scales(policy: Policy, layout: Layout) -> Tensor:
    """Return the noise of mode `paper` on each number, as a multiple of the cluster's spread: σ/s.

    On running statistics that are a mean over the cluster's members, of whom there are at least k: σ/k.
    """
    import torch

    scales = torch.full((layout.size,), policy.sigma / policy.representatives, dtype=torch.float64)
    if policy.averages_statistics:
        for start, end in layout.running_statistics():
            scales[start:end] = policy.sigma / policy.k
    return scales


class CalibratedNoise(Noise):
    """Clipped updates, and one Gaussian of standard deviation τ on the aggregate: the noise with guarantees.

    Running statistics are those of the drawn: the account covers what is drawn, and a mean over a cluster would
    hold everybody for certain.
    """

    name = "calibrated"
    clips = True
    needs: ClassVar[tuple[str, ...]] = ("clip", "tau")
    no_figure = ""
    may_average = False

    def tau(self, policy: Policy, clusters: Sequence[tuple[float, float]]) -> float:
        """See `NoiseSpec`."""
        del clusters
        return policy.tau or 0.0

    def describe(self, policy: Policy) -> str:
        """See `NoiseSpec`."""
        return f"calibrated, clip {policy.clip}, τ = {policy.tau}"

    def perturb_aggregate(
        self, step: Tensor, clusters: Sequence[tuple[float, float]], *, policy: Policy, stream: Stream
    ) -> None:
        """See `Noise`."""
        del clusters
        if policy.tau is not None:
            step += policy.tau * stream.normal(len(step), step.device)


class SensitivityNoise(Noise):
    """One Gaussian on the aggregate, σ times the most that one exchanged representative moves it: max p·spread/s.

    So the ratio of every client in every round is at most 1/σ, and over T rounds √T/σ, whoever the client is and
    however unequal the clusters are (docs/design/0029-composed-odds.md). Running statistics are those of the drawn.
    """

    name = "sensitivity"
    needs: ClassVar[tuple[str, ...]] = ("sigma",)
    no_figure = "its scale is the widest cluster's spread, which depends on the data and so says something about it"
    may_average = False

    def tau(self, policy: Policy, clusters: Sequence[tuple[float, float]]) -> float:
        """See `NoiseSpec`."""
        widest = max((weight * spread for weight, spread in clusters), default=0.0)
        return policy.sigma / policy.representatives * widest

    def describe(self, policy: Policy) -> str:
        """See `NoiseSpec`."""
        return f"sensitivity, σ = {policy.sigma:g}"

    def perturb_aggregate(
        self, step: Tensor, clusters: Sequence[tuple[float, float]], *, policy: Policy, stream: Stream
    ) -> None:
        """See `Noise`. Where τ is 0, nothing is drawn."""
        tau = self.tau(policy, clusters)
        if tau > 0:
            step += tau * stream.normal(len(step), step.device)


class NoNoise(Noise):
    """What was drawn is released as it is."""

    name = "none"
    no_figure = "there is no noise"


def noise_named(policy: Policy) -> Noise:
    """Return the noise that a policy names.

    Args:
        policy: The promises of the run.

    Raises:
        ConfigError: It is not registered here.

    """
    return cast(Noise, NOISES[policy.noise])
