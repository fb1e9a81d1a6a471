"""What the service is started with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from disavow.errors import ConfigError
from disavow.ledger.keys import default_folder

STATE = ".service"
"""The folder of the service's own files, in the folder of the runs where nothing else is said."""

OPENINGS = "openings"
"""The folder of leavers' openings, among the service's own files."""

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class OidcSettings:
    """An OpenID Connect provider at which people log in.

    Args:
        issuer: Its URL; what it offers is read from its `/.well-known/openid-configuration`.
        client_id: What this service is called there.
        client_secret: What it proves itself with.
        claim: The claim of the ID token that lists roles.

    """

    issuer: str
    client_id: str
    client_secret: str
    claim: str = "disavow_roles"


@dataclass(frozen=True)
class ServerSettings:
    """What the service is started with.

    Args:
        runs: The folder in which it finds runs.
        state: The folder of its own database and keys.
        keys: The folder of the operator's keys, with the keyrings of the runs.
        hosts: The host names that it answers to.
        public_url: How others reach it, such as https://disavow.example; what it is by default follows the request.
        openings: Where leavers' openings are written, which name them; `openings_folder` by default.
        largest_body: Bytes of a request body that are read.
        requests_per_minute: How many requests of one address are answered in a minute.
        failures_per_minute: How many failed log-ins of one address are looked at in a minute.
        private_callbacks: Whether webhooks and callbacks may go to private addresses and without TLS: for tests
            and closed networks.
        oidc: Where people log in, if anywhere.
        poll_seconds: How often changes of the runs are looked for.
        warm_up_seconds: How long to read runs before the first call is answered, so that it need not wait for that;
            0 to prepare nothing.

    """

    runs: Path
    state: Path
    keys: Path = field(default_factory=default_folder)
    hosts: tuple[str, ...] = LOCAL_HOSTS
    public_url: str | None = None
    openings: Path | None = None
    largest_body: int = 24 << 20
    requests_per_minute: int = 6000
    failures_per_minute: int = 20
    private_callbacks: bool = False
    oidc: OidcSettings | None = None
    poll_seconds: float = 1.0
    warm_up_seconds: float = 5.0

    @property
    def openings_folder(self) -> Path:
        """Where leavers' openings are written: with the service's own files where nothing else is said, so that
        nothing among the runs names whoever was forgotten.
        """
        return self.openings or self.state / OPENINGS


def public_host(url: str | None) -> tuple[str, ...]:
    """Give the host name of a public URL, to which the service answers.

    Args:
        url: The URL, if there is one.

    Raises:
        ConfigError: It is none.

    """
    if url is None:
        return ()
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise ConfigError(f"--public-url is {url}; allowed: such as https://disavow.example")
    return (f"[{host}]" if ":" in host else host,)


def state_folder(runs: Path, state: Path | None) -> Path:
    """Give the folder of the service's own files: the one that was asked for, or the one among the runs."""
    return runs / STATE if state is None else state
