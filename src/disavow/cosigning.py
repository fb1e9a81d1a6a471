"""Ask the witnesses of a run to cosign the newest head of its log: all at once, and for no longer than is set.

A head that is not cosigned stays as it is, and training goes on: that it lacks cosignatures is said, and with the
next head witnesses are asked again. One that was away is caught up with from the size that it has seen last.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from disavow.config import WitnessSettings
from disavow.domain import escaped
from disavow.errors import ConfigError, Unreadable, WitnessError, WitnessUnavailable
from disavow.ledger import Ledger, Reader
from disavow.ledger.cosignatures import CosignedHead
from disavow.proof.cosignatures import Cosignature, WitnessKey
from disavow.proof.notes import write_signature

if TYPE_CHECKING:
    from disavow.proof.witness_client import Witness

_SHORTEST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
"""Seconds after which a witness that did not cosign is asked about a new head again; twice as long each time."""


@dataclass(frozen=True)
class Cosignatures:
    """Which of a run's witnesses have cosigned the newest head.

    Args:
        size: How many leaves it has.
        by: The names of those who have.
        missing: The names of those who have not.
        needed: How many must have.

    """

    size: int
    by: tuple[str, ...]
    missing: tuple[str, ...]
    needed: int

    @property
    def enough(self) -> bool:
        """Whether as many have as must have."""
        return len(self.by) >= self.needed

    def __str__(self) -> str:
        words = f"cosigned by {len(self.by)} of {len(self.by) + len(self.missing)} witnesses"
        if self.enough:
            return words
        return f"{words}, and {self.needed} are needed: not by {', '.join(self.missing)}"

    def to_json(self) -> dict[str, object]:
        """The same for machines."""
        return {
            "size": self.size,
            "by": list(self.by),
            "missing": list(self.missing),
            "needed": self.needed,
            "enough": self.enough,
        }


def cosignatures_of(reader: Reader, settings: WitnessSettings) -> Cosignatures | None:
    """Tell who has cosigned the newest head; None where the log is not signed, or no witness is set.

    Args:
        reader: The run.
        settings: Its witnesses.

    """
    if not settings.servers or (head := reader.cosigned_head()) is None:
        return None
    return _cosignatures(head, settings)


def _cosignatures(head: CosignedHead, settings: WitnessSettings) -> Cosignatures:
    names = {server.key: server.key.partition("+")[0] for server in settings.servers}
    return Cosignatures(
        head.size,
        tuple(name for key, name in names.items() if key in head.lines),
        tuple(name for key, name in names.items() if key not in head.lines),
        settings.needed,
    )


def _key_of(text: str) -> WitnessKey:
    try:
        return WitnessKey.parse(text, "a key of witness.servers")
    except Unreadable as error:
        raise ConfigError(str(error)) from None


_Question: TypeAlias = "tuple[Witness, int, Sequence[bytes]]"
"""A witness to ask, the size that it should have seen last, and the proof from there."""


@dataclass(frozen=True)
class _WantsProof:
    """A witness has seen another size than was thought: whoever asks it needs a proof from there."""

    size: int
    reply: queue.SimpleQueue[Sequence[bytes]]


@dataclass(frozen=True)
class _Answered:
    """What became of asking a witness for a cosignature of the head of so many leaves."""

    witness: WitnessKey
    size: int
    found: Cosignature | WitnessError


@dataclass
class _Patience:
    """How long a witness is left alone."""

    until: float = 0.0
    pause: float = 0.0
    busy: bool = False
    """It was asked, and has not answered yet."""
    reason: WitnessError | None = None
    """Why it did not cosign when it was last asked; None where it did."""


@dataclass
class Cosigner:
    """Asks the witnesses of one run. It keeps their connections; close it.

    Args:
        settings: Who they are, how many must cosign, and how long they are waited for.
        on_note: Hears that heads lack cosignatures, once, and that they no longer do.

    """

    settings: WitnessSettings
    on_note: Callable[[str], None] = lambda note: None
    _witnesses: list[Witness] = field(init=False, repr=False)
    _patience: dict[WitnessKey, _Patience] = field(init=False, repr=False)
    _heard: queue.SimpleQueue[_WantsProof | _Answered] = field(init=False, repr=False)
    _sizes: dict[WitnessKey, int] | None = field(default=None, repr=False)
    """The size that each has cosigned last, as far as is known; None before anybody was asked."""
    _noted: tuple[object, ...] = ()

    def __post_init__(self) -> None:
        if self.settings.servers:
            from disavow.proof.witness_client import Witness  # loads what most commands never use
        self._witnesses = [Witness(server.url, _key_of(server.key)) for server in self.settings.servers]
        self._patience = {witness.key: _Patience() for witness in self._witnesses}
        self._heard = queue.SimpleQueue()

    def cosign(self, ledger: Ledger, *, proving: bool = False) -> None:
        """Have the newest head cosigned by those who have not done so, and keep what they give.

        Args:
            ledger: The run, open for writing.
            proving: A proof of this head is about to be made: also ask those who did not answer just before.

        """
        if not self._witnesses:
            return
        while (late := self._next(0)) is not None:
            self._take(ledger, late)
        with ledger.snapshot() as snapshot:
            head = snapshot.cosigned_head()
            questions = [] if head is None else self._questions(snapshot, head, proving=proving)
        if head is None:
            self._tell("the log is not signed, and no witness can cosign it: `disavow keygen` makes a key", (None,))
            return
        found = self._ask(ledger, head, questions)
        cosigned = replace(head, lines={**head.lines, **found})
        cosignatures = _cosignatures(cosigned, self.settings)
        whys = [self._patience[each.key].reason for each in self._missing(cosigned)]
        reasons = "; ".join(str(reason) for reason in whys if reason is not None)
        # what a refusal says of sizes changes with each head: who refuses, and why, is what must be told once
        kind = (cosignatures.enough, cosignatures.missing, *(type(reason) for reason in whys))
        if not cosignatures.enough:
            reasons = f"heads of the log lack cosignatures, {cosignatures.needed} of which are needed: {reasons}"
        self._tell(reasons, kind if cosignatures.missing else ())

    def close(self) -> None:
        """Close the connections of those who are not being asked."""
        for witness in self._witnesses:
            if not self._patience[witness.key].busy:
                witness.close()

    def _missing(self, head: CosignedHead) -> list[Witness]:
        return [each for each in self._witnesses if str(each.key) not in head.lines]

    def _is_due(self, witness: Witness) -> bool:
        return time.monotonic() >= self._patience[witness.key].until

    def _questions(self, reader: Reader, head: CosignedHead, *, proving: bool) -> list[_Question]:
        """Whom to ask now, each with the size that it should have seen last and the proof from there."""
        due = [each for each in self._missing(head) if proving or self._is_due(each)]
        idle = [each for each in due if not self._patience[each.key].busy]
        if idle and self._sizes is None:
            self._sizes = reader.sizes_cosigned([each.key for each in self._witnesses])
        sizes = {each.key: (self._sizes or {}).get(each.key, 0) for each in idle}
        proofs = {size: reader.consistency_since(size, head.size) for size in set(sizes.values()) if size}
        return [(each, sizes[each.key], proofs.get(sizes[each.key], ())) for each in idle]

    def _ask(self, ledger: Ledger, head: CosignedHead, questions: Sequence[_Question]) -> dict[str, str]:
        """Ask some witnesses at once and keep what they give; what comes too late is kept the next time.

        Only this thread reads the ledger: whoever asks a witness that has seen another size gets a proof from here.
        """
        deadline = time.monotonic() + self.settings.timeout
        for witness, known, proof in questions:
            self._patience[witness.key].busy = True
            arguments = (witness, head, known, proof, deadline)
            threading.Thread(target=self._run, args=arguments, daemon=True).start()
        found: dict[WitnessKey, str] = {}
        waiting = {witness.key for witness, _, _ in questions}
        while waiting and (heard := self._next(deadline - time.monotonic())) is not None:
            if isinstance(heard, _Answered) and heard.size == head.size:
                waiting.discard(heard.witness)
                if (line := self._judge(heard)) is not None:
                    found[heard.witness] = line
            else:
                self._take(ledger, heard, head)
        for key in waiting:
            silent = f"witness {key.name} did not answer within {self.settings.timeout:g} seconds"
            self._delay(key, WitnessUnavailable(silent))
        if found:
            ledger.note_cosignatures(head.size, found)
            self._sizes = {**(self._sizes or {}), **dict.fromkeys(found, head.size)}
        return {str(key): line for key, line in found.items()}

    def _next(self, seconds: float) -> _WantsProof | _Answered | None:
        """What is heard next within so many seconds, if anything is."""
        try:
            return self._heard.get(timeout=seconds) if seconds > 0 else self._heard.get_nowait()
        except queue.Empty:
            return None

    def _take(self, ledger: Ledger, heard: _WantsProof | _Answered, head: CosignedHead | None = None) -> None:
        """Give a proof to whoever needs it for this head, or keep what came too late for an earlier one."""
        if isinstance(heard, _WantsProof):
            if head is not None:
                heard.reply.put(ledger.consistency_since(heard.size, head.size))
        elif (line := self._judge(heard)) is not None:
            ledger.note_cosignatures(heard.size, {heard.witness: line})

    def _judge(self, answered: _Answered) -> str | None:
        """The cosignature that a witness gave, as a line; where it gave none, leave it alone for a while."""
        patience = self._patience[answered.witness]
        patience.busy = False
        if isinstance(answered.found, WitnessError):
            self._delay(answered.witness, answered.found)
            return None
        self._patience[answered.witness] = _Patience()
        return write_signature(answered.witness, answered.found.data)

    def _delay(self, witness: WitnessKey, reason: WitnessError) -> None:
        patience = self._patience[witness]
        patience.pause = min(_LONGEST_PAUSE, max(_SHORTEST_PAUSE, 2 * patience.pause))
        patience.until, patience.reason = time.monotonic() + patience.pause, reason

    def _run(
        self, witness: Witness, head: CosignedHead, known: int, proof: Sequence[bytes], deadline: float
    ) -> None:
        """Ask one witness, in a thread of its own."""

        def consistency(size: int) -> Sequence[bytes]:
            if size == known:
                return proof
            reply: queue.SimpleQueue[Sequence[bytes]] = queue.SimpleQueue()
            self._heard.put(_WantsProof(size, reply))
            try:
                return reply.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise WitnessUnavailable(f"witness {witness.key.name} did not answer in time") from None

        found: Cosignature | WitnessError
        try:
            left = deadline - time.monotonic()
            found = witness.cosign(head.note, known=known, consistency=consistency, timeout=left)
        except WitnessError as error:
            found = error
        except Exception as error:  # whatever it is, whoever waits must hear of it
            reason = f"{type(error).__name__}: {error}"
            found = WitnessUnavailable(f"witness {witness.key.name} could not be asked: {reason}")
        self._heard.put(_Answered(witness.key, head.size, found))

    def _tell(self, note: str, kind: tuple[object, ...]) -> None:
        """Say what is wrong once, however often it is found, and once that nothing is any more."""
        if kind != self._noted:
            self.on_note(escaped(note) if kind else "all witnesses cosign the heads of the log again")
            self._noted = kind
