"""Merkle trees as RFC 6962 (section 2.1) has them: a root over any number of leaves, and paths to it."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Mapping, Sequence

HASH_BYTES = 32


def leaf_hash(data: bytes) -> bytes:
    """Hash a leaf: SHA-256(0x00 ‖ data).

    Args:
        data: What the leaf holds.

    """
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Hash an inner node: SHA-256(0x01 ‖ left ‖ right).

    Args:
        left: The hash on its left.
        right: The hash on its right.

    """
    return hashlib.sha256(b"\x01" + left + right).digest()


def root_of(hashes: Sequence[bytes]) -> bytes:
    """Compute the root of a tree; that of no leaves is SHA-256 of nothing.

    Args:
        hashes: The leaf hashes.

    """
    if not hashes:
        return hashlib.sha256(b"").digest()
    level = list(hashes)
    while len(level) > 1:
        paired = [node_hash(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        # an odd one out moves up as it is: the same tree as splitting at the largest power of two
        level = paired + level[len(paired) * 2 :]
    return level[0]


def path_to(hashes: Sequence[bytes], index: int) -> list[bytes]:
    """Compute the path that leads from one leaf to the root, the nearest hash first.

    Args:
        hashes: The leaf hashes.
        index: Which leaf.

    """
    path = []
    level, at = list(hashes), index
    while len(level) > 1:
        if at ^ 1 < len(level):
            path.append(level[at ^ 1])
        paired = [node_hash(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level, at = paired + level[len(paired) * 2 :], at // 2
    return path


def consistency_of(hashes: Sequence[bytes], old: int) -> list[bytes]:
    """Compute the proof of RFC 6962 (2.1.2) that a log only grew since it had so many leaves.

    >>> leaves = [leaf_hash(bytes([i])) for i in range(3)]
    >>> consistency_of(leaves, 2) == [leaves[2]]
    True

    Args:
        hashes: The leaf hashes of the log as it is now.
        old: How many leaves it had: at least one, and no more than it has.

    """
    return [root_of(hashes[start:end]) for start, end in consistency_ranges(old, len(hashes))]


def consistency_ranges(old: int, new: int) -> list[tuple[int, int]]:
    """Tell of which leaves, from the first up to the last exclusively, a consistency proof has the roots.

    Args:
        old: How many leaves the log had: at least one, and no more than it has.
        new: How many it has.

    """

    def visit(start: int, end: int, old: int, complete: bool) -> list[tuple[int, int]]:
        size = end - start
        if old == size:
            return [] if complete else [(start, end)]
        split = _split(size)
        if old <= split:
            return [*visit(start, start + split, old, complete), (start + split, end)]
        return [*visit(start + split, end, old - split, False), (start, start + split)]

    if not 1 <= old <= new:
        raise ValueError(f"a log of {new} leaves never had {old}, or that was none")
    return visit(0, new, old, True)


def is_consistent(old: int, old_root: bytes, new: int, new_root: bytes, proof: Sequence[bytes]) -> bool:
    """Say whether a proof shows that a log only grew (RFC 9162, 2.1.4.2).

    >>> leaves = [leaf_hash(bytes([i])) for i in range(3)]
    >>> is_consistent(2, root_of(leaves[:2]), 3, root_of(leaves), consistency_of(leaves, 2))
    True

    Args:
        old: How many leaves the log had; from none, everything only grew, and the proof is empty.
        old_root: Their root.
        new: How many leaves it has.
        new_root: Their root.
        proof: From `consistency_of`.

    """
    if old > new or (old == 0 and old_root != root_of([])):
        return False
    if old in (0, new):
        return not proof and (old != new or old_root == new_root)
    path = [old_root, *proof] if old & (old - 1) == 0 else list(proof)
    if not path:
        return False
    left, right = old - 1, new - 1
    while left & 1:
        left, right = left >> 1, right >> 1
    old_found = new_found = path[0]
    for step in path[1:]:
        if right == 0:
            return False
        if left & 1 or left == right:
            old_found, new_found = node_hash(step, old_found), node_hash(step, new_found)
            while left and not left & 1:
                left, right = left >> 1, right >> 1
        else:
            new_found = node_hash(new_found, step)
        left, right = left >> 1, right >> 1
    return right == 0 and (old_found, new_found) == (old_root, new_root)


def root_by_path(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes:
    """Compute the root to which a path leads.

    Args:
        leaf: The leaf hash to start from.
        index: Which leaf it is.
        size: How many leaves the tree has.
        path: From `path_to`.

    Raises:
        ValueError: There is no such leaf, or no path of it has that length.

    """
    if not 0 <= index < size:
        raise ValueError(f"there is no leaf {index} among {size}")
    steps, value, at, width = iter(path), leaf, index, size
    while width > 1:
        if at ^ 1 < width:
            sibling = next(steps, None)
            if sibling is None:
                raise ValueError("the path is too short")
            value = node_hash(sibling, value) if at & 1 else node_hash(value, sibling)
        at, width = at // 2, (width + 1) // 2
    if next(steps, None) is not None:
        raise ValueError("the path is too long")
    return value


def cover_of(hashes: Sequence[bytes], shown: Sequence[int]) -> list[bytes]:
    """Compute the roots of the largest subtrees that hold none of the leaves shown, from left to right.

    Args:
        hashes: The leaf hashes.
        shown: Which of them are shown, ascending.

    """
    found: list[bytes] = []

    def visit(start: int, end: int, low: int, high: int) -> None:
        if low == high:
            found.append(root_of(hashes[start:end]))
        elif end - start > 1:
            middle = start + _split(end - start)
            between = bisect_left(shown, middle, low, high)
            visit(start, middle, low, between)
            visit(middle, end, between, high)

    if hashes:
        visit(0, len(hashes), 0, len(shown))
    return found


def root_by_cover(shown: Mapping[int, bytes], size: int, cover: Sequence[bytes]) -> bytes:
    """Compute the root of a tree from some of its leaves and the roots of the subtrees beside them.

    Args:
        shown: The hashes of the leaves shown, by their numbers.
        size: How many leaves the tree has.
        cover: From `cover_of`.

    Raises:
        ValueError: There is no such leaf, or no cover of these leaves has that length.

    """
    positions = sorted(shown)
    if positions and not 0 <= positions[0] <= positions[-1] < size:
        raise ValueError(f"there is no such leaf among {size}")
    rest = iter(cover)

    def visit(start: int, end: int, low: int, high: int) -> bytes:
        if low == high:
            found = next(rest, None)
            if found is None:
                raise ValueError("a subtree is left out")
            return found
        if end - start == 1:
            return shown[start]
        middle = start + _split(end - start)
        between = bisect_left(positions, middle, low, high)
        left = visit(start, middle, low, between)
        return node_hash(left, visit(middle, end, between, high))

    root = visit(0, size, 0, len(positions)) if size else root_of([])
    if next(rest, None) is not None:
        raise ValueError("there are more subtrees than the tree has")
    return root


def _split(size: int) -> int:
    """The largest power of two below a size."""
    return 1 << ((size - 1).bit_length() - 1)


def appended(frontier: Sequence[bytes], size: int, leaf: bytes) -> list[bytes]:
    """Append a leaf to a tree of which only its perfect subtrees are kept, the largest first.

    >>> one, two = leaf_hash(b"1"), leaf_hash(b"2")
    >>> appended(appended([], 0, one), 1, two) == [node_hash(one, two)]
    True

    Args:
        frontier: The roots of the perfect subtrees.
        size: How many leaves the tree has so far.
        leaf: The hash of the new leaf.

    Returns:
        The same of the larger tree.

    """
    kept = [*frontier, leaf]
    while size & 1:
        right = kept.pop()
        kept[-1] = node_hash(kept[-1], right)
        size >>= 1
    return kept


def root_of_frontier(frontier: Sequence[bytes]) -> bytes:
    """Compute the root of a tree from the roots of its perfect subtrees, the largest first.

    Args:
        frontier: From `appended`.

    """
    if not frontier:
        return root_of([])
    value = frontier[-1]
    for left in reversed(frontier[:-1]):
        value = node_hash(left, value)
    return value


class Prefixes:
    """The roots of all beginnings of a list of leaves, at the cost of a path each."""

    def __init__(self, hashes: Sequence[bytes]) -> None:
        self._size = len(hashes)
        self._levels = [list(hashes)]
        """Roots of perfect subtrees, from the left, level by level."""
        while len(below := self._levels[-1]) > 1:
            self._levels.append([node_hash(below[i], below[i + 1]) for i in range(0, len(below) - 1, 2)])

    def root(self, size: int) -> bytes | None:
        """Compute the root of the first leaves; None if there are fewer.

        Args:
            size: How many leaves.

        """
        if size > self._size:
            return None
        value = None
        for height, level in enumerate(self._levels):
            if size >> height & 1:
                whole = level[(size >> height) - 1]
                value = whole if value is None else node_hash(whole, value)
        return root_of([]) if value is None else value


class Changing:
    """The root of a tree whose leaves change, and to which leaves are added, at the cost of a path each."""

    def __init__(self) -> None:
        self._levels: list[list[bytes]] = [[]]

    @property
    def size(self) -> int:
        """How many leaves there are."""
        return len(self._levels[0])

    @property
    def root(self) -> bytes:
        """The root of the leaves as they are."""
        return self._levels[-1][0] if self.size else root_of([])

    def put(self, index: int, leaf: bytes) -> None:
        """Change a leaf hash, or append one at the end.

        Args:
            index: Which leaf.
            leaf: Its new hash.

        """
        value, at, height = leaf, index, 0
        while True:
            level = self._levels[height]
            level[at : at + 1] = [value]
            if len(level) == 1:
                return
            at, height = at // 2, height + 1
            pair = level[2 * at : 2 * at + 2]
            value = node_hash(*pair) if len(pair) == 2 else pair[0]  # noqa: PLR2004
            if height == len(self._levels):
                self._levels.append([])


class Growing:
    """The root of a tree to which leaves are added, at the cost of a path each."""

    def __init__(self) -> None:
        self.size = 0
        self._whole: list[bytes] = []
        """Roots of perfect subtrees, the largest first: one for each bit of the size."""

    def add(self, leaf: bytes) -> None:
        """Append a leaf hash.

        Args:
            leaf: The hash.

        """
        value, size = leaf, self.size
        while size & 1:
            value, size = node_hash(self._whole.pop(), value), size >> 1
        self._whole.append(value)
        self.size += 1

    @property
    def root(self) -> bytes:
        """The root of the leaves so far."""
        if not self._whole:
            return root_of([])
        value = self._whole[-1]
        for whole in reversed(self._whole[:-1]):
            value = node_hash(whole, value)
        return value
