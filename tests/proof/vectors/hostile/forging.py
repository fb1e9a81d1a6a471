"""Vectors made from a proof that holds by changing it, and what several kinds of forgery share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from disavow.proof import canonical
from tests.proof.made_proofs import Made, tell_bounds
from tests.proof.vectors.valid import (
    LEAVER,
)
from tests.proof.vectors.vector import Vector
from tests.proof.world import World

Edit = Callable[[dict[str, Any]], object]


def vector_of(made: Made, name: str, about: str, fails: str, proof: bytes | None = None, **more: Any) -> Vector:
    files = {"opening": made.opening.encode(), "what_if": made.what_if, **more}
    if isinstance(files.get("checkpoint"), str):
        files["checkpoint"] = files["checkpoint"].encode()
    return Vector(name, about, made.proof if proof is None else proof, fails, **files)


def edited(made: Made, name: str, about: str, fails: str, edit: Edit, *, relogged: bool = False) -> Vector:
    return vector_of(made, name, about, fails, made.forged(edit, relogged=relogged))


def in_predicate(**values: Any) -> Edit:
    return lambda statement: statement["predicate"].update(values)


def in_cluster(**values: Any) -> Edit:
    return lambda statement: statement["predicate"]["clusters"][0].update(values)


def in_leaf(place: int, **values: Any) -> Edit:
    return lambda statement: statement["predicate"]["leaves"][place].update(values)


def without_leaf(place: int) -> Edit:
    return lambda statement: statement["predicate"]["leaves"].pop(place)


def leaf_without(place: int, name: str) -> Edit:
    return lambda statement: statement["predicate"]["leaves"][place].pop(name)


def mate_in_first(world: World) -> str:
    """Somebody who shared the leaver's cluster in round 1."""
    past = world.pasts[0]
    return next(name for name in past.group_of(past.slots[LEAVER]).clients if name not in world.gone)


def hidden(world: World, count: int) -> Edit:
    """The first clusters left out, and everything else told as it must be then."""

    def edit(statement: dict[str, Any]) -> None:
        predicate = statement["predicate"]
        del predicate["clusters"][:count]
        predicate["maps"] = world.maps({cluster["leaf"] for cluster in predicate["clusters"]})
        tell_bounds(predicate)

    return edit


def changed_receipt(receipt: bytes, **values: Any) -> bytes:
    return canonical.encode({**json.loads(receipt), **values})


EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
