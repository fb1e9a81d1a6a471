"""A log read from its first leaf to its last: which rounds stand, which model is served, which key signs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from disavow.errors import VerificationError
from disavow.proof.leaves import Leaf, cluster_sizes, time_of
from disavow.proof.notes import PublicKey


@dataclass
class History:
    """What the leaves come to. `rounds` are the places of the leaves of all rounds, rebuilt ones too; `standing` of
    those that stand.
    """

    leaves: Sequence[Leaf]
    key: PublicKey | None
    model: str
    rounds: list[int] = field(default_factory=list)
    standing: list[int] = field(default_factory=list)
    withdrawals: list[int] = field(default_factory=list)
    undone: set[str] = field(default_factory=set)
    """Models of rounds that were undone."""
    due: int = 0
    """The last round that the rollbacks since the last round with clusters undid: no later one is rebuilt."""

    @property
    def policy(self) -> dict[str, Any]:
        """What was promised in leaf 0."""
        return dict(self.leaves[0]["policy"])

    @property
    def run_id(self) -> str:
        """Which run it is."""
        return str(self.leaves[0]["run"])

    @property
    def rebuilt(self) -> int:
        """How many of the standing rounds were rebuilt approximately."""
        return sum(self.is_rebuilt(place) for place in self.standing)

    @property
    def standing_leaves(self) -> list[Leaf]:
        """The leaves of the rounds that stand."""
        return [self.leaves[place] for place in self.standing]

    def is_rebuilt(self, place: int) -> bool:
        """Whether a leaf is that of a rebuilt round."""
        return bool(self.leaves[place]["type"] == "rebuilt")

    @property
    def signed_late(self) -> bool:
        """Whether nothing bound the server when the run began."""
        return self.leaves[0]["key"] is None

    def unchanged(self, withdrawal: int) -> list[int]:
        """The standing rounds behind a withdrawal that end in a model of before it which was undone."""
        standing = set(self.standing)
        earlier = [place for place in self.rounds if place < withdrawal]
        undone = {self.leaves[place]["after"] for place in earlier if place not in standing}
        undone -= {self.leaves[place]["after"] for place in earlier if place in standing}
        undone.discard(self.leaves[0]["initial_model"])
        return [place for place in self.standing if place > withdrawal and self.leaves[place]["after"] in undone]

    def rollback_after(self, withdrawal: int) -> int | None:
        """The round to which a withdrawal rolled back; None if it did not."""
        following = self.leaves[withdrawal + 1] if withdrawal + 1 < len(self.leaves) else {"type": ""}
        return int(following["to"]) if following["type"] == "rollback" else None


def replay(leaves: Sequence[Leaf]) -> History:
    """Go through the leaves; `VerificationError` where one cannot follow those before it."""
    if not leaves or leaves[0]["type"] != "run":
        raise VerificationError("the log does not begin with the run's promises")
    history = History(leaves, leaves[0]["key"], leaves[0]["initial_model"])
    attempts: Counter[int] = Counter()
    latest, keys = time_of(leaves[0]), {history.key}
    for place, leaf in enumerate(leaves[1:], start=1):
        if leaf["type"] == "run":
            raise VerificationError(f"leaf {place} is a second beginning")
        if leaf["at"] < latest[: len(leaf["at"])]:  # of a day, the time of day is not known
            raise VerificationError(f"leaf {place} is older than one before it")
        latest = max(latest, leaf["at"])
        if leaf["type"] in ("round", "rebuilt"):
            attempts[leaf["number"]] += 1
            _follows(history, place, leaf, attempts[leaf["number"]])
            (_round if leaf["type"] == "round" else _rebuilt)(history, place, leaf)
            history.rounds.append(place)
            history.standing.append(place)
            history.model = leaf["after"]
        elif leaf["type"] == "withdrawal":
            _withdrawal(history, place, leaf)
        elif leaf["type"] == "rollback":
            _rollback(history, place, leaf)
        else:
            if leaf["key"] in keys:
                raise VerificationError(f"leaf {place} brings back a key that was replaced, or replaces none")
            history.key = leaf["key"]
            keys.add(history.key)
    return history


def _follows(history: History, place: int, leaf: Leaf, attempt: int) -> None:
    """The round that is due, in the attempt that is due, from the model before it."""
    number, expected = leaf["number"], len(history.standing) + 1
    if number != expected:
        raise VerificationError(f"leaf {place} is round {number} where round {expected} is due: there is a gap")
    if leaf["attempt"] != attempt:
        raise VerificationError(f"leaf {place} is attempt {leaf['attempt']} of round {number}, not {attempt}")
    if leaf["before"] != history.model:
        raise VerificationError(f"round {number} does not start from the model before it")


def _round(history: History, _: int, leaf: Leaf) -> None:
    number, k, delta = leaf["number"], history.policy["k"], history.policy["delta"]
    if history.policy["relative_delta"] is not None:
        delta = history.policy["relative_delta"] * leaf["update_norm"]
    least, most = cluster_sizes(history.policy)
    if not least * leaf["clusters"] <= leaf["participants"] <= most * leaf["clusters"]:
        raise VerificationError(f"round {number} cannot have clusters of at least {k} and fewer than {2 * k}")
    if delta is not None and leaf["delta"] != delta:
        raise VerificationError(f"round {number} has Δ {leaf['delta']}; the policy makes it {delta}")
    if leaf["pairs_within"] > 1:
        raise VerificationError(f"round {number} has more pairs within Δ than there are")
    if leaf["tau"] > 0 and leaf["after"] in history.undone and leaf["after"] != leaf["before"]:
        raise VerificationError(
            f"round {number} ends, noise and all, in a model that was undone: it was not retrained"
        )
    history.due = 0


def _rebuilt(history: History, place: int, leaf: Leaf) -> None:
    """Only after a rollback, before anything else is trained, and not beyond what was undone."""
    number, k = leaf["number"], history.policy["k"]
    if leaf["mechanism"] != history.policy["mechanism"]:
        raise VerificationError(
            f"round {number} was rebuilt by {leaf['mechanism']}, and the policy says {history.policy['mechanism']}"
        )
    if leaf["participants"] < k:
        raise VerificationError(
            f"round {number} was rebuilt with {leaf['participants']} clients, fewer than k = {k}"
        )
    if number > history.due:
        raise VerificationError(f"leaf {place} is a rebuilt round {number} that no rollback has undone")
    if leaf["after"] in history.undone and leaf["after"] != leaf["before"]:
        raise VerificationError(f"round {number} ends in a model that was undone: it was not rebuilt")


def _withdrawal(history: History, place: int, leaf: Leaf) -> None:
    if leaf["rounds"] != len(history.rounds):
        raise VerificationError(f"leaf {place} counts {leaf['rounds']} rounds; there were {len(history.rounds)}")
    if not leaf["requests"]:
        raise VerificationError(f"leaf {place} is a withdrawal that nobody asked for")
    if any(request["asked_at"] > leaf["at"] for request in leaf["requests"]):
        raise VerificationError(f"leaf {place} answers a request before it was asked")
    due = any(request["verdict"] == "rollback" for request in leaf["requests"])
    history.withdrawals.append(place)
    if due != (history.rollback_after(place) is not None):
        raise VerificationError(f"leaf {place} is a withdrawal whose rollback is left out, or was not due")


def _rollback(history: History, place: int, leaf: Leaf) -> None:
    if leaf["withdrawal"] != place - 1 or history.leaves[place - 1]["type"] != "withdrawal":
        raise VerificationError(f"leaf {place} is a rollback without its withdrawal")
    if leaf["to"] > len(history.standing):
        raise VerificationError(f"leaf {place} rolls back to round {leaf['to']}, which does not stand")
    history.due = max(history.due, len(history.standing))
    history.undone |= {history.leaves[undone]["after"] for undone in history.standing[leaf["to"] - 1 :]}
    del history.standing[leaf["to"] - 1 :]
    last = history.leaves[history.standing[-1]]["after"] if history.standing else None
    history.model = last or history.leaves[0]["initial_model"]
