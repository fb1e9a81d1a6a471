"""Calibration: the noise for a figure, found by bisection and rounded up, so that the figure is kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from disavow.errors import ConfigError
from disavow.privacy import gaussian, sampling
from disavow.privacy.events import Event, drawn_rate

HOPELESS = 20.0
"""Noise this many times as long as the largest update leaves no useful model; measured, see docs/account.md."""

_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Setting:
    """Who trains and for how long. `sizes` are those of every round's clusters, of clients with equal shares.

    So many `representatives` of each are drawn.
    """

    rounds: int
    sizes: tuple[int, ...]
    clip: float
    representatives: int = 1

    @property
    def weights(self) -> tuple[float, ...]:
        """The weight of each cluster."""
        return tuple(size / sum(self.sizes) for size in self.sizes)

    @property
    def summed(self) -> float:
        """√Σp²: what the noises of all clusters come to in the aggregate, over that of one."""
        return math.sqrt(math.fsum(weight * weight for weight in self.weights))

    def tau_of(self, sigma: float) -> float:
        """Compute the noise of the aggregate, for noise σ·2C/s on each cluster."""
        return 2 * self.clip * sigma * self.summed / self.representatives

    def sigma_of(self, tau: float) -> float:
        """Compute σ from the noise of the aggregate: the inverse of `tau_of`."""
        return tau * self.representatives / (2 * self.clip * self.summed)

    @property
    def rate(self) -> float:
        """The largest chance of a client to be drawn."""
        return drawn_rate(self.representatives, min(self.sizes))

    def events(self, tau: float, *, fixed: bool) -> list[Event]:
        """Make the events of a run that would go like this.

        Args:
            tau: The noise of the aggregate.
            fixed: Whether clusters are anchored.

        Returns:
            One event a round.

        """
        squares = math.fsum(weight * weight for weight in self.weights)
        return [
            Event(
                number=number,
                attempt=1,
                mode="calibrated",
                clip=self.clip,
                tau=tau,
                rate=self.rate,
                weight=max(self.weights),
                squares=squares,
                clusters=len(self.sizes),
                representatives=self.representatives,
                fixed=fixed,
                predictable=False,
            )
            for number in range(1, self.rounds + 1)
        ]


def unconditional_tau(setting: Setting, epsilon: float, delta: float) -> float:
    """Find the smallest τ for which the unconditional claim of all rounds is at most ε.

    Args:
        setting: Who trains and for how long.
        epsilon: ε.
        delta: δ.

    """
    return 2 * setting.clip * math.sqrt(setting.rounds) / gaussian.shift_for(epsilon, delta)


def sampled_tau(setting: Setting, epsilon: float, delta: float) -> float:
    """Find the smallest τ for which the sampled claim is at most ε, to a relative 1e-4.

    Args:
        setting: Who trains and for how long.
        epsilon: ε.
        delta: δ.

    Raises:
        ConfigError: There is none.

    """
    rate = setting.rate

    def met(multiplier: float) -> bool:
        rounds = ((sampling.Sampled(rate, multiplier), setting.rounds),)
        return sampling.epsilon_of(rounds, delta) <= epsilon

    drawn = -math.expm1(setting.rounds * math.log1p(-rate)) if rate < 1 else 1.0
    if delta >= drawn:
        raise ConfigError(f"--delta is {delta:g}; allowed: below {drawn:.4g}, the chance to be drawn in any round")
    # not by `dp_accounting.calibrate_dp_mechanism`: no event of that package stands for these rounds.
    # the client in every round is the worst that can be: its noise is always enough
    high = math.sqrt(setting.rounds) / gaussian.shift_for(epsilon, delta)
    if not met(high):
        raise ConfigError(
            f"--epsilon is {epsilon:g}; allowed: more: noise for it costs less than can be computed at δ = "
            f"{delta:g}"
        )
    low = high / 2
    while met(low):
        high, low = low, low / 2
    while high - low > _TOLERANCE * high:
        middle = (low + high) / 2
        low, high = (low, middle) if met(middle) else (middle, high)
    return high * setting.clip * max(setting.weights) / setting.representatives


def noise_ratio(tau: float, clip: float, parameters: int) -> float:
    """Compute √d·τ/C: the length of the noise over that of the largest update.

    Args:
        tau: τ.
        clip: C.
        parameters: d.

    """
    return math.sqrt(parameters) * tau / clip


def prefixes(rounds: int, points: int) -> Sequence[int]:
    """Choose numbers of rounds from 1 to `rounds`, evenly spread, both ends among them.

    >>> list(prefixes(4, 10)), list(prefixes(100, 5))
    ([1, 2, 3, 4], [1, 26, 51, 75, 100])

    Args:
        rounds: The last number.
        points: How many at most.

    """
    if rounds <= points:
        return range(1, rounds + 1)
    return [1 + round(i * (rounds - 1) / (points - 1)) for i in range(points)]
