"""`disavow ask`: a request for erasure, from a Flower node."""

from __future__ import annotations

from pathlib import Path

from disavow.cli.output import print_json, results
from disavow.domain import escaped
from disavow.flower.node_requests import SignedRequest, ask_erasure


def ask(evidence: Path, *, records: list[str] | None, key: Path | None, run: str | None, as_json: bool) -> None:
    """Write a request into a node's folder of evidence."""
    path = ask_erasure(evidence, records=records or None, node_key=key, run=run)
    request = SignedRequest.decode(path.read_bytes()).request
    if as_json:
        print_json(
            {
                "request": str(path),
                "run": request.run_id,
                "client": request.client,
                "unit": request.unit,
                "records": list(request.records),
                "signed": key is not None,
                "asked_at": request.asked_at,
            }
        )
        return
    what = f"{len(request.records)} records of" if request.records else "all of"
    console = results()
    console.print(f"asked    {what} {escaped(request.client)}, in run {request.run_id}")
    console.print(f"request  {path}")
    if key is None:
        console.print("It is not signed: servers refuse it unless they were told not to (docs/flower.md).")
    console.print("The node's next reply carries it; the answer will lie beside it.")
