"""A second verifier of proofs, written from docs/proof-format.md alone. It shares no code with disavow."""

import base64
import binascii
import calendar
import decimal as decimals
import hashlib
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NoReturn

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

MIB = 1_048_576
MANY = 1_000_000
WHOLE = 4_294_967_295
ERASURES = {"urn:disavow:proof-of-deniability:v3": 3, "urn:disavow:proof-of-deniability:v4": 4}
WHAT_IFS = {"urn:disavow:what-if:v3": 3, "urn:disavow:what-if:v4": 4}
PAYLOAD_TYPE = "application/vnd.in-toto+json"
PACKED_TYPE = "application/vnd.disavow.in-toto+zlib"
LN_10 = 2.302585092994046
LARGEST = 1.7976931348623157e308

Object = dict[str, Any]
Kind = Callable[[Any], None]


class InvalidError(Exception):
    """It can be read and does not hold ("Notation")."""


class AnotherModelError(Exception):
    """It holds, for another model than the one given ("The result")."""


class UnreadableError(Exception):
    """It cannot even be read ("Notation")."""


def require(holds: bool, what: str) -> None:
    """Fail a check as invalid."""
    if not holds:
        raise InvalidError(what)


def need(readable: bool, what: str) -> None:
    """Fail as unreadable."""
    if not readable:
        raise UnreadableError(what)


# "Notation", "Canonical JSON"


def sha(*parts: bytes) -> bytes:
    """H over joined parts ("Notation")."""
    return hashlib.sha256(b"".join(parts)).digest()


def u32(number: int) -> bytes:
    """Four bytes, big-endian ("Notation")."""
    return number.to_bytes(4, "big")


def u64(number: int) -> bytes:
    """Eight bytes, big-endian ("Notation")."""
    return number.to_bytes(8, "big")


def string(text: str) -> bytes:
    """str(t) ("Notation")."""
    encoded = text.encode()
    return u32(len(encoded)) + encoded


def canonical(value: Any) -> bytes:
    """json(v) ("Canonical JSON")."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def _members(pairs: list[tuple[str, Any]]) -> Object:
    need(len(pairs) <= 64, "an object has too many members")
    found = dict(pairs)
    need(len(found) == len(pairs), "a key stands twice")
    return found


def _number(text: str) -> int:
    need(len(text) <= 15, "a number is too long")
    need(text != "-0" and 0 <= int(text) <= WHOLE, "a number is out of range")
    return int(text)


def _no_number(text: str) -> NoReturn:
    raise UnreadableError(f"no whole number: {text[:20]}")


def parse(data: bytes, limit: int) -> Any:
    """Read JSON in any spacing, within the limits ("Files and limits")."""
    need(len(data) <= limit, "too many bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise UnreadableError("no UTF-8") from error
    depth = 0
    for count, match in enumerate(re.finditer(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', text, re.DOTALL), start=1):
        sign = match.group()
        depth += 1 if sign in "[{" else -1 if sign in "]}" else 0
        need(depth <= 16 and count <= 1_500_000, "nested too deeply, or too many strings and brackets")
    try:
        return json.loads(
            text,
            object_pairs_hook=_members,
            parse_int=_number,
            parse_float=_no_number,
            parse_constant=_no_number,
        )
    except (ValueError, RecursionError) as error:
        raise UnreadableError("no JSON") from error


def parse_canonical(data: bytes, limit: int) -> Any:
    """Read canonical JSON ("Canonical JSON")."""
    value = parse(data, limit)
    need(canonical(value) == data, "not canonical")
    return value


# "Kinds of values"


def whole(value: Any) -> None:
    """A number that is no boolean."""
    need(type(value) is int and 0 <= value <= WHOLE, "no whole number")


def positive(value: Any) -> None:
    """A whole number from 1 on."""
    whole(value)
    need(value >= 1, "not positive")


def boolean(value: Any) -> None:
    """True or false."""
    need(type(value) is bool, "no boolean")


def a_string(value: Any) -> None:
    """Any JSON string."""
    need(isinstance(value, str), "no string")


def text(value: Any) -> None:
    """At most 4,096 code points, no unpaired surrogate."""
    a_string(value)
    need(len(value) <= 4096, "a text is too long")
    need(not any("\ud800" <= character <= "\udfff" for character in value), "an unpaired surrogate")


def _float(value: Any) -> float:
    a_string(value)
    need(re.fullmatch(r"[0-9][0-9.e+-]{0,30}", value) is not None, "no decimal")
    try:
        number = float(value)
    except ValueError as error:
        raise UnreadableError("no decimal") from error
    need(math.isfinite(number), "not finite")
    return number


def decimal(value: Any) -> None:
    """A float64 in its shortest text."""
    need(repr(_float(value)) == value, "not the shortest text")


def figure(value: Any) -> None:
    """A float64 in six significant digits."""
    need(f"{_float(value):.6g}" == value, "no figure")


def digest(value: Any) -> None:
    """64 lower-case hexadecimal digits."""
    a_string(value)
    need(re.fullmatch(r"[0-9a-f]{64}", value) is not None, "no digest")


def time(value: Any) -> None:
    """A moment in UTC, in one form."""
    a_string(value)
    pattern = r"([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})\.[0-9]{6}\+00:00"
    match = re.fullmatch(pattern, value)
    if match is None:
        raise UnreadableError("no time")
    hour, minute, second = (int(part) for part in match.groups()[1:])
    day(match[1])
    need(hour <= 23 and minute <= 59 and second <= 59, "no such time of day")


def day(value: Any) -> None:
    """A day in UTC, in one form."""
    a_string(value)
    match = re.fullmatch(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", value)
    if match is None:
        raise UnreadableError("no day")
    year, month, number = (int(part) for part in match.groups())
    need(year >= 1 and 1 <= month <= 12, "no such month")
    need(1 <= number <= calendar.monthrange(year, month)[1], "no such day")


def unbase64(value: Any) -> bytes:
    """Bytes of a base64 text that is the only one for them."""
    a_string(value)
    try:
        decoded = base64.b64decode(value.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise UnreadableError("no base64") from error
    need(base64.b64encode(decoded).decode() == value, "no canonical base64")
    return decoded


def is_base64(value: Any) -> None:
    """Base64 of any length."""
    unbase64(value)


def hashed(value: Any) -> None:
    """Base64 of 32 bytes."""
    need(len(unbase64(value)) == 32, "no hash")


def one_of(*allowed: str) -> Kind:
    """One of a few strings."""

    def check(value: Any) -> None:
        need(isinstance(value, str) and value in allowed, f"none of {allowed}")

    return check


def optional(kind: Kind) -> Kind:
    """Null, or of a kind."""

    def check(value: Any) -> None:
        if value is not None:
            kind(value)

    return check


def list_of(kind: Kind, most: int = MANY) -> Kind:
    """At most so many of a kind."""

    def check(value: Any) -> None:
        need(isinstance(value, list) and len(value) <= most, "no list, or too long a one")
        for item in value:
            kind(item)

    return check


def fields(kinds: Mapping[str, Kind], may_be_missing: Collection[str] = ()) -> Kind:
    """Exactly these fields ("Fields")."""

    def check(value: Any) -> None:
        need(
            isinstance(value, dict)
            and value.keys() <= kinds.keys()
            and kinds.keys() - value.keys() <= set(may_be_missing),
            "a field is missing or unknown",
        )
        for name in value:
            kinds[name](value[name])

    return check


# "Public keys"


@dataclass(frozen=True)
class Key:
    """A public key. Two are the same if name and bytes are."""

    name: str
    public: bytes

    @property
    def short(self) -> bytes:
        """The hash in its text and in signature lines."""
        return sha(self.name.encode(), b"\n\x01", self.public)[:4]

    @property
    def id(self) -> str:
        """The id, a digest."""
        return sha(self.public).hex()

    def holds(self, signature: bytes, message: bytes) -> bool:
        """Whether a signature is this key's."""
        if len(signature) != 64:
            return False
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,99}")


def parse_key(value: Any) -> Key:
    """Read `name+hash+base64`."""
    text(value)
    parts = value.split("+", 2)
    need(len(parts) == 3, "no key")
    name, short, encoded = parts
    need(KEY_NAME.fullmatch(name) is not None, "no name of a key")
    decoded = unbase64(encoded)
    need(len(decoded) == 33 and decoded[0] == 1, "no Ed25519 key")
    key = Key(name, decoded[1:])
    need(key.short.hex() == short, "the key's hash is another")
    return key


def is_key(value: Any) -> None:
    """A public key as text."""
    parse_key(value)


@dataclass(frozen=True)
class Trusted:
    """A key that the verifier trusts, with its dates."""

    key: Key
    start: str | None = None
    end: str | None = None
    revoked: str | None = None

    def allows(self, moment: str, *, late: bool) -> bool:
        """Check 7: both ends are included; a log that names no key may be older than it; of a day, days count."""
        start, end = (each and each[: len(moment)] for each in (self.start, self.end))
        return (late or start is None or start <= moment) and (end is None or moment <= end)


def not_revoked(keys: Sequence["Trusted"]) -> list["Trusted"]:
    """Those of which no entry with the same bytes is revoked ("Public keys")."""
    revoked = {each.key.public for each in keys if each.revoked is not None}
    return [each for each in keys if each.key.public not in revoked]


DATED = {"key": is_key, "from": time, "until": optional(time)}
KEY_LISTS = {
    "disavow/keys/v1": DATED,
    "disavow/keys/v2": {**DATED, "revoked": optional(time)},
}


def parse_keys(data: bytes) -> list[Trusted]:
    """Read a key file: one public key or a list ("Public keys")."""
    need(len(data) <= MIB, "too many bytes")
    stripped = data.strip(b" \t\r\n")
    if stripped.startswith(b"{"):
        value = parse(data, MIB)
        kind = value.get("type")
        need(isinstance(kind, str) and kind in KEY_LISTS, "no key list")
        fields({"type": a_string, "keys": list_of(fields(KEY_LISTS[kind]), 10_000)})(value)
        return [
            Trusted(parse_key(entry["key"]), entry["from"], entry["until"], entry.get("revoked"))
            for entry in value["keys"]
        ]
    try:
        return [Trusted(parse_key(stripped.decode()))]
    except UnicodeDecodeError as error:
        raise UnreadableError("no UTF-8") from error


# "Merkle trees", "Commitments", "Inside a round", "The map of withdrawals"


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
    signatures = []
    for line in signed:
        need(line.startswith("\u2014 "), "no signature line")
        name, space, rest = line[2:].partition(" ")
        need(space == " " and KEY_NAME.fullmatch(name) is not None, "no name of a key")
        data = unbase64(rest)
        need(len(data) > 4, "no signature")
        signatures.append((name, data))
    return Note(head.encode(), origin, int(size), unbase64(root), signatures)


# Shapes of "The log", "The proof file", "The opening", "The receipt"


def run_id(value: Any) -> None:
    """The log, leaf 0."""
    need(isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9._-]{1,64}", value) is not None, "no run id")


def _version(value: Any) -> None:
    need(type(value) is int and value in (3, 4), "another version")


def _version_4(value: Any) -> None:
    need(type(value) is int and value == 4, "another version")


VERDICT = one_of("never present", "deniable", "rollback")
PATH = list_of(hashed, 64)
POLICY = fields(
    {
        "k": positive,
        "x": positive,
        "representatives": positive,
        "delta": optional(decimal),
        "relative_delta": optional(decimal),
        "odds": optional(decimal),
        "clustering": one_of("mdav", "constrained-kmeans", "fixed"),
        "sticky": boolean,
        "metric": one_of("l2", "cosine", "published"),
        "noise": one_of("paper", "calibrated", "none"),
        "distribution": one_of("gaussian", "laplace"),
        "sigma": decimal,
        "statistics": one_of("mean", "drawn"),
        "clip": optional(decimal),
        "tau": optional(decimal),
        "draws": one_of("fresh", "seeded"),
        "mechanism": one_of("retrain", "retrain-from-scratch", "federaser"),
    }
)
REQUEST = fields(
    {"asked_at": day, "verdict": VERDICT, "client": hashed, "rounds": hashed, "records": hashed},
    may_be_missing=["records"],
)
LEAVES: dict[str, Kind] = {
    "run": fields(
        {
            "type": a_string,
            "version": _version,
            "run": run_id,
            "created_at": time,
            "initial_model": digest,
            "policy": POLICY,
            "key": optional(is_key),
            "frozen": digest,
        },
        may_be_missing=["frozen"],
    ),
    "round": fields(
        {
            "type": a_string,
            "number": positive,
            "attempt": positive,
            "before": digest,
            "after": digest,
            "delta": decimal,
            "update_norm": decimal,
            "pairs_within": decimal,
            "tau": decimal,
            "participants": positive,
            "clusters": positive,
            "root": hashed,
            "at": time,
            "version": _version_4,
        },
        may_be_missing=["version"],
    ),
    "rebuilt": fields(
        {
            "type": a_string,
            "number": positive,
            "attempt": positive,
            "before": digest,
            "after": digest,
            "mechanism": one_of("federaser"),
            "participants": positive,
            "root": hashed,
            "at": time,
        }
    ),
    "withdrawal": fields(
        {
            "type": a_string,
            "requests": list_of(REQUEST, 10_000),
            "rounds": whole,
            "root": hashed,
            "at": day,
            "slots": is_base64,
        },
        may_be_missing=["slots"],
    ),
    "rollback": fields({"type": a_string, "withdrawal": positive, "to": positive, "at": day}),
    "purge": fields({"type": a_string, "to": positive, "at": day}),
    "key": fields({"type": a_string, "key": is_key, "at": time}),
}


def log_leaf(value: Any) -> None:
    """A leaf of one of the seven types ("The log")."""
    need(isinstance(value, dict), "no leaf")
    kind = value.get("type")
    need(isinstance(kind, str) and kind in LEAVES, "no type of leaf")
    LEAVES[kind](value)


CLOSED = {
    "closed rounds": fields({"type": a_string, "rounds": is_base64}),
    "closed withdrawal": fields({"type": a_string, "digest": hashed, "slots": is_base64}),
}


def shown_leaf(value: Any) -> None:
    """A leaf, or what stands for closed ones ("Version 4", the file)."""
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind in CLOSED:
        CLOSED[kind](value)
        if kind == "closed rounds":
            size = len(unbase64(value["rounds"]))
            need(size > 0 and size % 64 == 0, "not 64 bytes for each closed round")
    else:
        log_leaf(value)


def leaf_of_type(kind: str) -> Kind:
    """A leaf of one type."""

    def check(value: Any) -> None:
        log_leaf(value)
        need(value["type"] == kind, "a leaf of another type")

    return check


SHAPE: dict[str, Kind] = {
    "position": whole,
    "first": whole,
    "size": positive,
    "weight": decimal,
    "spread": decimal,
    "path": PATH,
}
WITHDRAWN = fields(
    {
        "leaf": positive,
        "position": whole,
        "slot": optional(whole),
        "salt": optional(hashed),
        "inner": optional(hashed),
    }
)
CLUSTER: dict[str, Kind] = {
    **SHAPE,
    "leaf": positive,
    "slot": whole,
    "slots": list_of(hashed),
    "displacement": figure,
    "log10_odds": optional(figure),
}
PREDICATE: dict[str, Kind] = {
    "checkpoint": text,
    "withdrawal": optional(positive),
    "request": optional(whole),
    "rounds": optional(fields({"salt": hashed, "superseded": list_of(positive)})),
    "bounds": fields({"displacement": figure, "ratio": optional(figure), "drawn": figure}),
    "verdict": fields({"kind": VERDICT, "from": optional(positive)}),
    "times": optional(fields({"asked_at": time, "judged_at": time, "answered_at": time})),
}
PREDICATES: dict[int, Kind] = {
    3: fields(
        {
            **PREDICATE,
            "leaves": list_of(log_leaf),
            "maps": list_of(list_of(optional(hashed))),
            "clusters": list_of(fields({**CLUSTER, "withdrawn": list_of(WITHDRAWN)})),
        }
    ),
    4: fields(
        {
            **PREDICATE,
            "leaves": list_of(shown_leaf),
            "cover": is_base64,
            "clusters": list_of(fields({**CLUSTER, "entry": optional(whole), "salt": optional(hashed)})),
            "records": fields({"count": positive, "closed": hashed, "word": hashed}, may_be_missing=["word"]),
            "purge": positive,
        },
        may_be_missing=["records", "purge"],
    ),
}


def _subject(value: Any) -> None:
    need(isinstance(value, list) and len(value) == 1, "not one subject")
    fields({"name": one_of("model.safetensors"), "digest": fields({"sha256": digest})})(value[0])


STATEMENT = fields(
    {
        "_type": one_of("https://in-toto.io/Statement/v1"),
        "predicateType": one_of(*ERASURES, *WHAT_IFS),
        "subject": _subject,
        "predicate": lambda value: None,
    }
)
ENVELOPE = fields(
    {
        "payload": is_base64,
        "payloadType": one_of(PAYLOAD_TYPE, PACKED_TYPE),
        "signatures": list_of(fields({"keyid": digest, "sig": is_base64}), 1),
    }
)
OPENING = fields(
    {
        "type": one_of("disavow/opening/v1"),
        "run": run_id,
        "client": text,
        "salt": optional(hashed),
        "rounds": list_of(fields({"leaf": positive, "slot": whole, "salt": hashed, "update": hashed})),
        "records": fields({"salt": hashed, "keys": list_of(text)}),
    },
    may_be_missing=["records"],
)
SIGNED_WORD = fields(
    {"type": one_of("disavow/word/v1"), "payload": is_base64, "publicKey": is_base64, "signature": is_base64}
)
WORD = fields({"run": run_id, "records": hashed, "at": time, "nonce": hashed})
RECEIPT: dict[str, Kind] = {
    "type": one_of("disavow/receipt/v2"),
    "run": run_id,
    "client": text,
    "leaf": positive,
    "slot": whole,
    "salt": hashed,
    "update": hashed,
    "inclusion": PATH,
    "checkpoint": text,
}
RECEIPTS = {
    "round": fields(
        {
            **RECEIPT,
            "header": leaf_of_type("round"),
            "cluster": fields({**SHAPE, "slots": list_of(hashed, MIB)}),
        }
    ),
    "rebuilt": fields({**RECEIPT, "header": leaf_of_type("rebuilt"), "path": PATH}),
}


# "Bounds"


def figure_of(value: float | None) -> str | None:
    """A figure's text."""
    return None if value is None else f"{value:.6g}"


def capped(value: float) -> float:
    """What is above the largest float64 counts as that."""
    return LARGEST if value > LARGEST else value


def displacement_of(cluster: Object, representatives: int) -> float:
    """How far another representative moves the model."""
    return capped(float(cluster["weight"]) * float(cluster["spread"]) / representatives)


def ratio_of(cluster: Object, tau: float, representatives: int) -> float | None:
    """The displacement in standard deviations of the noise."""
    displacement = displacement_of(cluster, representatives)
    if displacement == 0:
        return 0.0
    return capped(displacement / tau) if tau > 0 else None


def log10_odds_of(ratio: float | None) -> float | None:
    """The odds, as a power of ten."""
    return None if ratio is None else capped(((ratio * ratio) / 2 + ratio * 1.645) / LN_10)


def total_of(policy: Object, clusters: Sequence[Object], leaves: Sequence[Object]) -> tuple[float, float | None]:
    """The largest displacement, and the ratio over all clusters shown."""
    largest, squares, bounded = 0.0, 0.0, True
    for cluster in clusters:
        ratio = ratio_of(cluster, float(leaves[cluster["leaf"]]["tau"]), policy["representatives"])
        largest = max(largest, displacement_of(cluster, policy["representatives"]))
        bounded &= ratio is not None
        squares += 0.0 if ratio is None else ratio * ratio
    return largest, math.sqrt(capped(squares)) if bounded else None


def nearest_log10(odds: float) -> float:
    """log10 as a float64; what the machine computes may be one beside the nearest."""
    with decimals.localcontext(decimals.Context(prec=50)):
        return float(decimals.Decimal(odds).log10())


def drawn_of(clusters: Sequence[Object], representatives: int) -> float:
    """The chance to have been drawn at least once."""
    never = 1.0
    for cluster in clusters:
        never = never * (1 - min(1.0, representatives / cluster["size"]))
    return 1 - never


def noise_fits(policy: Object, leaf: Object, cluster: Object) -> bool:
    """Whether τ is the policy's, as far as one cluster tells."""
    tau = float(leaf["tau"])
    if policy["noise"] == "calibrated":
        return tau == float(policy["tau"] or "0.0")
    if (policy["noise"], policy["distribution"]) != ("paper", "gaussian"):
        return tau == 0
    share = float(policy["sigma"]) / int(policy["representatives"])
    own = float(cluster["weight"]) * float(cluster["spread"])
    if not tau * (1 + 1e-9) >= own * share:
        return False
    if share == 0 or leaf["clusters"] == 1:
        return tau <= own * share * (1 + 1e-9)
    if policy["delta"] is not None or policy["relative_delta"] is not None:
        return True
    rest = (1 - float(cluster["weight"])) * float(leaf["delta"])
    longer, shorter = max(own, rest), min(own, rest)
    bound = longer * math.sqrt(1 + (shorter / longer) * (shorter / longer)) if longer else 0.0
    return tau <= share * bound * (1 + 1e-9)


# "The checks"


def ascending(values: Sequence[int]) -> bool:
    """Strictly ascending."""
    return all(before < after for before, after in pairwise(values))


@dataclass
class Verification:
    """One verification. Each check leaves behind what the later ones need."""

    proof: bytes
    keys: list[Trusted]
    opening: bytes | None
    receipts: Sequence[bytes]
    checkpoint: bytes | None
    model: str | None
    what_if: bool
    asked_for: str | None
    payload: bytes = b""
    payload_type: str = PAYLOAD_TYPE
    version: int = 3
    entries: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    undone_at: dict[int, int] = field(default_factory=dict)
    signature: Object = field(default_factory=dict)
    signer: Key = field(default_factory=lambda: Key("", b""))
    subject: str = ""
    predicate: Object = field(default_factory=dict)
    leaves: list[Object] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)
    head: Note = field(default_factory=lambda: Note(b"", "", 0, b"", []))
    rounds: list[int] = field(default_factory=list)
    standing: list[int] = field(default_factory=list)
    withdrawals: list[int] = field(default_factory=list)
    final: str = ""
    client: str | None = None
    word: bytes | None = None

    @property
    def policy(self) -> Object:
        """The policy of leaf 0."""
        policy: Object = self.leaves[0]["policy"]
        return policy

    @property
    def needed(self) -> int:
        """How many survivors each cluster must keep."""
        return int(self.policy["x"] + self.policy["representatives"] - 1)

    @property
    def run(self) -> str:
        """The run id."""
        return str(self.leaves[0]["run"])

    @property
    def clusters(self) -> list[Object]:
        """The clusters shown."""
        clusters: list[Object] = self.predicate["clusters"]
        return clusters

    def request(self) -> Object:
        """The proof's request, once check 13 has passed."""
        request: Object = self.leaves[self.predicate["withdrawal"]]["requests"][self.predicate["request"]]
        return request

    def readable(self) -> None:
        """Check 1."""
        envelope = parse_canonical(self.proof, 16 * MIB)
        ENVELOPE(envelope)
        require(len(envelope["signatures"]) == 1, "no signature")
        self.signature = envelope["signatures"][0]
        self.payload, self.payload_type = unbase64(envelope["payload"]), envelope["payloadType"]

    def signed(self) -> None:
        """Check 2."""
        fitting = [trusted.key for trusted in self.keys if trusted.key.id == self.signature["keyid"]]
        require(bool(fitting), "no such trusted key")
        fitting = [each.key for each in not_revoked(self.keys) if each.key.id == self.signature["keyid"]]
        require(bool(fitting), "the key was revoked")
        self.signer = fitting[0]
        kind = self.payload_type.encode()
        message = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(self.payload), self.payload)
        require(self.signer.holds(unbase64(self.signature["sig"]), message), "the signature does not hold")

    def statement(self) -> None:
        """Check 3."""
        packed = self.payload_type == PACKED_TYPE
        statement = parse_canonical(unpack(self.payload) if packed else self.payload, 16 * MIB)
        STATEMENT(statement)
        kind = statement["predicateType"]
        self.version = {**ERASURES, **WHAT_IFS}[kind]
        PREDICATES[self.version](statement["predicate"])
        self.subject = statement["subject"][0]["digest"]["sha256"]
        self.predicate = statement["predicate"]
        self.leaves = self.predicate["leaves"]
        require((kind in WHAT_IFS) == self.what_if, "not what was asked for")

    def head_signed(self) -> None:
        """Check 4."""
        self.head = parse_note(self.predicate["checkpoint"])
        self.head.require_signed(self.signer)
        require(self.head.size == items_of_log(self.leaves), "the head has another size")

    def log(self) -> None:
        """Check 5."""
        require(bool(self.leaves) and self.leaves[0]["type"] == "run", "no leaf 0 of type run")
        require(self.leaves[0]["version"] == self.version, "leaf 0 is of another version")
        if self.version == 4:
            self.leaves = opened_log(self.leaves)
        self.hashes = [hash_in_log(leaf) for leaf in self.leaves]
        require(root_of(self.hashes) == self.head.root, "the root is another")
        require(self.head.origin == "disavow/run/" + self.run, "the origin is another")

    def history(self) -> None:
        """Check 6."""
        if self.checkpoint is None:
            return
        try:
            text_of_note = self.checkpoint.decode()
        except UnicodeDecodeError as error:
            raise UnreadableError("no UTF-8") from error
        kept = parse_note(text_of_note, cosigned=True)
        require(kept.is_signed_by(not_revoked(self.keys)), "no trusted key opens the kept checkpoint")
        require(kept.origin == self.head.origin, "the kept checkpoint is of another log")
        require(kept.size <= len(self.leaves), "the kept checkpoint is newer")
        require(root_of(self.hashes[: kept.size]) == kept.root, "the log was rewritten")

    def promised(self) -> None:
        """Check 7."""
        k, drawn, odds = self.policy["k"], self.policy["representatives"], self.policy["odds"]
        require(self.needed <= k, "x + s - 1 is above k")
        require(drawn == 1 or drawn < k, "not fewer than k are drawn")
        require(self.policy["delta"] is None or self.policy["relative_delta"] is None, "delta is said twice")
        require(odds is None or float(odds) >= 1, "odds below 1")
        first = self.leaves[0]["key"]
        named = [leaf["key"] for leaf in self.leaves[1:] if leaf["type"] == "key"]
        last = named[-1] if named else first
        require(last is None or parse_key(last) == self.signer, "the log names another key")
        moment = max(_moment(leaf) for leaf in self.leaves if not _is_closed(leaf))
        late = last is None
        allowed = [trusted.allows(moment, late=late) for trusted in self.keys if trusted.key == self.signer]
        require(any(allowed), "the key was not in use")

    def replay(self) -> None:
        """Check 8."""
        start = self.leaves[0]
        model = start["initial_model"]
        undone: set[str] = set()
        named = {parse_key(start["key"])} if start["key"] is not None else set()
        attempts: dict[int, int] = {}
        latest = start["created_at"]
        due = 0
        for place, leaf in enumerate(self.leaves[1:], start=1):
            require(leaf["type"] != "run", "a second leaf of type run")
            if not _is_closed(leaf):
                require(latest[: len(leaf["at"])] <= leaf["at"], "times go back")
                latest = max(latest, leaf["at"])
            if leaf["type"] in ("round", "rebuilt", "closed round"):
                number = leaf["number"]
                attempts[number] = attempts.get(number, 0) + 1
                require(number == len(self.standing) + 1, "the round's number is another")
                require(leaf["attempt"] == attempts[number], "the attempt is another")
                require(leaf["before"] == model, "the chain of models is broken")
                due = self._require_round(leaf, undone, due)
                self.rounds.append(place)
                self.standing.append(place)
                model = leaf["after"]
            elif leaf["type"] in ("withdrawal", "closed withdrawal"):
                self._require_withdrawal(place, leaf)
                self.withdrawals.append(place)
            elif leaf["type"] in ("rollback", "purge"):
                if leaf["type"] == "rollback":
                    require(leaf["withdrawal"] == place - 1, "the rollback is not behind its withdrawal")
                    require(place - 1 in self.withdrawals, "the rollback is not behind a withdrawal")
                else:
                    self._require_purge(leaf)
                require(leaf["to"] <= len(self.standing), "no such round to undo")
                self.undone_at.update(dict.fromkeys(self.standing[leaf["to"] - 1 :], place))
                due = max(due, len(self.standing))
                undone.update(self.leaves[at]["after"] for at in self.standing[leaf["to"] - 1 :])
                del self.standing[leaf["to"] - 1 :]
                model = self.leaves[self.standing[-1]]["after"] if self.standing else start["initial_model"]
            else:
                key = parse_key(leaf["key"])
                require(key not in named, "the key was named before")
                named.add(key)
        self.final = model
        ends = [self.leaves[-1], *(self.leaves[at] for at in self.rounds[-1:])]
        require(not any(_is_closed(leaf) for leaf in ends), "the end of the log is closed")

    def _require_round(self, leaf: Object, undone: set[str], due: int) -> int:
        moved = leaf["after"] != leaf["before"]
        if leaf["type"] == "closed round":
            require(not (moved and leaf["after"] in undone), "a round that must be shown is closed")
            return 0
        if leaf["type"] == "round":
            require(("version" in leaf) == (self.version == 4), "a round of another version")
            self._require_clustered(leaf, undone)
            return 0
        require(leaf["mechanism"] == self.policy["mechanism"], "rebuilt by another mechanism")
        require(leaf["number"] <= due, "nothing was undone that could be rebuilt")
        require(leaf["participants"] >= self.policy["k"], "too few rebuilt it")
        require(not (moved and leaf["after"] in undone), "a model that was undone is back")
        return due

    def _require_purge(self, leaf: Object) -> None:
        require(self.version == 4, "a purge in a log of version 3")
        require(self.policy["mechanism"] != "federaser", "a purge without exact retraining")
        withdrawn = {at for entries in self.entries.values() for at, _ in entries}
        require(not withdrawn & set(self.standing[: leaf["to"] - 1]), "a withdrawn slot is left standing")

    def _require_withdrawal(self, place: int, leaf: Object) -> None:
        require(leaf["rounds"] == len(self.rounds), "the number of rounds is another")
        if not _is_closed(leaf):
            require(bool(leaf["requests"]), "no requests")
            require(all(request["asked_at"] <= leaf["at"] for request in leaf["requests"]), "asked too late")
            require(("slots" in leaf) == (self.version == 4), "a withdrawal of another version")
        require(rolls_back(leaf) == (self.type_at(place + 1) == "rollback"), "a rollback is missing or too many")
        if "slots" in leaf:
            self.entries[place] = entries_of(unbase64(leaf["slots"]))
            known = set(self.rounds)
            require(all(at in known for at, _ in self.entries[place]), "an entry of no round before it")

    def _sizes(self) -> tuple[int, int]:
        """The least and the most slots of a cluster; fixed clusters lose and gain clients."""
        return (
            (1, 2**32 - 1) if self.policy["clustering"] == "fixed" else (self.policy["k"], 2 * self.policy["k"] - 1)
        )

    def _require_clustered(self, leaf: Object, undone: set[str]) -> None:
        least, most = self._sizes()
        require(
            least * leaf["clusters"] <= leaf["participants"] <= most * leaf["clusters"],
            "so many clusters cannot be",
        )
        require(self.policy["delta"] in (None, leaf["delta"]), "delta is not the policy's")
        if self.policy["relative_delta"] is not None:
            product = float(self.policy["relative_delta"]) * float(leaf["update_norm"])
            require(float(leaf["delta"]) == product, "delta is not the policy's multiple of the update norm")
        require(float(leaf["pairs_within"]) <= 1, "more pairs than all")
        noisy = float(leaf["tau"]) > 0 and leaf["after"] != leaf["before"]
        require(not (noisy and leaf["after"] in undone), "a model that was undone is back")

    def type_at(self, place: int) -> str | None:
        """The type of a leaf, if there is one."""
        return str(self.leaves[place]["type"]) if place < len(self.leaves) else None

    def placed(self) -> None:
        """Check 9."""
        places = [cluster["leaf"] for cluster in self.clusters]
        require(ascending(places), "clusters are not in order")
        require(set(places) <= set(self.standing), "a cluster of no standing round")
        require(all(self.type_at(place) == "round" for place in places), "a rebuilt round, or a closed one")
        for cluster in self.clusters:
            self._require_cluster(cluster)
        if self.version == 4:
            for cluster in self.clusters:
                self.gone_of(cluster)
            self._require_own_entries()
            return
        for cluster in self.clusters:
            self._require_withdrawn(cluster)
        self._require_maps(set(places))

    def gone_of(self, cluster: Object) -> int:
        """How many entries have the cluster's round and position ("Version 4", checks 9 and 10)."""
        leaf, gone = self.leaves[cluster["leaf"]], 0
        for place, entries in self.entries.items():
            for index, (at, masked) in enumerate(entries):
                if at == cluster["leaf"]:
                    position = unmasked(masked, unbase64(leaf["root"]), place, index)
                    require(position < leaf["clusters"], "an entry of no cluster")
                    gone += position == cluster["position"]
        return gone

    def _require_own_entries(self) -> None:
        cover, place = unbase64(self.predicate["cover"]), self.predicate["withdrawal"]
        if self.what_if:
            require(cover == b"", "a what-if has a cover")
            for cluster in self.clusters:
                require(cluster["entry"] is None and cluster["salt"] is None, "a what-if has entries")
            return
        require(place in self.withdrawals and self.type_at(place) == "withdrawal", "no withdrawal is shown")
        entries, known = self.entries[place], {}
        for cluster in self.clusters:
            index, salt = cluster["entry"], cluster["salt"]
            require(index is not None and salt is not None and index < len(entries), "no such entry")
            at, masked = entries[index]
            root = unbase64(self.leaves[cluster["leaf"]]["root"])
            require(at == cluster["leaf"], "an entry of another round")
            require(unmasked(masked, root, place, index) == cluster["position"], "an entry of another cluster")
            known[index] = leaf_hash(withdrawn_inner(unbase64(salt), cluster["slot"]))
        root = covered_root(known, len(entries), cover)
        require(root == unbase64(self.leaves[place]["root"]), "the withdrawal is another")

    def _require_cluster(self, cluster: Object) -> None:
        slots, first, size = cluster["slots"], cluster["first"], cluster["size"]
        require(len(slots) == size and len(set(slots)) == size, "slots are missing or stand twice")
        require(first <= cluster["slot"] < first + size, "the slot is not in the cluster")
        self._require_placed(cluster, self.leaves[cluster["leaf"]])

    def _require_placed(self, cluster: Object, leaf: Object) -> None:
        least, most = self._sizes()
        require(0 < float(cluster["weight"]) <= 1, "no such weight")
        shares = leaf["clusters"] > 1 or self.policy["clustering"] == "fixed"
        require(shares or float(cluster["weight"]) == 1, "the only cluster does not have all the data")
        require(least <= cluster["size"] <= most, "no such size")
        first, position = cluster["first"], cluster["position"]
        behind, left = leaf["clusters"] - position - 1, leaf["participants"] - first - cluster["size"]
        require(least * position <= first <= most * position, "no room before the cluster")
        require(least * behind <= left <= most * behind, "no room behind the cluster")
        root = follow(cluster_hash(cluster), cluster["position"], leaf["clusters"], cluster["path"])
        require(root == unbase64(leaf["root"]), "the cluster is not the round's")

    def _require_withdrawn(self, cluster: Object) -> None:
        entries = cluster["withdrawn"]
        places = [entry["leaf"] for entry in entries]
        require(places == sorted(places), "withdrawn slots are not in order")
        behind = {place for place in self.withdrawals if place > cluster["leaf"]}
        require(set(places) <= behind, "withdrawn by no withdrawal behind the round")
        for entry in entries:
            if entry["position"] != cluster["position"]:
                is_closed = entry["slot"] is None and entry["salt"] is None and entry["inner"] is not None
                require(is_closed, "an entry is not closed")
                require(entry["position"] < self.leaves[cluster["leaf"]]["clusters"], "an entry of no cluster")
            else:
                is_open = entry["slot"] is not None and entry["salt"] is not None and entry["inner"] is None
                require(is_open, "an entry is not open")
                require(_has_slot(cluster, entry["slot"]), "an entry's slot is not in its cluster")
        left = [entry["leaf"] for entry in entries if entry["slot"] == cluster["slot"]]
        require(left == ([] if self.what_if else [self.predicate["withdrawal"]]), "the leaver's entry is another")

    def _require_maps(self, shown: set[int]) -> None:
        maps = self.predicate["maps"]
        require(len(maps) == len(self.withdrawals), "not one map for each withdrawal")
        values = dict.fromkeys(self.rounds, NOBODY)
        for place, given in zip(self.withdrawals, maps, strict=True):
            covered = [at for at in self.rounds if at < place]
            hidden = [at for at in covered if at not in shown]
            require(len(given) == len(hidden), "not one value for each round")
            for at, value in zip(hidden, given, strict=True):
                if value is not None:
                    require(unbase64(value) != values[at], "a value that did not change is given")
                    values[at] = unbase64(value)
            for cluster in self.clusters:
                entries = [entry for entry in cluster["withdrawn"] if entry["leaf"] <= place]
                values[cluster["leaf"]] = counted(len(entries), root_of([_entry_hash(entry) for entry in entries]))
            root = root_of([leaf_hash(values[at]) for at in covered])
            require(root == unbase64(self.leaves[place]["root"]), "the map is another")

    def survivors(self) -> None:
        """Check 10."""
        for cluster in self.clusters:
            if self.version == 4:
                left = cluster["size"] - self.gone_of(cluster) - (1 if self.what_if else 0)
                require(left >= self.needed, "too few survivors")
                continue
            slots = [entry["slot"] for entry in cluster["withdrawn"] if entry["slot"] is not None]
            require(len(set(slots)) == len(slots), "a slot was withdrawn twice")
            left = cluster["size"] - len({*slots, cluster["slot"]})
            require(left >= self.needed, "too few survivors")

    def spread(self) -> None:
        """Check 11."""
        for cluster in self.clusters:
            delta = float(self.leaves[cluster["leaf"]]["delta"])
            require(float(cluster["spread"]) <= delta, "the spread is above delta")

    def bounds(self) -> None:
        """Check 12."""
        drawn, told = self.policy["representatives"], self.predicate["bounds"]
        for cluster in self.clusters:
            leaf = self.leaves[cluster["leaf"]]
            require(noise_fits(self.policy, leaf, cluster), "the noise is not the policy's")
            odds = log10_odds_of(ratio_of(cluster, float(leaf["tau"]), drawn))
            require(
                cluster["displacement"] == figure_of(displacement_of(cluster, drawn)), "displacement is another"
            )
            require(cluster["log10_odds"] == figure_of(odds), "log10_odds is another")
        largest, ratio = total_of(self.policy, self.clusters, self.leaves)
        require(told["displacement"] == figure_of(largest), "the displacement is another")
        require(told["ratio"] == figure_of(ratio), "the ratio is another")
        require(told["drawn"] == figure_of(drawn_of(self.clusters, drawn)), "the chance to be drawn is another")
        if self.policy["odds"] is not None:
            composed = log10_odds_of(ratio)
            require(composed is not None and composed <= nearest_log10(float(self.policy["odds"])), "odds exceeded")

    def verdict(self) -> None:
        """Check 13."""
        predicate = self.predicate
        kind, start = predicate["verdict"]["kind"], predicate["verdict"]["from"]
        place, request, opened = predicate["withdrawal"], predicate["request"], predicate["rounds"]
        times = predicate["times"]
        if self.what_if:
            require(place is None and request is None and opened is None and start is None, "nobody left")
            require(times is None, "nobody asked")
            require("records" not in predicate, "no records were to be erased")
            require("purge" not in predicate, "nothing was purged")
            require(kind == ("deniable" if self.clusters else "never present"), "the verdict is another")
            return
        require(place in self.withdrawals and self.type_at(place) == "withdrawal", "no such withdrawal")
        require(request is not None and opened is not None and times is not None, "no request")
        require(request < len(self.leaves[place]["requests"]), "no such request")
        require(("records" in predicate) == ("records" in self.request()), "records, or a whole client")
        if "records" in predicate:
            require(self.records() == unbase64(self.request()["records"]), "the records are others")
        require(kind == self.request()["verdict"], "the verdict is another")
        if kind == "rollback":
            require(start is not None and start == self.leaves[place + 1]["to"], "it starts elsewhere")
            redone = [at for at in self.standing if self.leaves[at]["number"] >= start]
            require(all(at >= place for at in redone), "an old round stands")
        else:
            require(start is None, "nothing was undone")
        asked, judged, answered = times["asked_at"], times["judged_at"], times["answered_at"]
        require(asked <= judged <= answered, "the times are not in order")
        require(asked[:10] == self.request()["asked_at"], "asked on another day")
        require(judged[:10] == self.leaves[place]["at"], "judged on another day")
        superseded: list[int] = opened["superseded"]
        require(ascending(superseded), "superseded rounds are not in order")
        require(set(superseded) <= set(self.rounds) - set(self.standing), "a round was not superseded")
        took_part = sorted([*superseded, *(cluster["leaf"] for cluster in self.clusters)])
        require(all(at <= place for at in took_part), "a round behind the withdrawal")
        expected = unbase64(self.request()["rounds"])
        require(rounds_commitment(unbase64(opened["salt"]), took_part) == expected, "the rounds are others")
        require((kind == "never present") == (not took_part), "present or not")
        if "purge" in predicate:
            require(not self.clusters and bool(superseded), "a slot of the leaver stands")
            last = max(self.undone_at[at] for at in superseded)
            require(predicate["purge"] == last and last > place, "another leaf undid its last round")

    def named(self) -> None:
        """Check 14."""
        if self.opening is None:
            require(self.asked_for is None, "nothing says whom it is about")
            return
        opening = parse_canonical(self.opening, 16 * MIB)
        OPENING(opening)
        run, client = opening["run"], opening["client"]
        require(run == self.run, "the opening is of another run")
        require((opening["salt"] is None) == self.what_if, "the salt does not fit")
        if not self.what_if:
            found = request_commitment(run, unbase64(opening["salt"]), client)
            require(found == unbase64(self.request()["client"]), "another asked")
        require(ascending([entry["leaf"] for entry in opening["rounds"]]), "rounds are not in order")
        gone = [] if self.what_if else self.predicate["rounds"]["superseded"]
        opened = [entry for entry in opening["rounds"] if entry["leaf"] not in set(gone)]
        pairs = [(entry["leaf"], entry["slot"]) for entry in opened]
        require(pairs == [(cluster["leaf"], cluster["slot"]) for cluster in self.clusters], "other rounds")
        for entry, cluster in zip(opened, self.clusters, strict=True):
            number = self.leaves[entry["leaf"]]["number"]
            found = slot_commitment(run, number, unbase64(entry["salt"]), client, unbase64(entry["update"]))
            expected = unbase64(cluster["slots"][entry["slot"] - cluster["first"]])
            require(found == expected, "another was in the slot")
        said = self.predicate.get("records")
        require(("records" in opening) == (said is not None), "records, or a whole client")
        if said is not None:
            keys = opening["records"]["keys"]
            require(len(keys) == len(set(keys)) == said["count"], "not each record once")
            found = closed_records(unbase64(opening["records"]["salt"]), keys)
            require(found == unbase64(said["closed"]), "other records")
        require(self.asked_for in (None, client), "it is about another client")
        if self.clusters or not self.what_if:
            self.client = client

    def records(self) -> bytes:
        """The commitment to the records that the proof is about."""
        said = self.predicate["records"]
        return records_commitment(self.run, said["count"], unbase64(said["closed"]))

    def vouched(self) -> None:
        """Check 17."""
        if self.word is None:
            return
        word = parse_canonical(self.word, 65_536)
        SIGNED_WORD(word)
        require("records" in self.predicate, "it is about no records")
        said = self.predicate["records"].get("word")
        require(said is not None and unbase64(said) == sha(b"disavow/word/v1\0", self.word), "another word")
        payload = unbase64(word["payload"])
        told = parse_canonical(payload, 65_536)
        WORD(told)
        require((told["run"], unbase64(told["records"])) == (self.run, self.records()), "other records")
        kind = b"application/vnd.disavow.word+json"
        message = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
        require(is_signed_by_der(unbase64(word["publicKey"]), unbase64(word["signature"]), message), "forged")

    def kept(self) -> None:
        """Check 15."""
        receipts = [parse_receipt(data) for data in self.receipts]
        for receipt in receipts:
            note = require_receipt(receipt, self.keys)
            place = receipt["leaf"]
            require(receipt["run"] == self.run, "the receipt is of another run")
            require(self.client in (None, receipt["client"]), "the receipt is another's")
            require(note.size <= len(self.leaves), "the receipt is newer than the proof")
            require(self.hashes[place] == hash_in_log(receipt["header"]), "the receipt's round is another")
            require(root_of(self.hashes[: note.size]) == note.root, "the log was rewritten")
            if place in self.standing:
                shown = {(cluster["leaf"], cluster["slot"]) for cluster in self.clusters}
                require((place, receipt["slot"]) in shown, "the receipt's round is not shown")
            elif not self.what_if:
                require(place in self.predicate["rounds"]["superseded"], "the receipt's round is left out")

    def served(self) -> None:
        """Check 16."""
        require(self.subject == self.final, "the subject is not the log's model")
        if self.model in (None, self.subject):
            return
        standing = {self.leaves[0]["initial_model"], *(self.leaves[at]["after"] for at in self.standing)}
        undone = {self.leaves[at]["after"] for at in self.rounds if at not in set(self.standing)} - standing
        require(self.model not in undone, "the model file was undone")
        raise AnotherModelError

    def checks(self) -> list[Callable[[], None]]:
        """All checks, in their order."""
        return [
            self.readable,
            self.signed,
            self.statement,
            self.head_signed,
            self.log,
            self.history,
            self.promised,
            self.replay,
            self.placed,
            self.survivors,
            self.spread,
            self.bounds,
            self.verdict,
            self.named,
            self.kept,
            self.served,
            self.vouched,
        ]


def is_signed_by_der(key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether a key of a client signed ("The word")."""
    try:
        public = load_der_public_key(key)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UnreadableError("no key") from error
    known = isinstance(public, Ed25519PublicKey | EllipticCurvePublicKey)
    need(known and public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) == key, "another key")
    try:
        if isinstance(public, EllipticCurvePublicKey):
            need(public.curve.name in ("secp256r1", "secp384r1"), "another curve")
            public.verify(signature, message, ECDSA(SHA256()))
        elif isinstance(public, Ed25519PublicKey):
            public.verify(signature, message)
    except InvalidSignature:
        return False
    return True


def unpack(data: bytes) -> bytes:
    """The statement of a compressed payload ("Version 4", the file)."""
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(data, 16 * MIB + 1)
    except zlib.error as error:
        raise UnreadableError("no zlib stream") from error
    need(len(found) <= 16 * MIB and stream.eof and not stream.unused_data, "too large, or not one stream")
    return found


def _is_closed(leaf: Object) -> bool:
    return leaf["type"] in ("closed round", "closed withdrawal")


def _moment(leaf: Object) -> str:
    return str(leaf["created_at" if leaf["type"] == "run" else "at"])


def _has_slot(cluster: Object, slot: int) -> bool:
    return bool(cluster["first"] <= slot < cluster["first"] + cluster["size"])


def _entry_hash(entry: Object) -> bytes:
    if entry["inner"] is not None:
        return withdrawn_entry(entry["position"], unbase64(entry["inner"]))
    return withdrawn_entry(entry["position"], withdrawn_inner(unbase64(entry["salt"]), entry["slot"]))


def parse_receipt(data: bytes) -> Object:
    """Read a receipt ("The receipt", 1)."""
    receipt: Object = parse_canonical(data, MIB)
    need(isinstance(receipt, dict) and isinstance(receipt.get("header"), dict), "no receipt")
    kind = receipt["header"].get("type")
    need(isinstance(kind, str) and kind in RECEIPTS, "a receipt of no round")
    RECEIPTS[kind](receipt)
    return receipt


def require_receipt(receipt: Object, keys: Sequence[Trusted]) -> Note:
    """Whether a receipt holds ("The receipt", 2 to 6); its checkpoint."""
    note = parse_note(receipt["checkpoint"])
    require(note.is_signed_by(not_revoked(keys)), "no trusted key opens the receipt's checkpoint")
    require(note.origin == "disavow/run/" + receipt["run"], "the receipt's origin is another")
    header, slot = receipt["header"], receipt["slot"]
    salt, update = unbase64(receipt["salt"]), unbase64(receipt["update"])
    found = slot_commitment(receipt["run"], header["number"], salt, receipt["client"], update)
    if header["type"] == "round":
        cluster = receipt["cluster"]
        require(len(cluster["slots"]) == cluster["size"] and _has_slot(cluster, slot), "no such slot")
        require(found == unbase64(cluster["slots"][slot - cluster["first"]]), "another was in the slot")
        root = follow(cluster_hash(cluster), cluster["position"], header["clusters"], cluster["path"])
    else:
        root = follow(leaf_hash(found), slot, header["participants"], receipt["path"])
    require(root == unbase64(header["root"]), "the slot is not the round's")
    head = follow(hash_in_log(header), receipt["leaf"], note.size, receipt["inclusion"])
    require(head == note.root, "the round is not in the log")
    return note


def verify(
    proof: bytes,
    keys: bytes,
    opening: bytes | None = None,
    receipts: Sequence[bytes] = (),
    checkpoint: bytes | None = None,
    model: str | None = None,
    what_if: bool = False,
    client: str | None = None,
    word: bytes | None = None,
) -> tuple[int, int | None]:
    """The exit code, and the number of the check that failed ("The checks", "The result")."""
    try:
        trusted = parse_keys(keys)
    except UnreadableError:
        return 2, None
    verification = Verification(proof, trusted, opening, receipts, checkpoint, model, what_if, client)
    verification.word = word
    for number, check in enumerate(verification.checks(), start=1):
        try:
            check()
        except InvalidError:
            return 1, number
        except UnreadableError:
            return 2, number
        except AnotherModelError:
            return 13, number
    return (0 if verification.client is not None else 3), None
