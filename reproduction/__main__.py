"""`python -m reproduction`: the paper's tables and figures, and ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from disavow.cli import run
from disavow.cli.base import LARGEST_SEED, Json, new_app
from disavow.cli.options import needs_requirements
from reproduction.lines import EDITION

app = new_app("reproduction")


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME...",
            help="Of lenet5-accuracy, lenet5-time, lenet5-answers, the same of resnet- and convnet-, "
            "accuracy-by-k, accuracy-curves, unlearning-time, storage, distance-to-fedavg, rollbacks, accuracy, "
            "skew, skew-requests, large-k, last-batch, trade-off, backdoor, work, purge-work, odds; or all.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option(help="A small version on embedded digits, for a CPU.")] = False,
    row: Annotated[
        list[str] | None,
        typer.Option(help="Only this row, such as MNIST-iid; several times for more."),
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(min=0, max=LARGEST_SEED, help="Instead of the grid's; several times for more."),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            help="Whose runs figures show [default: convnet; for storage lenet5], and studies make [default: all]."
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="Where to train: auto, cpu or cuda.")] = "auto",
    jobs: Annotated[
        int,
        typer.Option(
            min=1,
            max=64,
            help="Groups of runs (a row, network and seed each) that are made at the same time, in processes of "
            "their own; on one GPU, too, which small networks do not fill.",
        ),
    ] = 1,
    streams: Annotated[
        int, typer.Option(min=50, max=1_000_000, help="Streams of requests behind `work` and `purge-work`.")
    ] = 4000,
    grid: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A grid of your own, as TOML, whose runs are made too.")
    ] = None,
    results: Annotated[
        Path, typer.Option(metavar="DIR", help="Where every run's line is kept; finished runs are not repeated.")
    ] = Path("results"),
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where tables and figures go.")] = Path(
        "build/reproduction"
    ),
    work: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where runs are while they are made. [default: OUT/.work]")
    ] = None,
    render_only: Annotated[
        bool, typer.Option("--render-only", help="Run nothing; what was not run says so.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Run nothing; count the runs that are made and those that are missing."),
    ] = False,
    edition: Annotated[
        int,
        typer.Option(
            min=1, max=EDITION, help="Whose lines tables and figures show; older ones only with --render-only."
        ),
    ] = EDITION,
    json: Json = False,
) -> None:
    """Redo the paper's experiments: every table and figure, with the paper's cell beside ours.

    Runs are real, with a ledger and every request honoured; those that begin alike share their rounds. What is
    interrupted goes on where it was, and finished runs are never repeated.

    **Example:** `python -m reproduction all --quick`

    **Example:** `python -m reproduction all --dry-run`

    **Example:** `DISAVOW_DATA_DIR=data python -m reproduction lenet5-accuracy lenet5-time --row MNIST-iid`
    """
    with needs_requirements("reproduction/requirements.txt"):
        from reproduction import command
    options = command.ReproductionOptions(
        names=tuple(names or ()),
        quick=quick,
        rows=tuple(row or ()),
        seeds=tuple(seed or ()),
        network=network,
        device=device,
        jobs=jobs,
        streams=streams,
        grid=grid,
        results=results,
        out=out,
        work=work,
        render_only=render_only,
        edition=edition,
        dry_run=dry_run,
    )
    command.reproduce(options, as_json=json)


if __name__ == "__main__":
    run(app)
