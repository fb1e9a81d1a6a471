"""The checks, in their order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from tests.proof.second_verifier.bounds import (
    displacement_of,
    drawn_of,
    figure_of,
    log10_odds_of,
    nearest_log10,
    noise_fits,
    ratio_of,
    total_of,
)
from tests.proof.second_verifier.keys import (
    Key,
    Trusted,
    Witness,
    not_revoked,
    parse_key,
    parse_keys,
    parse_witnesses,
)
from tests.proof.second_verifier.reading import (
    ERASURES,
    MIB,
    PACKED_TYPE,
    PAYLOAD_TYPE,
    WHAT_IFS,
    AnotherModelError,
    InvalidError,
    Object,
    UnreadableError,
    need,
    parse_canonical,
    require,
    sha,
    unbase64,
)
from tests.proof.second_verifier.receipts import (
    entry_hash,
    has_slot,
    is_closed,
    moment_of,
    parse_receipt,
    require_receipt,
    unpack,
)
from tests.proof.second_verifier.shapes import (
    ENVELOPE,
    OPENING,
    PREDICATES,
    SERVING,
    SIGNED_SERVING,
    SIGNED_WORD,
    STATEMENT,
    WORD,
)
from tests.proof.second_verifier.trees import (
    NOBODY,
    Note,
    closed_records,
    cluster_hash,
    counted,
    covered_root,
    entries_of,
    follow,
    hash_in_log,
    items_of_log,
    leaf_hash,
    opened_log,
    parse_line,
    parse_note,
    records_commitment,
    request_commitment,
    rolls_back,
    root_of,
    rounds_commitment,
    slot_commitment,
    unmasked,
    withdrawn_inner,
)


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
    expected_client: str | None
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
    witnesses: Sequence[Witness] = ()
    quorum: int | None = None
    serving: bytes | None = None

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
        moment = max(moment_of(leaf) for leaf in self.leaves if not is_closed(leaf))
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
            if not is_closed(leaf):
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
        require(not any(is_closed(leaf) for leaf in ends), "the end of the log is closed")

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
        if not is_closed(leaf):
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
        positions = [cluster["leaf"] for cluster in self.clusters]
        require(ascending(positions), "clusters are not in order")
        require(set(positions) <= set(self.standing), "a cluster of no standing round")
        require(all(self.type_at(place) == "round" for place in positions), "a rebuilt round, or a closed one")
        for cluster in self.clusters:
            self._require_cluster(cluster)
        if self.version == 4:
            for cluster in self.clusters:
                self.gone_of(cluster)
            self._require_own_entries()
            return
        for cluster in self.clusters:
            self._require_withdrawn(cluster)
        self._require_maps(set(positions))

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
        positions = [entry["leaf"] for entry in entries]
        require(positions == sorted(positions), "withdrawn slots are not in order")
        behind = {place for place in self.withdrawals if place > cluster["leaf"]}
        require(set(positions) <= behind, "withdrawn by no withdrawal behind the round")
        for entry in entries:
            if entry["position"] != cluster["position"]:
                is_closed = entry["slot"] is None and entry["salt"] is None and entry["inner"] is not None
                require(is_closed, "an entry is not closed")
                require(entry["position"] < self.leaves[cluster["leaf"]]["clusters"], "an entry of no cluster")
            else:
                is_open = entry["slot"] is not None and entry["salt"] is not None and entry["inner"] is None
                require(is_open, "an entry is not open")
                require(has_slot(cluster, entry["slot"]), "an entry's slot is not in its cluster")
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
                values[cluster["leaf"]] = counted(len(entries), root_of([entry_hash(entry) for entry in entries]))
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
        drawn, written = self.policy["representatives"], self.predicate["bounds"]
        for cluster in self.clusters:
            leaf = self.leaves[cluster["leaf"]]
            require(noise_fits(self.policy, leaf, cluster), "the noise is not the policy's")
            odds = log10_odds_of(ratio_of(cluster, float(leaf["tau"]), drawn))
            require(
                cluster["displacement"] == figure_of(displacement_of(cluster, drawn)), "displacement is another"
            )
            require(cluster["log10_odds"] == figure_of(odds), "log10_odds is another")
        largest, ratio = total_of(self.policy, self.clusters, self.leaves)
        require(written["displacement"] == figure_of(largest), "the displacement is another")
        require(written["ratio"] == figure_of(ratio), "the ratio is another")
        require(written["drawn"] == figure_of(drawn_of(self.clusters, drawn)), "the chance to be drawn is another")
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
        asked_at, judged, answered = times["asked_at"], times["judged_at"], times["answered_at"]
        require(asked_at <= judged <= answered, "the times are not in order")
        require(asked_at[:10] == self.request()["asked_at"], "asked on another day")
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
            stand = [self.leaves[at]["type"] for at in self.standing]
            require("rebuilt" not in stand, "a round that stands was rebuilt approximately")
            require(not self.clusters and bool(superseded), "a slot of the leaver stands")
            last = max(self.undone_at[at] for at in superseded)
            require(predicate["purge"] == last and last > place, "another leaf undid its last round")

    def named(self) -> None:
        """Check 14."""
        if self.opening is None:
            require(self.expected_client is None, "nothing says whom it is about")
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
        require(self.expected_client in (None, client), "it is about another client")
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
        statement = parse_canonical(payload, 65_536)
        WORD(statement)
        require((statement["run"], unbase64(statement["records"])) == (self.run, self.records()), "other records")
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
        if self.serving is None:
            raise AnotherModelError

    def stated(self) -> None:
        """Check 19."""
        if self.serving is None:
            return
        envelope = parse_canonical(self.serving, 16 * MIB)
        SIGNED_SERVING(envelope)
        require(len(envelope["signatures"]) == 1, "no signature")
        [signature], payload = envelope["signatures"], unbase64(envelope["payload"])
        fitting = [each.key for each in not_revoked(self.keys) if each.key.id == signature["keyid"]]
        require(bool(fitting), "no such trusted key, or a revoked one")
        kind = b"application/vnd.disavow.serving+json"
        message = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
        require(fitting[0].holds(unbase64(signature["sig"]), message), "the signature does not hold")
        said = parse_canonical(payload, 16 * MIB)
        SERVING(said)
        head = parse_note(said["checkpoint"], cosigned=True)
        head.require_signed(fitting[0])
        require(head.origin == self.head.origin, "of another log")
        require(said["since"] + items_of_log(said["leaves"]) == head.size, "leaves are missing")
        allowed = [each.allows(said["at"], late=False) for each in self.keys if each.key == fitting[0]]
        require(any(allowed), "the key was not in use")
        if head.size <= len(self.leaves):
            self._stated_before(said, head)
        elif said["since"] == len(self.leaves) and self.version == 4:
            self._stated_later(said, head, fitting[0])
        elif said["model"] != self.subject:
            raise AnotherModelError
        if self.model not in (None, said["model"]):
            raise AnotherModelError

    def _stated_before(self, said: Object, head: Note) -> None:
        require(root_of(self.hashes[: head.size]) == head.root, "the log was rewritten")
        standing: list[int] = []
        for place, leaf in enumerate(self.leaves[: head.size]):
            if place in self.rounds:
                standing.append(place)
            elif leaf["type"] in ("rollback", "purge"):
                standing = standing[: leaf["to"] - 1]
        require(head.size > 0, "no leaves")
        model = self.leaves[standing[-1]]["after"] if standing else self.leaves[0]["initial_model"]
        require(said["model"] == model, "the log had another model")
        if model == self.subject:
            return
        known = {self.leaves[0]["initial_model"], *(self.leaves[at]["after"] for at in self.standing)}
        if model not in known:
            undone = self.leaves[self.undone_at[standing[-1]]]["at"]
            require(said["at"][:10] <= undone, "a model that was undone is served")
        raise AnotherModelError

    def witnessed(self) -> None:
        """Check 18."""
        if not self.witnesses:
            return
        lines = [parse_line(line) for line in self.predicate.get("cosignatures", [])]
        if self.checkpoint is not None:
            kept = parse_note(self.checkpoint.decode(), cosigned=True)
            lines += kept.signatures if kept.text == self.head.text else []
        cosigned = set()
        for witness in self.witnesses:
            for name, data in lines:
                if (name, data[:4]) != (witness.name, witness.short):
                    continue
                seconds = int.from_bytes(data[4:12], "big")
                message = b"cosignature/v1\ntime %d\n%s" % (seconds, self.head.text)
                require(len(data) == 76 and 0 < seconds <= 253_402_300_799, "no cosignature")
                require(witness.holds(data[12:], message), "a cosignature does not hold")
                cosigned.add(witness.public)
        all_of_them = len({witness.public for witness in self.witnesses})
        require(len(cosigned) >= (self.quorum or all_of_them), "too few have cosigned")

    def _stated_later(self, said: Object, head: Note, signer: Key) -> None:
        later = Verification(b"", self.keys, None, (), None, None, self.what_if, None)
        later.version, later.predicate = self.version, self.predicate
        later.leaves = opened_log([*self.predicate["leaves"], *said["leaves"]])
        require(root_of([hash_in_log(leaf) for leaf in later.leaves]) == head.root, "a fork")
        later.replay()
        named = [leaf["key"] for leaf in later.leaves if leaf["type"] in ("run", "key")]
        require(named[-1] is None or parse_key(named[-1]) == signer, "the log names another key")
        require(said["model"] == later.final, "the log has another model")
        if self.what_if:
            if said["model"] != self.subject:
                raise AnotherModelError
            return
        for cluster in self.clusters:
            if cluster["leaf"] in later.standing:
                require(cluster["size"] - later.gone_of(cluster) >= self.needed, "too few survivors")
        if "purge" in self.predicate:
            require(all(later.leaves[at]["type"] != "rebuilt" for at in later.standing), "rebuilt since")

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
            self.witnessed,
            self.stated,
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
    witnesses: bytes | None = None,
    quorum: int | None = None,
    serving: bytes | None = None,
) -> tuple[int, int | None]:
    """The exit code, and the number of the check that failed ("The checks", "The result")."""
    try:
        trusted = parse_keys(keys)
        named = () if witnesses is None else parse_witnesses(witnesses)
    except UnreadableError:
        return 2, None
    verification = Verification(proof, trusted, opening, receipts, checkpoint, model, what_if, client)
    verification.word, verification.serving = word, serving
    verification.witnesses, verification.quorum = named, quorum
    another = None
    for number, check in enumerate(verification.checks(), start=1):
        try:
            check()
        except InvalidError:
            return 1, number
        except UnreadableError:
            return 2, number
        except AnotherModelError:
            another = number
    if another is not None:
        return 13, another
    return (0 if verification.client is not None else 3), None
