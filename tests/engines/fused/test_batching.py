from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from disavow.engines.batches import batches
from disavow.engines.fused.batching import batch_index_of, clients_of
from disavow.engines.trainer import Ask
from tests.engines.contract import SETTINGS, a_case


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(1, 23), min_size=1, max_size=7),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(0, 5)), min_size=1, max_size=3),
)
def test_every_row_takes_the_samples_of_its_client_in_the_batches_of_every_engine(
    sizes: list[int], federations: list[tuple[int, int, int]]
) -> None:
    generator = np.random.default_rng(1)
    held = np.split(generator.permutation(sum(sizes)), np.cumsum(sizes)[:-1])
    case = replace(a_case(), parts={f"c{i}": part for i, part in enumerate(held)})
    asks = []
    for number, (epochs, batch, seed) in enumerate(federations):
        rates = SETTINGS.model_copy(update={"epochs": epochs, "batch_size": batch})
        workload = replace(case, settings=rates, seed=seed)
        asks.append(Ask(workload, case.model, tuple(case.parts)[number % 2 :], number + 1))
    clients = [client for a, ask in enumerate(asks) for client in clients_of(ask, a)]
    clients.sort(key=lambda client: -client.steps)
    if not clients:
        return
    width = max(client.largest for client in clients)
    batches_taken = batch_index_of(asks, clients, rows=len(clients) + 3, batch=width, device=torch.device("cpu"))
    assert batches_taken.index.shape == (clients[0].steps, len(clients) + 3, width)
    for row, client in enumerate(clients):
        ask = asks[client.ask]
        part, rates = ask.workload.parts[client.name], ask.workload.settings
        expected = [
            part[batch].tolist()
            for batch in batches(
                len(part),
                epochs=rates.epochs,
                batch_size=rates.batch_size,
                seed=ask.workload.seed,
                round_number=ask.round_number,
                client=client.name,
            )
        ]
        counts = batches_taken.count[:, row].tolist()
        assert counts == [len(batch) for batch in expected] + [0] * (clients[0].steps - client.steps)
        assert [batches_taken.index[t, row, :n].tolist() for t, n in enumerate(counts) if n] == expected
    assert not batches_taken.count[:, len(clients) :].any()
    assert batches_taken.active == (batches_taken.count > 0).sum(dim=1).tolist()
