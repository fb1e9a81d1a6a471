from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from disavow.engines.fused import FusedTrainer, nvrtc, stack, tiling
from disavow.engines.fused import trainer as fused_trainer
from disavow.engines.fused.memory import Memory
from disavow.engines.fused.network import row_of
from disavow.engines.fused.nodes import Convolution
from disavow.engines.fused.tiling import tiling_of
from disavow.engines.sequential import SequentialEngine
from disavow.engines.trainer import Ask
from disavow.engines.workload import Workload
from disavow.models import build
from disavow.rounds.vectors import Model
from tests.engines.contract import PARTS, SETTINGS, SHAPE, Case, a_case, with_attributes
from tests.engines.fused.emulator import COMPILER, Emulator
from tests.selection import some_of

GPU = torch.cuda.is_available()

pytestmark = pytest.mark.skipif(COMPILER is None and not GPU, reason="there is neither a GPU nor a compiler here")


@pytest.fixture(scope="module", autouse=True)
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[torch.device]:
    """The GPU where there is one; else the kernels are emulated."""
    if GPU:
        yield torch.device("cuda")
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvrtc, "compile_kernel", Emulator(tmp_path_factory.mktemp("emulated")))
        yield torch.device("cpu")


def deviation(one: Tensor, other: Tensor) -> float:
    return float(((one.cpu() - other).norm(dim=1) / other.norm(dim=1)).max())


def agree(case: Case, device: torch.device) -> None:
    """The same updates and evaluation as the reference, but for rounding, which batch norm multiplies."""
    rounding = 1e-4 if any(isinstance(module, nn.BatchNorm2d) for module in case.network.modules()) else 1e-5
    shape = (case.images.shape[1], case.images.shape[2], case.images.shape[3])
    trainer, clients = FusedTrainer(case.network, shape, device), tuple(case.parts)
    expected = SequentialEngine(case).train(case.model, clients, 2)
    found = trainer.train([Ask(case, case.model, clients, 2)])[0]
    assert found.clients == clients
    assert found.samples == expected.samples
    assert deviation(found.vectors, expected.vectors) < rounding
    [evaluation] = trainer.evaluate(case, [case.model])
    reference = SequentialEngine(case).evaluate(case.model)
    assert evaluation.loss == pytest.approx(reference.loss, abs=1e-6)
    assert evaluation.accuracy == reference.accuracy


def images_of(case: Case, shape: tuple[int, int, int], network: nn.Module) -> Case:
    generator = torch.Generator().manual_seed(9)
    return replace(
        case,
        network=network,
        images=torch.rand(len(case.images), *shape, generator=generator),
        test_images=torch.rand(len(case.test_images), *shape, generator=generator),
    )


@pytest.mark.parametrize("network", some_of(["convnet", "lenet5", "resnet-mini"], ["lenet5", "resnet-mini"]))
def test_a_round_is_as_the_reference_trains_it(network: str, device: torch.device) -> None:
    agree(a_case(network), device)


@pytest.mark.parametrize("shape", [(3, 9, 7), pytest.param((1, 12, 11), marks=pytest.mark.torture)])
def test_odd_shapes_and_several_channels(shape: tuple[int, int, int], device: torch.device) -> None:
    agree(images_of(a_case(), shape, build("lenet5", shape, 4, seed=2)), device)


def test_momentum_and_decay(device: torch.device) -> None:
    agree(a_case(settings=SETTINGS.model_copy(update={"momentum": 0.5, "weight_decay": 0.05})), device)


@pytest.mark.parametrize(
    "network",
    [
        nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.ReLU(), nn.Linear(5, 4)),
        nn.Sequential(nn.Conv2d(1, 3, 3, stride=2), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3, 4)),
        nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(4, 5, 3),
            nn.Flatten(),
            nn.Linear(5, 4),
        ),
        nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 5, 3, stride=2, padding=1, bias=False),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(5, 4),
        ),
    ],
    ids=["dense", "stride", "floor", "strides"],
)
def test_other_chains(network: nn.Module, device: torch.device) -> None:
    agree(images_of(a_case(), SHAPE, network), device)


def test_several_federations_in_one_call_are_each_as_if_alone(device: torch.device) -> None:
    one = a_case()
    rates = SETTINGS.model_copy(update={"learning_rate": 0.01, "batch_size": 5, "momentum": 0.9})
    other = replace(one, seed=12, settings=rates)
    elsewhere = replace(one, images=one.images.flip(0).contiguous())
    trainer = FusedTrainer(one.network, SHAPE, device)
    scaled = Model(one.model.layout, one.model.vector * 0.5)
    asks = [
        Ask(one, one.model, ("ada", "bo"), 1),
        Ask(other, scaled, ("cy", "bo", "dee"), 3),
        Ask(elsewhere, one.model, ("dee",), 1),
    ]
    for ask, updates in zip(asks, trainer.train(asks), strict=True):
        assert updates.clients == ask.clients
        expected = SequentialEngine(ask.workload).train(ask.model, ask.clients, ask.round_number)
        assert deviation(updates.vectors, expected.vectors) < 1e-5


def test_a_stack_that_does_not_fit_is_divided(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    case = a_case()
    tried: list[int] = []
    real = FusedTrainer._train_some

    def small(self: FusedTrainer, asks: object, clients: list[object], *rest: object) -> None:
        tried.append(len(clients))
        if len(clients) > 2:
            raise torch.cuda.OutOfMemoryError
        real(self, asks, clients, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(FusedTrainer, "_train_some", small)
    found = FusedTrainer(case.network, SHAPE, device).train([Ask(case, case.model, tuple(PARTS), 1)])[0]
    assert tried == [4, 2, 2]
    expected = SequentialEngine(case).train(case.model, tuple(PARTS), 1)
    assert deviation(found.vectors, expected.vectors) < 1e-5


def test_a_single_client_that_does_not_fit_is_said_to_be_so(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise torch.cuda.OutOfMemoryError

    monkeypatch.setattr(FusedTrainer, "_train_some", never)
    case = a_case()
    with pytest.raises(torch.cuda.OutOfMemoryError):
        FusedTrainer(case.network, SHAPE, device).train([Ask(case, case.model, tuple(PARTS), 1)])


def test_what_a_diverging_client_leaves_behind_spoils_no_later_one(device: torch.device) -> None:
    # its numbers stay in the empty positions of rows that others get in the next round
    case = a_case(settings=SETTINGS.model_copy(update={"batch_size": 12}))
    images = case.images.clone()
    images[case.parts["bo"]] = torch.nan
    trainer, broken = FusedTrainer(case.network, SHAPE, device), replace(case, images=images)
    spoilt = trainer.train([Ask(broken, case.model, ("bo", "ada"), 1)])[0].vectors
    assert not bool(torch.isfinite(spoilt[0]).all())
    assert bool(torch.isfinite(spoilt[1]).all())
    after = trainer.train([Ask(broken, case.model, ("ada", "dee"), 1)])[0].vectors
    expected = SequentialEngine(case).train(case.model, ("ada", "dee"), 1).vectors
    assert deviation(after, expected) < 1e-5


def test_data_is_moved_once_and_forgotten_when_others_come(device: torch.device) -> None:
    case = a_case()
    trainer = FusedTrainer(case.network, SHAPE, device)
    for _ in range(fused_trainer._KEPT + 2):
        copy: Workload = replace(case, images=case.images.clone())
        trainer.train([Ask(copy, case.model, ("cy",), 1)])
    assert len(trainer._data) == fused_trainer._KEPT
    trainer.close()
    assert not trainer._data


def test_unequal_clients_leave_as_they_finish(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [1] * 20 + [13]
    total = sum(sizes)
    case = a_case()
    generator = torch.Generator().manual_seed(3)
    skewed = replace(
        case,
        images=torch.rand(total, *SHAPE, generator=generator),
        labels=torch.randint(4, (total,), generator=generator),
        parts={f"c{i:02d}": part for i, part in enumerate(np.split(np.arange(total), np.cumsum(sizes)[:-1]))},
        settings=SETTINGS.model_copy(update={"epochs": 1}),
    )
    row_counts: list[int] = []
    real = stack.Stack._step

    def noted(self: stack.Stack, rows: int) -> None:
        row_counts.append(rows)
        real(self, rows)

    monkeypatch.setattr(stack.Stack, "_step", noted)
    trainer = FusedTrainer(case.network, SHAPE, device, graphs=False)
    found = trainer.train([Ask(skewed, case.model, tuple(skewed.parts), 1)])[0]
    assert row_counts == [24, 8, 8, 8]
    expected = SequentialEngine(skewed).train(case.model, tuple(skewed.parts), 1)
    assert deviation(found.vectors, expected.vectors) < 1e-5


@pytest.mark.parametrize("network", some_of(["lenet5", "resnet-mini"], ["lenet5"]))
def test_attributes_are_learned_as_the_reference_learns_them(network: str, device: torch.device) -> None:
    agree(with_attributes(a_case(network)), device)


def test_labels_of_another_kind_are_refused(device: torch.device) -> None:
    case = replace(a_case(), labels=a_case().labels.to(torch.int32))
    trainer = FusedTrainer(case.network, SHAPE, device)
    with pytest.raises(TypeError, match="a class of type int64, or attributes of type float32"):
        trainer.train([Ask(case, case.model, tuple(case.parts), 1)])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"labels": torch.full((29,), 4)}, "one of the 4 that the network scores"),
        ({"labels": torch.full((29,), -100)}, "one of the 4 that the network scores"),
        ({"labels": torch.rand(29, 3)}, r"labels are \(29, 3\), and not \(29, 4\)"),
        ({"labels": torch.rand(29)}, r"labels are \(29,\), and not \(29, 4\)"),
        ({"images": torch.rand(29, *SHAPE, dtype=torch.float64)}, "images must be of type float32"),
        ({"images": torch.rand(29, 1, 7, 7)}, r"images must be of type float32 and \(1, 6, 6\)"),
    ],
)
def test_samples_that_the_kernels_would_misread_are_refused(
    changes: dict[str, Tensor], said: str, device: torch.device
) -> None:
    case = replace(a_case(), **changes)  # type: ignore[arg-type]
    trainer = FusedTrainer(a_case().network, SHAPE, device)
    with pytest.raises((TypeError, ValueError), match=said):
        trainer.train([Ask(case, a_case().model, tuple(case.parts), 1)])


def test_other_views_of_the_same_memory_are_other_samples(device: torch.device) -> None:
    case = a_case()
    trainer = FusedTrainer(case.network, SHAPE, device)
    for part in (replace(case, test_images=case.test_images[:5], test_labels=case.test_labels[:5]), case):
        [evaluation] = trainer.evaluate(part, [case.model])
        assert evaluation.loss == pytest.approx(SequentialEngine(part).evaluate(case.model).loss, abs=1e-6)
    for turned in (case, replace(case, images=case.images.transpose(2, 3))):
        [found] = trainer.train([Ask(turned, case.model, tuple(PARTS), 1)])
        expected = SequentialEngine(turned).train(case.model, tuple(PARTS), 1)
        assert deviation(found.vectors, expected.vectors) < 1e-5


def test_other_labels_of_the_same_images_are_other_samples(device: torch.device) -> None:
    case = a_case()
    # on the device already, where moving them there makes no copy
    case = replace(case, images=case.images.to(device))
    trainer = FusedTrainer(case.network, SHAPE, device)
    for labelled in (case, replace(case, labels=(case.labels + 1) % 4), with_attributes(case)):
        [found] = trainer.train([Ask(labelled, case.model, tuple(PARTS), 1)])
        there = replace(labelled, images=labelled.images.cpu())
        expected = SequentialEngine(there).train(case.model, tuple(PARTS), 1)
        assert deviation(found.vectors, expected.vectors) < 1e-5


def test_nothing_to_evaluate_is_nothing(device: torch.device) -> None:
    case = a_case()
    trainer = FusedTrainer(case.network, SHAPE, device)
    assert trainer.evaluate(case, []) == []
    empty = replace(case, test_images=case.test_images[:0], test_labels=case.test_labels[:0])
    [evaluation] = trainer.evaluate(empty, [case.model])
    assert np.isnan(evaluation.accuracy)
    assert np.isnan(evaluation.loss)


def test_a_relu_is_closed_however_many_numbers_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []

    def compile_kernel(*_: object) -> object:
        return lambda blocks, threads, arguments: given.extend(a for a in arguments if isinstance(a, int))

    monkeypatch.setattr(nvrtc, "compile_kernel", compile_kernel)
    network = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16384, 4))
    row, nothing = row_of(network, (3, 32, 32)), torch.zeros(0)
    few = Memory.of(row, rows=1, batch=1, images=torch.zeros(1, 3, 32, 32), labels=nothing)
    memory = replace(few, rows=1024, batch=128)
    memory.closed_relu(0, nothing)(1024)
    # more than an int of the kernels holds, if it were one number
    assert np.prod(given, dtype=np.int64) == 2**31
    assert max(given) < 2**31


@pytest.mark.parametrize("side", [56, 60])
def test_a_block_of_many_threads_asks_for_registers_that_last(side: int) -> None:
    layers = [nn.Conv2d(1, 8, 1), nn.Conv2d(8, 8, 3, padding=1), nn.MaxPool2d(2), nn.Flatten()]
    network = nn.Sequential(*layers, nn.Linear(8 * (side // 2) ** 2, 4))
    node = row_of(network, (1, side, side)).nodes[1]
    assert isinstance(node, Convolution)
    divided = tiling_of(node)
    for way in (divided.weight, divided.input):
        assert way is not None
        assert way.threads == way.defines["THREADS"] <= 1024
        assert f"__launch_bounds__(THREADS) {way.kernel}(" in nvrtc.text_of(way.source, {})


class Identity(nn.Module):
    """Shortcuts past a layer, with and without ReLU, of maps that others read too; convolutions without bias."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4, eps=1e-3, momentum=0.3)
        self.inner = nn.Conv2d(4, 4, 3, padding=1)
        self.inner_norm = nn.BatchNorm2d(4)
        self.down = nn.Conv2d(4, 6, 3, stride=2, padding=1)
        self.beside = nn.Conv2d(4, 6, 1, stride=2, bias=False)
        self.fc = nn.Linear(6 * 9, 5)
        self.scores = nn.Linear(5, 4)

    def forward(self, images: Tensor) -> Tensor:
        first = self.norm(self.stem(images)).relu()
        inner = self.inner_norm(self.inner(first)).relu()
        maps = (inner + first) + first
        wide = torch.add(self.down(maps), self.beside(maps))
        hidden: Tensor = torch.relu(self.fc(torch.flatten(wide, 1)))
        scores: Tensor = self.scores(hidden)
        return scores


def test_convolutions_whose_weights_do_not_fit_beside_one_another(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiling, "_direct", lambda *_: None)
    agree(a_case("resnet-mini"), device)


class Branches(nn.Module):
    """Convolutions with and without stride that add to the same maps, wide enough for several tiles of a client."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 6, 5, padding=2)
        self.side = nn.Conv2d(6, 28, 3, padding=1)
        self.down = nn.Conv2d(28, 4, 3, stride=2, padding=1)
        self.beside = nn.Conv2d(6, 4, 3, stride=2, padding=1)
        self.again = nn.Conv2d(6, 28, 3, padding=1)
        self.fc = nn.Linear(4 * 4 * 3, 4)

    def forward(self, images: Tensor) -> Tensor:
        stem = self.stem(images).relu()
        wide = self.side(stem).relu() + self.again(stem)
        scores: Tensor = self.fc(torch.flatten(self.down(wide) + self.beside(stem), 1))
        return scores


@pytest.mark.parametrize("shared", [44 * 1024, 13_000], ids=["whole images", "bands"])
def test_threads_that_compute_several_rows(
    shared: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiling, "_deep", lambda rows, columns, down: rows % down == 0)
    monkeypatch.setattr(tiling, "_THREADS", 64)
    monkeypatch.setattr(tiling, "_SHARED", shared)
    shape = (2, 8, 6)
    convolutions = [node for node in row_of(Branches(), shape).nodes if isinstance(node, Convolution)]
    divided = [tiling_of(node) for node in convolutions]
    rows = [(way.forward.defines["DOWN"], way.input.defines["DOWN"] if way.input else 0) for way in divided]
    assert rows == [(4, 0), (4, 4), (4, 4), (1, 1), (1, 1)]
    case = a_case(settings=SETTINGS.model_copy(update={"batch_size": 11}))
    agree(images_of(case, shape, Branches()), device)


def test_weights_of_a_convolution_that_is_not_pooled(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (1, 5, 5)
    first, second = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 6, 3, padding=1)
    network = nn.Sequential(first, nn.ReLU(), second, nn.Flatten(), nn.Linear(150, 4))
    convolution = row_of(network, shape).nodes[1]
    assert isinstance(convolution, Convolution)
    assert tiling_of(convolution).weight.kernel == "direct_weight"
    agree(images_of(a_case(), shape, network), device)
    sums, maps, deltas = 6 * 73, 8 * 5 * 35, 8 * 3 * 5
    monkeypatch.setattr(tiling, "_SHARED", 4 * (sums + maps + deltas))
    divided = tiling_of(convolution).weight
    assert divided.kernel == "direct_weight"
    assert divided.defines["BAND"] == 3  # so that the last band is not a whole one
    agree(images_of(a_case(), shape, network), device)


@pytest.mark.parametrize("momentum", some_of([0.0, 0.5], [0.5]))
def test_shortcuts_and_norms_of_any_arrangement(momentum: float, device: torch.device) -> None:
    rates = SETTINGS.model_copy(update={"momentum": momentum, "weight_decay": 0.01})
    shape = (1, 5, 5)
    agree(images_of(a_case(settings=rates), shape, Identity()), device)


@pytest.mark.parametrize(
    ("height", "layers"),
    [
        (13, [nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 7 * 6, 4)]),
        (
            15,
            [
                nn.Conv2d(2, 3, 5, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2, ceil_mode=True),
                nn.Flatten(),
                nn.Linear(105, 4),
            ],
        ),
    ],
    ids=["stride", "pooling"],
)
def test_images_too_large_for_a_block_are_taken_in_bands(
    height: int, layers: list[nn.Module], device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = (2, height, 11)
    network = nn.Sequential(*layers)
    convolution = row_of(network, shape).nodes[0]
    assert isinstance(convolution, Convolution)
    assert tiling_of(convolution).weight.defines["BAND"] == convolution.out_height
    monkeypatch.setattr(tiling, "_SHARED", 4000)
    divided = tiling_of(convolution)
    if convolution.pooled:
        assert divided.forward.groups > 1
        # the last band is not a whole one
        assert convolution.out_height % divided.forward.defines["BAND"]
    assert divided.weight.defines["BAND"] < convolution.out_height
    agree(images_of(a_case(), shape, network), device)
