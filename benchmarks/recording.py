"""Rounds recorded per second and bytes per stored round: LeNet5 for 28x28, 50 clients, k = 4."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import torch

from disavow.config import from_values
from disavow.engines.state import model_of
from disavow.ledger import Ledger
from disavow.models import build
from disavow.rounds.broadcast import broadcast
from disavow.rounds.options import RoundOptions, now
from disavow.rounds.round import close_round
from disavow.rounds.vectors import Updates

CLIENTS = 50
ROUNDS = 30


def main() -> None:
    """Close rounds on random updates, so that only our own work is timed."""
    settings = from_values({"data": {"clients": CLIENTS}}, source="benchmark")
    initial = model_of(build("lenet5", (1, 28, 28), 10, seed=1))
    ids = tuple(f"client-{i:02d}" for i in range(CLIENTS))
    generator = torch.Generator().manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        with Ledger.create(
            directory,
            policy=settings.policy,
            layout=initial.layout,
            initial=initial.vector.numpy(),
            clients=ids,
            config="",
            created_by="benchmark",
            at=now(),
            keys=Path(folder) / "keys",
        ) as ledger:
            options = RoundOptions(seed=1)
            seconds = 0.0
            for _ in range(ROUNDS):
                updates = Updates(
                    ids, (1200,) * CLIENTS, 0.01 * torch.randn(CLIENTS, initial.layout.size, generator=generator)
                )
                start = time.perf_counter()
                close_round(ledger, broadcast(ledger, now()), updates, options)
                seconds += time.perf_counter() - start
        sizes = {path: path.stat().st_size for path in directory.rglob("*") if path.is_file()}
    models = sum(size for path, size in sizes.items() if path.parent.name == "models")
    print(
        json.dumps(
            {
                "clients": CLIENTS,
                "parameters": initial.layout.size,
                "rounds_per_second": ROUNDS / seconds,
                "bytes_per_round_model": models // (ROUNDS + 1),
                "bytes_per_round_rows": (sum(sizes.values()) - models) // ROUNDS,
            }
        )
    )


if __name__ == "__main__":
    main()
