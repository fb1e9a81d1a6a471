"""An erasure request, from a client's wish to the answer: what `disavow erase` does.

    open keys -> forecast -> place -> answer without training ─┬─ nothing to rebuild ─────────────┐
                                                               └─ open data, engine -> rebuild ───┴─ prove, delete

Whatever can refuse comes before the request is placed. What needs no training takes neither data nor an engine; and
what does undoes nothing before both are there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from disavow import runs
from disavow.config import Settings
from disavow.data import OnProgress
from disavow.data.progress import nothing
from disavow.domain import ErasureRequest, RequestState, Verdict
from disavow.erasure.dry_run import Forecast, foresee
from disavow.erasure.erase import Remark, answer_without_training, training_due
from disavow.erasure.erase import erase as erase_with
from disavow.erasure.mechanisms import Mechanism, WithoutRetraining, refuse_another
from disavow.erasure.mechanisms import build as build_mechanism
from disavow.erasure.prove import check_openings, default_openings
from disavow.erasure.repetition import repetition
from disavow.errors import CannotRetrain, ConfigError, RunInUse
from disavow.ledger import Ledger
from disavow.ledger.keys import default_folder, fingerprint, tombstone_key
from disavow.ledger.tombstones import remember
from disavow.proof.keys import AskPassphrase, load_signer, nobody_to_ask
from disavow.proof.notes import Signer
from disavow.rounds.conduct import Conduct, now
from disavow.rounds.local_training import Engine
from disavow.rounds.participation import participation_of
from disavow.rounds.training import OnRound

_POLL_SECONDS = 0.2


@dataclass(frozen=True, eq=False)
class Keys:
    """The operator's keys, opened: what signs the run's log, and the key of its tombstones."""

    folder: Path
    signer: Signer | None
    tombstone: bytes


@dataclass(frozen=True)
class Asked:
    """What is known before anything is placed: who has been answered before, and what the others would get.

    `forecast` is None where nobody is left to ask for.
    """

    before: Mapping[str, ErasureRequest]
    forecast: Forecast | None
    refusal: CannotRetrain | None = None
    """Why what it takes to retrain is not to be had here: then they wait, and nothing is undone."""


Confirm = Callable[[Asked], None]
"""Sees what would happen before anything is placed; an exception from it ends the erasure with nothing changed."""


@dataclass(frozen=True)
class Listener:
    """Who hears how far an erasure is."""

    on_placed: Callable[[tuple[int, ...]], None] = lambda numbers: None
    on_wait: Callable[[str], None] = lambda why: None
    on_note: Callable[[str], None] = lambda note: None
    loading: Callable[[], AbstractContextManager[OnProgress]] = lambda: nullcontext(nothing)
    on_verdict: Callable[[Verdict, int], None] = lambda verdict, requests: None
    on_round: OnRound = lambda summary: None


_NOBODY = Listener()


@dataclass(frozen=True)
class Outcome:
    """Every client's request as it stands now; and why those that wait could not be answered here."""

    requests: Mapping[str, ErasureRequest]
    refusal: CannotRetrain | None = None


def erase(
    directory: Path,
    clients: Sequence[str],
    *,
    keys: Path | None = None,
    ask: AskPassphrase = nobody_to_ask,
    openings: Path | None = None,
    wait: float = 60.0,
    retrain: bool = True,
    confirm: Confirm | None = None,
    listener: Listener = _NOBODY,
) -> Outcome:
    """Honour the wish of these clients to be forgotten.

    `openings` is the folder for their openings, whoever answers; without it, one beside the run.

    Another process that holds the run answers the request between its rounds; it is waited for, up to `wait`
    seconds, then `RunInUse` is raised and the request stays placed.

    Without `retrain`, a rollback that these clients need is made here, and nothing is trained after it: the model
    of before is served, and the rounds after it are dropped, those of an unfinished rebuild too.
    """
    settings, clients = runs.settings_of(directory), list(dict.fromkeys(clients))
    if openings is not None:
        openings = openings.expanduser().absolute()
    check_openings(openings or default_openings(directory), directory)
    opened = open_keys(directory, keys, ask)
    with Ledger.open(directory, shared=True, keys=opened.folder) as ledger:
        for note in ledger.restored.notes:
            listener.on_note(note)
        runs.refuse_changed(ledger, settings)
        refuse_another(ledger, build_mechanism(settings.mechanism))
        ledger.refuse_signer(opened.signer)
        remember(opened.folder, ledger.run_id, fingerprint(opened.tombstone), ())  # that it can be written
        if confirm is not None:
            confirm(_asked(ledger, clients, settings, opened.folder, opened.tombstone, retrain=retrain))
        if openings is not None:
            _make_openings(openings)
        numbers = ledger.place_requests(clients, key=opened.tombstone, at=now(), openings=openings)
    listener.on_placed(numbers)
    answering = Answering(directory, settings, opened, retrain, listener, time.monotonic() + wait)
    refusal = _see_to_it(answering, numbers)
    with Ledger.open(directory) as ledger:
        found = {request.number: request for request in ledger.requests(numbers)}
    return Outcome({client: found[number] for client, number in zip(clients, numbers, strict=True)}, refusal)


def _make_openings(folder: Path) -> None:
    """Make the folder that openings are asked for in, while somebody is there to be told that it cannot be used."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        usable = os.access(folder, os.W_OK | os.X_OK)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}; allowed: a folder for openings") from None
    if not usable:
        raise ConfigError(f"{folder} cannot be written; allowed: a folder for openings that can be")


def open_keys(directory: Path, keys: Path | None, ask: AskPassphrase) -> Keys:
    """Open the operator's keys; a wrong passphrase is refused here, before anything is placed."""
    folder = keys or default_folder()
    return Keys(folder, load_signer(folder, ask), tombstone_key(folder, run=directory))


def forecast(
    directory: Path,
    clients: Sequence[str],
    *,
    keys: Path | None = None,
    retrain: bool = True,
    listener: Listener = _NOBODY,
) -> Asked:
    """What `erase` would do, also whether it could retrain here. Changes nothing, and makes no key."""
    settings, folder = runs.settings_of(directory), keys or default_folder()
    with Ledger.open(directory) as ledger:
        # nobody has asked: then there may be no key yet, and looking must not make one
        key = tombstone_key(folder, run=directory) if ledger.requests() else None
        asked = _asked(ledger, list(dict.fromkeys(clients)), settings, folder, key, retrain=retrain)
        if asked.refusal is None and asked.forecast is not None and _trains(asked.forecast):
            try:
                with listener.loading() as on_progress:
                    runs.find_again(ledger, settings, on_progress=on_progress)
            except (CannotRetrain, ConfigError) as error:
                return replace(asked, refusal=CannotRetrain(str(error)))
        return asked


def _conduct(ledger: Ledger, settings: Settings, keys: Path) -> Conduct:
    return runs.conduct_of(settings, participation=participation_of(settings, ledger, keys))


def _asked(
    ledger: Ledger, clients: Sequence[str], settings: Settings, keys: Path, key: bytes | None, *, retrain: bool
) -> Asked:
    before: dict[str, ErasureRequest] = {}
    if key is not None:
        with ledger.snapshot() as snapshot:
            found = {client: snapshot.find_request(client, key=key) for client in clients}
        before = {c: r for c, r in found.items() if r is not None and r.judged}
    asking = [client for client in clients if client not in before]
    if not asking:
        return Asked(before, None)
    back = ledger.restored_from_backup(keys).clients  # they leave again, too
    together = list(dict.fromkeys([*asking, *back]))
    told = foresee(ledger, together, _conduct(ledger, settings, keys), _mechanism(settings, retrain=retrain))
    if _trains(told):
        try:
            runs.refuse_other_trainer(ledger, settings)
        except (CannotRetrain, ConfigError) as error:
            return Asked(before, told, CannotRetrain(str(error)))
    return Asked(before, told)


def _trains(told: Forecast) -> bool:
    """Whether these clients' own answer needs training."""
    return told.verdict.undoes is not None and told.cost.rounds > 0


def _mechanism(settings: Settings, *, retrain: bool) -> Mechanism:
    own = build_mechanism(settings.mechanism)
    return own if retrain else WithoutRetraining(own)


@dataclass(frozen=True, eq=False)
class Answering:
    """Whoever answers the requests of a run here."""

    directory: Path
    settings: Settings
    keys: Keys
    retrain: bool
    listener: Listener
    deadline: float
    """Until when it waits for other processes; as `time.monotonic` counts."""

    def waits(self) -> bool:
        """Whether there is time left to wait."""
        return time.monotonic() < self.deadline


def _see_to_it(answering: Answering, numbers: tuple[int, ...]) -> CannotRetrain | None:
    """Answer the requests here, or wait for the process that holds the run to answer them between its rounds.

    Why some of them are left waiting; None once all are answered.
    """
    directory, told = answering.directory, False
    while not _none_pending(directory, numbers):
        try:
            refusal = _answer(answering, numbers)
        except RunInUse as error:
            if not answering.waits():
                raise RunInUse(
                    f"{error}. The request is placed and will be honoured between its rounds: "
                    f"`disavow requests {directory}` shows it"
                ) from None
            if not told:
                answering.listener.on_wait(f"{error}; the request is placed, waiting for it to be honoured")
                told = True
            time.sleep(_POLL_SECONDS)
            continue
        with Ledger.open(directory) as ledger:
            states = {request.state for request in ledger.requests(numbers) if request.pending}
        if RequestState.PURGING not in states:
            if refusal is not None:
                return refusal if states else None
        elif not answering.waits():
            raise RunInUse(
                f"{directory} is being read by another process, so deleted rows cannot be purged from its files; "
                f"`disavow resume {directory}` completes the erasure"
            )
    return None


def _none_pending(directory: Path, numbers: tuple[int, ...]) -> bool:
    with Ledger.open(directory) as ledger:
        return not any(request.pending for request in ledger.requests(numbers))


def _answer(answering: Answering, numbers: tuple[int, ...]) -> CannotRetrain | None:
    """Answer all who wait, and complete what was interrupted; why what is left cannot be trained here, if so."""
    settings, listener = answering.settings, answering.listener
    mechanism = build_mechanism(settings.mechanism)
    remark: Remark = repetition if runs.on_nodes(settings) else lambda ledger: ""
    keys, patience = answering.keys, max(0.0, answering.deadline - time.monotonic())
    with Ledger.open(
        answering.directory, write=True, signer=keys.signer, keys=keys.folder, patience=patience
    ) as ledger:
        conduct = _conduct(ledger, settings, keys.folder)
        without_training = partial(
            answer_without_training,
            ledger,
            conduct,
            on_verdict=listener.on_verdict,
            remark=remark,
        )
        without_training(mechanism)
        if not training_due(ledger):
            return None
        if not answering.retrain:
            if any(request.pending for request in ledger.requests(numbers)):
                without_training(WithoutRetraining(mechanism), among=numbers)
            return None
        try:
            with _engine(ledger, settings, listener) as engine:
                erase_with(
                    ledger,
                    engine,
                    conduct,
                    mechanism,
                    on_verdict=listener.on_verdict,
                    on_round=listener.on_round,
                )
        except CannotRetrain as refusal:
            without_training(mechanism, apart=True)
            return refusal
    return None


@contextmanager
def _engine(ledger: Ledger, settings: Settings, listener: Listener) -> Iterator[Engine]:
    """What trained the run, with its data; or why it cannot be had."""
    try:
        with listener.loading() as on_progress:
            prepared = runs.prepare_again(ledger, settings, on_progress=on_progress)
    except ConfigError as error:
        raise CannotRetrain(str(error)) from error
    try:
        yield prepared.engine
    finally:
        prepared.engine.close()
