"""A data set from the Hugging Face hub, by its public name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from disavow.data.catalogue import Spec
from disavow.data.folder import VARIABLE
from disavow.data.progress import OnProgress
from disavow.data.rows import BATCH, Rows, needs_extra
from disavow.errors import ConfigError

_SECONDS = 10.0
"""To wait for the hub's first word."""


class HubSource:
    """What the hub holds now. `datasets` keeps the files that it downloads in a cache of its own."""

    def __init__(self, spec: Spec, on_progress: OnProgress) -> None:
        self.spec = spec
        self._on_progress = on_progress

    @cached_property
    def _builder(self) -> Any:
        with needs_extra(f'data.name "{self.spec.name}"'):
            import datasets
            from huggingface_hub import HfApi, constants
        self._on_progress(f"asking the hub for {self.spec.hub}", 0, None)
        with self._reached(), _silent(datasets):
            # asked first, because `datasets` itself would ask again and again for half a minute
            revision = (
                None if constants.HF_HUB_OFFLINE else HfApi().dataset_info(self.spec.hub, timeout=_SECONDS).sha
            )
            return datasets.load_dataset_builder(self.spec.hub, revision=revision)

    @cached_property
    def _loaded(self) -> Any:
        import datasets

        builder = self._builder
        self._on_progress(f"downloading {self.spec.hub}", 0, None)
        with self._reached(), _silent(datasets):
            builder.download_and_prepare()
            return builder.as_dataset()

    @property
    def digest(self) -> str:
        """Which revision of the data set it is."""
        return self.spec.digest(hub=self.spec.hub, revision=str(self._builder.hash))

    @property
    def described(self) -> str:
        """In words."""
        return f"{self.spec.hub} of the Hugging Face hub, revision {self._builder.hash}"

    def rows(self, split: str) -> Rows:
        """The rows of a split, in the hub's order.

        Args:
            split: `train` or `test`.

        Returns:
            Its rows.
        """
        import datasets

        where = f"{self.spec.hub} ({split})"
        if split not in self._loaded:
            raise ConfigError(f"{where}: the hub has no such split; {self._instead}")
        loaded = self._loaded[split]
        if isinstance(loaded.features.get(self.spec.image), datasets.Image):
            loaded = loaded.cast_column(self.spec.image, datasets.Image(decode=False))
        loaded = loaded.with_format("arrow")

        def batches() -> Iterator[Any]:
            for table in loaded.iter(BATCH):
                yield from table.combine_chunks().to_batches()

        return Rows(where, len(loaded), loaded.features.arrow_schema, batches)

    @property
    def _instead(self) -> str:
        return f"set {VARIABLE} or data.dir to a folder with {self.spec.files} (docs/data.md)"

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """One clear line, whatever goes wrong on the way to the hub."""
        try:
            yield
        except Exception as error:  # the clients of the hub raise errors of many kinds
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise ConfigError(
                f"{self.spec.name} cannot be had from the Hugging Face hub ({self.spec.hub}): "
                f"{lines[0].rstrip('.')}; {self._instead}"
            ) from error


@contextmanager
def _silent(datasets: Any) -> Iterator[None]:
    """Without bars of its own: data code prints nothing."""
    shown = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            datasets.enable_progress_bars()
