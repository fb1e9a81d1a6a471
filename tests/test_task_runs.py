"""Runs of a task of one's own: from Python, from settings, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn
from typer.testing import CliRunner

import disavow
from disavow import config
from disavow.cli.app import app
from disavow.domain import EngineChoice, VerdictKind
from disavow.errors import CannotRetrain, ConfigError, RoundRefused, TaskError
from disavow.federation import Callbacks
from disavow.ledger import fsck
from disavow.ledger.rows import RUN, run_digest, time_to_text
from disavow.proof.envelope import Envelope
from disavow.proof.keys import generate
from disavow.proof.leaves import RunLeaf
from disavow.proof.statement import decode_statement
from disavow.proof.verify import TrustedKey, VerificationInputs, verify
from disavow.rounds.options import now
from tests.cli import forked, process
from tests.cli.process import environment, run
from tests.refusals import refuses
from tests.tasks.zoo import TASKS, Regression

ROOT = Path(__file__).parents[1]
POLICY = disavow.Policy(k=2, x=1, draws="seeded")


def rows(client: int, samples: int = 12) -> tuple[Any, ...]:
    """Inputs and labels of one client."""
    rng = np.random.Generator(np.random.PCG64(client))
    inputs = rng.normal(size=(samples, 6)).astype(np.float32)
    return inputs, (inputs.sum(axis=1) > 0).astype(np.int64)


def own_task(**changes: Any) -> disavow.Task:
    """A network with batch norm and dropout, trained by Adam."""
    parts: dict[str, Any] = {
        "model": lambda: nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2)
        ),
        "clients": {f"clinic-{i}": rows(i) for i in range(6)},
        "test": rows(99, 40),
        "optimizer": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
        "epochs": 1,
        "batch_size": 4,
    }
    return disavow.task(**(parts | changes))


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a signing key, which everything uses."""
    folder = tmp_path / "keys"
    monkeypatch.setenv("DISAVOW_KEYS", str(folder))
    generate(folder, name="test", passphrase=None, at=time_to_text(now()))
    return folder


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of three rounds of that task, made in Python, and with its keys."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISAVOW_KEYS", str(folder / "keys"))
        generate(folder / "keys", name="test", passphrase=None, at=time_to_text(now()))
        with disavow.Federation.create(
            folder / "run", own_task(), policy=replace(POLICY, x=2), rounds=3
        ) as federation:
            federation.train()
    return folder


@pytest.fixture
def trained(tmp_path: Path, keys: Path, trained_once: Path) -> Path:
    """A copy of that run, with its keys in the place of those that everything uses."""
    shutil.rmtree(keys)
    shutil.copytree(trained_once / "keys", keys)
    return Path(shutil.copytree(trained_once / "run", tmp_path / "run"))


def test_a_deniable_erasure_is_proved_and_verified_without_the_task(tmp_path: Path, keys: Path) -> None:
    trained = tmp_path / "deniable"
    with disavow.Federation.create(trained, own_task(), policy=POLICY, rounds=2) as federation:
        federation.train()
    with disavow.Federation.open(trained) as federation:
        answer = federation.erase("clinic-1")
        number = answer.requests["clinic-1"].number
        proof = (trained / "proofs" / f"request-{number}.json").read_bytes()
        opening = federation.opening_of(number).read_bytes()
        key = federation.ledger.log_key()
    assert key is not None
    assert verify(VerificationInputs(proof, [TrustedKey(key)], opening=opening, client="clinic-1")).valid
    assert fsck(trained) == []


def test_a_rollback_retrains_to_the_bits_of_a_run_that_goes_on_without_the_leaver(
    tmp_path: Path, trained: Path
) -> None:
    leavers = ["clinic-0", "clinic-1", "clinic-2"]
    with disavow.Federation.open(trained, own_task()) as federation:
        answer = federation.erase(leavers)
        kinds = {request.verdict.kind for request in answer.requests.values() if request.verdict}
        assert kinds == {VerdictKind.ROLLBACK}
        assert {request.remark for request in answer.requests.values()} <= {None, ""}
        assert [summary.standing for summary in federation.ledger.summaries()].count(True) == 3
        weights = federation.state_dict()
    assert fsck(trained) == []
    # whoever opens it again gets the same, and the survivors alone are needed
    rest = own_task(clients={f"clinic-{i}": rows(i) for i in range(3, 6)})
    with disavow.Federation.open(trained, rest) as federation:
        again = federation.state_dict()
    assert all(torch.equal(weights[name], again[name]) for name in weights)


def _unseeded(model: nn.Module, data: Any, seed: int) -> None:
    """Draws from a generator that the operating system seeds, as no other training of this client will."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.as_tensor(np.random.default_rng().normal(size=parameter.shape)))


def _seeded(model: nn.Module, data: Any, seed: int) -> None:
    """Draws from the global generator of NumPy, which is seeded by run, round and client."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.as_tensor(np.random.normal(size=parameter.shape)))  # noqa: NPY002


@pytest.mark.parametrize("loop", [_unseeded, _seeded])
def test_code_that_does_not_repeat_itself_is_reported_after_a_rollback(
    tmp_path: Path, keys: Path, loop: Any
) -> None:
    task = disavow.task(
        model=lambda: nn.Linear(6, 2), clients={f"clinic-{i}": rows(i) for i in range(6)}, train_client=loop
    )
    policy = replace(POLICY, x=2)
    with disavow.Federation.create(tmp_path / "run", task, policy=policy, rounds=2) as federation:
        federation.train()
    with disavow.Federation.open(tmp_path / "run", task) as federation:
        answer = federation.erase(["clinic-0", "clinic-1", "clinic-2"])
        remarks = {request.remark or "" for request in answer.requests.values()}
    if loop is _seeded:
        assert remarks == {""}
        return
    [remark] = remarks
    assert "retrained, not reproducible" in remark
    assert "3 of 3" in remark


@pytest.mark.parametrize("which", ["a task", "images"])
def test_a_gpu_that_is_asked_for_and_absent_is_refused_before_anything_is_written(
    tmp_path: Path, keys: Path, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    settings = config.from_values({"engine": {"device": "cuda"}}, source="test")
    task = own_task() if which == "a task" else None
    with refuses(ConfigError, "engine.device", "cuda"):
        disavow.Federation.create(tmp_path / "run", task, settings=settings, policy=POLICY)
    assert [path.name for path in tmp_path.iterdir()] == ["keys"]
    assert not (keys / "tombstone.key").exists()


def test_a_run_keeps_which_engine_trained_and_why_no_faster_one(trained: Path) -> None:
    with disavow.Federation.open(trained) as federation:
        status = federation.status()
        assert status.engine is not None
        document = status.to_json()["engine"]
    assert status.engine.name == document["name"] == status.rounds[-1].trainer
    if not torch.cuda.is_available():
        assert document["name"] == "sequential"
        assert list(document["passed_over"]) == ["pool", "compiled", "stacked"]
    heard: list[EngineChoice] = []
    with disavow.Federation.open(trained, own_task()) as federation:
        federation.erase(["clinic-0", "clinic-1", "clinic-2"], callbacks=Callbacks(on_engine=heard.append))
    assert heard == [status.engine]
    with sqlite3.connect(trained / "ledger.sqlite3") as connection:
        connection.execute("UPDATE run SET engine = ?", ('{"name": 3}',))
    assert [finding.where for finding in fsck(trained)] == ["table run"]


def test_metrics_of_the_task_are_kept_with_each_round(tmp_path: Path, keys: Path) -> None:
    task = TASKS["regression"]()
    with disavow.Federation.create(tmp_path / "run", task, policy=POLICY, rounds=2) as federation:
        federation.train()
        found = [summary.evaluation for summary in federation.ledger.summaries()]
        assert federation.settings.training.batch_size == 4
    assert [sorted(each.metrics) for each in found if each] == [["bias", "rmse"]] * 2


def test_an_export_loads_strictly_and_frozen_parameters_stay_out_of_it(tmp_path: Path, keys: Path) -> None:
    with disavow.Federation.create(tmp_path / "one", own_task(), policy=POLICY, rounds=2) as federation:
        federation.train()
        exported = safetensors.torch.load(federation.export().data)
        served = federation.model()
    network = own_task().model()
    network.load_state_dict(exported)
    assert all(torch.equal(network.state_dict()[name], value) for name, value in served.state_dict().items())
    task = TASKS["transformer text"]()
    with disavow.Federation.create(tmp_path / "two", task, policy=POLICY, rounds=1) as federation:
        federation.train()
        exported = safetensors.torch.load(federation.export().data)
        complete = federation.state_dict()
    assert "position" not in exported
    assert "head.weight" not in exported
    TASKS["transformer text"]().model().load_state_dict(complete)


def test_the_digest_of_frozen_parameters_is_in_leaf_0_and_shown_by_proofs(tmp_path: Path, keys: Path) -> None:
    task = TASKS["transformer text"]()
    with disavow.Federation.create(tmp_path / "run", task, policy=POLICY, rounds=1) as federation:
        federation.train()
        answer = federation.erase("ada")
        frozen = federation.ledger.trainer.frozen
    assert answer.refusal is None
    assert frozen is not None
    proof = (tmp_path / "run" / "proofs" / "request-1.json").read_bytes()
    statement = decode_statement(Envelope.decode(proof).statement)
    promised = statement.predicate.leaves[0]
    assert isinstance(promised, RunLeaf)
    assert promised.frozen == frozen
    shown = CliRunner().invoke(app, ["show-proof", str(tmp_path / "run" / "proofs" / "request-1.json"), "--json"])
    assert json.loads(shown.stdout)["frozen"] == frozen
    assert fsck(tmp_path / "run") == []
    with closing(sqlite3.connect(tmp_path / "run" / "ledger.sqlite3")) as connection, connection:
        row = dict(zip(RUN, connection.execute(f"SELECT {', '.join(RUN)} FROM run").fetchone(), strict=True))
        row["trainer"] = row["trainer"].replace(frozen, "ab" * 32)
        connection.execute("UPDATE run SET trainer = ?, digest = ?", (row["trainer"], run_digest(row)))
    [found] = fsck(tmp_path / "run")
    assert (found.where, "leaf 0" in found.what) == ("table log", True)


def test_train_takes_a_number_of_rounds_and_a_mean_of_models_can_be_had(trained: Path) -> None:
    with disavow.Federation.open(trained, own_task()) as federation:
        federation.train(rounds=5)
        assert federation.ledger.last_round == 5
        mean, served = federation.state_dict(average=3), federation.state_dict()
    assert not torch.equal(mean["0.weight"], served["0.weight"])


def _other_weights() -> nn.Module:
    network = own_task().model()
    with torch.no_grad():
        next(network.parameters()).add_(0.5)
    return network


def _counted() -> nn.Module:
    network = own_task().model()
    network.get_buffer("1.num_batches_tracked").add_(3)
    return network


def _other_data() -> disavow.Task:
    return own_task(clients={f"clinic-{i}": rows(i + (i == 4)) for i in range(6)})


@pytest.mark.parametrize(
    ("task", "named"),
    [
        (None, "--task"),
        ("nowhere:build", "nowhere"),
        (own_task(model=lambda: nn.Linear(6, 2)), "0.weight is (8, 6)"),
        (own_task(model=_counted), "whole numbers"),
        (own_task(model=_other_weights), "initial model"),
        (own_task(clients={f"clinic-{i}": rows(i) for i in range(5)}), "clinic-5"),
        (_other_data(), "clinic-4"),
    ],
    ids=[
        "no task",
        "no module",
        "another model",
        "another counter",
        "other weights",
        "a client is missing",
        "other data",
    ],
)
def test_a_task_that_has_changed_is_refused_and_nothing_is_undone(
    trained: Path, task: disavow.Task | str | None, named: str
) -> None:
    with disavow.Federation.open(trained, task) as federation:
        before = federation.ledger.last_round
        answer = federation.erase(["clinic-0", "clinic-1", "clinic-2"])
        assert answer.refusal is not None
        assert named in str(answer.refusal)
        assert federation.ledger.last_round == before
        with pytest.raises(CannotRetrain):
            federation.train(rounds=9)
    with disavow.Federation.open(trained, own_task()) as federation:
        federation.answer()
        assert all(not request.pending for request in federation.requests())


def _one_other(inputs: Any, targets: Any) -> dict[str, Any]:
    """Everybody's data, of which that of clinic-4 is another."""
    return {f"clinic-{i}": (inputs, targets) if i == 4 else rows(i) for i in range(6)}


class Uncountable(torch.utils.data.Dataset[Any]):
    """Data whose disk is away."""

    def __len__(self) -> int:
        raise OSError("no such disk")


class BadKeys(Regression):
    """A task that does not know the records of its clients."""

    def record_keys(self, client: str) -> Any:
        raise KeyError(client)


class Fails(disavow.Task):
    """A task whose own code raises."""

    def model(self) -> nn.Module:
        raise LookupError("no such weights")

    def clients(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("task", "policy", "kind", "named"),
    [
        (own_task(model=lambda: nn.Linear(6, 2).requires_grad_(False)), POLICY, TaskError, ["model", "frozen"]),
        (own_task(model=lambda: 7), POLICY, TaskError, ["model", "int"]),
        (Fails(), POLICY, TaskError, ["Fails.model()", "LookupError", "no such weights", "test_task_runs.py:"]),
        (own_task(clients={}), POLICY, TaskError, ["clients"]),
        (own_task(clients={"a": (), "b": rows(1)}), POLICY, TaskError, ["client a"]),
        (own_task(clients={"a": rows(1), "b": rows(2, 0)}), POLICY, TaskError, ["client b"]),
        (own_task(clients=[("a", rows(1)), ("b", rows(3)), ("a", rows(2))]), POLICY, TaskError, ["id a twice"]),
        (own_task(test=rows(1, 0)), POLICY, TaskError, ["test data"]),
        (own_task(clients=_one_other(rows(1)[0], np.array(["a"] * 12))), POLICY, TaskError, ["clinic-4", "<U1"]),
        (own_task(clients=_one_other(*rows(1)) | {"b": Uncountable()}), POLICY, TaskError, ["client b", "OSError"]),
        (own_task(clients=[rows(1)]), POLICY, TaskError, ["the id array(", "..."]),
        (own_task(model=lambda: nn.LazyLinear(2)), POLICY, TaskError, ["model", "lazy"]),
        (own_task(model=lambda: nn.Linear(6, 2, device="meta")), POLICY, TaskError, ["model", "meta"]),
        (own_task(clip_gradients=-1.0), POLICY, TaskError, ["clip_gradients", "-1.0"]),
        (BadKeys(), POLICY, TaskError, ["BadKeys.record_keys()", "client ada", "KeyError"]),
        (own_task(), disavow.Policy(k=7, x=2), ConfigError, ["clustering.k is 7", "6"]),
        (own_task(), disavow.Policy(k=0, x=2), ConfigError, ["clustering.k", "0"]),
    ],
    ids=[
        "frozen", "no module", "model raises", "nobody", "no arrays", "no samples", "an id twice", "no test data",
        "text", "no length", "no ids", "lazy", "meta", "clipping", "keys", "k too large", "k = 0",
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused_and_nothing_is_written(
    tmp_path: Path, keys: Path, task: Any, policy: disavow.Policy, kind: type[ConfigError], named: list[str]
) -> None:
    with refuses(kind, *named):
        disavow.Federation.create(tmp_path / "run", task, policy=policy)
    assert not (tmp_path / "run").exists()


INPUTS, LABELS = rows(4)
PLAIN: dict[str, Any] = {"model": lambda: nn.Linear(6, 2), "optimizer": None, "test": None}


@pytest.mark.parametrize(
    ("changes", "kind", "named"),
    [
        ({"clients": _one_other(INPUTS[:, :5], LABELS)}, TaskError, ["clinic-4", "round 1", "(4, 5)", "(4,)"]),
        ({"clients": _one_other(INPUTS, LABELS + 7)}, TaskError, ["clinic-4", "round 1", "(4, 6)"]),
        (PLAIN | {"clients": _one_other(INPUTS, LABELS + 7)}, TaskError, ["clinic-4", "round 1", "(4, 6)"]),
        (PLAIN | {"model": lambda: nn.Linear(5, 2)}, TaskError, ["clinic-0", "round 1", "(4, 6)"]),
        ({"clients": _one_other(INPUTS, INPUTS)}, TaskError, ["clinic-4", "float32(4, 6)", "a loss"]),
        ({"loss": nn.CrossEntropyLoss(reduction="none")}, TaskError, ["clinic-0", "float32(4,)", "mean"]),
        ({"clients": _one_other(INPUTS * np.nan, LABELS)}, RoundRefused, ["clinic-4", "round 1"]),
        (PLAIN | {"clients": _one_other(INPUTS * np.nan, LABELS)}, RoundRefused, ["clinic-4", "round 1"]),
    ],
    ids=[
        "another width", "no such class", "no such class, fast engine", "no such width, fast engine", "no class",
        "a loss that is no number", "NaN", "NaN, fast engine",
    ],
)  # fmt: skip
def test_what_fails_in_training_names_client_round_and_shapes_and_leaves_the_run_as_it_was(
    tmp_path: Path, keys: Path, changes: dict[str, Any], kind: type[disavow.DisavowError], named: list[str]
) -> None:
    settings = config.from_values({"clustering": {"k": 2}, "engine": {"name": "sequential"}}, source="tests")
    with disavow.Federation.create(tmp_path / "run", own_task(**changes), settings=settings) as federation:
        with refuses(kind, *named):
            federation.train(rounds=1)
        assert federation.ledger.last_round == 0
        assert not federation.erase("clinic-1").requests["clinic-1"].pending
    assert fsck(tmp_path / "run") == []


def test_an_evaluation_that_is_no_mapping_is_refused_and_training_goes_on_once_it_is(
    tmp_path: Path, keys: Path
) -> None:
    class Measured(Regression):
        def evaluate(self, model: nn.Module, data: Any) -> Any:
            return 0.5

    federation = disavow.Federation.create(tmp_path / "run", Measured(), policy=POLICY, rounds=2)
    with federation, refuses(TaskError, "Measured.evaluate()", "float"):
        federation.train()
    with disavow.Federation.open(tmp_path / "run", Regression()) as federation:
        federation.train()
        assert [sorted(each.evaluation.metrics) for each in federation.ledger.summaries() if each.evaluation] == [
            ["bias", "rmse"]
        ] * 2


def test_a_task_that_takes_parts_which_exclude_each_other_is_refused() -> None:
    with pytest.raises(TaskError):
        own_task(train_client=lambda model, data, seed: None)


def test_a_task_is_trained_erased_from_and_resumed_by_commands(tmp_path: Path, keys: Path) -> None:
    def command(*arguments: str, status: int = 0) -> str:
        # one process as a shell starts it; the rest are forks
        start = process.disavow if arguments[0] == "train" and "--json" in arguments else forked.disavow
        ended = start(*arguments, cwd=tmp_path)
        assert ended.returncode == status, ended.stderr
        return ended.stdout + ended.stderr

    command("init", "config.toml", "--task", "own_module.py")
    config = tmp_path / "config.toml"
    config.write_text(config.read_text().replace("rounds = 20", "rounds = 2"))
    printed = command("train", "config.toml", "--run", "run", "--json")
    assert "accuracy" in printed
    [choice] = [line for line in printed.splitlines() if line.startswith("engine: ")]
    assert printed.splitlines()[printed.splitlines().index("}") + 1] == choice  # the first line of stderr
    plain = tmp_path / "plain.toml"
    plain.write_text("rounds = 1")
    command("train", "plain.toml", "--run", "other", "--task", "own_module:build")
    assert 'factory = "own_module:build"' in (tmp_path / "other" / "config.toml").read_text()
    (tmp_path / "own_module.py").rename(tmp_path / "away.py")
    assert "deniable" in command("erase", "run", "client-03", "--yes")
    assert choice.removeprefix("engine: ") in command("status", "run")
    many = [f"client-{i:02d}" for i in (1, 2, 4, 5, 6, 7, 8)]
    assert "own_module" in command("erase", "run", *many, "--yes", status=10)
    (tmp_path / "away.py").rename(tmp_path / "own_module.py")
    printed = command("erase", "run", *many, "--yes")
    assert "retrained" in printed
    assert "not reproducible" not in printed
    assert choice in printed.splitlines()
    assert choice in command("resume", "run").splitlines()
    command("fsck", "run", "--absent", "client-03")


def test_the_tutorial_runs_as_it_is_printed(tmp_path: Path, keys: Path) -> None:
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    [program] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len([line for line in program.splitlines() if line]) <= 25
    (tmp_path / "hospitals.py").write_text(program)
    env = environment(DISAVOW_KEYS=str(keys))
    ended = run([sys.executable, "hospitals.py"], cwd=tmp_path, env=env)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] in ("deniable", "rollback to round 1")
    [opening] = (tmp_path / "runs" / "hospitals.openings").iterdir()
    proof = tmp_path / "runs" / "hospitals" / "proofs" / "request-1.json"
    line = [
        "verify",
        str(proof),
        "--key",
        str(keys / "signing.pub"),
        "--opening",
        str(opening),
        "--client",
        "hospital-3",
    ]
    ended = run([sys.executable, "-m", "disavow", *line], cwd=tmp_path, env=env)
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize(
    ("folder", "factory", "rounds"),
    [("hospitals", "hospitals:Hospitals", 3), ("text", "docstrings:build", 1)],
)
def test_the_examples_train(tmp_path: Path, keys: Path, folder: str, factory: str, rounds: int) -> None:
    from disavow.tasks import build

    task = build(factory, {}, ROOT / "examples" / folder)
    with disavow.Federation.create(tmp_path / "run", task, policy=disavow.Policy(), rounds=rounds) as federation:
        federation.train()
        [*_, last] = federation.ledger.summaries()
    assert last.evaluation is not None
    assert last.evaluation.metrics["auroc"] > 0.5


def test_tcga_brca_trains_where_its_data_is_at_hand(tmp_path: Path, keys: Path) -> None:
    from disavow.tasks import build

    data = ROOT.parent / "shared" / "data" / "tcga-brca"
    if not data.exists():
        pytest.skip("the data of TCGA-BRCA is not at hand")
    pytest.importorskip("pandas")
    task = build("tcga:TcgaBrca", {"folder": str(data)}, ROOT / "examples" / "tcga-brca")
    policy = disavow.Policy(k=3, x=2)
    with disavow.Federation.create(tmp_path / "run", task, policy=policy, rounds=8) as federation:
        federation.train()
        [*_, last] = federation.ledger.summaries()
        assert len(federation.clients()) == 6
    assert last.evaluation is not None
    assert last.evaluation.metrics["concordance"] > 0.5


@pytest.mark.parametrize("held", [False, True])
def test_the_data_of_whoever_returns_is_bound_again_on_first_use(tmp_path: Path, keys: Path, held: bool) -> None:
    """By the next process that loads the task, and by one that has loaded it before."""
    trained = tmp_path / "returns"

    def readmit(summary: object = None) -> None:
        with disavow.Federation.open(trained) as other:
            if "clinic-1" not in other.clients():
                other.readmit("clinic-1", by="officer", reason="consents again")

    with disavow.Federation.create(trained, own_task(), policy=POLICY, rounds=2) as federation:
        federation.train()
        before = federation.ledger.data_digests()
        federation.erase("clinic-1")
        assert "clinic-1" not in federation.ledger.data_digests()
        if held:
            federation.train(Callbacks(on_round=readmit), rounds=4)
            assert federation.ledger.rounds_with("clinic-1") == (4,)
    if not held:
        readmit()
        with disavow.Federation.open(trained, own_task()) as federation:
            federation.train(rounds=3)
    with disavow.Federation.open(trained) as federation:
        assert federation.ledger.data_digests() == before
    other = {f"clinic-{i}": rows(i if i != 1 else 77) for i in range(6)}
    with disavow.Federation.open(trained, own_task(clients=other)) as changed, refuses(CannotRetrain, "clinic-1"):
        changed.train(rounds=5)
