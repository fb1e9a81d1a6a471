"""Refusals by their code, and by what they name; not by their sentences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from disavow.errors import DisavowError


@contextmanager
def refuses(kind: type[DisavowError], *named: object) -> Iterator[pytest.ExceptionInfo[DisavowError]]:
    """Expect an error of this very code, which names these: clients, numbers, keys, files."""
    with pytest.raises(kind) as refusal:
        yield refusal
    assert refusal.value.code == kind.code
    for each in named:
        assert str(each) in str(refusal.value)
