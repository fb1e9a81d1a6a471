"""A grid small enough to be run in a test: digits, a few rounds, every method that has no budget of bytes."""

from __future__ import annotations

from pathlib import Path

TOML = """
rows = ["MNIST-iid"]
networks = ["lenet5"]
methods = ["fedavg", "federaser", "published", "sticky"]
k = [4]
x = [2, 4]

[settings]
rounds = 4

[settings.data]
name = "digits"
clients = 10

[settings.training]
epochs = 2
batch_size = 32

[settings.requests]
rate = 0.9

[settings.engine]
name = "vectorised"
"""

FEWER = TOML.replace('"fedavg", "federaser", ', "")
"""Four points of it: without the methods that train everything again."""


SEVERAL = FEWER.replace("x = [2, 4]", "x = [4]\nseeds = [1, 2, 3]")
"""Three groups of two points each, which processes can share."""


STAYING = """
rows = ["MNIST-dirichlet0.3"]
networks = ["lenet5"]
methods = ["published"]
k = [3]
x = [2]

[settings]
rounds = 3

[settings.data]
name = "digits"
clients = 13

[settings.training]
epochs = 1
batch_size = 32

[settings.deniability]
"""
"""One point, in which nobody leaves; Δ may be added."""


def written(folder: Path, text: str = TOML) -> Path:
    """The grid in a file."""
    path = folder / "grid.toml"
    path.write_text(text)
    return path
