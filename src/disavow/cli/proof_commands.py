"""Commands about proofs; `verify`, `verifier` and `show-proof` are all that an auditor needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from disavow.cli.base import MOST_ROUNDS, Force, Json, RunDirectory, app
from disavow.cli.options import needs
from disavow.errors import ConfigError

Recipient = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="NAME", help="Record who receives it, for `disavow releases`; sealed, no client's id."
    ),
]


@app.command(rich_help_panel="Proofs")
def keygen(
    folder: Annotated[
        Path | None, typer.Option("--folder", metavar="DIR", help="Where keys lie. [default: DISAVOW_KEYS]")
    ] = None,
    name: Annotated[
        str, typer.Option(help="Whose key it is, such as a host name; no spaces, no plus.")
    ] = "disavow",
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Replace the key there is, and destroy its private half.")
    ] = False,
    revoke: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Mark a replaced key as revoked: nothing that it signed is accepted."),
    ] = None,
    rewrap: Annotated[
        bool, typer.Option("--rewrap", help="Encrypt the private key anew, with the same passphrase.")
    ] = False,
    no_passphrase: Annotated[
        bool, typer.Option("--no-passphrase", help="Leave the private key unencrypted, readable by you alone.")
    ] = False,
    json: Json = False,
) -> None:
    """Make the key that signs the logs and proofs of your runs. An existing key is never overwritten.

    The passphrase is asked for, or taken from DISAVOW_PASSPHRASE. A key that somebody else may have is replaced
    first and then revoked.

    **Example:** `disavow keygen --name fl.example.org`

    **Example:** `disavow keygen --revoke 3f9a1c07`
    """
    from disavow.cli import keygen as command

    if sum((rotate, rewrap, revoke is not None)) > 1:
        raise ConfigError("keygen does one thing at a time: --rotate, --revoke or --rewrap")
    if revoke is not None:
        command.revoke(folder, revoke, as_json=json)
    elif rewrap:
        command.rewrap(folder, as_json=json)
    else:
        command.keygen(folder, name=name, rotate=rotate, no_passphrase=no_passphrase, as_json=json)


@app.command(rich_help_panel="Proofs")
def prove(
    run: RunDirectory,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write the proof.")],
    client: Annotated[str | None, typer.Argument(metavar="CLIENT", help="Whom the proof is about.")] = None,
    request: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The request that it answers, in the place of CLIENT.")
    ] = None,
    openings: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write the opening. [default: beside the run]")
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write the proof of an answered erasure; for a client still in, what it would be if it asked now.

    The proof of an erasure is renewed: it is of the model served now, and of the log up to now. The opening that
    the leaver was given stays good for it. What was proved with the answer stays in the run.

    **Example:** `disavow prove runs/first client-07 -o proof.json`

    **Example:** `disavow prove runs/first --request 1 -o proof.json`
    """
    with needs("ledger"):
        from disavow.cli import prove as command
    command.prove(run, client, request, output, openings, force=force, as_json=json)


@app.command(rich_help_panel="Proofs")
def receipt(
    run: RunDirectory,
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="Whom the receipts are for.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where to write them.")],
    number: Annotated[
        int | None, typer.Option("--round", min=1, max=MOST_ROUNDS, help="Only the receipt for this round.")
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write what a client keeps of its rounds, so that it can later hold the server to them.

    **Example:** `disavow receipt runs/first client-07 -o receipts/`
    """
    with needs("ledger"):
        from disavow.cli import prove as command
    command.receipt(run, client, output, number, force=force, as_json=json)


@app.command(rich_help_panel="Proofs")
def checkpoint(
    run: RunDirectory,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write it. [default: print it]")
    ] = None,
    force: Force = False,
) -> None:
    """Give out the signed head of a run's log. Whoever keeps it notices if history is rewritten.

    **Example:** `disavow checkpoint runs/first -o head.note`
    """
    with needs("ledger"):
        from disavow.cli import prove as command
    command.checkpoint(run, output, force=force)


@app.command(rich_help_panel="Proofs")
def export(
    run: RunDirectory,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write the model.")],
    average: Annotated[
        int,
        typer.Option(
            min=1, max=MOST_ROUNDS, metavar="N", help="Write the mean of the models after the last N rounds."
        ),
    ] = 1,
    to: Recipient = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also while rounds that a rollback undid are still to be rebuilt.")
    ] = False,
    since: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="In the statement, the log since head N: that of a proof about an earlier model.",
        ),
    ] = None,
    serving: Annotated[
        bool, typer.Option("--serving/--no-serving", help="Write the serving statement, too, or not.")
    ] = True,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write the model that a run serves as a safetensors file; its SHA-256 is the subject of the run's proofs.

    With large clusters few updates enter a round, and single rounds are better or worse by chance; the mean of the
    last five models is steadier, and tells nobody more than they do. While a model learns fast, it lags behind.

    While a rebuild is unfinished, there is only an earlier model or a half-trained one: exit 11 unless `--anyway`.

    Beside the model, in FILE.serving.json, the run's key signs which model is served as of which head of the log.
    Whoever is shown a proof holds it against that: `disavow verify --serving`.

    **Example:** `disavow export runs/first -o model.safetensors`

    **Example:** `disavow export runs/first -o steady.safetensors --average 5`

    **Example:** `disavow export runs/first -o model.safetensors --to "Ministry of Health"`
    """
    with needs("ledger"):
        from disavow.cli import prove as command
    command.export(
        run,
        output,
        average=average,
        anyway=anyway,
        serving=serving,
        since=since,
        force=force,
        as_json=json,
        to=to,
    )


@app.command(rich_help_panel="Proofs")
def verify(
    proof: Annotated[Path, typer.Argument(metavar="PROOF", help="A proof, or a receipt.")],
    key: Annotated[Path, typer.Option(metavar="FILE", help="The server's public key, or its list of keys.")],
    opening: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The leaver's opening: who the proof is about.")
    ] = None,
    client: Annotated[
        str | None, typer.Option(metavar="ID", help="Whom the opening must be about, compared byte for byte.")
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
    word: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The client's signed word that it removed the records."),
    ] = None,
    witness: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            help="A witness who must have cosigned: its verifier key, or a file with such.",
        ),
    ] = None,
    quorum: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="How many of the witnesses must have. [default: all]")
    ] = None,
    serving: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="What the server says it serves: it must be a model that the proof is about."
        ),
    ] = None,
    what_if: Annotated[bool, typer.Option("--what-if", help="Accept a what-if instead of an erasure.")] = False,
    json: Json = False,
) -> None:
    """Check a proof offline. Exit 0: valid; 1: invalid; 2: unreadable; 3: valid, but without an opening; 13: a good
    proof, but of another model than the one given.

    With --serving the model of --model is the one that the server says it serves, which may be a later one.

    Two ids can look alike: with --client the id in the opening must be the one you mean, byte for byte.

    **Example:** `disavow verify proof.json --key signing.pub --opening opening.json --client client-07`

    **Example:** `disavow verify proof.json --key signing.pub --witness witnesses.txt --quorum 2`
    **Example:** `disavow verify proof.json --key signing.pub --serving model.safetensors.serving.json`
    """
    from disavow.cli import verify as command

    command.verify(
        proof,
        key=key,
        opening=opening,
        client=client,
        receipts=receipts,
        model=model,
        checkpoint=checkpoint,
        word=word,
        witnesses=witness or (),
        quorum=quorum,
        serving=serving,
        what_if=what_if,
        as_json=json,
    )


@app.command(name="export-adapter", rich_help_panel="Proofs")
def export_adapter(
    run: RunDirectory,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="A folder that is made.")],
    adapter_config: Annotated[
        Path | None,
        typer.Option("--adapter-config", metavar="FILE", help="PEFT's adapter_config.json, for a run on Flower."),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="FOLDER", help="The base of a run on Flower, where FILE names another."),
    ] = None,
    to: Recipient = None,
    json: Json = False,
) -> None:
    """Write the adapter that a run serves, as a folder of PEFT: a run of the task `adapters`, or one on Flower.

    `peft.PeftModel.from_pretrained(base, FOLDER)` loads it. A file in it names the SHA-256 of the base that it
    belongs to, and that of the run's model, which is the subject of the run's proofs.

    A run on Flower knows arrays and not what they mean: FILE says it. Its model becomes adapter_model.safetensors
    byte for byte, so that `disavow verify --model` takes that file.

    **Example:** `disavow export-adapter runs/tofu -o adapter/`

    **Example:** `disavow export-adapter runs/tofu -o adapter/ --to "Ministry of Health"`

    **Example:** `disavow export-adapter runs/flower -o adapter/ --adapter-config saved/adapter_config.json`
    """
    with needs("train"):
        from disavow.cli import export_adapter as command
    command.export_adapter(run, output, adapter_config=adapter_config, base=base, to=to, as_json=json)


@app.command(rich_help_panel="Proofs")
def verifier(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write the page.")],
    force: Force = False,
    json: Json = False,
) -> None:
    """Write a page that checks proofs in any browser, for whoever has no Python: one HTML file, without network.

    It makes the checks of `disavow verify`, written a second time from the format of proofs. Give it to an auditor
    together with a proof; the public key the auditor gets elsewhere.

    **Example:** `disavow verifier -o verify.html`
    """
    from disavow.cli import verifier as command

    command.verifier(output, force=force, as_json=json)


@app.command(rich_help_panel="Proofs")
def evidence(
    run: RunDirectory,
    request: Annotated[int, typer.Argument(metavar="REQUEST", min=1, help="The number of the request.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FOLDER", help="Where to write it: a folder that is new or empty."),
    ],
    with_opening: Annotated[
        bool,
        typer.Option("--with-opening", help="Put the client's opening in, which says who the client is."),
    ] = False,
    openings: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the opening lies. [default: beside the run]")
    ] = None,
    no_pdf: Annotated[bool, typer.Option("--no-pdf", help="Print no PDF, though a Chromium is at hand.")] = False,
    json: Json = False,
) -> None:
    """Write what goes on record about a request: a document in plain language, the proof, and what checks it.

    It can be made at any time, before an answer too; it then says how far the request is. Nothing in it names the
    client, unless `--with-opening` asks for that.

    **Example:** `disavow evidence runs/first 3 -o evidence-3`
    """
    with needs("ledger"):
        from disavow.cli import evidence as command
    command.evidence(run, request, output, openings, with_opening=with_opening, pdf=not no_pdf, as_json=json)


@app.command(name="show-proof", rich_help_panel="Proofs")
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
    from disavow.cli import show_proof as command

    command.show(proof, key=key, as_json=json)
