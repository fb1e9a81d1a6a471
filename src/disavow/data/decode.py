"""From rows to arrays: every image decoded, every label checked, in blocks."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from disavow.data.catalogue import Spec
from disavow.data.rows import Rows, needs_extra
from disavow.errors import ConfigError
from disavow.rounds.threads import cores

Pixels = npt.NDArray[np.uint8]
Block = tuple[Pixels, Pixels]
"""Images (n, channels, height, width), and labels: (n,) classes or (n, attributes) of 0 or 1."""


def blocks(rows: Rows, spec: Spec, count: int) -> Iterator[Block]:
    """Decode the first rows, some at a time.

    Args:
        rows: A split.
        spec: Which data set.
        count: How many rows.

    Yields:
        Images and labels.

    Raises:
        ConfigError: A row cannot be used; it is named.
    """
    with needs_extra(f'data.name "{spec.name}"'):
        import PIL.Image  # noqa: F401
    done = 0
    with ThreadPoolExecutor(cores()) as threads:
        for batch in rows.batches():
            part = batch.slice(0, count - done)
            if len(part):
                yield _images(part, rows, spec, done, threads), _labels(part, rows, spec, done)
            done += len(part)
            if done == count:
                return
    raise ConfigError(f"{rows.where}: it ends after {done:,} rows, where it promises {rows.count:,}; get it again")


def _images(part: Any, rows: Rows, spec: Spec, first: int, threads: ThreadPoolExecutor) -> Pixels:
    images = np.empty((len(part), *spec.shape), dtype=np.uint8)
    column = part.column(spec.image)
    encoded = column.field(column.type.get_field_index("bytes"))

    def some(start: int, end: int) -> None:
        for i in range(start, end):
            try:
                images[i] = _picture(encoded[i].as_py() if column[i].is_valid else None, spec)
            except Exception as error:  # Pillow raises errors of many kinds for a damaged image
                lines = str(error).strip().splitlines() or [type(error).__name__]
                raise ConfigError(
                    f"{rows.where}: row {first + i:,}: the image cannot be used: {lines[0]}; get the file again"
                ) from error

    # one task a core, because one an image would cost more than a small image takes
    bounds = np.linspace(0, len(part), cores() + 1).astype(int).tolist()
    for task in [threads.submit(some, start, end) for start, end in pairwise(bounds)]:
        task.result()
    return images


def _picture(encoded: bytes | None, spec: Spec) -> Pixels:
    from PIL import Image

    if encoded is None:
        raise ValueError("there are no bytes of it")
    channels, height, width = spec.shape
    with Image.open(io.BytesIO(encoded), formats=("PNG", "JPEG")) as opened:
        image = opened.convert("L" if channels == 1 else "RGB")
    if spec.cropped:
        side = min(image.size)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        square = image.crop((left, top, left + side, top + side))
        image = square.resize((width, height), Image.Resampling.BILINEAR)
    elif image.size != (width, height):
        raise ValueError(f"it is {image.width}x{image.height}, not {width}x{height}")
    pixels = np.asarray(image)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def _labels(part: Any, rows: Rows, spec: Spec, first: int) -> Pixels:
    columns = []
    for name in spec.labels:
        column = part.column(name)
        if column.null_count:
            row = next(i for i, each in enumerate(column) if not each.is_valid)
            raise ConfigError(f"{rows.where}: row {first + row:,}: {name} is missing; get the file again")
        columns.append(np.asarray(column.to_numpy(zero_copy_only=False)))
    if spec.attributes:
        return np.stack(columns, axis=1).astype(np.uint8)
    [labels] = columns
    wrong = np.flatnonzero((labels < 0) | (labels >= spec.classes))
    if len(wrong):
        raise ConfigError(
            f"{rows.where}: row {first + wrong[0]:,}: {spec.labels[0]} is {labels[wrong[0]]}; allowed: 0 to "
            f"{spec.classes - 1}"
        )
    return labels.astype(np.uint8)
