"""`disavow releases`: what is out, what of it is superseded, and a notice to whoever has it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from disavow.cli.output import print_json, results
from disavow.domain import Release, escaped, model_name
from disavow.errors import ConfigError
from disavow.federation import Federation
from disavow.ledger.files import write_durably
from disavow.ledger.keys import refuse_inside


def releases(directory: Path, *, notices: Path | None, as_json: bool) -> None:
    """List what was released, and write the notices that are due."""
    with Federation.open(directory) as federation:
        found, served, run_id = (
            federation.releases(),
            federation.ledger.served_model_digest(),
            federation.ledger.run_id,
        )
        if notices is not None:
            federation.ledger.keyring.count()  # without the keyring nobody knows whom to tell
    written = [] if notices is None else _write_notices(directory, notices, found, run_id, served)
    if as_json:
        shown = [each.to_json() for each in found]
        print_json({"run": str(directory), "releases": shown, "notices": [str(path) for path in written]})
        return
    console = results()
    if not found:
        console.print("no releases: `disavow export --to NAME` records one")
        return
    console.print("release  released at (UTC)    model         made in        state       recipient", style="bold")
    for each in found:
        made = (
            f"round {each.round}" if each.averaged == 1 else f"rounds {each.round - each.averaged + 1}-{each.round}"
        )
        console.print(
            f"{each.number:7d}  {each.released_at:%Y-%m-%d %H:%M:%S}  {each.digest[:12]}  "
            f"{made if each.round else 'initial':13s}  {'superseded' if each.superseded else 'stands':10s}  "
            f"{'(no keyring)' if each.recipient is None else escaped(each.recipient)}"
        )
    for path in written:
        console.print(f"notice: {path}")


def _write_notices(directory: Path, folder: Path, found: Sequence[Release], run_id: str, served: str) -> list[Path]:
    """Write one notice for each recipient of superseded models; a notice that is there already is replaced."""
    refuse_inside(folder, directory, "--notices")
    superseded: dict[str, list[Release]] = {}
    for each in found:
        if each.superseded and each.recipient is not None:
            superseded.setdefault(each.recipient, []).append(each)
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for recipient, theirs in superseded.items():
            # by the number of the first of them: a name may hold anything that a file name may not
            path = folder / f"notice-{theirs[0].number}-{run_id[:8]}.txt"
            write_durably(path, notice(recipient, theirs, run_id, served).encode(), mode=0o600)
            written.append(path)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}; allowed: a folder for notices") from None
    return written


def notice(recipient: str, superseded: Sequence[Release], run_id: str, served: str) -> str:
    """Say to a recipient which of its models are superseded. It names nobody else.

    Args:
        recipient: Who received them.
        superseded: What is superseded.
        run_id: The run that made them.
        served: The digest of the model that is served now.

    """
    lines = [
        f"To: {recipient}",
        "",
        "Notice of an erasure (GDPR Art. 17 and 19)",
        "",
        f"You received from the federation {run_id} models that are superseded: data that entered them was erased",
        "since. Please stop using them, delete all copies of them, and tell whoever received them from you.",
        "",
    ]
    for each in superseded:
        lines += [
            f"  SHA-256     {each.digest}",
            f"  received    {each.released_at:%Y-%m-%d %H:%M} UTC, {_made(each)}",
            f"  superseded  {each.superseded_at:%Y-%m-%d %H:%M} UTC",
            "",
        ]
    return "\n".join([*lines, "The model that is served now has the SHA-256", "", f"  {served}", ""])


def _made(release: Release) -> str:
    if release.averaged == 1:
        return model_name(release.round)
    return f"the mean of the models after rounds {release.round - release.averaged + 1} to {release.round}"
