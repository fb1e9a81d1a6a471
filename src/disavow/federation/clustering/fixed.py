"""Clusters by a hash of ids, settled before any data is seen: the only ones under which the secret draw of a
representative amplifies privacy unconditionally.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from disavow.federation.randomness import derive


def fixed(clients: Sequence[str], k: int, seed: int) -> list[Tensor]:
    """Partition clients, given in id order, into floor(n/k) runs of their hash order, as equal as can be.

    The same participants are always grouped alike; when one leaves, the borders between runs move with it.
    """
    order = sorted(range(len(clients)), key=lambda i: (derive("fixed", seed, clients[i]), clients[i]))
    count = len(clients) // k
    bounds = [len(clients) * i // count for i in range(count + 1)]
    return [torch.tensor(sorted(order[a:b])) for a, b in pairwise(bounds)]
