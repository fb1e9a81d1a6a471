"""Track a federation in TensorBoard or MLflow: rounds, metrics, clusters, spread, verdicts and costs.

Steps count the rounds that were run, superseded ones too, and `round` is a curve of its own: where a rollback goes
back, that curve falls and is climbed again, and the metrics of the undone rounds stay where they were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from disavow.domain import Evaluation
from disavow.errors import MissingExtra, how_to_install
from disavow.federation import Callbacks

if TYPE_CHECKING:
    from disavow.domain import ErasureRequest, Verdict
    from disavow.federation import Federation
    from disavow.ledger import RoundSummary

_NOTHING = Evaluation()

LogNumber = Callable[[str, float, int], None]
"""Writes a figure: its name, its value, the step."""
LogText = Callable[[str, str, int], None]
"""Writes a line of text: its name, the text, the step."""


def tensorboard(federation: Federation, directory: Path, callbacks: Callbacks | None = None) -> Callbacks:
    """Write everything that happens to a federation as TensorBoard events.

    Args:
        federation: The federation, open; steps go on where its rounds stand.
        directory: Where the event files go.
        callbacks: Who hears of it besides.

    Returns:
        What to give to `Federation.train` and `Federation.erase`.

    Raises:
        MissingExtra: TensorBoard is not installed.

    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingExtra(f"TensorBoard is not installed; {how_to_install('tensorboard')}") from None
    writer = SummaryWriter(str(directory))

    def number(name: str, value: float, step: int) -> None:
        writer.add_scalar(name, value, step)
        writer.flush()

    def text(name: str, line: str, step: int) -> None:
        writer.add_text(name, line, step)
        writer.flush()

    return track(federation, number, text, callbacks)


def mlflow(federation: Federation, experiment: str, callbacks: Callbacks | None = None) -> Callbacks:
    """Log everything that happens to a federation to an MLflow run, at the tracking server that MLflow knows.

    Args:
        federation: The federation, open; its id is the name of the MLflow run.
        experiment: The experiment to log to.
        callbacks: Who hears of it besides.

    Returns:
        What to give to `Federation.train` and `Federation.erase`.

    Raises:
        MissingExtra: MLflow is not installed.

    """
    try:
        from mlflow.tracking import MlflowClient
    except ImportError:
        raise MissingExtra(f"MLflow is not installed; {how_to_install('mlflow')}") from None
    client = MlflowClient()
    found = client.get_experiment_by_name(experiment)
    experiment_id = found.experiment_id if found is not None else client.create_experiment(experiment)
    run = client.create_run(experiment_id, run_name=federation.ledger.run_id).info.run_id
    for name, value in vars(federation.ledger.policy).items():
        client.log_param(run, f"policy.{name}", value)
    lines: list[str] = []

    def text(name: str, line: str, step: int) -> None:
        lines.append(f"{step} {name}: {line}")
        client.log_text(run, "\n".join(lines) + "\n", "requests.txt")

    def number(name: str, value: float, step: int) -> None:
        client.log_metric(run, name, value, step=step)

    return track(federation, number, text, callbacks)


def track(
    federation: Federation, number: LogNumber, text: LogText, callbacks: Callbacks | None = None
) -> Callbacks:
    """Turn what happens to a federation into named figures and lines of text.

    Args:
        federation: The federation; steps go on where its rounds stand.
        number: Writes a figure.
        text: Writes a line.
        callbacks: Who hears of it besides.

    """
    others = callbacks or Callbacks()
    state: dict[str, Any] = {"step": len(federation.ledger.summaries())}

    def on_round(summary: RoundSummary) -> None:
        state["step"] += 1
        figures = {
            "round": summary.number,
            "participants": summary.participants,
            "clusters": summary.clusters,
            "delta": summary.delta,
            "update_norm": summary.update_norm,
            "pairs_within_delta": summary.pairs_within,
            **({} if summary.spread is None else {"spread": summary.spread}),
            **{f"metrics/{name}": value for name, value in (summary.evaluation or _NOTHING).metrics.items()},
        }
        for name, value in figures.items():
            number(name, value, state["step"])
        others.on_round(summary)

    def on_verdict(verdict: Verdict, requests: int) -> None:
        text("verdict", f"{requests} requests: {verdict.in_full}", state["step"])
        if verdict.undoes is not None:
            number("rollback_to", verdict.undoes, state["step"])
        others.on_verdict(verdict, requests)

    def on_answer(request: ErasureRequest) -> None:
        if request.cost is not None:
            number("cost/rounds", request.cost.rounds, state["step"])
            number("cost/client_epochs", request.cost.client_epochs, state["step"])
        text("answer", f"request {request.number} answered", state["step"])
        others.on_answer(request)

    return replace(others, on_round=on_round, on_verdict=on_verdict, on_answer=on_answer)
