"""`disavow erase`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import typer

from disavow.cli.files import read_lines
from disavow.cli.output import loading, print_json, progress, results, size
from disavow.cli.passphrase import ask_passphrase
from disavow.cli.requests import sentence, who_acts
from disavow.cli.rounds import Watch, verdict_line
from disavow.domain import EngineChoice, RequestState, Verdict, VerdictKind, escaped, model_name
from disavow.erasure.dry_run import Forecast
from disavow.erasure.mechanisms import DECLINED
from disavow.erasure.proof_files import proof_path, unsigned_path
from disavow.errors import ApprovalAwaited, CannotRetrain, ConfigError, NotConfirmed
from disavow.federation import Callbacks, Federation
from disavow.ledger import Ledger
from disavow.ledger.files import kind_of
from disavow.ledger.keys import default_folder
from disavow.ledger.work_folders import Study, remove_work_folder, work_folder
from disavow.proof.bounds import as_odds, noise_in_words
from disavow.proof.envelope import LARGEST
from disavow.proof.keys import PUBLIC
from disavow.proof.summary import count_records
from disavow.results import Answer, Prospect

if TYPE_CHECKING:
    from disavow.data.progress import OnProgress
    from disavow.proof.summary import Summary

_LEFT_BEHIND: dict[Study, str] = {
    "audit": "an interrupted audit left: it named clients",
    "compare": "a comparison left: it held copies",
}
"""What may lie beside a run that has somebody in it who is erased now."""

_INTERRUPTED = 130
_STAYING = (
    "what each client has contributed so far would be withdrawn; it would stay, under a new key, and no round "
    "would train on the records again"
)
_STAYED = "the client stays, under a new key; no round trains on the records again. Their deletion is its own word"
_WITHDRAWN_BEFORE = (
    "never present: under its present key the client took part in no round. If it had records erased before, what "
    "it contributed until then was withdrawn by that request"
)


@dataclass(frozen=True)
class Wanted:
    """What is to be erased: clients, records of them, or records wherever they are."""

    clients: tuple[str, ...] | None
    records: tuple[str, ...] | None
    everywhere: tuple[str, ...] | None
    unchecked: bool


def wanted(
    clients: list[str] | None,
    record: list[str] | None,
    records: Path | None,
    everywhere: list[str] | None,
    *,
    unchecked: bool,
) -> Wanted:
    """Put together what the command line says."""
    keys = [*(record or ()), *(read_lines(records) if records else ())]
    named = record or records is not None
    if not clients and not everywhere:
        raise ConfigError("erase wants a CLIENT, or --everywhere and the key of a record")
    if unchecked and not named:
        raise ConfigError("--unchecked goes with --record or --records alone: only records are looked for")
    return Wanted(
        tuple(clients) if clients else None,
        tuple(keys) if named else None,
        tuple(everywhere) if everywhere else None,
        unchecked,
    )


def erase(
    directory: Path,
    wanted: Wanted,
    *,
    dry_run: bool,
    wait: float,
    retrain: bool,
    check: bool,
    yes: bool,
    openings: Path | None,
    as_json: bool,
    task: str | None = None,
    by: str | None = None,
) -> None:
    """Honour the wish of clients to be forgotten, or to have records erased."""
    if dry_run:
        _show_forecast(directory, wanted, retrain=retrain, as_json=as_json, task=task)
        return
    if check:
        from disavow.run_checks import refuse_damaged

        refuse_damaged(directory)
    with (
        Shown() as shown,
        Federation.open(
            directory, task, ask=ask_passphrase, openings=openings, loading=shown.loading
        ) as federation,
    ):
        shown.ledger = federation.ledger
        try:
            answer = federation.erase(
                wanted.clients,
                records=wanted.records,
                everywhere=wanted.everywhere,
                unchecked=wanted.unchecked,
                wait=wait,
                retrain=retrain,
                confirm=None if yes else lambda prospect: _confirm(federation, wanted, prospect),
                callbacks=shown.callbacks,
                by=who_acts(federation) if by is None else by,
            )
        except KeyboardInterrupt:
            outcome = (
                f"`disavow resume {directory}` completes the erasure" if shown.placed else "nothing was changed"
            )
            print(f"interrupted; {outcome}", file=sys.stderr)
            raise typer.Exit(_INTERRUPTED) from None
        for study, left in _LEFT_BEHIND.items():
            if remove_work_folder(directory, study):
                progress().print(f"removed {work_folder(directory, study)}, which {left}")
        _show(federation, answer, shown.engine, as_json=as_json)
    if answer.refusal is not None:
        raise _not_here(answer)
    if held := [request for request in answer.requests.values() if request.on_hold]:
        numbers = ", ".join(str(request.number) for request in held)
        what = "resume" if held[0].paused else "approve"
        placed = f"request {numbers} is placed" if len(held) == 1 else f"requests {numbers} are placed"
        raise ApprovalAwaited(
            f"{placed}, and not answered before somebody decides: "
            f"`disavow request {what} {directory} {held[0].number}`"
        )


def _show(federation: Federation, answer: Answer, engine: EngineChoice | None, *, as_json: bool) -> None:
    """Print what became of each request."""
    from disavow.proof.summary import summary_in_words

    summaries = {client: federation.summary_of(each.number) for client, each in answer.requests.items()}
    if as_json:
        shown = [
            {
                **request.to_json(),
                "client": client,
                "proof": _if_there(proof_path(federation.directory, request.number)),
                "opening": _if_there(federation.opening_of(request.number)),
                "summary": asdict(summary) if (summary := summaries[client]) else None,
                "noise": _noise_in_words(summaries[client]),
            }
            for client, request in answer.requests.items()
        ]
        trained = engine.to_json() if engine else None
        print_json({"run": str(federation.directory), "engine": trained, "requests": shown})
        return
    for client, request in answer.requests.items():
        results().print(f"{escaped(client)}: {sentence(request)}")
        if request.state is RequestState.ANSWERED:
            if request.records is not None:
                results().print(f"  {_STAYED}")
                if request.verdict is not None and request.verdict.kind is VerdictKind.NEVER_PRESENT:
                    results().print(f"  {_WITHDRAWN_BEFORE}")
            results().print(_proof_of(federation, request.number, client))
            summary = summaries[client]
            for line in summary_in_words(summary) if summary is not None else ():
                results().print(f"  {line}")
            if (noise := _noise_in_words(summary)) is not None:
                results().print(f"  {noise}")
    if any(request.verdict and request.verdict.undoes for request in answer.requests.values()):
        results().print(
            "The model has changed: export it again, and take out of service what was exported before, which "
            f"contains {'the records' if _of_records(answer) else 'the leavers'}."
        )
        tell_superseded(federation)


def tell_superseded(federation: Federation) -> None:
    """Say that models were given to others which are superseded."""
    if out := sum(release.superseded for release in federation.releases()):
        results().print(
            f"{'1 release is' if out == 1 else f'{out} releases are'} superseded: `disavow releases "
            f"{federation.directory} --notices FOLDER` writes a notice to whoever received it."
        )


def _if_there(path: Path) -> str | None:
    return str(path) if path.exists() else None


def _of_records(answer: Answer) -> bool:
    return any(request.records is not None for request in answer.requests.values())


def _not_here(answer: Answer) -> CannotRetrain:
    """Who is not answered yet because it takes a training that cannot be done here, and how to go on."""
    left = {c: r.state for c, r in answer.requests.items() if r.state is not RequestState.ANSWERED}
    undone = RequestState.WAITING not in left.values()
    return CannotRetrain(
        f"{', '.join(map(escaped, left))}: not answered yet, rounds have to be trained again, which cannot be done "
        f"here: {answer.refusal}. "
        f"{'Their rollback was made before' if undone else 'The request waits, and nothing was undone for it'}; "
        "`--without-retraining` answers it and serves the earlier model"
    )


class Shown:
    """An erasure on a terminal: one bar at a time, for data that is loaded or for rounds that are trained again."""

    ledger: Ledger
    """Of the run that is open: set before anything is erased."""

    def __init__(self) -> None:
        self._watch = ExitStack()
        self._rounds: Watch | None = None
        self.placed = False
        self.engine: EngineChoice | None = None
        self.callbacks = Callbacks(
            on_placed=self._on_placed,
            on_wait=progress().print,
            on_note=lambda note: progress().print(f"note: {note}"),
            on_engine=self._on_engine,
            on_verdict=self._on_verdict,
            on_round=lambda summary: self._watching().on_round(summary),
            on_purge=lambda forecast: self._watching().on_purge(forecast),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_watching()

    def _on_placed(self, numbers: tuple[int, ...]) -> None:
        self.placed = bool(numbers)

    @contextmanager
    def loading(self) -> Iterator[OnProgress]:
        """Show how far the data is."""
        self._stop_watching()
        with loading(progress()) as on_progress:
            yield on_progress

    def _on_engine(self, choice: EngineChoice) -> None:
        self.engine = choice
        progress().print(f"engine: {choice}")

    def _on_verdict(self, verdict: Verdict, requests: int) -> None:
        if verdict.undoes is None:  # nothing is retrained: a line is enough
            progress().print(verdict_line(verdict, requests), style="bold")
        else:
            self._watching().on_verdict(verdict, requests)

    def _watching(self) -> Watch:
        if self._rounds is None:
            self._rounds = self._watch.enter_context(Watch.of(progress(), "retraining", self.ledger))
        return self._rounds

    def _stop_watching(self) -> None:
        self._watch.close()
        self._rounds = None


def _proof_of(federation: Federation, number: int, client: str) -> str:
    """Where the proof of an answered request lies, its opening, and the command that checks both."""
    directory = federation.directory
    proof, unsigned = proof_path(directory, number), unsigned_path(directory, number)
    opening = federation.opening_of(number)
    if any(kind_of(path) not in (None, "a file") for path in (proof, unsigned)):
        return f"  proof: {proof} is not a file; `disavow fsck {directory}` says more"
    named = f"; its opening, for the leaver alone: {opening}" if opening.exists() else ""
    if proof.exists():
        line = f"  proof: {proof}{named}"
        return f"{line}\n  check it: {_verify_command(proof, opening, client)}" if opening.exists() else line
    if unsigned.exists():
        return f"  proof: not signed, there is no key (`disavow keygen`, then `disavow prove`){named}"
    return "  no proof: it was answered before there were proofs"


def _verify_command(proof: Path, opening: Path, client: str) -> str:
    """The command that checks a proof, ready to be pasted; `signing.pub` where the key is not a file here."""
    public = default_folder() / PUBLIC
    parts = ["verify", proof, "--key", public if public.exists() else PUBLIC, "--opening", opening]
    if escaped(client) == client:  # what cannot be printed cannot be pasted
        parts += ["--client", client]
    return shlex.join(["disavow", *map(str, parts)])


def _noise_in_words(summary: Summary | None) -> str | None:
    return noise_in_words(summary.composed) if summary is not None and summary.rounds else None


def _confirm(federation: Federation, wanted: Wanted, prospect: Prospect) -> None:
    """Let a person say that rounds are to be undone, before anything is placed; elsewhere `--yes` says so."""
    forecast = prospect.forecast
    if forecast is None or forecast.verdict.undoes is None:
        return
    asking = ", ".join(_in_words(client, prospect) for client in _asking(wanted, prospect))
    unplaced = "nothing was changed"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise NotConfirmed(
            f"{asking}: {foretold(forecast)}; {unplaced}: `--yes` confirms it, `--dry-run` only says what it costs"
        )
    earlier = forecast.verdict.undoes - 1
    digest = federation.ledger.digest_before(earlier + 1)
    progress().print(f"{asking}: {foretold(forecast)}.\nUntil then {model_name(earlier)} is served: {digest}")
    if prospect.refusal is not None:
        progress().print(
            f"It cannot be done here ({prospect.refusal}): the request would wait, and undo nothing yet."
        )
    if ask("Undo these rounds? [y/N] ").strip().lower() not in ("y", "yes"):
        raise NotConfirmed(f"not confirmed; {unplaced}")


def _asking(wanted: Wanted, prospect: Prospect) -> list[str]:
    """Who has not been answered before."""
    return [
        client
        for client in dict.fromkeys(prospect.records or wanted.clients or ())
        if client not in prospect.before
    ]


def _in_words(client: str, prospect: Prospect) -> str:
    """Whom or what is asked for."""
    if client not in prospect.records:
        return escaped(client)
    return f"{count_records(len(prospect.records[client]))} of {escaped(client)}"


def ask(question: str) -> str:
    """Ask on stderr, where progress goes: stdout is for the result alone."""
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline()


def _show_forecast(directory: Path, wanted: Wanted, *, retrain: bool, as_json: bool, task: str | None) -> None:
    with Shown() as shown, Federation.open(directory, task, loading=shown.loading) as federation:
        prospect = federation.forecast(
            wanted.clients,
            records=wanted.records,
            everywhere=wanted.everywhere,
            unchecked=wanted.unchecked,
            retrain=retrain,
        )
        mechanism = federation.settings.mechanism.name
    before, forecast = prospect.before, prospect.forecast
    clients = _asking(wanted, prospect)
    if not as_json:
        for client, request in before.items():
            results().print(f"{escaped(client)} has asked before: {sentence(request)}")
    if forecast is None:
        if as_json:
            answered = [{**request.to_json(), "client": client} for client, request in before.items()]
            print_json({"run": str(directory), "dry_run": True, "requests": answered})
        return
    if as_json:
        print_json(
            {
                "run": str(directory),
                "dry_run": True,
                "clients": clients,
                "records": {client: list(keys) for client, keys in prospect.records.items()} or None,
                "verdict": forecast.verdict.kind.value,
                "first_broken_round": forecast.verdict.round,
                "rollback_to_round": forecast.verdict.undoes,
                "criterion": forecast.verdict.criterion,
                "log10_odds": dict(forecast.odds),
                "cost": asdict(forecast.cost),
                "served_round": forecast.served,
                "obstacle": forecast.obstacle,
                "cannot_retrain": str(prospect.refusal) if prospect.refusal else None,
                "mechanism": mechanism,
                "approximate": forecast.approximate,
                "proof_too_large": forecast.too_large,
            }
        )
        return
    results().print(f"{', '.join(_in_words(client, prospect) for client in clients)}: {foretold(forecast)}")
    if prospect.records:
        results().print(f"  {_STAYING}")
    for client, odds in forecast.odds.items():
        if odds is not None:
            results().print(
                f"  {escaped(client)}: odds of {as_odds(odds)} over its rounds that stand (95 % quantile)"
            )
    if forecast.odds and (noise := noise_in_words(_worst(forecast.odds.values()))) is not None:
        results().print(f"  {noise}")
    if prospect.refusal is not None:
        results().print(
            f"That cannot be trained here: {prospect.refusal}. The request would wait, with nothing undone for it; "
            "`--without-retraining` rolls back and serves the earlier model."
        )
    if forecast.too_large is not None:
        results().print(_too_large(forecast.too_large))
    results().print("Nothing was changed.")


def _worst(odds: Collection[float | None]) -> float | None:
    """The largest; None where one of them has no bound."""
    return None if None in odds else max(each for each in odds if each is not None)


def _too_large(size_of_proof: int) -> str:
    return (
        f"A proof may have up to {size_of_proof:,} bytes, and a verifier reads {LARGEST:,}: the request may be "
        "refused, with nothing undone (docs/erasure.md, proofs that are too large)."
    )


def foretold(forecast: Forecast) -> str:
    """A forecast in words."""
    cost, verdict = forecast.cost, forecast.verdict
    again, done = ("rebuild approximately", "rebuilt") if forecast.approximate else ("retrain", "retrained")
    if verdict.round is None and not cost.rounds:
        return f"{verdict}; the answer is immediate and the model stays"
    if verdict.round is None:
        return f"{verdict}; an earlier rollback still has {cost.rounds} rounds to {again}"
    if forecast.obstacle is not None and cost.rounds:
        return (
            f"{verdict.in_full}; {cost.rounds} rounds can be {done}, {cost.client_epochs:,} client-epochs, "
            f"about {cost.seconds:.0f} s, no more ({forecast.obstacle}): {model_name(forecast.served)} is served"
        )
    if forecast.obstacle == DECLINED:
        return f"{verdict.in_full}; nothing is trained again: {model_name(forecast.served)} is served"
    if forecast.obstacle is not None:
        return (
            f"{verdict.in_full}; it cannot be {done} ({forecast.obstacle}): {model_name(forecast.served)} is served"
        )
    stand = f"; {forecast.served} rounds stand then" if forecast.approximate else ""
    return (
        f"{verdict.in_full}; {cost.rounds} rounds to {again}, {cost.client_epochs:,} client-epochs, "
        f"{size(cost.exchanged_bytes)} to exchange with clients, about {cost.seconds:.0f} s{stand}"
    )
