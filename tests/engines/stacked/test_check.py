from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from disavow.engines.objectives import losses_of
from disavow.engines.stacked import StackedTrainer
from disavow.engines.stacked.check import check_stacking
from disavow.engines.stacked.network import StackedNetwork
from disavow.engines.stacked.step import SGD, TrainingStep
from disavow.errors import ConfigError
from tests.engines.stacked.workloads import AGREEMENT, CPU, Tiny, a_workload, an_ask, deviation, reference


class Branching(nn.Module):
    def forward(self, hidden: Tensor) -> Tensor:
        return hidden if bool(hidden.sum() > 0) else 2 * hidden


class Remembering(nn.Module):
    """Keeps what it saw in a tensor that is not part of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = torch.zeros(8)

    def forward(self, hidden: Tensor) -> Tensor:
        self.seen += hidden.detach().mean(dim=0)
        return hidden + self.seen


class Counting(nn.Module):
    """Keeps a count, which is the same for all rows of a launch, but not for all clients of a round."""

    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, hidden: Tensor) -> Tensor:
        self.steps = self.steps + 1
        return hidden / self.steps


class Reassigning(nn.Module):
    """A moving average that is assigned anew instead of changed in place."""

    average: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(8))

    def forward(self, hidden: Tensor) -> Tensor:
        self.average = 0.9 * self.average + 0.1 * hidden.detach().mean(dim=0)
        return hidden - self.average


class Alternating(nn.Module):
    """Does something else each time it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = 0

    def forward(self, hidden: Tensor) -> Tensor:
        self.turn += 1
        return hidden * self.turn


class Comparing(nn.Module):
    """Lets samples see each other without any statistics."""

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden - hidden.mean(dim=0)


def couples(network: nn.Module) -> bool:
    return checked(StackedNetwork(network, CPU))


def checked(network: StackedNetwork) -> bool:
    workload = a_workload([5, 6], network.original)
    return check_stacking(TrainingStep(network, losses_of, SGD), workload.images, workload.labels)


@pytest.mark.parametrize(
    "module",
    [
        nn.Dropout(0.5),
        Branching(),
        Remembering(),
        Counting(),
        nn.BatchNorm1d(8, momentum=None),
        nn.Linear(8, 8).double(),
    ],
    ids=lambda module: type(module).__name__,
)
def test_what_cannot_be_stacked_is_named_and_the_sequential_engine_offered(module: nn.Module) -> None:
    workload = a_workload([5, 6], Tiny(module))
    with pytest.raises(ConfigError) as caught:
        StackedTrainer(CPU).train([an_ask(workload)])
    assert caught.value.code == "DSV-101"
    assert f"'between' ({type(module).__name__}) of Tiny" in str(caught.value)
    assert 'engine.name = "sequential"' in str(caught.value)


def test_a_network_that_fails_by_itself_is_not_blamed_on_the_stack() -> None:
    with pytest.raises(RuntimeError):
        couples(Tiny(nn.Linear(9, 8)))


def test_a_network_without_anything_to_train_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        couples(Tiny().requires_grad_(False))
    assert caught.value.code == "DSV-101"


def test_state_that_is_silently_shared_is_found_by_comparing() -> None:
    stacked = StackedNetwork(Tiny(Alternating()), CPU)
    # as if the copy that is trained had been asked before
    between = stacked.training.get_submodule("between")
    assert isinstance(between, Alternating)
    between.turn = 1
    with pytest.raises(ConfigError) as caught:
        checked(stacked)
    assert caught.value.code == "DSV-101"


def test_a_statistic_that_is_assigned_anew_is_trained_all_the_same() -> None:
    ask = an_ask(a_workload([5, 20, 11], Tiny(Reassigning())))
    [updates] = StackedTrainer(CPU).train([ask])
    assert deviation(updates.vectors, reference(ask).vectors) < AGREEMENT


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.Tanh(), False),
        (nn.LayerNorm(8), False),
        (nn.Dropout(0.0), False),
        (nn.BatchNorm1d(8), True),
        (nn.BatchNorm1d(8, track_running_stats=False), True),
        (Comparing(), True),
        (Reassigning(), True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_whether_samples_see_each_other_is_found_out(module: nn.Module, expected: bool) -> None:
    assert couples(Tiny(module)) is expected


@pytest.mark.parametrize(
    ("module", "agreement"),
    [
        (Comparing(), AGREEMENT),
        (nn.LayerNorm(8), AGREEMENT),
        # a batch of few samples divides by a small deviation, which enlarges what was rounded
        (nn.BatchNorm1d(8, track_running_stats=False), 10 * AGREEMENT),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_unequal_clients_of_such_networks_agree_with_the_reference(module: nn.Module, agreement: float) -> None:
    ask = an_ask(a_workload([18, 6, 12, 30], Tiny(module)))
    [updates] = StackedTrainer(CPU).train([ask])
    assert deviation(updates.vectors, reference(ask).vectors) < agreement


def test_checking_draws_nothing_from_the_global_generator() -> None:
    network = Tiny(nn.Dropout(0.5))
    state = torch.get_rng_state()
    with pytest.raises(ConfigError):
        couples(network)
    assert torch.equal(torch.get_rng_state(), state)
