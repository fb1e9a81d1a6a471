"""Write event files that TensorBoard shows; the extra `tensorboard`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from disavow.errors import MissingExtra, how_to_install
from disavow.tracking.tracker import Tracker

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoard(Tracker):
    """Writes event files into a folder of its own for each run: `tensorboard --logdir FOLDER` shows them all.

    Args:
        folder: Where the folders of runs lie; made where it is not there.

    Raises:
        MissingExtra: The extra is not installed.

    """

    def __init__(self, folder: Path | str) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ModuleNotFoundError as error:
            raise MissingExtra(f"TensorBoard needs {error.name}; {how_to_install('tensorboard')}") from None
        self._make_writer = SummaryWriter
        self._folder = Path(folder)
        self._writer: SummaryWriter | None = None

    def start(self, run: str, name: str, facts: Mapping[str, str]) -> None:
        """See `Tracker`."""
        # the id as well: two runs may have one name, and a run that goes on finds its folder again
        folder = self._folder / f"{name}-{run[:8]}"
        first = not folder.exists()
        self._writer = self._make_writer(str(folder))
        if first:
            rows = "\n".join(f"| {key} | {value} |" for key, value in facts.items())
            self._writer.add_text("policy", f"| promise | value |\n|---|---|\n{rows}", 0)

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """See `Tracker`."""
        for name, value in figures.items():
            self._open().add_scalar(name, value, step)
        self._open().flush()

    def note(self, name: str, text: str, step: int) -> None:
        """See `Tracker`."""
        self._open().add_text(name, text, step)
        self._open().flush()

    def _open(self) -> SummaryWriter:
        if self._writer is None:
            raise RuntimeError("start() comes first")
        return self._writer

    def close(self) -> None:
        """See `Tracker`."""
        if self._writer is not None:
            self._writer.close()
