"""`python -m benchmarks engines`: what it refuses, and a small benchmark as a person runs it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.engines.cli import time_engines
from disavow.errors import ConfigError
from tests.cli import forked
from tests.cli.process import assert_refused, with_repository
from tests.refusals import refuses

SETTINGS: dict[str, Any] = {
    "device": "cpu",
    "passes": 1,
    "rounds": 1,
    "peers": "plain",
    "engines": "sequential",
    "network": "lenet5",
    "clients": 2,
    "samples": 20,
    "federations": 1,
    "cache": Path("nowhere"),
    "json_file": None,
}


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (
            {"peers": "flower,fedml"},
            ["--peers is flower,fedml", "none", "flower, pfl, plain"],
        ),
        ({"peers": ""}, ["--peers is ", "none", "flower, pfl, plain"]),
        (
            {"engines": "fast"},
            ["--engines is fast", "none", "auto, eager, sequential"],
        ),
        (
            {"peers": "none", "engines": "none"},
            ["--engines is none", "--peers is none"],
        ),
        (
            {"federations": 2},
            ["--engines is sequential", "allowed: auto, eager"],
        ),
        ({"device": "tpu"}, ["--device is tpu", "allowed: cpu, cuda"]),
        ({"network": "vgg"}, ["--network is vgg", "convnet, lenet5, resnet-mini"]),
        ({"passes": 0}, ["--passes is 0", "allowed: 1 to 1,000,000"]),
        ({"rounds": 0}, ["--rounds is 0", "allowed: 1 to 1,000,000"]),
        ({"samples": 0}, ["--samples is 0", "allowed: 1 to 1,000,000"]),
        ({"clients": 1}, ["--clients is 1", "allowed: 2 to 1,000,000"]),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(
    changed: dict[str, Any], named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with refuses(ConfigError, *named) as refused:
        time_engines(**{**SETTINGS, **changed})
    assert "\n" not in str(refused.value)
    assert capsys.readouterr().out == ""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_cuda_is_refused() -> None:
    with refuses(ConfigError, "--device is cuda", "allowed: cpu"):
        time_engines(**{**SETTINGS, "device": "cuda"})


@pytest.mark.parametrize("option", ["--rounds", "--clients"])
def test_an_absurd_value_is_one_line_and_exit_2_and_nothing_comes_into_being(option: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    result = forked.module(
        "benchmarks", "engines", option, "9" * 21, "--peers=none", "--cache", cache, cwd=tmp_path
    )
    assert_refused(result, ConfigError, f"{option} is 999999999999999999999", "allowed: ")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing" / "a.json"):
        with refuses(ConfigError, "--json"):
            time_engines(**{**SETTINGS, "json_file": path})


@pytest.fixture
def cache(tmp_path: Path, samples: Path) -> Path:
    """A cache folder in which the samples are what was made of the digits."""
    folder = tmp_path / "cache"
    folder.mkdir()
    shutil.copy(samples, folder / "digits-1.npz")
    return folder


def run_engines(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISAVOW_DATA_DIR", "")
        patch.setenv("PYTHONPATH", with_repository()["PYTHONPATH"])
        return forked.module("benchmarks", "engines", "--clients=2", "--samples=20", *arguments, cwd=cwd)


@pytest.mark.torture
def test_a_small_benchmark_from_end_to_end(tmp_path: Path, cache: Path) -> None:
    result = run_engines(
        "--passes=1", "--rounds=1", "--peers=plain", "--engines=sequential", "--cache", cache, "--json",
        tmp_path / "bench.json", cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    document = json.loads((tmp_path / "bench.json").read_text())
    order = [(one["number"], one["contestant"]) for one in document["passes"]]
    assert order == [(1, "plain"), (1, "disavow sequential")]  # `test_passes` shows that passes take turns
    assert all(len(one["seconds"]) == 1 for one in document["passes"])
    assert [set(one["versions"]) for one in document["passes"]] == [{"torch"}, {"disavow", "torch"}]
    for one in document["passes"]:  # of 20 test samples
        assert one["accuracy"] * 20 == pytest.approx(round(one["accuracy"] * 20))
    assert document["data"] == "digits of scikit-learn, enlarged and repeated"
    assert (document["asked"]["clients"], document["asked"]["warmup"]) == (2, 1)
    assert {row["contestant"] for row in document["rows"]} == {"plain", "disavow sequential"}
    assert "digits of scikit-learn" in result.stdout
    assert sum(line.startswith(("plain ", "disavow sequential ")) for line in result.stdout.splitlines()) == 2
    assert sum(line.startswith("pass ") for line in result.stderr.splitlines()) == 2
    assert "\x1b" not in result.stdout + result.stderr


def test_a_benchmark_in_which_nobody_gets_through_is_exit_1(cache: Path) -> None:
    (cache / "digits-1.npz").write_bytes(b"broken")
    result = run_engines("--passes=2", "--rounds=1", "--peers=none", "--engines=sequential", "--cache", cache)
    assert result.returncode == 1
    assert "disavow sequential failed: exit status 1" in result.stdout
    assert sum(line.startswith("pass ") for line in result.stderr.splitlines()) == 1
