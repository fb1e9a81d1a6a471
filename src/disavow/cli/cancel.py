"""`disavow cancel`."""

from __future__ import annotations

from pathlib import Path

from disavow.cli.erase import request_as_json, sentence
from disavow.cli.output import print_json, results
from disavow.domain import escaped
from disavow.errors import RunError
from disavow.ledger import Ledger
from disavow.ledger.keys import default_folder
from disavow.rounds.conduct import now


def cancel(directory: Path, client: str, *, as_json: bool) -> None:
    """Cancel the request of a client that waits; whoever holds the run is not disturbed."""
    with Ledger.open(directory, shared=True) as ledger:
        if client in ledger.restored_from_backup(default_folder()).clients:
            raise RunError(
                f"{escaped(client)} left this run before it was restored from a backup, and has its proof: "
                "the request cannot be cancelled"
            )
        number = ledger.cancel_request(client, at=now())
        [request] = ledger.requests([number])
    if as_json:
        print_json({"run": str(directory), "request": {**request_as_json(request), "client": client}})
    else:
        results().print(f"{escaped(client)}: {sentence(request)}; it stays a client, and may ask again")
