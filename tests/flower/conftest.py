"""What the tests on Flower share.

Messages can be made only in a process that Flower knows as a task; the tests are one. And the real network, which
takes longer than all others together, comes first, so that they run beside it where two processes share the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest


@pytest.fixture(scope="session", autouse=True)
def _evidence_in_the_context() -> Iterator[None]:
    """Nodes of these tests keep evidence in folders that they are given, or else nowhere but in their context."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISAVOW_EVIDENCE", "")
        yield


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name != "test_network.py")


if find_spec("flwr") is not None:
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1
