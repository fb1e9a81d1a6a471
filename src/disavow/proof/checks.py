"""The checks of a verification: one list of functions, `CHECKS`, numbered by their place in it from 1.

Nothing is believed before it is checked: numbers are counted again from what the log commits to, and the log is
rebuilt from its leaves. Each check returns what it found in words, None where there was nothing to check, and
raises `VerificationError` where the proof does not hold; it may use what those before it have found sound.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby

from disavow.errors import OtherModel, Unreadable, VerificationError
from disavow.proof.bounds import bounds_of, chance_drawn, largest_displacement, total_ratio, within_odds
from disavow.proof.commitment import close_records, commit, commit_client, commit_records
from disavow.proof.cosignatures import Cosignature, cosigners
from disavow.proof.envelope import Envelope
from disavow.proof.history import AnyRound, History, replay
from disavow.proof.leaves import (
    MAPPED,
    UNTOUCHED,
    VERSION,
    ClosedRound,
    KeyLeaf,
    LoggedPolicy,
    LogLeaf,
    PurgeLeaf,
    RollbackLeaf,
    RoundLeaf,
    RunLeaf,
    WithdrawalLeaf,
    commit_rounds,
    latest_time,
    log_size,
    open_log,
    sized,
    withdrawn_entry,
    withdrawn_inner,
)
from disavow.proof.merkle import HASH_BYTES, Changing, Growing, Prefixes, leaf_hash, root_by_cover
from disavow.proof.noise import check_noise
from disavow.proof.notes import (
    Checkpoint,
    KeyIndex,
    PublicKey,
    open_checkpoint,
    open_with_any,
    origin_of,
    read_note,
)
from disavow.proof.opening import Opening, refuse_other_client
from disavow.proof.receipt import Receipt, check_receipt, decode_receipt
from disavow.proof.report import Report, VerificationInputs
from disavow.proof.serving import Serving, SignedServing
from disavow.proof.statement import (
    AnyCluster,
    AnyPredicate,
    AnyStatement,
    ErasedRecords,
    LeaverRounds,
    MappedCluster,
    MappedPredicate,
    Predicate,
    Times,
    TotalBounds,
    WithdrawnSlot,
    decode_statement,
)
from disavow.proof.summary import (
    count_records,
    delta_in_words,
    erased_records,
    purged_in_words,
    rebuilt_in_words,
    records_in_words,
    unchanged_in_words,
)
from disavow.proof.validation import day_of, write_figure
from disavow.proof.word import SignedWord

_WITNESSES_SHOWN = 10


class Verification:
    """The inputs, and what the checks so far have found sound; each is set by the check that is named."""

    envelope: Envelope  # readable
    signer: PublicKey  # signature
    statement: AnyStatement
    leaves: list[LogLeaf]  # log
    head: Checkpoint  # checkpoint
    promised: RunLeaf  # log
    prefixes: Prefixes  # log
    history: History  # rounds
    shown: list[tuple[AnyCluster, RoundLeaf]]  # clusters

    def __init__(self, inputs: VerificationInputs, report: Report) -> None:
        self.inputs, self.report = inputs, report
        self.keys = KeyIndex.of(inputs.trusted)

    @property
    def predicate(self) -> AnyPredicate:
        """What the statement says."""
        return self.statement.predicate


# -- 1 to 3: the file ----------------------------------------------------------------------------------------------


def check_readable(v: Verification) -> str:
    """The proof is an envelope in canonical form, within the limits."""
    v.envelope = Envelope.decode(v.inputs.proof)
    return f"{len(v.inputs.proof):,} bytes in canonical form"


def check_signature(v: Verification) -> str:
    """It is signed by a key that is trusted, and was not revoked."""
    v.signer = v.envelope.signer([trusted.key for trusted in v.inputs.trusted])
    v.keys.refuse_revoked(v.signer, "the proof")
    return f"by {v.signer.name} ({v.signer.id[:16]})"


def check_statement(v: Verification) -> str:
    """The statement is of a type and version that is known, and of the kind that was asked for."""
    v.statement = v.report.statement = decode_statement(v.envelope.statement)
    if v.statement.what_if and not v.inputs.what_if:
        raise VerificationError("this is a what-if about a client that is still in: nothing was erased")
    if v.inputs.what_if and not v.statement.what_if:
        raise VerificationError("this is an erasure, not a what-if")
    version = MAPPED if isinstance(v.predicate, MappedPredicate) else VERSION
    return f"{'what-if' if v.statement.what_if else 'erasure'}, version {version}"


# -- 4 to 8: the log -----------------------------------------------------------------------------------------------


def check_checkpoint(v: Verification) -> str:
    """The head, signed by the same key, covers the leaves shown."""
    head = open_checkpoint(v.predicate.checkpoint, v.signer)
    size = log_size(v.predicate.leaves)
    if head.size != size:
        raise VerificationError(f"it covers {head.size} leaves; {size} are shown")
    v.head = v.report.head = head
    return f"of {head.size} leaves, by {v.signer.name}"


def check_log(v: Verification) -> str:
    """The root rebuilt from all leaves is the one signed."""
    v.leaves = (
        list(v.predicate.leaves) if isinstance(v.predicate, MappedPredicate) else open_log(v.predicate.leaves)
    )
    v.prefixes = Prefixes([leaf.hash for leaf in v.leaves])
    if v.prefixes.root(len(v.leaves)) != v.head.root:
        raise VerificationError("the leaves do not have the root that was signed")
    if not v.leaves or not isinstance(v.leaves[0], RunLeaf):
        raise VerificationError("the log does not begin with the run's promises")
    v.promised = v.leaves[0]
    if (v.promised.version == MAPPED) != isinstance(v.predicate, MappedPredicate):
        raise VerificationError("the proof is of another version than the log")
    if v.head.origin != origin_of(v.promised.run):
        raise VerificationError("the checkpoint is of another run's log")
    return "the root rebuilt from all leaves is the one signed"


def check_history(v: Verification) -> str | None:
    """A checkpoint that somebody kept is a prefix of this log."""
    if v.inputs.checkpoint is None:
        return None
    try:
        note = v.inputs.checkpoint.decode("utf-8")
    except UnicodeDecodeError:
        raise Unreadable("the older checkpoint is not UTF-8") from None
    kept = open_with_any(note, v.keys, "the older checkpoint", cosigned=True)
    if kept.origin != v.head.origin:
        raise VerificationError("the older checkpoint is of another run's log")
    if kept.size > len(v.leaves):
        raise VerificationError(f"the older checkpoint has {kept.size} leaves, more than this log")
    if v.prefixes.root(kept.size) != kept.root:
        raise VerificationError(f"the first {kept.size} leaves are not those of the older checkpoint: a fork")
    withdrawal = v.predicate.withdrawal
    before = (
        "" if withdrawal is None else f", signed {'before' if kept.size <= withdrawal else 'after'} the withdrawal"
    )
    return f"the older checkpoint of {kept.size} leaves is a prefix{before}"


def check_policy(v: Verification) -> str:
    """The promises and the key are those of the log."""
    policy = v.promised.policy
    k, x, drawn = policy.k, policy.x, policy.representatives
    if policy.survivors_needed > k or (drawn >= k and drawn > 1):
        raise VerificationError(f"k = {k}, x = {x} and {drawn} representatives do not go together")
    if policy.delta is not None and policy.relative_delta is not None:
        raise VerificationError("Δ is said to be fixed and relative")
    if policy.odds is not None and policy.odds < 1:
        raise VerificationError(f"odds are at least 1, and {policy.odds:g} are promised")
    keys = [leaf.key for leaf in v.leaves if isinstance(leaf, RunLeaf | KeyLeaf)]
    if keys[-1] is not None and keys[-1] != v.signer:
        raise VerificationError("the log is to be signed with another key than the one that signed the proof")
    last = latest_time(v.leaves)
    mine = [trusted for trusted in v.inputs.trusted if trusted.key == v.signer]
    if keys[-1] is not None:
        allowed = any(trusted.in_use(last) for trusted in mine)
    else:  # it was signed late, nobody knows when, but after its last leaf: the key may be younger than that
        allowed = not all(trusted.retired_before(last) for trusted in mine)
    if not allowed:
        raise VerificationError(f"the key that signed was not in use at {last}, the time of the last leaf")
    late = "; signed late: no key bound the server when the run began" if keys[0] is None else ""
    limit = "" if policy.odds is None else f", odds of at most {policy.odds:g}"
    frozen = "" if v.promised.frozen is None else f"; frozen parameters {v.promised.frozen[:16]}"
    promise = f"k = {k}, x = {x}, {drawn} drawn of each cluster, Δ {delta_in_words(policy)}{limit}"
    return f"{promise}, from leaf 0{frozen}{late}"


def check_rounds(v: Verification) -> str:
    """Standing rounds run from 1 to the head without gap, each from the model before it."""
    v.history = v.report.history = replay(v.leaves)
    times, now = [leaf.time for leaf in v.leaves], v.inputs.now
    ahead = [time for time in times if now is not None and time > now]
    if ahead:
        v.report.warnings.append(
            f"{len(ahead)} of {len(times)} leaves are dated in the future, the last {ahead[-1]}: "
            "the clock of the server, or yours, or its word is wrong"
        )
    rebuilt = v.history.rebuilt
    found = f"{len(v.history.standing)} stand, without gap, from the initial model to the one served"
    return f"{found}; {rebuilt_in_words(rebuilt)}" if rebuilt else found


# -- 9 to 12: the leaver's clusters --------------------------------------------------------------------------------


def check_clusters(v: Verification) -> str:
    """The leaver's clusters and all who were withdrawn lead to their roots."""
    history, clusters, standing = v.history, v.predicate.clusters, set(v.history.standing)
    positions = [cluster.leaf for cluster in clusters]
    if positions != sorted(set(positions)):
        raise VerificationError("clusters are not in the order of their rounds, one for each")
    v.shown = []
    for cluster in clusters:
        if cluster.leaf not in standing:
            raise VerificationError(f"a cluster is of leaf {cluster.leaf}, which is no standing round")
        leaf = history.rounds[cluster.leaf]
        if isinstance(leaf, ClosedRound):
            raise VerificationError(f"a cluster is of leaf {cluster.leaf}, which is closed")
        if not isinstance(leaf, RoundLeaf):
            raise VerificationError(
                f"the leaver is in round {leaf.number}, which was rebuilt and stands: nobody is deniable in it"
            )
        _check_cluster(cluster, leaf, history.policy)
        v.shown.append((cluster, leaf))
    if isinstance(v.predicate, MappedPredicate):
        _check_maps(v, v.predicate)
        _check_mapped_slots(v, v.predicate)
    else:
        v.report.withdrawn = _count_withdrawn(v.history, v.shown)
        _check_leaver_slots(v, v.predicate)
    return f"{len(clusters)} clusters lead to their rounds, and those withdrawn from them to every withdrawal"


def _check_cluster(cluster: AnyCluster, leaf: RoundLeaf, policy: LoggedPolicy) -> None:
    """The leaver's cluster, all its slots open, lies in its round and holds the leaver's slot."""
    first, size, position = cluster.first, cluster.size, cluster.position
    if len(cluster.slots) != size or len(set(cluster.slots)) != size:
        raise _refuse(leaf, "a cluster does not list all its slots, each once")
    if not 0 < cluster.weight <= 1:
        raise _refuse(leaf, f"a cluster has a share of {cluster.weight} of the data")
    if leaf.clusters == 1 and policy.clustering != "fixed" and cluster.weight != 1:
        raise _refuse(leaf, f"its only cluster has a share of {cluster.weight} of the data")
    (least, most), behind = policy.cluster_sizes, leaf.clusters - position - 1
    left = leaf.participants - first - size
    if not (
        least <= size <= most
        and least * position <= first <= most * position
        and least * behind <= left <= most * behind
    ):
        raise _refuse(leaf, f"cluster {position} has {size} slots from {first} on, which cannot be")
    try:
        root = cluster.root(leaf.clusters)
    except ValueError as error:
        raise _refuse(leaf, f"the path of a cluster cannot be: {error}") from None
    if root != leaf.root:
        raise _refuse(leaf, "a cluster does not lead to the root of the round")
    if not cluster.holds(cluster.slot):
        raise _refuse(leaf, "the leaver's slot is not in the leaver's cluster")


def _count_withdrawn(history: History, shown: Collection[tuple[AnyCluster, RoundLeaf]]) -> list[int]:
    """Count who was withdrawn from each cluster shown, over all withdrawals behind its round.

    Every withdrawal's leaf, closed or not, says from which rounds it withdrew, and the leaf of a round that is
    shown takes the mask off the positions of the clusters (docs/proof-format.md, "Withdrawn slots").
    """
    by_place = {cluster.leaf: (cluster, leaf) for cluster, leaf in shown}
    gone = dict.fromkeys(by_place, 0)
    for place, entries in history.entries.items():
        for index, at in enumerate(entries.positions):
            if at not in by_place:
                continue
            cluster, leaf = by_place[at]
            position = entries.position(index, leaf.root, place)
            if position >= leaf.clusters:
                raise _refuse(leaf, f"a slot is withdrawn from cluster {position}, which is not there")
            gone[at] += position == cluster.position
    return list(gone.values())


def _check_leaver_slots(v: Verification, said: Predicate) -> None:
    """The leaver's withdrawal has an entry for each of its slots; of a what-if, there is none to show."""
    if v.statement.what_if:
        if said.cover or any(cluster.entry is not None or cluster.salt is not None for cluster in said.clusters):
            raise VerificationError("nobody was withdrawn, and a what-if shows entries of a withdrawal")
        return
    place = said.withdrawal or 0
    leaf, entries = v.history.withdrawals.get(place), v.history.entries.get(place)
    if entries is None or not isinstance(leaf, WithdrawalLeaf):
        raise VerificationError("the proof does not point to a withdrawal that it shows")
    opened = {}
    for cluster, (_, round_leaf) in zip(said.clusters, v.shown, strict=True):
        index, salt = cluster.entry, cluster.salt
        if (
            index is None
            or salt is None
            or index >= len(entries.positions)
            or entries.positions[index] != cluster.leaf
        ):
            raise _refuse(round_leaf, "the leaver's slot was not withdrawn when the leaver asked")
        if entries.position(index, round_leaf.root, place) != cluster.position:
            raise _refuse(round_leaf, "the leaver's slot was withdrawn from another cluster")
        opened[index] = leaf_hash(withdrawn_inner(salt, cluster.slot))
    if len(said.cover) % HASH_BYTES:
        raise VerificationError("the cover of the leaver's withdrawal has half a hash")
    cover = [said.cover[at : at + HASH_BYTES] for at in range(0, len(said.cover), HASH_BYTES)]
    try:
        root = root_by_cover(opened, len(entries.positions), cover)
    except ValueError as error:
        raise VerificationError(f"the cover of the leaver's withdrawal cannot be: {error}") from None
    if root != leaf.root:
        raise VerificationError("the leaver's slots do not lead to the root of its withdrawal")


def _check_mapped_slots(v: Verification, said: MappedPredicate) -> None:
    """The leaver's slots were withdrawn by its withdrawal, in a log of version 3."""
    for cluster in said.clusters:
        by = [entry.leaf for entry in cluster.withdrawn if entry.slot == cluster.slot]
        if by != ([] if v.statement.what_if else [said.withdrawal]):
            raise VerificationError(
                f"the leaver's slot in leaf {cluster.leaf} was not withdrawn when the leaver asked"
            )


def _check_maps(v: Verification, said: MappedPredicate) -> None:
    """The withdrawn slots shown are in the maps of all withdrawals, the first as well as the last.

    A map holds one value for each round before its withdrawal (docs/proof-format.md, "The map of withdrawals"). Of
    rounds that are shown the values are computed from their entries, of all others they are given in `maps`.
    """
    maps, history = said.maps, v.history
    if len(maps) != len(history.withdrawals):
        raise VerificationError("there is not one map for each withdrawal")
    ordinal = {place: i for i, place in enumerate(history.rounds)}
    shown = {cluster.leaf for cluster, _ in v.shown}
    rounds_not_shown = [place for place in history.rounds if place not in shown]
    values_shown: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for cluster, (_, leaf) in zip(said.clusters, v.shown, strict=True):
        for place, value in _withdrawn_values(cluster, leaf, history.withdrawals):
            values_shown[place].append((cluster.leaf, value))
    tree, latest = Changing(), dict[int, bytes]()
    for (place, withdrawal), values in zip(history.withdrawals.items(), maps, strict=True):
        if len(values) != bisect_left(rounds_not_shown, place):
            raise VerificationError(f"the map of leaf {place} does not have one value for each closed round")
        while tree.size < withdrawal.rounds:
            tree.put(tree.size, leaf_hash(UNTOUCHED))
        values_given = [
            (at, value) for at, value in zip(rounds_not_shown, values, strict=False) if value is not None
        ]
        if any(value == latest.get(at, UNTOUCHED) for at, value in values_given):
            raise VerificationError(f"the map of leaf {place} gives a value that has not changed")
        for at, value in [*values_shown[place], *values_given]:
            latest[at] = value
            tree.put(ordinal[at], leaf_hash(value))
        if not isinstance(withdrawal, WithdrawalLeaf) or tree.root != withdrawal.root:
            raise VerificationError(f"those withdrawn do not lead to the map of leaf {place}")


def _withdrawn_values(
    cluster: MappedCluster, leaf: RoundLeaf, withdrawals: Collection[int]
) -> Iterator[tuple[int, bytes]]:
    """Each withdrawal that took somebody out of the cluster's round, and the round's value in its map.

    The value is that of docs/proof-format.md, "The map of withdrawals": over all entries up to this withdrawal.
    The entries of the round are shown in the order in which they were withdrawn; those of the cluster are open, so
    that nobody can be left out of it, and no map can forget what an earlier one knew.
    """
    tree, last = Growing(), cluster.leaf
    for place, entries in groupby(cluster.withdrawn, key=lambda entry: entry.leaf):
        if place <= last or place not in withdrawals:
            raise _refuse(leaf, "withdrawn slots are not in the order of the withdrawals")
        last = place
        for entry in entries:
            tree.add(_entry_hash(entry, cluster, leaf))
        yield place, sized(tree.size, tree.root)


def _entry_hash(entry: WithdrawnSlot, cluster: MappedCluster, leaf: RoundLeaf) -> bytes:
    position, slot, salt, inner = entry.position, entry.slot, entry.salt, entry.inner
    if position != cluster.position:
        if position >= leaf.clusters:
            raise _refuse(leaf, f"a slot is withdrawn from cluster {position}, which is not there")
        if slot is not None or salt is not None or inner is None:
            raise _refuse(leaf, "a withdrawn slot of another cluster is open")
        return withdrawn_entry(position, inner)
    if slot is None or salt is None or inner is not None or not cluster.holds(slot):
        raise _refuse(leaf, "a withdrawn slot of the cluster is closed, or not in it")
    return withdrawn_entry(position, withdrawn_inner(salt, slot))


def check_survivors(v: Verification) -> str:
    """At least x + s - 1 others are left, counted here."""
    needed, counts = v.history.policy.survivors_needed, v.report.survivors
    if isinstance(v.predicate, MappedPredicate):
        _count_mapped(v, v.predicate)
    leaver = 1 if v.statement.what_if else 0  # who is still in
    for (cluster, leaf), withdrawn in zip(v.shown, v.report.withdrawn, strict=True):
        survivors = cluster.size - withdrawn - leaver
        if survivors < needed:
            few = f"{survivors} survivors are left, fewer than {needed} (x = {v.history.policy.x})"
            raise _refuse(leaf, few)
        counts.append(survivors)
    if not counts:
        return "the leaver was in no round that stands"
    return f"at least {min(counts)} in each of {len(counts)} rounds; {needed} are needed"


def _count_mapped(v: Verification, said: MappedPredicate) -> None:
    """Count who was withdrawn from each cluster shown, in a log of version 3."""
    for cluster, (_, leaf) in zip(said.clusters, v.shown, strict=True):
        withdrawn = [entry.slot for entry in cluster.withdrawn if entry.slot is not None]
        if len(set(withdrawn)) != len(withdrawn):
            raise _refuse(leaf, "a slot is withdrawn twice")
        v.report.withdrawn.append(len(withdrawn))


def check_spread(v: Verification) -> str:
    """No cluster is wider than Δ."""
    for cluster, leaf in v.shown:
        if not cluster.spread <= leaf.delta:
            wide = f"{cluster.spread} wide, more than Δ {leaf.delta}"
            raise VerificationError(f"in round {leaf.number} the cluster is {wide}")
    return "no cluster is wider than Δ" + ("; adaptive Δ excludes nobody" if v.history.policy.adaptive else "")


def check_bounds(v: Verification) -> str:
    """The bounds are those of the clusters shown, and the odds no more than the policy allows."""
    policy = v.history.policy
    for cluster, leaf in v.shown:
        check_noise(policy, cluster, leaf)
        bounds = bounds_of(
            weight=cluster.weight,
            spread=cluster.spread,
            tau=leaf.tau,
            representatives=policy.representatives,
        )
        odds = None if bounds.log10_odds is None else write_figure(bounds.log10_odds)
        if (cluster.displacement, cluster.log10_odds) != (write_figure(bounds.displacement), odds):
            raise VerificationError(f"the bounds of round {leaf.number} are not those of its cluster")
        v.report.bounds.append(bounds)
    displacement, ratio = largest_displacement(v.report.bounds), total_ratio(v.report.bounds)
    total = TotalBounds(
        displacement=write_figure(displacement),
        ratio=None if ratio is None else write_figure(ratio),
        drawn=write_figure(chance_drawn((cluster.size for cluster, _ in v.shown), policy.representatives)),
    )
    if v.predicate.bounds != total:
        raise VerificationError("the bounds over all rounds are not those of its clusters")
    if policy.odds is not None and not within_odds(ratio, policy.odds):
        raise VerificationError(f"the odds over all rounds are more than the policy's {policy.odds:g}")
    return f"displacement {total.displacement}, √Σratio² {total.ratio or 'without Gaussian noise'}"


# -- 13 to 16: the answer ------------------------------------------------------------------------------------------


def check_verdict(v: Verification) -> str:
    """The answer is the one in the log, and shows every round that it committed to."""
    found = _check_what_if(v.predicate) if v.statement.what_if else _check_erasure(v.predicate, v.history)
    if isinstance(v.predicate, Predicate) and v.predicate.purge is not None:
        _check_purge(v.predicate, v.history)
        found = f"{found}; {purged_in_words(v.statement, v.history)}"
    same = unchanged_in_words(v.statement, v.history)
    if same:
        v.report.warnings.append(f"{same}: nothing shows that they were retrained")
    return "; ".join(filter(None, (found, same, records_in_words(v.predicate))))


def _check_what_if(said: AnyPredicate) -> str:
    """Nobody asked, so it points to nothing in the log; the clusters alone decide."""
    kind, linked = said.verdict.kind, (said.withdrawal, said.request, said.rounds, said.times, said.verdict.start)
    purge = said.purge if isinstance(said, Predicate) else None
    if any(value is not None for value in (*linked, erased_records(said), purge)):
        raise VerificationError("a what-if has no withdrawal")
    if kind == "rollback" or (kind == "never present") != (not said.clusters):
        raise VerificationError(f"{kind} is not what the clusters say")
    return f"{kind}, if it were asked"


def _check_erasure(said: AnyPredicate, history: History) -> str:
    """The verdict is the one that its withdrawal logged, and every round undone was retrained after it."""
    kind, first = said.verdict.kind, said.verdict.start
    place, index, rounds, times = said.withdrawal, said.request, said.rounds, said.times
    withdrawal = None if place is None else history.withdrawals.get(place)
    if (
        place is None
        or not isinstance(withdrawal, WithdrawalLeaf)
        or index is None
        or rounds is None
        or times is None
    ):
        raise VerificationError("the proof does not point to a withdrawal")
    if index >= len(withdrawal.requests):
        raise VerificationError("the proof does not point to a request of its withdrawal")
    request = withdrawal.requests[index]
    _check_records(erased_records(said), request.records, history.promised.run)
    if request.verdict != kind or (first is not None) != (kind == "rollback"):
        raise VerificationError(f"the verdict in the log is {request.verdict}")
    if kind == "rollback" and first != history.rollback_after(place):
        raise VerificationError("the rollback in the log is to another round")
    _check_times(times, asked_at=request.asked_at, judged_at=withdrawal.at)
    _check_leaver_rounds(rounds, [cluster.leaf for cluster in said.clusters], place, history, request.rounds)
    for number, standing in enumerate(history.standing, start=1):
        if first is not None and number >= first and standing < place:
            raise VerificationError(f"round {number} was not retrained after the withdrawal")
    if (kind == "never present") != (not said.clusters and not rounds.superseded):
        raise VerificationError(f"{kind} is not what the rounds say")
    back = f" from round {first}" if first else ""
    return f"{kind}{back}, asked {times.asked_at}, judged {times.judged_at}, answered {times.answered_at}"


def _check_records(said: ErasedRecords | None, logged: bytes | None, run_id: str) -> None:
    """The proof is about as many records as the log committed to, or about a whole client as the log says."""
    if (said is None) != (logged is None):
        raise VerificationError("the log says otherwise whether records or a whole client were to be erased")
    if said is not None and commit_records(run_id=run_id, count=said.count, closed=said.closed) != logged:
        raise VerificationError("the records are not those that the withdrawal committed to")


def _check_purge(said: Predicate, history: History) -> None:
    """That leaf, behind the withdrawal, undid the last round with the leaver in it.

    The rounds of the leaver are those that its withdrawal committed to: all of them are shown or superseded. And of
    those that stand, the replay has put all from the purge on behind it: they were trained after it. What is
    rebuilt approximately is not trained: it is made from updates to models that the leaver may be in.
    """
    if history.rebuilt:
        raise VerificationError("a round that stands was rebuilt approximately: nobody was purged")
    superseded = () if said.rounds is None else said.rounds.superseded
    if said.clusters or not superseded:
        raise VerificationError("a slot of the leaver stands, or it was in no round: nothing was purged")
    place = max(history.undone_by[at] for at in superseded)
    if said.purge != place or said.withdrawal is None or place < said.withdrawal:
        raise VerificationError(f"leaf {said.purge} is not the one that undid the leaver's last round")


def _check_times(times: Times, *, asked_at: str, judged_at: str) -> None:
    """The times of the request come in their order, and on the days that the log has."""
    if not times.asked_at <= times.judged_at <= times.answered_at:
        raise VerificationError("the request was judged before it was asked, or answered before it was judged")
    if (day_of(times.asked_at), day_of(times.judged_at)) != (asked_at, judged_at):
        raise VerificationError(
            f"the request was asked or judged on other days than the log has: {asked_at}, {judged_at}"
        )


def _check_leaver_rounds(
    rounds: LeaverRounds, shown: list[int], withdrawal: int, history: History, commitment: bytes
) -> None:
    """The rounds shown are those that the withdrawal committed to, all of them."""
    superseded, gone = list(rounds.superseded), history.rounds.keys() - set(history.standing)
    if superseded != sorted(set(superseded)) or not set(superseded) <= gone:
        raise VerificationError("rounds are called superseded that are not")
    leaves = sorted([*shown, *superseded])
    if any(leaf not in history.rounds or leaf > withdrawal for leaf in leaves):
        raise VerificationError("the leaver is shown in a round after its withdrawal")
    if commit_rounds(rounds.salt, leaves) != commitment:
        raise VerificationError("the rounds shown are not those that the withdrawal committed to")


def check_opening(v: Verification) -> str | None:
    """The client of the opening is the leaver."""
    if v.inputs.opening is None and v.inputs.client is None:
        return None
    if v.inputs.opening is None:
        raise VerificationError("a client was asked for, and no opening says whom the proof is about")
    opening = Opening.decode(v.inputs.opening)
    requester, said = None, v.predicate
    if said.withdrawal is not None and said.request is not None:  # the verdict was checked: it is no what-if
        withdrawal = v.history.withdrawals[said.withdrawal]
        requester = withdrawal.requests[said.request].client if isinstance(withdrawal, WithdrawalLeaf) else None
    _check_opened(v, opening, requester)
    _check_opened_records(opening, erased_records(said))
    refuse_other_client(opening.client, v.inputs.client, "the opening")
    if requester is None and not opening.rounds:
        return "nothing in the log tells who it is: the client was in no round, and has not asked"
    v.report.opening = opening
    some = "" if opening.records is None else f", and {count_records(len(opening.records.keys))} of it"
    return f"it names {opening.client!r} in {len(v.shown)} rounds that stand{some}"


def _check_opened_records(opening: Opening, said: ErasedRecords | None) -> None:
    """The records that the opening names are those that the proof is about."""
    named = opening.records
    if (named is None) != (said is None):
        raise VerificationError("the opening of records is no opening of a whole client, nor the reverse")
    if named is None or said is None:
        return
    if len(set(named.keys)) != len(named.keys) or len(named.keys) != said.count:
        raise VerificationError(f"it does not name {said.count} records, each once")
    if close_records(salt=named.salt, records=named.keys) != said.closed:
        raise VerificationError("it does not open the records: others were to be erased")


def _check_opened(v: Verification, opening: Opening, requester: bytes | None) -> None:
    """The client of the opening is the one in every cluster shown, and the one who asked.

    `requester` is the commitment to who asked; None for a what-if. The opening is made once, and the proof may be
    of a later head: rounds of the leaver that were superseded since are open, but no longer shown.
    """
    run_id, client, rounds = opening.run_id, opening.client, v.predicate.rounds
    if run_id != v.promised.run:
        raise VerificationError("the opening is of another run")
    if (opening.salt is None) != (requester is None):
        raise VerificationError("the opening of a what-if is no opening of an erasure, nor the reverse")
    if opening.salt is not None and commit_client(run_id=run_id, salt=opening.salt, client=client) != requester:
        raise VerificationError("it does not open the request: somebody else asked")
    gone, leaves = set(rounds.superseded if rounds else ()), [opened.leaf for opened in opening.rounds]
    standing = [opened for opened in opening.rounds if opened.leaf not in gone]
    slots = [(cluster.leaf, cluster.slot) for cluster, _ in v.shown]
    if [(opened.leaf, opened.slot) for opened in standing] != slots or leaves != sorted(set(leaves)):
        raise VerificationError("the opening is not of the slots that the proof shows")
    for opened, (cluster, leaf) in zip(standing, v.shown, strict=True):
        made = commit(
            run_id=run_id, round_number=leaf.number, salt=opened.salt, client=client, update_digest=opened.update
        )
        if made != cluster.slots[opened.slot - cluster.first]:
            raise VerificationError(f"it does not open the slot of round {leaf.number}: it is another client's")


def check_receipts(v: Verification) -> str | None:
    """What the client kept lies in this log, opened or superseded."""
    if not v.inputs.receipts:
        return None
    receipts = [decode_receipt(data) for data in v.inputs.receipts]
    shown, standing = {(cluster.leaf, cluster.slot) for cluster, _ in v.shown}, set(v.history.standing)
    superseded = None if v.predicate.rounds is None else set(v.predicate.rounds.superseded)
    for receipt in receipts:
        where = f"the receipt for round {receipt.header.number}"
        _check_in_log(v, receipt, check_receipt(receipt, v.keys), where)
        if receipt.leaf not in standing:
            if superseded is not None and receipt.leaf not in superseded:
                raise VerificationError(f"{where} is for a superseded round that the proof leaves out")
        elif (receipt.leaf, receipt.slot) not in shown:
            raise VerificationError(f"{where} shows a slot that the proof leaves out")
    return f"{len(receipts)} lie in this log, opened or superseded"


def _check_in_log(v: Verification, receipt: Receipt, head: Checkpoint, where: str) -> None:
    """The receipt is this client's, and both its leaf and its head are those of this log."""
    if receipt.run_id != v.promised.run:
        raise VerificationError(f"{where} is of another run")
    if v.report.opening is not None and receipt.client != v.report.opening.client:
        raise VerificationError(f"{where} is another client's")
    if head.size > len(v.leaves):
        raise VerificationError(f"{where} is newer than this proof, which cannot speak about it")
    known = receipt.leaf < len(v.leaves) and v.leaves[receipt.leaf].hash == receipt.header.hash
    if not known or v.prefixes.root(head.size) != head.root:
        raise VerificationError(f"{where} is not in this log: the server told two stories")


def check_model(v: Verification) -> str | None:
    """The subject is the model of the last standing round; and it is the file given."""
    if v.statement.model != v.history.model:
        raise VerificationError("the subject is not the model that the last standing round produced")
    if v.inputs.model is None:
        return None
    if v.inputs.model != v.statement.model:
        other = _other_model(v, v.inputs.model)
        if v.inputs.serving is None or not isinstance(other, OtherModel):
            raise other
        return f"the model file, {v.inputs.model[:16]}, is not the subject; check serving compares it"
    return f"the model file is the subject, {v.statement.model[:16]}"


def _other_model(v: Verification, given: str) -> VerificationError:
    """Say what a model file is that is not the subject: a later model is no fault of the proof."""
    made = {v.promised.initial_model: "it is the initial model"}
    made |= {leaf.after: f"it is that of round {leaf.number}" for leaf in v.history.standing_leaves}
    if given not in made and given in v.history.undone:
        return VerificationError(f"the model file, {given[:16]}, is that of a round that was undone")
    where = made.get(given, "no round up to there made it, and a later one needs a renewed proof")
    return OtherModel(
        f"another model ({given[:16]}) than the one proved ({v.statement.model[:16]}), as of head "
        f"{v.head.size}: {where}"
    )


def check_word(v: Verification) -> str | None:
    """A client's signed word that it removed the records is the one in the proof, and holds."""
    if v.inputs.word is None:
        return None
    given, said = SignedWord.decode(v.inputs.word), erased_records(v.predicate)
    if said is None:
        raise VerificationError("a word was given, and the proof is about no records")
    if said.word != given.digest:
        raise VerificationError("the proof has another word, or none: it may be older than the word")
    records = commit_records(run_id=v.promised.run, count=said.count, closed=said.closed)
    given.check(run=v.promised.run, records=records)
    return f"given {given.word.at} by the holder of key {given.fingerprint[:16]}: compare it with the client's"


def check_witnesses(v: Verification) -> str | None:
    """Enough of the witnesses that are trusted have cosigned the head."""
    witnesses = v.inputs.witnesses
    if not witnesses:
        return None
    lines = v.predicate.cosignatures if isinstance(v.predicate, Predicate) else None
    given = [*map(Cosignature.parse, lines or ()), *_kept_cosignatures(v)]
    found, known = cosigners(v.head, given, witnesses), len({key.raw for key in witnesses})
    needed = known if v.inputs.quorum is None else v.inputs.quorum
    if len(found) < needed:
        missing = [key for key in witnesses if key.raw not in {each.raw for each in found}]
        names = ", ".join(dict.fromkeys(key.name for key in missing[:_WITNESSES_SHOWN]))
        more = f" and {len(missing) - _WITNESSES_SHOWN} more" if len(missing) > _WITNESSES_SHOWN else ""
        few = f"cosigned by {len(found)} of {known} witnesses, and {needed} are needed"
        raise VerificationError(f"the head is {few}: not by {names}{more}" if names else f"the head is {few}")
    first = min(found.values(), key=lambda each: each.time)
    return f"{len(found)} of {known} have cosigned the head; {needed} are needed, the first {first.moment}"


def _kept_cosignatures(v: Verification) -> list[Cosignature]:
    """What stands below the older checkpoint, where that is of the very head of the proof."""
    if v.inputs.checkpoint is None:
        return []
    kept = read_note(v.inputs.checkpoint.decode(), "the older checkpoint", cosigned=True)
    if kept.head != v.head:
        return []
    return [Cosignature(line, data) for line, found in kept.signatures.items() for data in found]


def check_serving(v: Verification) -> str | None:
    """The model that the server says it serves is the one proved, or a later one of which the proof holds too."""
    if v.inputs.serving is None:
        return None
    signed = SignedServing.decode(v.inputs.serving)
    signer = signed.signer([trusted.key for trusted in v.inputs.trusted])
    v.keys.refuse_revoked(signer, "the serving statement")
    said = signed.said
    head = open_checkpoint(said.checkpoint, signer, "the checkpoint of the serving statement", cosigned=True)
    if head.origin != v.head.origin:
        raise VerificationError("the serving statement is of another run's log")
    if said.since + log_size(said.leaves) != head.size:
        raise VerificationError("the serving statement does not have the leaves that it says it has")
    if not any(trusted.in_use(said.at) for trusted in v.inputs.trusted if trusted.key == signer):
        raise VerificationError(f"the key of the serving statement was not in use at {said.at}")
    if head.size <= v.head.size:
        found = _served_before(v, said, head)
    elif said.since == v.head.size and isinstance(v.predicate, Predicate):
        found = _served_later(v, v.predicate, said, head, signer)
    elif said.model == v.statement.model:
        found = f"the one proved; that head {head.size} goes on from head {v.head.size} is not shown"
    else:
        raise _other_served(
            v, said, f"it is of head {head.size}: ask for a statement since {v.head.size}, or a renewed proof"
        )
    if v.inputs.model is not None and v.inputs.model != said.model:
        raise OtherModel(
            f"another model ({v.inputs.model[:16]}) than the one served ({said.model[:16]}) at {said.at}"
        )
    return f"at {said.at} the server served {said.model[:16]}, {found}"


def _served_before(v: Verification, said: Serving, head: Checkpoint) -> str:
    """Check a statement whose head is a beginning of the proof's log, or the whole of it."""
    if v.prefixes.root(head.size) != head.root:
        raise VerificationError(f"the serving statement's head of {head.size} leaves is not of this log: a fork")
    stood = _standing_at(v.leaves[: head.size])
    last = v.history.rounds[stood[-1]].after if stood else v.promised.initial_model
    if head.size == 0 or said.model != last:
        raise VerificationError(f"the serving statement names a model that its own log did not have at {head.size}")
    if said.model == v.statement.model:
        return "the one proved"
    known = {v.promised.initial_model, *(leaf.after for leaf in v.history.standing_leaves)}
    undone = None if said.model in known else v.leaves[v.history.undone_by[stood[-1]]].time
    if undone is not None and day_of(said.at) > day_of(undone):
        raise VerificationError(f"the server says that it served at {said.at} a model that was undone on {undone}")
    raise _other_served(v, said, f"the statement is older, of head {head.size}")


def _standing_at(leaves: Sequence[LogLeaf]) -> list[int]:
    """The places of the rounds that stood when a log had these leaves, all of which were replayed."""
    standing: list[int] = []
    for place, leaf in enumerate(leaves):
        if isinstance(leaf, AnyRound):
            standing.append(place)
        elif isinstance(leaf, RollbackLeaf | PurgeLeaf):
            del standing[leaf.to - 1 :]
    return standing


def _served_later(v: Verification, proved: Predicate, said: Serving, head: Checkpoint, signer: PublicKey) -> str:
    """Check a statement that brings the leaves behind the proof's head: would the proof hold at its head, too?"""
    leaves = open_log([*proved.leaves, *said.leaves])
    if Prefixes([leaf.hash for leaf in leaves]).root(len(leaves)) != head.root:
        raise VerificationError(
            f"head {head.size} of the serving statement does not go on from the proof's: a fork"
        )
    later = replay(leaves)
    key = [leaf.key for leaf in leaves if isinstance(leaf, RunLeaf | KeyLeaf)][-1]
    if key is not None and key != signer:
        raise VerificationError("the log is to be signed with another key than the one of the serving statement")
    if said.model != later.model:
        raise VerificationError(
            f"the serving statement names a model that its own log does not have at {head.size}"
        )
    if v.statement.what_if and said.model != v.statement.model:
        raise _other_served(v, said, f"a what-if says nothing of rounds behind its head {v.head.size}")
    if not v.statement.what_if:
        _check_still_deniable(v, proved, later)
    if said.model == v.statement.model:
        return "the one proved"
    same = unchanged_in_words(v.statement, later)
    if same and f"{same}: nothing shows that they were retrained" not in v.report.warnings:
        v.report.warnings.append(f"{same}: nothing shows that they were retrained")
    rounds = len(later.rounds) - len(v.history.rounds)
    return f"{rounds} rounds later than the one proved and of the same log; the proof holds of it too"


def _check_still_deniable(v: Verification, proved: Predicate, later: History) -> None:
    """Of the clusters shown, those that still stand have enough survivors; and what was purged is not rebuilt."""
    standing = set(later.standing)
    shown = [(cluster, leaf) for cluster, leaf in v.shown if cluster.leaf in standing]
    for (cluster, leaf), withdrawn in zip(shown, _count_withdrawn(later, shown), strict=True):
        left = cluster.size - withdrawn
        if left < later.policy.survivors_needed:
            raise _refuse(leaf, f"in the model served, only {left} survivors are left")
    if proved.purge is not None and later.rebuilt:
        raise VerificationError("a round of the model served was rebuilt approximately: nobody was purged")


def _other_served(v: Verification, said: Serving, why: str) -> OtherModel:
    return OtherModel(
        f"another model ({said.model[:16]}), served at {said.at}, than the one proved ({v.statement.model[:16]}), "
        f"as of head {v.head.size}: {why}"
    )


def _refuse(leaf: RoundLeaf, reason: str) -> VerificationError:
    return VerificationError(f"round {leaf.number}: {reason}")


CHECKS: tuple[Callable[[Verification], str | None], ...] = (
    check_readable,
    check_signature,
    check_statement,
    check_checkpoint,
    check_log,
    check_history,
    check_policy,
    check_rounds,
    check_clusters,
    check_survivors,
    check_spread,
    check_bounds,
    check_verdict,
    check_opening,
    check_receipts,
    check_model,
    check_word,
    check_witnesses,
    check_serving,
)
"""All checks in order; `disavow verify` prints the number of each and its name without `check_`."""
