"""One federation of authors: trained, left in four ways, and measured beside one that never knew who leaves.

    trained ─┬─ retained         the same without the leavers, from the start: what forgetting is held against
             ├─ deniable author  one leaves, and the model stays as it is
             ├─ question         one question of an author who stays
             ├─ rollback         so many of one cluster leave that it is too small: rounds are trained again
             └─ purge            all leavers, and one retraining for all of them

Each piece works on a copy of the trained run, and is one JSON file: what is there is not done again.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from disavow.adapters.task import AdapterTask
from disavow.domain import ErasureRequest
from disavow.errors import RunMissing
from disavow.federation import Federation
from disavow.federation.callbacks import Callbacks
from disavow.ledger.copying import copy_run
from disavow.ledger.files import write_durably
from reproduction.tofu.measures import Measures, Reader, forget_quality, measure, model_utility, utility
from reproduction.tofu.questions import (
    Graded,
    clients_of,
    graded,
    held_out_questions,
    name_of,
    of_authors,
    plain,
    write_clients,
)
from reproduction.tofu.settings import AuthorSettings

PIECES = ("trained", "retained", "deniable-author", "question", "rollback", "purge", "utility")
UTILITY_WARNING = (
    "a model this small knows no real author and no fact of the world: its base was trained on these very "
    "questions, so that Model Utility says how well that is kept, and nothing of knowledge"
)

OnPiece = Callable[[str, Mapping[str, Any]], None]
OnRound = Callable[[str, int], None]


@dataclass(frozen=True)
class Study:
    """A federation of authors in a folder of its own.

    Attributes:
        choice: What it is trained with.
        base: The folder of the base.
        tofu: The folder with TOFU's files.
        folder: Where runs and pieces lie.
        device: Where to train.
        first: Measure so many questions of each kind only; None: all.

    """

    choice: AuthorSettings
    base: Path
    tofu: Path
    folder: Path
    device: str
    first: int | None = None

    @property
    def staying(self) -> tuple[int, ...]:
        """The authors who never leave, by number."""
        return clients_of(self.choice.authors)[0]

    @property
    def leaving(self) -> tuple[int, ...]:
        """The authors who leave together in the end."""
        return clients_of(self.choice.authors)[1]

    @cached_property
    def questions(self) -> dict[str, list[Graded]]:
        """What is measured: questions of leavers, of those who stay, and of nobody in the federation."""
        found = {
            "forget": of_authors(self.tofu, self.leaving, graded(self.tofu, "forget10_perturbed.jsonl")),
            "retain": of_authors(self.tofu, self.staying, graded(self.tofu, "retain_perturbed.jsonl")),
            "held_out": [plain(*pair) for pair in held_out_questions(self.tofu)],
        }
        return {name: each[: self.first] for name, each in found.items()}

    def about(self, author: int) -> list[Graded]:
        """Select the questions about one leaver.

        Args:
            author: Its number.

        """
        return of_authors(self.tofu, {author}, graded(self.tofu, "forget10_perturbed.jsonl"))[: self.first]

    @property
    def keys(self) -> Path:
        """The keys of all its runs."""
        return self.folder / "keys"

    def run_folder(self, name: str) -> Path:
        """Name the folder of a run.

        Args:
            name: Of its piece.

        """
        return self.folder / name

    def finished(self) -> dict[str, Any]:
        """Read the pieces that are done."""
        found = {name: self._path(name) for name in PIECES}
        return {name: json.loads(path.read_text("utf-8")) for name, path in found.items() if path.is_file()}

    def _path(self, name: str) -> Path:
        return self.run_folder(name).with_suffix(".json")

    def write(self, name: str, piece: Mapping[str, Any]) -> None:
        """Keep a piece.

        Args:
            name: Which.
            piece: What was measured.

        """
        write_durably(self._path(name), (json.dumps(piece, indent=1) + "\n").encode())


def run_study(
    study: Study,
    pieces: Sequence[str] = PIECES,
    *,
    on_piece: OnPiece = lambda name, piece: None,
    on_round: OnRound = lambda name, number: None,
) -> dict[str, Any]:
    """Do the pieces that are not done yet, one after the other.

    Args:
        study: The federation.
        pieces: Which; those that they need come with them.
        on_piece: Hears of each that is finished.
        on_round: Hears of each round.

    Returns:
        All pieces that are done.

    """
    study.folder.mkdir(parents=True, exist_ok=True)
    needed = {before for name in pieces for before in _NEEDS.get(name, ("trained", "retained"))}
    for name in (name for name in PIECES if name in {*pieces, *needed}):
        done = study.finished()
        if name in done:
            continue
        callbacks = Callbacks(on_round=lambda summary, name=name: on_round(name, summary.number))  # type: ignore[misc]
        piece = _PIECES[name](study, done, callbacks)
        study.write(name, piece)
        on_piece(name, piece)
    return study.finished()


def _trained(study: Study, done: Mapping[str, Any], callbacks: Callbacks) -> dict[str, Any]:
    del done
    with _federation(study, "trained") as run:
        cost = _train(run, callbacks)
        before = _measured(study, run, initial=True)
        return {
            "settings": asdict(study.choice),
            "device": device_name(study.device),
            "adapter_parameters": run.ledger.layout.size,
            "base_sha256": json.loads((study.base / "recipe.json").read_text("utf-8"))["sha256"],
            **cost,
            "base": before,
            "after": _measured(study, run),
        }


def _retained(study: Study, done: Mapping[str, Any], callbacks: Callbacks) -> dict[str, Any]:
    del done
    with _federation(study, "retained") as run:
        return {**_train(run, callbacks), "after": _measured(study, run)}


def _deniable_author(study: Study, done: Mapping[str, Any], callbacks: Callbacks) -> dict[str, Any]:
    del done
    with _copy(study, "deniable-author") as run:
        author = study.leaving[0]
        questions = {**study.questions, "forget": study.about(author)}
        before = _measured(study, run, questions)
        cost = _erase(run, [name_of(author)], callbacks)
        after = _measured(study, run, questions)
    return _compared(cost, before, after, _measured_on_retained(study, questions))


def _question(study: Study, done: Mapping[str, Any], callbacks: Callbacks) -> dict[str, Any]:
    del done
    with _copy(study, "question") as run:
        author = study.leaving[-1]
        record = (run.record_keys_of(name_of(author)) or ("",))[0]
        mine = study.about(author)
        questions = {
            **study.questions,
            "forget": [each for each in mine if each.question == record],
            "others_of_the_author": [each for each in mine if each.question != record],
        }
        before = _measured(study, run, questions)
        cost = _erase(run, name_of(author), callbacks, records=[record])
        after = _measured(study, run, questions)
    # the retained model lacks the author altogether, also the questions that stay here
    return _compared(cost, before, after, _measured_on_retained(study, questions))


def _rollback(study: Study, done: Mapping[str, Any], callbacks: Callbacks) -> dict[str, Any]:
    del done
    with _copy(study, "rollback") as run:
        # of the smallest cluster of the newest round so many that one survivor is missing for a deniable departure
        clusters = run.ledger.round(run.ledger.last_round).clusters
        members = min((sorted(each.clients) for each in clusters), key=lambda each: (len(each), each))
        leavers = members[: len(members) - run.ledger.policy.survivors_needed + 1]
        numbers = {int(client.removeprefix("author-")) for client in leavers}
        staying = set(study.staying) - numbers
        questions = {
            **study.questions,
            "forget": of_authors(study.tofu, numbers)[: study.first],
            "retain": of_authors(study.tofu, staying, graded(study.tofu, "retain_perturbed.jsonl"))[: study.first],
        }
        before = _measured(study, run, questions)
        cost = _erase(run, leavers, callbacks)
        # what is served now is itself a model that was trained without those who left
        return _compared({"authors": len(leavers), **cost}, before, _measured(study, run, questions), None)


def _purge(study: Study, done: Mapping[str, Any], callbacks: Callbacks) -> dict[str, Any]:
    with _copy(study, "purge") as run:
        leavers = [name_of(author) for author in study.leaving]
        answered = _erase(run, leavers, callbacks)
        served = _measured(study, run)
        began = time.perf_counter()
        purged = run.purge(callbacks=callbacks)
        seconds = time.perf_counter() - began
        cost = purged.purge.cost if purged.purge is not None else None
        piece = {
            "requests": len(purged.requests),
            "client_epochs": cost.client_epochs if cost else 0,
            "bytes": cost.exchanged_bytes if cost else 0,
            "seconds": seconds,
        }
        after = _measured(study, run)
    retained = done["retained"]["after"]
    return {
        **_compared(piece, done["trained"]["after"], after, retained),
        "answered": {**answered, "after": served},
    }


def _utility(study: Study, done: Mapping[str, Any], callbacks: Callbacks) -> dict[str, Any]:
    del done, callbacks
    found: dict[str, Any] = {"warning": UTILITY_WARNING}
    with Federation.open(study.run_folder("trained"), keys=study.keys) as run:
        network, reader = network_of(run, study.device), reader_of(run, study.device)
        parts = [utility(network, reader, study.questions["retain"], choice=False)]
        for name in ("real_authors_perturbed.jsonl", "world_facts_perturbed.jsonl"):
            questions = graded(study.tofu, name)[: study.first]
            parts.append(utility(network, reader, questions, choice=True))
        sets = ("retain", "real_authors", "world_facts")
        found |= {name: asdict(part) for name, part in zip(sets, parts, strict=True)}
        return {**found, "model_utility": model_utility(parts)}


_NEEDS = {"trained": (), "retained": (), "utility": ("trained",)}
"""Of a piece; others need the trained run and the measures of the retained one."""

_PIECES: dict[str, Callable[[Study, Mapping[str, Any], Callbacks], dict[str, Any]]] = {
    "trained": _trained,
    "retained": _retained,
    "deniable-author": _deniable_author,
    "question": _question,
    "rollback": _rollback,
    "purge": _purge,
    "utility": _utility,
}


def _federation(study: Study, name: str) -> Federation:
    """A run to be trained: the one that an interruption left, or a new one."""
    folder = study.run_folder(name)
    everybody, retained, held_out = write_clients(
        study.tofu, study.folder / "clients", authors=study.choice.authors
    )
    data = retained if name == "retained" else everybody
    if folder.exists():
        try:
            return Federation.open(folder, write=True, keys=study.keys)
        except RunMissing:  # killed before there was a run
            shutil.rmtree(folder)
    settings = study.choice.settings(study.base, data, held_out, device=study.device)
    return Federation.create(folder, settings, keys=study.keys)


def _copy(study: Study, name: str) -> Federation:
    """A copy of the trained run, with keys of its own, to be left; what an interruption left is made anew."""
    folder = study.run_folder(name)
    shutil.rmtree(folder, ignore_errors=True)
    copy_run(study.run_folder("trained"), folder / "run", keys=study.keys, target_keys=folder / "keys")
    return Federation.open(folder / "run", write=True, keys=folder / "keys", openings=folder / "openings")


def _train(run: Federation, callbacks: Callbacks) -> dict[str, Any]:
    """Train to the end, and say what it took; seconds are those of the rounds that were left to train."""
    trained_before, began = run.ledger.last_round, time.perf_counter()
    run.train(callbacks=callbacks)
    seconds = time.perf_counter() - began
    summaries = run.ledger.summaries()
    taking_part = sum(each.participants for each in summaries)
    return {
        "rounds": len(summaries),
        "client_epochs": taking_part * run.settings.training.epochs,
        "bytes": 2 * taking_part * 4 * run.ledger.layout.size,
        "seconds": seconds,
        "rounds_in_these_seconds": len(summaries) - trained_before,
    }


def _erase(
    run: Federation, clients: str | Sequence[str], callbacks: Callbacks, *, records: Sequence[str] | None = None
) -> dict[str, Any]:
    began = time.perf_counter()
    answer = run.erase(clients, records=records, callbacks=callbacks)
    seconds = time.perf_counter() - began
    requests = tuple(answer.requests.values())
    # requests that are answered together share one rebuild, and each of them has its cost
    cost = max((each.cost for each in requests if each.cost), key=lambda each: each.client_epochs, default=None)
    return {
        "requests": len(requests),
        "verdicts": _counted(requests),
        "client_epochs": cost.client_epochs if cost else 0,
        "bytes": cost.exchanged_bytes if cost else 0,
        "seconds": seconds,
    }


def _counted(requests: Sequence[ErasureRequest]) -> dict[str, int]:
    verdicts = [str(each.verdict) for each in requests]
    return {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))}


def _compared(
    cost: Mapping[str, Any],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    retained: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """What a departure cost, and what is left of the leavers, beside a model that never knew them."""
    quality = None
    # a single question has no distribution that could be told from another
    if retained is not None and len(retained["forget"]["ratios"]) > 1:
        quality = {
            when: forget_quality(each["forget"]["ratios"], retained["forget"]["ratios"])
            for when, each in (("before", before), ("after", after))
        }
    return {**cost, "before": before, "after": after, "retained": retained, "forget_quality": quality}


def _measured_on_retained(study: Study, questions: Mapping[str, Sequence[Graded]]) -> dict[str, Any]:
    with Federation.open(study.run_folder("retained"), keys=study.keys) as run:
        return _measured(study, run, questions)


def _measured(
    study: Study, run: Federation, questions: Mapping[str, Sequence[Graded]] | None = None, *, initial: bool = False
) -> dict[str, Any]:
    """TOFU's measures of the model that a run serves, or of the one it began with."""
    network = network_of(run, study.device, initial=initial)
    reader = reader_of(run, study.device)
    about = study.questions if questions is None else questions
    return {name: asdict(measured) for name, measured in measured_on(network, reader, about).items()}


def measured_on(
    network: nn.Module, reader: Reader, questions: Mapping[str, Sequence[Graded]]
) -> dict[str, Measures]:
    """Measure a model on several sets of questions.

    Args:
        network: The model, in evaluation mode.
        reader: Tokenises.
        questions: The sets, by name.

    """
    return {name: measure(network, reader, each) for name, each in questions.items() if each}


def network_of(run: Federation, device: str, *, initial: bool = False) -> nn.Module:
    """Build the model that a run serves, for evaluation.

    Args:
        run: The run.
        device: Where to.
        initial: The one that the run began with instead: the base.

    """
    network = run.prepared.loaded.task.model() if initial else run.model()
    return network.to(device).eval()


def reader_of(run: Federation, device: str) -> Reader:
    """Make what tokenises questions for a run's models.

    Args:
        run: The run.
        device: Where the models are.

    """
    task = run.prepared.loaded.task
    if not isinstance(task, AdapterTask):
        raise TypeError("the run trains no adapter")
    return Reader(task.tokenizer, task.template, torch.device(device))


def device_name(device: str) -> str:
    """Name a device as its maker does.

    Args:
        device: As torch names it.

    """
    return torch.cuda.get_device_name() if device.startswith("cuda") else "cpu"
