"""No process that disavow starts inherits the signing key or its passphrase."""

from __future__ import annotations

import ast
import os
import stat
import sys
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.engines import _environment
from benchmarks.engines.passes import Contestant, run_once
from benchmarks.engines.peers import PeerUnavailable, run_command
from disavow.engines.compiled.build import NoKernels, load
from disavow.engines.pool import PoolTrainer
from disavow.engines.trainer import Ask
from disavow.proof.keys import child_environment
from tests.engines.contract import a_case
from tests.engines.pool.builders import children

ROOT = Path(__file__).parents[1]
SECRETS = {"DISAVOW_PASSPHRASE": "correct horse", "DISAVOW_SIGNING_KEY": "-----BEGIN PRIVATE KEY-----"}
STARTING = {"run", "Popen", "call", "check_call", "check_output"}


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("INHERITED", "yes")


def names_in(environment: str) -> set[str]:
    return {line.partition("=")[0] for line in environment.replace("\0", "\n").splitlines()}


def test_a_child_gets_everything_else_and_what_is_added() -> None:
    found = child_environment({"MORE": "1"})
    assert (found["INHERITED"], found["MORE"]) == ("yes", "1")
    assert not set(SECRETS) & set(found)
    assert set(os.environ) - set(found) == set(SECRETS)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_workers_of_the_pool() -> None:
    """Every process that the pool starts, not only its workers."""
    before, case = children(os.getpid()), a_case()
    with closing(PoolTrainer(2, start_after=0.0)) as trainer:
        trainer.train([Ask(case, case.model, tuple(case.parts), 1)])
        started = children(os.getpid()) - before
        assert len(started) == 2
        for process in started:
            # The kernel closes the pipe that tells Popen of the new program just before it fills this file.
            while not (found := names_in(Path(f"/proc/{process}/environ").read_text())):
                assert process in children(os.getpid())
            assert "INHERITED" in found
            assert not found & set(SECRETS)


def test_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, log = tmp_path / "compiler", tmp_path / "log"
    compiler.write_text(f"#!/bin/sh\nenv >> {log}\nexit 1\n")
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(NoKernels):
        load()
    found = names_in(log.read_text())
    assert "INHERITED" in found
    assert not found & set(SECRETS)


def test_a_peer_of_a_benchmark_and_what_builds_it() -> None:
    complain = "import os, sys; print(*os.environ, file=sys.stderr); sys.exit(1)"
    with pytest.raises(PeerUnavailable) as refused:
        run_command([sys.executable, "-c", complain])
    outcome = run_once(Contestant("peer", (sys.executable, "-c", complain), _environment("cpu", {}), ours=False), 1)
    for said in (str(refused.value), outcome.failure or ""):
        assert "INHERITED" in said
        assert not any(name in said for name in SECRETS)


@pytest.mark.parametrize("folder", ["src", "benchmarks", "reproduction"])
def test_every_process_is_started_with_an_environment(folder: str) -> None:
    """A call without one hands everything on. The Python that is written out for others to run is not looked at."""
    careless = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "subprocess"
        and node.func.attr in STARTING
        and not any(keyword.arg == "env" for keyword in node.keywords)
    ]
    assert careless == []
