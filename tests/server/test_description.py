"""Whatever is sent to a route of the description, the service refuses or answers, and never fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from disavow.server.access import STAFF
from disavow.server.app import create_app
from disavow.server.settings import ServerSettings
from tests.server.service import HOST, Service

FEW, MANY = 3, 100


def call_all(folder: Path, examples: int) -> dict[str, set[int]]:
    """Call every route of the description so many times; the statuses of the answers, by route."""
    own = ServerSettings(
        folder / "runs", folder / "state", folder / "keys", hosts=(HOST,), requests_per_minute=10**9
    )
    app = create_app(own)
    with TestClient(app, raise_server_exceptions=False) as http:
        headers = {"Authorization": f"Bearer {Service(app, http, own).token(*STAFF)}"}
        schema = schemathesis.openapi.from_dict(http.get("/v1/openapi.json").json())
        found: list[Any] = list(schema.get_all_operations())
        operations = [each.ok() for each in found]
        return {each.label: call_one(each, http, headers, examples) for each in operations}


def call_one(operation: Any, http: TestClient, headers: dict[str, str], examples: int) -> set[int]:
    """Call one route with what the description allows, and with what it does not."""
    seen: set[int] = set()
    cases = [operation.as_strategy(generation_mode=mode) for mode in schemathesis.GenerationMode]

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    @given(st.one_of(cases))
    def call(case: Any) -> None:
        sent = case.as_transport_kwargs(base_url=f"http://{HOST}")
        sent["headers"] = {**sent.get("headers", {}), **headers}
        sent["content"] = sent.pop("data", None)
        answer = http.request(**{name: value for name, value in sent.items() if value is not None})
        seen.add(answer.status_code)
        assert answer.status_code < 500, (case.formatted_path, answer.text)

    call()
    return seen


def test_no_route_fails(folder: Path) -> None:
    statuses = call_all(folder, FEW)
    assert len(statuses) > 30
    assert all(statuses.values())


@pytest.mark.torture
@pytest.mark.timeout(1800)
def test_no_route_fails_however_often(folder: Path) -> None:
    assert all(call_all(folder, MANY).values())
