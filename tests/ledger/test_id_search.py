"""Is an id really gone? Every byte of every file is looked at, and only the whole id counts."""

from __future__ import annotations

import base64
import bz2
import gzip
import json
import lzma
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from disavow.ledger import id_search
from disavow.ledger.id_search import files_with
from tests.ledger.making import create
from tests.rounds.builders import PROPERTY


def found(folder: Path, client: str, *others: str) -> list[str]:
    return [str(path.relative_to(folder)) for path in files_with(folder, client, others)]


def test_bytes_are_looked_at_whatever_stands_around_them(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\x00\xffclient-07\x80")
    (tmp_path / "b").write_bytes(b"client-08")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "c").write_bytes(b"x" * 5000 + b"client-07")
    assert found(tmp_path, "client-07") == ["a", "deep/er/c"]
    assert found(tmp_path, "client-09") == []


def test_names_count_as_bytes_do(tmp_path: Path) -> None:
    (tmp_path / "opening-client-07.json").write_bytes(b"")
    (tmp_path / "client-07").mkdir()
    assert found(tmp_path, "client-07") == ["client-07", "opening-client-07.json"]


def test_the_name_of_the_folder_itself_does_not_count(tmp_path: Path) -> None:
    folder = tmp_path / "client-07"
    folder.mkdir()
    (folder / "file").write_bytes(b"")
    assert found(folder, "client-07") == []


def test_an_id_of_any_letters_is_found_in_utf_8(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("Zoë 北京".encode())
    assert found(tmp_path, "Zoë 北京") == ["a"]


def test_a_longer_id_that_is_still_in_hides_only_itself(tmp_path: Path) -> None:
    (tmp_path / "longer").write_bytes(b"client-10 client-11")
    (tmp_path / "whole").write_bytes(b"client-10 client-1 client-11")
    assert found(tmp_path, "client-1", "client-1", "client-10", "client-11", "client-2") == ["whole"]
    # of an id that nobody knows any more, every occurrence counts
    assert found(tmp_path, "client-1", "client-10") == ["longer", "whole"]


@pytest.mark.parametrize("name", ["client-10.json", "client-10"])
def test_a_longer_id_in_a_name_hides_itself_as_in_bytes(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    assert found(tmp_path, "client-1", "client-10") == []
    assert found(tmp_path, "client-1") == [name]


PIECE = 1 << 18
BORDERS = [1 << 16, PIECE, 2 * PIECE]
"""Where a file might be cut by whoever reads it piece by piece."""


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read in small pieces; `test_what_is_compressed_is_looked_at_piece_by_piece` has usual ones."""
    monkeypatch.setattr(id_search, "_CHUNK", PIECE)


def sparse(path: Path, content: bytes, start: int) -> None:
    """A file that is empty up to these bytes, and for a while after them."""
    with path.open("wb") as file:
        file.seek(start)
        file.write(content)
        file.truncate(start + 70_000)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("border", BORDERS)
def test_an_id_across_the_border_of_two_pieces_is_found(tmp_path: Path, border: int) -> None:
    for start in range(border - 10, border + 2):
        sparse(tmp_path / "a", b"client-07", start)
        assert found(tmp_path, "client-07") == ["a"], start
        assert found(tmp_path, "client-70") == []


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(
    ("client", "other", "border"),
    [
        *(("client-1", "client-10", border) for border in BORDERS),
        ("client-1", "my-client-1", BORDERS[0]),
        ("ana", "hanana", BORDERS[-1]),
        ("b", "abc", BORDERS[0]),
    ],
)
def test_a_longer_id_across_the_border_of_two_pieces_still_hides_itself(
    tmp_path: Path, client: str, other: str, border: int
) -> None:
    """A ledger of more than one piece must not fail an erasure because of where a piece happens to end."""
    alarms = []
    for start in range(border - 2 * len(other) - 1, border + 2):
        sparse(tmp_path / "file", other.encode(), start)
        if files_with(tmp_path, client, [other]):
            alarms.append(start)
    assert alarms == []


@PROPERTY
@given(st.lists(st.sampled_from(["ab", "abc", "xab", "ba", "."]), max_size=40))
def test_only_whole_words_are_found(tmp_path_factory: pytest.TempPathFactory, words: list[str]) -> None:
    folder = tmp_path_factory.mktemp("words")
    (folder / "f").write_bytes(".".join(words).encode())
    assert bool(files_with(folder, "ab", ["abc", "xab"])) == ("ab" in words)


def test_an_occurrence_beside_a_longer_id_counts_though_they_overlap(tmp_path: Path) -> None:
    """In "abab" the last "ab" is not part of "aba": only what lies inside a longer id is hidden."""
    (tmp_path / "f").write_bytes(b"abab")
    assert found(tmp_path, "ab", "aba") == ["f"]


def test_an_empty_file_contains_nobody(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    assert found(tmp_path, "client-07") == []


@pytest.mark.sqlite
def test_the_write_ahead_log_is_a_file_like_any_other(tmp_path: Path) -> None:
    """What has been deleted from the tables can still stand in the log, and then it is not gone."""
    with create(tmp_path / "run", clients=["still-here", "leaving"]):
        pass
    with closing(sqlite3.connect(tmp_path / "run" / "ledger.sqlite3")) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("INSERT INTO members (token, sealed) VALUES (x'01', 'in-the-log')")
        connection.commit()
        connection.execute("DELETE FROM members")
        connection.commit()
        assert found(tmp_path / "run", "in-the-log") == ["ledger.sqlite3-wal"]


def test_free_pages_are_bytes_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("CREATE TABLE t (id TEXT)")
        connection.executemany("INSERT INTO t VALUES (?)", [(f"leaver-{i:05d}",) for i in range(2000)])
        connection.commit()
        connection.execute("DROP TABLE t")
        connection.commit()
    assert found(tmp_path, "leaver-00042") == ["db"]


# -- decoded contents ----------------------------------------------------------------------------------------------

ENCODINGS = {
    "base64": base64.b64encode,
    "base64 for addresses": base64.urlsafe_b64encode,
    "base64 in lines": base64.encodebytes,
    "base64 without padding": lambda data: base64.b64encode(data).rstrip(b"="),
    "base64 twice": lambda data: base64.b64encode(base64.b64encode(data)),
    "an envelope": lambda data: json.dumps({"payload": base64.b64encode(data).decode()}).encode(),
    "base64 in base64 of JSON": lambda data: base64.b64encode(
        json.dumps({"salt": base64.b64encode(data).decode()}).encode()
    ),
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "base64 in gzip": lambda data: gzip.compress(base64.b64encode(data)),
    "zstandard": zstandard.ZstdCompressor(level=19).compress,
    "two frames of zstandard": lambda data: (
        zstandard.ZstdCompressor().compress(b"nobody") + zstandard.ZstdCompressor().compress(data)
    ),
    "base64 in zstandard": lambda data: zstandard.ZstdCompressor().compress(base64.b64encode(data)),
}


@pytest.mark.parametrize("encode", ENCODINGS.values(), ids=ENCODINGS.keys())
@pytest.mark.parametrize("before", range(4))
def test_an_id_is_found_in_what_is_encoded_wherever_it_begins(
    tmp_path: Path, encode: Callable[[bytes], bytes], before: int
) -> None:
    for end in range(3):
        data = b"client-0 " * before + b"-" * before + b"client-07" + b"." * end
        (tmp_path / "a").write_bytes(encode(data))
        assert found(tmp_path, "client-07") == ["a"], end
        assert found(tmp_path, "client-08") == []
        # a longer one that is still in hides only itself there, too
        assert found(tmp_path, "client-0", "client-07") == (["a"] if before else [])


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("border", BORDERS)
def test_an_encoded_id_across_the_border_of_two_pieces_is_found(tmp_path: Path, border: int) -> None:
    encoded = base64.b64encode(b"....client-07....")
    for start in range(border - len(encoded), border + 1, 3):
        sparse(tmp_path / "a", encoded, start)
        assert found(tmp_path, "client-07") == ["a"], start


def test_what_is_compressed_is_looked_at_piece_by_piece(tmp_path: Path) -> None:
    border = 1 << 24
    for start in (border - 5, 2 * border + 7):
        data = bytes(start) + b"client-07" + bytes(border)
        (tmp_path / "a").write_bytes(zstandard.ZstdCompressor().compress(data))
        assert found(tmp_path, "client-07") == ["a"], start


def test_what_only_looks_compressed_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "cut").write_bytes(zstandard.ZstdCompressor().compress(b"client-07" * 1000)[:-9])
    (tmp_path / "magic").write_bytes(zstandard.FRAME_HEADER + b"client-07")
    for name, whole in {
        "gz": gzip.compress(b"nobody"),
        "bz2": bz2.compress(b"nobody"),
        "xz": lzma.compress(b"nobody"),
    }.items():
        (tmp_path / f"cut.{name}").write_bytes(whole[:-9])
        (tmp_path / f"damaged.{name}").write_bytes(whole[:8] + b"damaged")
    assert "magic" in found(tmp_path, "client-07")


def test_an_id_of_a_few_bytes_is_looked_for_as_it_is_only(tmp_path: Path) -> None:
    """Decoded bytes are as good as random: in a megabyte of them any three turn up by chance."""
    (tmp_path / "encoded").write_bytes(base64.b64encode(b"bob"))
    (tmp_path / "plain").write_bytes(b"bob")
    assert found(tmp_path, "bob") == ["plain"]
