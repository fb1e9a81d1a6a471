"""The benchmark of stacked adapters: one base for all clients, and not a copy for each."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("peft", reason="needs the extra llm")

from benchmarks import adapters


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_stacked_round_takes_less_than_a_base_for_each_client(tmp_path: Path) -> None:
    base = adapters.write_base(tmp_path / "base", width=256, inner=1024, layers=2)
    found = adapters.measured(16, base, tmp_path, torch.device("cpu"))
    assert found["clients_times_base_bytes"] == 16 * found["base_bytes"]
    assert found["adapter_bytes"] == 4 * 2 * 4 * 2 * 8 * 256  # float32, layers, projections, A and B, rank, width
    assert found["base_bytes"] <= found["peak_bytes"] < found["clients_times_base_bytes"]
