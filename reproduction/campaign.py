"""All runs of a grid: group after group in this process, or several groups at once in processes of their own.

Finished runs are never repeated, and never lost. A group is made by one process at a time, whoever started it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Protocol

import numpy as np

from disavow import runs
from disavow.data import OnProgress, fetch
from disavow.data.progress import nothing
from disavow.engines.factory import device_of
from disavow.erasure.plan import Clustering, Federation, simulate
from disavow.errors import ConfigError, RunInUse
from disavow.ledger.lock import Lock
from reproduction import lines
from reproduction.grid import Point
from reproduction.lines import PLAIN, UNCLUSTERED, Line, Round
from reproduction.records import OnNote
from reproduction.running import Models, run_point
from reproduction.sharing import SharedEngine, room_for

_STREAMS = 200


class Observer(Protocol):
    """Hears how far a campaign is."""

    def began(self, point: Point) -> None:
        """A run begins."""

    def executed(self, done: Round) -> None:
        """It has executed a round."""

    def ended(self, point: Point, line: Line) -> None:
        """It is finished, and its line is on disk."""

    def noted(self, note: str) -> None:
        """Something that a person should know."""


@dataclass(frozen=True)
class Places:
    """Where a campaign keeps its lines, and where its runs are while they are made."""

    results: Path
    workroom: Path

    def file_of(self, point: Point) -> Path:
        """The results file of a run: one a study, row and network, so that several processes can share the work."""
        return self.results / f"{_joined(point)}.jsonl"

    def room_of(self, point: Point) -> Path:
        """Where the runs of its group are made; one process at a time works there."""
        return self.workroom / f"{_joined(point)}-seed-{point.seed}"


def _joined(point: Point) -> str:
    parts = (point.study, point.network, point.row.lower(), "quick" if point.quick else "")
    return "-".join(part for part in parts if part)


def finished(paths: Places, points: Iterable[Point], on_note: OnNote = lambda note: None) -> dict[str, Line]:
    """The lines that are there already for these runs, by key.

    Raises:
        ConfigError: A cell of a table would have two runs with different settings.

    """
    asked: dict[Path, list[Point]] = {}
    for point in points:
        asked.setdefault(paths.file_of(point), []).append(point)
    found: dict[str, Line] = {}
    for file, of_file in asked.items():
        made, wanted = lines.read(file, on_note), {point.key for point in of_file}
        _refuse_different_settings(file, of_file, made)
        found.update((line.key, line) for line in made if line.key in wanted)
    return found


def _refuse_different_settings(file: Path, asked: Sequence[Point], made: Sequence[Line]) -> None:
    """A cell shows one run: another one with other settings would take its place unseen."""
    points = {_cell(point): point for point in asked}
    runs_of_file: list[Point | Line] = [*asked, *made]
    for run in runs_of_file:
        point = points.get(_cell(run))
        if point is not None and point.key != run.key:
            raise ConfigError(
                f"{file} would have two runs with different settings: {point}; give the grid a `study` of its own, "
                "or set --results to another folder"
            )


def _cell(run: Point | Line) -> tuple[object, ...]:
    """Where a table shows a run."""
    return run.row, run.network, run.method, run.variant, run.k, run.x, run.seed, run.quick, run.edition


def run(
    points: Sequence[Point],
    paths: Places,
    observer: Observer,
    *,
    on_progress: OnProgress = nothing,
    jobs: int = 1,
) -> list[Line]:
    """Make what is not made yet; the lines of all of them.

    With several `jobs`, so many groups are made at the same time, the longest first, each in a process of its own:
    small networks leave a GPU waiting for the next kernel. A group that another process is at is left to it: what
    that has not finished yet is not among the lines.
    """
    found = finished(paths, points, observer.noted)
    # at once, not hours later when their turn comes
    needed = {point.settings.data.name: point.settings.data for point in points if point.key not in found}
    for data in needed.values():
        fetch(data, on_progress=on_progress)
    groups = [list(members) for _, members in groupby(points, key=lambda point: point.group)]
    groups = [group for group in groups if any(point.key not in found for point in group)]
    if jobs > 1 and len(groups) > 1:
        from reproduction import processes  # imports this module

        groups.sort(key=lambda group: -sum(effort(point) for point in group if point.key not in found))
        processes.run_groups(groups, paths, observer, jobs=jobs)
    else:
        for group in groups:
            run_group(group, paths, observer, on_progress=on_progress)
    found |= finished(paths, points)
    return [found[point.key] for point in points if point.key in found]


def run_group(
    group: Sequence[Point],
    paths: Places,
    observer: Observer,
    *,
    on_progress: OnProgress = nothing,
    processes: int = 1,
) -> None:
    """Make the runs of one group that are not made yet; none where another process is at it.

    Args:
        group: Points of one row, network and seed, of one study.
        paths: Where lines and runs go.
        observer: Hears how far it is.
        on_progress: Hears how far the data is.
        processes: That make groups on this machine at the same time, and share its memory.

    """
    try:
        _run_missing(group, paths, observer, on_progress, processes)
    except RunInUse as error:
        observer.noted(f"{group[0].row}, {group[0].network}, seed {group[0].seed} is left to others: {error}")


def _run_missing(
    group: Sequence[Point], paths: Places, observer: Observer, on_progress: OnProgress, processes: int
) -> None:
    """The runs of one row, network and seed: their data is loaded once, their equal rounds trained once."""
    workroom = paths.room_of(group[0])
    workroom.mkdir(parents=True, exist_ok=True)
    with Lock(workroom):
        made = finished(paths, group)  # whoever was here before may have gone on meanwhile
        missing = [point for point in group if point.key not in made]
        if not missing:
            return
        prepared = runs.prepare(group[0].settings, on_progress=on_progress)
        for note in prepared.notes:
            observer.noted(f"{group[0].row}: {note}")
        room = room_for(device_of(group[0].settings.engine), processes=processes)
        engine = SharedEngine(prepared.engine, epochs=group[0].settings.training.epochs, room=room)
        reference = _Reference(group, paths, observer)
        try:
            for point in missing:
                observer.began(point)
                done = run_point(
                    point,
                    prepared,
                    engine,
                    workroom,
                    reference=reference.models,
                    on_executed=observer.executed,
                )
                reference.keep(done.models)  # first: a line without its models could not be measured against
                lines.append(paths.file_of(point), done.line, observer.noted)
                observer.ended(point, done.line)
        finally:
            engine.end()


class _Reference:
    """FedAvg's models of a group, kept beside the work while its other runs are still to come."""

    def __init__(self, group: Sequence[Point], paths: Places, observer: Observer) -> None:
        self.models: Models | None = None
        plain, room = next((point for point in group if point.method == "fedavg"), None), paths.room_of(group[0])
        self._file = room / f"fedavg-{plain.key[:16]}.npy" if plain else None
        if self._file and self._file.is_file():
            self.models = np.load(self._file, allow_pickle=False)
        elif plain and plain.key in finished(paths, [plain]):
            observer.noted(
                f"{plain}: its models are not in {room}, so no distances to them are measured; take its "
                f"line out of {paths.file_of(plain)} to have it run again"
            )

    def keep(self, models: Models | None) -> None:
        """Keep them, where a run returned any."""
        if models is None or self._file is None:
            return
        self.models = models
        beside = self._file.with_suffix(".new.npy")
        np.save(beside, models, allow_pickle=False)
        beside.replace(self._file)


def effort(point: Point) -> float:
    """About how many rounds a run executes, for the time left: those it trains and those it will train again."""
    federation = Federation(
        clients=point.settings.data.clients,
        rounds=point.settings.rounds,
        request_rate=point.settings.requests.rate,
    )
    if point.method in UNCLUSTERED:
        share = 0.3 if point.method in PLAIN - {"fedavg"} else 1.0
        again = share * federation.request_rate * federation.rounds * (federation.rounds + 1) / 2
        return federation.rounds + again
    clustering: Clustering = "fresh" if point.method == "published" else "sticky"
    outcomes = simulate(
        federation,
        k=point.k,
        x=_survivors(point),
        clustering=clustering,
        runs=_STREAMS,
        rng=np.random.default_rng(1),
    )
    return federation.rounds + float(outcomes.retrained_rounds.mean())


def _survivors(point: Point) -> int:
    """The survivors that a cluster must keep."""
    return point.x + point.settings.clustering.representatives - 1
