"""`disavow serve` as a process: without torch, with rows in PostgreSQL, with an OpenID Connect provider."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from disavow import config
from disavow.federation import Federation
from disavow.ledger.rows import time_to_text
from disavow.proof.keys import generate
from disavow.rounds.options import now
from disavow.server.access import Role
from tests.cli.process import environment
from tests.postgres_server import Server, started
from tests.server.conftest import SETTINGS
from tests.server.receiver import until
from tests.server.service import RUN
from tests.server.test_oidc import CLIENT, SECRET, issuing
from tests.server.test_processes import serving, token

pytestmark = pytest.mark.kill

WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # any import of it fails
from disavow.cli import main
sys.argv = ["disavow", *sys.argv[1:]]
main()
"""


def client_of(folder: Path) -> str:
    with Federation.open(folder / "runs" / RUN, keys=folder / "keys") as federation:
        return federation.clients()[0]


def test_a_deniable_request_is_filed_answered_and_proved_without_torch(folder: Path) -> None:
    headers, client = token(folder, Role.OPERATOR, Role.AUDITOR), client_of(folder)
    start = [sys.executable, "-c", WITHOUT_TORCH]
    with (
        serving(folder, "--no-worker", start=start) as served,
        httpx.Client(base_url=served.url, headers=headers, timeout=60) as http,
    ):
        body = {"run": RUN, "client": client}
        assert http.post("/v1/forecasts", json=body).json()["verdict"] == "deniable"
        assert http.post("/v1/requests", json=body).status_code == 202
        folders = ("--runs", folder / "runs", "--keys", folder / "keys", "--state", folder / "state")
        done = subprocess.run(
            [*start, "worker", "--once", *map(str, folders)],
            capture_output=True,
            text=True,
            check=False,
            env=environment(),
        )
        assert done.returncode == 0, done.stderr
        assert http.get(f"/v1/requests/{RUN}-1").json()["state"] == "answered"
        proof = http.get(f"/v1/requests/{RUN}-1/proof").content
        assert http.post("/v1/verifications", content=proof).json()["valid"] is True
        for page in ("/", f"/requests/{RUN}-1", f"/runs/{RUN}", f"/runs/{RUN}/rounds", f"/runs/{RUN}/departures"):
            assert http.get(page).status_code == 200, page


def test_roles_come_from_the_provider_that_the_command_names(folder: Path) -> None:
    with (
        issuing() as issuer,
        serving(
            folder,
            *("--no-worker", "--oidc-issuer", issuer.url, "--oidc-client", CLIENT),
            more_environment={"DISAVOW_OIDC_SECRET": SECRET},
        ) as served,
        httpx.Client(base_url=served.url, timeout=30) as http,
    ):
        sent = http.get("/login/oidc")
        assert sent.status_code == 303
        query = parse_qs(urlsplit(sent.headers["location"]).query)
        moment = int(time.time())
        issuer.claims = {"iss": issuer.url, "aud": CLIENT, "sub": "7", "exp": moment + 60, "iat": moment}
        issuer.claims |= {"nonce": query["nonce"][0], "name": "Ada", "disavow_roles": "viewer auditor"}
        back = http.get("/login/oidc/callback", params={"code": "abc", "state": query["state"][0]})
        assert back.status_code == 303
        assert http.get("/v1/whoami").json()["roles"] == ["auditor", "viewer"]
        assert query["redirect_uri"] == [f"{served.url}/login/oidc/callback"]


@pytest.fixture
def postgres() -> Iterator[Server]:
    found = started()
    yield found
    found.stop()


@pytest.mark.postgres
def test_a_run_whose_rows_are_in_postgresql_is_served(tmp_path: Path, postgres: Server) -> None:
    generate(tmp_path / "keys", name="tests", passphrase=None, at=time_to_text(now()))
    settings = config.from_values(SETTINGS, source="tests")
    without_password = postgres.tcp_url(None)
    run = tmp_path / "runs" / RUN
    with Federation.create(run, settings, keys=tmp_path / "keys", database=postgres.tcp_url()) as federation:
        federation.train()
        client, other, *_ = federation.clients()
    assert without_password.rpartition("@")[2].partition("/")[0] in (run / "database.json").read_text()
    headers = token(tmp_path, Role.OPERATOR, Role.AUDITOR)
    with (
        serving(tmp_path, "--database", postgres.tcp_url()) as served,
        httpx.Client(base_url=served.url, headers=headers, timeout=30) as http,
    ):
        body = {"run": RUN, "client": client}
        assert http.post("/v1/requests", json=body, headers={"Idempotency-Key": "1"}).json()["number"] == 1
        assert http.post("/v1/requests", json={**body, "client": other}).json()["number"] == 2
        until(lambda: http.get(f"/v1/requests/{RUN}-1").json()["state"] == "answered", 60)
        proof = http.get(f"/v1/requests/{RUN}-1/proof").content
        assert http.post("/v1/verifications", content=proof).json()["valid"] is True
        requests = http.get("/v1/requests", params={"run": RUN}).json()["requests"]
        assert [each["number"] for each in requests] == [2, 1]
        assert f'disavow_readable{{run="{RUN}"}} 1.0' in http.get("/metrics").text
    assert client not in (tmp_path / "log").read_text()
