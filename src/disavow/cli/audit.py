"""`disavow audit`: attack a run's models for traces of a client, before and after its erasure is rehearsed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from disavow.audit.audit import Effort, audit
from disavow.audit.difference import Difference
from disavow.audit.epsilon import LEVEL as EPSILON_LEVEL
from disavow.audit.epsilon import EpsilonBound
from disavow.audit.forging import Histories
from disavow.audit.game import ATTACKERS, Stage
from disavow.audit.plot import draw_roc
from disavow.audit.power import POWER
from disavow.audit.report import LEVEL, RATES, Attacked, Audit, Found
from disavow.audit.roc import FALSE_POSITIVES_NEEDED, Measure
from disavow.audit.subject import Subject, subject_of
from disavow.cli.options import check_plot
from disavow.cli.output import Bar, loading, print_json, progress, results
from disavow.cli.rounds import rebuilt
from disavow.domain import VerdictKind, escaped
from disavow.erasure.mechanisms import build as build_mechanism
from disavow.errors import ConfigError
from disavow.ledger.keys import default_folder
from disavow.ledger.work_folders import work_folder

_INTERRUPTED = 130
_FOUND = 1
COULD_NOT_SEE = 16
"""Nothing was found, and the advantage asked about could not have been: see the table in `disavow.errors`."""


def audit_client(
    directory: Path,
    client: str,
    effort: Effort,
    *,
    plot: Path | None,
    work: Path | None,
    as_json: bool,
    task: str | None = None,
    records: Sequence[str] = (),
) -> None:
    """Audit a client still in, or records of it; exit 1 where an attacker tells the served model from retrained
    ones, 16 where none does and the advantage of `effort.detect` could not have been seen.
    """
    if plot is not None:
        check_plot(plot)
    with loading(progress()) as on_progress:
        subject = subject_of(
            directory, client, task=task, seed=effort.seed, on_progress=on_progress, records=records
        )
    work = work or work_folder(directory, "audit")
    if work.resolve().is_relative_to(directory.resolve()):
        raise ConfigError(f"--work is {work}; allowed: a folder outside the run directory {directory}")
    console = progress()
    console.print(_announcement(subject, effort))
    try:
        with Bar(console, "training worlds", len(effort.worlds_of(subject)) * subject.rounds) as shown:
            report = audit(
                subject,
                effort,
                work=work,
                keys=default_folder(),
                mechanism=build_mechanism(subject.settings.mechanism),
                on_round=shown.advance,
            )
    except KeyboardInterrupt:
        print("interrupted; the same command goes on with the worlds that are left", file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None
    if as_json:
        print_json(to_json(report, directory, effort))
    else:
        for line in lines(report, directory):
            results().print(line)
    if plot is not None:
        _draw(report, plot)
    if not report.clean:
        raise typer.Exit(_FOUND)
    if report.blind:
        raise typer.Exit(COULD_NOT_SEE)


def _announcement(subject: Subject, effort: Effort) -> str:
    half, trained = effort.worlds // 2, len(effort.worlds_of(subject))
    return _chosen(effort) + (
        f"training {trained} federations of {len(subject.clients)} clients for {subject.rounds} rounds: "
        f"{half} with {_audited(subject)}, {half} without, {half} retrained, {trained - 3 * half} shadows"
    )


def _audited(subject: Subject) -> str:
    number = len(subject.erased)
    of = f"{number} record{'s' if number > 1 else ''} of " if number else ""
    return f"{of}{escaped(subject.client)}"


def _chosen(effort: Effort) -> str:
    """How many worlds it takes to see what is to be seen, and why."""
    if effort.detect is None or effort.needed is None:
        return ""
    why = (
        f"an advantage of {effort.detect:g} takes {effort.needed:,} worlds: with that many, {POWER:.0%} of audits "
        f"detect it, where the intervals of all {len(ATTACKERS)} attackers hold together at {LEVEL:.0%}"
    )
    short = f"; --worlds {effort.worlds} is too few to see it" if effort.worlds < effort.needed else ""
    return f"{why}{short}\n"


def _draw(report: Audit, path: Path) -> None:
    curves = {
        found.attacker: {stage: attacked.scores for stage, attacked in found.stages.items()}
        for found in report.found
    }
    given_away = report.given_away
    if report.moved:  # else there is but one model
        curves[given_away.attacker] = {stage: attacked.scores for stage, attacked in given_away.stages.items()}
    draw_roc(curves, path, f"{report.what}: before the erasure, as served after it, and retrained without")


def lines(report: Audit, directory: Path) -> Iterator[str]:
    """The report for people."""
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(report.verdicts.items()))
    yield f"Audit of {report.what} in {directory}, {report.rounds} rounds"
    yield f"  rehearsed erasure  {_erasure(report)}"
    alike = " with the same labels" if report.classes else ""
    yield f"  records            {report.own} own, {report.held_out} held out{alike}"
    yield f"  worlds             {report.worlds}, half of them with the {report.unit}{_plural(report)} ({verdicts})"
    if report.erased:
        yield "  unit               record: the client takes part in every world, with the records or without"
    if report.shadows:
        yield f"  shadows            {report.shadows}, whose seat holds a random half of the records"
    yield "  attackers          know everything but the secret draws: all other data, batches, the initial model"
    for name, why in report.skipped.items():
        yield f"  left out           {name}: {why}"
    if report.departed:
        yield f"  earlier leavers    {report.departed} in rounds that stand: in the model, but in no world"
    yield ""
    if report.purged:
        yield "  purge              rehearsed after it; answered: the model until then, served: the one after it"
        yield ""
    yield from _table(report, "AUC [95 % interval]", lambda attacked: attacked.auc)
    yield ""
    yield from _table(report, "advantage", lambda attacked: attacked.advantage)
    yield ""
    for place, rate in enumerate(RATES):
        yield from _rates(report, place, rate)
    yield ""
    if report.purged:
        yield from _differences(report, "answered minus retrained", lambda found: found.interim)
        yield ""
    yield from _differences(report, "served minus retrained", lambda found: found.difference)
    yield ""
    yield from _forging(report)
    yield ""
    yield from _histories(report.histories)
    yield ""
    yield from _given_away(report)
    yield ""
    if report.bound is not None:
        yield from _epsilon(report.bound)
        yield ""
    yield from report.conclusion()


def _differences(report: Audit, what: str, difference: Callable[[Found], Difference | None]) -> Iterator[str]:
    """How much better attackers do than on retrained models."""
    yield f"{what:24}{'AUC':>8}   interval, {100 * LEVEL:g} % for all attackers together"
    for found in report.found:
        estimated = difference(found)
        if estimated is not None:
            verdict = "contains 0" if estimated.contains_zero else "does not contain 0"
            interval = f"[{estimated.interval.low:+.3f}, {estimated.interval.high:+.3f}]"
            yield f"{_name(found):24}{estimated.estimate:+8.3f}   {interval}   {verdict}"


def _plural(report: Audit) -> str:
    return "s" if len(report.erased) > 1 else ""


def _table(report: Audit, what: str, measure: Callable[[Attacked], Measure]) -> Iterator[str]:
    """One measure of every attacker that can be estimated, stage by stage."""
    stages = [stage for stage in Stage if stage is not Stage.ANSWERED or report.purged]
    yield f"{what:24}" + "".join(f"{stage.value:>20}" for stage in stages)
    for found in report.found:
        cells = [measure(found.stages[stage]) for stage in stages]
        if any(cell.estimable for cell in cells):
            yield f"{_name(found):24}" + "".join(f"{_cell(cell):>20}" for cell in cells)


def _erasure(report: Audit) -> str:
    answer = report.answer
    if answer.verdict is None or answer.verdict.kind is not VerdictKind.ROLLBACK:
        return f"{answer.verdict}; the model stays as it is"
    cost = answer.cost
    work = rebuilt(answer) if cost and cost.rounds else (answer.remark or "nothing retrained")
    return f"{answer.verdict}, {work}; the model moved by {report.moved:.3g}"


def _name(found: Found) -> str:
    return f"{found.attacker}, {found.unit}s"


def _cell(measure: Measure) -> str:
    if measure.estimate is None or measure.interval is None:
        return "not estimable"
    return f"{measure.estimate:.2f} [{measure.interval.low:.2f}, {measure.interval.high:.2f}]"


def _rates(report: Audit, place: int, rate: float) -> Iterator[str]:
    """True-positive rates at one false-positive rate, or why they cannot be estimated."""
    what = f"TPR at {100 * rate:g} % FPR"
    if any(found.stages[Stage.SERVED].tpr[place].estimable for found in report.found):
        yield from _table(report, what, lambda attacked: attacked.tpr[place])
    short = {
        found.unit: len(found.stages[Stage.SERVED].scores.absent)
        for found in report.found
        if not found.stages[Stage.SERVED].tpr[place].estimable
    }
    if short:
        there = " and ".join(f"{count} absent {unit}s" for unit, count in short.items())
        yield f"{what:24}not estimable from {there}: it needs {FALSE_POSITIVES_NEEDED / rate:,.0f}"


def _forging(report: Audit) -> Iterator[str]:
    """Functional equivalence."""
    if not report.forged:
        why = "each was rebuilt, or has a cluster without a survivor"
        yield f"no standing round could be forged: {'models were thinned' if report.thinned else why}"
        return
    recomputed = sum(each.recomputed for each in report.forged)
    identical = sum(each.identical for each in report.forged)
    widest = max(report.forged, key=lambda each: each.distance / (each.displacement + each.noise or 1))
    within = sum(each.within for each in report.forged)
    yield f"forged from other representatives: {within} of {len(report.forged)} rounds within the proof's bound"
    yield (
        f"  nearest to it is round {widest.number}: moved by {widest.distance:.3g}, at most "
        f"{widest.displacement:.3g} by representatives and {widest.noise:.3g} by noise"
    )
    if report.left_out:
        yield f"  {report.left_out} rounds could not be forged: rebuilt, or with a cluster without a survivor"
    if report.thinned:
        yield f"  {report.thinned} rounds could not be forged: their models were thinned (ledger.retention)"
    yield f"  {identical:,} of {recomputed:,} updates, computed again, are bit for bit those the ledger recorded"
    if identical < recomputed:
        yield "  the others are not: data, training settings or engine have changed since, for worlds too"


def _histories(histories: Histories) -> Iterator[str]:
    """Functional equivalence, over whole histories."""
    yield (
        f"whole histories of the survivors alone, {histories.retrainings} exact retrainings: the served model is "
        f"{histories.distance:.3g} away, two of them {histories.among:.3g}"
    )
    if not histories.alike:
        return
    yield f"{'  answers alike':24}{'served and retrained':>22}{'two exact retrainings':>24}   (by chance 50 %)"
    for alike in histories.alike:
        yield (
            f"{'  ' + alike.attacker:24}{alike.served:>22.1%}{alike.retrained:>24.1%}   "
            f"[{alike.low:.1%}, {alike.high:.1%}] of {alike.points} records"
        )


def _given_away(report: Audit) -> Iterator[str]:
    """What releasing both models gives away; nobody is accused of it."""
    given, first = report.given_away, report.given_away.first
    whose = "the records'" if report.erased else "the leaver's"
    yield "what releasing both models gives away, the one before the erasure and the one after it (accuses nobody):"
    if report.moved == 0:
        yield "  nothing here: the model was kept, both are the same"
        return
    yield (
        f"  in this run {whose} loss rises {_ordinal(given.rank)} of {given.clients} clients'; in rehearsed "
        f"pairs it is first in {first[Stage.SERVED]} of {given.pairs}"
    )
    yield (
        f"  with exact retrainings in {first[Stage.RETRAINED]} of {given.pairs}, by chance in "
        f"{given.pairs / given.clients:.1f}: the superseded model remembers, whatever supersedes it"
    )
    served, retrained = (given.stages[stage].auc for stage in (Stage.SERVED, Stage.RETRAINED))
    yield f"  AUC against pairs that it was never in: {_cell(served)}, with exact retrainings {_cell(retrained)}"


def _ordinal(rank: int) -> str:
    return "most" if rank == 1 else f"{rank}th most"


def _epsilon(bound: EpsilonBound) -> Iterator[str]:
    """What attackers show about ε, against the account."""
    judged = "as it must be" if bound.consistent else "MORE THAN IT ALLOWS: a bug, please report it"
    yield (
        f"ε at δ = {bound.delta:g}: at least {bound.low:.3g} is shown ({bound.attacker}, {EPSILON_LEVEL:.1%}), "
        f"at most {bound.account:.4g} by the account: {judged}"
    )


def to_json(report: Audit, directory: Path, effort: Effort) -> dict[str, Any]:
    """Everything."""
    answer = report.answer
    return {
        "run": str(directory),
        "client": report.client,
        "unit": report.unit,
        "erased": list(report.erased) or None,
        "rounds": report.rounds,
        "effort": asdict(effort),
        "rehearsed": {
            "verdict": str(answer.verdict),
            "cost": asdict(answer.cost) if answer.cost else None,
            "remark": answer.remark,
            "moved": report.moved,
        },
        "purged": report.purged,
        "verdicts": report.verdicts,
        "records": {"own": report.own, "held_out": report.held_out},
        "level": LEVEL,
        "attackers": [_found(found) for found in report.found],
        "left_out": dict(report.skipped),
        "forged": {
            "rounds": [{**asdict(each), "within": each.within} for each in report.forged],
            "left_out": report.left_out,
            "thinned": report.thinned,
        },
        "histories": asdict(report.histories),
        "given_away": {
            "attacker": report.given_away.attacker,
            "stages": {stage.value: _attacked(each) for stage, each in report.given_away.stages.items()},
            "clients": report.given_away.clients,
            "pairs": report.given_away.pairs,
            "first": {stage.value: count for stage, count in report.given_away.first.items()},
            "rank": report.given_away.rank,
        },
        "detect": None
        if report.detect is None
        else {"advantage": report.detect, "power": report.power, "worlds_needed": report.needed},
        "earlier_leavers": report.departed,
        "epsilon": None
        if report.bound is None
        else {**asdict(report.bound), "consistent": report.bound.consistent},
        "clean": report.clean,
        "could_not_have_seen_it": report.blind,
        "conclusion": " ".join(report.conclusion()),
        "seconds": report.seconds,
    }


def _found(found: Found) -> dict[str, Any]:
    difference, interim = found.difference, found.interim
    return {
        "attacker": found.attacker,
        "unit": found.unit,
        "retrainings": found.retrainings,
        "stages": {stage.value: _attacked(attacked) for stage, attacked in found.stages.items()},
        "answered_minus_retrained": None
        if interim is None
        else {**asdict(interim), "contains_zero": interim.contains_zero},
        "served_minus_retrained": {**asdict(difference), "contains_zero": difference.contains_zero},
    }


def _attacked(attacked: Attacked) -> dict[str, Any]:
    return {
        "auc": asdict(attacked.auc),
        "tpr": {f"{rate:g}": asdict(measure) for rate, measure in zip(RATES, attacked.tpr, strict=True)},
        "advantage": asdict(attacked.advantage),
        "present": attacked.scores.present.tolist(),
        "absent": attacked.scores.absent.tolist(),
    }
