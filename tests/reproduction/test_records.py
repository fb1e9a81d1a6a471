"""Results files: what was finished is never lost, whoever dies; what is damaged is named."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from disavow.errors import ConfigError, StorageFull
from reproduction import lines, records
from tests.cli.process import environment
from tests.refusals import refuses
from tests.reproduction.making import line

ONE, TWO = line(rounds=3), line(rounds=3, seed=2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a file in a folder that is not there yet."""
    return tmp_path / "results" / "lenet5.jsonl"


def test_what_was_added_is_read_in_order(path: Path) -> None:
    assert lines.read(path) == []
    lines.append(path, ONE)
    lines.append(path, TWO)
    assert lines.read(path) == [ONE, TWO]
    assert [json.loads(text)["format"] for text in path.read_text().splitlines()] == [lines.FORMAT] * 2


def test_a_line_has_the_fields_of_its_format_in_order(path: Path) -> None:
    lines.append(path, ONE)
    names = (
        "format key row network method k x seed quick settings versions device commit rounds requests accuracy "
        "seconds client_epochs bytes distance_to_fedavg averaged edition variant width hidden needed_delta"
    )
    assert " ".join(json.loads(path.read_text())) == names


def test_a_line_from_before_models_were_averaged_is_read(path: Path) -> None:
    lines.append(path, ONE)
    older = json.loads(path.read_text())
    del older["averaged"]
    path.write_text(json.dumps(older) + "\n")
    assert lines.read(path) == [ONE]


@given(kept=st.integers(0, len(records.dump(TWO))))
@example(kept=0)
@example(kept=1)
@example(kept=len(records.dump(TWO)))
def test_wherever_a_writer_dies_only_its_own_line_is_lost(
    tmp_path_factory: pytest.TempPathFactory, kept: int
) -> None:
    path = tmp_path_factory.mktemp("torn") / "results.jsonl"
    lines.append(path, ONE)
    torn = path.read_bytes() + records.dump(TWO)[:kept]
    path.write_bytes(torn)

    notes: list[str] = []
    whole = kept == len(records.dump(TWO))  # all but the end of the line
    expected = [ONE, TWO] if whole else [ONE]
    assert lines.read(path, notes.append) == expected
    assert path.read_bytes() == torn
    lines.append(path, ONE, notes.append)
    assert lines.read(path) == [*expected, ONE]
    said = [
        f"{path}: line 2 was cut off and is passed over; those before it are whole",
        f"{path}: the last line was cut off and has been taken out; everything before it is kept",
    ]
    assert notes == ([] if whole or kept == 0 else said)


def test_a_whole_last_line_without_its_end_is_kept(path: Path) -> None:
    lines.append(path, ONE)
    path.write_bytes(path.read_bytes()[:-1])
    assert lines.read(path) == [ONE]
    lines.append(path, TWO)
    assert lines.read(path) == [ONE, TWO]


def changed(**fields: Any) -> bytes:
    return json.dumps(json.loads(records.dump(ONE)) | fields).encode()


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (b'{"format": "disavow-res', "JSON; take the line out"),
        (b"", "is damaged"),
        (b"\x00\xff", "is damaged"),
        (b"[]", 'null, this version of disavow reads "disavow-result/1"'),
        (changed(format="disavow-result/2"), "use the version that wrote it"),
        (changed(colour="red"), "colour: an unknown field; take the line out"),
        (changed(k="4"), "k: "),
        (changed(k=2), "x = 3 is more than k = 2"),
        (changed(method="fedavg"), "fedavg has k = 1"),
        (changed(accuracy=1.5), "accuracy: "),
        (changed(accuracy=float("nan")), "accuracy: "),
        (changed(row="SVHN-iid"), "row: "),
        (changed(key="0123"), "key: "),
        (changed(bytes={"models": 1, "updates": 1, "database": 1, "other": 1, "total": 5}), "bytes: total"),
    ],
)  # fmt: skip
def test_damage_in_the_middle_is_refused_by_file_line_and_remedy(path: Path, second: bytes, said: str) -> None:
    lines.append(path, ONE)
    path.write_bytes(path.read_bytes() + second + b"\n" + path.read_bytes())
    with refuses(ConfigError, f"{path}, line 2", said):
        lines.read(path)


def test_a_rollback_leads_to_a_round_and_nothing_else_does() -> None:
    [request, *_] = [one for one in line("MNIST-iid", "fedavg").requests if one.verdict == "rollback"]
    with pytest.raises(ValueError, match="a rollback has a round"):
        replace(request, to_round=None)
    with pytest.raises(ValueError, match="a rollback has a round"):
        replace(request, verdict="deniable")


def test_a_full_disk_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines.append(path, ONE)
    before, write = path.read_bytes(), os.write
    for failing in (lambda to, data: write(to, data[:100]), _full):
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", failing)
            with refuses(StorageFull, "lenet5.jsonl", "make room"):
                lines.append(path, TWO)
        assert path.read_bytes() == before


def _full(descriptor: int, data: bytes) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_path_that_cannot_be_a_file_is_refused(tmp_path: Path) -> None:
    with refuses(ConfigError, "read", "Is a directory"):
        lines.read(tmp_path)
    with refuses(ConfigError, "written", "Is a directory"):
        lines.append(tmp_path, ONE)


WRITER = """
import sys
from pathlib import Path
from reproduction import lines, records
from tests.reproduction.making import line
for seed in range(40):
    lines.append(Path(sys.argv[1]), line(rounds=3, seed=seed, device=sys.argv[2]))
"""


def test_two_processes_that_add_at_once_do_not_mix(path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], env=environment()) for name in ("a", "b")
    ]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    found = lines.read(path)
    for name in ("a", "b"):
        assert [one.seed for one in found if one.device == name] == list(range(40))


def test_a_run_made_twice_counts_once_and_the_last_counts() -> None:
    again = replace(ONE, device="cpu")
    assert lines.latest([ONE, TWO, again]) == [again, TWO]
