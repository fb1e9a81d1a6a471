"""The ledger gives back what it was given, takes only what follows, and keeps ids in one place."""

from __future__ import annotations

import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from disavow.domain import Cluster, Member, Slot, size_class
from disavow.errors import LedgerError, RunExists, RunMissing
from disavow.ledger import Ledger, creation, database, fsck, rows
from disavow.ledger.keyring import Keyring
from disavow.ledger.models import ModelStore
from tests.ledger.making import (
    IDS,
    MOMENT,
    all_rows,
    by_id,
    change,
    create,
    files_of,
    member,
    record_next,
    two_clusters,
    vector,
)
from tests.refusals import refuses

# -- round trips -------------------------------------------------------------------------------------------------

characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
ids = st.lists(st.text(characters, min_size=1, max_size=12), min_size=4, max_size=12, unique=True)


@st.composite
def recorded(draw: st.DrawFn, clients: list[str]) -> dict[str, Any]:
    """What one round tells the ledger: some of the clients, in clusters of two or three."""
    chosen = draw(st.permutations(clients))[: draw(st.integers(4, len(clients)))]
    # two or three members each, so that k = 2 holds
    sizes: list[int] = []
    while (left := len(chosen) - sum(sizes)) > 0:
        sizes.append(left if left <= 3 else draw(st.integers(2, 3 if left != 4 else 2)))
    samples = draw(st.lists(st.integers(1, 2**40), min_size=len(chosen), max_size=len(chosen)))
    digests = [draw(st.binary(min_size=32, max_size=32)) for _ in chosen]
    slots = [Slot(Member(client, samples[i], digests[i])) for i, client in enumerate(chosen)]
    clusters: list[Cluster] = []
    classes = [size_class(count) for count in samples]
    for size in sizes:
        start = sum(len(cluster.slots) for cluster in clusters)
        share = sum(classes[start : start + size]) / sum(classes)
        spread = draw(st.floats(0.0, allow_infinity=False, allow_nan=False))
        clusters.append(Cluster(share, spread, tuple(slots[start : start + size])))
    zone = timezone(timedelta(minutes=draw(st.integers(-14 * 60, 14 * 60))))
    return {
        "clusters": tuple(clusters),
        "delta": max(cluster.spread for cluster in clusters),
        "update_norm": draw(st.floats(0.0, 1e30)),
        "pairs_within": draw(st.floats(0.0, 1.0)),
        "at": draw(st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1))).replace(tzinfo=zone),
    }


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_whatever_is_recorded_reads_back_equal_and_passes_fsck(data: st.DataObject) -> None:
    clients = data.draw(ids)
    rounds = data.draw(st.lists(recorded(clients), min_size=1, max_size=3))
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        with create(directory, clients=clients) as ledger:
            given_back = [record_next(ledger, **one) for one in rounds]
        with Ledger.open(directory) as ledger:
            assert ledger.clients() == tuple(sorted(clients))
            read_back = [ledger.round(number) for number in range(1, len(rounds) + 1)]
            assert [by_id(record) for record in read_back] == [by_id(record) for record in given_back]
            for number, (one, record) in enumerate(zip(rounds, given_back, strict=True), start=1):
                assert record.clusters == one["clusters"]
                assert record.recorded_at == one["at"]
                assert ledger.membership(number) == tuple(tuple(sorted(c.clients)) for c in one["clusters"])
                assert ledger.model_after(number).tobytes() == vector(number).tobytes()
            for client in clients:
                took_part = [i for i, r in enumerate(given_back, 1) for c in r.clusters if client in c.clients]
                assert ledger.rounds_with(client) == tuple(took_part)
        assert [f for f in fsck(directory) if f.fault and f.where != "config.toml"] == []


def test_a_round_that_gives_the_same_model_again_is_recorded(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        record_next(ledger, vector(0))
        record_next(ledger, vector(0))
        assert ledger.model_after(2).tobytes() == vector(0).tobytes()
    assert [f for f in fsck(tmp_path / "run") if f.fault] == []


# -- what is refused, and what a failure leaves ----------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"number": 1},
        {"number": 3},
        {"number": 0},
        {"attempt": 2},
        {"attempt": 0},
        {"before": "0" * 64},
        {"before": "the initial model"},
    ],
    ids=str,
)
def test_a_round_that_does_not_follow_is_refused_and_leaves_nothing(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with create(tmp_path / "run") as ledger:
        record_next(ledger)
        if wrong.get("before") == "the initial model":
            wrong = {"before": ledger.initial_model}
        kept, models = all_rows(tmp_path / "run"), files_of(tmp_path / "run" / "models")
        with refuses(LedgerError):
            record_next(ledger, vector(99), **wrong)
        assert all_rows(tmp_path / "run") == kept
        # a model that no row names could be a second draw of the same round
        assert files_of(tmp_path / "run" / "models").keys() == models.keys()
        assert record_next(ledger).number == 2


@pytest.mark.parametrize("table", ["models", "rounds", "clusters", "slots", "memberships"])
def test_a_failure_at_any_insert_leaves_no_rows_and_the_run_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    class DiskOnFireError(Exception):
        pass

    def fail(_: object, __: object, statement: str, *___: object) -> None:
        if statement.startswith(f"INSERT INTO {table} "):
            raise DiskOnFireError

    def fail_with_many(backend: Any, connection: sa.Connection, into: sa.Table, rows: Any, **same: Any) -> None:
        if into.name == table:
            raise DiskOnFireError
        insert_many(backend, connection, into, rows, **same)

    with create(tmp_path / "run") as ledger:
        record_next(ledger)
        kept = all_rows(tmp_path / "run")
        kind = type(database.of(tmp_path / "run"))
        insert_many = kind.insert_many
        sa.event.listen(ledger._engine, "before_cursor_execute", fail)
        with monkeypatch.context() as patch:
            patch.setattr(kind, "insert_many", fail_with_many)
            with pytest.raises(DiskOnFireError):
                record_next(ledger)
        sa.event.remove(ledger._engine, "before_cursor_execute", fail)
        assert all_rows(tmp_path / "run") == kept
        assert ledger.next_round() == (2, 1)
        record_next(ledger)
    # ids of rounds are never skipped either: a gap would read as a row that somebody deleted
    assert [f for f in fsck(tmp_path / "run") if f.fault] == []


@pytest.mark.parametrize(
    "clusters",
    [
        (Cluster(1.0, 0.1, (Slot(member("ada")), Slot(member("nobody registered this one")))),),
        (Cluster(1.0, 0.1, (Slot(member("ada")), Slot(member("ada")))),),
        (Cluster(1.0, float("nan"), (Slot(member("ada")), Slot(member("bela")))),),
        (Cluster(1.0, 0.1, (Slot(None), Slot(member("bela")))),),
    ],
    ids=["an unknown client", "a client twice", "a spread that is no number", "nobody"],
)
def test_an_impossible_round_leaves_no_rows_and_the_run_usable(
    tmp_path: Path, clusters: tuple[Cluster, ...]
) -> None:
    with create(tmp_path / "run") as ledger:
        kept = all_rows(tmp_path / "run")
        with pytest.raises(Exception):  # noqa: B017, PT011 - whichever it is, it must change nothing
            record_next(ledger, clusters=clusters)
        assert all_rows(tmp_path / "run") == kept
        record_next(ledger)
    assert [f for f in fsck(tmp_path / "run") if f.fault] == []


def test_an_id_with_a_nul_is_refused_and_is_nobody_elses(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        known = ledger.clients()[0]
        with refuses(LedgerError, "NUL"):
            ledger.register([f"{known}\0x"])
        assert ledger.strangers([f"{known}\0x", known, "nobody"]) == (f"{known}\0x", "nobody")


def test_registering_twice_is_registering_once_and_an_empty_id_is_refused(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        ledger.register(["ada", "eve", "eve"])
        assert ledger.clients() == ("ada", "bela", "cleo", "dora", "eve")
        with pytest.raises(LedgerError):
            ledger.register(["zoe", ""])
        assert "zoe" not in ledger.clients()


# -- ids stand in the keyring, and there sealed ------------------------------------------------------------------

NAMES = tuple(f"zeppelin-{i}-quartz" for i in range(4))


def test_no_byte_of_a_run_or_of_its_keyring_names_a_client(tmp_path: Path) -> None:
    with create(tmp_path / "run", clients=NAMES, config="seed = 1\n") as ledger:
        for _ in range(3):
            record_next(ledger, clusters=two_clusters(NAMES))
        ledger.place_requests(NAMES[:1], at=MOMENT, openings=tmp_path / NAMES[0])
        keyring = ledger.keyring.folder
        assert ledger.clients() == NAMES
        for folder in (tmp_path / "run", keyring):
            for name, data in files_of(folder).items():
                assert b"zeppelin" not in data, name
                assert "zeppelin" not in name
    for path in (tmp_path / "run" / "models").iterdir():
        assert b"zeppelin" not in zstandard.ZstdDecompressor().decompress(path.read_bytes())


def test_a_client_has_another_number_in_every_run(tmp_path: Path) -> None:
    with create(tmp_path / "one") as one, create(tmp_path / "two") as two:
        assert not set(one.numbers_of(IDS).values()) & set(two.numbers_of(IDS).values())


# -- coming into being -------------------------------------------------------------------------------------------


class Boom(Exception):
    pass


def _boom(*_: object, **__: object) -> None:
    raise Boom


@pytest.mark.parametrize("name", ["run", "run[1]"])
@pytest.mark.parametrize(
    ("owner", "step"),
    [
        (creation, "write_durably"),
        (ModelStore, "write"),
        (database, "make_empty"),
        (creation, "register"),
        (rows, "policy_to_json"),
        (creation, "sync_folder"),
        (Path, "rename"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_failure_while_a_run_is_created_leaves_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, step: str, name: str
) -> None:
    directory = tmp_path / name
    with monkeypatch.context() as patch:
        patch.setattr(owner, step, _boom)
        with pytest.raises(Boom):
            create(directory)
    assert not directory.exists()
    with create(directory) as ledger:
        assert ledger.next_round() == (1, 1)
    # what the failure left beside it is gone as well: it held the ids of all clients
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_nothing_that_exists_is_overwritten_but_an_empty_directory_is_filled(tmp_path: Path) -> None:
    full, file, empty = tmp_path / "full", tmp_path / "file", tmp_path / "empty"
    full.mkdir()
    (full / "thesis.tex").write_text("years of work")
    file.write_text("a file")
    empty.mkdir()
    for taken in (full, file):
        before = files_of(tmp_path)
        with refuses(RunExists, taken):
            create(taken)
        assert files_of(tmp_path) == before
    with create(empty) as ledger:
        assert ledger.next_round() == (1, 1)
    with pytest.raises(RunExists):
        create(empty)


def test_a_directory_that_holds_no_run_is_said_to_hold_none(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "nowhere"):
        for write in (False, True):
            with refuses(RunMissing, directory):
                Ledger.open(directory, write=write)
    assert list(tmp_path.iterdir()) == []


def test_of_two_who_create_one_run_the_slower_is_refused_and_overwrites_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = creation._furnish

    def overtaken(workshop: Path, beginning: creation.Beginning, keyring: Keyring) -> None:
        monkeypatch.setattr(creation, "_furnish", real)
        create(tmp_path / "run").close()
        real(workshop, beginning, keyring)

    monkeypatch.setattr(creation, "_furnish", overtaken)
    with pytest.raises(RunExists):
        create(tmp_path / "run")
    assert [finding for finding in fsck(tmp_path / "run") if finding.fault] == []
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


# -- leftovers -----------------------------------------------------------------------------------------------------


def test_leftovers_are_noted_by_fsck_kept_by_readers_and_removed_by_a_writer(run_dir: Path) -> None:
    models = run_dir / "models"
    recorded_models = {path.name for path in models.iterdir()}
    half = models / f".{'a' * 64}.safetensors.zst.deadbeef"
    half.write_bytes(b"half a mod")
    with Ledger.open(run_dir) as ledger:
        orphan = models / f"{ledger.store.write(ledger.layout, ledger.model_after(1) + 1)[0]}.safetensors.zst"
    found = fsck(run_dir)
    assert {finding.where for finding in found} == {f"models/{half.name}", f"models/{orphan.name}"}
    assert not any(finding.fault for finding in found)
    with Ledger.open(run_dir):
        assert half.exists()
        assert orphan.exists()
    with Ledger.open(run_dir, write=True):
        assert {path.name for path in models.iterdir()} == recorded_models
    assert fsck(run_dir) == []


def test_a_folder_among_the_models_does_not_stop_a_writer(run_dir: Path) -> None:
    (run_dir / "models" / "lost+found").mkdir()
    with Ledger.open(run_dir, write=True) as ledger:
        assert ledger.next_round() == (4, 1)


# -- events -------------------------------------------------------------------------------------------------------


def test_a_round_and_its_event_are_recorded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with create(tmp_path / "run") as ledger:
        assert ledger.events() == ()
        assert ledger.latest_samples() == {}
        record_next(ledger)
        [event] = ledger.events()
        assert (event.number, event.attempt, event.mode, event.rate, event.weight) == (1, 1, "paper", 0.5, 0.5)
        assert (event.squares, event.clusters, event.fixed, event.predictable) == (0.5, 2, False, False)
        assert ledger.latest_samples() == dict.fromkeys(IDS, 10)

        def refuse(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(rows, "event_row", refuse)
        with pytest.raises(KeyboardInterrupt):
            record_next(ledger)
        assert len(ledger.summaries()) == len(ledger.events()) == 1


def test_an_account_of_half_of_the_rounds_is_refused(tmp_path: Path) -> None:
    with create(tmp_path / "run") as ledger:
        record_next(ledger)
        record_next(ledger)
    change(tmp_path / "run", "DELETE FROM events WHERE round_id = 1")
    with Ledger.open(tmp_path / "run") as ledger, refuses(LedgerError, "event", "round 1"):
        ledger.events()
