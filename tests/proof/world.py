"""A made-up federation, from whose history proofs of every kind are made."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from disavow.proof import canonical
from disavow.proof.bounds import Bounds, bounds_of, total_ratio, within_odds
from disavow.proof.commitment import close_records, commit, commit_client, commit_records
from disavow.proof.leaves import (
    MAPPED,
    UNTOUCHED,
    VERSION,
    ClosedWithdrawal,
    KeyLeaf,
    LoggedPolicy,
    LoggedRequest,
    LogLeaf,
    PurgeLeaf,
    RebuiltLeaf,
    RollbackLeaf,
    RoundLeaf,
    RunLeaf,
    WithdrawalLeaf,
    commit_rounds,
    map_root,
    parse_leaf,
    show_leaves,
    withdrawn_inner,
)
from disavow.proof.merkle import cover_of, leaf_hash, path_to, root_of
from disavow.proof.noise import logged_tau
from disavow.proof.notes import Checkpoint, Signer, origin_of
from disavow.proof.opening import OpenedRecords, OpenedSlot, Opening
from disavow.proof.receipt import TYPE as RECEIPT
from disavow.proof.serving import TYPE as SERVING
from disavow.proof.validation import day_of, from_base64, to_base64, write_decimal
from disavow.proof.withdrawal_slots import WithdrawnFrom, slots_root, write_slots
from disavow.proof.word import PrivateKey, SignedWord, Word
from tests.proof.made_proofs import (
    CLIENT,
    POLICY,
    SERVER,
    Group,
    Leaf,
    LeafRecord,
    Made,
    Past,
    Request,
    Withdrawn,
    client,
    digest_of,
    hash_of,
    moment,
    signed_serving,
    signed_word,
    tell_bounds,
)


class World:
    """A run that keeps to the rules, unless somebody tells it otherwise.

    `watched`: in a large world, the only clients whose clusters are made; all others are random hashes. `minutes`
    pass from leaf to leaf. `version` is that of its log and proofs.
    """

    def __init__(
        self,
        seed: str = "world",
        *,
        clients: int = 7,
        key: Signer | None = SERVER,
        watched: Collection[str] | None = None,
        minutes: int = 1,
        frozen: str | None = None,
        version: int = MAPPED,
        **policy: Any,
    ) -> None:
        self.seed, self.signer, self.watched, self.minutes = seed, key, watched, minutes
        self.version = version
        self.run_id = digest_of(seed, "run").hex()[:32]
        self.policy = {**POLICY, **policy}
        self.clients = [client(number) for number in range(clients)]
        self.initial = self.model = digest_of(seed, "initial").hex()
        self.gone: set[str] = set()
        self.pasts: list[Past] = []
        self.standing: list[Past] = []
        self.requests: dict[str, Request] = {}
        self.undone_at: dict[int, int] = {}
        """The place of the rollback or purge that undid a round, by the place of the round."""
        self.leaves: list[Leaf] = []
        self.hashes: list[bytes] = []
        self._append(
            RunLeaf(
                run=self.run_id,
                created_at=moment(0),
                initial_model=self.initial,
                policy=LoggedPolicy(**self.policy),
                key=None if key is None else key.public,
                frozen=frozen,
                version=version,
            )
        )

    @property
    def now(self) -> str:
        """The moment of the next leaf."""
        return moment(len(self.leaves) * self.minutes)

    def _append(self, leaf: LeafRecord) -> int:
        self.leaves.append(leaf.to_json())
        self.hashes.append(leaf.hash)
        return len(self.leaves) - 1

    # -- what happens ----------------------------------------------------------------------------------------------

    def train(self, rounds: int = 1, *, without: Collection[str] = (), after: Sequence[str] = ()) -> World:
        """Record rounds, with everybody who is still in. They end in the models `after`, where these are given."""
        for number in range(rounds):
            names = [name for name in self.clients if name not in self.gone and name not in without]
            self._record(names, after[number] if after else digest_of(self.seed, "model", len(self.leaves)).hex())
        return self

    def _record(self, names: list[str], after: str) -> None:
        number, place = len(self.standing) + 1, len(self.leaves)
        attempt = 1 + sum(past.number == number for past in self.pasts)
        order = self._order(names, place)
        count = len(order) // self.policy["k"]
        sizes = [len(order) // count + (at < len(order) % count) for at in range(count)]
        firsts = [sum(sizes[:at]) for at in range(count)] if self.watched is None else _running(sizes)
        shape = [(size / len(order), 0.125 + 0.0625 * (at % 3)) for at, size in enumerate(sizes)]
        update_norm = 0.7 + 0.1 * (place % 3)
        delta = self.policy["delta"] or max(spread for _, spread in shape)
        if self.policy["relative_delta"] is not None:
            delta = self.policy["relative_delta"] * update_norm
        past = Past(
            leaf=place,
            number=number,
            delta=delta,
            tau=logged_tau(LoggedPolicy(**self.policy), shape),
            participants=len(order),
            groups={},
            hashes=(),
        )
        for at in self._seen(order, firsts, sizes):
            past.groups[at] = self._group(past, at, order, firsts, sizes, shape[at])
        hashes = [
            hash_of(past.plain(past.groups[at])) if at in past.groups else digest_of(self.seed, "closed", place, at)
            for at in range(count)
        ]
        object.__setattr__(past, "hashes", tuple(hashes))
        leaf = RoundLeaf(
            number=number,
            attempt=attempt,
            before=self.model,
            after=after,
            delta=delta,
            update_norm=update_norm,
            pairs_within=0.9375,
            tau=past.tau,
            participants=len(order),
            clusters=count,
            root=root_of(hashes),
            at=self.now,
            version=None if self.version == MAPPED else VERSION,
        )
        self._append(leaf)
        self.pasts.append(past)
        self.standing.append(past)
        self.model = after

    def rebuild(self, rounds: int = 1, *, without: Collection[str] = (), after: str | None = None) -> World:
        """Record rebuilt rounds, with everybody who is still in; all of them end in `after`, if it is given."""
        for _ in range(rounds):
            names = [name for name in self.clients if name not in self.gone and name not in without]
            number, place = len(self.standing) + 1, len(self.leaves)
            order = self._order(names, place)
            past = Past(place, number, 0.0, 0.0, len(order), {}, (), rebuilt=True)
            past.groups[0] = self._group(past, 0, order, [0], [len(order)], (1.0, 0.0))
            commitments = past.groups[0].commitments
            object.__setattr__(past, "hashes", tuple(map(leaf_hash, commitments)))
            leaf = RebuiltLeaf(
                number=number,
                attempt=1 + sum(each.number == number for each in self.pasts),
                before=self.model,
                after=after or digest_of(self.seed, "model", place).hex(),
                mechanism="federaser",
                participants=len(commitments),
                root=root_of(past.hashes),
                at=self.now,
            )
            self._append(leaf)
            self.pasts.append(past)
            self.standing.append(past)
            self.model = leaf.after
        return self

    def _order(self, names: list[str], place: int) -> list[str]:
        if self.watched is None:
            return sorted(names, key=lambda name: digest_of(self.seed, "order", place, name))
        turn = int.from_bytes(digest_of(self.seed, "turn", place)[:4]) % len(names)
        return names[turn:] + names[:turn]

    def _seen(self, order: list[str], firsts: list[int], sizes: list[int]) -> Iterable[int]:
        """The clusters that are made: all, or those of the watched."""
        if self.watched is None:
            return range(len(sizes))
        found = set()
        for name in self.watched:
            if name in self.gone:
                continue
            slot = order.index(name)
            found.add(next(at for at in range(len(sizes)) if firsts[at] <= slot < firsts[at] + sizes[at]))
        return sorted(found)

    def _group(
        self,
        past: Past,
        at: int,
        order: list[str],
        firsts: list[int],
        sizes: list[int],
        shape: tuple[float, float],
    ) -> Group:
        slots = range(firsts[at], firsts[at] + sizes[at])
        names = tuple(order[slot] for slot in slots)
        salts = tuple(digest_of(self.seed, "salt", past.leaf, name) for name in names)
        updates = tuple(digest_of(self.seed, "update", past.leaf, name) for name in names)
        commitments = tuple(
            commit(run_id=self.run_id, round_number=past.number, salt=salt, client=name, update_digest=update)
            for name, salt, update in zip(names, salts, updates, strict=True)
        )
        return Group(at, firsts[at], names, *shape, salts, updates, commitments)

    def leave(
        self,
        *names: str,
        verdict: str | None = None,
        to: int | None = None,
        records: Mapping[str, Sequence[str]] | None = None,
    ) -> World:
        """These leave together. Verdict and round of a rollback are judged, unless they are given. Those with
        `records` stay, and never take part again: they would under another key.
        """
        present = {name: [past for past in self.pasts if name in past.slots] for name in names}
        place = len(self.leaves)
        for name in names:
            for past in present[name]:
                slot = past.slots[name]
                salt = digest_of(self.seed, "withdrawn salt", past.leaf, name)
                past.withdrawn.append(Withdrawn(place, past.group_of(slot).position, slot, salt))
        self.gone |= set(names)
        broken = to or self._first_broken(names)
        requests, judged_at = [], self.now
        asked_at = moment(place * self.minutes, seconds=-30)
        for index, name in enumerate(names):
            kind = verdict or ("rollback" if broken and present[name] else "deniable")
            kind = kind if present[name] or verdict else "never present"
            request = Request(
                withdrawal=place,
                index=index,
                verdict=kind,
                to=broken if kind == "rollback" else None,
                client_salt=digest_of(self.seed, "client salt", name),
                rounds_salt=digest_of(self.seed, "rounds salt", name),
                leaves=tuple(past.leaf for past in present[name]),
                asked_at=asked_at,
                judged_at=judged_at,
                records=self._opened_records(name, (records or {}).get(name, ())),
            )
            self.requests[name] = request
            requests.append(
                LoggedRequest(
                    asked_at=day_of(asked_at),
                    verdict=kind,
                    client=commit_client(run_id=self.run_id, salt=request.client_salt, client=name),
                    rounds=commit_rounds(request.rounds_salt, request.leaves),
                    records=None if request.records is None else self._commit_records(request.records),
                )
            )
        slots, day = None, day_of(judged_at)
        if self.version == MAPPED:
            root = map_root(past.value(place) for past in self.pasts)
        else:
            entries = self.entries(place)
            root = slots_root([withdrawn_inner(each.salt, each.slot) for _, each in entries])
            slots = write_slots([self._withdrawn_from(past, each) for past, each in entries], place)
        self._append(
            WithdrawalLeaf(requests=tuple(requests), rounds=len(self.pasts), root=root, at=day, slots=slots)
        )
        if broken and any(request.verdict == "rollback" for request in requests):
            self._append(RollbackLeaf(withdrawal=place, to=broken, at=day))
            self._undo(broken)
        return self

    def _opened_records(self, name: str, keys: Sequence[str]) -> OpenedRecords | None:
        return OpenedRecords(salt=digest_of(self.seed, "records salt", name), keys=tuple(keys)) if keys else None

    def _commit_records(self, records: OpenedRecords) -> bytes:
        closed = close_records(salt=records.salt, records=records.keys)
        return commit_records(run_id=self.run_id, count=len(records.keys), closed=closed)

    def word(self, name: str, key: PrivateKey = CLIENT) -> SignedWord:
        """The word of a client that it removed its records."""
        records = self.requests[name].records
        if records is None:
            raise ValueError(f"{name} was to be forgotten, and not records of it")
        nonce = digest_of(self.seed, "nonce", name)
        said = Word(run=self.run_id, records=self._commit_records(records), at=self.now, nonce=nonce)
        return signed_word(said.encode(), key)

    def purge(self, to: int | None = None) -> World:
        """Undo the standing rounds from the first with a withdrawn slot on, unless another is given."""
        to = to or next(past.number for past in self.standing if past.withdrawn)
        self._append(PurgeLeaf(to=to, at=day_of(self.now)))
        self._undo(to)
        return self

    def _undo(self, to: int) -> None:
        self.undone_at |= {past.leaf: len(self.leaves) - 1 for past in self.standing[to - 1 :]}
        del self.standing[to - 1 :]
        self.model = self.leaves[self.standing[-1].leaf]["after"] if self.standing else self.initial

    def entries(self, place: int) -> list[tuple[Past, Withdrawn]]:
        """What the withdrawal in a leaf takes out, in the order of that leaf."""
        return [(past, each) for past in self.pasts for each in past.withdrawn if each.leaf == place]

    def _withdrawn_from(self, past: Past, each: Withdrawn) -> WithdrawnFrom:
        return WithdrawnFrom(past.leaf, from_base64(self.leaves[past.leaf]["root"], "root"), each.position)

    def _first_broken(self, names: Sequence[str]) -> int | None:
        each: dict[str, list[Bounds]] = {name: [] for name in names}
        for past in self.standing:
            for name in names:
                if name in past.slots and not self._holds(past, past.group_of(past.slots[name]), each[name]):
                    return past.number
        return None

    def _holds(self, past: Past, group: Group, so_far: list[Bounds]) -> bool:
        """Whether a leaver's cluster holds, given the bounds of its earlier ones; its own are added to them."""
        if past.rebuilt:
            return False
        drawn, odds = self.policy["representatives"], self.policy["odds"]
        so_far.append(bounds_of(weight=group.weight, spread=group.spread, tau=past.tau, representatives=drawn))
        if odds is not None and not within_odds(total_ratio(so_far), odds):
            return False
        left = len(set(group.slots) - past.gone)
        return left >= self.policy["x"] + drawn - 1 and group.spread <= past.delta

    def rotate(self, key: Signer) -> World:
        """From here on another key signs."""
        self._append(KeyLeaf(key=key.public, at=self.now))
        self.signer = key
        return self

    # -- what is shown ---------------------------------------------------------------------------------------------

    def checkpoint(self, size: int | None = None, key: Signer | None = None) -> str:
        """The signed head over the first leaves."""
        size = len(self.leaves) if size is None else size
        head = Checkpoint(origin_of(self.run_id), size, root_of(self.hashes[:size]))
        return head.signed(key or self._key())

    def serving(
        self,
        *,
        since: int | None = None,
        size: int | None = None,
        key: Signer | None = None,
        checkpoint: str | None = None,
        **changes: Any,
    ) -> bytes:
        """What the server says of the model it serves; with `size`, as of an earlier head. Changes are signed."""
        size = len(self.leaves) if size is None else size
        since = size if since is None else since
        said = {
            "type": SERVING,
            "model": self.model,
            "at": self.now,
            "checkpoint": checkpoint or self.checkpoint(size, key),
            "since": since,
            "leaves": self.closed((), start=since)[: None if size == len(self.leaves) else 0],
            **changes,
        }
        return signed_serving(said, key or self._key())

    def _key(self) -> Signer:
        return self.signer or SERVER

    def proof(self, name: str, word: SignedWord | None = None, *, purged: bool = False) -> Made:
        """The proof of somebody who has left, or has removed records and given its word for it.

        On demand, with the leaf that undid its last round.
        """
        request = self.requests[name]
        standing = {past.leaf for past in self.standing}
        fields: dict[str, Any] = {
            "withdrawal": request.withdrawal,
            "request": request.index,
            "rounds": {
                "salt": to_base64(request.rounds_salt),
                "superseded": [leaf for leaf in request.leaves if leaf not in standing],
            },
            "verdict": {"kind": request.verdict, "from": request.to},
            "times": {"asked_at": request.asked_at, "judged_at": request.judged_at, "answered_at": self.now},
        }
        if (records := request.records) is not None:
            closed = close_records(salt=records.salt, records=records.keys)
            fields["records"] = {"count": len(records.keys), "closed": to_base64(closed)}
            if word is not None:
                fields["records"]["word"] = to_base64(word.digest)
        if purged:
            fields["purge"] = max(self.undone_at[leaf] for leaf in request.leaves)
        return replace(self._made(name, fields, request.client_salt, records), word=word)

    def what_if(self, name: str) -> Made:
        """The proof about somebody who is still in."""
        present = any(name in past.slots for past in self.standing)
        fields = {
            "withdrawal": None,
            "request": None,
            "rounds": None,
            "verdict": {"kind": "deniable" if present else "never present", "from": None},
            "times": None,
        }
        return self._made(name, fields, None)

    def _made(
        self, name: str, fields: dict[str, Any], salt: bytes | None, records: OpenedRecords | None = None
    ) -> Made:
        predicate: dict[str, Any] = {**fields, "checkpoint": self.checkpoint(), "leaves": list(self.leaves)}
        taken = [past for past in self.standing if name in past.slots]
        opened = []
        predicate["clusters"] = []
        for past in taken:
            slot = past.slots[name]
            group = past.group_of(slot)
            at = slot - group.first
            opened.append(OpenedSlot(leaf=past.leaf, slot=slot, salt=group.salts[at], update=group.updates[at]))
            predicate["clusters"].append(self._show(past, group, slot, fields["withdrawal"]))
        if self.version == MAPPED:
            predicate["maps"] = self.maps({past.leaf for past in taken})
        else:
            entries = self.entries(fields["withdrawal"] or 0)
            hashes = [leaf_hash(withdrawn_inner(each.salt, each.slot)) for _, each in entries]
            own = [cluster["entry"] for cluster in predicate["clusters"] if cluster["entry"] is not None]
            predicate["cover"] = to_base64(b"".join(cover_of(hashes, own)))
            predicate["leaves"] = self.closed({fields["withdrawal"], *(past.leaf for past in taken)})
        tell_bounds(predicate)
        opening = Opening(run_id=self.run_id, client=name, salt=salt, rounds=tuple(opened), records=records)
        return Made(predicate, self.model, salt is None, opening, self._key())

    def maps(self, shown: Collection[int]) -> list[list[str | None]]:
        """For each withdrawal the values of the rounds that are not shown; None where one has not changed."""
        found: list[list[str | None]] = []
        latest: dict[int, bytes] = {}
        for place, leaf in enumerate(self.leaves):
            if leaf["type"] != "withdrawal":
                continue
            row: list[str | None] = []
            for past in self.pasts[: leaf["rounds"]]:
                if past.leaf in shown:
                    continue
                value = past.value(place)
                row.append(None if value == latest.get(past.leaf, UNTOUCHED) else to_base64(value))
                latest[past.leaf] = value
            found.append(row)
        return found

    def closed(self, shown: Collection[int | None], *, start: int = 0) -> list[Leaf]:
        """The leaves from `start` on as a proof of version 4 has them: rounds and withdrawals are closed that need
        not be shown.
        """
        rounds = [past.leaf for past in self.pasts if not past.rebuilt]
        needed = {*shown, len(self.leaves) - 1, *rounds[-1:]}
        undone: set[str] = set()
        models: list[str] = []
        found: list[LogLeaf] = []
        for place, value in enumerate(self.leaves):
            leaf = parse_leaf(value, "leaf")
            found.append(leaf)
            if isinstance(leaf, RoundLeaf | RebuiltLeaf):
                models.append(leaf.after)
            elif isinstance(leaf, RollbackLeaf | PurgeLeaf):
                undone.update(models[leaf.to - 1 :])
                del models[leaf.to - 1 :]
            if place in needed:
                continue
            if isinstance(leaf, RoundLeaf) and (leaf.after not in undone or leaf.after == leaf.before):
                found[-1] = leaf.closed
            elif isinstance(leaf, WithdrawalLeaf) and leaf.slots is not None:
                found[-1] = ClosedWithdrawal(leaf.rounds, leaf.rolls_back, leaf.slots, leaf.digest)
        return [each.to_json() for each in show_leaves(found[start:])]

    def _show(self, past: Past, group: Group, slot: int, withdrawal: int | None) -> Leaf:
        entries = self.entries(withdrawal or 0)
        mine = [at for at, (other, each) in enumerate(entries) if other is past and each.slot == slot]
        entry = {
            "entry": mine[0] if mine else None,
            "salt": to_base64(entries[mine[0]][1].salt) if mine else None,
        }
        return {
            "leaf": past.leaf,
            "slot": slot,
            "position": group.position,
            "first": group.first,
            "size": len(group.clients),
            "weight": write_decimal(group.weight),
            "spread": write_decimal(group.spread),
            "slots": [to_base64(each) for each in group.commitments],
            "path": [to_base64(step) for step in path_to(past.hashes, group.position)],
            **({"withdrawn": self.withdrawn(past, [group.position])} if self.version == MAPPED else entry),
        }

    def withdrawn(self, past: Past, shown: Collection[int]) -> list[Leaf]:
        """All who were withdrawn from a round, open in the clusters that are shown."""
        return [each.shown(opened=each.position in shown) for each in past.withdrawn]

    def receipt(self, name: str, leaf: int, *, size: int | None = None, key: Signer | None = None) -> bytes:
        """What a client got for the round in a leaf, under the head of that round unless told otherwise."""
        past = next(past for past in self.pasts if past.leaf == leaf)
        slot, size = past.slots[name], leaf + 1 if size is None else size
        group = past.group_of(slot)
        way: dict[str, Any] = {
            "cluster": {
                **past.plain(group),
                "slots": [to_base64(each) for each in group.commitments],
                "path": [to_base64(step) for step in path_to(past.hashes, group.position)],
            }
        }
        if past.rebuilt:
            way = {"path": [to_base64(step) for step in path_to(past.hashes, slot)]}
        return canonical.encode(
            {
                "type": RECEIPT,
                "run": self.run_id,
                "client": name,
                "leaf": leaf,
                "header": self.leaves[leaf],
                **way,
                "slot": slot,
                "salt": to_base64(group.salts[slot - group.first]),
                "update": to_base64(group.updates[slot - group.first]),
                "inclusion": [to_base64(step) for step in path_to(self.hashes[:size], leaf)],
                "checkpoint": self.checkpoint(size, key),
            }
        )


def _running(sizes: list[int]) -> list[int]:
    firsts, total = [], 0
    for size in sizes:
        firsts.append(total)
        total += size
    return firsts


def large(rounds: int = 1_000, participants: int = 10_000, **policy: Any) -> Made:
    """The proof of one leaver in a run of so many rounds with so many participants each."""
    leaver = client(participants // 2)
    world = World("large", clients=participants, watched=[leaver], **{"k": 10, "x": 3, **policy})
    return world.train(rounds).leave(leaver).proof(leaver)
