"""`disavow evidence`: the evidence pack of a request, as a folder."""

from __future__ import annotations

from pathlib import Path

from disavow.cli.output import print_json, progress, results
from disavow.cli.passphrase import ask_passphrase
from disavow.evidence.pack import DOCUMENT, OPENING, check_folder, make_pack, write_folder
from disavow.federation import Federation

_NAMES_CLIENT = (
    f"{OPENING} says who the client is and ties the proof to it. Give this folder to the client alone, and delete "
    "it afterwards; without --with-opening nothing in it names the client."
)


def evidence(
    directory: Path,
    number: int,
    folder: Path,
    openings: Path | None,
    *,
    with_opening: bool,
    pdf: bool,
    as_json: bool,
) -> None:
    """Write the pack, and say what is in it."""
    check_folder(folder, directory)
    with Federation.open(directory, ask=ask_passphrase, openings=openings) as federation:
        pack = make_pack(federation, number, with_opening=with_opening, pdf=pdf)
    write_folder(pack, folder)
    if as_json:
        listed = {
            name: {"sha256": digest, "bytes": len(pack.files[name]), "about": pack.about(name)}
            for name, digest in pack.digests.items()
        }
        print_json(
            {
                "run": str(directory),
                "request": number,
                "state": pack.request.state.value,
                "folder": str(folder),
                "files": listed,
                "names_client": pack.named,
                "no_pdf": pack.no_pdf or None,
            }
        )
    else:
        console = results()
        console.print(f"evidence of request {number} ({pack.request.state.value}) written to {folder}")
        for name in pack.files:
            console.print(f"  {name:18s}  {pack.about(name)}")
        console.print(f"Open {folder / DOCUMENT} first.")
    if pack.no_pdf:
        progress().print(f"no PDF: {pack.no_pdf}")
    if pack.named:
        progress().print(f"WARNING: {_NAMES_CLIENT}")
