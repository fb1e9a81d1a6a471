"""What a proof does not say, shown under every verdict."""

from __future__ import annotations

from disavow.proof.bounds import log10_odds, noise_in_words, total_ratio
from disavow.proof.leaves import APPROXIMATE_MECHANISMS
from disavow.proof.report import Report
from disavow.proof.summary import drawn_in_words, rebuilt_in_words, summarise

NOT_CLAIMED = (
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
ALONE = "Odds are of this client alone: for several leavers of one cluster together they are larger."
AVERAGED = (
    "Running statistics of batch norm, where the model has any, are means over all members of each cluster, the "
    "client among them: for these numbers nobody else could have been in its place, and only noise hides its share."
)


def not_claimed(report: Report) -> list[str]:
    """Give the sentences that go with a proof.

    Args:
        report: What became of its checks.

    """
    sentences, history = [_drawn(report), *NOT_CLAIMED], report.history
    noise = noise_in_words(log10_odds(total_ratio(report.bounds))) if report.holds else None
    if noise is not None:
        sentences.append(noise)
    if history is not None and report.bounds and history.policy.representatives > 1:
        sentences.append(ALONE)
    if history is not None and history.rebuilt:
        sentences.append(f"{rebuilt_in_words(history.rebuilt)}.")
    if history is not None and report.bounds and history.policy.statistics == "mean":
        sentences.append(AVERAGED)
    if history is not None and history.policy.draws == "seeded":
        sentences.append(SEEDED)
    if history is not None and history.policy.mechanism in APPROXIMATE_MECHANISMS:
        sentences.append(KEPT_UPDATES)
    return sentences


def _drawn(report: Report) -> str:
    """That deniable is not unused."""
    if not report.holds or report.statement is None or not report.bounds:
        return "It does not say that the client never took part."
    summary = summarise(report.statement)
    sentence = f"The client was {drawn_in_words(summary)}: deniable does not mean not used."
    if not summary.superseded:
        return sentence
    undone = f"{summary.superseded} round{' that was' if summary.superseded == 1 else 's that were'} undone"
    return f"{sentence} It was also in {undone}, whose models were released; they are not counted."
