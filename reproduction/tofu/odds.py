"""What noise that makes deniability real costs a federation of adapters.

The odds of a run are about those of the ratio √rounds / (σ √clusters), whatever is trained: so σ follows from the
odds that are wanted. What that noise does to the model depends on how many numbers it falls on. A cluster releases
the mean of s updates with noise σ·spread/s on each of d numbers, and the mean over m clusters has noise of norm
σ·spread·√d / (s·√m) a round; over all rounds, for odds of ten, about 0.94 · rounds · √d / (clients drawn a round)
times the spread. Hence small adapters, few rounds, and nearly all clients drawn.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass as checked_dataclass

from disavow.errors import RoundRefused
from disavow.federation import Federation
from disavow.proof.bounds import Z
from reproduction import drawing, records
from reproduction.client_odds import odds_of_clients
from reproduction.lines import Amount, Count, Number, Share
from reproduction.records import CHECKED
from reproduction.tofu.measures import probabilities
from reproduction.tofu.questions import write_clients
from reproduction.tofu.settings import AuthorSettings
from reproduction.tofu.study import Study, device_name, network_of, reader_of

FORMAT: Literal["disavow-tofu-odds/1"] = "disavow-tofu-odds/1"

TARGETS: tuple[float | None, ...] = (None, 1e6, 1e3, 10.0)
"""Odds over all rounds that noise is chosen for; None: no noise."""


@checked_dataclass(frozen=True, kw_only=True, config=CHECKED)
class TofuOddsLine:
    """One federation of authors with one noise."""

    format: Literal["disavow-tofu-odds/1"] = FORMAT
    key: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    name: str
    """Of its adapter."""
    adapter_parameters: Number
    authors: Number
    rounds: Count
    """That stand; fewer than were to be trained where noise destroyed the model."""
    rounds_wanted: Number
    k: Number
    representatives: Number
    clusters: Number
    target: Amount | None
    """Odds that the noise was chosen for."""
    sigma: Amount
    noise: str
    """Its mode."""
    log10_odds_median: Amount | None
    """Over all rounds, of the median client; none without noise."""
    log10_odds_worst: Amount | None
    probability: Share
    """Of clients' right answers."""
    probability_held_out: Share
    loss: Amount
    """A token of clients' answers, in nats: the mean over questions."""
    loss_held_out: Amount
    base_probability: Share
    """Of clients' right answers before the first round."""
    seconds: Amount
    device: str


@dataclass(frozen=True)
class OddsPoint:
    """One federation to be trained.

    Attributes:
        name: Of its adapter.
        choice: Its settings, with the noise.
        target: The odds that the noise was chosen for; None: no noise.

    """

    name: str
    choice: AuthorSettings
    target: float | None

    @property
    def clusters(self) -> int:
        """About how many a round has."""
        return self.choice.authors // self.choice.k


def sigma_for(odds: float, *, rounds: int, clusters: int) -> float:
    """Compute σ with which the odds over all rounds are about these, where clusters are alike.

    Args:
        odds: Above 1.
        rounds: How many.
        clusters: Of each round, each with noise of its own; 1 where noise is added to the aggregate.

    >>> round(sigma_for(10, rounds=30, clusters=20), 3)
    1.157

    """
    ratio = math.sqrt(Z * Z + 2 * math.log(odds)) - Z
    return math.sqrt(rounds / clusters) / ratio


ADAPTERS: dict[str, AuthorSettings] = {
    "output r1": AuthorSettings(rank=1, alpha=2.0, projections="output"),
    "attention r8": AuthorSettings(rank=8, alpha=16.0, projections="attention"),
}
"""One row of B a layer, 1,536 numbers of the default base; and 49,152."""


def points(
    adapters: Sequence[str],
    rounds: Sequence[int],
    targets: Sequence[float | None] = TARGETS,
    *,
    authors: int,
    k: int,
    representatives: int,
    noise: str = "paper",
) -> list[OddsPoint]:
    """List the federations of a study: each adapter, number of rounds and target.

    Args:
        adapters: Keys of `ADAPTERS`.
        rounds: Numbers of rounds.
        targets: Odds, or None for no noise.
        authors: Clients.
        k: Clients of a cluster at least.
        representatives: Members of each that are drawn.
        noise: Its mode. That of mode `paper` is added to each cluster, and all of them hide a client; any other is
            taken to be added once, to the aggregate.

    """
    hiding = authors // k if noise == "paper" else 1
    found = []
    for name in adapters:
        for number in rounds:
            for target in targets:
                sigma = 0.0 if target is None else sigma_for(target, rounds=number, clusters=hiding)
                choice = replace(
                    ADAPTERS[name],
                    authors=authors,
                    rounds=number,
                    k=k,
                    representatives=representatives,
                    sigma=sigma,
                    noise=noise,
                )
                found.append(OddsPoint(name, choice, target))
    return found


def run_points(
    wanted: Iterable[OddsPoint],
    results: Path,
    study: Study,
    *,
    seconds: float = math.inf,
    on_line: Callable[[TofuOddsLine], None] = lambda line: None,
) -> list[TofuOddsLine]:
    """Train what is not in the results yet, and add a line for each.

    Args:
        wanted: The federations.
        results: A file of lines, which is added to.
        study: Base, questions, folder and device; its own settings play no part.
        seconds: After so many, no federation is begun.
        on_line: Hears of each that is finished.

    Returns:
        The lines of those that are done.

    """
    wanted, began = list(wanted), time.perf_counter()
    found = {line.key: line for line in records.read(results, TofuOddsLine)}
    for point in wanted:
        if point.choice.key in found or time.perf_counter() - began > seconds:
            continue
        line = _train(point, replace(study, choice=point.choice))
        records.append(results, line)
        found[line.key] = line
        on_line(line)
    return [found[point.choice.key] for point in wanted if point.choice.key in found]


def _train(point: OddsPoint, study: Study) -> TofuOddsLine:
    folder, choice = study.folder / "odds", point.choice
    shutil.rmtree(folder, ignore_errors=True)
    data, _, held_out = write_clients(study.tofu, folder / "clients", authors=choice.authors)
    settings = choice.settings(study.base, data, held_out, device=study.device)
    began = time.perf_counter()
    with Federation.create(folder / "run", settings, keys=folder / "keys") as run:
        with contextlib.suppress(RoundRefused):  # updates that are NaN or infinite: the round is not recorded
            run.train()
        seconds = time.perf_counter() - began
        hidden = odds_of_clients(run.ledger) if choice.sigma else None
        network, reader = network_of(run, study.device), reader_of(run, study.device)
        pairs = {
            name: [(each.question, each.answer) for each in questions]
            for name, questions in (
                ("clients", [*study.questions["forget"], *study.questions["retain"]]),
                ("held out", study.questions["held_out"]),
            )
        }
        likely = {name: probabilities(network, reader, each) for name, each in pairs.items()}
        before = probabilities(network_of(run, study.device, initial=True), reader, pairs["clients"])
        line = TofuOddsLine(
            key=choice.key,
            name=point.name,
            adapter_parameters=run.ledger.layout.size,
            authors=choice.authors,
            rounds=run.ledger.last_round,
            rounds_wanted=choice.rounds,
            k=choice.k,
            representatives=choice.representatives,
            clusters=point.clusters,
            target=point.target,
            sigma=choice.sigma,
            noise=choice.noise,
            log10_odds_median=statistics.median(hidden.composed) if hidden and hidden.composed else None,
            log10_odds_worst=max(hidden.composed) if hidden and hidden.composed else None,
            probability=_mean(likely["clients"]),
            probability_held_out=_mean(likely["held out"]),
            loss=_mean_loss(likely["clients"]),
            loss_held_out=_mean_loss(likely["held out"]),
            base_probability=_mean(before),
            seconds=seconds,
            device=device_name(study.device),
        )
    shutil.rmtree(folder)
    return line


def _mean(likely: np.ndarray) -> float:
    return float(np.nan_to_num(likely).mean())


def _mean_loss(likely: np.ndarray) -> float:
    return float(-np.log(np.maximum(np.nan_to_num(likely), np.finfo(float).tiny)).mean())


def draw(lines: Sequence[TofuOddsLine], path: Path) -> tuple[Path, Path]:
    """Draw what clients' answers are worth to the model, against the odds of the client that is worst off.

    Args:
        lines: The federations.
        path: Without a suffix.

    Returns:
        A PNG and an SVG.

    """
    groups = sorted({(line.adapter_parameters, line.name, line.rounds_wanted) for line in lines})
    with drawing.style():
        drawn = drawing.blank(3.4)
        panel = drawn.subplots()
        drawing.frame(panel)
        handles = []
        for at, (size, name, rounds) in enumerate(groups):
            look = drawing.ANY[at % len(drawing.ANY)]
            mine = [line for line in lines if (line.name, line.rounds_wanted) == (name, rounds)]
            noisy = sorted(
                (line.log10_odds_worst, line.probability) for line in mine if line.log10_odds_worst is not None
            )
            if noisy:
                panel.plot([x for x, _ in noisy], [y for _, y in noisy], **look)
            for line in mine:
                if line.target is None:
                    panel.axhline(line.probability, color=look["color"], linestyle=look["linestyle"], linewidth=0.6)
            label = f"{name}: {size:,} numbers, {rounds} round{'s' if rounds > 1 else ''}"
            handles.append(drawing.sample(label, **look))
        if lines:
            panel.axhline(lines[0].base_probability, color="0.4", linewidth=0.9, linestyle=":")
            handles.append(drawing.sample("the base (dotted); thin lines: no noise", color="0.4", linestyle=":"))
        panel.axvline(1.0, color="0.7", linewidth=0.8)
        panel.set_xlabel("log10 of the odds over all rounds, worst client (left of 1: under ten)")
        panel.set_ylabel("probability of clients' answers")
        drawn.legend(handles=handles, ncols=2, handlelength=3.5, **drawing.LEGEND)
        return drawing.write(drawn, path)


def to_json(line: TofuOddsLine) -> dict[str, object]:
    """Give a line as what `json.dumps` takes.

    Args:
        line: The line.

    """
    return asdict(line)
