"""What trackers are told of a run, read back from TensorBoard's event files and MLflow's database."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import disavow
from disavow import config
from disavow.domain import Evaluation, VerdictKind
from disavow.errors import ConfigError, MissingExtra
from disavow.tracking import Follower
from tests.refusals import refuses

CLIENTS = [f"Sankt-Olav-{i}" for i in range(6)]
LEAVERS = CLIENTS[:3]
ROUNDS = 3


def rows(client: int, samples: int = 8) -> tuple[Any, ...]:
    """Inputs and a number to predict, of one client."""
    inputs = np.random.Generator(np.random.PCG64(client)).normal(size=(samples, 4)).astype(np.float32)
    return inputs, inputs.sum(axis=1, keepdims=True)


def regression() -> disavow.Task:
    """A task without an accuracy."""
    return disavow.task(
        model=lambda: nn.Linear(4, 1),
        clients={client: rows(i) for i, client in enumerate(CLIENTS)},
        test=rows(99, 20),
        loss=nn.functional.mse_loss,
        metrics={"mae": lambda outputs, targets: (outputs - targets).abs().mean()},
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.05),
        epochs=1,
        batch_size=4,
    )


class Kept(disavow.Tracker):
    """A tracker of one's own."""

    def __init__(self) -> None:
        self.figures: list[tuple[int, dict[str, float]]] = []
        self.notes: list[tuple[int, str, str]] = []
        self.closed = False

    def log(self, figures: Mapping[str, float], step: int) -> None:
        self.figures.append((step, dict(figures)))

    def note(self, name: str, text: str, step: int) -> None:
        self.notes.append((step, name, text))

    def close(self) -> None:
        self.closed = True

    def curve(self, name: str) -> list[tuple[int, float]]:
        return [(step, figures[name]) for step, figures in self.figures if name in figures]


class Broken(disavow.Tracker):
    """A tracker whose service is away."""

    def log(self, figures: Mapping[str, float], step: int) -> None:
        raise OSError("no route to host")

    def note(self, name: str, text: str, step: int) -> None:
        raise AssertionError("left out after its first failure")


class Tracked:
    """Where a run was written to, and the trackers of one's own."""

    def __init__(self, folder: Path) -> None:
        self.run, self.logs, self.database = folder / "first", folder / "logs", folder / "mlflow.db"
        self.own, self.later, self.notes = Kept(), Kept(), list[str]()


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Tracked:
    """A run of three rounds, opened again to be erased from: once deniably, then by a rollback."""
    found = Tracked(tmp_path_factory.mktemp("tracked"))
    table = {"tensorboard": str(found.logs), "mlflow": f"sqlite:///{found.database}"}
    settings = config.from_values(
        {"rounds": ROUNDS, "draws": "seeded", "clustering": {"k": 3}, "deniability": {"x": 2}, "tracking": table},
        source="tests",
    )
    with disavow.Federation.create(found.run, regression(), settings=settings) as federation:
        federation.track(found.own)
        federation.track(Broken())
        federation.train(disavow.Callbacks(on_note=found.notes.append))
    with disavow.Federation.open(found.run, regression()) as federation:
        federation.track(found.later)
        first = federation.erase(LEAVERS[0]).requests[LEAVERS[0]].verdict
        second = federation.erase(LEAVERS[1:]).requests[LEAVERS[1]].verdict
    assert first is not None
    assert second is not None
    assert (first.kind, second.kind) == (VerdictKind.DENIABLE, VerdictKind.ROLLBACK)
    return found


def _events(tracked: Tracked) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    [folder] = tracked.logs.iterdir()
    found = EventAccumulator(str(folder), size_guidance={"tensors": 0, "scalars": 0})
    found.Reload()
    return found


def _text(events: Any, name: str) -> list[tuple[int, str]]:
    read = events.Tensors(f"{name}/text_summary")
    return [(each.step, each.tensor_proto.string_val[0].decode()) for each in read]


def test_a_rollback_shows_in_the_curve_of_rounds_and_steps_never_go_back(tracked: Tracked) -> None:
    assert tracked.own.curve("round") == [(1, 1), (2, 2), (3, 3)]
    curve = tracked.later.curve("round")
    steps, rounds = [step for step, _ in curve], [number for _, number in curve]
    assert steps == sorted(steps)
    assert steps[0] == ROUNDS
    assert rounds[0] < ROUNDS
    assert rounds[1:] == list(range(int(rounds[0]) + 1, ROUNDS + 1))
    [(step, _, text)] = [note for note in tracked.later.notes if note[1] == "rollback"]
    assert (step, text.partition(" (")[0]) == (ROUNDS, f"rollback to round {int(rounds[0]) + 1}")


def test_every_round_has_its_metrics_clusters_and_spread(tracked: Tracked) -> None:
    for _, figures in tracked.own.figures:
        assert set(figures) == {"round", "participants", "clusters", "spread", "metrics/mae", "metrics/loss"}
    with disavow.Federation.open(tracked.run) as federation:
        summaries = federation.ledger.summaries()
    for (_, figures), summary in zip(tracked.own.figures, summaries, strict=False):
        assert summary.evaluation is not None
        assert figures["metrics/mae"] == summary.evaluation.metrics["mae"]
        assert figures["clusters"] == summary.clusters
        assert figures["spread"] == summary.spread


def test_verdicts_and_costs_are_told_by_the_number_of_the_request(tracked: Tracked) -> None:
    answers = {name: text for _, name, text in tracked.later.notes if name.startswith("request-")}
    assert list(answers) == ["request-1", "request-2", "request-3"]
    assert answers["request-1"] == "deniable"
    assert answers["request-2"].startswith("rollback to round")
    costs = [figures for _, figures in tracked.later.figures if "erasure/rounds" in figures]
    # one of the deniable answer, and one of the rollback that answers two requests
    assert [each["erasure/rounds"] > 0 for each in costs] == [False, True]
    assert costs[-1]["erasure/client_epochs"] > 0
    assert costs[-1]["erasure/exchanged_bytes"] > 0


def test_tensorboard_reads_the_same_back_from_one_folder(tracked: Tracked) -> None:
    events = _events(tracked)
    expected = tracked.own.curve("round") + tracked.later.curve("round")
    assert [(each.step, each.value) for each in events.Scalars("round")] == expected
    for name in ("metrics/mae", "clusters", "spread", "erasure/seconds"):
        curve = tracked.own.curve(name) + tracked.later.curve(name)
        assert [each.value for each in events.Scalars(name)] == pytest.approx([value for _, value in curve])
    [(step, text)] = _text(events, "rollback")
    assert (step, "rollback to round" in text) == (ROUNDS, True)
    assert len(_text(events, "policy")) == 1


def test_mlflow_reads_the_same_back_from_one_run(tracked: Tracked) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{tracked.database}")
    experiment = client.get_experiment_by_name("disavow")
    assert experiment is not None
    [run] = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("first", "FINISHED")
    assert run.data.params["k"] == "3"
    expected = tracked.own.curve("round") + tracked.later.curve("round")
    found = [(each.step, each.value) for each in client.get_metric_history(run.info.run_id, "round")]
    assert sorted(found) == sorted(expected)
    assert run.data.metrics["metrics/mae"] == pytest.approx(tracked.later.curve("metrics/mae")[-1][1])
    assert run.data.tags[f"rollback.step-{ROUNDS}"].startswith("rollback to round")
    assert run.data.tags[f"request-1.step-{ROUNDS}"] == "deniable"


def test_no_client_id_is_written_to_any_tracker(tracked: Tracked) -> None:
    tracked_text = repr(
        [tracked.own.figures, tracked.own.notes, tracked.later.figures, tracked.later.notes]
    ).encode()
    files = [path for path in [*tracked.logs.rglob("*"), tracked.database] if path.is_file()]
    assert len(files) >= 3
    for client in CLIENTS:
        assert client.encode() not in tracked_text
        for path in files:
            assert client not in str(path.name)
            assert client.encode() not in path.read_bytes(), path


def test_metrics_of_an_own_engine_that_are_named_after_clients_are_left_out(tracked: Tracked) -> None:
    kept, notes = Kept(), list[str]()
    with disavow.Federation.open(tracked.run) as federation:
        follower = Follower(lambda: federation.ledger)
        follower.on_note = notes.append
        follower.add(kept)
        measured = Evaluation(**{"mae": 0.5, f"mae_{CLIENTS[4]}": 0.25})
        follower.on_round(replace(federation.ledger.summary(1), evaluation=measured))
    [(_, figures)] = kept.figures
    assert [name for name in figures if name.startswith("metrics/")] == ["metrics/mae"]
    assert len(notes) == 1


def test_a_tracker_that_fails_is_left_out_and_that_is_noted_once(tracked: Tracked) -> None:
    [note] = [note for note in tracked.notes if "Broken" in note]
    assert "no route to host" in note
    assert tracked.own.closed


def test_rounds_that_nothing_evaluates_are_tracked_too(tmp_path: Path) -> None:
    task, kept = disavow.task(model=nn.Linear(4, 1), clients=regression().clients(), loss=nn.MSELoss()), Kept()
    with disavow.Federation.create(tmp_path / "run", task, policy=disavow.Policy(k=3), rounds=2) as federation:
        federation.track(kept)
        federation.train()
    assert [sorted(figures) for _, figures in kept.figures] == [["clusters", "participants", "round", "spread"]] * 2


def test_the_tracker_on_the_page_about_tracking_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "tracking.md").read_text(encoding="utf-8")
    [program] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    policy = disavow.Policy(k=3)
    with disavow.Federation.create(tmp_path / "run", regression(), policy=policy, rounds=1) as federation:
        exec(compile(program, "docs/tracking.md", "exec"), {"federation": federation})
    assert "metrics/mae" in capsys.readouterr().out


def _settings(**tracking: str) -> config.Settings:
    return config.from_values({"rounds": 1, "clustering": {"k": 3}, "tracking": tracking}, source="tests")


def test_what_is_not_installed_is_refused_before_there_is_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    for table in ({"mlflow": "sqlite:///here.db"}, {"tensorboard": "logs"}):
        with refuses(MissingExtra, *(f"[{name}]" for name in table)):
            disavow.Federation.create(tmp_path / "run", regression(), settings=_settings(**table))
    assert list(tmp_path.iterdir()) == []


def test_a_tracker_that_cannot_be_opened_refuses_training_but_no_erasure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = _settings(tensorboard=str(tmp_path / "file"))
    with (
        disavow.Federation.create(tmp_path / "run", regression(), settings=settings) as federation,
        refuses(ConfigError, tmp_path / "file"),
    ):
        federation.train()
    notes: list[str] = []
    with disavow.Federation.open(tmp_path / "run") as federation:
        assert federation.ledger.last_round == 0
        answer = federation.erase(CLIENTS[0], callbacks=disavow.Callbacks(on_note=notes.append))
    assert not answer.requests[CLIENTS[0]].pending
    assert any(str(tmp_path / "file") in note for note in notes)


def test_a_run_keeps_the_full_paths_and_may_change_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = _settings(tensorboard="logs", mlflow="sqlite:///runs.db")
    with disavow.Federation.create(tmp_path / "run", regression(), settings=settings) as federation:
        kept = federation.settings.tracking
    assert (kept.tensorboard, kept.mlflow) == (str(tmp_path / "logs"), f"sqlite:///{tmp_path / 'runs.db'}")
    path = tmp_path / "run" / "config.toml"
    path.write_text(path.read_text().replace(str(tmp_path / "logs"), str(tmp_path / "elsewhere")))
    with disavow.Federation.open(tmp_path / "run", regression(), write=True) as federation:
        assert federation.settings.tracking.tensorboard == str(tmp_path / "elsewhere")
