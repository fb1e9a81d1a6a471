"""Commands that say what a choice costs, and what a model reveals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from disavow.cli.base import LARGEST_SEED, Json, RunDirectory, app
from disavow.cli.extras import needs


@app.command(rich_help_panel="Studies")
def plan(
    clients: Annotated[int, typer.Option(help="Clients that take part in every round.")],
    rounds: Annotated[int, typer.Option(help="Rounds to train.")],
    k: Annotated[list[int], typer.Option(help="Least members of a cluster; several times to compare.")],
    x: Annotated[list[int], typer.Option(help="Survivors a cluster must keep; several times to compare.")],
    representatives: Annotated[
        int, typer.Option(help="Members drawn of each cluster, s; then x + s - 1 survivors are needed.")
    ] = 1,
    request_rate: Annotated[float, typer.Option(help="The chance of an erasure request after each round.")] = 0.2,
    simulations: Annotated[int, typer.Option(help="Simulated runs a row; more give narrower intervals.")] = 4000,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal numbers.")] = 1,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw it: .png, .pdf or .svg.")] = None,
    json: Json = False,
) -> None:
    """Tell what erasures will cost before anything is trained, so that k and x can be chosen.

    **Example:** `disavow plan --clients 50 --rounds 50 --k 4 --k 8 --x 2 --x 3 --request-rate 0.2`
    """
    with needs("train"):
        from disavow.cli import plan as command
    command.plan(
        clients=clients,
        rounds=rounds,
        ks=k,
        xs=x,
        representatives=representatives,
        request_rate=request_rate,
        simulations=simulations,
        seed=seed,
        plot=plot,
        as_json=json,
    )


@app.command(rich_help_panel="Studies")
def account(
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="The run directory; without it, one is thought of.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Without RUN: rounds to execute.")] = None,
    clients: Annotated[int | None, typer.Option(help="Without RUN: clients that take part in every round.")] = None,
    k: Annotated[int | None, typer.Option(help="Without RUN: least members of a cluster.")] = None,
    representatives: Annotated[
        int | None, typer.Option(help="Without RUN: members drawn of each cluster. [default: 1]")
    ] = None,
    sigma: Annotated[
        float | None, typer.Option(help="Noise of each cluster, in units of 2C/representatives.")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Instead of --sigma: find the noise that keeps to it.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="The delta of every figure. [default: the run's, else 1e-5]")
    ] = None,
    clip: Annotated[float | None, typer.Option(help="C, the largest L2 norm of an update. [default: 1]")] = None,
    model: Annotated[
        str | None, typer.Option(help="Network that the noise is held against. [default: lenet5]")
    ] = None,
    parameters: Annotated[
        int | None, typer.Option(help="Instead of --model: how many numbers the model has.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw ε over rounds: .png, .pdf or .svg.")
    ] = None,
    json: Json = False,
) -> None:
    """Tell what a run has cost in differential privacy, what one would cost, or the noise for a given cost.

    Each figure comes with the observer it holds against, what it assumes, and the size of the noise against the
    largest update. Superseded rounds count: they were released.

    **Example:** `disavow account runs/first`

    **Example:** `disavow account --rounds 50 --clients 50 --k 10 --sigma 1 --delta 1e-5`

    **Example:** `disavow account --rounds 50 --clients 50 --k 10 --epsilon 8 --plot account.png`
    """
    with needs("train"):
        from disavow.cli import account as command
        from disavow.cli.prospect import Asked
    asked = Asked(rounds, clients, k, representatives, sigma, epsilon, delta, clip, model, parameters)
    command.account_for(run, asked, plot=plot, as_json=json)


@app.command(rich_help_panel="Studies")
def audit(
    run: RunDirectory,
    client: Annotated[str, typer.Option(metavar="ID", help="Who is audited: a client still in.")],
    worlds: Annotated[
        int | None,
        typer.Option(
            help="Federations trained again, half with the client, half without; even, at least 32. [default: 64]"
        ),
    ] = None,
    detect: Annotated[
        float | None,
        typer.Option(
            metavar="ADVANTAGE",
            help="An attacker's advantage that is to be seen, 0.2 say; chooses --worlds where that is not given.",
        ),
    ] = None,
    shadows: Annotated[int, typer.Option(help="Shadow federations that LiRA learns from; even, at least 4.")] = 32,
    forgings: Annotated[
        int, typer.Option(help="Forgeries of each standing round, from other representatives.")
    ] = 10,
    seed: Annotated[
        int, typer.Option(min=0, max=LARGEST_SEED, help="Draws the held-out records, shadows and worlds.")
    ] = 1,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw the ROC curves; .png, .pdf or .svg.")
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where worlds are kept until the audit ends. [default: RUN.audit]"),
    ] = None,
    json: Json = False,
) -> None:
    """Attack a run's models for traces of a client: before it is erased, as served after, and retrained without it.

    The erasure is rehearsed in a scratch copy; the run stays as it is. An audit that was interrupted goes on when
    it is called again. Exit 1: an attacker tells the served model from retrained ones. Exit 16: none does, and the
    advantage of `--detect` could not have been seen with so few worlds.

    **Example:** `disavow audit runs/first --client client-07`

    **Example:** `disavow audit runs/first --client client-07 --worlds 32 --shadows 8 --plot roc.png`

    **Example:** `disavow audit runs/first --client client-07 --detect 0.2`
    """
    with needs("train"):
        from disavow.audit.audit import Effort, worlds_to_detect
        from disavow.cli import audit as command
    if worlds is None:
        worlds = Effort.worlds if detect is None else worlds_to_detect(detect)
    effort = Effort(worlds=worlds, shadows=shadows, forgings=forgings, seed=seed, detect=detect)
    command.audit_client(run, client, effort, plot=plot, work=work, as_json=json)


@app.command(rich_help_panel="Studies")
def bench(
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
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write every single time, as JSON.")
    ] = None,
) -> None:
    """Time rounds of our engines and of their peers side by side: Flower, pfl-research, a plain PyTorch loop.

    Peers are installed on first use, each into an environment of its own. One that cannot be is left out.

    **Example:** `disavow bench --json bench.json`

    **Example:** `disavow bench --peers none --engines auto --clients 1000 --samples 60`
    """
    with needs("train"):
        from disavow.cli import bench as command
    command.bench(
        device=device,
        passes=passes,
        rounds=rounds,
        peers=peers,
        engines=engines,
        network=network,
        clients=clients,
        samples=samples,
        federations=federations,
        cache=cache,
        json_file=json,
    )


@app.command(rich_help_panel="Studies")
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME...",
            help="Of lenet5-accuracy, resnet-accuracy, lenet5-time, resnet-time, accuracy-curves, unlearning-time, "
            "storage, distance-to-fedavg, work, odds; or all.",
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
        str | None, typer.Option(help="Whose runs figures show. [default: convnet; for storage lenet5]")
    ] = None,
    device: Annotated[str, typer.Option(help="Where to train: auto, cpu or cuda.")] = "auto",
    streams: Annotated[int, typer.Option(min=50, max=1_000_000, help="Streams of requests behind `work`.")] = 4000,
    grid: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A grid of your own, as TOML, whose runs are made too.")
    ] = None,
    results: Annotated[
        Path, typer.Option(metavar="DIR", help="Where every run's line is kept; finished runs are not repeated.")
    ] = Path("results"),
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where tables and figures go.")] = Path("reproduction"),
    work: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where runs are while they are made. [default: OUT/.work]")
    ] = None,
    render_only: Annotated[
        bool, typer.Option("--render-only", help="Run nothing; what was not run says so.")
    ] = False,
    json: Json = False,
) -> None:
    """Redo the paper's experiments: every table and figure, with the paper's cell beside ours.

    Runs are real, with a ledger and every request honoured; those that begin alike share their rounds. What is
    interrupted goes on where it was, and finished runs are never repeated.

    **Example:** `disavow reproduce all --quick`

    **Example:** `DISAVOW_DATA_DIR=data disavow reproduce lenet5-accuracy lenet5-time --row MNIST-iid`
    """
    with needs("train"):
        from disavow.cli import reproduce as command
    asked = command.Asked(
        names=tuple(names or ()),
        quick=quick,
        rows=tuple(row or ()),
        seeds=tuple(seed or ()),
        network=network,
        device=device,
        streams=streams,
        grid=grid,
        results=results,
        out=out,
        work=work,
        render_only=render_only,
    )
    command.reproduce(asked, as_json=json)
