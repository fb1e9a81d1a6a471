"""`python -m reproduction.tofu`: make the base, find settings that learn, let authors leave, and measure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from disavow.cli import run as run_app
from disavow.cli.base import Json, new_app
from disavow.cli.output import Bar, print_json, progress
from disavow.compare.choice import Effort
from disavow.errors import ConfigError
from reproduction.markdown import aligned
from reproduction.tofu import odds as odds_study
from reproduction.tofu.base import SMALL, Evaluated, Recipe, make_base
from reproduction.tofu.compare import METHODS, compare_author, methods_of
from reproduction.tofu.settings import CANDIDATES, CHOSEN, SMOKE, AuthorSettings
from reproduction.tofu.study import PIECES, UTILITY_WARNING, Study, run_study

app = new_app("reproduction.tofu")

Tofu = Annotated[Path, typer.Option(metavar="DIR", help="TOFU's files.")]
Text = Annotated[Path, typer.Option(metavar="DIR", help="Prose for the base.")]
Out = Annotated[Path, typer.Option(metavar="DIR", help="Where base, runs and results go.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
First = Annotated[int | None, typer.Option(help="Measure on so many questions of each kind only.")]
Rounds = Annotated[int | None, typer.Option(help="Train so many rounds instead.")]
Seconds = Annotated[float, typer.Option(help="Begin no federation after so many seconds.")]

_SHARED = Path("../shared/data")
_DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@app.command()
def base(
    out: Out = Path("build/tofu"),
    text: Text = _SHARED / "text",
    tofu: Tofu = _SHARED / "tofu",
    device: Device = _DEVICE,
    steps: Annotated[int, typer.Option(help="Steps of training.")] = Recipe.steps,
    small: Annotated[bool, typer.Option("--small", help="One layer and few tokens, for a test.")] = False,
    json: Json = False,
) -> None:
    """Train a tokenizer and a small Llama from scratch on text that is no client's.

    **Example:** `python -m reproduction.tofu base --out build/tofu`
    """
    recipe = SMALL if small else replace(Recipe(), steps=steps)
    console = progress()

    def show(evaluated: Evaluated) -> None:
        console.print(
            f"step {evaluated.step} of {recipe.steps}: loss {evaluated.train_loss:.3f}, held-out perplexity "
            f"{evaluated.prose_perplexity:.1f} of prose, {evaluated.answer_perplexity:.1f} of answers"
        )

    made = make_base(recipe, text, tofu, out / "base", device=device, on_evaluation=show)
    if json:
        print_json(asdict(made))
        return
    print(f"{made.parameters:,} parameters, {made.tokens:,} tokens, {made.seconds:.0f} s on {made.device}")
    print(
        f"kept: step {made.kept.step}, held-out perplexity {made.kept.prose_perplexity:.1f} of prose, "
        f"{made.kept.answer_perplexity:.1f} of answers"
    )
    print(f"SHA-256 {made.sha256}; the first steps {'repeat' if made.repeats_exactly else 'do not repeat'} exactly")


@app.command()
def sweep(
    out: Out = Path("build/tofu"),
    tofu: Tofu = _SHARED / "tofu",
    device: Device = _DEVICE,
    candidate: Annotated[list[str] | None, typer.Option(help="These alone; several times for more.")] = None,
    rounds: Rounds = None,
    first: First = None,
    json: Json = False,
) -> None:
    """Train federations with several settings, and print what each learned of its clients' answers.

    What was trained is kept: `federation` with the same settings and rounds goes on from there.

    **Example:** `python -m reproduction.tofu sweep --candidate r16 --candidate first`
    """
    found: dict[str, Any] = {}
    for name in candidate or CANDIDATES:
        study = _study(out, tofu, device, name, rounds, first)
        found[name] = _run(study, ["trained"])["trained"]
        if not json:
            print("\n".join(_sweep_table({name: found[name]})), flush=True)
    if json:
        print_json(found)
    else:
        print("\n".join(["", *_sweep_table(found)]))


@app.command()
def federation(
    out: Out = Path("build/tofu"),
    tofu: Tofu = _SHARED / "tofu",
    device: Device = _DEVICE,
    candidate: Annotated[str, typer.Option(help="Settings by name, as `sweep` has them.")] = CHOSEN,
    only: Annotated[list[str] | None, typer.Option(help="This piece, and what it needs; several times.")] = None,
    rounds: Rounds = None,
    first: First = None,
    json: Json = False,
) -> None:
    """Train the federation, let authors and one question leave, and measure beside a model that never knew them.

    Each piece is kept when it is done; the same command goes on where it was interrupted.

    **Example:** `python -m reproduction.tofu federation --only purge`
    """
    unknown = sorted(set(only or ()) - set(PIECES))
    if unknown:
        raise ConfigError(f"there is no piece {', '.join(unknown)}; allowed: {', '.join(PIECES)}")
    study = _study(out, tofu, device, candidate, rounds, first)
    found = _run(study, only or PIECES)
    if json:
        print_json({"candidate": candidate, **{name: _without_ratios(piece) for name, piece in found.items()}})
        return
    print("\n".join([*_sweep_table({candidate: found["trained"]}), "", *_departures_table(found)]))
    if "utility" in found:
        print(f"\nModel Utility {found['utility']['model_utility']:.3f}. Warning: {UTILITY_WARNING}.")


@app.command()
def odds(
    out: Out = Path("build/tofu"),
    tofu: Tofu = _SHARED / "tofu",
    device: Device = _DEVICE,
    adapter: Annotated[list[str] | None, typer.Option(help="Of these alone; several times for more.")] = None,
    rounds: Annotated[list[int] | None, typer.Option(help="Numbers of rounds; several times.")] = None,
    authors: Annotated[int, typer.Option(help="Clients.")] = 200,
    k: Annotated[int, typer.Option(help="Clients of a cluster at least.")] = 10,
    representatives: Annotated[int, typer.Option(help="Members of each that are drawn.")] = 8,
    noise: Annotated[str, typer.Option(help="The mode of the noise.")] = "paper",
    seconds: Seconds = math.inf,
    first: First = None,
    json: Json = False,
) -> None:
    """Train small adapters with noise for given odds over all rounds, and print and draw what that costs.

    Each federation is one line of `odds.jsonl`; the same command goes on where it was interrupted.

    **Example:** `python -m reproduction.tofu odds --rounds 1 --rounds 3`
    """
    names = adapter or list(odds_study.ADAPTERS)
    unknown = sorted(set(names) - set(odds_study.ADAPTERS))
    if unknown:
        raise ConfigError(f"there is no adapter {', '.join(unknown)}; allowed: {', '.join(odds_study.ADAPTERS)}")
    points = odds_study.points(
        names, rounds or [1, 3, 10], authors=authors, k=k, representatives=representatives, noise=noise
    )
    choice = replace(AuthorSettings(), authors=authors)
    study = Study(choice, out / "base", tofu, out, device, first)
    console = progress()
    with Bar(console, "federations", len(points)) as bar:

        def on_line(line: odds_study.TofuOddsLine) -> None:
            bar.advance()
            console.print(" | ".join(_odds_row(line)))

        lines = odds_study.run_points(points, out / "odds.jsonl", study, seconds=seconds, on_line=on_line)
    drawn = odds_study.draw(lines, out / "odds")
    if json:
        print_json(
            {"lines": [odds_study.to_json(line) for line in lines], "figures": [str(each) for each in drawn]}
        )
        return
    print("\n".join([*aligned(_ODDS, [_odds_row(line) for line in lines]), f"\ndrawn: {drawn[0]}"]))


@app.command()
def compare(
    out: Out = Path("build/tofu"),
    tofu: Tofu = _SHARED / "tofu",
    device: Device = _DEVICE,
    candidate: Annotated[str, typer.Option(help="Settings by name, as `sweep` has them.")] = CHOSEN,
    author: Annotated[int | None, typer.Option(help="Who leaves, of the last ones. [default: the first]")] = None,
    methods: Annotated[str, typer.Option(metavar="NAMES", help="With commas between them.")] = ",".join(METHODS),
    seeds: Annotated[int | None, typer.Option(help="Trainings of the federation.")] = None,
    references: Annotated[int | None, typer.Option(help="Exact retrainings without the author.")] = None,
    quick: Annotated[bool, typer.Option(help="One seed, three retrainings, three rounds of relearning.")] = True,
    rounds: Rounds = None,
    first: First = 100,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Processes that work on it.")] = 1,
    json: Json = False,
) -> None:
    """Let one author leave the trained federation by several methods, and measure their models as TOFU does, too.

    Pieces are kept; the same command goes on where it was interrupted.

    **Example:** `python -m reproduction.tofu compare --out build/tofu --methods retrain,npo`
    """
    study = _study(out, tofu, device, candidate, rounds, first)
    if "trained" not in study.finished():
        raise ConfigError("the federation is not trained; `python -m reproduction.tofu federation --only trained`")
    leaver = study.leaving[0] if author is None else author
    if leaver not in study.leaving:
        raise ConfigError(f"--author is {leaver}; allowed: {', '.join(map(str, study.leaving))}")
    effort, chosen = Effort.chosen(seeds, references, quick=quick), methods_of(methods.split(","))
    console = progress()
    with Bar(console, "pieces", None) as bar:

        def on_piece(name: str) -> None:
            bar.update(bar.done + 1, what=name)
            console.print(name)

        found = compare_author(
            study,
            leaver,
            chosen,
            effort,
            jobs=jobs,
            on_total=lambda total: bar.update(0, total=total),
            on_piece=on_piece,
        )
    if json:
        print_json(found.to_json())
        return
    print("\n".join([*found.table(), "", f"{found.comparison.seconds:.0f} s: {study.folder}"]))


def _study(out: Path, tofu: Path, device: str, name: str, rounds: int | None, first: int | None) -> Study:
    known = {**CANDIDATES, "smoke": SMOKE}
    if name not in known:
        raise ConfigError(f"there are no settings called {name}; allowed: {', '.join(known)}")
    if not (out / "base" / "recipe.json").is_file():
        raise ConfigError(f"there is no base in {out / 'base'}: make it by `python -m reproduction.tofu base`")
    choice = known[name] if rounds is None else replace(known[name], rounds=rounds)
    return Study(choice, out / "base", tofu, out / f"{name}-{choice.key}", device, first)


def _run(study: Study, pieces: Sequence[str]) -> dict[str, Any]:
    """Do pieces, with a bar of rounds on a terminal and a line a piece on standard error."""
    console = progress()
    with Bar(console, "rounds", None) as bar:
        return run_study(
            study,
            pieces,
            on_piece=lambda name, piece: console.print(f"{name}: {piece.get('seconds', 0):.1f} s"),
            on_round=lambda name, number: bar.update(number, total=study.choice.rounds, what=name),
        )


_SETS = ("forget", "retain", "held_out")
_SWEEP = ("", "numbers", "seconds", "", "probability", "ROUGE-L", "extraction", "truth ratio")
_DEPARTURES = ("", "verdict", "client-epochs", "MB", "seconds", "", "before", "after", "retained", "forget quality")
_ODDS = ("adapter", "numbers", "rounds", "σ", "odds: median", "worst", "probability", "held out", "loss", "seconds")


def _sweep_table(found: Mapping[str, Any]) -> list[str]:
    """The base and the trained model of each candidate, a line for each set of questions."""
    rows = []
    for name, piece in found.items():
        for when in ("base", "after"):
            for which in _SETS:
                each = piece[when][which]
                shown = (
                    (name, f"{piece['adapter_parameters']:,}", f"{piece['seconds']:.0f}")
                    if (when, which) == ("after", "forget")
                    else ("", "", "")
                )
                rows.append((*shown, f"{'base' if when == 'base' else 'trained'}, {which}", *_figures(each)))
    return aligned(_SWEEP, rows)


def _figures(each: Mapping[str, Any]) -> tuple[str, ...]:
    ratio = each["truth_ratio"]
    return (
        f"{each['probability']:.4f}",
        f"{each['rouge_l']:.3f}",
        f"{each['extraction_strength']:.3f}",
        "-" if ratio is None else f"{ratio:.3f}",
    )


def _departures_table(found: Mapping[str, Any]) -> list[str]:
    """Each departure: what it took, then a line for each set of questions, by the probability of right answers."""
    rows = []
    for name in (name for name in PIECES if "before" in found.get(name, {})):
        piece = found[name]
        verdicts = piece.get("verdicts") or piece["answered"]["verdicts"]
        cost = (
            name,
            ", ".join(f"{verdict} x {count}" for verdict, count in verdicts.items()),
            f"{piece['client_epochs']:,}",
            f"{piece['bytes'] / 1e6:.1f}",
            f"{piece['seconds']:.1f}",
        )
        for at, which in enumerate(piece["after"]):
            quality = piece["forget_quality"] if which == "forget" else None
            models = (piece["before"], piece["after"], piece["retained"] or {})
            rows.append(
                (
                    *(cost if at == 0 else ("",) * len(cost)),
                    which.replace("_", " "),
                    *(f"{model[which]['probability']:.4f}" if which in model else "" for model in models),
                    f"{quality['before']:.2g} -> {quality['after']:.2g}" if quality else "",
                )
            )
    return aligned(_DEPARTURES, rows)


def _odds_row(line: odds_study.TofuOddsLine) -> tuple[str, ...]:
    def shown(log10: float | None) -> str:
        return "-" if log10 is None else f"{10**log10:.3g}" if log10 < 4 else f"10^{log10:.1f}"  # noqa: PLR2004

    return (
        line.name,
        f"{line.adapter_parameters:,}",
        f"{line.rounds} of {line.rounds_wanted}",
        f"{line.sigma:.3g}",
        shown(line.log10_odds_median),
        shown(line.log10_odds_worst),
        f"{line.probability:.4f} (base {line.base_probability:.4f})",
        f"{line.probability_held_out:.4f}",
        f"{line.loss:.3f}",
        f"{line.seconds:.0f}",
    )


def _without_ratios(piece: Any) -> Any:
    """A piece without the truth ratio of each question, which only tests need."""
    if not isinstance(piece, Mapping):
        return piece
    return {name: _without_ratios(each) for name, each in piece.items() if name != "ratios"}


if __name__ == "__main__":
    run_app(app)
