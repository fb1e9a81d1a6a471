"""Every kind of damage is found, and named; fsck never changes anything."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from disavow.errors import RunError
from disavow.ledger import Ledger, fsck
from disavow.ledger.database import NAME
from tests.cli import process
from tests.cli.forked import disavow
from tests.ledger.making import by_hand, change, create, files_of, record_next
from tests.refusals import refuses

Damage = Callable[[Path], None]


def sql(*statements: str) -> Damage:
    return lambda run: change(run, *statements)


def model_of_round(run: Path, number: int) -> Path:
    with Ledger.open(run) as ledger:
        return ledger.store.path(ledger.summary(number).after)


def truncate_model(run: Path) -> None:
    path = model_of_round(run, 2)
    path.write_bytes(path.read_bytes()[:-7])


def flip_bit_of_model(run: Path) -> None:
    path = model_of_round(run, 2)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def lengthen_model(run: Path) -> None:
    with model_of_round(run, 2).open("ab") as file:
        file.write(b"more")


def delete_model(run: Path) -> None:
    model_of_round(run, 2).unlink()


def swap_model_files(run: Path) -> None:
    one, two = model_of_round(run, 2), model_of_round(run, 3)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)


def swap(column: str) -> Damage:
    """Swap what two memberships of a round hold."""

    def damage(run: Path) -> None:
        with by_hand(run) as connection:
            held = dict(connection.execute(f"SELECT slot, {column} FROM memberships WHERE round_id = 2"))
            move = f"UPDATE memberships SET {column} = ? WHERE round_id = 2 AND slot = ?"
            for value, slot in ((b"", 3), (held[3], 4), (held[4], 3)):
                connection.execute(move, [value, slot])

    return damage


def move_to_another_round(run: Path) -> None:
    """What a client brought to one round, given out as brought to another."""
    with by_hand(run) as connection:
        [(token, sealed)] = connection.execute(f"SELECT token, sealed FROM memberships {OF_SLOT}")
        connection.execute(f"UPDATE memberships SET token = x'00' {OF_SLOT}")
        connection.execute(
            "UPDATE memberships SET token = ?, sealed = ? WHERE round_id = 3 AND slot = 3", [token, sealed]
        )


def forget_a_client(run: Path) -> None:
    """A client without a key, though nobody withdrew it."""
    with Ledger.open(run) as ledger:
        ledger.keyring.forget([ledger.numbers_of(["client-03"])["client-03"]])


def flip_a_key(run: Path) -> None:
    with Ledger.open(run) as ledger:
        path = ledger.keyring.folder / "keys.1"
    data = bytearray(path.read_bytes())
    place = next(at for at in range(32, len(data), 32) if any(data[at : at + 32]))
    data[place] ^= 1
    path.write_bytes(data)


def nan_in_a_model(run: Path) -> None:
    """A model whose digest is right, in a ledger whose rows all name it, but which is no model."""
    with Ledger.open(run) as ledger:
        numbers = ledger.model_after(3)
        numbers[5] = float("nan")
        digest, size = ledger.store.write(ledger.layout, numbers)
    with by_hand(run) as connection:
        connection.execute("INSERT INTO models (digest, stored_bytes) VALUES (?, ?)", [digest, size])


LAST_ROUND = [
    f"DELETE FROM {table} WHERE {key} = 3"
    for table, key in (
        ("log", "round_id"),
        ("memberships", "round_id"),
        ("slots", "round_id"),
        ("clusters", "round_id"),
        ("evaluations", "round_id"),
        ("events", "round_id"),
        ("rounds", "id"),
    )
]


MIDDLE_ROUND = [statement.replace("= 3", "= 2") for statement in LAST_ROUND]


OF_SLOT = "WHERE round_id = 2 AND slot = 3"


OF_CLUSTER = "WHERE round_id = 2 AND position = 1"


OTHER_DIGEST = r"round 2: its rows are not those that were recorded"


NOT_RECORDED = r"round 2: the membership row of slot 3 is not the one that was recorded"


DAMAGES: dict[str, tuple[Damage, str]] = {
    # the model files
    "a model cut short": (truncate_model, r"model [0-9a-f]{12}: .*damaged"),
    "a bit of a model flipped": (flip_bit_of_model, r"model [0-9a-f]{12}: .*damaged"),
    "a model with bytes after it": (lengthen_model, r"model [0-9a-f]{12}: .*bytes"),
    "a model deleted": (delete_model, r"model [0-9a-f]{12}: .*missing"),
    "two model files swapped": (swap_model_files, r"model [0-9a-f]{12}: .*another digest"),
    "a model that is not finite": (nan_in_a_model, r"model [0-9a-f]{12}: .*not finite"),
    "the models folder gone": (lambda run: shutil.rmtree(run / "models"), r"models: the folder is missing"),
    "the settings gone": (lambda run: (run / "config.toml").unlink(), r"config.toml: is missing"),
    # a row of every table deleted
    "run row deleted": (sql("DELETE FROM run"), r"table run: holds 0 rows"),
    "a clustering that nobody registered": (
        sql("UPDATE run SET policy = replace(policy, 'mdav', 'mdax')"),
        r"table anchors: .*'mdax', which is not registered",
    ),
    "models row deleted": (
        sql("DELETE FROM models WHERE digest = (SELECT after FROM rounds WHERE id = 2)"),
        r"table rounds: a row refers to a row of models",
    ),
    "initial models row deleted": (
        sql("DELETE FROM models WHERE digest = (SELECT initial_model FROM run)"),
        r"table run: a row refers to a row of models",
    ),
    "last models row deleted": (
        sql("DELETE FROM models WHERE digest = (SELECT after FROM rounds WHERE id = 3)"),
        r"table rounds: a row refers to a row of models",
    ),
    "a client forgotten that nobody withdrew": (forget_a_client, r"round 2: slot \d is of nobody in the keyring"),
    "a bit of a key flipped": (flip_a_key, r"keyring: the key at place \d+ does not open the id of its client"),
    "middle rounds row deleted": (sql("DELETE FROM rounds WHERE id = 2"), r"table slots: .* row of rounds"),
    "last rounds row deleted": (sql("DELETE FROM rounds WHERE id = 3"), r"table slots: .* row of rounds"),
    "middle round deleted whole": (sql(*MIDDLE_ROUND), r"table rounds: the row with id 2 is missing"),
    "last round deleted whole": (sql(*LAST_ROUND), r"table rounds: the row with id 3 is missing"),
    "log leaf changed": (
        sql("""UPDATE log SET leaf = replace(leaf, '"number":2', '"number":9') WHERE position = 2"""),
        r"table log: leaf 2 is round 9 where round 2 is due",
    ),
    "log leaf reworded": (
        sql("UPDATE log SET leaf = replace(leaf, '2026', '2027') WHERE position = 3"),
        r"table log: leaf 3 does not have the hash that was recorded",
    ),
    "log leaf and hash of another round": (
        sql(
            'UPDATE log SET leaf = (SELECT replace(leaf, \'"root":"\', \'"root":"A\') FROM log WHERE position = 1)'
            " WHERE position = 1"
        ),
        r"table log: leaf 1.root",
    ),
    "log leaf deleted": (sql("DELETE FROM log WHERE position = 2"), r"table log: leaf 2 is missing"),
    "log hash changed": (
        sql("UPDATE log SET hash = zeroblob(32) WHERE position = 2"),
        r"table log: leaf 2 does not have the hash that was recorded",
    ),
    "log clusters changed": (
        sql("UPDATE log SET clusters = zeroblob(64) WHERE position = 2"),
        r"table log: the leaf of round 2, attempt 1 keeps other clusters",
    ),
    "log promises changed": (
        sql("""UPDATE log SET leaf = replace(leaf, '"x":2', '"x":1') WHERE position = 0"""),
        r"table log: leaf 0 promises something else",
    ),
    "log head made up": (
        sql("UPDATE log SET head = 'x' WHERE position = 2"),
        r"table log: the head at leaf 2 is signed, though no key is named",
    ),
    "clusters row deleted": (
        sql(f"DELETE FROM clusters {OF_CLUSTER}"),
        r"round 2: the row of cluster 1 is missing",
    ),
    "slots row deleted": (sql(f"DELETE FROM slots {OF_SLOT}"), r"table memberships: .* row of slots"),
    "slots and memberships row deleted": (
        sql(f"DELETE FROM memberships {OF_SLOT}", f"DELETE FROM slots {OF_SLOT}"),
        r"round 2: the row of slot 3 is missing",
    ),
    "memberships row deleted": (
        sql(f"DELETE FROM memberships {OF_SLOT}"),
        r"round 2: the membership row of slot 3 is missing",
    ),
    # a value changed
    "spread": (sql(f"UPDATE clusters SET spread = spread + 1e-12 {OF_CLUSTER}"), OTHER_DIGEST),
    "weight": (sql(f"UPDATE clusters SET weight = weight + 1e-12 {OF_CLUSTER}"), OTHER_DIGEST),
    "cluster size": (sql(f"UPDATE clusters SET size = size + 1 {OF_CLUSTER}"), OTHER_DIGEST),
    "delta": (sql("UPDATE rounds SET delta = delta * 2 WHERE id = 2"), OTHER_DIGEST),
    "recorded_at": (
        sql("UPDATE rounds SET recorded_at = replace(recorded_at, '+00:00', '+01:00') WHERE id = 2"),
        OTHER_DIGEST,
    ),
    "participants": (sql("UPDATE rounds SET participants = 7 WHERE id = 2"), r"round 2: "),
    "clusters of a round": (sql("UPDATE rounds SET clusters = 1 WHERE id = 2"), r"round 2: "),
    "round digest": (sql("UPDATE rounds SET digest = zeroblob(32) WHERE id = 2"), OTHER_DIGEST),
    "attempt": (sql("UPDATE rounds SET attempt = 2 WHERE id = 2"), r"round 2: its attempts are \[2\]"),
    "number": (sql("UPDATE rounds SET number = 9 WHERE id = 2"), r"round 2: no standing round .* gap"),
    "standing flag of a middle round": (
        sql("UPDATE rounds SET standing = 0 WHERE id = 2"),
        r"round 2: no standing round",
    ),
    "standing flag of the last round": (sql("UPDATE rounds SET standing = 0 WHERE id = 3"), r"round 3"),
    "update norm": (sql("UPDATE rounds SET update_norm = 9.0"), OTHER_DIGEST),
    "pairs within": (sql("UPDATE rounds SET pairs_within = 0.5"), OTHER_DIGEST),
    "tau": (sql("UPDATE rounds SET tau = 9.0"), OTHER_DIGEST),
    "largest spread": (sql("UPDATE rounds SET spread = 9.0 WHERE id = 2"), r"round 2: .* largest spread of 9\.0"),
    "commitment": (sql(f"UPDATE slots SET commitment = zeroblob(32) {OF_SLOT}"), OTHER_DIGEST),
    "sealed": (sql(f"UPDATE memberships SET sealed = zeroblob(length(sealed)) {OF_SLOT}"), NOT_RECORDED),
    "sealed cut short": (sql(f"UPDATE memberships SET sealed = x'00' {OF_SLOT}"), NOT_RECORDED),
    "what two members brought swapped": (swap("sealed"), NOT_RECORDED),
    "two members swapped": (swap("token"), NOT_RECORDED),
    "a membership moved to another round": (move_to_another_round, r"round 3: slot 3 is of nobody in the keyring"),
    "a pseudonym": (
        sql(f"UPDATE memberships SET token = zeroblob(16) {OF_SLOT}"),
        r"round 2: slot 3 is of nobody in the keyring, and was never withdrawn",
    ),
    "the epoch of a round": (
        sql("UPDATE rounds SET epoch = 0 WHERE id = 2"),
        r"round 2: ",
    ),
    "log tree": (
        sql("UPDATE log SET frontier = zeroblob(32) WHERE position = 2"),
        r"table log: leaf 2 does not continue the tree",
    ),
    # what thinning goes by, and what it leaves
    "a round that repeats nothing": (
        sql("UPDATE rounds SET repeats = 1 WHERE id = 1"),
        r"round 1: is said to repeat the clusters of the round before it, but has others",
    ),
    "a model thinned that is there": (
        sql("UPDATE models SET thinned = 1 WHERE digest = (SELECT after FROM rounds WHERE id = 2)"),
        r"model [0-9a-f]{12}: is marked as thinned, and as there",
    ),
    # the event, from which the account is computed
    "event deleted": (sql("DELETE FROM events WHERE round_id = 2"), r"round 2: its event, .* is missing"),
    **{
        f"event's {column}": (
            sql(f"UPDATE events SET {column} = {value} WHERE round_id = 2"),
            rf"round 2: its event has {column} ",
        )
        for column, value in (
            ("mode", "'calibrated'"),
            ("clip", "1.0"),
            ("tau", "1.0"),
            ("rate", "rate / 2"),
            ("weight", "weight - 1e-12"),
            ("squares", "squares * 2"),
            ("clusters", "clusters + 1"),
            ("fixed", "1"),
            ("predictable", "0"),
        )
    },
    "event's checksum": (
        sql("UPDATE events SET checksum = zeroblob(8) WHERE round_id = 2"),
        r"round 2: its event is not what was recorded: it has another checksum",
    ),
    "events of two rounds swapped": (
        sql(
            "UPDATE events SET round_id = -1 WHERE round_id = 2",
            "UPDATE events SET round_id = 2 WHERE round_id = 3",
            "UPDATE events SET round_id = 3 WHERE round_id = -1",
        ),
        r"round 2: its event is not what was recorded",
    ),
    "stored_bytes": (sql("UPDATE models SET stored_bytes = stored_bytes + 1"), r"model [0-9a-f]{12}: .*bytes"),
    "models of a round swapped": (
        sql("UPDATE rounds SET before = after, after = before WHERE id = 2"),
        r"round 2: does not start from the model of round 1",
    ),
    "model after a round is another's": (
        sql("UPDATE rounds SET after = (SELECT initial_model FROM run) WHERE id = 3"),
        r"round 3: its rows are not those",
    ),
    "initial model": (
        sql("UPDATE run SET initial_model = (SELECT after FROM rounds WHERE id = 2)"),
        r"round 1: does not start from the initial model",
    ),
    "run id": (sql("UPDATE run SET run_id = 'somebody elses'"), r"table run: "),
    "another run's id": (sql("UPDATE run SET run_id = '0123456789abcdef0123456789abcdef'"), OTHER_DIGEST),
    "layout": (sql("UPDATE run SET layout = '[]'"), r"model [0-9a-f]{12}: "),
    "k in the policy": (
        sql("""UPDATE run SET policy = replace(policy, '"k": 3', '"k": 5')"""),
        r"round 2: cluster \d has \d members; k is 5",
    ),
    "x in the policy": (
        sql("""UPDATE run SET policy = replace(policy, '"x": 2', '"x": 1')"""),
        r"policy|table run",
    ),
}


@pytest.mark.parametrize(("damage", "named"), DAMAGES.values(), ids=DAMAGES.keys())
def test_damage_is_found_and_named(run_dir: Path, damage: Damage, named: str) -> None:
    damage(run_dir)
    faults = [str(finding) for finding in fsck(run_dir) if finding.fault]
    assert any(re.match(named, fault) for fault in faults), faults


@pytest.mark.parametrize(
    "name", ["a model cut short", "the models folder gone", "run row deleted", "spread", "layout"]
)
def test_the_command_prints_the_same_faults_and_exits_1(run_dir: Path, name: str) -> None:
    damage, _ = DAMAGES[name]
    damage(run_dir)
    faults = [str(finding) for finding in fsck(run_dir) if finding.fault]
    result = disavow("fsck", run_dir)
    assert result.returncode == 1
    assert result.stderr == ""
    assert [line.removeprefix("fault: ") for line in result.stdout.splitlines()[:-1]] == faults


def test_a_clean_run_has_no_findings_and_exits_0(trained: Path) -> None:
    assert fsck(trained) == []
    result = process.disavow("fsck", trained, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout) == {"run": str(trained), "clean": True, "findings": []}


def test_findings_are_json_too(run_dir: Path) -> None:
    delete_model(run_dir)
    stray = run_dir / "models" / "stray"
    stray.touch(mode=0o600)
    result = disavow("fsck", run_dir, "--json")
    assert result.returncode == 1
    document = json.loads(result.stdout)
    assert document["clean"] is False
    assert [finding["fault"] for finding in document["findings"]] == [True, False]
    assert all(finding.keys() == {"where", "what", "fault", "spare"} for finding in document["findings"])


def test_notes_alone_exit_0(run_dir: Path) -> None:
    (run_dir / "models" / "stray").write_bytes(b"")
    result = disavow("fsck", run_dir)
    assert result.returncode == 0
    assert result.stdout.startswith("note: models/stray: ")


def test_progress_counts_up_to_all_models_and_rounds(trained: Path) -> None:
    seen: list[tuple[int, int]] = []
    fsck(trained, lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == list(range(8))  # four models, three rounds, the end
    assert {total for _, total in seen} == {7}


def test_no_run_is_no_finding_but_an_error(tmp_path: Path) -> None:
    with refuses(RunError, tmp_path):
        fsck(tmp_path)
    assert disavow("fsck", tmp_path).returncode == 2


# -- fsck changes nothing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage", [lambda run: None, delete_model, sql("DELETE FROM run")], ids=["clean", "model", "run"]
)
def test_fsck_changes_no_byte(run_dir: Path, damage: Damage) -> None:
    damage(run_dir)
    before = files_of(run_dir)
    fsck(run_dir)
    assert files_of(run_dir) == before


@pytest.mark.sqlite
def test_fsck_changes_no_byte_of_what_a_crash_left(tmp_path: Path) -> None:
    with create(tmp_path / "run", config="seed = 1\n") as ledger:
        record_next(ledger)
        # taken while the writer is alive: the round is in the write-ahead log only, as after kill -9
        crashed = Path(shutil.copytree(tmp_path / "run", tmp_path / "crashed"))
    before = files_of(crashed)
    assert len(before[f"{NAME}-wal"]) > 0
    assert [finding for finding in fsck(crashed) if finding.fault] == []
    after = files_of(crashed)
    # the -shm file is SQLite's scratch memory, rebuilt by whoever opens the file
    assert {n: d for n, d in after.items() if "-shm" not in n} == {
        n: d for n, d in before.items() if "-shm" not in n
    }
