"""Runs whose rounds FedEraser rebuilds, and what they keep for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from disavow.federation import Federation
from disavow.proof.notes import Signer
from tests.cli.process import disavow
from tests.erasure.mechanisms.contract import (
    start_toy,
    toy_settings,
)


def toy(
    directory: Path,
    *,
    interval: int = 2,
    calibration: float = 0.5,
    compress: bool = True,
    signer: Signer | None = None,
    **changed: Any,
) -> Federation:
    """A trained toy run of eight rounds that keeps updates."""
    mechanism = {"name": "federaser", "interval": interval, "calibration": calibration, "compress": compress}
    run = start_toy(directory, toy_settings(**{"rounds": 8, "mechanism": mechanism, **changed}), signer=signer)
    run.train()
    return run


def update_files(directory: Path) -> list[Path]:
    folder = directory / "updates"
    return sorted(folder.iterdir()) if folder.exists() else []


def shown(proof: Path) -> dict[str, Any]:
    """What `disavow show-proof --json` says."""
    done = disavow("show-proof", proof, "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document
