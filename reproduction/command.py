"""What `python -m reproduction` does: the runs that are missing, then tables and figures."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self, cast, get_args

import typer

from disavow.cli.options import require
from disavow.cli.output import Bar, Console, loading, print_json, progress, results
from disavow.config import EngineSettings
from disavow.engines.factory import device_of
from disavow.erasure.plan import Federation
from disavow.errors import ConfigError
from disavow.ledger.files import write_durably
from reproduction import backdoor, campaign, grid, growth, odds_lines, purge_work, work, work_report
from reproduction.campaign import Places
from reproduction.grid import Grid, Point
from reproduction.lines import EDITION, Line, Network, Round, RowName
from reproduction.remaining import Planned, Remaining, remaining
from reproduction.reproduce import (
    BACKDOOR,
    ODDS,
    PURGE_WORK,
    WORK,
    Artefact,
    Results,
    chosen,
    grids_of,
    network_of,
)

_INTERRUPTED = 130
_DEVICES = ("auto", "cpu", "cuda")
_MINUTE, _HOUR = 60, 3600
_PAPER = Federation(clients=50, rounds=50, request_rate=0.2)
_EPOCHS = 3


@dataclass(frozen=True)
class ReproductionOptions:
    """What the command line says."""

    names: tuple[str, ...]
    quick: bool
    rows: tuple[str, ...]
    seeds: tuple[int, ...]
    network: str | None
    device: str
    jobs: int
    streams: int
    grid: Path | None
    results: Path
    out: Path
    work: Path | None
    render_only: bool
    edition: int
    dry_run: bool = False


def reproduce(options: ReproductionOptions, *, as_json: bool) -> None:
    """Make the runs that are missing, then every table and figure that was asked for."""
    _check(options)
    console = progress()
    made = chosen(options.names)
    kept = Results(
        options.results, options.quick, lambda note: console.print(f"note: {note}"), edition=options.edition
    )
    if options.dry_run:
        _show(remaining(_planned(options, made, kept)), as_json=as_json)
        return
    try:
        if not options.render_only:
            _run(options, made, kept, console)
    except KeyboardInterrupt:
        console.print("interrupted; what is finished is kept, and the same command goes on from there")
        raise typer.Exit(_INTERRUPTED) from None
    written = _render(options, made, kept)
    if as_json:
        paths = {name: [str(file) for file in files] for name, files in written.items()}
        print_json({"results": str(options.results), "files": paths})
        return
    for name, files in written.items():
        results().print(f"{name}: {', '.join(map(str, files))}")


def _check(options: ReproductionOptions) -> None:
    require(options.device in _DEVICES, "device", options.device, ", ".join(_DEVICES))
    for row in options.rows:
        require(row in get_args(RowName), "row", row, ", ".join(get_args(RowName)))
    require(options.network in (None, *get_args(Network)), "network", options.network, ", ".join(get_args(Network)))
    require(bool(options.names) or options.grid is not None, "grid", "not set", "a file, where no NAME is given")
    current = options.edition == EDITION or options.render_only
    require(current, "edition", options.edition, f"{EDITION}; older ones with --render-only")
    require(not (options.dry_run and options.render_only), "dry-run", "set", "not with --render-only")
    device_of(EngineSettings.model_validate({"device": options.device}))
    if options.dry_run:
        return
    for folder in (options.results, options.out):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{folder} cannot be made: {error.strerror}") from None


def _run(options: ReproductionOptions, made: dict[str, Artefact], kept: Results, console: Console) -> None:
    """Everything that has to be run for these artefacts, and for a grid of the user's."""
    points = _grid_points(options, made)
    paths = _places(options)
    workroom = paths.workroom
    workroom.mkdir(parents=True, exist_ok=True)
    if points:
        with loading(console) as on_progress, Watch(console, points, paths) as watch:
            campaign.run(points, paths, watch, on_progress=on_progress, jobs=options.jobs)
    if WORK in made:
        report = work.measure(_PAPER, epochs=_EPOCHS, streams=options.streams, seed=1)
        work_report.write(kept.work_file, report)
    if PURGE_WORK in made:
        tables = []
        for during in (False, True):
            found = purge_work.measure(_PAPER, epochs=_EPOCHS, streams=options.streams, seed=1, during=during)
            table = purge_work.markdown(_PAPER, found, epochs=_EPOCHS, streams=options.streams, during=during)
            tables.append(table)
        write_durably(kept.purge_work_file, "\n".join(tables).encode())
    if BACKDOOR in made:
        _run_backdoor(options, kept, workroom, console)
    if ODDS in made:
        _run_odds(options, kept, workroom, console)


def _places(options: ReproductionOptions) -> Places:
    return Places(options.results, options.work or options.out / ".work")


def _planned(options: ReproductionOptions, made: dict[str, Artefact], kept: Results) -> Iterator[Planned]:
    """Every run that these artefacts need, made or not."""
    points = _grid_points(options, made)
    found: set[str] = set(campaign.finished(_places(options), points, kept.on_note))
    for point in points:
        done = point.key in found
        yield Planned(point.study, point.network, done, 0.0 if done else campaign.effort(point))
    if BACKDOOR in made:
        found = {line.key for line in backdoor.read(kept.backdoor_file, kept.on_note)}
        for one in _backdoor_points(options):
            yield Planned(BACKDOOR, one.network, one.key in found, 2.0 * one.settings.rounds)
    if ODDS in made:
        found = {line.key for line in odds_lines.read(kept.odds_file, kept.on_note)}
        for each in _odds_points(options):
            yield Planned(ODDS, each.study.network, each.key in found, 2.0 * each.study.rounds)


def _show(left: list[Remaining], *, as_json: bool) -> None:
    if as_json:
        print_json({"remaining": [asdict(each) for each in left]})
        return
    for each in left:
        results().print(str(each))


def _grid_points(options: ReproductionOptions, made: dict[str, Artefact]) -> list[Point]:
    """The runs of the grids, each once; those of a grid of the user's, too."""
    grids = grids_of(made.values(), cast("Network | None", options.network))
    if options.grid is not None:
        grids.append(grid.load(options.grid))
    return list({point.key: point for each in grids for point in chosen_points(each, options)}.values())


def chosen_points(each: Grid, options: ReproductionOptions) -> list[Point]:
    """List the runs of a grid that were chosen: of the network that is named, where it has several.

    Args:
        each: The grid.
        options: Rows, seeds, network.

    """
    points = each.points(quick=options.quick, engine={"device": options.device}, seeds=options.seeds)
    networks = {point.network for point in points}
    wanted = networks & {options.network} or networks
    return [
        point for point in points if point.network in wanted and (not options.rows or point.row in options.rows)
    ]


def _backdoor_points(options: ReproductionOptions) -> list[backdoor.BackdoorPoint]:
    study = backdoor.QUICK if options.quick else backdoor.Study()
    if options.seeds:
        study = replace(study, seeds=options.seeds)
    return [p for p in study.points(device=options.device) if not options.rows or p.row in options.rows]


def _run_backdoor(options: ReproductionOptions, kept: Results, workroom: Path, console: Console) -> None:
    backdoor.run(
        _backdoor_points(options),
        kept.backdoor_file,
        workroom,
        on_point=lambda point, line: console.print(f"{point}: success {line.before:.3f}, then {line.after:.3f}"),
        on_note=lambda note: console.print(f"note: {note}"),
    )


def _odds_points(options: ReproductionOptions) -> list[growth.Point]:
    studies = [growth.QUICK, *growth.QUICK_AFTER] if options.quick else [growth.Study(), *growth.AFTER]
    if options.seeds:
        studies = [replace(study, seeds=options.seeds) for study in studies]
    return [point for study in studies for point in study.points(device=options.device)]


def _run_odds(options: ReproductionOptions, kept: Results, workroom: Path, console: Console) -> None:
    points = _odds_points(options)
    with loading(console) as on_progress, Bar(console, "federations", len(points)) as shown:
        growth.run(
            points,
            kept.odds_file,
            workroom,
            on_point=lambda point: _finished(point, console, shown),
            on_note=lambda note: console.print(f"note: {note}"),
            on_progress=on_progress,
        )


def _finished(point: growth.Point, console: Console, shown: Bar) -> None:
    shown.advance()
    if not console.is_terminal:
        console.print(f"odds: {point}")


def _render(options: ReproductionOptions, made: dict[str, Artefact], kept: Results) -> dict[str, list[Path]]:
    network = cast("Network | None", options.network)
    return {name: each.make(kept, options.out, network_of(each, network)) for name, each in made.items()}


class Watch:
    """Shows a campaign at work: a line for each run that is finished, and a bar of rounds with the time left."""

    def __init__(self, console: Console, points: Sequence[Point], paths: Places) -> None:
        self._console, self._points = console, points
        done = campaign.finished(paths, points)
        self._effort = {point.key: campaign.effort(point) for point in points if point.key not in done}
        self._of, self._done = len(points), len(done)
        self._left = sum(self._effort.values())
        self._bar = Bar(console, "rounds", round(self._left))
        self._started, self._worked = time.monotonic(), 0.0
        if done:
            console.print(f"{len(done)} of {len(points)} runs are finished already")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def began(self, point: Point) -> None:
        """See `Observer`."""

    def executed(self, done: Round) -> None:  # noqa: ARG002 - any round is one round
        """See `Observer`."""
        self._bar.advance()

    def ended(self, point: Point, line: Line) -> None:
        """See `Observer`."""
        self._done += 1
        self._left = max(0.0, self._left - self._effort[point.key])
        self._worked += self._effort[point.key]
        self._bar.update(total=self._bar.done + round(self._left))
        seconds = (time.monotonic() - self._started) / self._worked * self._left
        self._console.print(
            f"{self._done} of {self._of}: {point}: accuracy {line.accuracy:.3f}, {len(line.requests)} requests, "
            f"{sum(each.kind != 'trained' for each in line.rounds)} rounds again, {line.seconds:.1f} s; "
            f"about {_duration(seconds)} left"
        )

    def noted(self, note: str) -> None:
        """See `Observer`."""
        self._console.print(f"note: {note}")


def _duration(seconds: float) -> str:
    """A time as a person says it.

    >>> _duration(42), _duration(600), _duration(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / _MINUTE:.0f} min" if seconds < _HOUR else f"{seconds / _HOUR:.1f} h"
