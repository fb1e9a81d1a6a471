from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import torch
from torch import nn

from disavow.config import EngineSettings
from disavow.domain import EngineChoice
from disavow.engines import build, trainer_for
from disavow.engines.compiled import CompiledTrainer
from disavow.engines.factory import _on_gpu, device_of
from disavow.engines.fused import FusedTrainer
from disavow.engines.pool import PoolTrainer
from disavow.engines.sequential import SequentialEngine
from disavow.engines.stacked import StackedTrainer
from disavow.engines.trainer import VectorisedEngine
from disavow.errors import ConfigError
from tests.engines.contract import Case, a_case, with_attributes
from tests.refusals import refuses

CPU = EngineSettings(name="vectorised", device="cpu")


@pytest.fixture
def case() -> Case:
    return a_case()


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_the_engine_is_the_one_that_was_asked_for(case: Case, no_gpu: None) -> None:
    assert isinstance(build(case, EngineSettings(name="sequential")), SequentialEngine)
    for name in ("auto", "vectorised"):
        engine = build(case, CPU.model_copy(update={"name": name}))
        assert isinstance(engine, VectorisedEngine)
        engine.close()


def test_a_chain_goes_to_the_kernels_and_anything_else_to_the_workers(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    chain = trainer_for(case, CPU)
    with caplog.at_level(logging.INFO):
        other = trainer_for(a_case("resnet-mini"), CPU)
    assert isinstance(chain, CompiledTrainer)
    assert isinstance(other, PoolTrainer)
    assert "no compiled kernels for ResNetMini" in caplog.text
    chain.close()
    other.close()


def test_without_a_compiler_or_its_leave_the_workers_train_chains_too(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = trainer_for(case, CPU.model_copy(update={"compile": "never"}))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("disavow.engines.compiled.build.find_spec", lambda name: None)
    monkeypatch.delenv("CXX", raising=False)
    without = trainer_for(case, CPU)
    for trainer in (never, without):
        assert isinstance(trainer, PoolTrainer)
        trainer.close()


def test_a_gpu_that_is_not_there_is_refused(no_gpu: None) -> None:
    with refuses(ConfigError, "engine.device") as caught:
        device_of(EngineSettings(device="cuda"))
    assert caught.value.code == "DSV-101"
    assert device_of(EngineSettings(device="auto")) == torch.device("cpu")


def test_other_precisions_need_a_gpu(case: Case) -> None:
    with refuses(ConfigError, "engine.precision") as caught:
        trainer_for(case, CPU.model_copy(update={"precision": "bf16"}))
    assert caught.value.code == "DSV-101"


def test_attributes_go_to_the_workers_because_the_kernels_know_classes_only(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        trainer = trainer_for(with_attributes(case), CPU)
    assert isinstance(trainer, PoolTrainer)
    assert "no compiled kernels for LeNet5: the kernels learn one class a sample" in caplog.text
    trainer.close()


@pytest.mark.parametrize("network", ["convnet", "lenet5", "resnet-mini"])
def test_every_network_of_ours_has_kernels_on_a_gpu(network: str) -> None:
    for case in (a_case(network), with_attributes(a_case(network))):
        assert isinstance(_on_gpu(case, EngineSettings(), torch.device("cpu"))[0], FusedTrainer)


def test_a_network_that_the_kernels_do_not_know_goes_to_the_stack_on_a_gpu(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.Tanh(), nn.Linear(5, 4))
    with caplog.at_level(logging.INFO):
        trainer, choice = _on_gpu(replace(case, network=network), EngineSettings(), torch.device("cpu"))
    assert isinstance(trainer, StackedTrainer)
    assert "no fused kernels for Sequential: 2 is a Tanh" in caplog.text
    assert choice == EngineChoice("stacked", (("fused", "2 is a Tanh"),))
    trainer.close()
