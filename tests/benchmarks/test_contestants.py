"""The peers do the workload that we do; `test_engines_command` runs the plain one and ours."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.engines import ours
from benchmarks.engines.contestants import plain, task
from benchmarks.engines.passes import Contestant, Pass, run_once
from benchmarks.engines.peers import CONTESTANTS
from disavow.models import build
from tests.selection import some_of

SIZES = ["--clients=3", "--samples=40", "--rounds=2", "--warmup=1", "--device=cpu"]


def run(command: list[str], samples: Path, **environment: str) -> Pass:
    arguments = (sys.executable, "-m", *command, *SIZES, f"--data={samples}")
    return run_once(Contestant("it", arguments, {**os.environ, **environment}, ours=False), 1, seconds=200)


def test_the_peers_network_is_ours(samples: Path) -> None:
    data, network = task.load(samples, "cpu"), task.LeNet5()
    task.ready(network, data)
    assert sum(parameter.numel() for parameter in network.parameters()) == 51_902
    theirs = network(data.images[:7])
    torch.testing.assert_close(theirs, build("lenet5", (1, 28, 28), 10, seed=1)(data.images[:7]))


def test_clients_hold_the_next_rows_and_the_first_come_after_the_last(samples: Path) -> None:
    data = task.load(samples, "cpu")
    assert torch.equal(data.of_client(1, 40)[1], data.labels[40:80])
    assert torch.equal(data.of_client(2, 40)[1], torch.cat([data.labels[80:], data.labels[:20]]))
    options = argparse.Namespace(data=samples, clients=3, samples=40, network="lenet5")
    parts = ours.make_workload(options).parts
    assert [rows.tolist() for rows in parts.values()][2] == [*range(80, 100), *range(20)]


def test_training_is_plain_sgd_over_all_samples_of_every_epoch(samples: Path) -> None:
    """With one batch an epoch, shuffling plays no part, and the result is known."""
    data, network = task.load(samples, "cpu"), task.LeNet5()
    task.ready(network, data)
    task.train(network, data.images, data.labels)
    expected = task.LeNet5()
    task.ready(expected, data)
    for _ in range(task.EPOCHS):
        loss = torch.nn.functional.cross_entropy(expected(data.images), data.labels)
        for parameter, gradient in zip(
            expected.parameters(), torch.autograd.grad(loss, list(expected.parameters())), strict=True
        ):
            parameter.data -= task.LEARNING_RATE * gradient
    torch.testing.assert_close(plain.flat(network), plain.flat(expected))


def test_the_sum_weighs_each_client_by_its_samples_and_leaves_the_model_alone(samples: Path) -> None:
    data, network = task.load(samples, "cpu"), task.LeNet5()
    task.ready(network, data)
    model = plain.flat(network)
    before = model.clone()
    held = [(data.images[:60], data.labels[:60]), (data.images[60:], data.labels[60:])]
    alone = [plain.weighted_sum(network, model, [one]) for one in held]
    torch.testing.assert_close(plain.weighted_sum(network, model, held), alone[0] + alone[1])
    assert torch.equal(model, before)
    assert (alone[0] / 60 - model).norm() > 0


def test_a_worker_that_fails_does_not_leave_the_others_waiting(tmp_path: Path) -> None:
    done = run(["contestants.plain", "--workers=2"], tmp_path / "nothing.npz", PYTHONPATH=str(CONTESTANTS))
    assert done.failure is not None
    assert "nothing.npz" in done.failure


@pytest.mark.parametrize("module", some_of(["flower", "pfl"], ["flower"]))
def test_a_peer_that_is_not_installed_fails_and_says_so(module: str, samples: Path) -> None:
    hidden = "import sys; sys.modules['flwr'] = sys.modules['pfl'] = None; import runpy, sys; "
    code = hidden + f"runpy.run_module('contestants.{module}', run_name='__main__')"
    arguments = (sys.executable, "-c", code, *SIZES, f"--data={samples}", "--workers=1")
    environment = {**os.environ, "PYTHONPATH": str(CONTESTANTS)}
    done = run_once(Contestant(module, arguments, environment, ours=False), 1, seconds=100)
    assert done.failure is not None
    assert "ModuleNotFoundError" in done.failure


def test_several_federations_are_timed_in_whole_rounds(samples: Path) -> None:
    workload = ours.make_workload(argparse.Namespace(data=samples, clients=3, samples=40, network="lenet5"))
    with ours.federations_of(workload, 2) as federations:
        seconds = ours.all_at_once(federations, ours.engine_settings("auto", "cpu"), 2)
        assert len(seconds) == 2
        assert all(federation.ledger.last_round == 2 for federation in federations)
        assert all(federation.ledger.unevaluated() == () for federation in federations)


def test_engines_stand_for_settings_that_exist() -> None:
    assert [ours.engine_settings(name, "cpu").device for name in ours.ENGINES] == ["cpu"] * len(ours.ENGINES)
    assert ours.engine_settings("eager", "cpu").compile == "never"
