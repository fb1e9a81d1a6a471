"""What a comparison has done so far, in files: each named by what it is and by the digest of what it was made from.

A file is written whole or not at all. A comparison that was interrupted goes on with the pieces that are missing,
and one with more seeds, references or methods takes those of a smaller one.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_safetensors
from torch import Tensor

from disavow.ledger.files import write_durably

_log = logging.getLogger(__name__)

OnPiece = Callable[[str], None]
"""Called with the name of a piece once it is there."""


class Pieces:
    """The files of one comparison.

    Args:
        folder: Where they are.
        inputs: What all of them depend on.
        on_piece: Called with each piece, found or made.

    """

    def __init__(self, folder: Path, inputs: Mapping[str, Any], on_piece: OnPiece = lambda name: None) -> None:
        self.folder = folder
        self._inputs = dict(inputs)
        self._on_piece = on_piece
        self._done: set[str] = set()

    def path(self, name: str, inputs: Mapping[str, Any], suffix: str = "") -> Path:
        """Name a piece.

        Args:
            name: What it is.
            inputs: What it depends on, beside what all depend on.
            suffix: Of its file.

        """
        text = json.dumps({**self._inputs, "piece": name, **inputs}, sort_keys=True, default=str)
        return self.folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}{suffix}"

    def vector(
        self, name: str, inputs: Mapping[str, Any], size: int, make: Callable[[], tuple[Tensor, dict[str, Any]]]
    ) -> tuple[Tensor, dict[str, Any]]:
        """Read a model with what is noted of it, or make it.

        Args:
            name: What it is.
            inputs: What it depends on.
            size: How many numbers it has.
            make: Gives model and notes.

        """
        found = self.find_vector(name, inputs, size)
        if found is None:
            made, notes = make()
            self.keep_vector(name, inputs, made, notes)
            found = made, notes
        self.done(name)
        return found

    def find_vector(self, name: str, inputs: Mapping[str, Any], size: int) -> tuple[Tensor, dict[str, Any]] | None:
        """Read a model; None where there is none, or none that can be used."""
        path = self.path(name, inputs, ".safetensors")
        try:
            with safe_open(path, framework="pt") as file:
                vector, notes = file.get_tensor("model"), json.loads(file.metadata()["notes"])
        except FileNotFoundError:
            return None
        except (SafetensorError, OSError, ValueError, KeyError, TypeError):
            _log.warning("%s is damaged; it is made again", path)
            return None
        return (vector, notes) if vector.shape == (size,) and vector.dtype == torch.float32 else None

    def keep_vector(self, name: str, inputs: Mapping[str, Any], vector: Tensor, notes: Mapping[str, Any]) -> None:
        """Write a model durably, with what is noted of it."""
        tensors = {"model": vector.detach().cpu().contiguous()}
        write_durably(
            self.path(name, inputs, ".safetensors"), to_safetensors(tensors, metadata={"notes": json.dumps(notes)})
        )

    def figures(
        self, name: str, inputs: Mapping[str, Any], make: Callable[[], dict[str, Any]], *, counted: bool = True
    ) -> dict[str, Any]:
        """Read figures, or make them.

        Args:
            name: What they are.
            inputs: What they depend on.
            make: Gives what `json.dumps` takes.
            counted: Whether it is one of the pieces that progress counts.

        """
        path = self.path(name, inputs, ".json")
        found = self._read(path)
        if found is None:
            found = make()
            write_durably(path, json.dumps(found).encode())
        if counted:
            self.done(name)
        return found

    def done(self, name: str) -> None:
        """Tell that a piece is there, once."""
        if name not in self._done:
            self._done.add(name)
            self._on_piece(name)

    @staticmethod
    def _read(path: Path) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError:
            _log.warning("%s is damaged; it is made again", path)
            return None
        return found
