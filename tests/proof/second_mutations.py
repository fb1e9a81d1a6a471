"""Proofs changed in one place, and repaired around it so that one check alone can tell."""

import base64
import copy
import json
import random
import re
from functools import cache
from typing import Any

from tests.proof import second_verifier as second
from tests.proof.second_opinion import KEY_TEXT, VECTORS, Object, Path_, encode, sign_note, vectors


@cache
def bases() -> list[tuple[Object, bytes, bool]]:
    """Valid proofs, signed anew with a key that the test has; their openings. Whoever changes one copies it."""
    found = []
    for vector in vectors():
        alone = not vector["receipts"] and vector["checkpoint"] is None and vector["model"] is None
        if vector["expected"] != "valid" or not alone or vector["opening"] is None:
            continue
        envelope = json.loads((VECTORS / vector["file"]).read_bytes())
        payload = base64.b64decode(envelope["payload"])
        statement = json.loads(
            payload if envelope["payloadType"] == second.PAYLOAD_TYPE else second.unpack(payload)
        )
        leaves = statement["predicate"]["leaves"]
        if any(leaf["type"] == "key" for leaf in leaves):
            continue
        if leaves[0]["key"] is not None:
            leaves[0]["key"] = KEY_TEXT
        head(statement)
        found.append((statement, (VECTORS / vector["opening"]).read_bytes(), bool(vector["what_if"])))
    return found


def head(statement: Object) -> None:
    """Sign the log's head anew."""
    predicate = statement["predicate"]
    leaves = predicate["leaves"]
    predicate["checkpoint"] = sign_note(f"disavow/run/{leaves[0]['run']}", leaves)


def opened(predicate: Object) -> list[Object]:
    """The leaves of the log by their places, closed ones too; those that are shown can be changed."""
    try:
        return second.opened_log(predicate["leaves"])
    except second.InvalidError as error:
        raise ValueError("the log cannot be opened") from error


def roots(statement: Object) -> None:
    """Let the rounds' roots be what the clusters lead to."""
    predicate = statement["predicate"]
    leaves = opened(predicate)
    for cluster in predicate["clusters"]:
        leaf = leaves[cluster["leaf"]]
        start = second.cluster_hash(cluster)
        leaf["root"] = encode(second.follow(start, cluster["position"], leaf["clusters"], cluster["path"]))


def maps(statement: Object) -> None:
    """Let the roots of maps be what the proof shows."""
    predicate = statement["predicate"]
    leaves = predicate["leaves"]
    values = {place: second.NOBODY for place, leaf in enumerate(leaves) if leaf["type"] == "round"}
    shown = {cluster["leaf"]: cluster["withdrawn"] for cluster in predicate["clusters"]}
    positions = [place for place, leaf in enumerate(leaves) if leaf["type"] == "withdrawal"]
    for place, row in zip(positions, predicate["maps"], strict=True):
        covered = [at for at in values if at < place]
        for at, value in zip([at for at in covered if at not in shown], row, strict=True):
            values[at] = values[at] if value is None else second.unbase64(value)
        for at, withdrawn in shown.items():
            entries = []
            for entry in withdrawn:
                if entry["leaf"] <= place:
                    inner = entry["inner"]
                    closed = (
                        second.withdrawn_inner(second.unbase64(entry["salt"]), entry["slot"]) if not inner else b""
                    )
                    entries.append(second.withdrawn_entry(entry["position"], closed or second.unbase64(inner)))
            values[at] = second.counted(len(entries), second.root_of(entries))
        leaves[place]["root"] = encode(second.root_of([second.leaf_hash(values[at]) for at in covered]))


def taken_part(statement: Object) -> None:
    """Let the rounds commitment be that of the rounds shown."""
    predicate = statement["predicate"]
    if predicate["rounds"] is not None:
        positions = [*predicate["rounds"]["superseded"], *(cluster["leaf"] for cluster in predicate["clusters"])]
        request = predicate["leaves"][predicate["withdrawal"]]["requests"][predicate["request"]]
        salt = second.unbase64(predicate["rounds"]["salt"])
        request["rounds"] = encode(second.rounds_commitment(salt, sorted(positions)))


def figures(statement: Object) -> None:
    """Let the bounds be those of the clusters."""
    predicate = statement["predicate"]
    leaves, clusters = opened(predicate), predicate["clusters"]
    drawn = leaves[0]["policy"]["representatives"]
    if not all(cluster["size"] for cluster in clusters):
        return  # of nobody there are no bounds
    for cluster in clusters:
        ratio = second.ratio_of(cluster, float(leaves[cluster["leaf"]]["tau"]), drawn)
        cluster["displacement"] = second.figure_of(second.displacement_of(cluster, drawn))
        cluster["log10_odds"] = second.figure_of(second.log10_odds_of(ratio))
    total, ratio = second.total_of(leaves[0]["policy"], clusters, leaves)
    predicate["bounds"] = {
        "displacement": second.figure_of(total),
        "ratio": second.figure_of(ratio),
        "drawn": second.figure_of(second.drawn_of(clusters, drawn)),
    }


# How much of a forged proof its forger makes fit again: nothing, the head, ... everything.
REPAIRS = [
    [],
    [head],
    [roots, head],
    [maps, head],
    [taken_part, roots, maps, head],
    [figures, taken_part, roots, maps, head],
    [figures, taken_part, roots, maps, head],
]
NUMBERS: list[Any] = [0, 1, 2, 3, 5, 4_294_967_295, 4_294_967_296, -1, True, "1"]
TEXTS = [
    *("", "0", "0.0", "0.5", "1.0", "2.0", "1e-05", "5e-324", "1e+16", "0.1", "\u00e9", "\ud800", KEY_TEXT),
    *("deniable", "rollback", "never present", "mean", "drawn", "calibrated", "sensitivity", "none", "laplace"),
    *("0001-01-01T00:00:00.000000+00:00", "9999-12-31T23:59:59.999999+00:00", "2026-02-30T00:00:00.000000+00:00"),
    *("0001-01-01", "2026-01-01", "2026-02-30", "9999-12-31", "federaser", "retrain"),
    *(encode(bytes(32)), "00" * 32),
]


def paths_of(value: Any, path: Path_ = ()) -> list[Path_]:
    items: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    found = [(*path, name) for name, _ in items]
    return found + [deeper for name, item in items for deeper in paths_of(item, (*path, name))]


def at_path(value: Any, path: Path_) -> Any:
    for step in path:
        value = value[step]
    return value


def near_text(value: str, source: random.Random) -> str:
    """Another number, one character exchanged, or another text."""
    if re.fullmatch(r"[0-9.]+", value) and source.random() < 0.7:
        return repr(source.choice([float(value) * 2, float(value) / 2, float(value) + 1, 0.0]))
    cut = source.randrange(len(value) + 1)
    return source.choice([value[:cut] + source.choice("A0f+= ") + value[cut + 1 :], source.choice(TEXTS)])


def other_value(statement: Object, path: Path_, value: Any, source: random.Random) -> Any:
    """Something else for one field: of the same name elsewhere, near, or of another kind."""
    same = [other for other in paths_of(statement) if other[-1] == path[-1]]
    near: list[Any]
    if isinstance(value, bool):
        near = [not value]
    elif isinstance(value, int):
        near = [value + 1, value - 1, value * 2, source.choice(NUMBERS)]
    elif isinstance(value, str):
        near = [near_text(value, source)]
    elif isinstance(value, list):
        near = [value[1:], value[:-1], value + value[-1:], value[::-1], [*value, None]]
    elif isinstance(value, dict):
        near = [{**value, "x": 1}, dict(list(value.items())[1:]), []]
    else:
        near = [*NUMBERS, *TEXTS, [], {}]
    elsewhere = copy.deepcopy(at_path(statement, source.choice(same)))
    return source.choices([source.choice(near), elsewhere, None], weights=[6, 3, 1])[0]


def mutated(statement: Object, source: random.Random) -> tuple[Object, str]:
    """The statement with another value in one field, and all that the forger can make fit to it."""
    forged = copy.deepcopy(statement)
    by_name: dict[str, list[Path_]] = {}
    for path in paths_of(forged):
        by_name.setdefault(str([step for step in path[-3:] if isinstance(step, str)]), []).append(path)
    path = source.choice(by_name[source.choice(sorted(by_name))])
    value = other_value(forged, path, at_path(forged, path), source)
    at_path(forged, path[:-1])[path[-1]] = value
    for repair in source.choice(REPAIRS):
        try:
            repair(forged)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError):
            continue
        except (second.InvalidError, second.UnreadableError):
            continue
    return forged, f"{path} = {value!a}"[:300]
