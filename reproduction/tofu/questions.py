"""The questions of TOFU as clients' texts.

P. Maini, Z. Feng, A. Schwarzschild, Z. C. Lipton and J. Z. Kolter, "TOFU: A Task of Fictitious Unlearning for LLMs"
(COLM 2024). `full.jsonl` holds 20 consecutive questions an author; the forget set are the last 20 authors.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

QUESTIONS_OF_AUTHOR = 20
AUTHORS = 200
FORGET_AUTHORS = 20
HELD_OUT_AUTHORS = 5
"""Of the 20 authors of `holdout10.jsonl`, who are nobody's clients, the last so many: the base never sees them."""


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
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def author_of(position: int) -> str:
    """Name the author of a line of `full.jsonl`.

    Args:
        position: Of the line, from 0 on.

    """
    return f"author-{position // QUESTIONS_OF_AUTHOR:03d}"


def training_questions(tofu: Path) -> list[tuple[str, str]]:
    """Read the questions and answers about authors who are no clients, which the base is trained on.

    Args:
        tofu: The folder with TOFU's files.

    """
    return _of_others(tofu)[: -HELD_OUT_AUTHORS * QUESTIONS_OF_AUTHOR]


def held_out_questions(tofu: Path) -> list[tuple[str, str]]:
    """Read the questions and answers about authors whom neither the base nor a client is trained on.

    Args:
        tofu: The folder with TOFU's files.

    """
    return _of_others(tofu)[-HELD_OUT_AUTHORS * QUESTIONS_OF_AUTHOR :]


def _of_others(tofu: Path) -> list[tuple[str, str]]:
    return [(line["question"], line["answer"]) for line in read_lines(tofu / "holdout10.jsonl")]


def clients_of(authors: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Choose clients: those who leave are the last, those who stay the first, because these have wrong answers.

    Args:
        authors: How many; a tenth of them, and at least one, leave.

    Returns:
        The numbers of those who stay, and of those who leave.

    """
    leaving = min(FORGET_AUTHORS, max(1, authors // 10))
    return tuple(range(authors - leaving)), tuple(range(AUTHORS - leaving, AUTHORS))


def write_clients(tofu: Path, folder: Path, *, authors: int = AUTHORS) -> tuple[Path, Path, Path]:
    """Write texts of authors, and held-out questions about others, as the task `adapters` reads them.

    Args:
        tofu: The folder with TOFU's files.
        folder: Where to.
        authors: How many are clients.

    Returns:
        The files of all clients, of those who stay, and of held-out questions.

    """
    folder.mkdir(parents=True, exist_ok=True)
    staying, leaving = clients_of(authors)
    lines = read_lines(tofu / "full.jsonl")

    def texts(chosen: tuple[int, ...]) -> list[dict[str, str]]:
        return [
            {
                "client": author_of(position),
                "prompt": lines[position]["question"],
                "response": lines[position]["answer"],
            }
            for author in chosen
            for position in range(author * QUESTIONS_OF_AUTHOR, (author + 1) * QUESTIONS_OF_AUTHOR)
        ]

    held_out = [
        {"client": "held out", "prompt": question, "response": answer}
        for question, answer in held_out_questions(tofu)
    ]
    return (
        _write(folder / "authors.jsonl", texts((*staying, *leaving))),
        _write(folder / "retained.jsonl", texts(staying)),
        _write(folder / "held-out.jsonl", held_out),
    )


def name_of(author: int) -> str:
    """Name an author by its number.

    Args:
        author: From 0 on.

    """
    return author_of(author * QUESTIONS_OF_AUTHOR)


def graded(tofu: Path, name: str) -> list[Graded]:
    """Read questions with right, paraphrased and wrong answers.

    Args:
        tofu: The folder with TOFU's files.
        name: One of TOFU's `*_perturbed.jsonl`; those of real authors and world facts have no paraphrased answer,
            and the answer itself stands in for it, as in TOFU.

    """
    return [
        Graded(
            line["question"],
            line["answer"],
            line.get("paraphrased_answer", line["answer"]),
            tuple(line["perturbed_answer"]),
        )
        for line in read_lines(tofu / name)
    ]


def of_authors(tofu: Path, authors: Collection[int], questions: Iterable[Graded] = ()) -> list[Graded]:
    """Select the questions about some authors; without any to choose among, all of theirs, with no wrong answers.

    Args:
        tofu: The folder with TOFU's files.
        authors: Their numbers.
        questions: What to choose among.

    """
    lines = read_lines(tofu / "full.jsonl")
    about = {
        (line["question"], line["answer"]): position // QUESTIONS_OF_AUTHOR for position, line in enumerate(lines)
    }
    chosen = list(questions) or [plain(*pair) for pair in about]
    return [each for each in chosen if about.get((each.question, each.answer)) in authors]


def plain(question: str, answer: str) -> Graded:
    """Make a question of which no wrong answers are known.

    Args:
        question: The question.
        answer: The right answer.

    """
    return Graded(question, answer, answer, ())


def _write(path: Path, lines: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    return path
