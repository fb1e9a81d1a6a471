"""Trees and paths are those of RFC 6962, whatever their size, and no other path leads to a root."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disavow.proof.merkle import (
    HASH_BYTES,
    Changing,
    Growing,
    Prefixes,
    consistency_of,
    cover_of,
    is_consistent,
    leaf_hash,
    node_hash,
    path_to,
    root_by_cover,
    root_by_path,
    root_of,
)
from tests.rounds.builders import PROPERTY

LARGEST = 40

# the eight entries, and the roots over the first n of them, of the test vectors of Certificate Transparency
ENTRIES = [
    "",
    "00",
    "10",
    "2021",
    "3031",
    "40414243",
    "5051525354555657",
    "606162636465666768696a6b6c6d6e6f",
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def defined(hashes: Sequence[bytes]) -> bytes:
    """MTH of RFC 6962, section 2.1, word for word, over leaf hashes."""
    if not hashes:
        return hashlib.sha256(b"").digest()
    if len(hashes) == 1:
        return hashes[0]
    k = split(len(hashes))
    return hashlib.sha256(b"\x01" + defined(hashes[:k]) + defined(hashes[k:])).digest()


def defined_path(hashes: Sequence[bytes], index: int) -> list[bytes]:
    """PATH of RFC 6962, section 2.1.1, word for word."""
    if len(hashes) == 1:
        return []
    k = split(len(hashes))
    if index < k:
        return [*defined_path(hashes[:k], index), defined(hashes[k:])]
    return [*defined_path(hashes[k:], index - k), defined(hashes[:k])]


def split(size: int) -> int:
    """The largest power of two below a size."""
    return 1 << ((size - 1).bit_length() - 1)


def leaves(count: int) -> list[bytes]:
    return [leaf_hash(b"%d" % number) for number in range(count)]


def every_leaf() -> list[tuple[int, int]]:
    return [(size, index) for size in range(1, LARGEST + 1) for index in range(size)]


def test_the_roots_are_those_of_the_known_vectors() -> None:
    hashes = [leaf_hash(bytes.fromhex(entry)) for entry in ENTRIES]
    assert [root_of(hashes[:size]).hex() for size in range(len(ENTRIES) + 1)] == ROOTS


def test_leaves_and_nodes_are_hashed_apart() -> None:
    one, two = leaf_hash(b"one"), leaf_hash(b"two")
    assert leaf_hash(b"data") == hashlib.sha256(b"\x00data").digest()
    assert node_hash(one, two) == hashlib.sha256(b"\x01" + one + two).digest()
    assert leaf_hash(one + two) != node_hash(one, two)
    assert node_hash(one, two) != node_hash(two, one)
    assert {len(one), len(node_hash(one, two)), len(root_of([]))} == {HASH_BYTES}


@pytest.mark.parametrize("size", range(LARGEST + 1))
def test_a_root_is_that_of_the_definition(size: int) -> None:
    assert root_of(leaves(size)) == defined(leaves(size))


def test_roots_of_different_sizes_are_different() -> None:
    assert len({root_of(leaves(size)) for size in range(LARGEST + 1)}) == LARGEST + 1
    # the same leaf again is another tree too: nothing is filled up
    assert len({root_of([leaf_hash(b"")] * size) for size in range(LARGEST + 1)}) == LARGEST + 1


def test_every_path_is_that_of_the_definition_and_leads_to_the_root() -> None:
    for size, index in every_leaf():
        hashes = leaves(size)
        path = path_to(hashes, index)
        assert path == defined_path(hashes, index), (size, index)
        assert root_by_path(hashes[index], index, size, path) == root_of(hashes), (size, index)


def test_a_path_leads_elsewhere_from_another_index_or_another_leaf() -> None:
    for size, index in every_leaf():
        hashes = leaves(size)
        path, root = path_to(hashes, index), root_of(hashes)
        for other in range(size):
            if other == index:
                continue
            assert root_by_path(hashes[other], index, size, path) != root
            try:
                assert root_by_path(hashes[index], other, size, path) != root, (size, index, other)
            except ValueError:
                assert len(path_to(hashes, other)) != len(path)


def test_a_path_of_another_length_is_refused() -> None:
    for size, index in every_leaf():
        hashes = leaves(size)
        path = path_to(hashes, index)
        with pytest.raises(ValueError, match="too long"):
            root_by_path(hashes[index], index, size, [*path, bytes(32)])
        if path:
            with pytest.raises(ValueError, match="too short"):
                root_by_path(hashes[index], index, size, path[:-1])


def test_a_changed_step_leads_elsewhere() -> None:
    for size, index in every_leaf():
        hashes = leaves(size)
        path, root = path_to(hashes, index), root_of(hashes)
        for step in range(len(path)):
            changed = [*path[:step], bytes([path[step][0] ^ 1]) + path[step][1:], *path[step + 1 :]]
            assert root_by_path(hashes[index], index, size, changed) != root


@pytest.mark.parametrize(("index", "size"), [(0, 0), (1, 1), (5, 5), (6, 5), (-1, 5), (0, -1)])
def test_a_leaf_outside_the_tree_is_refused(index: int, size: int) -> None:
    with pytest.raises(ValueError, match=f"there is no leaf {index} among {size}"):
        root_by_path(leaf_hash(b""), index, size, [])


def test_the_size_that_is_claimed_decides_how_long_a_path_is() -> None:
    hashes = leaves(5)
    path = path_to(hashes, 4)  # the odd one out: one step
    assert len(path) == 1
    with pytest.raises(ValueError, match="too short"):
        root_by_path(hashes[4], 4, 6, path)
    with pytest.raises(ValueError, match="too short"):
        root_by_path(hashes[4], 4, 8, path)


def test_a_giant_tree_costs_only_the_length_of_its_path() -> None:
    with pytest.raises(ValueError, match="too short"):
        root_by_path(leaf_hash(b""), 2**31, 2**32 - 1, [])
    path = [bytes(32)] * 32
    assert len(root_by_path(leaf_hash(b""), 2**31, 2**32, path)) == HASH_BYTES


def test_every_beginning_of_a_list_has_its_root_and_no_other_has_one() -> None:
    for size in range(LARGEST):
        hashes = [leaf_hash(bytes([number])) for number in range(size)]
        roots = Prefixes(hashes)
        assert [roots.root(at) for at in range(size + 1)] == [root_of(hashes[:at]) for at in range(size + 1)]
        assert roots.root(size + 1) is None


def test_a_growing_tree_has_the_root_of_its_leaves_at_every_size() -> None:
    growing = Growing()
    for size in range(LARGEST + 1):
        assert (growing.size, growing.root) == (size, defined(leaves(size)))
        growing.add(leaf_hash(b"%d" % size))


@given(st.lists(st.tuples(st.integers(0, 40), st.binary(min_size=32, max_size=32)), max_size=80))
def test_a_tree_whose_leaves_change_has_the_root_of_the_leaves_as_they_are(
    changes: list[tuple[int, bytes]],
) -> None:
    tree, leaves = Changing(), list[bytes]()
    for index, leaf in changes:
        at = min(index, len(leaves))
        leaves[at : at + 1] = [leaf]
        tree.put(at, leaf)
        assert (tree.size, tree.root) == (len(leaves), root_of(leaves))


@PROPERTY
@given(st.integers(0, LARGEST), st.data())
def test_a_cover_and_the_leaves_shown_lead_to_the_root_and_no_other_does(size: int, data: st.DataObject) -> None:
    hashes = [leaf_hash(bytes([number])) for number in range(size)]
    shown = sorted(data.draw(st.sets(st.integers(0, size - 1)))) if size else []
    cover = cover_of(hashes, shown)
    known = {at: hashes[at] for at in shown}
    assert root_by_cover(known, size, cover) == root_of(hashes)
    assert len(cover) + len(shown) <= max(size, 1)
    for wrong in ([*cover, leaf_hash(b"x")], cover[1:] if cover else None):
        if wrong is not None:
            with pytest.raises(ValueError, match="subtree"):
                root_by_cover(known, size, wrong)
    for at in range(len(cover)):
        other = [*cover[:at], leaf_hash(b"x"), *cover[at + 1 :]]
        assert root_by_cover(known, size, other) != root_of(hashes)


def test_a_leaf_beyond_the_tree_has_no_cover() -> None:
    with pytest.raises(ValueError, match="no such leaf"):
        root_by_cover({3: leaf_hash(b"")}, 3, [])


def test_a_consistency_proof_shows_that_a_log_only_grew_and_nothing_else_does() -> None:
    leaves = [leaf_hash(bytes([number])) for number in range(34)]
    others = [*leaves[:10], leaf_hash(b"another"), *leaves[11:]]
    for new in range(1, len(leaves) + 1):
        for old in range(1, new + 1):
            proof = consistency_of(leaves[:new], old)
            before, after = root_of(leaves[:old]), root_of(leaves[:new])
            assert is_consistent(old, before, new, after, proof)
            assert not is_consistent(old, before, new, after, [*proof, before])
            if proof:
                assert not is_consistent(old, before, new, after, proof[:-1])
                assert not is_consistent(old, before, new, after, [bytes(32), *proof[1:]])
            if old > 10:  # a rewritten leaf among the first
                assert not is_consistent(old, root_of(others[:old]), new, after, proof)
                forged = consistency_of(others[:new], old)
                assert not is_consistent(old, before, new, root_of(others[:new]), forged)
            if old < new:
                assert not is_consistent(new, after, old, before, proof)
        assert is_consistent(0, root_of([]), new, root_of(leaves[:new]), [])
        assert not is_consistent(0, root_of([]), new, root_of(leaves[:new]), [bytes(32)])
