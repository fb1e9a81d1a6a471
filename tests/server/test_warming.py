"""What first calls would wait for is done before them, and a run that cannot be read keeps no other one waiting."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from disavow.ledger.sqlite import NAME
from disavow.server.app import create_app
from disavow.server.pages.rendering import templates
from disavow.server.settings import ServerSettings
from tests.server.service import HOST, RUN, Service


@pytest.fixture
def warm(settings: ServerSettings, monkeypatch: pytest.MonkeyPatch) -> ServerSettings:
    monkeypatch.setattr("gc.freeze", lambda: None)  # or else nothing of this test is ever collected
    return replace(settings, warm_up_seconds=5.0)


def test_templates_are_compiled_and_runs_are_read_before_the_first_call(warm: ServerSettings) -> None:
    assert templates.cache is not None
    templates.cache.clear()
    app = create_app(warm)
    with TestClient(app, raise_server_exceptions=False) as http:
        assert len(templates.cache) == len(templates.list_templates())
        services = Service(app, http, warm).services
        members = services.runs.federation(RUN).ledger.members
        assert members._found, "who could leave now was looked at"


def test_a_run_that_cannot_be_read_keeps_no_other_waiting(
    warm: ServerSettings, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(folder / "runs" / RUN, folder / "runs" / "damaged")
    (folder / "runs" / "damaged" / NAME).write_bytes(b"no database")
    app = create_app(warm)
    with TestClient(app, base_url=f"http://{HOST}", raise_server_exceptions=False) as http:
        service = Service(app, http, warm)
        assert service.call("GET", f"/v1/runs/{RUN}").status_code == 200
        assert service.services.runs.federation(RUN).ledger.members._found
    assert "damaged: DSV-" in caplog.text
