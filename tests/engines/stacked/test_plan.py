from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from disavow.engines.batches import batches
from disavow.engines.stacked.plan import Form, Plan, row_of
from disavow.engines.stacked.schedule import schedule
from tests.engines.stacked.federations import CPU, a_workload, an_ask

START = 1000
SPARE = 77


@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize("fixed_widths", [False, True])
def test_each_launch_names_the_samples_that_the_reference_would_take(coupled: bool, fixed_widths: bool) -> None:
    ask = an_ask(a_workload([9, 20, 3, 16, 30, 1] + [8] * 19), round_number=4)
    settings = ask.workload.settings
    rows = [row_of(ask, client, number=0, place=place, start=START) for place, client in enumerate(ask.clients)]
    expected = {
        place: [
            START + part[batch]
            for batch in batches(
                len(part),
                epochs=settings.epochs,
                batch_size=settings.batch_size,
                seed=ask.workload.seed,
                round_number=4,
                client=client,
            )
        ]
        for place, (client, part) in enumerate(ask.workload.parts.items())
    }
    launches = schedule([row.sizes for row in rows], coupled=coupled, fixed_widths=fixed_widths)
    taken: dict[int, int] = dict.fromkeys(expected, 0)
    for form, block in Plan(launches, rows, spare=SPARE).upload(CPU):
        numbers, table = block[: form.width * form.size].view(form), block[form.width * form.size :].view(2, -1)
        for samples, row, size in zip(numbers, *table.tolist(), strict=True):
            if row == SPARE:
                assert size == form.size
                continue
            batch = expected[row][taken[row]]
            taken[row] += 1
            assert samples[:size].tolist() == batch.tolist()
            # padding is the client's own
            assert set(samples[size:].tolist()) <= {batch[-1]}
    assert taken == {place: len(each) for place, each in expected.items()}


def test_an_empty_plan_has_no_launches() -> None:
    assert list(Plan([], [], spare=0).upload(CPU)) == []


def test_a_client_without_samples_takes_none() -> None:
    ask = an_ask(a_workload([9, 20]))
    empty = replace(ask.workload, parts={"nobody": np.empty(0, dtype=np.int64)})
    row = row_of(type(ask)(empty, ask.model, ("nobody",), 1), "nobody", number=0, place=0, start=0)
    assert len(row.numbers) == len(row.sizes) == 0
    assert Form(2, 3) == (2, 3)
    assert torch.tensor(row.numbers).numel() == 0
