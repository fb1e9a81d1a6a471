"""What a proof does not say, printed under every verdict."""

from __future__ import annotations

from rich.console import Console

from disavow.proof.bounds import noise_in_words, total_ratio
from disavow.proof.report import Report, rebuilt_in_words

NOT_CLAIMED = (
    "It does not say that the client never took part: most clients are drawn at some time.",
    "Taken on the server's word, except where receipts say otherwise: that survivors are real; that spreads, "
    "shares and noise are as stated; that draws were honest; and that the client was in no other round.",
)
SEEDED = (
    "Draws were seeded: whoever knows the seed knows who took part and who was drawn, and nothing is deniable to "
    "them."
)
KEPT_UPDATES = (
    "The run keeps what its clients returned (mechanism federaser): whoever has its directory can find out who was "
    "drawn, and nothing is deniable to them."
)
OUTSIDE = (
    "A neighbour outside the cluster could not have been drawn; it shows that the model is one that others explain."
)


def not_claimed(report: Report) -> list[str]:
    """The sentences that go with a proof."""
    sentences, history = list(NOT_CLAIMED), report.history
    noise = noise_in_words(total_ratio(report.bounds)) if report.holds else None
    if noise is not None:
        sentences.append(noise)
    if history is not None and history.rebuilt:
        sentences.append(f"{rebuilt_in_words(history.rebuilt)}.")
    if history is not None and history.policy["criterion"] == "neighbourhood":
        sentences.append(OUTSIDE)
    if history is not None and history.policy["draws"] == "seeded":
        sentences.append(SEEDED)
    if history is not None and history.policy["mechanism"] == "federaser":
        sentences.append(KEPT_UPDATES)
    return sentences


def print_not_claimed(console: Console, report: Report) -> None:
    """The same, a line each."""
    for sentence in not_claimed(report):
        console.print(sentence)
