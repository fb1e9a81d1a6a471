"""A small federation to try the service on: it trains, and three of its clients have asked to leave.

One is answered, one waits for an approval because it takes a rollback, one is paused.
"""

from __future__ import annotations

from pathlib import Path

from disavow import config
from disavow.domain import VerdictKind
from disavow.federation import Federation
from disavow.ledger.rows import time_to_text
from disavow.proof.keys import generate
from disavow.rounds.options import now

NAME = "demo"
_CLIENTS, _FIRST_ROUNDS, _ROUNDS = 12, 3, 60
_BY = "the demo"


def make_demo(folder: Path) -> Path:
    """Make the federation in a folder, where it is not there yet.

    Args:
        folder: Where runs lie.

    Returns:
        The folder of its keys.

    """
    directory, keys = folder / NAME, folder / f"{NAME}.keys"
    if directory.exists():
        return keys
    folder.mkdir(parents=True, exist_ok=True)
    generate(keys, name=NAME, passphrase=None, at=time_to_text(now()))
    settings = config.from_values(
        {
            "rounds": _ROUNDS,
            "data": {"clients": _CLIENTS},
            "clustering": {"k": 3},
            "deniability": {"x": 2, "purge": "deadline"},
            "requests": {"approval": "rollback"},
        },
        source="demo",
    )
    with Federation.create(directory, settings, keys=keys) as federation:
        federation.train(rounds=_FIRST_ROUNDS)
        first = min(federation.ledger.membership(1), key=lambda group: (len(group), sorted(group)))
        federation.erase(sorted(first)[:1], by=_BY)
        verdicts = dict(federation.departures(most=_CLIENTS))
        undoing = [client for client, verdict in verdicts.items() if verdict.kind is VerdictKind.ROLLBACK]
        waiting = (undoing or sorted(verdicts))[0]
        paused = next(client for client in sorted(verdicts, reverse=True) if client != waiting)
    with Federation.open(directory, keys=keys) as federation:
        [_, number] = federation.place([waiting, paused], by=_BY)
        federation.pause(number, by=_BY, reason="the signature on the letter is another one")
    return keys
