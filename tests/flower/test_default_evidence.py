"""Nodes keep receipts unless they are told not to, and what they keep finds a server that tells two histories."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import Context, RecordDict

from disavow.flower.client import ClientApp, answer, evidence_mod
from disavow.flower.evidence_store import EvidenceStore, evidence_folder
from disavow.ledger import Ledger
from disavow.monitor.gossip import compare
from disavow.monitor.heads import read_held
from disavow.proof.keys import generate, trusted_keys
from tests.flower.builders import initial_arrays, learner, strategy
from tests.flower.loopback import LoopbackGrid, Node

pytestmark = pytest.mark.flower

RUN = "0123456789abcdef" * 2


def context_of(config: dict[str, Any], node_id: int = 7) -> Context:
    return Context(1, node_id, config, RecordDict(), {})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where nodes keep their evidence."""
    monkeypatch.setenv("DISAVOW_EVIDENCE", str(tmp_path / "evidence"))
    return tmp_path / "evidence"


def folders(home: Path) -> list[str]:
    return sorted(path.name for path in home.iterdir()) if home.is_dir() else []


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"client-id": "clinic-7", "partition-id": 3}, "clinic-7"),
        ({"partition-id": 3}, "partition-3"),
        ({}, "node-7"),
    ],
)
def test_without_a_folder_of_its_own_a_node_has_one_by_its_name(
    home: Path, config: dict[str, Any], name: str
) -> None:
    EvidenceStore(context_of(config)).write(RUN, "receipts/one.json", b"1")
    assert (home / name / RUN / "receipts" / "one.json").read_bytes() == b"1"
    made = list(home.rglob("*"))
    assert {path.stat().st_mode & 0o777 for path in [home, *made] if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in made if path.is_file()} == {0o600}


@pytest.mark.parametrize("name", ["../../etc", "..", "a/b", "", "x" * 300, "\ud800", ".hidden", "clinic 7"])
def test_a_name_that_is_no_name_of_a_folder_is_hashed(home: Path, name: str) -> None:
    folder = evidence_folder(context_of({"client-id": name}))
    assert folder is not None
    assert folder.parent == home
    assert folder.name.startswith("client-")
    other = evidence_folder(context_of({"client-id": name + "x"}))
    assert other != folder


def test_by_default_the_folders_are_in_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISAVOW_EVIDENCE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert evidence_folder(context_of({})) == tmp_path / ".disavow" / "evidence" / "node-7"


@pytest.mark.parametrize("off", [False, "false", "no", 0])
def test_a_node_that_is_told_not_to_keeps_nothing(home: Path, off: Any, tmp_path: Path) -> None:
    context = context_of({"keep-evidence": off, "evidence-dir": str(tmp_path / "own")})
    store = EvidenceStore(context)
    store.write(RUN, "client.txt", b"c1")
    assert folders(home) == []
    assert not (tmp_path / "own").exists()
    assert not context.state.config_records


def test_a_simulation_keeps_evidence_in_its_context(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = ModuleType("ray")
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(ray, "is_initialized", lambda: True, raising=False)
    context = context_of({"partition-id": 1})
    EvidenceStore(context).write(RUN, "client.txt", b"c1")
    assert folders(home) == []
    assert EvidenceStore(context).read(RUN, "client.txt") == b"c1"


def test_a_home_that_cannot_be_written_leaves_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("DISAVOW_EVIDENCE", str(tmp_path / "file"))
    context = context_of({})
    EvidenceStore(context).write(RUN, "client.txt", b"c1")
    assert EvidenceStore(context).read(RUN, "client.txt") == b"c1"
    assert "in the context of this run alone" in caplog.text


def test_the_app_has_the_mod_first_and_once_and_answers() -> None:
    def other(message: Any, context: Any, call_next: Any) -> Any:
        return call_next(message, context)

    app = ClientApp(mods=[other, evidence_mod])
    with pytest.raises(ValueError, match="disavow"):  # Flower refuses a second function of one name
        app.query("disavow")(answer)
    assert app._mods == [evidence_mod, other]


def test_receipts_that_nodes_keep_by_default_find_a_server_that_tells_two_histories(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, run, old = tmp_path / "keys", tmp_path / "run", tmp_path / "old"
    generate(keys, name="server", passphrase=None, at="2026-01-01T00:00:00.000000+00:00")
    monkeypatch.setenv("DISAVOW_KEYS", str(keys))

    def train(rounds: int, nodes: range) -> None:
        known = {i: Node(learner(), {"client-id": f"c{i}", "keep-evidence": i != 8}) for i in nodes}
        strategy(run, keys=keys, min_available_nodes=2, min_train_nodes=2).start(
            grid=LoopbackGrid(known), initial_arrays=initial_arrays(), num_rounds=rounds, timeout=2.0
        )

    train(2, range(1, 9))
    assert folders(home) == [f"c{i}" for i in range(1, 8)]
    shutil.copytree(run, old)
    train(4, range(1, 5))
    trusted = trusted_keys(keys / "signing.pub")
    held, refused = read_held([home], trusted)
    assert refused == []
    assert [found.conflicts for found in compare(held)] == [[]]
    run.rename(tmp_path / "first history")
    old.rename(run)
    Ledger.accept(run, keys=keys)
    train(4, range(5, 9))
    held, refused = read_held([home], trusted)
    assert refused == []
    [found] = compare(held)
    assert found.conflicts
    who = {path.relative_to(home).parts[0] for each in found.conflicts for path in (*each.files, *each.other_files)}
    assert who & {"c1", "c2", "c3", "c4"}
    assert who & {"c5", "c6", "c7"}
