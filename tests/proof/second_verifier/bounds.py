"""What a cluster's noise is worth: displacement, ratio, odds."""

import decimal as decimals
import math
from collections.abc import Sequence

from tests.proof.second_verifier.reading import LARGEST, LN_10, Object


def figure_of(value: float | None) -> str | None:
    """A figure's text."""
    return None if value is None else f"{value:.6g}"


def capped(value: float) -> float:
    """What is above the largest float64 counts as that."""
    return LARGEST if value > LARGEST else value


def displacement_of(cluster: Object, representatives: int) -> float:
    """How far another representative moves the model."""
    return capped(float(cluster["weight"]) * float(cluster["spread"]) / representatives)


def ratio_of(cluster: Object, tau: float, representatives: int) -> float | None:
    """The displacement in standard deviations of the noise."""
    displacement = displacement_of(cluster, representatives)
    if displacement == 0:
        return 0.0
    return capped(displacement / tau) if tau > 0 else None


def log10_odds_of(ratio: float | None) -> float | None:
    """The odds, as a power of ten."""
    return None if ratio is None else capped(((ratio * ratio) / 2 + ratio * 1.645) / LN_10)


def total_of(policy: Object, clusters: Sequence[Object], leaves: Sequence[Object]) -> tuple[float, float | None]:
    """The largest displacement, and the ratio over all clusters shown."""
    largest, squares, bounded = 0.0, 0.0, True
    for cluster in clusters:
        ratio = ratio_of(cluster, float(leaves[cluster["leaf"]]["tau"]), policy["representatives"])
        largest = max(largest, displacement_of(cluster, policy["representatives"]))
        bounded &= ratio is not None
        squares += 0.0 if ratio is None else ratio * ratio
    return largest, math.sqrt(capped(squares)) if bounded else None


def nearest_log10(odds: float) -> float:
    """log10 as a float64; what the machine computes may be one beside the nearest."""
    with decimals.localcontext(decimals.Context(prec=50)):
        return float(decimals.Decimal(odds).log10())


def drawn_of(clusters: Sequence[Object], representatives: int) -> float:
    """The chance to have been drawn at least once."""
    never = 1.0
    for cluster in clusters:
        never = never * (1 - min(1.0, representatives / cluster["size"]))
    return 1 - never


def noise_fits(policy: Object, leaf: Object, cluster: Object) -> bool:
    """Whether τ is the policy's, as far as one cluster tells."""
    tau = float(leaf["tau"])
    if policy["noise"] == "calibrated":
        return tau == float(policy["tau"] or "0.0")
    largest_alone = policy["noise"] == "sensitivity"
    if not largest_alone and (policy["noise"], policy["distribution"]) != ("paper", "gaussian"):
        return tau == 0
    share = float(policy["sigma"]) / int(policy["representatives"])
    own = float(cluster["weight"]) * float(cluster["spread"])
    if not tau * (1 + 1e-9) >= own * share:
        return False
    if share == 0 or leaf["clusters"] == 1:
        return tau <= own * share * (1 + 1e-9)
    if policy["delta"] is not None or policy["relative_delta"] is not None:
        return True
    rest = (1 - float(cluster["weight"])) * float(leaf["delta"])
    longer, shorter = max(own, rest), min(own, rest)
    bound = longer
    if longer and not largest_alone:
        bound = longer * math.sqrt(1 + (shorter / longer) * (shorter / longer))
    return tau <= share * bound * (1 + 1e-9)


# "The checks"
