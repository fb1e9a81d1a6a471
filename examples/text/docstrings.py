"""Does a sentence describe a class or a function? Learned from the docstrings of Python's standard library.

Each package of the library is a client. The data is real text that every Python brings along.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sysconfig
from pathlib import Path

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

import disavow

PACKAGES = (
    *("argparse", "asyncio", "collections", "concurrent", "ctypes", "email", "http", "importlib", "inspect"),
    *("ipaddress", "logging", "mailbox", "multiprocessing", "pathlib", "tarfile", "threading", "unittest"),
    *("urllib", "wsgiref", "xml"),
)
WORDS = 2048
"""Buckets that words are hashed into; 0 is padding."""
LENGTH = 24
"""Words of a sentence that are read."""


class SentenceClassifier(nn.Module):
    """An embedding and a GRU over the words of a sentence."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width, padding_idx=0)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, 2)

    def forward(self, words: Tensor) -> Tensor:
        """Score each sentence as a function's or a class's."""
        states, _ = self.gru(self.embedding(words))
        return self.head(states.amax(dim=1))


def encode(sentence: str) -> list[int]:
    """Hash the words of a sentence into numbers, the same on every machine."""
    words = re.findall(r"[a-z_]+", sentence.lower())[:LENGTH]
    numbers = [1 + int.from_bytes(hashlib.sha256(word.encode()).digest()[:4]) % (WORDS - 1) for word in words]
    return numbers + [0] * (LENGTH - len(numbers))


def sentences(package: str) -> list[tuple[list[int], int]]:
    """Read the first sentences of a package's docstrings, and whether each is a class's."""
    library = Path(sysconfig.get_path("stdlib"))
    found = {}
    for path in sorted([*library.glob(f"{package}.py"), *(library / package).rglob("*.py")]):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue  # some files of the library's own tests are meant to be unreadable
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                found[text.split("\n\n")[0]] = int(isinstance(node, ast.ClassDef))
    return [(encode(text), label) for text, label in found.items() if re.search("[a-z]", text.lower())]


def build(seed: int = 3, fewest: int = 24) -> disavow.Task:
    """Make the task: packages with too few docstrings are left out, a fifth of the rest is held out."""
    held = {package: sentences(package) for package in PACKAGES}
    train, test = {}, []
    for package, pairs in held.items():
        if len(pairs) < fewest:
            continue
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(pairs), generator=generator).tolist()
        split = len(pairs) // 5
        test += [pairs[i] for i in order[:split]]
        train[package] = tensors([pairs[i] for i in order[split:]])
    return disavow.task(
        model=SentenceClassifier,
        clients=train,
        test=tensors(test),
        loss=nn.CrossEntropyLoss(weight=torch.tensor([1.0, 4.0])),  # one docstring in five is a class's
        metrics={"auroc": lambda scores, labels: roc_auc_score(labels, scores[:, 1] - scores[:, 0])},
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
        epochs=2,
        batch_size=16,
    )


def tensors(pairs: list[tuple[list[int], int]]) -> tuple[Tensor, Tensor]:
    """Put sentences and labels into two tensors."""
    return torch.tensor([words for words, _ in pairs]), torch.tensor([label for _, label in pairs])
