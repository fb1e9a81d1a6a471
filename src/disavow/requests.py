"""An erasure request, from a client's wish to the answer: what `disavow erase` does.

    open keys -> forecast -> place -> answer without training ─┬─ nothing to rebuild ─────────────┐
                                                               └─ open data, engine -> rebuild ───┴─ prove, delete

Whatever can refuse comes before the request is placed. What needs no training takes neither data nor an engine; and
what does undoes nothing before both are there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from disavow import runs
from disavow.config import Settings
from disavow.data import OnProgress
from disavow.data.progress import nothing
from disavow.domain import ErasureRequest, RequestState, Verdict
from disavow.erasure.dry_run import Forecast, foresee
from disavow.erasure.erase import Remark, answer_without_training, training_due
from disavow.erasure.erase import erase as erase_with
from disavow.erasure.mechanisms import build as build_mechanism
from disavow.erasure.prove import check_openings
from disavow.erasure.repetition import repetition
from disavow.errors import CannotRetrain, ConfigError, RunInUse
from disavow.federation.local_training import Engine
from disavow.federation.round import now
from disavow.federation.training import OnRound
from disavow.ledger import Ledger
from disavow.ledger.keys import default_folder, tombstone_key
from disavow.ledger.requests import find
from disavow.ledger.taking_up import refuse_signer
from disavow.proof.keys import AskPassphrase, load_signer, nobody_to_ask
from disavow.proof.notes import Signer

_POLL_SECONDS = 0.2


@dataclass(frozen=True, eq=False)
class Keys:
    """The operator's keys, opened: what signs the run's log, and the key of its tombstones."""

    signer: Signer | None
    tombstone: bytes


@dataclass(frozen=True)
class Asked:
    """What is known before anything is placed: who has been answered before, and what the others would get.

    `forecast` is None where nobody is left to ask for.
    """

    before: Mapping[str, ErasureRequest]
    forecast: Forecast | None


Confirm = Callable[[Asked], None]
"""Sees what would happen before anything is placed; an exception from it ends the erasure with nothing changed."""


@dataclass(frozen=True)
class Listener:
    """Who hears how far an erasure is."""

    on_placed: Callable[[tuple[int, ...]], None] = lambda numbers: None
    on_wait: Callable[[str], None] = lambda why: None
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
    confirm: Confirm | None = None,
    listener: Listener = _NOBODY,
) -> Outcome:
    """Honour the wish of these clients to be forgotten.

    Another process that holds the run answers the request between its rounds; it is waited for, up to `wait`
    seconds, then `RunInUse` is raised and the request stays placed.
    """
    settings, clients = runs.settings_of(directory), list(dict.fromkeys(clients))
    if openings is not None:
        check_openings(openings, directory)
    opened = open_keys(directory, keys, ask)
    with Ledger.open(directory, shared=True) as ledger:
        runs.refuse_changed(ledger, settings)
        with ledger.snapshot() as connection:
            refuse_signer(connection, opened.signer)
        if confirm is not None:
            confirm(_asked(ledger, clients, settings, opened.tombstone))
        numbers = ledger.place_requests(clients, key=opened.tombstone, at=now())
    listener.on_placed(numbers)
    refusal = _see_to_it(directory, numbers, settings, opened.signer, openings, wait, listener)
    with Ledger.open(directory) as ledger:
        found = {request.number: request for request in ledger.requests(numbers)}
    return Outcome({client: found[number] for client, number in zip(clients, numbers, strict=True)}, refusal)


def open_keys(directory: Path, keys: Path | None, ask: AskPassphrase) -> Keys:
    """Open the operator's keys; a wrong passphrase is refused here, before anything is placed."""
    folder = keys or default_folder()
    return Keys(load_signer(folder, ask), tombstone_key(folder, run=directory))


def forecast(directory: Path, clients: Sequence[str], *, keys: Path | None = None) -> Asked:
    """What `erase` would do. Changes nothing, and makes no key."""
    settings = runs.settings_of(directory)
    with Ledger.open(directory) as ledger:
        # nobody has asked: then there may be no key yet, and looking must not make one
        key = tombstone_key(keys or default_folder(), run=directory) if ledger.requests() else None
        return _asked(ledger, list(dict.fromkeys(clients)), settings, key)


def _asked(ledger: Ledger, clients: Sequence[str], settings: Settings, key: bytes | None) -> Asked:
    before: dict[str, ErasureRequest] = {}
    if key is not None:
        with ledger.snapshot() as connection:
            found = {client: find(connection, client, key=key) for client in clients}
        before = {c: r for c, r in found.items() if r is not None and r.state is not RequestState.WAITING}
    asking = [client for client in clients if client not in before]
    if not asking:
        return Asked(before, None)
    return Asked(before, foresee(ledger, asking, runs.conduct_of(settings), build_mechanism(settings.mechanism)))


def _see_to_it(
    directory: Path,
    numbers: tuple[int, ...],
    settings: Settings,
    signer: Signer | None,
    openings: Path | None,
    wait: float,
    listener: Listener,
) -> CannotRetrain | None:
    """Answer the requests here, or wait for the process that holds the run to answer them between its rounds.

    Why some of them are left waiting; None once all are answered.
    """
    deadline, told = time.monotonic() + wait, False
    while not _all_answered(directory, numbers):
        try:
            refusal = _answer(directory, settings, signer, openings, listener)
        except RunInUse as error:
            if time.monotonic() >= deadline:
                raise RunInUse(
                    f"{error}. The request is placed and will be honoured between its rounds: "
                    f"`disavow requests {directory}` shows it"
                ) from None
            if not told:
                listener.on_wait(f"{error}; the request is placed, waiting for it to be honoured")
                told = True
            time.sleep(_POLL_SECONDS)
            continue
        with Ledger.open(directory) as ledger:
            states = {request.state for request in ledger.requests(numbers)}
        if RequestState.PURGING not in states:
            if refusal is not None:
                return refusal if states != {RequestState.ANSWERED} else None
        elif time.monotonic() >= deadline:
            raise RunInUse(
                f"{directory} is being read by another process, so deleted rows cannot be purged from its files; "
                f"`disavow resume {directory}` completes the erasure"
            )
    return None


def _all_answered(directory: Path, numbers: tuple[int, ...]) -> bool:
    with Ledger.open(directory) as ledger:
        return all(request.state is RequestState.ANSWERED for request in ledger.requests(numbers))


def _answer(
    directory: Path, settings: Settings, signer: Signer | None, openings: Path | None, listener: Listener
) -> CannotRetrain | None:
    """Answer all who wait, and complete what was interrupted; why what is left cannot be trained here, if so."""
    conduct, mechanism = runs.conduct_of(settings), build_mechanism(settings.mechanism)
    remark: Remark = repetition if runs.on_nodes(settings) else lambda ledger: ""
    with Ledger.open(directory, write=True, signer=signer) as ledger:

        def without_training(*, apart: bool = False) -> None:
            answer_without_training(
                ledger,
                conduct,
                mechanism,
                apart=apart,
                on_verdict=listener.on_verdict,
                openings=openings,
                remark=remark,
            )

        without_training()
        if not training_due(ledger):
            return None
        try:
            with _engine(directory, settings, listener) as engine:
                erase_with(
                    ledger,
                    engine,
                    conduct,
                    mechanism,
                    on_verdict=listener.on_verdict,
                    on_round=listener.on_round,
                    openings=openings,
                )
        except CannotRetrain as refusal:
            without_training(apart=True)
            return refusal
    return None


@contextmanager
def _engine(directory: Path, settings: Settings, listener: Listener) -> Iterator[Engine]:
    """The engine that the settings describe, with its data; or why it cannot be had."""
    try:
        runs.refuse_on_nodes(settings, directory)
        with listener.loading() as on_progress:
            prepared = runs.prepare(settings, on_progress=on_progress)
    except ConfigError as error:
        raise CannotRetrain(str(error)) from error
    try:
        yield prepared.engine
    finally:
        prepared.engine.close()
