"""All commands, each with an example in its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from disavow import __version__
from disavow.cli.extras import needs

app = typer.Typer(
    name="disavow",
    help="Federated learning whose clients can leave.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
RunDirectory = Annotated[Path, typer.Argument(metavar="RUN", help="The run directory.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"disavow {__version__}")
        raise typer.Exit


@app.callback()
def disavow(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Federated learning whose clients can leave."""


@app.command()
def demo(
    run: Annotated[
        Path | None, typer.Option("--run", metavar="DIR", help="Where to write the run. [default: runs/demo]")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds to train.")] = 20,
    json: Json = False,
) -> None:
    """Train a federation of 20 clients on real handwritten digits, let some of them leave, check the ledger.

    Nothing is downloaded. The demo uses seeded draws, so that everybody sees the same numbers.

    **Example:** `disavow demo`
    """
    with needs("train"):
        from disavow.cli import demo as command
    command.demo(run, rounds=rounds, as_json=json)


@app.command()
def init(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="The file to write; - prints it instead.")
    ] = Path("config.toml"),
) -> None:
    """Write a commented settings file with every key at its default.

    **Example:** `disavow init config.toml`
    """
    with needs("train"):
        from disavow.cli import init as command
    command.init(config)


@app.command()
def train(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="Settings in TOML; `disavow init` writes one.")],
    run: Annotated[Path, typer.Option("--run", metavar="DIR", help="Where to write the run; must be new.")],
    json: Json = False,
) -> None:
    """Train a federation and keep its ledger. Interrupt it at any moment; `disavow resume` goes on.

    **Example:** `disavow train config.toml --run runs/first`
    """
    with needs("train"):
        from disavow.cli import train as command
    command.train(config, run, as_json=json)


@app.command()
def resume(run: RunDirectory, json: Json = False) -> None:
    """Go on with a run that was interrupted; a run that is complete stays as it is.

    **Example:** `disavow resume runs/first`
    """
    with needs("train"):
        from disavow.cli import train as command
    command.resume(run, as_json=json)


@app.command()
def status(run: RunDirectory, json: Json = False) -> None:
    """Show what a run holds: its policy, its rounds, its accuracy, its size on disk.

    **Example:** `disavow status runs/first`
    """
    with needs("train"):
        from disavow.cli import status as command
    command.status(run, as_json=json)


@app.command()
def fsck(
    run: RunDirectory,
    absent: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Also prove that no file of the run contains this id; may be repeated."),
    ] = None,
    json: Json = False,
) -> None:
    """Check a run from its stored bytes: every digest, every invariant. Exit 1 names what is wrong.

    **Example:** `disavow fsck runs/first --absent client-07`
    """
    with needs("train"):
        from disavow.cli import fsck as command
    command.fsck(run, absent=absent or [], as_json=json)


@app.command()
def erase(
    run: RunDirectory,
    clients: Annotated[list[str], typer.Argument(metavar="CLIENT...", help="Who asks to be forgotten.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would cost; change nothing.")] = False,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for another process that holds the run to answer.")
    ] = 60,
    openings: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to write the leavers' openings. [default: beside the run]"),
    ] = None,
    skip_fsck: Annotated[
        bool, typer.Option("--skip-fsck", help="Do not check the whole ledger first (large runs).")
    ] = False,
    json: Json = False,
) -> None:
    """Honour the wish of clients to be forgotten: at once where it is deniable, by retraining where it is not.

    Asking twice gives the first answer. A run that is being trained honours the request between two rounds. A proof
    of each answer is kept with the run; its opening, which says whom it is about, is written outside it.

    **Example:** `disavow erase runs/first client-07 --dry-run`
    """
    with needs("train"):
        from disavow.cli import erase as command
    command.erase(run, clients, dry_run=dry_run, wait=wait, skip_fsck=skip_fsck, openings=openings, as_json=json)


@app.command()
def requests(run: RunDirectory, json: Json = False) -> None:
    """List all erasure requests: state, verdict, cost, time taken.

    **Example:** `disavow requests runs/first`
    """
    with needs("train"):
        from disavow.cli import erase as command
    command.requests(run, as_json=json)


@app.command()
def keygen(
    folder: Annotated[
        Path | None, typer.Option("--folder", metavar="DIR", help="Where keys lie. [default: DISAVOW_KEYS]")
    ] = None,
    name: Annotated[
        str, typer.Option(help="Whose key it is, such as a host name; no spaces, no plus.")
    ] = "disavow",
    rotate: Annotated[bool, typer.Option("--rotate", help="Retire the key there is and make a new one.")] = False,
    no_passphrase: Annotated[
        bool, typer.Option("--no-passphrase", help="Leave the private key unencrypted, readable by you alone.")
    ] = False,
    json: Json = False,
) -> None:
    """Make the key that signs the logs and proofs of your runs. An existing key is never overwritten.

    The passphrase is asked for, or taken from DISAVOW_PASSPHRASE.

    **Example:** `disavow keygen --name fl.example.org`
    """
    from disavow.cli import keygen as command

    command.keygen(folder, name=name, rotate=rotate, no_passphrase=no_passphrase, as_json=json)


@app.command()
def prove(
    run: RunDirectory,
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="Whom the proof is about.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write the proof.")],
    openings: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write the opening. [default: beside the run]")
    ] = None,
    json: Json = False,
) -> None:
    """Write the proof of an answered erasure; for a client still in, what it would be if it asked now.

    **Example:** `disavow prove runs/first client-07 -o proof.json`
    """
    with needs("train"):
        from disavow.cli import prove as command
    command.prove(run, client, output, openings, as_json=json)


@app.command()
def receipt(
    run: RunDirectory,
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="Whom the receipts are for.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where to write them.")],
    number: Annotated[int | None, typer.Option("--round", help="Only the receipt for this round.")] = None,
    json: Json = False,
) -> None:
    """Write what a client keeps of its rounds, so that it can later hold the server to them.

    **Example:** `disavow receipt runs/first client-07 -o receipts/`
    """
    with needs("train"):
        from disavow.cli import prove as command
    command.receipt(run, client, output, number, as_json=json)


@app.command()
def checkpoint(
    run: RunDirectory,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write it. [default: print it]")
    ] = None,
) -> None:
    """Give out the signed head of a run's log. Whoever keeps it notices if history is rewritten.

    **Example:** `disavow checkpoint runs/first -o head.note`
    """
    with needs("train"):
        from disavow.cli import prove as command
    command.checkpoint(run, output)


@app.command()
def export(
    run: RunDirectory,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write the model.")],
    json: Json = False,
) -> None:
    """Write the model that a run serves as a safetensors file; its SHA-256 is the subject of the run's proofs.

    **Example:** `disavow export runs/first -o model.safetensors`
    """
    with needs("train"):
        from disavow.cli import prove as command
    command.export(run, output, as_json=json)


@app.command()
def verify(
    proof: Annotated[Path, typer.Argument(metavar="PROOF", help="A proof, or a receipt.")],
    key: Annotated[Path, typer.Option(metavar="FILE", help="The server's public key, or its list of keys.")],
    opening: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The leaver's opening: who the proof is about.")
    ] = None,
    receipts: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Receipts of the leaver, to hold the server to them.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The model in use: it must be the one in the proof.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A checkpoint kept from before: history must not change.")
    ] = None,
    what_if: Annotated[bool, typer.Option("--what-if", help="Accept a what-if instead of an erasure.")] = False,
    json: Json = False,
) -> None:
    """Check a proof offline. Exit 0: valid; 1: invalid; 2: unreadable; 3: valid, but without an opening.

    **Example:** `disavow verify proof.json --key signing.pub --opening opening.json`
    """
    from disavow.cli import verify as command

    command.verify(
        proof,
        key=key,
        opening=opening,
        receipts=receipts,
        model=model,
        checkpoint=checkpoint,
        what_if=what_if,
        as_json=json,
    )


@app.command(name="show-proof")
def show_proof(
    proof: Annotated[Path, typer.Argument(metavar="PROOF", help="A proof.")],
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The server's public key. [default: the one in the log]")
    ] = None,
    json: Json = False,
) -> None:
    """Say in words what a proof says: what was asked, what was answered, and what is not claimed.

    **Example:** `disavow show-proof proof.json`
    """
    from disavow.cli import verify as command

    command.show(proof, key=key, as_json=json)


@app.command()
def plan(
    clients: Annotated[int, typer.Option(help="Clients that take part in every round.")],
    rounds: Annotated[int, typer.Option(help="Rounds to train.")],
    k: Annotated[list[int], typer.Option(help="Least members of a cluster; several times to compare.")],
    x: Annotated[list[int], typer.Option(help="Survivors a cluster must keep; several times to compare.")],
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
        request_rate=request_rate,
        simulations=simulations,
        seed=seed,
        plot=plot,
        as_json=json,
    )


@app.command()
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
