"""Figures for Prometheus. No label holds a client's id: they are runs, states and verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from disavow.errors import DisavowError
from disavow.server import views
from disavow.server.open_runs import OpenRuns

REGISTRY = CollectorRegistry()
FAILED_LOGINS = Counter("disavow_failed_logins", "Credentials that were refused.", registry=REGISTRY)
DELIVERIES = Counter(
    "disavow_deliveries", "Webhooks and callbacks, by what became of the attempt.", ["outcome"], registry=REGISTRY
)


class RunFigures(Collector):
    """What the runs hold, read when it is asked for.

    Args:
        runs: The runs that are served.

    """

    def __init__(self, runs: OpenRuns) -> None:
        self._runs = runs

    def collect(self) -> Iterable[Metric]:
        """Read the figures of every run that can be read."""
        figures = {
            name: GaugeMetricFamily(f"disavow_{name}", about, labels=["run", *labels])
            for name, about, labels in (
                ("requests", "Requests by state.", ["state"]),
                ("deadline_days", "Days to the nearest deadline of a request to answer or to purge.", []),
                ("unpurged_requests", "Answered requests whose updates may be in the model.", []),
                ("rounds", "Rounds that stand.", []),
                ("round_seconds", "What a round took lately.", []),
                ("verdicts", "Answered requests by verdict.", ["verdict"]),
                ("rollbacks", "Rollbacks so far.", []),
                ("readable", "Whether the run can be read.", []),
            )
        }
        for run in self._runs.names():
            try:
                for figure, labels, value in self._of(run):
                    figures[figure].add_metric([run, *labels], value)
                figures["readable"].add_metric([run], 1)
            except DisavowError:
                figures["readable"].add_metric([run], 0)
        return figures.values()

    def _of(self, run: str) -> Iterator[tuple[str, list[str], float]]:
        federation = self._runs.federation(run)
        ledger = federation.ledger
        for state, count in ledger.request_counts().items():
            yield "requests", [state.value], count
        days = views.days_to_deadline(federation)
        if days is not None:
            yield "deadline_days", [], days
        yield "unpurged_requests", [], len(ledger.unpurged().rounds)
        yield "rounds", [], ledger.last_round
        if (seconds := ledger.seconds_per_round()) is not None:
            yield "round_seconds", [], seconds
        for verdict, count in ledger.verdict_counts().items():
            yield "verdicts", [verdict], count
        yield "rollbacks", [], ledger.count_rollbacks()


def text_of(runs: OpenRuns) -> bytes:
    """Print all figures in Prometheus's format."""
    registry = CollectorRegistry()
    registry.register(RunFigures(runs))
    return generate_latest(REGISTRY) + generate_latest(registry)
