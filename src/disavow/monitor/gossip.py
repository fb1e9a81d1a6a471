"""Compare the heads that several clients hold: can all of them be beginnings of one log?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from disavow.monitor.heads import HeldHead, Subtree
from disavow.monitor.sources import LogSource, RefusesProof
from disavow.proof.merkle import is_consistent, node_hash
from disavow.proof.notes import Checkpoint


@dataclass(frozen=True)
class Conflict:
    """Two heads that cannot both be beginnings of one log; or a log that lacks leaves which a head has.

    Args:
        one: A head.
        other: The other head; the log's own, where it is compared with the log.
        files: The files that hold the first head, or show what it differs in.
        other_files: The same of the other; none where it is the log's.
        where: In what they differ.
        shrunk: Whether the log has fewer leaves than the head.

    """

    one: Checkpoint
    other: Checkpoint
    files: tuple[Path, ...]
    other_files: tuple[Path, ...]
    where: str
    shrunk: bool = False


@dataclass
class Comparison:
    """What comparing the heads of one log came to.

    Args:
        origin: The log.
        heads: The different heads, each with the files that hold it.
        conflicts: What cannot be.
        compared: The heads that something ties to another head, or to the log.

    """

    origin: str
    heads: dict[Checkpoint, list[Path]]
    conflicts: list[Conflict] = field(default_factory=list)
    compared: set[Checkpoint] = field(default_factory=set)

    @property
    def open(self) -> list[Checkpoint]:
        """The heads that nothing ties to another one."""
        return [head for head in self.heads if head not in self.compared]


def compare(
    held: Iterable[HeldHead], log: LogSource | None = None, newest: Checkpoint | None = None
) -> list[Comparison]:
    """Compare heads, log by log.

    Args:
        held: The heads, from `read_held`.
        log: The log as the server gives it out now, which is asked how each head goes on to its newest.
        newest: Its newest head, checked; only with `log`.

    Returns:
        What it came to, for each log.

    """
    by_origin: defaultdict[str, list[HeldHead]] = defaultdict(list)
    for each in held:
        by_origin[each.head.origin].append(each)
    found = []
    for origin, some in sorted(by_origin.items()):
        heads: defaultdict[Checkpoint, list[Path]] = defaultdict(list)
        for each in some:
            heads[each.head].append(each.file)
        comparison = Comparison(origin, dict(sorted(heads.items(), key=lambda item: (item[0].size, item[0].root))))
        _compare_sizes(comparison)
        _compare_subtrees(comparison, some)
        if log is not None and newest is not None and newest.origin == origin:
            _compare_with_log(comparison, log, newest)
        found.append(comparison)
    return found


def _compare_sizes(found: Comparison) -> None:
    """Heads of one size have one root."""
    by_size: dict[int, Checkpoint] = {}
    for head, files in found.heads.items():
        if len(files) > 1:
            found.compared.add(head)
        first = by_size.setdefault(head.size, head)
        if first != head:
            where = f"both have {head.size} leaves, and other roots"
            found.conflicts.append(Conflict(first, head, tuple(found.heads[first]), tuple(files), where))
            found.compared |= {first, head}


@dataclass(frozen=True)
class _Known:
    """The hash of a subtree, and who shows it."""

    value: bytes
    by: tuple[HeldHead, ...]


def _compare_subtrees(found: Comparison, held: Sequence[HeldHead]) -> None:
    """A subtree has one hash, whoever shows it; and a root follows from its subtrees."""
    known: dict[Subtree, _Known] = {}
    clashes: dict[tuple[Checkpoint, Checkpoint], tuple[Subtree, HeldHead, HeldHead]] = {}
    for each in held:
        for subtree, value in each.subtrees.items():
            first = known.setdefault(subtree, _Known(value, (each,)))
            other = first.by[0]
            if other.head == each.head:
                continue
            found.compared |= {other.head, each.head}
            if first.value != value:
                pair = (other.head, each.head)
                _note(clashes, pair, (subtree, other, each))
    said = {frozenset((each.one, each.other)) for each in found.conflicts}
    for pair, (subtree, one, another) in clashes.items():
        if frozenset(pair) not in said:
            where = f"they differ in {_in_words(subtree)}"
            found.conflicts.append(Conflict(*pair, (one.file,), (another.file,), where))
            said.add(frozenset(pair))
    if not found.conflicts:  # what follows from subtrees that contradict each other says nothing
        _compare_roots(found, _joined(known))


def _note(
    clashes: dict[tuple[Checkpoint, Checkpoint], tuple[Subtree, HeldHead, HeldHead]],
    pair: tuple[Checkpoint, Checkpoint],
    clash: tuple[Subtree, HeldHead, HeldHead],
) -> None:
    """Of each pair, keep the first subtree in which they differ, and of those that begin there the smallest."""
    if pair not in clashes or _begins(clash[0]) < _begins(clashes[pair][0]):
        clashes[pair] = clash


def _joined(known: dict[Subtree, _Known]) -> dict[Subtree, _Known]:
    """With all subtrees that follow from two smaller ones."""
    found = dict(known)
    waiting = sorted(found)
    while waiting:
        height, at = waiting.pop()
        above, left, right = (height + 1, at // 2), (height, at & ~1), (height, at | 1)
        if above not in found and left in found and right in found:
            by = tuple(dict.fromkeys(found[left].by + found[right].by))
            found[above] = _Known(node_hash(found[left].value, found[right].value), by)
            waiting.append(above)
    return found


def _compare_roots(found: Comparison, known: dict[Subtree, _Known]) -> None:
    """The root of a head is the one that follows from whole subtrees, where all of them are known."""
    for head, files in found.heads.items():
        parts = [known.get(subtree) for subtree in _parts(head.size)]
        complete = [part for part in parts if part is not None]
        if not complete or len(complete) < len(parts):
            continue
        value = complete[-1].value
        for part in reversed(complete[:-1]):
            value = node_hash(part.value, value)
        others = [each for part in complete for each in part.by if each.head != head]
        if not others:
            continue
        found.compared |= {head, *(each.head for each in others)}
        if value != head.root:
            by = tuple(dict.fromkeys(each.file for each in others))
            where = f"its first {head.size} leaves have another root there"
            found.conflicts.append(Conflict(head, others[0].head, tuple(files), by, where))


def _parts(size: int) -> list[Subtree]:
    """The whole subtrees that a log of so many leaves is made of, from left to right."""
    found, start = [], 0
    for height in range(size.bit_length() - 1, -1, -1):
        if size >> height & 1:
            found.append((height, start >> height))
            start += 1 << height
    return found


def _begins(subtree: Subtree) -> tuple[int, int]:
    """The first leaf of a subtree, and its height."""
    height, at = subtree
    return at << height, height


def _in_words(subtree: Subtree) -> str:
    height, at = subtree
    return f"leaf {at}" if height == 0 else f"leaves {at << height} to {(at + 1 << height) - 1}"


def _compare_with_log(found: Comparison, log: LogSource, newest: Checkpoint) -> None:
    """Each head is a beginning of the log as it is now."""
    for head, files in found.heads.items():
        found.compared.add(head)
        if head.size > newest.size:
            where = f"the log has {newest.size} leaves now, and had {head.size}"
            found.conflicts.append(Conflict(head, newest, tuple(files), (), where, shrunk=True))
        elif not extends(log, head, newest):
            where = f"the log does not prove that its {newest.size} leaves go on from these {head.size}"
            found.conflicts.append(Conflict(head, newest, tuple(files), (), where))


def extends(log: LogSource, old: Checkpoint, new: Checkpoint) -> bool:
    """Ask a log to prove that one of its heads goes on from another, which is no larger.

    Args:
        log: The log.
        old: The smaller head.
        new: The larger one.

    Raises:
        LogUnreachable: It does not answer.

    """
    if old.size in (0, new.size):
        return is_consistent(old.size, old.root, new.size, new.root, [])
    try:
        proof = log.consistency(old.size, new.size)
    except RefusesProof:
        return False
    return is_consistent(old.size, old.root, new.size, new.root, proof)
