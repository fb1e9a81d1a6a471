"""`disavow serve` and `disavow worker`."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from disavow.cli.output import print_json, progress, results
from disavow.cli.passphrase import ask_passphrase
from disavow.errors import ConfigError
from disavow.ledger.database import VARIABLE
from disavow.ledger.keys import default_folder
from disavow.server.serve import Started, with_address
from disavow.server.serve import serve as serve_runs
from disavow.server.settings import LOCAL_HOSTS, OidcSettings, ServerSettings, public_host, state_folder

SECRET_VARIABLE = "DISAVOW_OIDC_SECRET"  # noqa: S105 - the name of the variable


def serve(
    runs: Path,
    *,
    database: str | None,
    state: Path | None,
    keys: Path | None,
    openings: Path | None,
    host: str,
    port: int,
    hosts: tuple[str, ...],
    public_url: str | None,
    worker: bool,
    private_callbacks: bool,
    oidc: tuple[str | None, str, str],
    demo: bool,
    as_json: bool,
) -> None:
    """Serve the runs of a folder until told to stop."""
    _log_to_stderr()
    _use_database(database)
    if demo:
        from disavow.cli.options import needs

        with needs("train"):
            from disavow.server.demo import make_demo
        progress().print(f"making the demo in {runs}, where it is not there yet")
        keys = make_demo(runs)
    settings = ServerSettings(
        runs=runs,
        state=state_folder(runs, state),
        keys=keys or default_folder(),
        hosts=(*hosts, *public_host(public_url), *LOCAL_HOSTS),
        public_url=public_url,
        openings=openings,
        private_callbacks=private_callbacks,
        oidc=_oidc(*oidc),
    )

    def on_start(started: Started) -> None:
        if as_json:
            print_json({"url": started.url, "login": started.login})
        else:
            results().print(f"serving {runs} at {started.url}")
            if started.login is not None:
                results().print(f"log in once, within 15 minutes: {started.login}")
        sys.stdout.flush()

    serve_runs(with_address(settings, host), host=host, port=port, worker=worker, on_start=on_start)


def work(
    runs: Path,
    *,
    database: str | None,
    state: Path | None,
    keys: Path | None,
    openings: Path | None,
    train: bool,
    once: bool,
    with_parent: bool,
    as_json: bool,
) -> None:
    """Answer requests and train until told to stop."""
    from disavow.server.state import State
    from disavow.server.worker import Worker, stop_with_parent, stopping_on_signals, yield_to_service

    _log_to_stderr()
    _use_database(database)
    if not runs.is_dir():
        raise ConfigError(f"--runs is {runs}; allowed: a folder that exists")
    folder = state_folder(runs, state)
    settings = ServerSettings(runs=runs, state=folder, keys=keys or default_folder(), openings=openings)
    if with_parent:
        yield_to_service()
        stop_with_parent()
    with stopping_on_signals():
        at_work = Worker(settings, State(folder), ask_passphrase, train)
        if once:
            while at_work.step():
                pass
        else:
            at_work.work()
    if as_json:
        print_json({"runs": str(runs), "stopped": True})


def _oidc(issuer: str | None, client: str, claim: str) -> OidcSettings | None:
    if issuer is None:
        return None
    secret = os.environ.get(SECRET_VARIABLE)
    if not secret:
        raise ConfigError(f"--oidc-issuer needs the secret of {client} in {SECRET_VARIABLE}")
    return OidcSettings(issuer, client, secret, claim)


def _use_database(url: str | None) -> None:
    """Let runs whose rows are in this database find its password; the worker inherits it."""
    if url is not None:
        os.environ[VARIABLE] = url


def _log_to_stderr() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
