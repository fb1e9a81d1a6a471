"""What a proof does not say, printed under every verdict."""

from __future__ import annotations

from rich.console import Console

from disavow.proof.history import History
from disavow.proof.report import rebuilt_in_words

NOT_CLAIMED = (
    "It does not say that the client never took part: most clients are drawn at some time.",
    "That survivors are real, spreads, shares and noise true, draws honest, and rounds that are not opened free of "
    "the client is the server's word, except where receipts say otherwise.",
)
SEEDED = "Draws were seeded: whoever knows the seed knows who was drawn, and nothing is deniable to them."
OUTSIDE = (
    "A neighbour outside the cluster could not have been drawn; it shows that the model is one that others explain."
)


def not_claimed(history: History | None) -> list[str]:
    """The sentences that go with a proof of this log."""
    sentences = list(NOT_CLAIMED)
    if history is not None and history.rebuilt:
        sentences.append(f"{rebuilt_in_words(history.rebuilt)}.")
    if history is not None and history.policy["criterion"] == "neighbourhood":
        sentences.append(OUTSIDE)
    if history is not None and history.policy["draws"] == "seeded":
        sentences.append(SEEDED)
    return sentences


def print_not_claimed(console: Console, history: History | None) -> None:
    """The same, a line each."""
    for sentence in not_claimed(history):
        console.print(sentence)
