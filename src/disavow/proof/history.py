"""A log read from its first leaf to its last: which rounds stand, which model is served, which key signs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from disavow.errors import VerificationError
from disavow.proof.leaves import (
    MAPPED,
    ClosedRound,
    ClosedWithdrawal,
    KeyLeaf,
    LoggedPolicy,
    LogLeaf,
    PurgeLeaf,
    RebuiltLeaf,
    RollbackLeaf,
    RoundLeaf,
    RunLeaf,
    WithdrawalLeaf,
    is_exact,
)
from disavow.proof.notes import PublicKey
from disavow.proof.withdrawal_slots import Entries, read_slots

AnyRound = RoundLeaf | RebuiltLeaf | ClosedRound
AnyWithdrawal = WithdrawalLeaf | ClosedWithdrawal
Undoing = RollbackLeaf | PurgeLeaf


@dataclass
class History:
    """What the leaves come to. Leaves are referred to by their places in the log.

    Args:
        leaves: The whole log.
        promised: Leaf 0.
        key: The key that signs after the last leaf.
        model: The model that is served after the last leaf.
        rounds: The leaves of all rounds, rebuilt ones too, by their places, in order.
        standing: The places of the rounds that stand.
        withdrawals: The leaves of all withdrawals, by their places, in order.
        entries: The slots that each of them withdraws; none in a log of version 3.
        undone: Models of rounds that were undone.
        undone_by: The place of the rollback or purge that undid a round, by the place of the round.
        due: The last round that was undone since the last round with clusters: no later one is rebuilt.
        first_withdrawn: The first standing round from which a slot was withdrawn; None where there is none. It is
            kept and not looked for: a hostile log may have a purge behind every round.

    """

    leaves: Sequence[LogLeaf]
    promised: RunLeaf
    key: PublicKey | None
    model: str
    rounds: dict[int, AnyRound] = field(default_factory=dict)
    standing: list[int] = field(default_factory=list)
    withdrawals: dict[int, AnyWithdrawal] = field(default_factory=dict)
    entries: dict[int, Entries] = field(default_factory=dict)
    undone: set[str] = field(default_factory=set)
    undone_by: dict[int, int] = field(default_factory=dict)
    due: int = 0
    first_withdrawn: int | None = None

    @property
    def policy(self) -> LoggedPolicy:
        """What was promised in leaf 0."""
        return self.promised.policy

    @property
    def rebuilt(self) -> int:
        """How many of the standing rounds were rebuilt approximately."""
        return sum(isinstance(leaf, RebuiltLeaf) for leaf in self.standing_leaves)

    @property
    def standing_leaves(self) -> list[AnyRound]:
        """The leaves of the rounds that stand."""
        return [self.rounds[place] for place in self.standing]

    def unchanged(self, behind: int) -> list[int]:
        """Find the standing rounds behind a withdrawal or a purge that end in a model of before it that was undone.

        Args:
            behind: The place of its leaf.

        """
        standing = set(self.standing)
        earlier = [place for place in self.rounds if place < behind]
        undone = {self.rounds[place].after for place in earlier if place not in standing}
        undone -= {self.rounds[place].after for place in earlier if place in standing}
        undone.discard(self.promised.initial_model)
        return [place for place in self.standing if place > behind and self.rounds[place].after in undone]

    def rollback_after(self, withdrawal: int) -> int | None:
        """Find the round to which a withdrawal rolled back; None if it did not.

        Args:
            withdrawal: The place of its leaf.

        """
        following = self.leaves[withdrawal + 1] if withdrawal + 1 < len(self.leaves) else None
        return following.to if isinstance(following, RollbackLeaf) else None


def replay(leaves: Sequence[LogLeaf]) -> History:
    """Go through the leaves of a log, each of which must follow from those before it.

    Args:
        leaves: The whole log; some rounds and withdrawals may be closed.

    Raises:
        VerificationError: A leaf cannot follow those before it, or one is closed that must be shown.

    """
    if not leaves or not isinstance(leaves[0], RunLeaf):
        raise VerificationError("the log does not begin with the run's promises")
    history = History(leaves, leaves[0], leaves[0].key, leaves[0].initial_model)
    attempts: Counter[int] = Counter()
    latest, keys = leaves[0].time, {history.key}
    for place, leaf in enumerate(leaves[1:], start=1):
        if isinstance(leaf, RunLeaf):
            raise VerificationError(f"leaf {place} is a second beginning")
        if leaf.time and leaf.time < latest[: len(leaf.time)]:  # of a day, the time of day is not known
            raise VerificationError(f"leaf {place} is older than one before it")
        latest = max(latest, leaf.time)
        if isinstance(leaf, AnyRound):
            attempts[leaf.number] += 1
            _check_follows(history, place, leaf, attempts[leaf.number])
            if isinstance(leaf, RoundLeaf):
                _check_round(history, leaf)
                history.due = 0
            elif isinstance(leaf, ClosedRound):
                _check_closed(history, leaf)
                history.due = 0
            else:
                _check_rebuilt(history, place, leaf)
            history.rounds[place] = leaf
            history.standing.append(place)
            history.model = leaf.after
        elif isinstance(leaf, AnyWithdrawal):
            _check_withdrawal(history, place, leaf)
            history.withdrawals[place] = leaf
        elif isinstance(leaf, RollbackLeaf):
            _check_rollback(history, place, leaf)
            _undo(history, place, leaf)
        elif isinstance(leaf, PurgeLeaf):
            _check_purge(history, place, leaf)
            _undo(history, place, leaf)
        else:
            _check_key(place, leaf, keys)
            history.key = leaf.key
            keys.add(leaf.key)
    _check_end(history)
    return history


def _undo(history: History, place: int, leaf: Undoing) -> None:
    """Undo the standing rounds from that of the leaf on."""
    history.due = max(history.due, len(history.standing))
    gone = history.standing[leaf.to - 1 :]
    history.undone |= {history.rounds[undone].after for undone in gone}
    history.undone_by |= dict.fromkeys(gone, place)
    del history.standing[leaf.to - 1 :]
    if history.first_withdrawn is not None and history.first_withdrawn >= leaf.to:
        history.first_withdrawn = None
    last = history.rounds[history.standing[-1]].after if history.standing else None
    history.model = last or history.promised.initial_model


def _check_end(history: History) -> None:
    """The last leaf and the last round are shown: the log's latest time is in them."""
    last = [history.leaves[-1], *list(history.rounds.values())[-1:]]
    if any(isinstance(leaf, ClosedRound | ClosedWithdrawal) for leaf in last):
        raise VerificationError("the last leaf, or the last round, is closed: nothing says how old the log is")


def _check_follows(history: History, place: int, leaf: AnyRound, attempt: int) -> None:
    """It is the round that is due, in the attempt that is due, from the model before it."""
    number, expected = leaf.number, len(history.standing) + 1
    if number != expected:
        raise VerificationError(f"leaf {place} is round {number} where round {expected} is due: there is a gap")
    if leaf.attempt != attempt:
        raise VerificationError(f"leaf {place} is attempt {leaf.attempt} of round {number}, not {attempt}")
    if leaf.before != history.model:
        raise VerificationError(f"round {number} does not start from the model before it")


def _check_round(history: History, leaf: RoundLeaf) -> None:
    number, policy = leaf.number, history.policy
    k, delta = policy.k, policy.delta
    if (leaf.version is None) != (history.promised.version == MAPPED):
        raise VerificationError(f"round {number} is of another version than its log")
    if policy.relative_delta is not None:
        delta = policy.relative_delta * leaf.update_norm
    least, most = policy.cluster_sizes
    if not least * leaf.clusters <= leaf.participants <= most * leaf.clusters:
        raise VerificationError(f"round {number} cannot have clusters of at least {k} and fewer than {2 * k}")
    if delta is not None and leaf.delta != delta:
        raise VerificationError(f"round {number} has Δ {leaf.delta}; the policy makes it {delta}")
    if leaf.pairs_within > 1:
        raise VerificationError(f"round {number} has more pairs within Δ than there are")
    if leaf.tau > 0 and leaf.after in history.undone and leaf.after != leaf.before:
        raise VerificationError(
            f"round {number} ends, noise and all, in a model that was undone: it was not retrained"
        )


def _check_closed(history: History, leaf: ClosedRound) -> None:
    """A round that ends in a model that was undone is shown: what is allowed there depends on its noise."""
    if leaf.after in history.undone and leaf.after != leaf.before:
        raise VerificationError(f"round {leaf.number} ends in a model that was undone, and is closed")


def _check_rebuilt(history: History, place: int, leaf: RebuiltLeaf) -> None:
    """Only after a rollback, before anything else is trained, and not beyond what was undone."""
    number, policy = leaf.number, history.policy
    if leaf.mechanism != policy.mechanism:
        raise VerificationError(
            f"round {number} was rebuilt by {leaf.mechanism}, and the policy says {policy.mechanism}"
        )
    if leaf.participants < policy.k:
        raise VerificationError(
            f"round {number} was rebuilt with {leaf.participants} clients, fewer than k = {policy.k}"
        )
    if number > history.due:
        raise VerificationError(f"leaf {place} is a rebuilt round {number} that no rollback has undone")
    if leaf.after in history.undone and leaf.after != leaf.before:
        raise VerificationError(f"round {number} ends in a model that was undone: it was not rebuilt")


def _check_withdrawal(history: History, place: int, leaf: AnyWithdrawal) -> None:
    if leaf.rounds != len(history.rounds):
        raise VerificationError(f"leaf {place} counts {leaf.rounds} rounds; there were {len(history.rounds)}")
    if isinstance(leaf, WithdrawalLeaf):
        if not leaf.requests:
            raise VerificationError(f"leaf {place} is a withdrawal that nobody asked for")
        if any(request.asked_at > leaf.at for request in leaf.requests):
            raise VerificationError(f"leaf {place} answers a request before it was asked")
    if leaf.rolls_back != (history.rollback_after(place) is not None):
        raise VerificationError(f"leaf {place} is a withdrawal whose rollback is left out, or was not due")
    if (leaf.slots is None) != (history.promised.version == MAPPED):
        raise VerificationError(f"leaf {place} is a withdrawal of another version than its log")
    if leaf.slots is not None:
        entries = history.entries[place] = read_slots(leaf.slots)
        touched = set(entries.positions)
        if not history.rounds.keys() >= touched:
            raise VerificationError(f"leaf {place} withdraws slots from what is no round before it")
        numbers = [history.rounds[at].number for at in touched if at not in history.undone_by]
        known = [] if history.first_withdrawn is None else [history.first_withdrawn]
        history.first_withdrawn = min([*known, *numbers], default=None)


def _check_rollback(history: History, place: int, leaf: RollbackLeaf) -> None:
    if leaf.withdrawal != place - 1 or place - 1 not in history.withdrawals:
        raise VerificationError(f"leaf {place} is a rollback without its withdrawal")
    if leaf.to > len(history.standing):
        raise VerificationError(f"leaf {place} rolls back to round {leaf.to}, which does not stand")


def _check_purge(history: History, place: int, leaf: PurgeLeaf) -> None:
    """It leaves no round standing from which a slot was withdrawn, and what it undoes is trained again exactly."""
    if history.promised.version == MAPPED:
        raise VerificationError(f"leaf {place} is a purge in a log of version {MAPPED}, which has none")
    if not is_exact(history.policy.mechanism):
        raise VerificationError(f"leaf {place} is a purge, and {history.policy.mechanism} does not retrain exactly")
    if leaf.to > len(history.standing):
        raise VerificationError(f"leaf {place} purges from round {leaf.to} on, which does not stand")
    first = history.first_withdrawn
    if first is not None and first < leaf.to:
        raise VerificationError(
            f"leaf {place} purges from round {leaf.to} on, and leaves round {first} with a withdrawn slot"
        )


def _check_key(place: int, leaf: KeyLeaf, keys: set[PublicKey | None]) -> None:
    if leaf.key in keys:
        raise VerificationError(f"leaf {place} brings back a key that was replaced, or replaces none")
