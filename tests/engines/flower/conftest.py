"""Messages can be made only in a process that Flower knows as a task; the tests are one."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if find_spec("flwr") is not None:

    @pytest.fixture(autouse=True)
    def _task() -> None:
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1
