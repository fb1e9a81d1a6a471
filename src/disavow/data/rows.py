"""Rows of images as files hold them, before anything is decoded; the same from a folder and from the hub."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from disavow.data.catalogue import Spec
from disavow.errors import ConfigError, MissingExtra, how_to_install

BATCH = 1000
"""Rows at a time."""


@dataclass(frozen=True, eq=False)
class Rows:
    """One split. `schema` and what `batches` yields are pyarrow's; `where` names them in errors."""

    where: str
    count: int
    schema: Any
    batches: Callable[[], Iterator[Any]]


@contextmanager
def needs_extra(what: str) -> Iterator[None]:
    """Turn a failed import into the command that installs what is missing.

    Args:
        what: What needs it.

    Raises:
        MissingExtra: Something is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "disavow":
            raise
        raise MissingExtra(f"{what} needs {error.name}; {how_to_install('data')}") from None


def refuse_other_schema(rows: Rows, spec: Spec) -> None:
    """Refuse rows in which a column is missing, or holds something else.

    Args:
        rows: A split.
        spec: Which data set.

    Raises:
        ConfigError: They are not those of the data set.
    """
    import pyarrow

    columns = dict(zip(rows.schema.names, rows.schema.types, strict=True))
    missing = [name for name in (spec.image, *spec.labels) if name not in columns]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise _unlike(rows, spec, f"it has no column {missing[0]}{more}")
    image = columns[spec.image]
    if not pyarrow.types.is_struct(image) or not _holds_bytes(image):
        raise _unlike(rows, spec, f"its column {spec.image} is {image}, not struct<bytes: binary, path: string>")
    wanted, fits = ("bool", pyarrow.types.is_boolean) if spec.attributes else ("int64", pyarrow.types.is_integer)
    for name in spec.labels:
        if not fits(columns[name]):
            raise _unlike(rows, spec, f"its column {name} is {columns[name]}, not {wanted}")
    if rows.count == 0:
        raise _unlike(rows, spec, "it has no rows")


def _holds_bytes(struct: Any) -> bool:
    import pyarrow

    place = struct.get_field_index("bytes")
    if place < 0:
        return False
    kind = struct.field(place).type
    return bool(pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind))


def _unlike(rows: Rows, spec: Spec, reason: str) -> ConfigError:
    return ConfigError(f"{rows.where}: {reason}; allowed: the schema of {spec.hub} (docs/data.md)")
