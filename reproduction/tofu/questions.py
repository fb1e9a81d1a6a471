"""The questions of TOFU as clients' texts.

P. Maini, Z. Feng, A. Schwarzschild, Z. C. Lipton and J. Z. Kolter, "TOFU: A Task of Fictitious Unlearning for LLMs"
(COLM 2024). `full.jsonl` holds 20 consecutive questions an author; the forget set are the last 20 authors.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

QUESTIONS_OF_AUTHOR = 20
FORGET_AUTHORS = 20


@dataclass(frozen=True)
class Graded:
    """A question with a right answer, the same in other words, and wrong ones: what truth ratios compare."""

    question: str
    answer: str
    paraphrased: str
    wrong: tuple[str, ...]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON lines.

    Args:
        path: The file.

    """
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def author_of(position: int) -> str:
    """Name the author of a line of `full.jsonl`.

    Args:
        position: Of the line, from 0 on.

    """
    return f"author-{position // QUESTIONS_OF_AUTHOR:03d}"


def write_clients(tofu: Path, folder: Path, *, authors: int | None = None) -> tuple[Path, Path]:
    """Write the texts of all authors, and held-out questions about others, as the task `adapters` reads them.

    Args:
        tofu: The folder with TOFU's files.
        folder: Where to.
        authors: The first so many; None: all.

    Returns:
        The file of the clients, and that of held-out questions.

    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = read_lines(tofu / "full.jsonl")[: None if authors is None else authors * QUESTIONS_OF_AUTHOR]
    clients = [
        {"client": author_of(place), "prompt": line["question"], "response": line["answer"]}
        for place, line in enumerate(lines)
    ]
    held_out = [
        {"client": "held out", "prompt": line["question"], "response": line["answer"]}
        for line in read_lines(tofu / "holdout10.jsonl")
    ]
    return _write(folder / "authors.jsonl", clients), _write(folder / "held-out.jsonl", held_out)


def graded(path: Path, *, first: int | None = None) -> list[Graded]:
    """Read questions with right, paraphrased and wrong answers.

    Args:
        path: One of TOFU's `*_perturbed.jsonl`.
        first: The first so many; None: all.

    """
    return [
        Graded(
            line["question"],
            line["answer"],
            line.get("paraphrased_answer", line["answer"]),
            tuple(line["perturbed_answer"]),
        )
        for line in read_lines(path)[:first]
    ]


def _write(path: Path, lines: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    return path
