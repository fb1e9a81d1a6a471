from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest
import torch

from disavow.engines.stacked import tasks
from disavow.engines.stacked.precision import Precision, multiplication_precision
from disavow.engines.stacked.tasks import reproducible
from disavow.engines.state import model_of
from disavow.engines.task_workload import TaskWorkload
from tests.engines.test_task_engine import SEED, TRAINING, load_named
from tests.tasks.zoo import CLIENTS

BACKENDS = torch.backends


def seen() -> list[object]:
    """Everything that can be read about how exactly torch multiplies."""
    found: list[object] = []
    for holder, name in (
        (BACKENDS.cudnn, "allow_tf32"),
        (BACKENDS.cudnn, "deterministic"),
        (BACKENDS.cudnn, "benchmark"),
        (BACKENDS.cuda.matmul, "allow_tf32"),
        (BACKENDS.cuda.matmul, "fp32_precision"),
        (getattr(BACKENDS.cudnn, "conv", None), "fp32_precision"),
        (getattr(BACKENDS.cudnn, "rnn", None), "fp32_precision"),
    ):
        try:
            found.append(getattr(holder, name, "absent"))
        except RuntimeError:
            found.append("mixed")
    return found


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    conv = getattr(BACKENDS.cudnn, "conv", None)
    before = BACKENDS.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    precise = BACKENDS.cuda.matmul.fp32_precision if conv is not None else None
    yield
    BACKENDS.cudnn.allow_tf32 = before[0]
    torch.set_float32_matmul_precision(before[1])
    if precise is not None:
        BACKENDS.cuda.matmul.fp32_precision = precise


@pytest.mark.parametrize("allowed", [True, False])
def test_float32_means_float32_and_all_is_put_back(allowed: bool) -> None:
    BACKENDS.cudnn.allow_tf32 = allowed
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    before = seen()
    with multiplication_precision("float32"):
        assert BACKENDS.cudnn.allow_tf32 is False
        assert BACKENDS.cuda.matmul.allow_tf32 is False
        assert BACKENDS.cudnn.deterministic is True
    assert seen() == before


def test_tf32_is_a_choice() -> None:
    before = seen()
    with multiplication_precision("tf32"):
        assert BACKENDS.cudnn.allow_tf32 is True
        assert BACKENDS.cuda.matmul.allow_tf32 is True
    assert seen() == before


def test_all_is_put_back_after_an_error_too() -> None:
    before = seen()
    with pytest.raises(KeyError), multiplication_precision("float32"):
        raise KeyError
    assert seen() == before


@pytest.mark.skipif(not hasattr(BACKENDS.cudnn, "conv"), reason="this torch has only the old form of the switches")
def test_it_works_where_the_new_form_of_the_switches_was_used() -> None:
    BACKENDS.cuda.matmul.fp32_precision = "tf32"
    before = seen()
    with multiplication_precision("float32"):
        assert BACKENDS.cuda.matmul.fp32_precision == "ieee"
        assert seen()[-2:] == ["ieee", "ieee"]
    assert seen() == before


def test_a_stack_is_tried_in_full_precision_whatever_it_trains_in(monkeypatch: pytest.MonkeyPatch) -> None:
    # with TF32, clients in a stack and alone differ by more than rounding allows, and would train one by one
    used: list[str] = []

    def noted(device: torch.device, precision: Precision = "float32") -> AbstractContextManager[None]:
        used.append(precision)
        return reproducible(device, precision)

    monkeypatch.setattr(tasks, "reproducible", noted)
    loaded = load_named("tabular")
    engine = tasks.StackedTasks(TaskWorkload(loaded, TRAINING, SEED), precision="tf32")
    assert used == ["float32"]
    engine.train(model_of(loaded.network), tuple(CLIENTS), 1)
    assert used == ["float32", "tf32"]
