"""`disavow demo`: the main job, on data that is already here: train, let clients leave, prove it."""

from __future__ import annotations

import base64
import json
import shlex
import shutil
import sys
import time
import zlib
from itertools import count
from pathlib import Path

from disavow import config
from disavow.cli.erase import foretold
from disavow.cli.output import Console, progress, results, size
from disavow.cli.requests import sentence
from disavow.cli.rounds import Watch
from disavow.cli.train import go_on, report
from disavow.domain import VerdictKind
from disavow.erasure.dry_run import foresee
from disavow.erasure.proof_files import OPENINGS_SUFFIX, opening_path, proof_path
from disavow.federation import Callbacks, Federation
from disavow.ledger import Ledger, fsck
from disavow.ledger.creation import refuse_existing
from disavow.ledger.rows import time_to_text
from disavow.proof.envelope import PACKED_TYPE, Envelope
from disavow.proof.keys import PUBLIC, generate, trusted_keys
from disavow.proof.verify import Report, VerificationInputs, examine
from disavow.rounds.options import now

_CLIENTS = 20


def demo(directory: Path | None, *, rounds: int, as_json: bool) -> None:
    """Train the demo's federation, let clients leave it, and say what to try next."""
    directory = directory or _free(Path("runs"))
    refuse_existing(directory)
    settings = config.from_values(
        {"draws": "seeded", "rounds": rounds, "data": {"clients": _CLIENTS}}, source="demo"
    )
    console, keys = progress(), _keys_of(directory)
    generate(
        keys, name="demo", passphrase=None, at=time_to_text(now())
    )  # of its own: the demo leaves your keys alone
    with Federation.create(directory, settings, keys=keys) as run:
        policy, parameters = run.ledger.policy, run.ledger.layout.size
        console.print(
            f"{_CLIENTS} clients hold real handwritten digits and train {settings.model.name} "
            f"({parameters:,} numbers).\n"
            f"Each round they are clustered into groups of at least k = {policy.k}; one member of\n"
            "each group is drawn in secret and perturbed, and only those enter the model.\n"
        )
        go_on(run)
        alone, together = _leavers(run)
        _let_leave(run, [alone], console)
        if together:
            _let_leave(run, together, console)
        _tamper(directory, console)
        if as_json:
            report(run, as_json=True)
    if not as_json:
        _conclude(directory, [alone, *together])


def _leavers(run: Federation) -> tuple[str, list[str]]:
    """Somebody who can leave at once, and mates of its whose leaving after that takes a retraining."""
    mates = max((sorted(group) for group in run.ledger.membership(1)), key=lambda group: (-len(group), group))
    alone, rest = mates[0], mates[1:]
    for some in range(1, len(rest) + 1):
        forecast = foresee(run.ledger, [alone, *rest[:some]], run.options, run.mechanism)
        if forecast.verdict.kind is VerdictKind.ROLLBACK:
            return alone, rest[:some]
    return alone, []


def _let_leave(run: Federation, leavers: list[str], console: Console) -> None:
    names = " and ".join(leavers)
    forecast = foresee(run.ledger, leavers, run.options, run.mechanism)
    console.print(f"\n{names}: forget me.\nForeseen: {foretold(forecast)}.")
    started = time.monotonic()
    numbers = run.ledger.place_requests(leavers, at=run.options.clock())
    with Watch.of(console, "retraining", run.ledger) as watch:
        run.answer(Callbacks(watch.on_round, watch.on_verdict))
    [request] = run.ledger.requests(numbers[:1])
    console.print(f"{names}: {sentence(request)} ({time.monotonic() - started:.1f} s)")
    for number in numbers:
        report = _verified(run.ledger.directory, number)
        named = report.opening.client if report.opening else "nobody"
        passed = sum(result.passed is True for result in report.results)
        console.print(
            f"Proof {number}: valid, {passed} checks passed; with its opening it is about {named}, without it "
            "about nobody."
        )


def _verified(directory: Path, number: int, proof: bytes | None = None) -> Report:
    """A proof checked as anyone would, from the files alone."""
    return examine(
        VerificationInputs(
            proof=proof or proof_path(directory, number).read_bytes(),
            trusted=trusted_keys(_keys_of(directory) / PUBLIC),
            opening=_opening(directory, number).read_bytes(),
        )
    )


def _tamper(directory: Path, console: Console) -> None:
    """Change the verdict in a proof, as somebody might who would rather not retrain."""
    proof = proof_path(directory, 1).read_bytes()
    statement = Envelope.decode(proof).statement.replace(b'"kind":"deniable"', b'"kind":"never present"')
    payload = base64.b64encode(zlib.compress(statement)).decode()
    sealed = {**json.loads(proof), "payload": payload, "payloadType": PACKED_TYPE}
    forged = json.dumps(sealed, sort_keys=True, separators=(",", ":")).encode()
    report = _verified(directory, 1, forged)
    if report.failed is None:
        raise RuntimeError("a forged proof was accepted")
    console.print(
        f"\nProof 1 with another verdict written into it: refused, check {report.failed.number} "
        f"({report.failed.name}): {report.failed.detail}."
    )


def _conclude(directory: Path, gone: list[str]) -> None:
    faults = [finding for finding in fsck(directory, keys=_keys_of(directory)) if finding.fault]
    with Ledger.open(directory, keys=_keys_of(directory)) as ledger:
        standing = [summary for summary in ledger.summaries() if summary.standing]
        stored = size(ledger.stored_bytes())
    last = standing[-1]
    accuracy = f"{last.evaluation.accuracy:.1%}" if last.evaluation else "-"
    run, keys = shlex.quote(str(directory)), shlex.quote(str(_keys_of(directory)))
    proof, opening = (shlex.quote(str(path)) for path in (proof_path(directory, 1), _opening(directory, 1)))
    results().print(
        f"\nAfter {last.number} rounds, and without {', '.join(gone)}, the model reads {accuracy} of the digits\n"
        f"it has never seen. Its ledger is in {directory} ({stored}) and passes every check"
        f"{f' but {len(faults)}' if faults else ''}.\n\n"
        "Try next:\n"
        f"{_activate()}"
        f"  DISAVOW_KEYS={keys} disavow status {run}\n"
        f"  DISAVOW_KEYS={keys} disavow requests {run}\n"
        f"  DISAVOW_KEYS={keys} disavow fsck {run} --absent {gone[0]}\n"
        f"  disavow show-proof {proof}\n"
        f"  disavow verify {proof} --key {keys}/{PUBLIC} \\\n"
        f"      --opening {opening}\n"
        f"  DISAVOW_KEYS={keys} disavow erase {run} {_next_after(gone)} --dry-run\n"
        f"  DISAVOW_KEYS={keys} disavow audit {run} --client {_next_after(gone)}    # a minute or two\n"
        "  disavow plan --clients 50 --rounds 50 --k 4 --k 8 --x 3\n"
        "  disavow init config.toml && disavow train config.toml --run runs/mine"
    )


def _activate() -> str:
    """The line that puts this installation's `disavow` on the PATH; none where a shell finds it already."""
    scripts = Path(sys.prefix) / "bin"
    found = shutil.which("disavow")
    if found is not None and Path(found).parent.samefile(scripts):
        return ""
    if not (scripts / "activate").is_file():
        return f"  export PATH={shlex.quote(str(scripts))}:$PATH\n"
    here = Path.cwd()
    shown = scripts.relative_to(here) if scripts.is_relative_to(here) else scripts
    return f"  source {shlex.quote(str(shown / 'activate'))}\n"


def _keys_of(directory: Path) -> Path:
    """The demo's keys: beside its run, never in it."""
    return directory.with_name(directory.name + ".keys")


def _opening(directory: Path, number: int) -> Path:
    folder = directory.with_name(directory.name + OPENINGS_SUFFIX)
    with Ledger.open(directory, keys=_keys_of(directory)) as ledger:
        return opening_path(folder, ledger.run_id, number)


def _next_after(gone: list[str]) -> str:
    """Somebody who is still in, to try it on."""
    return next(name for i in count(1) if (name := f"client-{i:02d}") not in gone)


def _free(folder: Path) -> Path:
    """runs/demo, or the first of runs/demo-2, runs/demo-3, ... that is not there yet."""
    names = (folder / ("demo" if i == 1 else f"demo-{i}") for i in count(1))
    return next(path for path in names if not path.exists() and not _keys_of(path).exists())
