"""Write to MLflow: a local database or a tracking server; the extra `mlflow`."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from disavow.errors import MissingExtra, how_to_install
from disavow.tracking.tracker import Tracker

if TYPE_CHECKING:
    from mlflow import MlflowClient

_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}
"""What MLflow reads when it is imported, unless it is set already: nothing about a federation is reported to its
makers, a server that is away is given up in seconds, and a new database is made without a line of output.
"""

RUN = "disavow.run"
"""The tag by which a run that goes on is found again."""


class MLflow(Tracker):
    """Writes one MLflow run for each run: figures as metrics, the policy as parameters, notes as tags.

    Args:
        uri: The tracking URI: `sqlite:////home/me/mlflow.db`, or the address of a tracking server.
        experiment: The MLflow experiment; made where it is not there.

    Raises:
        MissingExtra: The extra is not installed.

    """

    def __init__(self, uri: str, *, experiment: str = "disavow") -> None:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            import mlflow  # noqa: F401
        except ModuleNotFoundError as error:
            raise MissingExtra(f"MLflow needs {error.name}; {how_to_install('mlflow')}") from None
        self._uri, self._experiment = uri, experiment
        self._client: MlflowClient | None = None
        self._run = ""

    def start(self, run: str, name: str, facts: Mapping[str, str]) -> None:
        """See `Tracker`."""
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self._client = MlflowClient(tracking_uri=self._uri)
        found = self._client.get_experiment_by_name(self._experiment)
        experiment = self._client.create_experiment(self._experiment) if found is None else found.experiment_id
        before = self._client.search_runs([experiment], f"tags.`{RUN}` = '{run}'", max_results=1)
        if before:
            self._run = before[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
            return
        self._run = self._client.create_run(experiment, tags={RUN: run}, run_name=name).info.run_id
        self._client.log_batch(self._run, params=[Param(key, value) for key, value in facts.items()])

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """See `Tracker`."""
        from mlflow.entities import Metric

        now = time.time_ns() // 1_000_000
        metrics = [Metric(_allowed(name), value, now, step) for name, value in figures.items()]
        self._open().log_batch(self._run, metrics=metrics)

    def note(self, name: str, text: str, step: int) -> None:
        """See `Tracker`."""
        from mlflow.entities import RunTag

        self._open().log_batch(self._run, tags=[RunTag(f"{_allowed(name)}.step-{step}", text)])

    def _open(self) -> MlflowClient:
        if self._client is None:
            raise RuntimeError("start() comes first")
        return self._client

    def close(self) -> None:
        """See `Tracker`."""
        if self._client is not None:
            self._client.set_terminated(self._run)


def _allowed(name: str) -> str:
    """Replace what MLflow takes in no name."""
    return re.sub(r"[^\w .:/-]", "_", name)
