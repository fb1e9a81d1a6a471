"""`python -m benchmarks engines`: our engines and their peers side by side."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import torch
import typer

from benchmarks.engines import PEERS, BenchmarkSettings, compare
from benchmarks.engines.contestants.task import BATCH, EPOCHS, LEARNING_RATE
from benchmarks.engines.ours import ENGINES
from benchmarks.engines.passes import Contestant, Pass
from benchmarks.engines.report import Report, as_json, machine, remarks, rows
from benchmarks.engines.table import table
from disavow.cli.base import new_app
from disavow.cli.options import check_file, require
from disavow.cli.output import Bar, Console, progress, results
from disavow.models import NETWORKS

_INTERRUPTED = 130
_DEVICES = ("cpu", "cuda")
_FEWEST_CLIENTS = 2
_MOST = 1_000_000

app = new_app("engines")


@app.command()
def time_engines(
    device: Annotated[str, typer.Option(help="Where to run: cpu or cuda.")] = "cpu",
    passes: Annotated[int, typer.Option(help="Times that every contestant is started, taking turns.")] = 3,
    rounds: Annotated[int, typer.Option(help="Rounds to time in each pass, after those to warm up.")] = 3,
    peers: Annotated[
        str, typer.Option(help="Of flower, pfl and plain, with commas; or none.")
    ] = "flower,pfl,plain",
    engines: Annotated[
        str, typer.Option(help="Of auto, eager and sequential, with commas; or none.")
    ] = "auto,eager",
    network: Annotated[
        str, typer.Option(help="convnet, lenet5 or resnet-mini; peers know lenet5 only.")
    ] = "lenet5",
    clients: Annotated[int, typer.Option(help="Clients, all of which take part in every round.")] = 50,
    samples: Annotated[int, typer.Option(help="Images that each client holds.")] = 1200,
    federations: Annotated[int, typer.Option(help="Federations that our engines train at once.")] = 1,
    cache: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the peers' environments and the data are kept.")
    ] = Path("~/.cache/disavow/bench"),
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write every single time, as JSON.")
    ] = None,
) -> None:
    """Time rounds of our engines and of their peers side by side: Flower, pfl-research, a plain PyTorch loop.

    Peers are installed on first use, each into an environment of its own. One that cannot be is left out.

    **Example:** `python -m benchmarks engines --json bench.json`

    **Example:** `python -m benchmarks engines --peers none --engines auto --clients 1000 --samples 60`
    """
    settings = BenchmarkSettings(
        device=device,
        passes=passes,
        rounds=rounds,
        peers=_names("peers", peers, PEERS),
        engines=_names("engines", engines, ENGINES),
        network=network,
        clients=clients,
        samples=samples,
        federations=federations,
    )
    _check(settings)
    if json_file is not None:
        check_file("json", json_file)
    report = _run(settings, cache)
    if json_file is not None:
        json_file.write_text(json.dumps(as_json(report), indent=2) + "\n", encoding="utf-8")
    _print(report)
    if not rows(report):
        raise typer.Exit(1)


def _names(option: str, text: str, known: Mapping[str, object]) -> tuple[str, ...]:
    """Names between commas, each once; `none` for none of them."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if names == ("none",):
        return ()
    require(set(names) <= known.keys(), option, text, f"none, or some of {', '.join(known)}, with commas between")
    return names


def _check(settings: BenchmarkSettings) -> None:
    """Refuse before anything is built what could not be run."""
    require(settings.device in _DEVICES, "device", settings.device, ", ".join(_DEVICES))
    there = settings.device == "cpu" or torch.cuda.is_available()
    require(there, "device", settings.device, "cpu; PyTorch sees no GPU here")
    require(settings.network in NETWORKS, "network", settings.network, ", ".join(NETWORKS))
    for option in ("passes", "rounds", "samples", "federations"):
        value = getattr(settings, option)
        require(1 <= value <= _MOST, option, value, f"1 to {_MOST:,}")
    allowed = f"{_FEWEST_CLIENTS} to {_MOST:,}"
    require(_FEWEST_CLIENTS <= settings.clients <= _MOST, "clients", settings.clients, allowed)
    require(
        bool(settings.peers or settings.engines), "engines", "none", "at least one engine where --peers is none"
    )
    alone = settings.federations == 1 and settings.device == "cpu"
    fits = alone or "sequential" not in settings.engines
    require(fits, "engines", "sequential", "auto, eager; it runs on the CPU, one federation at a time")


def _run(settings: BenchmarkSettings, cache: Path) -> Report:
    console = progress()
    total = settings.passes * (len(settings.peers) + len(settings.engines))
    try:
        with Bar(console, "benchmark", total) as shown:
            return compare(
                settings,
                cache=cache,
                on_note=console.print,
                on_start=lambda contestant, number: _begin(shown, contestant, number),
                on_pass=lambda done: _tell(console, shown, done),
            )
    except KeyboardInterrupt:
        print("interrupted; nothing was kept", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None


def _begin(shown: Bar, contestant: Contestant, number: int) -> None:
    shown.update(what=f"pass {number}: {contestant.name}")


def _tell(console: Console, shown: Bar, done: Pass) -> None:
    shown.advance()
    if done.failure is not None:
        console.print(f"pass {done.number}  {done.contestant}: failed, {done.failure}")
        return
    seconds = ", ".join(f"{value:.3g}" for value in done.seconds)
    console.print(f"pass {done.number}  {done.contestant}: {seconds} s a round")


def _print(report: Report) -> None:
    console, settings, here = results(), report.settings, machine(str(report.settings["device"]))
    console.print(
        f"{settings['network']}, {report.data}: {settings['clients']} clients of {settings['samples']:,} images, "
        f"{EPOCHS} epochs, batch {BATCH}, SGD {LEARNING_RATE}\n"
        f"{here['device']}; {here['processor']}, {here['cores']} cores; torch {here['torch']}\n"
        f"median of {settings['passes']} passes of {settings['rounds']} rounds after {settings['warmup']} "
        "to warm up; x: times as fast as\n"
    )
    console.rich.print(table(report))
    for remark in remarks(report):
        console.print(remark)
