"""The peers' environments, with commands that only write down what they were asked."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from benchmarks import engines
from benchmarks.engines.peers import PEERS, PeerUnavailable, command, interpreter, run_command
from benchmarks.engines.workload import Prepared


class Recorder:
    """Makes the interpreter that a venv would have; pip does nothing, or fails."""

    def __init__(self, *, pip_fails: bool = False) -> None:
        self.commands: list[list[str]] = []
        self.pip_fails = pip_fails

    def __call__(self, command: Sequence[str | Path]) -> None:
        self.commands.append([str(part) for part in command])
        if "venv" in self.commands[-1]:
            python = Path(self.commands[-1][-1]) / "bin" / "python"
            python.parent.mkdir(parents=True)
            python.touch()
        elif self.pip_fails:
            raise PeerUnavailable("pip install failed: no network")


def test_an_environment_is_built_once_and_shares_torch(tmp_path: Path) -> None:
    run, built = Recorder(), list[Path]()
    python = interpreter(PEERS["flower"], tmp_path, run=run, on_build=built.append)
    folder = tmp_path / "flower-1.41.0"
    assert python == folder / "bin" / "python"
    assert built == [folder]
    [venv, pip] = run.commands
    assert venv == [sys.executable, "-m", "venv", str(folder)]
    assert pip[-1] == "flwr[simulation]==1.41.0"
    constraints = Path(pip[pip.index("--constraint") + 1]).read_text()
    assert f"torch=={torch.__version__}\n" in constraints
    [pth] = folder.glob("lib/python*/site-packages/*.pth")
    assert (Path(pth.read_text().strip()) / "torch").is_dir()
    assert interpreter(PEERS["flower"], tmp_path, run=run, on_build=built.append) == python
    assert len(run.commands) == 2


@pytest.mark.parametrize("content", ["", "not json", '{"requirement": "flwr[simulation]==1.41.0"}'])
def test_what_was_left_half_built_or_no_longer_fits_is_built_anew(content: str, tmp_path: Path) -> None:
    interpreter(PEERS["pfl"], tmp_path, run=Recorder())
    (tmp_path / "pfl-0.6.0" / "disavow-bench.json").write_text(content)
    (tmp_path / "pfl-0.6.0" / "old").touch()
    again = Recorder()
    interpreter(PEERS["pfl"], tmp_path, run=again)
    assert len(again.commands) == 2
    assert not (tmp_path / "pfl-0.6.0" / "old").exists()


def test_a_failed_installation_is_tried_again_the_next_time(tmp_path: Path) -> None:
    for _ in range(2):
        run = Recorder(pip_fails=True)
        with pytest.raises(PeerUnavailable, match="no network"):
            interpreter(PEERS["pfl"], tmp_path, run=run)
        assert len(run.commands) == 2


def test_the_plain_loop_needs_no_environment(tmp_path: Path) -> None:
    run = Recorder()
    assert interpreter(PEERS["plain"], tmp_path, run=run) == Path(sys.executable)
    assert run.commands == []


def test_a_command_that_fails_is_told_with_its_last_words() -> None:
    code = "import sys; print('WARNING: x', file=sys.stderr); print('one\\n\\ntwo', file=sys.stderr); sys.exit(1)"
    with pytest.raises(PeerUnavailable, match=r"failed: one / two$"):
        run_command([sys.executable, "-c", code])
    with pytest.raises(PeerUnavailable, match=r"^python.* -c raise SystemExit\(1\) failed: it said nothing$"):
        run_command([sys.executable, "-c", "raise SystemExit(1)"])
    run_command([sys.executable, "-c", ""])


def test_how_each_peer_is_started() -> None:
    python = Path("/env/bin/python")
    assert command(PEERS["plain"], python, 2) == ["/env/bin/python", "-m", "contestants.plain"]
    assert command(PEERS["pfl"], python, 2)[1:] == [
        *("-m", "torch.distributed.run", "--standalone", "--nnodes=1", "--nproc-per-node=2"),
        *("-m", "contestants.pfl"),
    ]


def test_the_benchmark_goes_on_without_a_peer_that_cannot_be_installed(
    tmp_path: Path, samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Recorder(pip_fails=True)
    monkeypatch.setattr(
        engines,
        "interpreter",
        lambda peer, cache, on_build: interpreter(peer, cache, run=failing, on_build=on_build),
    )
    monkeypatch.setattr(engines, "prepare", lambda folder: Prepared(samples, "samples"))
    notes: list[str] = []
    settings = engines.BenchmarkSettings(
        passes=1, rounds=1, clients=2, samples=20, peers=("flower",), engines=("sequential",), network="lenet5"
    )
    report = engines.compare(settings, cache=tmp_path, on_note=notes.append)
    assert report.absent == {"flower": "pip install failed: no network"}
    assert notes == [
        f"installing flwr[simulation]==1.41.0 into {tmp_path / 'flower-1.41.0'}",
        "flower cannot take part: pip install failed: no network",
    ]
    [only] = report.passes
    assert (only.contestant, only.failure, len(only.seconds)) == ("disavow sequential", None, 1)


def test_peers_leave_other_networks_to_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, samples: Path) -> None:
    monkeypatch.setattr(engines, "prepare", lambda folder: Prepared(samples, "samples"))
    settings = engines.BenchmarkSettings(passes=1, peers=("plain",), engines=(), network="convnet")
    report = engines.compare(settings, cache=tmp_path)
    assert report.absent == {"plain": "it knows lenet5 only, not convnet"}
    assert report.passes == ()
