"""Numbers as tables print them."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

_TEN, _HUNDRED = 10, 100
_TENTH, _HUNDREDTH = 0.1, 0.01
_NOISE = 9  # digits after which a difference of accuracies holds nothing but what floating point left


def share(value: float) -> str:
    """An accuracy, as a fraction of three digits, as the paper has it.

    >>> share(0.96349)
    '0.963'
    """
    return f"{value:.3f}"


def amount(value: float) -> str:
    """Three digits, whatever the size; whole from a hundred on.

    >>> [amount(value) for value in (0.0, 0.00012345, 0.02, 0.49, 7.914, 41.78, 1362.2)]
    ['0', '0.000123', '0.0200', '0.490', '7.91', '41.8', '1,362']
    """
    if value == 0:
        return "0"
    if value >= 1:
        return f"{value:,.{0 if value >= _HUNDRED else 1 if value >= _TEN else 2}f}"
    if value >= _HUNDREDTH:
        return f"{value:.{3 if value >= _TENTH else 4}f}"
    return f"{value:.3g}"


def times(value: float) -> str:
    """A ratio.

    >>> [times(value) for value in (1.234, 41.78, 340550.0)]
    ['1.23x', '41.8x', '340,550x']
    """
    return f"{amount(value)}x"


def points(value: float) -> str:
    """A difference of accuracies in percentage points, with its sign; halves are rounded away from zero.

    >>> [points(value) for value in (-0.159, 0.0004, 0.01, -0.0035)]
    ['-15.9', '+0.0', '+1.0', '-0.4']
    """
    exact = Decimal(repr(round(_HUNDRED * value, _NOISE)))
    return f"{exact.quantize(Decimal('0.1'), ROUND_HALF_UP):+}"
