"""The log of a served run, asked from outside: heads, proofs of consistency, the serving statement."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import httpx
import pytest

from disavow.errors import BadRequest, ConfigError, LogUnreachable, SplitView
from disavow.federation import Federation
from disavow.proof.keys import trusted_keys
from disavow.proof.serving import SignedServing
from disavow.proof.verify import VerificationInputs, examine
from disavow.server.access import Role
from tests.cli.lying_server import rewrite
from tests.cli.process import COMMAND, environment, run
from tests.server.service import RUN, Service, error_of
from tests.server.test_processes import serving, token


def test_the_serving_statement_is_about_the_model_that_is_served_and_fits_a_proof(service: Service) -> None:
    client = service.clients()[0]
    assert service.file(client).status_code == 202
    service.work()
    proof = service.call("GET", f"/v1/requests/{RUN}-1/proof", Role.AUDITOR).content
    answer = service.call("GET", f"/v1/runs/{RUN}/serving", Role.AUDITOR)
    assert answer.status_code == 200
    assert "attachment" in answer.headers["content-disposition"]
    with Federation.open(service.run, keys=service.settings.keys) as federation:
        assert SignedServing.decode(answer.content).said.model == federation.export().digest
    trusted = trusted_keys(service.settings.keys / "signing.pub")
    report = examine(VerificationInputs(proof, trusted, serving=answer.content))
    assert report.valid, report.failure
    assert report.results[-1].passed


def test_a_statement_since_a_head_that_never_was_is_refused(service: Service) -> None:
    for since, code in ((10_000, ConfigError.code), (0, BadRequest.code)):
        refused = service.call("GET", f"/v1/runs/{RUN}/serving?since={since}", Role.AUDITOR)
        assert error_of(refused)[1] == code
    assert service.call("GET", f"/v1/runs/{RUN}/serving", None).status_code == 401


@pytest.mark.kill
def test_a_service_is_watched_and_gossiped_with_over_http(folder: Path, tmp_path: Path) -> None:
    kept, key, state = tmp_path / "receipts", folder / "keys" / "signing.pub", tmp_path / "head.json"
    with Federation.open(folder / "runs" / RUN, keys=folder / "keys") as federation:
        (receipt, *_) = federation.receipts(federation.clients()[0]).values()
    kept.write_bytes(receipt)
    header = token(folder, Role.AUDITOR)
    secret = header["Authorization"].removeprefix("Bearer ")

    def disavow(*arguments: str | Path, **variables: str) -> tuple[int, str]:
        ended = run([*COMMAND, *map(str, arguments)], cwd=folder, env=environment(**variables))
        return ended.returncode, ended.stdout

    with serving(folder, "--no-worker") as served:
        url = f"{served.url.rstrip('/')}/v1/runs/{RUN}"
        once = ("watch", url, "--key", key, "--once", "--state", state)
        assert disavow(*once)[0] == LogUnreachable.exit_code  # nobody
        assert disavow(*once, DISAVOW_TOKEN=secret)[0] == 0
        code, out = disavow("gossip", kept, "--key", key, "--log", f"{url}/log", "--json", DISAVOW_TOKEN=secret)
        assert (code, json.loads(out)["outcome"]) == (0, "consistent")
        assert httpx.get(f"{url}/log/consistency?old=1&new=2", headers=header).status_code == 200
    rewritten = tmp_path / "rewritten"
    shutil.copytree(folder / "runs" / RUN, rewritten)
    rewrite(rewritten, folder / "keys", place=1)
    shutil.rmtree(folder / "runs" / RUN)
    rewritten.rename(folder / "runs" / RUN)
    with serving(folder, "--no-worker") as served:
        url = f"{served.url.rstrip('/')}/v1/runs/{RUN}"
        once = ("watch", url, "--key", key, "--once", "--state", state)
        assert disavow(*once, DISAVOW_TOKEN=secret)[0] == SplitView.exit_code
        log = ("--log", url, "--json")
        assert disavow("gossip", kept, "--key", key, *log, DISAVOW_TOKEN=secret)[0] == SplitView.exit_code
