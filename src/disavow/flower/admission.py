"""Clients that are known by their node's number, which they lose when the federation is started again.

Behind a number that is new to the run could be anybody, a leaver too. So no run goes on with other numbers than its
own, and where somebody has been erased, none admits a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from disavow.errors import ConfigError
from disavow.flower.identity import by_number, is_number
from disavow.ledger import Ledger

Tell = Callable[[str], None]
"""Warns whoever reads the log."""

_LINE = 'the line `app.query("disavow")(answer)` in the ClientApp, which says who a node is'


def refuse_other_numbers(ledger: Ledger, nodes: Collection[int], here: Collection[str], warn: Tell) -> None:
    """Refuse to go on with a run whose clients are known by numbers of which no node has any now.

    `nodes` are connected, `here` are the clients as which they are known now. Clients with better ids may take over
    a run from which nobody has been erased; once they have, it is theirs.
    """
    known = ledger.clients()
    lost = [client for client in known if is_number(client)]
    if not lost or len(lost) < len(known) or not {by_number(node).client for node in nodes}.isdisjoint(lost):
        return
    told = (
        f"{ledger.directory} knows its {len(lost)} clients by the numbers of their nodes ({lost[0]}, ...), and "
        "none of these nodes is here: Flower gives other numbers when a federation is started again"
    )
    if ledger.requests():
        raise ConfigError(
            f"{told}; somebody has asked to be forgotten, and could be behind any of them; allowed: "
            f"another directory for `ledger`, with {_LINE}, or with authenticated nodes"
        )
    if any(is_number(client) for client in here):
        raise ConfigError(f"{told}; allowed: {_LINE}; or authenticated nodes; or another directory for `ledger`")
    warn(
        f"{told}; the run goes on with clients whose ids last, and a request must name a client by both of its ids"
    )


def admitted(ledger: Ledger, newcomers: Sequence[str], warn: Tell) -> list[str]:
    """Those of these newcomers who may become clients: a new number only while nobody has been erased."""
    numbers = [client for client in newcomers if is_number(client)]
    if not numbers:
        return list(newcomers)
    if ledger.requests():
        warn(
            f"{', '.join(numbers)}: new to a run from which somebody has been erased, who could be behind a new "
            f"number; not admitted. Needed: another directory for `ledger`, and {_LINE}"
        )
        return [client for client in newcomers if client not in numbers]
    if ledger.clients():
        warn(f"{', '.join(numbers)}: admitted by number, though nobody can say whether they were here before")
    else:
        warn(
            "the app does not say who its nodes are: they go by Flower's numbers, which do not survive a restart "
            f"of the federation; this run cannot go on then. Needed: {_LINE} (docs/flower.md)"
        )
    return list(newcomers)
