"""A witness as somebody runs it, and those who ask it, over HTTP."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from disavow.errors import ConfigError, WitnessInUse, WitnessRefused, WitnessUnavailable
from disavow.proof.cosignatures import WitnessKey
from disavow.proof.witness_client import Witness as Client
from tests.cli.process import assert_refused, disavow
from tests.refusals import refuses
from tests.witness.logs import LOG, WITNESS, MadeLog, process, served, witness_at


def cosign(client: Client, log: MadeLog, known: int = 0, timeout: float = 10) -> int:
    """When a head was cosigned."""
    found = client.cosign(log.note, known=known, consistency=log.proof, timeout=timeout)
    assert found.holds(client.key, log.head)
    return found.time


def get(url: str, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_the_command_serves_says_who_it_is_and_ends(tmp_path: Path) -> None:
    with process(tmp_path, str(LOG.public)) as (serving, started):
        before = int(time.time())
        assert before <= cosign(serving.client, MadeLog().grown(3)) <= int(time.time())
        assert get(serving.url, "/")[1].splitlines()[1] == str(serving.key)
        answer = json.loads(get(serving.url, "/healthz")[1])
        assert (answer["key"], answer["logs"]) == (str(serving.key), ["disavow/run/*"])
        assert get(serving.url, "/nothing")[0] == 404
        second = disavow(
            "witness",
            "--key",
            tmp_path / "witness.pem",
            "--state",
            tmp_path / "witness",
            "--log",
            f"a={LOG.public}",
        )
        assert_refused(second, WitnessInUse, tmp_path / "witness")
        started.send_signal(signal.SIGTERM)
        _, errors = started.communicate(timeout=20)
        assert started.returncode == 0
        assert "cosigned disavow/run/first at 3 leaves" in errors
    with process(tmp_path, str(LOG.public)) as (serving, _):
        with refuses(WitnessRefused):
            cosign(serving.client, MadeLog().grown(4, "another"), known=3)
        cosign(serving.client, MadeLog().grown(9))


def test_a_key_is_made_once_and_shown(tmp_path: Path) -> None:
    command = ("witness", "--key", tmp_path / "w.pem", "--new-key", "--name", "w.example.net", "--no-passphrase")
    made = disavow(*command, "--json")
    assert made.returncode == 0
    answer = json.loads(made.stdout)
    assert WitnessKey.parse(answer["public"]).name == "w.example.net"
    assert (tmp_path / "w.pem.pub").read_text() == f"{answer['public']}\n"
    assert (tmp_path / "w.pem").stat().st_mode & 0o077 == 0
    assert_refused(disavow(*command), ConfigError, tmp_path / "w.pem.pub")
    assert_refused(disavow("witness", "--key", tmp_path / "w.pem"), ConfigError, "--state")
    assert_refused(disavow("witness", "--key", tmp_path / "w.pem", "--new-key"), ConfigError, "--name")
    assert_refused(disavow(*command[:-1]), ConfigError, "--no-passphrase")


def test_whoever_asks_goes_on_from_the_size_that_the_witness_has_seen(tmp_path: Path) -> None:
    witness, heads = witness_at(tmp_path / "seen")
    with served(witness) as serving:
        client = serving.client
        cosign(client, MadeLog().grown(4))
        cosign(client, MadeLog().grown(9), known=0)
        cosign(client, MadeLog().grown(11), known=3)
        cosign(client, MadeLog().grown(11), known=11)
        cosign(client, MadeLog().grown(12), known=99)
        for lie in (MadeLog().grown(12, "another"), MadeLog().grown(13, "another"), MadeLog().grown(5)):
            with refuses(WitnessRefused, WITNESS.name):
                cosign(client, lie)
        with refuses(WitnessRefused, "404"):
            cosign(client, MadeLog(origin="other").grown(1))
    client.close()
    with refuses(WitnessUnavailable, WITNESS.name):
        cosign(client, MadeLog().grown(13))
    heads.close()


def test_a_connection_that_was_closed_meanwhile_is_opened_again(tmp_path: Path) -> None:
    witness, heads = witness_at(tmp_path / "seen")
    with served(witness) as serving:
        client, port = serving.client, urlsplit(serving.url).port
        cosign(client, MadeLog().grown(1))
    assert port is not None
    assert client._connection is not None
    client._connection.sock.shutdown(socket.SHUT_RDWR)
    with served(witness, port=port):
        cosign(client, MadeLog().grown(2), known=1)
    heads.close()


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("POST /add-checkpoint HTTP/1.1\r\nHost: x\r\n\r\n", 411),
        ("POST /add-checkpoint HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 411),
        ("POST /add-checkpoint HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999999\r\n\r\n", 413),
        ("POST /other HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 404),
        ("DELETE / HTTP/1.1\r\nHost: x\r\n\r\n", 501),
        ("nonsense\r\n\r\n", 400),
    ],
)
def test_what_no_client_sends_is_refused(request_text: str, status: int, tmp_path: Path) -> None:
    witness, heads = witness_at(tmp_path / "seen")
    with served(witness) as serving, socket.create_connection(("127.0.0.1", urlsplit(serving.url).port)) as sock:
        sock.sendall(request_text.encode())
        assert f" {status} " in sock.recv(4096).decode() or str(status) in sock.recv(4096).decode()
    heads.close()


@contextmanager
def answering(answer: bytes, *, every: float = 0) -> Iterator[str]:
    """A server that gives everybody the same answer, a byte at a time where it is to take long."""
    listening = socket.create_server(("127.0.0.1", 0))
    ends = threading.Event()

    def serve() -> None:
        while not ends.is_set():
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.recv(65_536)
                for part in [answer[i : i + 1] for i in range(len(answer))] if every else [answer]:
                    if ends.wait(every):
                        return
                    connection.sendall(part)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        ends.set()
        listening.close()


def _http(status: str, body: bytes, kind: str = "text/plain") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"hello\r\n\r\n",
        _http("200 OK", b""),
        _http("200 OK", b"\xff\n"),
        _http("200 OK", f"{WITNESS.cosign(MadeLog().grown(3).head, 1)}\n".encode()),
        _http("200 OK", b"x" * 70_000),
        _http("409 Conflict", b"many\n", "text/x.tlog.size"),
        _http("500 Oops", b""),
        _http("302 Found", b""),
    ],
)
def test_what_is_no_answer_of_a_witness_gives_no_cosignature(answer: bytes) -> None:
    with answering(answer) as url, refuses(WitnessUnavailable, WITNESS.name):
        cosign(Client(url, WITNESS.public), MadeLog().grown(2))


def test_a_witness_that_never_agrees_with_itself_is_not_asked_for_ever() -> None:
    with answering(_http("409 Conflict", b"1\n", "text/x.tlog.size")) as url, refuses(WitnessRefused):
        cosign(Client(url, WITNESS.public), MadeLog().grown(2))
