"""`python -m reproduction.tofu`: make the base, train the federation of authors, forget, and measure."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import nn

from disavow import config
from disavow.adapters.task import AdapterTask
from disavow.cli import run as run_app
from disavow.cli.base import new_app
from disavow.federation import Federation
from reproduction.tofu.base import Recipe, make_base
from reproduction.tofu.measures import Reader, forget_quality, measure, truth_ratios
from reproduction.tofu.questions import FORGET_AUTHORS, author_of, graded, write_clients

app = new_app("reproduction.tofu")

Tofu = Annotated[Path, typer.Option(metavar="DIR", help="TOFU's files.")]
Text = Annotated[Path, typer.Option(metavar="DIR", help="Prose for the base.")]
Out = Annotated[Path, typer.Option(metavar="DIR", help="Where base, runs and results go.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]

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
) -> None:
    """Train a tokenizer and a small Llama from scratch on text that is no client's.

    **Example:** `python -m reproduction.tofu base --out build/tofu`
    """
    recipe = replace(Recipe(), steps=steps)
    if small:
        recipe = replace(recipe, vocabulary=512, width=32, inner=64, layers=1, heads=2, context=64, batch=8)
    began = time.perf_counter()
    digest = make_base(recipe, text, tofu, out / "base", device=device)
    print(f"base {digest} in {time.perf_counter() - began:.0f} s: {out / 'base'}")


def settings_of(
    out: Path, clients: Path, held_out: Path, *, sigma: float, rounds: int, device: str
) -> config.Settings:
    """Give the settings of the federation of authors.

    Args:
        out: Where the base lies.
        clients: The authors' texts.
        held_out: Questions about others.
        sigma: The noise.
        rounds: How many.
        device: Where to train.

    """
    options = {"model": str(out / "base"), "data": str(clients), "test": str(held_out), "rank": 8, "freeze_a": True}
    values: dict[str, Any] = {
        "rounds": rounds,
        "task": {"factory": "adapters", "options": options},
        "training": {"epochs": 2, "batch_size": 10, "learning_rate": 0.005},
        "clustering": {"k": 10, "representatives": 3},
        "deniability": {"x": 3},
        "noise": {"sigma": sigma},
        "engine": {"device": device},
    }
    return config.from_values(values, source="tofu")


@app.command()
def federation(
    out: Out = Path("build/tofu"),
    tofu: Tofu = _SHARED / "tofu",
    device: Device = _DEVICE,
    authors: Annotated[int, typer.Option(help="The first so many authors.")] = 200,
    rounds: Annotated[int, typer.Option(help="Rounds to train.")] = 30,
    sigma: Annotated[list[float] | None, typer.Option(help="Noise; several times for more runs.")] = None,
    first: Annotated[int | None, typer.Option(help="Measure on so many questions of each kind only.")] = None,
) -> None:
    """Train the federation, forget authors and one question, and measure beside a model that never knew them.

    **Example:** `python -m reproduction.tofu federation --out build/tofu`
    """
    os.environ.setdefault("DISAVOW_KEYS", str(out / "keys"))
    clients, held_out = write_clients(tofu, out / "clients", authors=authors)
    leavers = [author_of(20 * (authors - 1 - place)) for place in range(min(FORGET_AUTHORS, authors // 10))]
    lines = []
    for noise in sigma or [0.0005]:
        chosen = settings_of(out, clients, held_out, sigma=noise, rounds=rounds, device=device)
        lines.append(_study(chosen, out / f"run-{noise:g}", tofu, leavers, first=first))
        (out / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        print(json.dumps(lines[-1], indent=2))


def _study(
    settings: config.Settings, folder: Path, tofu: Path, leavers: list[str], *, first: int | None
) -> Mapping[str, Any]:
    """One federation: before, after one deniable author, after one question, after a purge of all leavers; and one
    that never had them.
    """
    forget, retain = (
        graded(tofu / "forget10_perturbed.jsonl", first=first),
        graded(tofu / "retain_perturbed.jsonl", first=first),
    )
    found: dict[str, Any] = {"settings": settings.model_dump(), "device": _device_name()}
    never = _without(settings, folder.with_name(f"{folder.name}-never"), leavers)
    with Federation.create(folder, settings) as run:
        began = time.perf_counter()
        run.train()
        found["train_seconds"] = time.perf_counter() - began
        found["adapter_parameters"] = run.ledger.layout.size
        reader = _reader(run)
        retained = never["network"]
        reference = truth_ratios(retained, reader, forget)
        found["never"] = {"seconds": never["seconds"], **_measured(retained, reader, forget, retain, reference)}
        found["before"] = _measured(_network(run), reader, forget, retain, reference)
        began = time.perf_counter()
        answer = run.erase(leavers[:1])
        found["one_author"] = {
            "verdict": [str(each.verdict) for each in answer.requests.values()],
            "seconds": time.perf_counter() - began,
        }
        question = (run.record_keys_of(leavers[1]) or ("",))[0]
        began = time.perf_counter()
        answer = run.erase(leavers[1], records=[question])
        found["one_question"] = {
            "verdict": [str(each.verdict) for each in answer.requests.values()],
            "seconds": time.perf_counter() - began,
        }
        began = time.perf_counter()
        answer = run.erase(leavers[1:])
        found["all_authors"] = {
            "verdicts": [str(each.verdict) for each in answer.requests.values()],
            "seconds": time.perf_counter() - began,
            **_measured(_network(run), reader, forget, retain, reference),
        }
        began = time.perf_counter()
        purged = run.purge()
        found["purged"] = {
            "requests": len(purged.requests),
            "seconds": time.perf_counter() - began,
            **_measured(_network(run), reader, forget, retain, reference),
        }
        found["odds"] = run.status().to_json().get("odds")
    return found


def _without(settings: config.Settings, folder: Path, leavers: list[str]) -> dict[str, Any]:
    """The same federation, which the leavers never joined."""
    options = dict(settings.task.options)
    texts = Path(options["data"])
    others = texts.with_name("retained.jsonl")
    kept = [
        line for line in texts.read_text(encoding="utf-8").splitlines() if json.loads(line)["client"] not in leavers
    ]
    others.write_text("\n".join(kept) + "\n", encoding="utf-8")
    task = settings.task.model_copy(update={"options": {**options, "data": str(others)}})
    with Federation.create(folder, settings.model_copy(update={"task": task})) as run:
        began = time.perf_counter()
        run.train()
        return {"network": _network(run), "seconds": time.perf_counter() - began}


def _network(run: Federation) -> nn.Module:
    return run.model().to("cuda" if torch.cuda.is_available() else "cpu").eval()


def _reader(run: Federation) -> Reader:
    task = run.prepared.loaded.task
    if not isinstance(task, AdapterTask):
        raise TypeError("the run trains no adapter")
    return Reader(task.tokenizer, task.template, next(_network(run).parameters()).device)


def _measured(
    network: nn.Module, reader: Reader, forget: Any, retain: Any, reference: np.ndarray
) -> dict[str, Any]:
    ratios = truth_ratios(network, reader, forget)
    return {
        "forget": measure(network, reader, forget),
        "retain": measure(network, reader, retain),
        "forget_quality": forget_quality(ratios, reference),
    }


def _device_name() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


if __name__ == "__main__":
    run_app(app)
