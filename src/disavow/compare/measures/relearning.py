"""Rounds until relearning: the leaver comes back; how soon does the model know its records as well as before?

A model that has forgotten takes as long as one that never knew. One that was edited on the surface takes fewer.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from disavow.compare.measures.predictions import loss_on_leaver
from disavow.compare.memory_rounds import run_rounds
from disavow.compare.problem import Problem
from disavow.engines.trainer import Trainer


def rounds_to_relearn(
    problem: Problem, models: Sequence[Tensor], *, known: float, seed: int, trainer: Trainer, most: int
) -> list[int]:
    """Count the rounds with everybody after which the loss on what leaves is what it was before the erasure.

    All models are trained side by side, with the same batches and secret draws.

    Args:
        problem: What is compared on.
        models: Where each starts from.
        known: The loss on what leaves before the erasure.
        seed: Of the training whose erasure it was.
        trainer: Trains clients.
        most: Rounds that are tried.

    Returns:
        For each model, the rounds; `most` + 1 where that many are not enough.

    """
    found = [0 if loss_on_leaver(problem, model) <= known else most + 1 for model in models]
    workload = problem.workload(seed, without_leaver=False)
    going = {
        place: problem.memory_run(
            seed,
            "relearning",
            without_leaver=False,
            vector=model,
            number=problem.rounds + 1,
            workload=workload,
        )
        for place, model in enumerate(models)
        if found[place]
    }
    for done in range(1, most + 1):
        run_rounds(list(going.values()), trainer, 1)
        for place, run in list(going.items()):
            if loss_on_leaver(problem, run.vector) <= known:
                found[place] = done
                del going[place]
        if not going:
            break
    return found
