"""A run whose models are in a bucket: its promises are those of any run, and what the bucket refuses is told."""

from __future__ import annotations

import http.server
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zstandard

from disavow.errors import (
    BucketRefused,
    BucketUnreachable,
    ConfigError,
    DisavowError,
    IntegrityError,
    LedgerError,
    MissingExtra,
    RunUnsafe,
    StorageError,
)
from disavow.ledger import Ledger, fsck
from disavow.ledger.blobs import LOCATION, check_location
from disavow.ledger.bucket import Bucket, Location
from disavow.ledger.copying import copy_run
from disavow.ledger.id_search import blobs_with
from disavow.ledger.keys import default_folder
from disavow.run_checks import check_run
from tests.cli.process import ROOT, with_repository
from tests.erasure.erased_runs import keys_of, secrets_of
from tests.erasure.mechanisms.contract import digests, leave, start_toy, toy_settings
from tests.ledger.making import create, files_of, record_next
from tests.local_s3 import LocalBucket
from tests.refusals import refuses


def faults(run: Path) -> list[str]:
    """What fsck calls wrong; a run made by hand has no settings."""
    return [str(finding) for finding in fsck(run) if finding.fault and finding.where != "config.toml"]


def notes(run: Path) -> list[str]:
    return [finding.where for finding in fsck(run) if not finding.fault]


@pytest.fixture
def run(bucket: LocalBucket, tmp_path: Path) -> Path:
    """Two rounds, whose models are in the bucket."""
    with create(tmp_path / "run", models_at=bucket.url) as ledger:
        record_next(ledger)
        record_next(ledger)
    return tmp_path / "run"


def named(run: Path) -> set[str]:
    """The keys of the objects that the rows of a run name."""
    with Ledger.open(run) as ledger:
        models = [each.digest for each in ledger.round_models() if each.kept]
        return {f"federations/{ledger.run_id}/models/{ledger.store.name(digest)}" for digest in models}


# -- the run -------------------------------------------------------------------------------------------------------


def test_models_are_objects_under_the_run_s_id_and_everything_else_stays_in_the_directory(
    run: Path, bucket: LocalBucket
) -> None:
    on_disk = sum(map(len, files_of(run).values()))
    with Ledger.open(run) as ledger:
        assert ledger.models_at == f"{bucket.url}/{ledger.run_id}"
        assert (run / LOCATION).read_text() == f"{ledger.models_at}\n"
        assert ledger.model_after(2).tobytes() == ledger.store.read(ledger.layout, ledger.round(2).after).tobytes()
        assert ledger.stored_bytes() == on_disk + sum(map(len, bucket.objects().values()))
    assert set(bucket.objects()) == named(run)
    assert set(files_of(run)) == {LOCATION, "config.toml", "ledger.sqlite3", "lock"}
    assert (run / LOCATION).stat().st_mode & 0o077 == 0
    assert (faults(run), notes(run)) == ([], [])


def test_an_object_that_no_row_names_is_noted_and_removed_by_the_next_writer(
    run: Path, bucket: LocalBucket
) -> None:
    [prefix] = {key.rpartition("/")[0] for key in bucket.objects()}
    orphan, stranger = f"{prefix}/{'c' * 64}.safetensors.zst", f"{prefix}/thesis.tex"
    other = f"federations/{'0' * 32}/models/{'d' * 64}.safetensors.zst"
    for key in (orphan, stranger, other):
        bucket.write(key, b"content")
    assert notes(run) == [f"models/{key.rpartition('/')[2]}" for key in (orphan, stranger)]
    with Ledger.open(run, write=True):
        assert set(bucket.objects()) == named(run) | {stranger, other}


@pytest.mark.parametrize("damage", ["gone", "cut", "another"])
def test_fsck_names_the_object_that_is_missing_or_damaged(run: Path, bucket: LocalBucket, damage: str) -> None:
    with Ledger.open(run) as ledger:
        digest, other = ledger.round(1).after, ledger.round(2).after
    keys = {key.rpartition("/")[2][:64]: key for key in bucket.objects()}
    if damage == "gone":
        bucket.delete(keys[digest])
    else:
        bucket.write(keys[digest], bucket.read(keys[digest])[:-1] if damage == "cut" else bucket.read(keys[other]))
    [fault] = faults(run)
    assert fault.startswith(f"model {digest[:12]}: ")
    assert ("missing" if damage == "gone" else "damaged") in fault
    with Ledger.open(run) as ledger:
        with refuses(IntegrityError, digest):
            ledger.model_after(1)
        assert ledger.model_after(2) is not None


def test_a_round_whose_commit_fails_leaves_no_object(
    run: Path, bucket: LocalBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(bucket.objects())
    with Ledger.open(run, write=True) as ledger:
        with monkeypatch.context() as patch:
            patch.setattr("disavow.ledger.rounds.insert", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                record_next(ledger)
        assert set(bucket.objects()) == before
        record_next(ledger)
    assert set(bucket.objects()) == named(run) > before


def test_thinned_models_are_deleted_from_the_bucket(run: Path, bucket: LocalBucket) -> None:
    with Ledger.open(run, write=True) as ledger:
        ledger.thin(1)
        assert [each.kept for each in ledger.round_models()] == [True, False, True]
    assert set(bucket.objects()) == named(run)
    assert len(named(run)) == 2
    assert faults(run) == []


def test_a_creation_that_fails_after_the_upload_leaves_nothing(
    bucket: LocalBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("disavow.ledger.creation.register", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        create(tmp_path / "run", models_at=bucket.url)
    assert bucket.objects() == {}
    assert [path for path in tmp_path.iterdir() if "run" in path.name] == []


def test_a_run_may_begin_in_an_empty_directory(bucket: LocalBucket, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    create(tmp_path / "run", models_at=bucket.url).close()
    assert set(bucket.objects()) == named(tmp_path / "run")
    assert faults(tmp_path / "run") == []


# -- kills ---------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from disavow.ledger.bucket import Bucket
from tests.ledger.making import create, record_next

directory, url, method, when, die_at = sys.argv[1:]
real, calls = getattr(Bucket, method), []

def dying(*arguments):
    calls.append(method)
    due = len(calls) == int(die_at)
    if due and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    real(*arguments)
    if due:
        os.kill(os.getpid(), signal.SIGKILL)

setattr(Bucket, method, dying)
with create(Path(directory), models_at=url) as ledger:
    for _ in range(3):
        record_next(ledger)
    ledger.thin(1)
"""


@pytest.mark.kill
@pytest.mark.parametrize(
    ("method", "when", "die_at", "rounds"),
    [
        pytest.param("write", "after", 1, None, id="first model stored, no run yet"),
        pytest.param("write", "before", 3, 1, id="round recorded, the next not stored"),
        pytest.param("write", "after", 3, 1, id="model stored, its round not recorded"),
        pytest.param("remove", "before", 1, 3, id="models given up, not yet deleted"),
    ],
)
def test_killed_at_any_instant_no_object_is_missing_and_the_next_writer_removes_what_is_too_many(
    bucket: LocalBucket, tmp_path: Path, method: str, when: str, die_at: int, rounds: int | None
) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-c", KILLED, str(run), bucket.url, method, when, str(die_at)]
    ended = subprocess.run(command, cwd=ROOT, env=with_repository(), check=False, timeout=120)
    assert ended.returncode == -signal.SIGKILL
    assert len(bucket.objects()) > 0
    if rounds is None:
        assert not run.exists()
        create(run, models_at=bucket.url).close()
        assert [path.name for path in tmp_path.iterdir() if "run" in path.name] == ["run"]
    else:
        assert faults(run) == []
        with Ledger.open(run, write=True) as ledger:
            assert ledger.last_round == rounds
    assert set(bucket.objects()) == named(run)
    with Ledger.open(run, write=True) as ledger:
        record_next(ledger)
    assert faults(run) == []


# -- erasures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["retrain", "federaser"])
def test_an_erasure_with_rollback_ends_as_in_a_directory_and_no_object_tells_of_the_leavers(
    bucket: LocalBucket, tmp_path: Path, mechanism: str
) -> None:
    settings = toy_settings(rounds=3, mechanism={"name": mechanism})
    leavers = ("client-03", "client-05", "client-07")
    ends = []
    for name, models in (("inside", None), ("bucket", bucket.url)):
        kept = settings.ledger.model_copy(update={"models": models})
        with start_toy(tmp_path / name, settings.model_copy(update={"ledger": kept})) as toy:
            toy.train()
            known = [each for client in leavers for each in secrets_of(toy.ledger, client)]
            known += [key for client in leavers for key in keys_of(toy.ledger, client)]
            answered = leave(toy, *leavers)
            ends.append((digests(toy.ledger), [str(request.verdict) for request in answered]))
            stores = toy.ledger.store.blobs, toy.ledger.updates.blobs
            kept_updates = len(toy.ledger.updates.blobs.names())
    assert ends[0] == ends[1]
    assert any("rollback" in verdict for verdict in ends[1][1])
    assert (kept_updates > 0) == (mechanism == "federaser")
    assert not (tmp_path / "bucket" / "updates").exists()
    contents = list(bucket.objects().items())
    contents += [
        (key, zstandard.ZstdDecompressor().decompress(data)) for key, data in contents if key.endswith(".zst")
    ]
    for secret in known:
        assert [key for key, data in contents if secret in data] == []
    assert [blobs_with(blobs, leaver) for blobs in stores for leaver in leavers] == [[]] * 6
    assert [finding for finding in check_run(tmp_path / "bucket", absent=leavers) if finding.fault] == []


def test_an_id_in_an_object_is_found(run: Path, bucket: LocalBucket) -> None:
    [prefix] = {key.rpartition("/")[0] for key in bucket.objects()}
    bucket.write(f"{prefix}/notes.zst", zstandard.compress(b"about lovelace"))
    bucket.write(f"{prefix}/lovelace.txt", b"")
    found = [finding.where for finding in check_run(run, absent=["lovelace"]) if finding.fault]
    assert [where for where in found if where != "config.toml"] == ["lovelace.txt", "notes.zst"]


def test_a_copy_to_try_things_on_has_its_models_in_its_directory(bucket: LocalBucket, tmp_path: Path) -> None:
    settings = toy_settings(rounds=2, mechanism={"name": "federaser"}, ledger={"models": bucket.url})
    with start_toy(tmp_path / "run", settings) as toy:
        toy.train()
        expected, before = digests(toy.ledger), bucket.objects()
    keys = tmp_path / "copied keys"
    copy_run(tmp_path / "run", tmp_path / "copy", keys=default_folder(), target_keys=keys)
    assert not (tmp_path / "copy" / LOCATION).exists()
    assert len(list((tmp_path / "copy" / "updates").iterdir())) == sum(key.endswith(".update") for key in before)
    assert fsck(tmp_path / "copy", keys=keys) == []
    with Ledger.open(tmp_path / "copy", write=True, keys=keys) as copied:
        assert digests(copied) == expected
        copied.thin(1)
    assert bucket.objects() == before


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "",
        "models",
        "/srv/models",
        "file:///srv/models",
        "memory://models",
        "gs://bucket/models",
        "https://bucket.s3.amazonaws.com/models",
        "s3://",
        "s3://B",
        "s3://bucket_with_underscores/x",
        "s3://key:secret@bucket/x",
        "s3://bucket/x?endpoint=http://localhost",
        "s3://bucket/x#y",
        "s3://bucket/a//b",
        "s3://bucket/a/../b",
        "s3://bucket/a b",
        "s3://bucket/" + "a" * 701,
        "s3://[bucket/x",
    ],
)
def test_what_is_no_url_of_a_bucket_is_refused_without_repeating_credentials(url: str, tmp_path: Path) -> None:
    with refuses(ConfigError) as refusal:
        create(tmp_path / "run", models_at=url)
    assert "secret" not in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "bucket", "prefix", "text"),
    [
        ("s3://bucket", "bucket", "", "s3://bucket"),
        ("s3://bucket/", "bucket", "", "s3://bucket"),
        ("s3://my.bucket-1/a/b.c_d=e+f@g/", "my.bucket-1", "a/b.c_d=e+f@g", "s3://my.bucket-1/a/b.c_d=e+f@g"),
    ],
)
def test_a_location_is_read_and_written(url: str, bucket: str, prefix: str, text: str) -> None:
    found = Location.parse(url)
    assert (found.bucket, found.prefix, str(found)) == (bucket, prefix, text)
    assert Location.parse(str(found.of_run("0" * 32))).run_id == "0" * 32


def test_without_s3fs_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")  # or a client that was made before is taken
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with refuses(MissingExtra, "s3fs", "[s3]"):
        check_location("s3://bucket/prefix")


def every_use(run: Path) -> list[type[DisavowError]]:
    """What is raised by reading a model, by listing them and by recording a round."""
    raised: list[type[DisavowError]] = []
    with Ledger.open(run) as ledger:
        blobs, layout, digest = ledger.store.blobs, ledger.layout, ledger.round(1).after
        for use in (lambda: ledger.store.read(layout, digest), blobs.names, lambda: blobs.write("name", b"data")):
            with pytest.raises(StorageError) as caught:
                use()
            raised.append(type(caught.value))
            assert caught.value.exit_code == StorageError.exit_code
    with pytest.raises(StorageError):
        Ledger.open(run, write=True)
    return raised


def test_a_bucket_that_is_gone_is_refused_and_the_run_stays_as_it_is(run: Path, bucket: LocalBucket) -> None:
    contents, files = bucket.objects(), files_of(run)
    for key in contents:
        bucket.delete(key)
    bucket.client.delete_bucket(Bucket=bucket.name)
    assert every_use(run) == [BucketRefused] * 3
    with refuses(BucketRefused, bucket.name):
        check_location(bucket.url)
    bucket.client.create_bucket(Bucket=bucket.name)
    for key, data in contents.items():
        bucket.write(key, data)
    assert files_of(run) == files
    assert faults(run) == []


@contextmanager
def credentials_checked(endpoint: str) -> Iterator[None]:
    """The server accepts nobody meanwhile: none of its users has a key."""

    def unchecked(requests: str) -> None:
        kind = {"Content-Type": "text/plain"}
        request = urllib.request.Request(f"{endpoint}/moto-api/reset-auth", requests.encode(), kind, method="POST")
        urllib.request.urlopen(request).close()

    unchecked("0")
    try:
        yield
    finally:
        unchecked("1000000000")


def test_wrong_credentials_are_refused(run: Path, bucket: LocalBucket) -> None:
    with credentials_checked(bucket.endpoint):
        assert every_use(run) == [BucketRefused] * 3
        with refuses(BucketRefused, "AWS_ACCESS_KEY_ID"):
            check_location(bucket.url)
    assert faults(run) == []


def test_no_credentials_are_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.delenv("AWS_ACCESS_KEY_ID")
        patch.delenv("AWS_SECRET_ACCESS_KEY")
        with refuses(BucketRefused, "AWS_ACCESS_KEY_ID"), Ledger.open(run) as ledger:
            ledger.model_after(1)


def test_an_endpoint_that_does_not_answer_can_be_tried_again(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        with monkeypatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{nobody.getsockname()[1]}")
            with refuses(BucketUnreachable, "AWS_ENDPOINT_URL"), Ledger.open(run) as ledger:
                ledger.model_after(1)
            with pytest.raises(BucketUnreachable):
                fsck(run)
    assert faults(run) == []


@contextmanager
def another_server(status: int, body: bytes = b"") -> Iterator[str]:
    """A web server that answers every request in one way; its address."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(("status", "kind"), [(404, BucketRefused), (503, BucketUnreachable)])
def test_a_server_that_is_none_of_s3_never_makes_a_model_missing(
    run: Path, monkeypatch: pytest.MonkeyPatch, status: int, kind: type[StorageError]
) -> None:
    with another_server(status, b"<html>nothing here</html>") as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        with refuses(kind), Ledger.open(run) as ledger:
            ledger.model_after(1)


@pytest.mark.usefixtures("bucket")
def test_objects_that_may_not_be_deleted_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion of several objects succeeds, and its answer says which of them were not deleted."""
    refused = "<Error><Key>x/0001</Key><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
    with another_server(200, f"<DeleteResult>{refused}</DeleteResult>".encode()) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        with refuses(BucketRefused, "s3://bucket/x", "Access Denied"):
            Bucket(Location("bucket", "x"), ".*").remove(["0001", "0002"])


# -- the note of where the models are ------------------------------------------------------------------------------


def test_a_note_that_is_damaged_or_of_another_run_is_refused(
    run: Path, bucket: LocalBucket, tmp_path: Path
) -> None:
    before, other = bucket.objects(), tmp_path / "other"
    create(other, models_at=bucket.url).close()
    for text in ("", "s3://", "\xff", (other / LOCATION).read_text(), f"{bucket.url}\n"):
        (run / LOCATION).write_text(text, encoding="latin-1")
        with refuses(LedgerError, LOCATION):
            Ledger.open(run, write=True)
        assert len(faults(run)) == 1
    assert bucket.objects().items() >= before.items()


def test_a_note_that_is_a_link_is_never_followed(run: Path, tmp_path: Path) -> None:
    (run / LOCATION).rename(tmp_path / "elsewhere")
    (run / LOCATION).symlink_to(tmp_path / "elsewhere")
    with refuses(RunUnsafe, LOCATION):
        Ledger.open(run)


def test_models_may_move_with_their_prefix(run: Path, bucket: LocalBucket) -> None:
    """What `aws s3 mv --recursive` does, and one line in the run."""
    for key, data in bucket.objects().items():
        bucket.write(key.replace("federations/", "archive/2026/"), data)
        bucket.delete(key)
    (run / LOCATION).write_text((run / LOCATION).read_text().replace("/federations/", "/archive/2026/"))
    assert faults(run) == []
    with Ledger.open(run, write=True) as ledger:
        record_next(ledger)
    assert {key.split("/")[0] for key in bucket.objects()} == {"archive"}


LIGHT = """
import sys
from pathlib import Path
from disavow.ledger import Ledger
with Ledger.open(Path(sys.argv[1])) as ledger:
    ledger.summaries(), ledger.round_models(), ledger.stored_bytes(), ledger.requests()
print(sorted({"fsspec", "s3fs", "botocore", "aiohttp"} & set(sys.modules)))
"""


def test_looking_at_a_run_neither_asks_the_bucket_nor_imports_what_would(run: Path) -> None:
    command = [sys.executable, "-c", LIGHT, str(run)]
    around = with_repository(AWS_ENDPOINT_URL="http://127.0.0.1:9")
    result = subprocess.run(command, cwd=ROOT, env=around, check=True, capture_output=True, text=True, timeout=60)
    assert result.stdout == "[]\n"
