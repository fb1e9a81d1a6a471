"""Processor time that the compiled kernels take for an image of LeNet5's training, on one thread.

CXX="python -m ziglang c++" python -m benchmarks.kernels    with the compiler of the extra "compiler"
"""

from __future__ import annotations

import json
import os
import time

from benchmarks.growth import SHAPE, workload_of
from disavow.engines.compiled import CompiledTrainer
from disavow.engines.state import model_of
from disavow.engines.trainer import Ask

CLIENTS = 6
SAMPLES = 1200


def main() -> None:
    """Train a few clients, three times over; the fastest counts."""
    workload = workload_of(CLIENTS, SAMPLES)
    trainer = CompiledTrainer(workload.network, SHAPE, threads=1)
    model, names = model_of(workload.network), tuple(workload.parts)
    taken = []
    for number in range(1, 4):
        start = time.process_time()
        trainer.train([Ask(workload, model, names, number)])
        taken.append(time.process_time() - start)
    trainer.close()
    images = CLIENTS * SAMPLES * workload.settings.epochs
    print(
        json.dumps(
            {"compiler": os.environ.get("CXX", "default"), "microseconds_per_image": 1e6 * min(taken) / images}
        )
    )


if __name__ == "__main__":
    main()
