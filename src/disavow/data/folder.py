"""A data set from parquet files in a folder. Nothing is copied and nothing is downloaded."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from disavow.data.catalogue import SPLITS, Spec
from disavow.data.rows import BATCH, Rows, needs_extra
from disavow.errors import ConfigError

VARIABLE = "DISAVOW_DATA_DIR"
"""The environment variable that names the folder where `data.dir` does not."""

_PIECE = re.compile(r"-(\d{5})-of-(\d{5})\.parquet$")
"""How the hub names the pieces of a split that is in several files."""


def folder_of(directory: str | None, environment: Mapping[str, str] = os.environ) -> tuple[str, Path] | None:
    """Find the folder to read.

    Args:
        directory: What `data.dir` says.
        environment: Where `DISAVOW_DATA_DIR` may be set.

    Returns:
        What named the folder, and the folder; None where nothing does.
    """
    if directory is not None:
        return "data.dir", Path(directory).expanduser()
    if environment.get(VARIABLE):
        return VARIABLE, Path(environment[VARIABLE]).expanduser()
    return None


@dataclass(frozen=True)
class FolderSource:
    """The files of one data set in a folder, which `named_by` named."""

    spec: Spec
    named_by: str
    folder: Path

    @cached_property
    def _files(self) -> dict[str, list[Path]]:
        found = {split: self._of_split(split) for split in SPLITS}
        if not all(found.values()):
            raise ConfigError(
                f"{self.named_by} is {self.folder}; allowed: a folder with {self.spec.files} in it (docs/data.md)"
            )
        return found

    def _of_split(self, split: str) -> list[Path]:
        """One file, or the pieces in which the hub keeps large ones, there or one folder further down."""
        place = self.folder / self.spec.name
        whole = place / f"{split}.parquet"
        if whole.is_file():
            return [whole]
        for pattern in (f"{split}-*.parquet", f"*/{split}-*.parquet"):
            pieces = sorted(place.glob(pattern))
            if pieces:
                _refuse_gaps(pieces)
                return pieces
        return []

    @cached_property
    def digest(self) -> str:
        """What the files hold, by their sizes and SHA-256, wherever they are and whatever they are called."""
        return self.spec.digest(
            files={
                split: [(path.stat().st_size, _sha256(path)) for path in paths]
                for split, paths in self._files.items()
            }
        )

    @property
    def described(self) -> str:
        """In words."""
        return f"{self.folder / self.spec.name}"

    def rows(self, split: str) -> Rows:
        """Open a split, in the order of the files.

        Args:
            split: `train` or `test`.

        Returns:
            Its rows.

        Raises:
            ConfigError: A file is damaged or of another kind.
        """
        with needs_extra(f'data.name "{self.spec.name}"'):
            import pyarrow
            from pyarrow import parquet
        files = self._files[split]
        opened, counts = [], []
        for path in files:
            try:
                file = parquet.ParquetFile(path)
            except (pyarrow.ArrowException, OSError, ValueError) as error:
                raise _damaged(path, error) from None
            opened.append(file.schema_arrow)
            counts.append(file.metadata.num_rows)
        for path, schema in zip(files, opened, strict=True):
            if schema.remove_metadata() != opened[0].remove_metadata():
                raise ConfigError(
                    f"{path}: its columns are not those of {files[0].name}; both are pieces of one file"
                )
        columns = [name for name in (self.spec.image, *self.spec.labels) if name in opened[0].names]

        def batches() -> Iterator[Any]:
            for path in files:
                try:
                    yield from parquet.ParquetFile(path).iter_batches(BATCH, columns=columns)
                except (pyarrow.ArrowException, OSError, ValueError) as error:
                    raise _damaged(path, error) from None

        return Rows(str(files[0]) if len(files) == 1 else str(files[0].parent), sum(counts), opened[0], batches)


def _refuse_gaps(pieces: list[Path]) -> None:
    numbers = [found.groups() for path in pieces if (found := _PIECE.search(path.name))]
    for number, total in numbers:
        if len(pieces) != int(total):
            missing = sorted(set(range(int(total))) - {int(each) for each, _ in numbers})
            raise ConfigError(
                f"{pieces[0].parent}: piece {missing[0] if missing else number} of {int(total)} is missing; get "
                "all of them again (docs/data.md)"
            )


def _damaged(path: Path, error: Exception) -> ConfigError:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return ConfigError(f"{path}: cannot be read as parquet: {lines[0]}; get the file again (docs/data.md)")


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; make it readable, or get it again") from None
