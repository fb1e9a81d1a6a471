"""Whether a retraining can be repeated, measured: did the survivors return the same updates from the same model?

A rollback broadcasts the model of its first round a second time. A client whose training draws come from the seed
alone returns, to the last bit, what it returned the first time, and the ledger holds the digests of both. Where
clients train elsewhere, or by a user's own code, nobody has to take their word for it; and nothing is trained for
it that is not trained anyway.
"""

from __future__ import annotations

from disavow.ledger import Ledger


def repetition(ledger: Ledger) -> str:
    """Say what to remark about the rebuild that is about to be complete.

    Args:
        ledger: The run.

    Returns:
        A clause; "" where every update came out the same.

    """
    same = ledger.repeated_updates()
    if same is None:
        return ""
    if not same:
        return "retrained, not reproducible: no survivor returned a second update from the same model"
    if all(same):
        return ""
    return (
        f"retrained, not reproducible: {same.count(False)} of {len(same)} survivors returned another update from "
        "the same model than before"
    )
