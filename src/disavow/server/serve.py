"""Run the service: bind, start a worker, print the log-in link, serve until told to stop."""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import uvicorn

from disavow.errors import ConfigError
from disavow.server import tokens
from disavow.server.app import create_app
from disavow.server.settings import ServerSettings
from disavow.server.state import State

logger = logging.getLogger("disavow.server")

_MOST_CONNECTIONS = 500
_SHUTDOWN_SECONDS = 20
_RESTART_SECONDS = 2.0
_LONGEST_RESTART = 60.0
_SWITCH_SECONDS = 0.001
"""How long a thread may keep others from the interpreter. The thread that places requests asks for it after each
statement: with Python's 5 ms, it waits for most of a batch while the event loop parses the next one."""


@dataclass(frozen=True)
class Started:
    """What starting the service prints: its address, and the link that logs in once, on localhost."""

    url: str
    login: str | None


def serve(
    settings: ServerSettings,
    *,
    host: str,
    port: int,
    worker: bool = True,
    on_start: Callable[[Started], None],
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        settings: Which runs, and how.
        host: The address to listen at.
        port: The port; 0 for any that is free.
        worker: Start a process that answers requests and trains.
        on_start: Told once the port is open.

    Raises:
        ConfigError: The address cannot be used.

    """
    if not settings.runs.is_dir():
        raise ConfigError(f"--runs is {settings.runs}; allowed: a folder that exists")
    listening = _listen(host, port)
    port = listening.getsockname()[1]
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,  # it would hold addresses with whatever somebody put into them; `protection` logs routes
        server_header=False,
        proxy_headers=settings.public_url is not None,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    sys.setswitchinterval(_SWITCH_SECONDS)
    supervisor = Supervisor(settings) if worker else None
    if supervisor is not None:
        supervisor.start()
    try:
        server = uvicorn.Server(config)
        _stop_on_signals(server)
        on_start(_started(settings, host, port))
        server.run(sockets=[listening])
    finally:
        if supervisor is not None:
            supervisor.close()
        listening.close()


def _stop_on_signals(server: uvicorn.Server) -> None:
    """Have a signal end the service and not the process: uvicorn, once it has stopped, raises it once more."""

    def stop(*_: object) -> None:
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        raise ConfigError(f"{host}:{port} cannot be listened at: {error.strerror}") from None


def _started(settings: ServerSettings, host: str, port: int) -> Started:
    named = f"[{host}]" if ":" in host else host
    url = settings.public_url or f"http://{named}:{port}"
    if not is_local(host):
        return Started(url, None)
    state = State(settings.state)
    try:
        link = tokens.new_link(state, now=time.time())
    finally:
        state.close()
    return Started(url, f"{url}/login?token={link}")


def is_local(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Supervisor:
    """Keeps one worker process running, and starts another where it dies.

    Args:
        settings: What the worker is started with.

    """

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._stop = threading.Event()
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, name="worker", daemon=True)

    def start(self) -> None:
        """Start the worker."""
        self._thread.start()

    def close(self) -> None:
        """Stop the worker, and wait until it has stopped."""
        self._stop.set()
        with self._guard:
            if self._process is not None and self._process.poll() is None:
                self._process.terminate()
        self._thread.join(_SHUTDOWN_SECONDS)
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _watch(self) -> None:
        wait = _RESTART_SECONDS
        while not self._stop.is_set():
            began = time.monotonic()
            with self._guard:
                if self._stop.is_set():
                    return
                self._process = self._start_process()
            code = self._process.wait()
            if self._stop.is_set():
                return
            healthy = time.monotonic() - began > _LONGEST_RESTART
            wait = _RESTART_SECONDS if healthy else min(wait * 2, _LONGEST_RESTART)
            logger.warning("the worker ended with %d; another one is started in %.0f s", code, wait)
            self._stop.wait(wait)

    def _start_process(self) -> subprocess.Popen[bytes]:
        settings = self._settings
        command = [sys.executable, "-m", "disavow", "worker", "--with-parent"]
        command += ["--runs", str(settings.runs), "--state", str(settings.state), "--keys", str(settings.keys)]
        if settings.openings is not None:
            command += ["--openings", str(settings.openings)]
        # a pipe that nobody writes to: it ends when this process does, however it does
        return subprocess.Popen(command, stdin=subprocess.PIPE, env=dict(os.environ))  # noqa: S603


def with_address(settings: ServerSettings, host: str) -> ServerSettings:
    """Let the service answer to the address that it listens at."""
    named = f"[{host}]" if ":" in host else host
    return settings if named in settings.hosts else replace(settings, hosts=(*settings.hosts, named))
