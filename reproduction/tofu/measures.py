"""What TOFU measures of a model: probability, ROUGE-L, truth ratio, forget quality; and extraction strength."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import hmean, ks_2samp
from torch import Tensor, nn
from torch.nn import functional

from disavow.adapters.texts import IGNORED, Example, Template, encode, to_tensors
from reproduction.tofu.questions import Graded

_BATCH = 128
_WORD = re.compile(r"[a-z0-9]+")
"""A word as rouge_score, which TOFU uses, splits text; without its stemming."""


@dataclass(frozen=True)
class Reader:
    """What turns questions into tokens of a model.

    Attributes:
        tokenizer: Of its base.
        template: How questions are written.
        device: Where the model is.

    """

    tokenizer: Any
    template: Template
    device: torch.device

    def tensors(self, pairs: Sequence[tuple[str, str]]) -> tuple[Tensor, Tensor]:
        """Tokenise questions with answers.

        Args:
            pairs: Questions and answers.

        Returns:
            Tokens and labels, on the device.

        """
        encoded = list(encode(self.tokenizer, (Example("", q, a, q) for q, a in pairs), self.template))
        length = max(len(prompt) + len(response) for prompt, response in encoded)
        tokens, labels = to_tensors(encoded, length, "a question")
        return tokens.to(self.device), labels.to(self.device)


@torch.no_grad()
def probabilities(network: nn.Module, reader: Reader, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """Compute P(answer | question)^(1 / length) of each pair, the geometric mean over the answer's tokens.

    Args:
        network: From tokens to logits, in evaluation mode.
        reader: Tokenises.
        pairs: Questions and answers.

    """
    found = []
    for start in range(0, len(pairs), _BATCH):
        tokens, labels = reader.tensors(pairs[start : start + _BATCH])
        logits = network(tokens)[:, :-1].double()
        wanted = labels[:, 1:]
        losses = functional.cross_entropy(logits.transpose(1, 2), wanted, ignore_index=IGNORED, reduction="none")
        found.append(torch.exp(-losses.sum(1) / (wanted != IGNORED).sum(1)).cpu().numpy())
    return np.concatenate(found)


def truth_ratios(network: nn.Module, reader: Reader, questions: Sequence[Graded]) -> np.ndarray:
    """Compute how much likelier wrong answers are than the paraphrased right one, for each question.

    Args:
        network: The model.
        reader: Tokenises.
        questions: With right and wrong answers.

    """
    right = probabilities(network, reader, [(each.question, each.paraphrased) for each in questions])
    wrong = probabilities(network, reader, [(each.question, answer) for each in questions for answer in each.wrong])
    sizes = np.cumsum([0, *(len(each.wrong) for each in questions)])
    means = np.array([wrong[start:end].mean() for start, end in pairwise(sizes)])
    ratios: np.ndarray = means / np.maximum(right, np.finfo(float).tiny)
    return ratios


def forget_quality(unlearned: npt.ArrayLike, retained: npt.ArrayLike) -> float:
    """Compute TOFU's forget quality: the p-value of a KS test between truth ratios.

    Args:
        unlearned: Of the model that is to have forgotten.
        retained: Of one that was never trained on what is forgotten.

    Returns:
        Small where the two can be told apart.

    """
    return float(ks_2samp(np.asarray(unlearned), np.asarray(retained)).pvalue)


@torch.no_grad()
def extraction_strengths(network: nn.Module, reader: Reader, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """Compute which share of each answer the model completes by itself, word for word, given what comes before.

    Args:
        network: The model.
        reader: Tokenises.
        pairs: Questions and answers.

    Returns:
        1 where the question alone suffices, 0 where not even the last token comes back.

    """
    found = []
    for start in range(0, len(pairs), _BATCH):
        tokens, labels = reader.tensors(pairs[start : start + _BATCH])
        wanted = labels[:, 1:]
        counted = wanted != IGNORED
        right = (network(tokens)[:, :-1].argmax(-1) == wanted) | ~counted
        # from the back: how many of an answer's tokens stand in a row that are all foreseen
        unbroken = right.flip(1).int().cumprod(1).flip(1).bool() & counted
        found.append((unbroken.sum(1) / counted.sum(1)).double().cpu().numpy())
    return np.concatenate(found)


@torch.no_grad()
def generate(network: nn.Module, reader: Reader, questions: Sequence[str], *, most: int = 64) -> list[str]:
    """Let the model answer, always by its likeliest token.

    Args:
        network: The model.
        reader: Tokenises.
        questions: What it is given.
        most: Tokens of an answer at the most.

    Returns:
        Its answers.

    """
    tokenizer, found = reader.tokenizer, []
    prompts = [
        encoded[0] for encoded in encode(tokenizer, (Example("", q, "x", q) for q in questions), reader.template)
    ]
    for start in range(0, len(prompts), _BATCH):
        some = prompts[start : start + _BATCH]
        lengths = torch.tensor([len(each) for each in some], device=reader.device)
        tokens = torch.zeros(len(some), int(lengths.max()) + most + 1, dtype=torch.int64, device=reader.device)
        for row, prompt in enumerate(some):
            tokens[row, : len(prompt)] = torch.tensor(prompt, device=reader.device)
        rows, ends = torch.arange(len(some), device=reader.device), lengths.clone()
        open_ones = torch.ones(len(some), dtype=torch.bool, device=reader.device)
        for _ in range(most):
            logits = network(tokens[:, : int(ends.max())])
            following = logits[rows, ends - 1].argmax(-1)
            tokens[rows, ends] = torch.where(open_ones, following, tokens[rows, ends])
            open_ones &= following != tokenizer.eos_token_id
            ends = torch.where(open_ones, ends + 1, ends)
            if not bool(open_ones.any()):
                break
        for row, prompt in enumerate(some):
            found.append(tokenizer.decode(tokens[row, len(prompt) : int(ends[row])], skip_special_tokens=True))
    return found


def rouge_l(candidate: str, reference: str) -> float:
    """Compute the recall of ROUGE-L: the longest common subsequence of words over the reference's words.

    Args:
        candidate: What was said.
        reference: What was to be said.

    """
    said, wanted = (_WORD.findall(text.lower()) for text in (candidate, reference))
    row = [0] * (len(said) + 1)
    for word in wanted:
        before = 0
        for place, other in enumerate(said, start=1):
            before, row[place] = row[place], before + 1 if word == other else max(row[place], row[place - 1])
    return row[-1] / max(1, len(wanted))


@dataclass(frozen=True)
class Measures:
    """Means over some questions.

    Attributes:
        questions: How many.
        probability: Of the right answer, the geometric mean over its tokens.
        rouge_l: Of the likeliest answer, recall.
        extraction_strength: Which share of the answer is completed word for word.
        truth_ratio: min(R, 1/R) of the truth ratio R; None where there are no wrong answers to compare with.
        ratios: R of each question.

    """

    questions: int
    probability: float
    rouge_l: float
    extraction_strength: float
    truth_ratio: float | None
    ratios: tuple[float, ...]


def measure(network: nn.Module, reader: Reader, questions: Sequence[Graded]) -> Measures:
    """Compute all means over some questions.

    Args:
        network: The model, in evaluation mode.
        reader: Tokenises.
        questions: With right answers, and either all or none with wrong ones.

    """
    pairs = [(each.question, each.answer) for each in questions]
    answers = generate(network, reader, [question for question, _ in pairs])
    ratios = truth_ratios(network, reader, questions) if questions[0].wrong else np.array([])
    return Measures(
        len(questions),
        float(probabilities(network, reader, pairs).mean()),
        float(np.mean([rouge_l(said, wanted) for said, (_, wanted) in zip(answers, pairs, strict=True)])),
        float(extraction_strengths(network, reader, pairs).mean()),
        float(np.minimum(ratios, 1 / np.maximum(ratios, 1e-12)).mean()) if len(ratios) else None,
        tuple(map(float, ratios)),
    )


@dataclass(frozen=True)
class Utility:
    """What one of TOFU's sets adds to Model Utility.

    Attributes:
        probability: Of the right answer; for multiple choice, its share among the options.
        rouge_l: As in `Measures`.
        truth: The mean of max(0, 1 - R).

    """

    probability: float
    rouge_l: float
    truth: float


def utility(network: nn.Module, reader: Reader, questions: Sequence[Graded], *, choice: bool) -> Utility:
    """Measure what one set adds to TOFU's Model Utility.

    Args:
        network: The model, in evaluation mode.
        reader: Tokenises.
        questions: With right and wrong answers.
        choice: Whether the wrong answers are the other options of a multiple choice, as for real authors and world
            facts.

    """
    found = measure(network, reader, questions)
    probability = found.probability
    if choice:
        right = probabilities(network, reader, [(each.question, each.answer) for each in questions])
        wrong = probabilities(
            network, reader, [(each.question, other) for each in questions for other in each.wrong]
        )
        sizes = np.cumsum([0, *(len(each.wrong) for each in questions)])
        others = np.array([wrong[start:end].sum() for start, end in pairwise(sizes)])
        probability = float((right / (right + others)).mean())
    return Utility(probability, found.rouge_l, float(np.maximum(0, 1 - np.array(found.ratios)).mean()))


def model_utility(parts: Sequence[Utility]) -> float:
    """Compute TOFU's Model Utility: the harmonic mean of nine figures.

    Args:
        parts: Of retain questions, real authors and world facts.

    """
    return float(hmean([number for part in parts for number in (part.probability, part.rouge_l, part.truth)]))
