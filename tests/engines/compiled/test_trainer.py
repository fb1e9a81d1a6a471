from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from disavow.config import TrainingSettings
from disavow.engines.compiled import CompiledTrainer, NotAChain
from disavow.engines.compiled.build import NoKernels, load
from disavow.engines.sequential import SequentialEngine
from disavow.engines.trainer import Ask, VectorisedEngine
from disavow.engines.workload import Workload
from disavow.errors import TaskError
from disavow.rounds.local_training import Engine
from disavow.rounds.vectors import Model
from tests.engines.contract import NETWORKS, PARTS, SHAPE, Case, EngineContract, a_case, with_attributes
from tests.engines.contract import SETTINGS as CONTRACT_SETTINGS
from tests.selection import some_of

try:
    load()
except NoKernels as reason:
    pytest.skip(f"no kernels: {reason}", allow_module_level=True)


def compiled(case: Workload, threads: int | None = None) -> VectorisedEngine:
    channels, height, width = case.images.shape[1:]
    return VectorisedEngine(case, CompiledTrainer(case.network, (channels, height, width), threads=threads))


class TestCompiled(EngineContract):
    """Chains in the kernels; the network that is none with the reference, so that the suite is whole."""

    @pytest.fixture(params=some_of(NETWORKS, ["convnet"]))
    def case(self, request: pytest.FixtureRequest) -> Case:
        return a_case(request.param)

    def make(self, case: Case) -> Engine:
        try:
            return compiled(case)
        except NotAChain:
            return SequentialEngine(case)


def deviation(one: Tensor, other: Tensor) -> float:
    """The largest distance between two clients' updates, relative to the second."""
    return float(((one - other).norm(dim=1) / other.norm(dim=1)).max())


def a_workload(
    network: nn.Module, shape: tuple[int, int, int], sizes: list[int], training: TrainingSettings, classes: int = 5
) -> Case:
    generator = torch.Generator().manual_seed(2)
    total = sum(sizes)
    images = torch.rand(total, *shape, generator=generator)
    labels = torch.randint(classes, (total,), generator=generator)
    parts = np.split(torch.randperm(total, generator=generator).numpy(), np.cumsum(sizes)[:-1])
    return Case(
        network=network,
        images=images,
        labels=labels,
        parts={f"c{i}": part for i, part in enumerate(parts)},
        test_images=images,
        test_labels=labels,
        settings=training,
        seed=4,
    )


def agree(case: Case) -> None:
    """Both engines give the same updates, but for rounding."""
    clients = list(case.parts)
    expected = SequentialEngine(case).train(case.model, clients, 1)
    engine = compiled(case)
    found = engine.train(case.model, clients, 1)
    assert found.samples == expected.samples
    assert deviation(found.vectors, expected.vectors) < 1e-5
    evaluation, reference = engine.evaluate(case.model), SequentialEngine(case).evaluate(case.model)
    assert evaluation.loss == pytest.approx(reference.loss, abs=1e-6)
    engine.close()


class Maps(nn.Module):
    """Convolutions with ReLU and pooling as asked for, then dense layers."""

    def __init__(self, shape: tuple[int, int, int], layers: list[tuple[int, int, int, int, bool, str]]) -> None:
        super().__init__()
        steps: list[nn.Module] = []
        channels, *sides = shape
        for outputs, kernel, stride, padding, relu, pool in layers:
            steps.append(nn.Conv2d(channels, outputs, kernel, stride=stride, padding=padding))
            sides = [(side + 2 * padding - kernel) // stride + 1 for side in sides]
            steps += [nn.ReLU()] * relu
            if pool != "none" and min(sides) > 1:
                steps.append(nn.MaxPool2d(2, ceil_mode=pool == "ceil"))
                sides = [(side + (pool == "ceil")) // 2 for side in sides]
            channels = outputs
        self.maps = nn.Sequential(*steps)
        self.hidden = nn.Linear(channels * math.prod(sides), 11)
        self.scores = nn.Linear(11, 5)

    def forward(self, images: Tensor) -> Tensor:
        """Scores, one row an image."""
        scores: Tensor = self.scores(torch.relu(self.hidden(torch.flatten(self.maps(images), 1))))
        return scores


@st.composite
def _layers(draw: st.DrawFn) -> list[tuple[int, int, int, int, bool, str]]:
    kernel = draw(st.sampled_from([1, 2, 3, 5]))
    layer = st.tuples(
        st.integers(1, 9),
        st.just(kernel),
        st.sampled_from([1, 1, 2]),
        st.integers(0, kernel - 1),
        st.booleans(),
        st.sampled_from(["none", "floor", "ceil"]),
    )
    return draw(st.lists(layer, min_size=1, max_size=2))


Layers = list[tuple[int, int, int, int, bool, str]]


@pytest.mark.parametrize("examples", [12, pytest.param(120, marks=pytest.mark.torture)])
def test_any_chain_trains_as_pytorch_trains_it(examples: int) -> None:
    @settings(max_examples=examples, deadline=None, derandomize=True)
    @given(_layers(), st.integers(1, 4), st.integers(9, 14), st.integers(9, 14), st.integers(1, 40))
    def check(layers: Layers, channels: int, height: int, width: int, batch: int) -> None:
        train_chain(layers, (channels, height, width), batch)

    check()


def train_chain(layers: Layers, shape: tuple[int, int, int], batch: int) -> None:
    """Compare the engines on one chain, unless PyTorch refuses it."""
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(6)
            network = Maps(shape, layers)
    except (RuntimeError, ValueError):
        return  # nothing is left of the maps
    if network.hidden.in_features == 0:
        return
    training = TrainingSettings(epochs=1, batch_size=batch, learning_rate=0.05, momentum=0.5, weight_decay=0.01)
    case = a_workload(network, shape, [21, 3], training)
    try:
        SequentialEngine(case).train(case.model, ["c0"], 1)
    except TaskError:
        return  # PyTorch refuses it
    agree(case)


@pytest.mark.parametrize(
    ("name", "shape"),
    some_of(
        [
            (name, shape)
            for name in ["lenet5", "convnet"]
            for shape in [(1, 28, 28), (3, 32, 32), (1, 8, 8), (3, 9, 7)]
        ],
        [("lenet5", (3, 32, 32)), ("lenet5", (3, 9, 7)), ("convnet", (1, 28, 28))],
    ),
)
def test_our_networks_agree_with_the_reference_after_a_round(name: str, shape: tuple[int, int, int]) -> None:
    from disavow.models import build

    training = TrainingSettings(epochs=1, batch_size=32, learning_rate=0.02)
    agree(a_workload(build(name, shape, 5, seed=3), shape, [64, 47, 1], training))


def test_dense_layers_alone_are_a_chain() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        network = nn.Sequential(nn.Flatten(), nn.Linear(50, 37), nn.ReLU(), nn.Linear(37, 5))
    agree(a_workload(network, (2, 5, 5), [30, 17], CONTRACT_SETTINGS))


@pytest.mark.parametrize("batch", some_of([1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100], [1, 7, 8, 17, 33, 100]))
def test_every_size_of_batch_fills_the_lanes_as_it_should(batch: int) -> None:
    case = a_case(settings=CONTRACT_SETTINGS.model_copy(update={"batch_size": batch}))
    agree(replace(case, parts={"one": np.concatenate([*case.parts.values()]), "two": case.parts["ada"]}))


def test_several_federations_in_one_call_are_each_as_if_alone() -> None:
    one = a_case()
    other = replace(
        one, seed=12, settings=CONTRACT_SETTINGS.model_copy(update={"learning_rate": 0.01, "batch_size": 5})
    )
    trainer = CompiledTrainer(one.network, SHAPE)
    scaled = Model(one.model.layout, one.model.vector * 0.5)
    asks = [Ask(one, one.model, ("ada", "bo"), 1), Ask(other, scaled, ("cy", "bo", "dee"), 3)]
    together = trainer.train(asks)
    for ask, updates in zip(asks, together, strict=True):
        assert updates.clients == ask.clients
        assert torch.equal(updates.vectors, trainer.train([ask])[0].vectors)
    trainer.close()


def test_the_number_of_threads_does_not_change_a_bit() -> None:
    case = a_case()
    one, three = compiled(case, threads=1), compiled(case, threads=3)
    assert torch.equal(
        one.train(case.model, list(PARTS), 1).vectors, three.train(case.model, list(PARTS), 1).vectors
    )


def test_infinite_images_make_the_update_not_finite_and_spoil_no_other_client() -> None:
    case = a_case()
    images = case.images.clone()
    images[case.parts["ada"]] = math.inf
    spoilt = compiled(replace(case, images=images)).train(case.model, list(PARTS), 1).vectors
    whole = compiled(case).train(case.model, list(PARTS), 1).vectors
    assert not bool(torch.isfinite(spoilt[0]).all())
    assert torch.equal(spoilt[1:], whole[1:])


def test_a_model_that_is_not_finite_is_evaluated_without_an_error() -> None:
    case = a_case()
    broken = Model(case.model.layout, torch.full_like(case.model.vector, math.nan))
    assert math.isnan(compiled(case).evaluate(broken).loss)


def test_what_the_kernels_would_read_beyond_the_data_is_refused() -> None:
    case = a_case()
    with pytest.raises(IndexError, match="ada holds a sample that does not exist"):
        compiled(replace(case, parts={"ada": np.array([0, 999])})).train(case.model, ["ada"], 1)
    with pytest.raises(IndexError, match="label"):
        compiled(replace(case, labels=case.labels + 3)).train(case.model, ["ada"], 1)
    with pytest.raises(TypeError, match="float32"):
        compiled(replace(case, images=case.images.double())).train(case.model, ["ada"], 1)
    smaller = replace(case, images=case.images[:, :, :3], test_images=case.test_images[:, :, :3])
    trainer = CompiledTrainer(case.network, SHAPE)
    with pytest.raises(TypeError, match="images"):
        trainer.train([Ask(smaller, case.model, ("ada",), 1)])
    with pytest.raises(TypeError, match="images"):
        trainer.evaluate(smaller, [case.model])


def test_images_that_are_a_view_are_read_as_what_they_show() -> None:
    case = a_case()
    turned = case.images.transpose(2, 3).contiguous().transpose(2, 3)
    assert not turned.is_contiguous()
    one = compiled(replace(case, images=turned)).train(case.model, ["bo"], 1).vectors
    assert torch.equal(one, compiled(case).train(case.model, ["bo"], 1).vectors)


def test_closing_twice_is_harmless() -> None:
    engine = compiled(a_case())
    engine.close()
    engine.close()


def test_attributes_are_refused_before_a_kernel_reads_them_as_classes() -> None:
    case = with_attributes(a_case())
    engine = compiled(case)
    with pytest.raises(TypeError, match="a label of type int64"):
        engine.train(case.model, list(PARTS), 1)
    engine.close()
