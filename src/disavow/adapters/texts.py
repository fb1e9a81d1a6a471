"""Questions and answers of clients, from JSON lines to tensors of tokens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from disavow.domain import escaped
from disavow.errors import TaskError
from disavow.tasks.samples import TensorSamples

IGNORED = -100
"""The label of tokens that no loss counts: questions and padding."""

_PROMPTS, _RESPONSES = ("prompt", "question"), ("response", "answer")


@dataclass(frozen=True)
class Example:
    """One question and its answer.

    Attributes:
        client: Whose it is.
        prompt: What the model is given.
        response: What it is to say.
        record: The name by which the example can be erased; the prompt, unless the file says another.

    """

    client: str
    prompt: str
    response: str
    record: str


def read_examples(path: Path) -> tuple[Example, ...]:
    """Read JSON lines with the fields client, prompt (or question), response (or answer) and, if need be, record.

    Args:
        path: The file.

    Returns:
        The examples, in order.

    Raises:
        TaskError: The file cannot be read, or a line lacks a field or has an empty one.

    """
    try:
        # a line ends at a line feed alone: str.splitlines also cuts at characters that a text may hold
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"the texts {path} cannot be read: {error}") from None
    found = [_example(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise TaskError(f"the texts {path} hold no line; allowed: one JSON object a line")
    return tuple(found)


def _example(line: str, where: str) -> Example:
    try:
        fields: Any = json.loads(line)
    except ValueError as error:
        raise TaskError(f"{where} is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise TaskError(
            f"{where} is a {type(fields).__name__}; allowed: an object with client, prompt and response"
        )
    client, prompt, response = (_text(fields, names, where) for names in (("client",), _PROMPTS, _RESPONSES))
    record = fields.get("record", prompt)
    if not isinstance(record, str) or not record:
        raise TaskError(f"{where}: the field record is {record!r}; allowed: a text")
    return Example(client, prompt, response, record)


def _text(fields: dict[str, Any], names: Sequence[str], where: str) -> str:
    value = next((fields[name] for name in names if name in fields), None)
    if not isinstance(value, str) or not value.strip():
        raise TaskError(f"{where}: the field {' or '.join(names)} is {value!r}; allowed: a text that is not empty")
    return value


@dataclass(frozen=True)
class Template:
    """How an example becomes one line of tokens: what comes before the prompt, and between it and the response.

    Attributes:
        before: Before the prompt.
        between: Between prompt and response.

    """

    before: str = "Question: "
    between: str = "\nAnswer: "

    def prompt(self, text: str) -> str:
        """Give what the model reads before it answers.

        Args:
            text: The prompt of an example.

        """
        return f"{self.before}{text}{self.between}"


Tokens = tuple[list[int], list[int]]
"""Of a prompt and of its response."""


def encode(tokenizer: Any, examples: Iterable[Example], template: Template) -> Iterator[Tokens]:
    """Tokenise examples: the prompt with its template, then the response and the end of the text.

    Args:
        tokenizer: A tokenizer of transformers.
        examples: The examples.
        template: How they are written.

    Yields:
        The tokens of the prompt, and those of the response.

    """
    for example in examples:
        prompt = tokenizer(template.prompt(example.prompt), add_special_tokens=False)["input_ids"]
        response = tokenizer(example.response, add_special_tokens=False)["input_ids"]
        start = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
        end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        yield [*start, *prompt], [*response, *end]


def to_tensors(encoded: Sequence[Tokens], length: int, owner: str) -> tuple[Tensor, Tensor]:
    """Pad token lists on the right to one length, and mark what the loss counts.

    Padding needs no mask: a causal model does not look ahead, and no loss counts it. The last token of a text has a
    label, so that the labels say where padding begins.

    Args:
        encoded: What `encode` gave.
        length: Tokens of a row; longer responses are cut.
        owner: Whose they are, for errors.

    Returns:
        Tokens and labels, one row an example; `IGNORED` for prompts and padding.

    Raises:
        TaskError: A prompt leaves no room for a response.

    """
    tokens = torch.zeros(len(encoded), length, dtype=torch.int64)
    labels = torch.full((len(encoded), length), IGNORED, dtype=torch.int64)
    for row, (prompt, response) in enumerate(encoded):
        if len(prompt) >= length:
            raise TaskError(
                f"a prompt of {escaped(owner)} has {len(prompt)} tokens, and a text may have {length}: no room for "
                "its response; allowed: a larger task.options.length"
            )
        whole = [*prompt, *response][:length]
        tokens[row, : len(whole)] = torch.tensor(whole)
        labels[row, len(prompt) : len(whole)] = torch.tensor(whole[len(prompt) :])
    return tokens, labels


def without_padding(tokens: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Cut off the columns that are padding in all rows: sums are rounded otherwise in wider rows.

    Stacked clients keep their width, which must be one for all of them.

    Args:
        tokens: One row a text.
        labels: Of the same shape.

    Returns:
        Both, as wide as the longest text.

    """
    if torch._C._functorch.is_batchedtensor(labels):
        return tokens, labels
    width = _lengths(labels).max()
    return tokens[:, :width], labels[:, :width]


def collate(rows: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Make a batch of texts that were padded to several lengths.

    Args:
        rows: Tokens and labels of each text.

    """
    width = max(len(tokens) for tokens, _ in rows)
    padded = [
        (
            functional.pad(tokens, (0, width - len(tokens))),
            functional.pad(labels, (0, width - len(labels)), value=IGNORED),
        )
        for tokens, labels in rows
    ]
    tokens, labels = (torch.stack(each) for each in zip(*padded, strict=True))
    return tokens, labels


class TextSamples(TensorSamples):
    """Tokens and labels of a client's texts. Their digest does not tell how far they are padded.

    Texts are padded to the longest of all clients: if that went with its author, the others' would seem to have
    changed.
    """

    def digest(self) -> str:
        """See `Samples`."""
        tokens, labels = self.batch(np.arange(len(self)))
        found = hashlib.sha256(b"disavow/texts/v1\x00")
        for row, length in enumerate(_lengths(labels).tolist()):
            found.update(length.to_bytes(8, "big"))
            found.update(torch.stack([tokens[row, :length], labels[row, :length]]).numpy().data)
        return found.hexdigest()


def _lengths(labels: Tensor) -> Tensor:
    """How many tokens each text has: up to the last one that has a label."""
    columns = torch.arange(1, labels.shape[1] + 1, device=labels.device)
    return torch.where(labels != IGNORED, columns, 0).amax(1)
