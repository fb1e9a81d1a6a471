"""Heads that several clients hold are compared: what cannot be of one log is named, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from disavow.errors import Unreadable
from disavow.monitor.gossip import Comparison, compare
from disavow.monitor.heads import HeldHead, read_held
from disavow.proof.notes import KeyIndex, open_with_any
from tests.monitor.logs import TRUSTED, WorldLog, forked, write_receipts
from tests.proof.made_proofs import STRANGER, client
from tests.proof.vectors.valid import LEAVER
from tests.proof.world import World


def read(*paths: Path) -> list[HeldHead]:
    held, refused = read_held(paths, TRUSTED)
    assert refused == []
    return held


def compared(*paths: Path, log: WorldLog | None = None) -> Comparison:
    newest = None if log is None else open_with_any(log.head(), KeyIndex.of(TRUSTED), "head")
    [found] = compare(read(*paths), log, newest)
    return found


def write_head(path: Path, world: World, size: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(world.checkpoint(size))
    return path


def test_heads_of_one_size_with_two_roots_are_a_split_view(tmp_path: Path) -> None:
    one, other = forked(4)
    first, second = write_head(tmp_path / "a", one, 6), write_head(tmp_path / "b", other, 6)
    [conflict] = compared(first, second, write_head(tmp_path / "c", one, 6)).conflicts
    assert set(conflict.files) | set(conflict.other_files) == {first, second, tmp_path / "c"}


@pytest.mark.parametrize("at", range(1, 9))
def test_receipts_of_rounds_before_and_behind_a_fork_name_the_leaf_in_which_they_differ(
    tmp_path: Path, at: int
) -> None:
    one, other = forked(at)
    first = write_receipts(tmp_path / "first", one, range(1, 9))
    second = write_receipts(tmp_path / "second", other, [at])
    found = compared(first, second)
    assert found.conflicts
    assert any(conflict.where == f"they differ in leaf {at}" for conflict in found.conflicts) or any(
        "both have" in conflict.where for conflict in found.conflicts
    )


def test_two_clients_that_were_never_in_one_round_find_a_fork_between_their_rounds(tmp_path: Path) -> None:
    one, other = forked(5)
    first, second = write_receipts(tmp_path / "a", one, [7]), write_receipts(tmp_path / "b", other, [6])
    [conflict] = compared(first, second).conflicts
    assert conflict.where == "they differ in leaves 4 to 5"
    assert (conflict.files, conflict.other_files) == ((first / "receipt-7.json",), (second / "receipt-6.json",))


def test_a_root_that_follows_from_what_others_show_is_compared(tmp_path: Path) -> None:
    one, other = forked(5)
    proof = tmp_path / "proof.json"
    proof.write_bytes(one.leave(LEAVER).proof(LEAVER).proof)
    for size in (6, 7, 8):
        [conflict] = compared(proof, write_head(tmp_path / "b", other, size)).conflicts
        assert conflict.where == f"its first {size} leaves have another root there"
    assert not compared(proof, write_head(tmp_path / "b", other, 5)).conflicts


def test_heads_of_one_log_do_not_contradict_each_other(tmp_path: Path) -> None:
    world, _ = forked(4)
    held = write_receipts(tmp_path / "a", world, range(1, 9))
    write_receipts(tmp_path / "b", world, range(1, 7), size=9)
    (held / "statement.json").write_bytes(world.serving())
    found = compared(held, tmp_path / "b", write_head(tmp_path / "head", world, 3))
    assert found.conflicts == []
    assert len(found.compared) >= 8


def test_what_nothing_ties_to_another_head_is_said_to_be_open(tmp_path: Path) -> None:
    world, other = forked(4)
    found = compared(write_head(tmp_path / "a", world, 5), write_head(tmp_path / "b", other, 7))
    assert found.conflicts == []
    assert found.compared == set()
    assert len(found.open) == 2


def test_the_log_is_asked_for_every_head(tmp_path: Path) -> None:
    world, other = forked(4)
    for size in range(1, 10):
        write_head(tmp_path / "good" / f"{size}", world, size)
    assert compared(tmp_path / "good", log=WorldLog(world)).conflicts == []
    found = compared(tmp_path / "good", log=WorldLog(other))
    assert sorted(conflict.one.size for conflict in found.conflicts) == list(range(5, 10))
    short = compared(tmp_path / "good", log=WorldLog(world, 6))
    assert sorted(conflict.one.size for conflict in short.conflicts) == [7, 8, 9]
    assert all(conflict.shrunk for conflict in short.conflicts)


def test_a_file_that_nobody_signed_accuses_nobody(tmp_path: Path) -> None:
    one, other = forked(4)
    (tmp_path / "forged").write_text(other.checkpoint(6, STRANGER))
    good = write_head(tmp_path / "good", one, 6)
    held, refused = read_held([tmp_path], TRUSTED)
    assert [each.file for each in held] == [good]
    assert [each.file for each in refused] == [tmp_path / "forged"]


def test_other_files_of_a_folder_are_passed_over_and_refused_where_they_are_named(tmp_path: Path) -> None:
    write_head(tmp_path / "head", forked(4)[0], 6)
    (tmp_path / "notes.txt").write_text("nothing")
    assert len(read(tmp_path)) == 1
    with pytest.raises(Unreadable):
        read(tmp_path / "notes.txt")
    with pytest.raises(Unreadable):
        read(tmp_path / "absent")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_only_two_histories_contradict_each_other_and_behind_the_fork_the_log_always_tells(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("heads")
    at = data.draw(st.integers(1, 8))
    one, other = forked(at)
    sizes = data.draw(st.lists(st.tuples(st.booleans(), st.integers(1, 9)), min_size=2, max_size=6))
    different = False
    for number, (honest, size) in enumerate(sizes):
        world = one if honest else other
        if data.draw(st.booleans()) and size > 1:
            leaf = data.draw(st.integers(1, size - 1))
            (folder / f"{number}").write_bytes(world.receipt(client(0), leaf, size=size))
        else:
            write_head(folder / f"{number}", world, size)
        different |= not honest and size > at
    if not different:
        assert compared(folder).conflicts == []
    assert bool(compared(folder, log=WorldLog(one)).conflicts) == different
