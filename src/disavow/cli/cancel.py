"""`disavow cancel`."""

from __future__ import annotations

from pathlib import Path

from disavow.cli.erase import sentence
from disavow.cli.output import print_json, results
from disavow.domain import escaped
from disavow.federation import Federation


def cancel(directory: Path, client: str, *, as_json: bool) -> None:
    """Cancel the request of a client that waits; whoever holds the run is not disturbed."""
    with Federation.open(directory) as federation:
        request = federation.cancel(client)
    if as_json:
        print_json({"run": str(directory), "request": {**request.to_json(), "client": client}})
    else:
        results().print(f"{escaped(client)}: {sentence(request)}; it stays a client, and may ask again")
