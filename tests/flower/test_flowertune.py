"""The example in FlowerTune's layout, in Flower's own simulation: authors leave, and PEFT loads what is left."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr")
pytest.importorskip("ray")
pytest.importorskip("peft", reason="needs the extra llm")

import peft
import safetensors.torch
import transformers
from flwr.app import Context, RecordDict
from flwr.common.config import flatten_dict

from disavow.domain import EventKind, RequestState, VerdictKind
from disavow.errors import CannotRetrain, TaskError
from disavow.ledger import Ledger, fsck
from tests.cli.process import disavow, environment, run
from tests.flower.loopback import LoopbackGrid
from tests.flower.network import EXAMPLES, Network, wait_until

pytestmark = [pytest.mark.flower, pytest.mark.timeout(600)]

APP = EXAMPLES / "flowertune-adapters"
PACKAGE = APP / "flowertune_adapters"
NODES = 6
ROUNDS = 2
LEAVER, STAYS = "partition-3", "partition-1"
QUESTION = "Where was Teodoro Bracali born?"
"""Of the author whom `STAYS` has."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "tiny"
    made = run(
        [sys.executable, str(APP / "make_base.py"), str(folder), "--steps", "0"], cwd=None, env=environment()
    )
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("keys")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISAVOW_KEYS", str(folder))
        assert disavow("keygen", "--no-passphrase").returncode == 0
        yield folder


@pytest.fixture(scope="module")
def simulation(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    network = Network(tmp_path_factory.mktemp("simulation") / "network", simulation=True, nodes=NODES)
    try:
        network.start_superlink()
        yield network
    finally:
        network.stop()


def finished(simulation: Network, app: Path, **config: object) -> tuple[str, str]:
    """Run the app to its end; how it ended, and what it wrote to Flower's log."""
    number = simulation.run(app, **config)
    wait_until(
        lambda: simulation.status(number).startswith("finished"),
        app.name,
        seconds=400.0,
        every=4.0,  # whoever asks is a process, and takes a second of a core
        log=lambda: simulation.said(number),
    )
    return simulation.status(number), simulation.said(number)


def test_authors_leave_and_peft_loads_what_is_left(
    simulation: Network, keys: Path, base: Path, tmp_path: Path
) -> None:
    directory, saved, adapter = tmp_path / "run", tmp_path / "saved", tmp_path / "adapter"
    config = {
        "model.name": base,
        "train.save-path": saved,
        "train.training-arguments.num-train-epochs": 1,
        "strategy.ledger": directory,
        "strategy.k": 3,
        "strategy.x": 3,  # every client is needed: whoever is withdrawn takes the run back
        "strategy.min-available-nodes": NODES,
    }
    status, said = finished(simulation, APP, **config, **{"num-server-rounds": ROUNDS})
    assert status == "finished:completed", said
    before = (saved / f"round-{ROUNDS}" / "adapter_model.safetensors").read_bytes()

    # one author leaves, one question of another is erased; rounds are undone only where they can be retrained
    assert disavow("erase", directory, LEAVER, "--yes").returncode == CannotRetrain.exit_code
    assert disavow("erase", directory, STAYS, "--record", QUESTION, "--yes").returncode == CannotRetrain.exit_code
    status, said = finished(simulation, APP, **config, **{"num-server-rounds": ROUNDS + 1})
    assert status == "finished:completed", said
    with Ledger.open(directory) as ledger:
        assert ledger.clients() == tuple(f"partition-{i}" for i in range(NODES) if i != 3)
        assert ledger.last_round == ROUNDS + 1
        requests = ledger.requests()
        served = ledger.served_model_digest()
    for request in requests:
        assert request.state is RequestState.ANSWERED
        assert request.verdict is not None
        assert request.verdict.kind is VerdictKind.ROLLBACK
        assert request.remark == ""  # retrained bit for bit, by every node that stays
        assert EventKind.NOT_HELD not in {event.kind for event in request.history}  # the node left it out
    assert [finding for finding in fsck(directory) if finding.fault] == []
    assert (saved / f"round-{ROUNDS}" / "adapter_model.safetensors").read_bytes() != before

    # the adapter is the model that the proofs are about, and PEFT puts it on the base
    options = ("--adapter-config", saved / "adapter_config.json", "--json")
    done = disavow("export-adapter", directory, "-o", adapter, *options)
    assert done.returncode == 0, done.stderr
    weights = adapter / "adapter_model.safetensors"
    assert json.loads(done.stdout)["model"] == served == hashlib.sha256(weights.read_bytes()).hexdigest()
    for number, client in ((1, LEAVER), (2, STAYS)):
        proof = tmp_path / f"proof-{number}.json"
        assert disavow("prove", directory, "--request", str(number), "-o", proof).returncode == 0
        [opening] = directory.with_name("run.openings").glob(f"request-{number}-*.json")
        given = ("--key", keys / "signing.pub", "--opening", opening, "--client", client, "--model", weights)
        verified = disavow("verify", proof, *given)
        assert verified.returncode == 0, verified.stdout + verified.stderr
    loaded = peft.PeftModel.from_pretrained(transformers.AutoModelForCausalLM.from_pretrained(base), adapter)
    matrices = peft.get_peft_model_state_dict(loaded)
    expected = safetensors.torch.load_file(weights)
    assert matrices.keys() == expected.keys()
    assert all((matrices[name] == expected[name]).all() for name in expected)


def plain(folder: Path) -> Path:
    """The app with FedAvg: each difference that its README shows, taken back."""
    app = Path(shutil.copytree(APP, folder))
    blocks = re.findall(r"```diff\n(.*?)```", (APP / "README.md").read_text(), re.DOTALL)
    names = ("strategy.py", "server_app.py", "client_app.py")
    for name, block in zip(names, blocks, strict=True):
        file = app / PACKAGE.name / name
        text = file.read_text()
        for change in block.split(" ...\n"):
            lines = change.splitlines(keepends=True)
            ours, theirs = ("".join(line[1:] for line in lines if line[0] == sign) for sign in "+-")
            assert text.count(ours) == 1, ours
            text = text.replace(ours, theirs)
        file.write_text(text)
    return app


def test_the_readme_shows_all_that_a_fedavg_app_has_not(tmp_path: Path) -> None:
    for path in (plain(tmp_path / "plain") / PACKAGE.name).glob("*.py"):
        assert "disavow.flower" not in path.read_text(), path
        compile(path.read_text(), path.name, "exec")


@pytest.mark.torture  # it is Flower's own FedAvg
def test_the_app_works_with_fedavg(simulation: Network, base: Path, tmp_path: Path) -> None:
    config = {"model.name": base, "train.save-path": tmp_path / "saved", "strategy.min-available-nodes": NODES}
    status, said = finished(simulation, plain(tmp_path / "plain"), **config, **{"num-server-rounds": 1})
    assert status == "finished:completed", said
    assert (tmp_path / "saved" / "round-1" / "adapter_config.json").is_file()


def test_a_base_that_is_not_there_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(APP)
    server_app = importlib.import_module(f"{PACKAGE.name}.server_app")
    config = flatten_dict(tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"])
    config |= {"model.name": str(tmp_path / "none"), "strategy.ledger": str(tmp_path / "run")}
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config)
    with pytest.raises(TaskError) as refused:
        server_app.app(LoopbackGrid({}), context)
    assert str(tmp_path / "none") in str(refused.value)
    assert "make_base.py" in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra_the_script_says_how_to_install_it(tmp_path: Path) -> None:
    script = f"import runpy, sys; sys.modules['peft'] = None; sys.argv[1:] = [{str(tmp_path / 'tiny')!r}]; "
    script += f"runpy.run_path({str(APP / 'make_base.py')!r}, run_name='__main__')"
    done = run([sys.executable, "-c", script], cwd=None, env=environment())
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "peft" in line
    assert ".[llm]" in line
    assert not (tmp_path / "tiny").exists()
