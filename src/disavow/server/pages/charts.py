"""Charts as SVG, made here: no script draws them, and they are read on a phone, in the dark and without colours.

Colours come from the style sheet by class, series differ by the shape of their marks too, and every chart stands
beside a table of its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

Point = tuple[float, float]

_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 14, 26, 40
_HEIGHT = 260
_WIDE, _NARROW = 720, 340
_MOST_POINTS = 240
_MARKED = 40
"""With more points than these, marks would hide the line."""

_MARK = 3.5
_NOTHING = 1e-9
_SHAPES: tuple[Callable[[float, float], Markup], ...] = (
    lambda x, y: Markup('<circle cx="{:.1f}" cy="{:.1f}" r="{}"/>').format(x, y, _MARK),
    lambda x, y: Markup('<rect x="{:.1f}" y="{:.1f}" width="{}" height="{}"/>').format(
        x - _MARK, y - _MARK, 2 * _MARK, 2 * _MARK
    ),
    lambda x, y: Markup('<path d="M{:.1f} {:.1f}l4.5 8h-9z"/>').format(x, y - 4.5),
)


@dataclass(frozen=True)
class Series:
    """One line of a chart.

    Args:
        name: What its label says.
        points: Places and values, from left to right.

    """

    name: str
    points: Sequence[Point]


@dataclass(frozen=True)
class _Frame:
    width: int
    left: float
    right: float
    low: float
    high: float

    def x(self, value: float) -> float:
        across = (value - self.left) / ((self.right - self.left) or 1.0)
        return _LEFT + across * (self.width - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        up = (value - self.low) / ((self.high - self.low) or 1.0)
        return _HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM)


def line_chart(
    name: str,
    title: str,
    series: Sequence[tuple[str, Sequence[Point]]],
    *,
    x_label: str,
    y_label: str,
    percent: bool = False,
) -> Markup:
    """Draw lines: once for wide screens and once for phones, of which the style sheet shows one.

    Args:
        name: What its ids begin with; another one for every chart of a page.
        title: What it shows, for who cannot see it too.
        series: Names and points.
        x_label: What is counted from left to right.
        y_label: What is measured.
        percent: Values are shares.

    """
    found = [Series(each, _thinned(points)) for each, points in series if points]
    if not found:
        return Markup("")
    drawn = (
        _drawn(f"{name}-{kind}", width, kind, title, found, (x_label, y_label), percent=percent)
        for kind, width in (("wide", _WIDE), ("narrow", _NARROW))
    )
    return Markup("").join(drawn)


def _drawn(
    name: str,
    width: int,
    kind: str,
    title: str,
    series: Sequence[Series],
    labels: tuple[str, str],
    *,
    percent: bool,
) -> Markup:
    xs = [x for each in series for x, _ in each.points]
    ys = [y for each in series for _, y in each.points]
    low, high, step = _scale(min(ys), max(ys), percent=percent)
    frame = _Frame(width, min(xs), max(xs), low, high)
    parts = [
        Markup('<svg class="chart {}" viewBox="0 0 {} {}" role="img" aria-labelledby="{}-t {}-d">').format(
            kind, width, _HEIGHT, name, name
        ),
        Markup('<title id="{}-t">{}</title><desc id="{}-d">{}</desc>').format(
            name, title, name, _described(series, percent=percent)
        ),
        Markup('<text class="label" x="0" y="14">{}</text>').format(labels[1]),
    ]
    for i in range(round((high - low) / step) + 1):
        value = low + i * step
        y = frame.y(value)
        parts.append(
            Markup('<path class="grid" d="M{} {}H{}"/><text class="tick y" x="{}" y="{}">{}</text>').format(
                _LEFT, f"{y:.1f}", width - _RIGHT, _LEFT - 6, f"{y + 4:.1f}", _figure(value, step, percent=percent)
            )
        )
    parts += [
        Markup('<text class="tick x" x="{}" y="{}">{}</text>').format(
            f"{frame.x(value):.1f}", _HEIGHT - _BOTTOM + 18, f"{value:g}"
        )
        for value in _ticks(min(xs), max(xs), 5 if kind == "narrow" else 10)
    ]
    parts.append(
        Markup('<text class="label x" x="{}" y="{}">{}</text>').format(width - _RIGHT, _HEIGHT - 6, labels[0])
    )
    for i, each in enumerate(series):
        parts.append(_line(frame, i, each))
    if len(series) > 1:
        parts.append(_legend(series))
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def _line(frame: _Frame, i: int, series: Series) -> Markup:
    shape = _SHAPES[i % len(_SHAPES)]
    points = [(frame.x(x), frame.y(y)) for x, y in series.points]
    line = "".join(f"{'L' if n else 'M'}{x:.1f} {y:.1f}" for n, (x, y) in enumerate(points))
    marked = points if len(points) <= _MARKED else [points[0], points[-1]]
    marks = Markup("").join(shape(x, y) for x, y in marked)
    return Markup('<g class="series s{}"><path class="line" d="{}"/><g class="marks">{}</g></g>').format(
        i % len(_SHAPES), line, marks
    )


def _legend(series: Sequence[Series]) -> Markup:
    parts, x = [], 110.0
    for i, each in enumerate(series):
        mark = _SHAPES[i % len(_SHAPES)](x, 10)
        parts.append(
            Markup(
                '<g class="series s{}"><g class="marks">{}</g></g><text class="label" x="{}" y="14">{}</text>'
            ).format(i % len(_SHAPES), mark, f"{x + 9:.0f}", each.name)
        )
        x += 24 + 7 * len(each.name)
    return Markup("").join(parts)


def _described(series: Sequence[Series], *, percent: bool) -> str:
    sentences = []
    for each in series:
        (first, begin), (last, end) = each.points[0], each.points[-1]
        sentences.append(
            f"{each.name}: from {_value(begin, percent=percent)} at {first:g} "
            f"to {_value(end, percent=percent)} at {last:g}."
        )
    return " ".join(sentences) + " The table below has every number."


def _scale(low: float, high: float, *, percent: bool) -> tuple[float, float, float]:
    """Give round borders around some values, and a round distance between lines."""
    if high - low < _NOTHING:
        low, high = low - 0.05 * (abs(low) or 1.0), high + 0.05 * (abs(high) or 1.0)
    step = _round_step((high - low) / 4)
    low, high = math.floor(low / step) * step, math.ceil(high / step) * step
    if percent:
        low, high = max(low, 0.0), min(high, 1.0)
    return low, high, step


def _round_step(step: float) -> float:
    """Give the next of 1, 2, 5 times a power of ten.

    >>> [round(_round_step(x), 6) for x in (0.03, 0.9, 17)]
    [0.05, 1.0, 20.0]
    """
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * each for each in (1, 2, 5, 10) if power * each >= step * (1 - _NOTHING))


def _ticks(left: float, right: float, most: int) -> list[float]:
    """Give whole numbers between two, not more than so many."""
    if right <= left:
        return [left]
    step = max(round(_round_step((right - left) / most)), 1)
    return [
        left,
        *(x for x in range(math.ceil(left / step) * step, math.floor(right) + 1, step) if x - left > step / 2),
    ]


def _figure(value: float, step: float, *, percent: bool) -> str:
    if percent:
        return f"{value * 100:.{0 if step >= 0.01 else 1}f} %"  # noqa: PLR2004 - a hundredth is a whole per cent
    digits = max(0, -math.floor(math.log10(step)))
    return f"{value:.{digits}f}"


def _value(value: float, *, percent: bool) -> str:
    return f"{value * 100:.1f} %" if percent else f"{value:.3g}"


def _thinned(points: Sequence[Point]) -> list[Point]:
    """Leave out points that no screen shows apart; the first and the last stay, and every extreme of a stretch."""
    if len(points) <= _MOST_POINTS:
        return list(points)
    borders = [round(i * (len(points) - 2) / (_MOST_POINTS // 2)) + 1 for i in range(_MOST_POINTS // 2 + 1)]
    kept = {points[0], points[-1]}
    for start, end in pairwise(borders):
        stretch = points[start:end]
        kept |= {min(stretch, key=lambda p: p[1]), max(stretch, key=lambda p: p[1])} if stretch else set()
    return sorted(kept)
