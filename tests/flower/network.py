"""A real Flower network on loopback: a SuperLink, SuperNodes, the `flwr` command; each a process of its own."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.cli.process import environment

BIN = Path(sys.executable).parent
EXAMPLES = Path(__file__).parents[2] / "examples"
_STARTING_SECONDS = 90.0


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(
    met: Callable[[], bool], what: str, *, seconds: float, every: float = 1.0, log: Callable[[], str] = lambda: ""
) -> None:
    """Wait for something that takes as long as it takes; far beyond that, fail and show the log."""
    ends = time.monotonic() + seconds
    while not met():
        if time.monotonic() > ends:
            raise AssertionError(f"{what}: not within {seconds:g} s\n{log()}")
        time.sleep(every)


def make_node_key(path: Path) -> Path:
    """A SuperNode's authentication key, as `ssh-keygen -t ecdsa -b 384` makes one; its public half in PATH.pub."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    path.write_bytes(private)
    path.chmod(0o600)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    path.with_suffix(".pub").write_bytes(public + b"\n")
    return path


def make_certificates(folder: Path) -> None:
    """An authority (ca.pem) and a certificate of 127.0.0.1 by it (server.pem, server.key)."""
    authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
    host = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    addresses = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
    now = datetime.datetime.now(datetime.UTC)
    parts = (
        (name, authority.public_key(), x509.BasicConstraints(ca=True, path_length=0), "ca.pem"),
        (host, server.public_key(), x509.SubjectAlternativeName(addresses), "server.pem"),
    )
    for subject, public, extension, file in parts:
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(extension, critical=False)
            .sign(authority, hashes.SHA256())
        )
        (folder / file).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "server.key").write_bytes(
        server.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


@dataclass
class Network:
    """What runs, and where it keeps things. `stop` ends it all, whatever state it is in."""

    folder: Path
    simulation: bool = False
    nodes: int = 8
    """Of a simulation."""
    port: int = field(default_factory=free_port)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        home = self.folder / "flwr"
        home.mkdir()
        ca = self.folder / "ca.pem"
        if not self.simulation:
            make_certificates(self.folder)
        secured = "insecure = true" if self.simulation else f'root-certificates = "{ca}"'
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\n{secured}\n'
        )
        self.environment = environment(
            FLWR_HOME=str(home),
            FLWR_TELEMETRY_ENABLED="0",
            FLWR_DISABLE_UPDATE_CHECK="1",
            FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION="1",
            OMP_NUM_THREADS="1",
            PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}",
        )

    def start(self, name: str, *command: str | Path) -> subprocess.Popen[bytes]:
        """Start a process in a session of its own, so that it can be ended with all its children."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(word) for word in command],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self.processes[name]

    def log(self, name: str) -> str:
        """What a process has said."""
        path = self.folder / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def start_superlink(self) -> None:
        """Start the SuperLink: a simulating one, or one with TLS and node authentication.

        Its state is in memory: in a SQLite file, nodes that answer at once find it locked, and replies are lost.
        """
        secured: list[str | Path] = ["--insecure", "--simulation"]
        if not self.simulation:
            secured = ["--ssl-ca-certfile", self.folder / "ca.pem", "--ssl-certfile", self.folder / "server.pem"]
            secured += ["--ssl-keyfile", self.folder / "server.key", "--enable-supernode-auth"]
        process = self.start(
            "superlink",
            BIN / "flower-superlink",
            *secured,
            *("--host", "127.0.0.1", "--port", str(self.port)),
        )

        def up() -> bool:
            assert process.poll() is None, self.log("superlink")
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        wait_until(up, "the SuperLink", seconds=_STARTING_SECONDS, log=lambda: self.log("superlink"))

    def start_supernode(self, name: str, key: Path, node_config: str) -> None:
        """Start a SuperNode with an authentication key that has been registered."""
        self.start(
            name,
            BIN / "flower-supernode",
            *("--root-certificates", self.folder / "ca.pem", "--superlink", f"127.0.0.1:{self.port}"),
            *("--auth-supernode-private-key", key, "--node-config", node_config),
            *("--host", "127.0.0.1", "--port", str(free_port())),
        )

    def flwr(self, *arguments: str | Path) -> Any:
        """Run the `flwr` command; its JSON answer."""
        done = subprocess.run(
            [str(BIN / "flwr"), *map(str, arguments), "--format", "json"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stdout + done.stderr + self.log("superlink")
        answer = json.loads(done.stdout[done.stdout.index("{") :])
        assert answer.get("success", True), answer
        return answer

    def run(self, app: Path, **config: object) -> str:
        """Submit an app with these values over its run config; the number of the run."""
        values = {key.replace("_", "-"): str(v) if isinstance(v, Path) else v for key, v in config.items()}
        run_config = " ".join(f"{key}={json.dumps(value)}" for key, value in values.items())
        options = ["--run-config", run_config] if run_config else []
        if self.simulation:
            options += ["--federation-config", f"num-supernodes={self.nodes}"]
        return str(self.flwr("run", app, "here", *options)["run-id"])

    def status(self, run: str) -> str:
        """How far a run is, in Flower's words."""
        [found] = self.flwr("list", "here", "--run-id", run)["runs"]
        return str(found["status"])

    def said(self, run: str) -> str:
        """What a run has written to Flower's log."""
        done = subprocess.run(
            [str(BIN / "flwr"), "log", run, "here", "--show"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return done.stdout + done.stderr

    def kill(self, name: str) -> None:
        """End a process and its children at once, as a power cut would."""
        os.killpg(self.processes.pop(name).pid, signal.SIGKILL)

    def stop(self) -> None:
        """End everything that was started here."""
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
        for pid in self._left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _left(self) -> Iterator[int]:
        """What Flower started in sessions of their own, and whatever else outlived its parent."""
        mine = f"FLWR_HOME={self.environment['FLWR_HOME']}".encode()
        for entry in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mine in entry.read_bytes().split(b"\0"):
                    yield int(entry.parent.name)
