"""`disavow requests` and `disavow cancel`."""

from __future__ import annotations

from pathlib import Path

from disavow.cli.output import print_json, results, size
from disavow.cli.rounds import rebuilt
from disavow.domain import ErasureRequest, escaped
from disavow.errors import ConfigError
from disavow.federation import Federation
from disavow.proof.summary import count_records


def requests(directory: Path, *, as_json: bool) -> None:
    """List all requests with state, verdict, cost and time taken."""
    with Federation.open(directory) as federation:
        found = federation.requests()
    if as_json:
        print_json({"run": str(directory), "requests": [{**r.to_json(), "client": r.client} for r in found]})
        return
    if not found:
        results().print("no requests")
        return
    console = results()
    console.print(
        "request  asked at (UTC)       state       verdict               "
        "rounds  client-epochs  retraining     taken  client",
        style="bold",
    )
    for request in found:
        cost = request.cost
        console.print(
            f"{request.number:7d}  {request.asked_at:%Y-%m-%d %H:%M:%S}  {request.state.value:10s}  "
            f"{request.verdict or '-'!s:20s}  {cost.rounds if cost else 0:6d}  "
            f"{cost.client_epochs if cost else 0:13,d}  {f'{cost.seconds:.1f} s' if cost else '-':>10s}  "
            f"{_taken(request):>8s}  {_whose(request)}"
        )
        if request.verdict is not None and request.verdict.in_full != str(request.verdict):
            console.print(f"         {request.verdict.in_full}")
        if request.remark:
            console.print(f"         {request.remark}")


def _whose(request: ErasureRequest) -> str:
    """Whose request it is, as long as that is known, and how many records it names."""
    if request.records is None:
        return escaped(request.client or "(erased)")
    return f"{count_records(request.records)} of {escaped(request.client) if request.client else '(erased)'}"


def _taken(request: ErasureRequest) -> str:
    if request.answered_at is None:
        return "-"
    return f"{(request.answered_at - request.asked_at).total_seconds():.1f} s"


def cancel(directory: Path, client: str | None, number: int | None, *, as_json: bool) -> None:
    """Cancel the request of a client, or of a number, that waits; whoever holds the run is not disturbed."""
    if (client is None) == (number is None):
        raise ConfigError("cancel wants a CLIENT, or --request and its number")
    with Federation.open(directory) as federation:
        request = federation.cancel(client if client is not None else number or 0)
    client = client or request.client
    if as_json:
        print_json({"run": str(directory), "request": {**request.to_json(), "client": client}})
    else:
        whose = "" if client is None else f"{escaped(client)}: "
        results().print(f"{whose}{sentence(request)}; it stays a client, and may ask again")


def sentence(request: ErasureRequest) -> str:
    """What became of a request, in words."""
    if request.cancelled_at is not None:
        return f"request {request.number}: cancelled {request.cancelled_at:%Y-%m-%d %H:%M:%S} UTC"
    cost = request.cost
    about = "" if request.records is None else f" ({count_records(request.records)})"
    parts = [request.verdict.in_full if request.verdict else request.state.value]
    if cost is not None and cost.rounds:
        parts.append(
            f"{rebuilt(request)}, {cost.client_epochs:,} client-epochs, "
            f"{size(cost.exchanged_bytes)} exchanged, {cost.seconds:.1f} s"
        )
    if request.remark:
        parts.append(request.remark)
    answered = f"; answered {request.answered_at:%Y-%m-%d %H:%M:%S} UTC" if request.answered_at else ""
    return f"request {request.number}{about}: " + "; ".join(parts) + answered
