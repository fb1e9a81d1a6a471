"""② Local training: what an engine is, and which of its updates may enter a round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from disavow.domain import Evaluation, Layout, Policy, escaped
from disavow.domain.strategies import CLUSTERINGS
from disavow.errors import CannotRetrain, RoundRefused
from disavow.rounds.vectors import Model, Updates, row_blocks

_NAMED = 5
"""How many clients an error names before it only counts."""


class Engine(Protocol):
    """Trains the clients of a round. Sequential, vectorised or on real nodes: the round cannot tell."""

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        """Train clients from a model.

        A client's update depends on the model, its own data, the run's seed, the round, its id and the epochs, and
        on nothing else: not on who else takes part, nor on the order. Fewer epochs are the first of more.

        Args:
            model: What is broadcast.
            clients: Whose updates are wanted.
            round_number: Which round it is.
            epochs: Local epochs; None: those of the settings.

        """

    def evaluate(self, model: Model) -> Evaluation | None:
        """Evaluate a model on held-out data, in evaluation mode."""

    def close(self) -> None:
        """Let go of workers and memory. An engine that is closed is not used again; closing twice is harmless."""


@runtime_checkable
class ChecksRuns(Protocol):
    """An engine that knows beforehand which runs it cannot train. None has to."""

    def refuse_run(self, layout: Layout, clients: Sequence[str]) -> None:
        """Raise `CannotRetrain` where models have another layout than its network, or where it has no data of one
        of these clients.
        """


def refuse_unfit(engine: Engine, model: Model, clients: Sequence[str], round_number: int) -> None:
    """Refuse an engine that cannot train a run, before anything is undone that it is to train again.

    One that does not say so beforehand trains one client for one epoch, to see whether what it returns fits.

    Args:
        engine: The engine.
        model: A model of the run.
        clients: Who is in the run.
        round_number: The round that would be trained.

    Raises:
        CannotRetrain: Its updates do not fit the model.

    """
    if isinstance(engine, ChecksRuns):
        engine.refuse_run(model.layout, clients)
        return
    try:
        updates = engine.train(model, clients[:1], round_number, epochs=1)
    except RoundRefused:
        return  # it can train; a round that is refused ends the rebuild, and the earlier model is served
    except Exception as error:
        error.add_note("this was a trial of the engine before a rollback: nothing was undone")
        raise
    if updates.vectors.shape[1:] != (model.layout.size,):
        raise CannotRetrain(
            f"the engine returns updates of {_length(updates.vectors)} numbers, the model has {model.layout.size}; "
            "nothing was undone"
        )


def fewest(policy: Policy) -> int:
    """Return how many must take part in a round."""
    return CLUSTERINGS[policy.clustering].fewest_participants(policy.k)


def refuse_too_few(participants: int, *, k: int, round_number: int) -> None:
    """Refuse a round before anybody trains in vain: fewer than k make no cluster.

    Args:
        participants: How many take part.
        k: How many must.
        round_number: Which round it is.

    Raises:
        RoundRefused: They are too few.

    """
    if participants < k:
        raise _refusal(round_number, f"{participants} participants are fewer than k = {k}")


def refuse_overflow(model: Model, *, round_number: int) -> None:
    """Refuse a model that is not finite, though each update was.

    Args:
        model: The aggregate.
        round_number: Which round it is.

    Raises:
        RoundRefused: It holds NaN or infinity.

    """
    if not bool(torch.isfinite(model.vector).all()):
        raise _refusal(round_number, "the aggregate holds NaN or infinity")


def _refusal(round_number: int, reason: str, *, nameless: str = "") -> RoundRefused:
    prefix = f"round {round_number} refused: "
    return RoundRefused(f"{prefix}{reason}{RoundRefused.UNCHANGED}", nameless=prefix + (nameless or reason))


def accept(
    updates: Updates, *, layout: Layout, k: int, round_number: int, strangers: Sequence[str] = ()
) -> Updates:
    """Check updates, and put them in id order.

    Args:
        updates: What the clients returned.
        layout: That of the run's models.
        k: How many updates it takes.
        round_number: Which round it is.
        strangers: Who among the clients is not, or no longer, in the run.

    Returns:
        The updates in id order.

    Raises:
        RoundRefused: None of them may enter, and why.

    """
    refuse_too_few(len(updates), k=k, round_number=round_number)
    twice = [client for client, count in Counter(updates.clients).items() if count > 1]
    if twice:
        problem = "returned more than one update"
        raise _refusal(round_number, f"{_names(twice)} {problem}", nameless=f"a client {problem}")
    if strangers:
        problem = "is not, or no longer, a client of this run"
        raise _refusal(round_number, f"{_names(list(strangers))} {problem}", nameless=f"a participant {problem}")
    if updates.vectors.dtype != torch.float32:
        raise _refusal(round_number, f"updates are {updates.vectors.dtype}, not torch.float32")
    if updates.vectors.shape != (len(updates), layout.size):
        raise _refusal(
            round_number, f"updates have {_length(updates.vectors)} numbers, the model has {layout.size}"
        )
    if len(updates.samples) != len(updates) or any(samples < 1 for samples in updates.samples):
        raise _refusal(round_number, "every participant must hold at least one sample")
    bad = _not_finite(updates.vectors)
    if bad:
        names = _names([updates.clients[i] for i in bad])
        problem = "holds NaN or infinity (is the learning rate too high, or the noise too strong?)"
        raise _refusal(
            round_number, f"the update of {names} {problem}", nameless=f"the update of {len(bad)} clients {problem}"
        )
    return updates.in_id_order()


def _not_finite(vectors: Tensor) -> list[int]:
    # the sum of absolute values in float64 is finite exactly when every number is
    sums = [vectors[block].abs().sum(dim=1, dtype=torch.float64) for block in row_blocks(vectors)]
    return (~torch.isfinite(torch.cat(sums))).nonzero().flatten().tolist()


def _length(vectors: Tensor) -> str:
    return str(vectors.shape[1]) if vectors.dim() > 1 else "no"


def _names(clients: list[str]) -> str:
    shown = ", ".join(map(escaped, clients[:_NAMED]))
    return shown if len(clients) <= _NAMED else f"{shown} and {len(clients) - _NAMED} more"
