"""What can be reproduced: each table and figure by name, the runs it is made of, and how it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from disavow.errors import ConfigError
from reproduction import backdoor, backdoor_table, figures, grid, lines, odds_lines, studies, tables, work_report
from reproduction.composed_odds import composed_odds_table
from reproduction.drawing import METHODS
from reproduction.grid import Grid
from reproduction.lines import EDITION, Line, Network
from reproduction.records import OnNote
from reproduction.rollback_effect import rollback_effect_table
from reproduction.storage_table import storage as storage_table
from reproduction.table import Table

Make = Callable[["Results", Path, Network], list[Path]]


@dataclass(frozen=True)
class Results:
    """The folder with the results files, and which of them count: those of the small version, or the others."""

    folder: Path
    quick: bool = False
    on_note: OnNote = lambda note: None
    edition: int = EDITION

    @property
    def odds_file(self) -> Path:
        """Where the study of odds keeps its lines."""
        return self.folder / f"odds{'-quick' * self.quick}.jsonl"

    @property
    def backdoor_file(self) -> Path:
        """Where the study of backdoors keeps its lines."""
        return self.folder / f"backdoor{'-quick' * self.quick}.jsonl"

    @property
    def work_file(self) -> Path:
        """Where the work per request is kept."""
        return self.folder / "work.json"

    @property
    def purge_work_file(self) -> Path:
        """Where the work of a month of requests is kept."""
        return self.folder / "purge-work.md"

    def lines(self, study: str = "", edition: int | None = None) -> list[Line]:
        """Every run of a study that is finished; of the paper's tables, where none is named.

        Args:
            study: As the grid names it.
            edition: Of the grid; None: the one that tables are to show.

        """
        patterns = [f"{study}-*.jsonl"] if study else [f"{network}-*.jsonl" for network in get_args(Network)]
        files = [file for pattern in patterns for file in sorted(self.folder.glob(pattern))]
        found = [line for file in files for line in lines.read(file, self.on_note)]
        wanted = edition or self.edition
        return [line for line in lines.latest(found) if line.quick == self.quick and line.edition == wanted]


@dataclass(frozen=True)
class Artefact:
    """A table or a figure. `grid` holds the runs of it; without one it has runs of its own, or none."""

    about: str
    make: Make
    grid: str | None = None
    network: Network | None = None
    """The paper's, where another could be shown."""


def _table(of: Callable[[Iterable[Line], Network], Table], name: str) -> Make:
    def make(results: Results, out: Path, network: Network) -> list[Path]:
        return _written(of(results.lines(), network), out / name)

    return make


def _written(table: Table, path: Path) -> list[Path]:
    files = [path.with_suffix(".md"), path.with_suffix(".csv")]
    for file, text in zip(files, (table.markdown(), table.csv()), strict=True):
        file.write_text(text, encoding="utf-8")
    return files


def _curves(results: Results, out: Path, network: Network) -> list[Path]:
    found = results.lines()
    return [
        file
        for method in METHODS
        for file in figures.accuracy_curves(
            found, out / f"accuracy-curves-{method}", network=network, method=method
        )
    ]


def _accuracy_by_k(results: Results, out: Path, network: Network) -> list[Path]:
    return list(figures.accuracy_by_k(results.lines(), out / "accuracy-by-k", network=network))


def _unlearning_time(results: Results, out: Path, network: Network) -> list[Path]:
    return figures.unlearning_time(results.lines(), out / "unlearning-time", network=network)


def _storage(results: Results, out: Path, network: Network) -> list[Path]:
    found = results.lines("storage", grid.packaged("storage").edition)
    drawn = figures.storage(found, out / "storage", network=network)
    return [*_written(storage_table(found, network), out / "storage"), *drawn]


def _distance(results: Results, out: Path, network: Network) -> list[Path]:
    return list(figures.distance_to_fedavg(results.lines(), out / "distance-to-fedavg", network=network))


def _study(name: str) -> Make:
    def make(results: Results, out: Path, network: Network) -> list[Path]:  # noqa: ARG001 - it shows all of its own
        points = grid.packaged(name).points(quick=results.quick)
        table = studies.study_table(studies.STUDIES[name], points, _lines_of(results, points[0].study))
        return _written(table, out / name)

    return make


def _lines_of(results: Results, study: str) -> list[Line]:
    """Of a study beyond the paper's grid: beside tables of an older edition, the first that it has."""
    return results.lines(study, max(results.edition, studies.SINCE_EDITION))


def _rollbacks(results: Results, out: Path, network: Network) -> list[Path]:  # noqa: ARG001 - it shows two
    out.mkdir(parents=True, exist_ok=True)
    table = out / "rollbacks.md"
    table.write_text(rollback_effect_table(results.lines()), encoding="utf-8")
    return [table]


def _accuracy(results: Results, out: Path, network: Network) -> list[Path]:
    written = _study("accuracy")(results, out, network)
    return [*written, *figures.accuracy(_lines_of(results, "skew"), out / "accuracy")]


def _skew(results: Results, out: Path, network: Network) -> list[Path]:
    written = _study("skew")(results, out, network)
    return [*written, *figures.skew(_lines_of(results, "skew"), out / "skew")]


def _trade_off(results: Results, out: Path, network: Network) -> list[Path]:
    written = _study("trade-off")(results, out, network)
    return [*written, *figures.trade_off(_lines_of(results, "tradeoff"), out / "trade-off")]


def _backdoor(results: Results, out: Path, network: Network) -> list[Path]:  # noqa: ARG001 - it shows all of its own
    found = backdoor.read(results.backdoor_file, results.on_note)
    return _written(backdoor_table.backdoor(found, quick=results.quick), out / BACKDOOR)


def _odds(results: Results, out: Path, network: Network) -> list[Path]:  # noqa: ARG001 - it has one of its own
    found = odds_lines.read(results.odds_file, results.on_note)
    table = out / "odds-composed.md"
    table.write_text(composed_odds_table(found), encoding="utf-8")
    return [*figures.odds(found, out / "odds"), table, *figures.composed_odds(found, out / "odds-composed")]


def _lacks(results: Results, report: Path) -> bool:
    """Say whether a report was not made yet, to whoever looks on: other tables are rendered without it."""
    lacking = not report.exists()
    if lacking:
        results.on_note(f"{report} is not there: {report.stem} was not run")
    return lacking


def _work(results: Results, out: Path, network: Network) -> list[Path]:  # noqa: ARG001 - no network plays a part
    if _lacks(results, results.work_file):
        return []
    report, table = work_report.read(results.work_file), out / "work.md"
    out.mkdir(parents=True, exist_ok=True)
    table.write_text(work_report.markdown(report), encoding="utf-8")
    return [table, *figures.work(report, out / "work")]


def _purge_work(results: Results, out: Path, network: Network) -> list[Path]:  # noqa: ARG001 - nor here
    if _lacks(results, results.purge_work_file):
        return []
    try:
        text = results.purge_work_file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"the report {results.purge_work_file} cannot be read ({error.strerror})") from None
    out.mkdir(parents=True, exist_ok=True)
    written = out / results.purge_work_file.name
    written.write_text(text, encoding="utf-8")
    return [written]


ODDS, WORK, PURGE_WORK, BACKDOOR = "odds", "work", "purge-work", "backdoor"


def _tables_of(grid_name: Network, prefix: str, title: str) -> dict[str, Artefact]:
    """The tables of a network."""
    kinds: dict[str, tuple[str, Callable[[Iterable[Line], Network], Table]]] = {
        "accuracy": (f"accuracy of {title}", tables.accuracy),
        "time": (f"time and work per request, {title}", tables.time),
        "answers": (f"accuracy at the answer and work of whole runs, {title}", tables.answers),
    }
    return {
        f"{prefix}-{kind}": Artefact(about, _table(of, f"{prefix}-{kind}"), grid_name)
        for kind, (about, of) in kinds.items()
    }


ARTEFACTS: dict[str, Artefact] = {
    **_tables_of("lenet5", "lenet5", "LeNet5"),
    **_tables_of("resnet-mini", "resnet", "ResNet-mini"),
    **_tables_of("convnet", "convnet", "ConvNet"),
    "accuracy-curves": Artefact("accuracy over rounds", _curves, "convnet", "convnet"),
    "accuracy-by-k": Artefact("accuracy minus FedAvg's by k", _accuracy_by_k, "convnet", "convnet"),
    "unlearning-time": Artefact("time spent on requests over rounds", _unlearning_time, "convnet", "convnet"),
    "storage": Artefact("bytes on disk", _storage, "storage", "lenet5"),
    "distance-to-fedavg": Artefact("distance to FedAvg's model over rounds", _distance, "convnet", "convnet"),
    "rollbacks": Artefact("what rollbacks do to accuracy", _rollbacks),
    "accuracy": Artefact("accuracy when nobody leaves", _accuracy, "accuracy"),
    "skew": Artefact("clients with different labels", _skew, "skew"),
    "skew-requests": Artefact(
        "rollbacks where clients hold different labels", _study("skew-requests"), "skew-requests"
    ),
    "large-k": Artefact("what brings accuracy back at large k", _study("large-k"), "large-k"),
    "last-batch": Artefact("large k without a last batch of four images", _study("last-batch"), "last-batch"),
    "trade-off": Artefact("accuracy, rollbacks and odds against Δ and s", _trade_off, "trade-off"),
    BACKDOOR: Artefact("what is left of a leaver's backdoor after each kind of answer", _backdoor),
    WORK: Artefact("client-epochs per request over many streams", _work),
    PURGE_WORK: Artefact("client-epochs of a month of requests that is purged once", _purge_work),
    ODDS: Artefact("accuracy against the odds, for more and more clients", _odds),
}
"""Everything by name."""

ALL = "all"


def chosen(names: Sequence[str]) -> dict[str, Artefact]:
    """The artefacts of these names, each once."""
    unknown = [name for name in names if name not in (*ARTEFACTS, ALL)]
    if unknown:
        raise ConfigError(f"there is no {unknown[0]} to reproduce; allowed: {', '.join((*ARTEFACTS, ALL))}")
    return {name: made for name, made in ARTEFACTS.items() if name in names or ALL in names}


def grids_of(artefacts: Iterable[Artefact], network: Network | None) -> list[Grid]:
    """The grids that hold their runs, each once; `network` takes the place of the paper's in figures."""
    names = dict.fromkeys(
        network if network and made.network and made.grid != "storage" else made.grid for made in artefacts
    )
    return [grid.packaged(name) for name in names if name is not None]


def network_of(made: Artefact, network: Network | None) -> Network:
    """Whose runs an artefact shows."""
    if made.network is not None:
        return network or made.network
    return cast("Network", made.grid) if made.grid in get_args(Network) else "lenet5"
