"""Commands that say what a choice costs, and what a model reveals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from disavow.cli.base import LARGEST_SEED, Json, RunDirectory, TaskFactory, app
from disavow.cli.options import needs
from disavow.errors import ConfigError


@app.command(rich_help_panel="Studies")
def plan(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="A run, whose own numbers take the place of those that are not given."),
    ] = None,
    clients: Annotated[int | None, typer.Option(help="Clients that take part in every round.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds to train.")] = None,
    k: Annotated[
        list[int] | None, typer.Option(help="Least members of a cluster; several times to compare.")
    ] = None,
    x: Annotated[
        list[int] | None, typer.Option(help="Survivors a cluster must keep; several times to compare.")
    ] = None,
    representatives: Annotated[
        int | None,
        typer.Option(help="Members drawn of each cluster, s; then x + s - 1 survivors are needed. [default: 1]"),
    ] = None,
    request_rate: Annotated[float, typer.Option(help="The chance of an erasure request after each round.")] = 0.2,
    unit: Annotated[
        str,
        typer.Option(help="What requests are for: client, or record: some records of a client, which stays."),
    ] = "client",
    purge_every: Annotated[
        str | None,
        typer.Option(metavar="DAYS", help="Also foresee a purge of all leavers once a period, such as 30d."),
    ] = None,
    rounds_per_day: Annotated[float, typer.Option(help="With --purge-every: rounds that are trained a day.")] = 1.0,
    simulations: Annotated[int, typer.Option(help="Simulated runs a row; more give narrower intervals.")] = 4000,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal numbers.")] = 1,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw it: .png, .pdf or .svg.")] = None,
    json: Json = False,
) -> None:
    """Tell what erasures will cost before anything is trained, so that k and x can be chosen.

    Without RUN, `--clients`, `--rounds`, `--k` and `--x` are needed. Neither the data nor the task of a run is.

    **Example:** `disavow plan --clients 50 --rounds 50 --k 4 --k 8 --x 2 --x 3 --request-rate 0.2`

    **Example:** `disavow plan runs/first --k 4 --k 6`

    **Example:** `disavow plan runs/first --unit record`

    **Example:** `disavow plan runs/first --purge-every 30d --rounds-per-day 1`
    """
    with needs("train"):
        from disavow.cli import plan as command
    command.plan(
        run,
        clients=clients,
        rounds=rounds,
        ks=k or [],
        xs=x or [],
        representatives=representatives,
        request_rate=request_rate,
        unit=unit,
        simulations=simulations,
        seed=seed,
        plot=plot,
        as_json=json,
        purge_every=purge_every,
        rounds_per_day=rounds_per_day,
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
    odds: Annotated[
        float | None,
        typer.Option(help="With --rounds alone: find the noise that keeps every client's odds over all of them."),
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

    **Example:** `disavow account --rounds 50 --odds 10`
    """
    with needs("train"):
        from disavow.cli import account as command
        from disavow.cli.forecast import AccountOptions
    options = AccountOptions(
        rounds, clients, k, representatives, sigma, epsilon, delta, clip, model, parameters, odds
    )
    command.account_for(run, options, plot=plot, as_json=json)


@app.command(rich_help_panel="Studies")
def audit(
    run: RunDirectory,
    client: Annotated[str, typer.Option(metavar="ID", help="Who is audited: a client still in.")],
    record: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Audit this record of the client, and not all of it. Repeatable."),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The same for the keys in a file, one a line; - for stdin."),
    ] = None,
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
    purge: Annotated[
        bool,
        typer.Option("--purge", help="Purge the copy after the erasure: the model that is served then is audited."),
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw the ROC curves; .png, .pdf or .svg.")
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where worlds are kept until the audit ends. [default: RUN.audit]"),
    ] = None,
    task: TaskFactory = None,
    json: Json = False,
) -> None:
    """Attack a run's models for traces of a client: before it is erased, as served after, and retrained without it.

    The erasure is rehearsed in a scratch copy; the run stays as it is. An audit that was interrupted goes on when
    it is called again. Exit 1: an attacker tells the served model from retrained ones. Exit 16: none does, and the
    advantage of `--detect` could not have been seen with so few worlds.

    With `--record` or `--records` the client takes part everywhere, with these records or without them. With
    `--purge` the report also has the model that is served between the answer and the purge.

    **Example:** `disavow audit runs/first --client client-07`

    **Example:** `disavow audit runs/first --client client-07 --worlds 32 --shadows 8 --plot roc.png`

    **Example:** `disavow audit runs/first --client client-07 --detect 0.2`

    **Example:** `disavow audit runs/first --client hospital-3 --record patient-17`

    **Example:** `disavow audit runs/first --client client-07 --purge`
    """
    from disavow.cli.files import read_lines

    with needs("train"):
        from disavow.audit.audit import Effort, worlds_to_detect
        from disavow.cli import audit as command
    if worlds is None:
        worlds = Effort.worlds if detect is None else worlds_to_detect(detect)
    effort = Effort(worlds=worlds, shadows=shadows, forgings=forgings, seed=seed, detect=detect, purge=purge)
    keys = list(dict.fromkeys([*(record or ()), *(read_lines(records) if records else ())]))
    if records is not None and not keys:
        raise ConfigError(f"--records is {records}, which names none; allowed: the key of one record at least")
    command.audit_client(run, client, effort, plot=plot, work=work, task=task, records=keys, as_json=json)


@app.command(rich_help_panel="Studies")
def compare(
    run: RunDirectory,
    client: Annotated[str, typer.Option(metavar="ID", help="Who leaves: a client still in.")],
    record: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="This record of the client leaves, and not all of it. Repeatable."),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The same for the keys in a file, one a line; - for stdin."),
    ] = None,
    methods: Annotated[
        str,
        typer.Option(metavar="NAMES", help="Methods, with commas between them; all: whatever the run allows."),
    ] = "all",
    seeds: Annotated[
        int | None, typer.Option(help="Trainings of each scheme; the first is the run itself. [default: 3]")
    ] = None,
    references: Annotated[
        int | None, typer.Option(help="Exact retrainings of each scheme, at least 5. [default: 5]")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="One seed, three retrainings, and less effort for some measures.")
    ] = False,
    recompute_updates: Annotated[
        bool,
        typer.Option(
            "--recompute-updates",
            help="Compute what clients sent, where the run did not keep it; a server could not.",
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write table.md, table.csv, compare.json and pareto.svg and .png."),
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where pieces are kept, also afterwards. [default: RUN.compare, deleted]"),
    ] = None,
    task: TaskFactory = None,
    jobs: Annotated[
        int,
        typer.Option(
            min=1,
            max=64,
            help="Processes that work on it; on one GPU, too, which small networks do not fill. Seconds are then "
            "those of methods beside each other.",
        ),
    ] = 1,
    json: Json = False,
) -> None:
    """Compare methods of federated unlearning on one run: what each costs, and what it leaves of a client.

    Every method starts from the same training, gets the same request, and is measured beside exact retrainings,
    whose own scatter is the yardstick. The run is only read. A comparison that was interrupted goes on when it is
    called again. Exit 25: a method that was named needs clients' updates, which the run did not keep.

    **Example:** `disavow compare runs/first --client client-07`

    **Example:** `disavow compare runs/first --client client-07 --quick --recompute-updates --output compared`

    **Example:** `disavow compare runs/first --client client-07 --methods retrain,ours,fine-tune --seeds 5`

    **Example:** `disavow compare runs/first --client hospital-3 --record patient-17 --jobs 4`
    """
    from disavow.cli.files import read_lines

    with needs("train"):
        from disavow.cli import compare as command
        from disavow.compare.choice import Effort
    effort = Effort.chosen(seeds, references, quick=quick, recompute=recompute_updates)
    wanted = list(dict.fromkeys([*(record or ()), *(read_lines(records) if records else ())]))
    if records is not None and not wanted:
        raise ConfigError(f"--records is {records}, which names none; allowed: the key of one record at least")
    names = [name.strip() for name in methods.split(",") if name.strip()]
    if not names:
        raise ConfigError(f"--methods is {methods!r}, which names none; allowed: names of methods, or all")
    command.compare_methods(
        run,
        client,
        names,
        effort,
        records=wanted,
        output=output,
        work=work,
        task=task,
        jobs=jobs,
        as_json=json,
    )
