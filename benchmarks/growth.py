"""How the cost of a round's local training grows with clients and with samples: it must stay a straight line.

LeNet5, 28x28 images, three epochs, batches of 128. One JSON line a point; `plot` draws the points of several such
files, one a device.

python -m benchmarks.growth cpu > docs/results/growth-cpu.jsonl
python -m benchmarks.growth plot docs/engines-growth.png docs/results/growth-*.jsonl
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch

from disavow.config import EngineSettings, TrainingSettings
from disavow.engines import build
from disavow.engines.state import model_of
from disavow.engines.workload import Workload
from disavow.models import build as build_network

SHAPE = (1, 28, 28)
CLIENTS = (10, 30, 100, 300, 1000, 3000, 10_000)
SAMPLES = (12, 36, 120, 360, 1200, 3600, 12_000)
HELD = 60
FEW = 50


def workload_of(clients: int, samples: int) -> Workload:
    """Random images: how long they take does not depend on what they show."""
    generator = torch.Generator().manual_seed(1)
    total = min(clients * samples, 60_000)
    images = torch.rand(total, *SHAPE, generator=generator)
    labels = torch.randint(10, (total,), generator=generator)
    numbers = np.arange(clients * samples) % total
    return Workload(
        network=build_network("lenet5", SHAPE, 10, seed=1),
        images=images,
        labels=labels,
        parts={f"client-{i:05d}": part for i, part in enumerate(np.split(numbers, clients))},
        test_images=images[:1],
        test_labels=labels[:1],
        settings=TrainingSettings(epochs=3, batch_size=128, learning_rate=0.02),
        seed=1,
    )


def seconds(clients: int, samples: int, device: str, repeats: int = 3) -> float:
    """The median time of a training call, the first one not counted."""
    workload = workload_of(clients, samples)
    engine = build(workload, EngineSettings.model_validate({"device": device}))
    model, names, times = model_of(workload.network), tuple(workload.parts), []
    for number in range(1, repeats + 2):
        start = time.perf_counter()
        updates = engine.train(model, names, number)
        float(updates.vectors[-1, -1])  # a GPU answers only now
        times.append(time.perf_counter() - start)
        del updates
    engine.close()
    return statistics.median(times[1:])


def measure(device: str) -> None:
    """Print one line a point."""
    name = (
        torch.cuda.get_device_name()
        if device == "cuda"
        else f"{torch.get_num_threads()} {platform.machine()} cores"
    )
    points = [("clients", count, HELD) for count in CLIENTS] + [("samples", FEW, held) for held in SAMPLES]
    for axis, clients, samples in points:
        point = {"axis": axis, "clients": clients, "samples": samples, "device": name, "torch": torch.__version__}
        print(json.dumps({**point, "seconds": seconds(clients, samples, device)}), flush=True)


def plot(target: Path, files: list[Path]) -> None:
    """Draw both axes side by side, with a straight line through the largest point for comparison."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    styles = [("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^")]
    for (colour, marker), path in zip(styles, files, strict=False):
        points = [json.loads(line) for line in path.read_text().splitlines()]
        for panel, axis in zip(axes, ("clients", "samples"), strict=True):
            of_axis = [point for point in points if point["axis"] == axis]
            x, y = [p[axis] for p in of_axis], [p["seconds"] for p in of_axis]
            panel.loglog(x, y, marker=marker, color=colour, label=of_axis[0]["device"])
            panel.loglog(x, [y[-1] * value / x[-1] for value in x], ":", color=colour, linewidth=1)
    axes[0].set(xlabel=f"clients of {HELD} images each", ylabel="seconds of local training in a round")
    axes[1].set(xlabel=f"images of each of {FEW} clients")
    for panel in axes:
        panel.grid(visible=True, which="major", alpha=0.3)
    axes[0].legend(frameon=False, title="dotted: in proportion to the last point", title_fontsize="small")
    figure.savefig(target, dpi=150)


if __name__ == "__main__":
    if sys.argv[1] == "plot":
        plot(Path(sys.argv[2]), [Path(name) for name in sys.argv[3:]])
    else:
        measure(sys.argv[1])
