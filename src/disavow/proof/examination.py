"""The checks of a verification in their order, each under its name in `CHECKS`.

Nothing here is believed before it is checked: numbers are counted again from what the log commits to, and the log
is rebuilt from its leaves.
"""

from __future__ import annotations

from typing import Any

from disavow.errors import OtherModel, Unreadable, VerificationError
from disavow.proof.bounds import bounds_of, chance_drawn, largest_displacement, total_ratio, within_odds
from disavow.proof.clusters import check_cluster, count_survivors, survivors_needed
from disavow.proof.envelope import Envelope, read_envelope, signer_of
from disavow.proof.history import History, replay
from disavow.proof.leaves import VERSION, Leaf, hash_of, latest_time, time_of
from disavow.proof.maps import check_maps
from disavow.proof.merkle import Prefixes
from disavow.proof.noise import check_noise
from disavow.proof.notes import PublicKey, open_checkpoint, open_with_any, origin_of
from disavow.proof.opening import check_opening, read_opening, refuse_other_client
from disavow.proof.reading import write_figure
from disavow.proof.receipt import Receipt, check_receipt, read_receipt
from disavow.proof.report import Asked, Report, delta_in_words, rebuilt_in_words
from disavow.proof.statement import Statement, read_statement
from disavow.proof.trust import index_of
from disavow.proof.verdict import check_verdict, unchanged


class Examination:
    """The checks in their order; each may use what those before it have found sound."""

    def __init__(self, asked: Asked, report: Report) -> None:
        self._asked, self._report = asked, report
        self._envelope: Envelope
        self._statement: Statement
        self._history: History
        self._signer: PublicKey
        self._hashes: list[bytes] = []
        self._keys = index_of(asked.trusted)

    @property
    def _said(self) -> dict[str, Any]:
        return self._statement.predicate

    @property
    def _leaves(self) -> list[Leaf]:
        leaves: list[Leaf] = self._said["leaves"]
        return leaves

    def readable(self) -> str:
        """1: an envelope in canonical form, within the limits."""
        self._envelope = read_envelope(self._asked.proof)
        return f"{len(self._asked.proof):,} bytes in canonical form"

    def signature(self) -> str:
        """2: signed by a key that is trusted, and was not revoked."""
        self._signer = signer_of(self._envelope, [trusted.key for trusted in self._asked.trusted])
        self._keys.refuse_revoked(self._signer, "the proof")
        return f"by {self._signer.name} ({self._signer.id[:16]})"

    def statement(self) -> str:
        """3: of a type and version that is known, and of the kind that was asked for."""
        self._statement = self._report.statement = read_statement(self._envelope.payload)
        if self._statement.what_if and not self._asked.what_if:
            raise VerificationError("this is a what-if about a client that is still in: nothing was erased")
        if self._asked.what_if and not self._statement.what_if:
            raise VerificationError("this is an erasure, not a what-if")
        return f"{'what-if' if self._statement.what_if else 'erasure'}, version {VERSION}"

    def checkpoint(self) -> str:
        """4: the head, signed by the same key, covers the leaves shown."""
        head = open_checkpoint(self._said["checkpoint"], self._signer)
        if head.size != len(self._leaves):
            raise VerificationError(f"it covers {head.size} leaves; {len(self._leaves)} are shown")
        self._head = self._report.head = head
        return f"of {head.size} leaves, by {self._signer.name}"

    def log(self) -> str:
        """5: the root rebuilt from all leaves is the one signed."""
        self._hashes = [hash_of(leaf) for leaf in self._statement.written]
        self._prefixes = Prefixes(self._hashes)
        if self._prefixes.root(len(self._hashes)) != self._head.root:
            raise VerificationError("the leaves do not have the root that was signed")
        if not self._leaves or self._leaves[0]["type"] != "run":
            raise VerificationError("the log does not begin with the run's promises")
        if self._head.origin != origin_of(self._leaves[0]["run"]):
            raise VerificationError("the checkpoint is of another run's log")
        return "the root rebuilt from all leaves is the one signed"

    def history(self) -> str | None:
        """6: a checkpoint that somebody kept is a prefix of this log."""
        if self._asked.checkpoint is None:
            return None
        try:
            note = self._asked.checkpoint.decode("utf-8")
        except UnicodeDecodeError:
            raise Unreadable("the older checkpoint is not UTF-8") from None
        kept = open_with_any(note, self._keys, "the older checkpoint", cosigned=True)
        if kept.origin != self._head.origin:
            raise VerificationError("the older checkpoint is of another run's log")
        if kept.size > len(self._hashes):
            raise VerificationError(f"the older checkpoint has {kept.size} leaves, more than this log")
        if self._prefixes.root(kept.size) != kept.root:
            raise VerificationError(f"the first {kept.size} leaves are not those of the older checkpoint: a fork")
        asked = self._said["withdrawal"]
        before = "" if asked is None else f", signed {'before' if kept.size <= asked else 'after'} the withdrawal"
        return f"the older checkpoint of {kept.size} leaves is a prefix{before}"

    def policy(self) -> str:
        """7: the promises and the key are those of the log."""
        policy = self._leaves[0]["policy"]
        k, x, drawn = policy["k"], policy["x"], policy["representatives"]
        if survivors_needed(policy) > k or (drawn >= k and drawn > 1):
            raise VerificationError(f"k = {k}, x = {x} and {drawn} representatives do not go together")
        if policy["delta"] is not None and policy["relative_delta"] is not None:
            raise VerificationError("Δ is said to be fixed and relative")
        if policy["odds"] is not None and policy["odds"] < 1:
            raise VerificationError(f"odds are at least 1, and {policy['odds']:g} are promised")
        keys = [leaf["key"] for leaf in self._leaves if leaf["type"] in ("run", "key")]
        if keys[-1] is not None and keys[-1] != self._signer:
            raise VerificationError("the log is to be signed with another key than the one that signed the proof")
        last = latest_time(self._leaves)
        mine = [trusted for trusted in self._asked.trusted if trusted.key == self._signer]
        if keys[-1] is not None:
            allowed = any(trusted.in_use(last) for trusted in mine)
        else:  # it was signed late, nobody knows when, but after its last leaf: the key may be younger than that
            allowed = not all(trusted.retired_before(last) for trusted in mine)
        if not allowed:
            raise VerificationError(f"the key that signed was not in use at {last}, the time of the last leaf")
        late = "; signed late: no key bound the server when the run began" if keys[0] is None else ""
        limit = "" if policy["odds"] is None else f", odds of at most {policy['odds']:g}"
        promised = f"k = {k}, x = {x}, {drawn} drawn of each cluster, Δ {delta_in_words(policy)}{limit}"
        return f"{promised}, from leaf 0{late}"

    def rounds(self) -> str:
        """8: standing rounds run from 1 to the head without gap, each from the model before it."""
        self._history = self._report.history = replay(self._leaves)
        self._warn_of_the_future()
        standing, rebuilt = len(self._history.standing), self._history.rebuilt
        told = f"{standing} stand, without gap, from the initial model to the one served"
        return f"{told}; {rebuilt_in_words(rebuilt)}" if rebuilt else told

    def _warn_of_the_future(self) -> None:
        times = [time_of(leaf) for leaf in self._leaves]
        ahead = [time for time in times if self._asked.now is not None and time > self._asked.now]
        if ahead:
            self._report.warnings.append(
                f"{len(ahead)} of {len(times)} leaves are dated in the future, the last {ahead[-1]}: "
                "the clock of the server, or yours, or its word is wrong"
            )

    def clusters(self) -> str:
        """9: the leaver's clusters and all who were withdrawn lead to their roots."""
        history, shown = self._history, self._said["clusters"]
        places = [cluster["leaf"] for cluster in shown]
        if places != sorted(set(places)):
            raise VerificationError("clusters are not in the order of their rounds, one for each")
        self._standing = set(history.standing)
        for cluster in shown:
            if cluster["leaf"] not in self._standing:
                raise VerificationError(f"a cluster is of leaf {cluster['leaf']}, which is no standing round")
            if history.is_rebuilt(cluster["leaf"]):
                number = self._leaves[cluster["leaf"]]["number"]
                raise VerificationError(
                    f"the leaver is in round {number}, which was rebuilt and stands: nobody is deniable in it"
                )
            check_cluster(cluster, self._leaves[cluster["leaf"]], history.policy)
        check_maps(self._said, history)
        for cluster in shown:
            by = [entry["leaf"] for entry in cluster["withdrawn"] if entry["slot"] == cluster["slot"]]
            if by != ([] if self._statement.what_if else [self._said["withdrawal"]]):
                raise VerificationError(
                    f"the leaver's slot in leaf {cluster['leaf']} was not withdrawn when the leaver asked"
                )
        return f"{len(shown)} clusters lead to their rounds, and those withdrawn from them to every withdrawal"

    def survivors(self) -> str:
        """10: at least x + s - 1 others are left, counted here."""
        policy = self._history.policy
        for cluster in self._said["clusters"]:
            leaf = self._leaves[cluster["leaf"]]
            self._report.survivors.append(count_survivors(cluster, leaf, policy))
        counts = self._report.survivors
        if not counts:
            return "the leaver was in no round that stands"
        return f"at least {min(counts)} in each of {len(counts)} rounds; {survivors_needed(policy)} are needed"

    def spread(self) -> str:
        """11: no cluster is wider than Δ."""
        for cluster in self._said["clusters"]:
            leaf = self._leaves[cluster["leaf"]]
            if not cluster["spread"] <= leaf["delta"]:
                wide = f"{cluster['spread']} wide, more than Δ {leaf['delta']}"
                raise VerificationError(f"in round {leaf['number']} the cluster is {wide}")
        adaptive = self._history.policy["delta"] is None and self._history.policy["relative_delta"] is None
        return "no cluster is wider than Δ" + ("; adaptive Δ excludes nobody" if adaptive else "")

    def bounds(self) -> str:
        """12: the bounds are those of the clusters shown, and the odds no more than the policy allows."""
        policy = self._history.policy
        for cluster in self._said["clusters"]:
            leaf = self._leaves[cluster["leaf"]]
            check_noise(policy, cluster, leaf)
            bounds = bounds_of(
                weight=cluster["weight"],
                spread=cluster["spread"],
                tau=leaf["tau"],
                representatives=policy["representatives"],
            )
            odds = None if bounds.log10_odds is None else write_figure(bounds.log10_odds)
            if (cluster["displacement"], cluster["log10_odds"]) != (write_figure(bounds.displacement), odds):
                raise VerificationError(f"the bounds of round {leaf['number']} are not those of its cluster")
            self._report.bounds.append(bounds)
        displacement, ratio = largest_displacement(self._report.bounds), total_ratio(self._report.bounds)
        total = {
            "displacement": write_figure(displacement),
            "ratio": None if ratio is None else write_figure(ratio),
            "drawn": write_figure(
                chance_drawn((cluster["size"] for cluster in self._said["clusters"]), policy["representatives"])
            ),
        }
        if self._said["bounds"] != total:
            raise VerificationError("the bounds over all rounds are not those of its clusters")
        if policy["odds"] is not None and not within_odds(ratio, policy["odds"]):
            raise VerificationError(f"the odds over all rounds are more than the policy's {policy['odds']:g}")
        return f"displacement {total['displacement']}, √Σratio² {total['ratio'] or 'without Gaussian noise'}"

    def verdict(self) -> str:
        """13: the answer is the one in the log, and shows every round that it committed to."""
        found = check_verdict(self._statement, self._history)
        same = unchanged(self._statement, self._history)
        if same:
            self._report.warnings.append(f"{same}: nothing shows that they were retrained")
        return f"{found}; {same}" if same else found

    def opening(self) -> str | None:
        """14: the client of the opening is the leaver."""
        if self._asked.opening is None and self._asked.client is None:
            return None
        if self._asked.opening is None:
            raise VerificationError("a client was asked for, and no opening says whom the proof is about")
        opening = read_opening(self._asked.opening)
        asked = None
        if not self._statement.what_if:
            asked = self._leaves[self._said["withdrawal"]]["requests"][self._said["request"]]["client"]
        clusters, rounds = self._said["clusters"], self._said["rounds"]
        check_opening(opening, clusters, rounds["superseded"] if rounds else (), self._history, asked)
        refuse_other_client(opening.client, self._asked.client, "the opening")
        if asked is None and not opening.rounds:
            return "nothing in the log tells who it is: the client was in no round, and has not asked"
        self._report.opening = opening
        return f"it names {opening.client!r} in {len(clusters)} rounds that stand"

    def receipts(self) -> str | None:
        """15: what the client kept lies in this log, opened or superseded."""
        if not self._asked.receipts:
            return None
        read: list[Receipt] = [read_receipt(data) for data in self._asked.receipts]
        shown = {(cluster["leaf"], cluster["slot"]) for cluster in self._said["clusters"]}
        superseded = None if self._said["rounds"] is None else set(self._said["rounds"]["superseded"])
        for receipt in read:
            self._check_receipt(check_receipt(receipt, self._keys), shown, superseded)
        return f"{len(read)} lie in this log, opened or superseded"

    def _check_receipt(self, receipt: Receipt, shown: set[tuple[int, int]], superseded: set[int] | None) -> None:
        where = f"the receipt for round {receipt.header['number']}"
        if receipt.run_id != self._history.run_id:
            raise VerificationError(f"{where} is of another run")
        opening = self._report.opening
        if opening is not None and receipt.client != opening.client:
            raise VerificationError(f"{where} is another client's")
        if receipt.head.size > len(self._hashes):
            raise VerificationError(f"{where} is newer than this proof, which cannot speak about it")
        known = receipt.leaf < len(self._leaves) and self._leaves[receipt.leaf] == receipt.header
        if not known or self._prefixes.root(receipt.head.size) != receipt.head.root:
            raise VerificationError(f"{where} is not in this log: the server told two stories")
        if receipt.leaf not in self._standing:
            if superseded is not None and receipt.leaf not in superseded:
                raise VerificationError(f"{where} is for a superseded round that the proof leaves out")
            return
        if (receipt.leaf, receipt.slot) not in shown:
            raise VerificationError(f"{where} shows a slot that the proof leaves out")

    def model(self) -> str | None:
        """16: the subject is the model of the last standing round; and it is the file given."""
        if self._statement.model != self._history.model:
            raise VerificationError("the subject is not the model that the last standing round produced")
        if self._asked.model is None:
            return None
        if self._asked.model != self._statement.model:
            raise self._other_model(self._asked.model)
        return f"the model file is the subject, {self._statement.model[:16]}"

    def _other_model(self, given: str) -> VerificationError:
        """What to say of a model file that is not the subject: a later model is no fault of the proof."""
        made = {self._leaves[0]["initial_model"]: "it is the initial model"}
        made |= {leaf["after"]: f"it is that of round {leaf['number']}" for leaf in self._history.standing_leaves}
        if given not in made and given in self._history.undone:
            return VerificationError(f"the model file, {given[:16]}, is that of a round that was undone")
        where = made.get(given, "no round up to there made it, and a later one needs a renewed proof")
        return OtherModel(
            f"another model ({given[:16]}) than the one proved ({self._statement.model[:16]}), as of head "
            f"{self._head.size}: {where}"
        )
