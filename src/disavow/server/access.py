"""Who may do what: one table of routes and roles. What is not in it, nobody may do.

The table is data: `authorize` asks it before every route, `docs/generate.py` prints it into docs/server.md, and a
test walks every route with every role against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What somebody may do; one person may have several."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    APPROVER = "approver"
    AUDITOR = "auditor"
    CLIENT = "client"


ABOUT = {
    Role.VIEWER: "sees runs, rounds and requests, and no client's id",
    Role.OPERATOR: "files requests, forecasts them, pauses, extends and cancels them; starts purges; hands over "
    "openings; sees who asks, and for which records",
    Role.APPROVER: "approves or refuses requests; sees who asks, and for which records",
    Role.AUDITOR: "reads proofs, evidence and the log; sees no client's id",
    Role.CLIENT: "its own request alone, each call signed with its node key",
}

STAFF = frozenset({Role.VIEWER, Role.OPERATOR, Role.APPROVER, Role.AUDITOR})
"""Everybody who works here."""

SEE_CLIENTS = frozenset({Role.OPERATOR, Role.APPROVER})
"""Who is shown the ids of clients, and the keys of the records that a request names."""

PUBLIC: frozenset[Role] | None = None
"""Open to anybody, without a credential."""

_OPERATOR = frozenset({Role.OPERATOR})
_FORECAST = frozenset({Role.OPERATOR, Role.APPROVER})
_APPROVER = frozenset({Role.APPROVER})
_OWN = frozenset({Role.CLIENT})
_PROOFS = frozenset({Role.OPERATOR, Role.APPROVER, Role.AUDITOR, Role.CLIENT})
_RECORDS = frozenset({Role.OPERATOR, Role.AUDITOR})


@dataclass(frozen=True)
class Rule:
    """Who may call one route.

    Args:
        method: Of HTTP; HEAD goes with GET.
        path: The path of the route, with its parameters in braces.
        roles: Of which whoever calls needs one; None lets everybody.
        about: What it does, in a few words.

    """

    method: str
    path: str
    roles: frozenset[Role] | None
    about: str


def _page(path: str, roles: frozenset[Role] | None, about: str) -> tuple[Rule, Rule]:
    """A page and its JSON."""
    return Rule("GET", path, roles, about), Rule("GET", f"{path}.json", roles, f"{about}, as JSON")


RULES: tuple[Rule, ...] = (
    Rule("GET", "/healthz", PUBLIC, "the process answers"),
    Rule("GET", "/readyz", PUBLIC, "its database and its runs can be read"),
    Rule("GET", "/metrics", STAFF, "figures for Prometheus"),
    Rule("GET", "/v1/openapi.json", PUBLIC, "the description of this interface"),
    Rule("GET", "/v1/whoami", STAFF | _OWN, "who is asking, with which roles"),
    Rule("GET", "/v1/runs", STAFF, "list runs"),
    Rule("GET", "/v1/runs/{run}", STAFF, "show a run"),
    Rule("GET", "/v1/runs/{run}/rounds", STAFF, "list rounds"),
    Rule("GET", "/v1/runs/{run}/account", STAFF, "the privacy account"),
    Rule("GET", "/v1/runs/{run}/releases", STAFF, "models that were given to somebody"),
    Rule("GET", "/v1/runs/{run}/departures", _FORECAST, "who could leave now, with what verdict"),
    Rule("GET", "/v1/runs/{run}/purge", STAFF, "what a purge would do now, and by when one is due"),
    Rule("POST", "/v1/runs/{run}/purge", _OPERATOR, "have the worker purge, as forecast"),
    Rule("GET", "/v1/runs/{run}/serving", STAFF | _OWN, "the signed statement of the model that is served"),
    Rule("GET", "/v1/runs/{run}/log/checkpoint", STAFF | _OWN, "the newest signed head of the log"),
    Rule("GET", "/v1/runs/{run}/log/inclusion", STAFF | _OWN, "prove that a leaf is in the log"),
    Rule("GET", "/v1/runs/{run}/log/consistency", STAFF | _OWN, "prove that the log only grew"),
    Rule("GET", "/v1/runs/{run}/key", STAFF | _OWN, "the public key that signs the log"),
    Rule("POST", "/v1/forecasts", _FORECAST, "what an erasure would come to"),
    Rule("POST", "/v1/records/holders", _OPERATOR, "who holds some records, wherever they are"),
    Rule("POST", "/v1/requests", _OPERATOR | _OWN, "file a request"),
    Rule("GET", "/v1/requests", STAFF, "list requests"),
    Rule("POST", "/v1/requests/search", _FORECAST, "find the request of a client"),
    Rule("GET", "/v1/requests/{request}", STAFF | _OWN, "show a request"),
    Rule("GET", "/v1/requests/{request}/forecast", _FORECAST, "what it would come to now"),
    Rule("POST", "/v1/requests/{request}/approval", _APPROVER, "approve it, as forecast"),
    Rule("POST", "/v1/requests/{request}/denial", _APPROVER, "refuse it, with a reason"),
    Rule("POST", "/v1/requests/{request}/cancellation", _OPERATOR | _OWN, "cancel it while it waits"),
    Rule("POST", "/v1/requests/{request}/extension", _OPERATOR, "move its deadline, with a reason"),
    Rule("POST", "/v1/requests/{request}/pause", _OPERATOR, "pause it while identity is in doubt"),
    Rule("POST", "/v1/requests/{request}/resumption", _OPERATOR, "end the pause"),
    Rule("GET", "/v1/requests/{request}/proof", _PROOFS, "its proof; once it is purged, the second one"),
    Rule("GET", "/v1/requests/{request}/evidence", _PROOFS, "its evidence pack as an archive, without opening"),
    Rule("GET", "/v1/requests/{request}/opening", _OPERATOR, "the leaver's opening, to be handed over"),
    Rule("DELETE", "/v1/requests/{request}/opening", _OPERATOR, "delete it, once it is handed over"),
    Rule("POST", "/v1/verifications", STAFF | _OWN, "verify a proof"),
    Rule("GET", "/v1/tokens", _RECORDS, "list API tokens, never the tokens themselves"),
    Rule("GET", "/v1/access", STAFF, "this table"),
    Rule("POST", "/v1/webhooks", _OPERATOR, "add a webhook"),
    Rule("GET", "/v1/webhooks", _RECORDS, "list webhooks"),
    Rule("DELETE", "/v1/webhooks/{webhook}", _OPERATOR, "remove a webhook"),
    Rule("GET", "/v1/deliveries", _RECORDS, "list deliveries; those given up are the dead letters"),
    Rule("POST", "/v1/deliveries/{delivery}/retry", _OPERATOR, "try a dead letter again"),
    Rule("GET", "/opendsr/v2/discovery", PUBLIC, "what of OpenDSR is spoken here"),
    Rule("GET", "/opendsr/v2/certificate", PUBLIC, "the certificate that signs receipts and callbacks"),
    Rule("POST", "/opendsr/v2/requests", _OPERATOR, "file a request of a data subject"),
    Rule("GET", "/opendsr/v2/requests/{subject_request_id}", _OPERATOR, "its status"),
    Rule("DELETE", "/opendsr/v2/requests/{subject_request_id}", _OPERATOR, "cancel it"),
    Rule("GET", "/login", PUBLIC, "the page to log in, or the single-use link"),
    Rule("GET", "/login/oidc", PUBLIC, "log in at the OpenID Connect provider"),
    Rule("GET", "/login/oidc/callback", PUBLIC, "back from the provider"),
    Rule("POST", "/logout", STAFF, "end the session"),
    Rule("GET", "/static/{name}", PUBLIC, "htmx and the style sheet"),
    Rule("GET", "/", STAFF, "the overview"),
    Rule("GET", "/index.json", STAFF, "the overview, as JSON"),
    *_page("/requests", STAFF, "all requests"),
    *_page("/requests/new", _OPERATOR, "the form for a new request"),
    Rule("POST", "/requests/new", _OPERATOR, "forecast a new request, in that form"),
    Rule("POST", "/requests", _OPERATOR, "file a request, from that form"),
    *_page("/requests/{request}", STAFF, "a request: history, forecast, verdict, proof"),
    *_page("/requests/{request}/checks", _PROOFS - _OWN, "the checks of its proof"),
    Rule("POST", "/requests/{request}/approval", _APPROVER, "approve it, from its page"),
    Rule("POST", "/requests/{request}/denial", _APPROVER, "refuse it, from its page"),
    Rule("POST", "/requests/{request}/cancellation", _OPERATOR, "cancel it, from its page"),
    Rule("POST", "/requests/{request}/extension", _OPERATOR, "move its deadline, from its page"),
    Rule("POST", "/requests/{request}/pause", _OPERATOR, "pause it, from its page"),
    Rule("POST", "/requests/{request}/resumption", _OPERATOR, "end the pause, from its page"),
    *_page("/openings", _OPERATOR, "openings that are yet to be handed over"),
    Rule("POST", "/requests/{request}/opening/deletion", _OPERATOR, "delete its opening, from its page"),
    *_page("/runs/{run}", STAFF, "a run in figures"),
    *_page("/runs/{run}/rounds", STAFF, "its rounds: accuracy, clusters, the weakest one"),
    *_page("/runs/{run}/departures", STAFF, "who could leave now; named to who sees clients"),
    *_page("/runs/{run}/purge", STAFF, "who may still be in the model, purges, and second proofs"),
    Rule("POST", "/runs/{run}/purge", _OPERATOR, "have the worker purge, from that page"),
    *_page("/runs/{run}/log", STAFF, "its log: leaves, heads, key"),
    *_page("/runs/{run}/account", STAFF, "its privacy account"),
    *_page("/runs/{run}/releases", STAFF, "models that were given to somebody"),
    *_page("/verify", STAFF, "the form to verify a proof, and the list of checks"),
    Rule("POST", "/verify", STAFF, "verify a proof, from that form"),
    *_page("/tokens", _RECORDS, "API tokens and roles"),
    Rule("POST", "/tokens", _OPERATOR, "make a token with roles of one's own"),
    Rule("POST", "/tokens/{token}/revocation", _OPERATOR, "revoke a token"),
)
"""Every route. Pages are below what they show: their JSON is at the same address with `.json`."""

TABLE = {(rule.method, rule.path): rule for rule in RULES}


@dataclass(frozen=True)
class Identity:
    """Who is asking.

    Args:
        name: What the history of a request calls them.
        roles: What they may do.
        runs: The runs they may do it to; None for all.
        client: Their own id, where they are a client.
        key: What tells them from others, for idempotency keys.

    """

    name: str
    roles: frozenset[Role]
    runs: frozenset[str] | None = None
    client: str | None = None
    key: str = ""

    def may_use(self, run: str) -> bool:
        """Whether a run is within their scope."""
        return self.runs is None or run in self.runs

    @property
    def sees_clients(self) -> bool:
        """Whether they are shown the ids of clients, and the keys of records."""
        return bool(self.roles & SEE_CLIENTS)


NOBODY = Identity("nobody", frozenset())


def markdown() -> str:
    """Print the table for the docs."""
    lines = ["| route | what | " + " | ".join(Role) + " |", "|---|---|" + "---|" * len(Role)]
    for rule in RULES:
        marks = ("anybody" if rule.roles is None else "yes" if role in rule.roles else "" for role in Role)
        lines.append(f"| `{rule.method} {rule.path}` | {rule.about} | " + " | ".join(marks) + " |")
    return "\n".join(lines) + "\n"
