"""k = 1 is plain federated averaging: the weighted mean of all updates, and nobody is ever deniable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from disavow import config
from disavow.domain import size_class
from disavow.erasure.proof_files import opening_path, proof_path
from disavow.federation import Federation
from disavow.ledger import fsck
from disavow.proof.keys import generate, trusted_keys
from disavow.proof.verify import VerificationInputs, examine
from disavow.rounds.options import now
from disavow.rounds.vectors import Model

SETTINGS: dict[str, Any] = {
    "rounds": 3,
    "data": {"clients": 6, "partition": "quantity", "alpha": 2.0, "test_fraction": 0.6},
    "training": {"epochs": 1, "batch_size": 32},
    "clustering": {"k": 1},
    "deniability": {"x": 1},
    "noise": {"mode": "none"},
}


@pytest.mark.parametrize("method", ["mdav", "constrained-kmeans", "fixed"])
def test_a_round_is_the_mean_of_all_updates_by_their_size_classes(tmp_path: Path, method: str) -> None:
    settings = config.from_values({**SETTINGS, "clustering": {"k": 1, "method": method}}, source="test")
    with Federation.create(tmp_path / "run", settings) as run:
        run.train()
        for number in range(1, 4):
            before = Model(run.ledger.layout, torch.from_numpy(run.ledger.model_before(number)))
            updates = run.engine.train(before, run.ledger.clients(), number)
            classes = [size_class(samples) for samples in updates.samples]
            shares = torch.tensor(classes, dtype=torch.float64) / sum(classes)
            expected = before.vector.double() + (shares[:, None] * updates.vectors.double()).sum(dim=0)
            after = torch.from_numpy(run.ledger.model_after(number)).double()
            assert torch.allclose(after, expected, rtol=0, atol=1e-6)
            assert sorted(run.ledger.membership(number)) == [(client,) for client in run.ledger.clients()]


def test_everybody_who_leaves_is_retrained_away_from_their_first_round_and_it_is_proved(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    generate(keys, name="tests", passphrase=None, at="2024-05-06T07:08:09.000000+00:00")
    with Federation.create(tmp_path / "run", config.from_values(SETTINGS, source="test"), keys=keys) as run:
        run.train()
        for client in ("client-02", "client-05"):
            run.ledger.place_requests([client], at=now())
            [answered] = run.answer()
            assert str(answered.verdict) == "rollback to round 1"
            assert answered.cost is not None
            assert answered.cost.rounds == 3
        run_id = run.ledger.run_id
    assert not fsck(tmp_path / "run", keys=keys)
    for number in (1, 2):
        opening = opening_path(tmp_path / "run.openings", run_id, number).read_bytes()
        proof = proof_path(tmp_path / "run", number).read_bytes()
        report = examine(VerificationInputs(proof, trusted_keys(keys / "signing.pub"), opening=opening))
        assert report.failed is None, report.failed
