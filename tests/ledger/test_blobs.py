"""What holds of every place for models and updates: a folder of the run, and a bucket on a real S3 server."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from disavow.errors import IntegrityError
from disavow.ledger import bucket as bucket_module
from disavow.ledger.blobs import Blobs
from disavow.ledger.bucket import Bucket, Location
from disavow.ledger.files import Folder
from disavow.ledger.models import ModelStore
from disavow.ledger.updates import UpdateStore
from tests.ledger.making import LAYOUT, vector
from tests.ledger.test_updates import KEYS, filled
from tests.local_s3 import LocalBucket
from tests.refusals import refuses

NAMES = r"[0-9a-f]{4}\.blob|[0-9a-f]{64}\.(safetensors\.zst|update)"


@dataclass(frozen=True)
class Place:
    """A place for blobs, and how somebody with another program changes what is in it."""

    blobs: Blobs
    put: Callable[[str, bytes], object]
    delete: Callable[[str], object]


def a_folder(tmp_path: Path) -> Place:
    folder = tmp_path / "models"
    return Place(
        Folder(folder, NAMES),
        lambda name, data: (folder / name).write_bytes(data),
        lambda name: (folder / name).unlink(),
    )


def a_bucket(local: LocalBucket) -> Place:
    prefix = "federations/run/models"
    blobs = Bucket(Location(local.name, prefix), NAMES)
    return Place(
        blobs,
        lambda name, data: local.write(f"{prefix}/{name}", data),
        lambda name: local.delete(f"{prefix}/{name}"),
    )


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    found = a_folder(tmp_path) if request.param == "folder" else a_bucket(request.getfixturevalue("bucket"))
    found.blobs.make()
    return found


def test_what_was_written_is_there_whole_and_listed_by_its_name(place: Place) -> None:
    contents = {"0001.blob": b"", "0002.blob": b"two", "0003.blob": bytes(300_000)}
    assert place.blobs.names() == []
    for name, data in contents.items():
        place.blobs.write(name, data)
    place.blobs.sync()
    assert place.blobs.names() == sorted(contents)
    assert {name: place.blobs.read(name) for name in contents} == contents
    assert [place.blobs.size(name) for name in contents] == [0, 3, 300_000]


def test_what_is_not_there_has_no_size_and_cannot_be_read(place: Place) -> None:
    assert place.blobs.size("0001.blob") is None
    with pytest.raises(FileNotFoundError):
        place.blobs.read("0001.blob")


def test_only_names_of_ours_are_listed_and_removed(place: Place) -> None:
    for name in ("0001.blob", "0002.blob", "0001.blob.bak", "thesis.tex"):
        place.put(name, b"content")
    assert place.blobs.names() == ["0001.blob", "0002.blob"]
    assert place.blobs.others() == ["0001.blob.bak", "thesis.tex"]
    place.blobs.remove(["0001.blob", "thesis.tex", "0001.blob.bak", "ffff.blob"])
    assert place.blobs.names() == ["0002.blob"]
    assert place.blobs.others() == ["0001.blob.bak", "thesis.tex"]
    place.blobs.remove([])


def test_writing_again_replaces_the_whole(place: Place) -> None:
    place.blobs.write("0001.blob", b"a longer one")
    place.blobs.write("0001.blob", b"short")
    assert place.blobs.read("0001.blob") == b"short"
    assert place.blobs.names() == ["0001.blob"]


# -- the stores on it ----------------------------------------------------------------------------------------------


def test_a_model_reads_back_bit_for_bit_and_is_written_once(place: Place) -> None:
    store = ModelStore(place.blobs)
    digest, stored_bytes = store.write(LAYOUT, vector(1))
    assert store.write(LAYOUT, vector(1)) == (digest, stored_bytes)
    again = ModelStore(place.blobs)
    assert again.read(LAYOUT, digest).tobytes() == vector(1).tobytes()
    assert (list(again.digests()), again.stored_bytes(digest)) == ([digest], stored_bytes)
    assert again.leftovers({digest}) == []
    assert again.leftovers(set()) == [store.name(digest)]
    again.remove(again.leftovers(set()))
    assert list(again.digests()) == []


@pytest.mark.parametrize("damage", ["cut", "other", "nothing", "gone"])
def test_a_damaged_or_missing_model_is_an_integrity_error(place: Place, damage: str) -> None:
    store = ModelStore(place.blobs)
    digest, _ = store.write(LAYOUT, vector(1))
    other, _ = store.write(LAYOUT, vector(2))
    name = store.name(digest)
    if damage == "gone":
        place.delete(name)
    else:
        contents = {
            "cut": place.blobs.read(name)[:-3],
            "other": place.blobs.read(store.name(other)),
            "nothing": b"",
        }
        place.put(name, contents[damage])
    with refuses(IntegrityError, digest, "missing" if damage == "gone" else "damaged"):
        ModelStore(place.blobs).read(LAYOUT, digest)
    assert ModelStore(place.blobs).read(LAYOUT, other).tobytes() == vector(2).tobytes()


def test_updates_are_sealed_wherever_they_lie(place: Place) -> None:
    store, numbers = UpdateStore(place.blobs), np.arange(50, dtype=np.float32)
    mine = filled("ada", numbers)
    [kept] = store.write({"ada": numbers}, KEYS).values()
    assert store.read(50, mine).tobytes() == numbers.tobytes()
    stored = place.blobs.read(kept.name)
    assert len(stored) == kept.stored_bytes == store.stored_bytes(mine)
    assert not any(part in stored for part in (numbers.tobytes()[:16], mine.update_digest))
    place.put(kept.name, stored[:-1])
    with refuses(IntegrityError, kept.name):
        store.read(50, mine)


def test_many_read_while_one_writes_and_deletes(place: Place) -> None:
    """Whoever reads a model that stays gets it, whatever happens to others."""
    stays = ModelStore(place.blobs)
    kept = [stays.write(LAYOUT, vector(number))[0] for number in range(4)]

    def read(number: int) -> bytes:
        return ModelStore(place.blobs).read(LAYOUT, kept[number % 4]).tobytes()

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read, number) for number in range(16)]
        for number in range(10, 16):
            digest, _ = stays.write(LAYOUT, vector(number))
            stays.remove([stays.name(digest)])
        found = [reader.result() for reader in readers]
    assert found == [vector(number % 4).tobytes() for number in range(16)]
    assert sorted(stays.digests()) == sorted(kept)


def test_a_listing_and_a_deletion_may_take_several_requests(
    bucket: LocalBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_module, "_A_PAGE", 3)
    found = a_bucket(bucket)
    names = [f"{number:04x}.blob" for number in range(7)]
    for name in (*names, "other"):
        found.put(name, b"content")
    assert (found.blobs.names(), found.blobs.others()) == (names, ["other"])
    found.blobs.remove(names)
    assert (found.blobs.names(), found.blobs.others()) == ([], ["other"])
