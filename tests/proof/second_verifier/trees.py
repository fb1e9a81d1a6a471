"""Hash trees, commitments, the log and its signed heads."""

import base64
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.proof.second_verifier.keys import KEY_NAME, Key, Trusted
from tests.proof.second_verifier.reading import (
    MANY,
    InvalidError,
    Object,
    canonical,
    hashed,
    need,
    require,
    sha,
    string,
    u32,
    u64,
    unbase64,
)


def leaf_hash(data: bytes) -> bytes:
    """leaf(data)."""
    return sha(b"\x00", data)


def node(left: bytes, right: bytes) -> bytes:
    """node(left, right)."""
    return sha(b"\x01", left, right)


def root_of(hashes: Sequence[bytes]) -> bytes:
    """The root, level by level."""
    level = list(hashes)
    if not level:
        return sha(b"")
    while len(level) > 1:
        pairs = [node(level[at], level[at + 1]) for at in range(0, len(level) - 1, 2)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


def follow(value: bytes, index: int, size: int, path: Sequence[str]) -> bytes:
    """Follow a path from a leaf's hash to the root."""
    require(index < size, "no such leaf in the tree")
    siblings = [unbase64(step) for step in path]
    used, at, width = 0, index, size
    while width > 1:
        if at ^ 1 < width:
            require(used < len(siblings), "the path is too short")
            value = node(siblings[used], value) if at % 2 else node(value, siblings[used])
            used += 1
        at, width = at // 2, (width + 1) // 2
    require(used == len(siblings), "the path is too long")
    return value


def slot_commitment(run: str, number: int, salt: bytes, client: str, update: bytes) -> bytes:
    """Who was in a slot ("Commitments")."""
    return sha(b"disavow/slot/v1\0", string(run), u64(number), salt, string(client), update)


def request_commitment(run: str, salt: bytes, client: str) -> bytes:
    """Who asked ("Commitments")."""
    return sha(b"disavow/request/v1\0", string(run), salt, string(client))


def closed_records(salt: bytes, keys: Sequence[str]) -> bytes:
    """A list of records, closed ("Commitments")."""
    return sha(
        b"disavow/record list/v1\0", salt, *(u32(len(key)) + key for key in sorted(k.encode() for k in keys))
    )


def records_commitment(run: str, count: int, closed: bytes) -> bytes:
    """Which records, and how many ("Commitments")."""
    return sha(b"disavow/records/v1\0", string(run), u64(count), closed)


def rounds_commitment(salt: bytes, leaves: Sequence[int]) -> bytes:
    """Where a client took part ("Commitments")."""
    return sha(b"disavow/rounds/v1\0", salt, *(u64(leaf) for leaf in leaves))


def counted(size: int, root: bytes) -> bytes:
    """A round's value in the map: H(u32(size) ‖ root)."""
    return sha(u32(size), root)


def withdrawn_inner(salt: bytes, slot: int) -> bytes:
    """The closed part of an entry ("The map of withdrawals")."""
    return sha(b"disavow/withdrawn/v1\0", salt, u32(slot))


def withdrawn_entry(position: int, inner: bytes) -> bytes:
    """An entry of a round in the map ("The map of withdrawals")."""
    return leaf_hash(u32(position) + inner)


NOBODY = counted(0, root_of([]))


# "Version 4"


def hash_in_log(leaf: Object) -> bytes:
    """The hash of a leaf, shown or closed ("Version 4", leaves and opening the log)."""
    kind = leaf["type"]
    if kind == "closed round" or (kind == "round" and "version" in leaf):
        inner = leaf["digest"] if kind == "closed round" else sha(canonical(leaf))
        models = bytes.fromhex(leaf["before"]) + bytes.fromhex(leaf["after"])
        return leaf_hash(b"disavow/round/v4\0" + u32(leaf["number"]) + u32(leaf["attempt"]) + models + inner)
    if kind == "closed withdrawal" or (kind == "withdrawal" and "slots" in leaf):
        inner = unbase64(leaf["digest"]) if kind == "closed withdrawal" else sha(canonical(leaf))
        head = b"disavow/withdrawal/v4\0" + u32(leaf["rounds"]) + (b"\1" if rolls_back(leaf) else b"\0")
        return leaf_hash(head + inner + unbase64(leaf["slots"]))
    return leaf_hash(canonical(leaf))


def rolls_back(withdrawal: Object) -> bool:
    """Whether a verdict of a withdrawal is a rollback; of a closed one, whether it was given so."""
    if withdrawal["type"] == "closed withdrawal":
        return bool(withdrawal["b"])
    return any(request["verdict"] == "rollback" for request in withdrawal["requests"])


def items_of_log(shown: Sequence[Object]) -> int:
    """How many leaves stand in `leaves` ("The checks", 4)."""
    return sum(len(unbase64(item["rounds"])) // 64 if item["type"] == "closed rounds" else 1 for item in shown)


def opened_log(shown: Sequence[Object]) -> list[Object]:
    """Every leaf at its place ("Opening the log")."""
    models, attempts, rounds = [shown[0]["initial_model"]], Counter[int](), 0
    log: list[Object] = []
    for at, item in enumerate(shown):
        kind = item["type"]
        if kind == "closed rounds":
            require(shown[at - 1]["type"] != "closed rounds", "closed rounds behind closed rounds")
            data = unbase64(item["rounds"])
            for start in range(0, len(data), 64):
                number, after = len(models), data[start : start + 32].hex()
                attempts[number] += 1
                closed = {"type": "closed round", "number": number, "attempt": attempts[number]}
                inner = data[start + 32 : start + 64]
                log.append({**closed, "before": models[-1], "after": after, "digest": inner})
                models.append(after)
                rounds += 1
            continue
        if kind == "closed withdrawal":
            follows = at + 1 < len(shown) and shown[at + 1]["type"] == "rollback"
            log.append({**item, "rounds": rounds, "b": follows})
            continue
        log.append(item)
        if kind in ("round", "rebuilt"):
            attempts[len(models)] += 1
            models.append(item["after"])
            rounds += 1
        elif kind in ("rollback", "purge"):
            models = models[: item["to"]]
    return log


def entries_of(slots: bytes) -> list[tuple[int, bytes]]:
    """The entries of a withdrawal: places, and masked positions ("Withdrawn slots")."""
    if not slots:
        return []
    width, rest, place = slots[0], slots[1:], 0
    require(1 <= width <= 4 and bool(rest), "no such width, or no entries")
    found: list[tuple[int, bytes]] = []
    at = 0
    while at < len(rest):
        groups: list[int] = []
        while True:
            require(at < len(rest) and len(groups) < 5, "a number ends too early, or not at all")
            groups.append(rest[at])
            at += 1
            if groups[-1] < 128:
                break
        require(len(groups) == 1 or groups[-1] != 0, "a number is not written in the shortest way")
        place += sum((group % 128) << (7 * turn) for turn, group in enumerate(groups))
        found.append((place, rest[at : at + width]))
        require(len(found[-1][1]) == width, "half an entry")
        at += width
    require(len(found) <= MANY, "too many entries")
    return found


def unmasked(masked: bytes, root: bytes, place: int, index: int) -> int:
    """The position of an entry ("Withdrawn slots")."""
    mask = sha(b"disavow/position/v4\0", root, u32(place), u32(index))[: len(masked)]
    return int.from_bytes(bytes(one ^ other for one, other in zip(masked, mask, strict=True)), "big")


def covered_root(known: Mapping[int, bytes], size: int, cover: bytes) -> bytes:
    """The root over known leaves and a cover ("Cover")."""
    require(len(cover) % 32 == 0, "half a hash")
    hashes = [cover[at : at + 32] for at in range(0, len(cover), 32)]

    def root(start: int, end: int) -> bytes:
        if not any(start <= index < end for index in known):
            require(bool(hashes), "the cover is too short")
            return hashes.pop(0)
        if end - start == 1:
            return known[start]
        middle = 1
        while middle * 2 < end - start:
            middle *= 2
        left = root(start, start + middle)
        return node(left, root(start + middle, end))

    found = root(0, size) if size else sha(b"")
    require(not hashes, "the cover is too long")
    return found


def cluster_hash(cluster: Object) -> bytes:
    """The hash of a cluster leaf ("Inside a round"); its slots may be a list or joined already."""
    names = ("position", "first", "size", "weight", "spread", "slots")
    leaf = {name: cluster[name] for name in names}
    if isinstance(leaf["slots"], list):
        joined = sha(*(unbase64(slot) for slot in leaf["slots"]))
        leaf["slots"] = base64.b64encode(joined).decode()
    return leaf_hash(canonical(leaf))


# "Checkpoints"


@dataclass(frozen=True)
class Note:
    """A checkpoint that can be read; nobody has looked at its signatures."""

    text: bytes
    origin: str
    size: int
    root: bytes
    signatures: list[tuple[str, bytes]]

    def require_signed(self, key: Key) -> None:
        """Steps 4 and 5 for one key."""
        mine = [data[4:] for name, data in self.signatures if (name, data[:4]) == (key.name, key.short)]
        require(bool(mine), "the key did not sign it")
        require(all(key.holds(signature, self.text) for signature in mine), "a signature does not hold")

    def is_signed_by(self, keys: Sequence[Trusted]) -> bool:
        """Whether one of several keys opens it."""
        for trusted in keys:
            try:
                self.require_signed(trusted.key)
            except InvalidError:
                continue
            return True
        return False


def parse_note(note: str, cosigned: bool = False) -> Note:
    """Steps 1 to 4 of opening a note, as far as they do not need a key."""
    need(len(note) <= 16_384, "the note is too long")
    need(not any("\ud800" <= character <= "\udfff" for character in note), "an unpaired surrogate")
    split = note.rfind("\n\n")
    need(split >= 0, "no empty line")
    head, behind = note[: split + 1], note[split + 2 :]
    lines = head.split("\n")[:-1]
    need(len(lines) == 3 and behind.endswith("\n"), "not three lines and signatures")
    origin, size, root = lines
    need(origin != "", "no origin")
    need(re.fullmatch(r"0|[1-9][0-9]{0,14}", size) is not None, "no size")
    hashed(root)
    signed = behind.split("\n")[:-1]
    need(cosigned or len(signed) == 1, "more than one signature")
    return Note(head.encode(), origin, int(size), unbase64(root), [parse_line(line) for line in signed])


def parse_line(line: str) -> tuple[str, bytes]:
    """A signature line: the name, and the bytes behind it."""
    need(line.startswith("\u2014 "), "no signature line")
    name, space, rest = line[2:].partition(" ")
    need(space == " " and KEY_NAME.fullmatch(name) is not None, "no name of a key")
    data = unbase64(rest)
    need(len(data) > 4, "no signature")
    return name, data


# Shapes of "The log", "The proof file", "The opening", "The receipt"
