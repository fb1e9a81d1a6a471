"""Trainings on disk: what clients sent is read when somebody looks at it, and takes no memory before."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import torch
from torch import Tensor

from disavow.compare.training import TrainedRound, Training
from disavow.domain import Layout
from disavow.ledger.files import write_durably

_log = logging.getLogger(__name__)

_DESCRIBED, _MODELS, _UPDATES = "training.json", "models.f32", "updates.f32"
_NUMBER_BYTES = 4
RUN, KEYS = "run", "keys"
"""Folders of a training's ledger, where its scheme has one."""


def save(training: Training, folder: Path) -> None:
    """Write a training into its folder; its description comes last, so that without it there is none.

    Args:
        training: What a scheme gave.
        folder: That training's own, with its ledger in it.

    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _MODELS).open("wb") as models:
        for each in (*(done.before for done in training.rounds), training.served):
            models.write(each.numpy().astype("<f4").data)
    with (folder / _UPDATES).open("wb") as updates:
        for done in training.rounds:
            if done.updates is not None:
                updates.write(done.updates.contiguous().numpy().astype("<f4", copy=False).data)
    described = {
        "seed": training.seed,
        "ledger": training.run is not None,
        "rounds": [
            {
                "number": done.number,
                "clients": done.clients,
                "samples": done.samples,
                "updates": done.updates is not None,
            }
            for done in training.rounds
        ],
    }
    write_durably(folder / _DESCRIBED, json.dumps(described).encode())


def load(folder: Path, layout: Layout) -> Training | None:
    """Read a training; None where there is none, or none of which every number is there.

    Args:
        folder: Where `save` wrote it.
        layout: Of its models.

    """
    try:
        described = json.loads((folder / _DESCRIBED).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    rounds, size = described["rounds"], layout.size
    rows = sum(len(each["clients"]) for each in rounds if each["updates"])
    counts = {_MODELS: (len(rounds) + 1) * size, _UPDATES: rows * size}
    damaged = [name for name, count in counts.items() if not _holds(folder / name, count)]
    if damaged:
        _log.warning("%s is damaged; its training is made again", folder / damaged[0])
        return None
    models = _mapped(folder / _MODELS, counts[_MODELS]).view(-1, size)
    updates = _mapped(folder / _UPDATES, counts[_UPDATES]).view(-1, size) if rows else torch.zeros(0, size)
    found, start = [], 0
    for place, each in enumerate(rounds):
        clients = tuple(each["clients"])
        sent = updates[start : start + len(clients)] if each["updates"] else None
        start += len(clients) if each["updates"] else 0
        found.append(TrainedRound(each["number"], models[place], clients, tuple(each["samples"]), sent))
    run = (folder / RUN, folder / KEYS) if described["ledger"] else (None, None)
    return Training(layout, tuple(found), models[-1], described["seed"], *run)


def discard(folder: Path) -> None:
    """Delete a training, or what an interruption left of it."""
    shutil.rmtree(folder, ignore_errors=True)


def _holds(path: Path, count: int) -> bool:
    """Whether so many numbers are in a file, and nothing else."""
    try:
        return path.stat().st_size == _NUMBER_BYTES * count
    except FileNotFoundError:
        return False


def _mapped(path: Path, count: int) -> Tensor:
    """Numbers of a file, each read when it is looked at; writing to them would change memory and not the file."""
    return torch.from_file(str(path), shared=False, size=count, dtype=torch.float32)
