"""Where proofs and openings lie: a proof with its run, an opening anywhere but inside it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from disavow.errors import ConfigError, Unreadable
from disavow.ledger import Reader
from disavow.ledger.proofs import ProofStore
from disavow.proof.opening import Opening

OPENINGS_SUFFIX = ".openings"


def default_openings(run: Path) -> Path:
    """Name the folder where openings go unless somebody says otherwise: beside the run, never in it.

    Args:
        run: The run directory.

    """
    run = run.resolve()
    return run.with_name(run.name + OPENINGS_SUFFIX)


def check_openings(folder: Path, run: Path) -> Path:
    """Refuse a folder for openings or receipts that lies inside the run, or is no folder.

    Args:
        folder: The folder, which is returned.
        run: The run directory.

    Raises:
        ConfigError: It cannot be used.

    """
    if (folder.exists() or folder.is_symlink()) and not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder; openings and receipts need one")
    if folder.resolve().is_relative_to(run.resolve()):
        raise ConfigError(f"{folder} lies inside {run}; openings and receipts are never kept in the run")
    return folder


def proof_path(run: Path, request: int) -> Path:
    """Name the file of the proof of an answered request.

    Args:
        run: The run directory.
        request: The request's number.

    """
    return ProofStore(run).path(request)


def unsigned_path(run: Path, request: int) -> Path:
    """Name the file of the statement of a request that was answered without a key.

    Args:
        run: The run directory.
        request: The request's number.

    """
    return ProofStore(run).path(request, signed=False)


def second_proof_path(run: Path, request: int) -> Path:
    """Name the file of the second proof of a request, made once none of its rounds stands.

    Args:
        run: The run directory.
        request: The request's number.

    """
    return ProofStore(run).path(request, purged=True)


def opening_path(openings: Path, run_id: str, request: int) -> Path:
    """Name the file of the opening of a request; two runs may share the folder.

    Args:
        openings: The folder.
        run_id: The run.
        request: The request's number.

    """
    return openings / f"request-{request}-{run_id[:8]}.json"


def kept_openings(openings: Path, run_id: str) -> dict[int, Path]:
    """Find the openings of a run that lie in a folder.

    Args:
        openings: The folder; it need not be there.
        run_id: The run.

    Returns:
        The files, by the number of their request.

    """
    return {
        int(number): path
        for path in openings.glob(f"request-*-{run_id[:8]}.json")
        if (number := path.name.split("-")[1]).isdecimal()
    }


def word_path(openings: Path, run_id: str, request: int) -> Path:
    """Name the file of a client's word that it removed the records of a request.

    Args:
        openings: The folder.
        run_id: The run.
        request: The request's number.

    """
    return openings / f"word-{request}-{run_id[:8]}.json"


def request_opened_for(reader: Reader, openings: Path, client: str) -> int | None:
    """Find the request of a client who was forgotten by its opening: nothing else tells whose a request was.

    Args:
        reader: The run.
        openings: The folder of openings.
        client: The client's id.

    Returns:
        The number of the request; None where its opening is not there any more.

    """
    found = kept_openings(openings, reader.run_id)
    newest_first = sorted(found, reverse=True)  # whoever returned and left again has several
    return next((each for each in newest_first if names_asker(reader, found[each], each, client)), None)


def names_asker(reader: Reader, path: Path, number: int, client: str) -> bool:
    """Say whether a file is the opening of a request and says that this client asked.

    Requests are numbered again in a run that was restored from a backup: so the log must say the same.

    Args:
        reader: The run.
        path: The file.
        number: The request.
        client: The client's id.

    """
    try:
        opening = Opening.decode(path.read_bytes())
    except (OSError, Unreadable):
        return False
    if opening.client != client or opening.run_id != reader.run_id or opening.salt is None:
        return False
    return reader.opens_request(number, client=client, salt=opening.salt)


def what_if_path(openings: Path, run_id: str, client: str) -> Path:
    """Name the file of the opening of a what-if: the erasure of that client finds it there, and removes it.

    Args:
        openings: The folder.
        run_id: The run.
        client: The client's id.

    """
    return openings / f"what-if-{hashlib.sha256(f'{run_id}/{client}'.encode()).hexdigest()[:12]}.json"
