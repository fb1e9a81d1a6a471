"""The service and its worker as processes: they stop cleanly, and killed at any instant lose and double nothing."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from disavow.federation import Federation
from disavow.ledger import fsck
from disavow.ledger.id_search import files_with
from disavow.server import tokens
from disavow.server.access import Role
from disavow.server.state import State
from disavow.server.worker import Worker
from tests.cli.process import environment
from tests.selection import some_of
from tests.server.receiver import Receiver, receiving, until
from tests.server.service import RUN

pytestmark = pytest.mark.kill

INSTANTS, MANY_INSTANTS = 2, 50
PATIENT = 300.0
"""Seconds to wait for an answer: on a machine with other work to do it takes long to load torch twice."""


@dataclass
class Served:
    """A service that runs, and its worker."""

    process: subprocess.Popen[str]
    url: str
    login: str

    @property
    def worker(self) -> int | None:
        """The process id of its worker, if it has one now."""
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        children = [
            int(each) for path in found.parent.parent.glob("*/children") for each in path.read_text().split()
        ]
        return next((child for child in children if b"worker" in _command(child)), None)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@contextmanager
def serving(
    folder: Path,
    *more: str,
    start: Sequence[str] = (sys.executable, "-m", "disavow"),
    more_environment: Mapping[str, str] | None = None,
) -> Iterator[Served]:
    """Run `disavow serve` with further options until the block ends; `start` is what runs disavow."""
    command = [*start, "serve", "--json", "--port", "0", "--private-callbacks"]
    command += ["--runs", str(folder / "runs"), "--keys", str(folder / "keys"), "--state", str(folder / "state")]
    with (folder / "log").open("a") as log:
        process = subprocess.Popen(
            [*command, *more],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment(**(more_environment or {})),
            cwd=folder,
        )
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline() for _ in range(4)]
        document = json.loads("".join(lines))
        yield Served(process, document["url"], document["login"])
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(PATIENT)
        process.stdout.close()


def token(folder: Path, *roles: Role) -> dict[str, str]:
    state = State(folder / "state")
    text, _ = tokens.create(
        state, name="tests", roles=frozenset(roles), runs=None, now=time.time(), expires_at=None
    )
    state.close()
    return {"Authorization": f"Bearer {text}"}


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_a_service_with_a_worker_answers_and_stops_cleanly(folder: Path) -> None:
    headers = token(folder, Role.OPERATOR)
    with Federation.open(folder / "runs" / RUN, keys=folder / "keys") as federation:
        client = federation.clients()[0]
    with serving(folder) as served, httpx.Client(base_url=served.url, headers=headers) as http:
        body = {"run": RUN, "client": client}
        assert http.post("/v1/requests", json=body).status_code == 202
        until(lambda: http.get("/v1/requests/first-1").json()["state"] == "answered", PATIENT)
        with httpx.Client(follow_redirects=True) as browser:
            assert "Runs" in browser.get(served.login).text
        worker = served.worker
        assert worker is not None
    assert served.process.returncode == 0
    assert not alive(worker)
    log = (folder / "log").read_text()
    assert client not in log
    assert "Fatal Python error" not in log, "nor does the worker abort"


def test_a_worker_ends_with_the_service_that_started_it(folder: Path) -> None:
    with serving(folder) as served:
        until(lambda: served.worker is not None)
        worker = served.worker
        assert worker is not None
        served.process.kill()
        until(lambda: not alive(worker), 30)


def test_a_run_that_somebody_else_holds_is_left_to_them(folder: Path) -> None:
    with Federation.open(folder / "runs" / RUN, write=True, keys=folder / "keys") as federation:
        client = federation.clients()[0]
        federation.place([client])
        from disavow.server.settings import ServerSettings

        settings = ServerSettings(folder / "runs", folder / "state", folder / "keys")
        state = State(folder / "state")
        assert Worker(settings, state).step() is False
        assert federation.request(1).state.value == "waiting"
    Worker(settings, state).step()
    with Federation.open(folder / "runs" / RUN, keys=folder / "keys") as federation:
        assert federation.request(1).state.value == "answered"
    state.close()


def file_until_taken(
    folder: Path, urls: list[str], client: str, headers: dict[str, str], found: dict[str, int]
) -> None:
    """File a request, again and again with the same key, until somebody has taken it."""
    while client not in found:
        try:
            answer = httpx.post(
                f"{urls[-1]}/v1/requests",
                json={"run": RUN, "client": client},
                headers={**headers, "Idempotency-Key": f"letter {client[-1]}"},
                timeout=PATIENT,
            )
        except (httpx.HTTPError, IndexError):
            time.sleep(0.05)
            continue
        if answer.status_code == 202:
            found[client] = answer.json()["number"]
        else:
            assert answer.status_code in (410, 429, 503), answer.text
            if answer.status_code == 410:  # answered and forgotten before the answer of the first call came back
                found[client] = -1
            time.sleep(0.05)


def approve_all(url: str, headers: dict[str, str]) -> None:
    document = httpx.get(f"{url}/v1/requests", params={"state": "waiting"}, headers=headers, timeout=PATIENT).json()
    for request in document.get("requests", []):
        path = f"{url}/v1/requests/{request['id']}"
        forecast = httpx.get(f"{path}/forecast", headers=headers, timeout=PATIENT).json()
        if forecast.get("digest") and forecast["verdict"] == "rollback":
            httpx.post(f"{path}/approval", json={"forecast": forecast["digest"]}, headers=headers, timeout=PATIENT)


def kill_and_go_on(folder: Path, seed: int, receiver: Receiver) -> None:
    """File for all of one cluster, approve, and kill service or worker at some instant; then go on to the end."""
    rng = random.Random(seed)
    headers = token(folder, Role.OPERATOR, Role.APPROVER)
    with Federation.open(folder / "runs" / RUN, keys=folder / "keys") as federation:
        groups = [sorted(group) for group in federation.ledger.membership(1)]
    leavers = min(groups, key=len)[:2]
    urls: list[str] = []
    found: dict[str, int] = {}
    filing = [
        threading.Thread(target=file_until_taken, args=(folder, urls, client, headers, found)) for client in leavers
    ]
    with serving(folder) as served:
        httpx.post(f"{served.url}/v1/webhooks", json={"url": receiver.url}, headers=headers, timeout=PATIENT)
        urls.append(served.url)
        for thread in filing:
            thread.start()
        end = time.monotonic() + rng.uniform(0, 6)
        whom = rng.choice(["service", "worker"])
        while time.monotonic() < end:
            approve_all(served.url, headers)
            time.sleep(0.02)
        worker = served.worker
        if whom == "service" or worker is None:
            served.process.kill()
        else:
            os.kill(worker, signal.SIGKILL)
    with serving(folder) as served:
        urls.append(served.url)
        for thread in filing:
            thread.join(PATIENT)

        def all_answered() -> bool:
            approve_all(served.url, headers)
            requests = httpx.get(f"{served.url}/v1/requests", headers=headers, timeout=PATIENT).json()["requests"]
            return len(requests) == len(leavers) and all(each["state"] == "answered" for each in requests)

        until(all_answered, PATIENT)
        until(lambda: _answered(receiver) >= {1, 2}, PATIENT)
    numbers = [number for number in found.values() if number > 0]
    assert len(set(numbers)) == len(numbers)
    assert [str(each) for each in fsck(folder / "runs" / RUN, keys=folder / "keys") if each.fault] == []
    for client in leavers:
        for place in ("runs", "keys"):
            assert files_with(folder / place, client) == []
        assert {path.parent.name for path in files_with(folder / "state", client)} == {"openings"}
        assert client not in (folder / "log").read_text()


def _answered(receiver: Receiver) -> set[int]:
    events = [json.loads(body) for _, body in list(receiver.got)]
    return {each["request"]["number"] for each in events if each["event"] == "request.answered"}


@pytest.mark.parametrize("seed", some_of(range(INSTANTS), [1]))
def test_killed_at_any_instant_nothing_is_lost_or_doubled(folder: Path, seed: int) -> None:
    with receiving() as receiver:
        kill_and_go_on(folder, seed, receiver)


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_killed_at_many_instants(served_once: Path, tmp_path: Path) -> None:
    for seed in range(INSTANTS, MANY_INSTANTS):
        copy = tmp_path / str(seed)
        for name in ("runs", "keys"):
            shutil.copytree(served_once / name, copy / name)
        with receiving() as receiver:
            kill_and_go_on(copy, seed, receiver)
        shutil.rmtree(copy)
