"""How a network's tensors lie in a row of the stack: what is trained, what is frozen, what are statistics.

The model vector has the order of the network's state, in which they alternate. A row has them apart, so that one
step of SGD is arithmetic on one block of columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from disavow.engines.state import layout_of


class Span(NamedTuple):
    """A tensor's stretch of a row."""

    name: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, eq=False)
class Columns:
    """The spans of each sort, in the order of a row, and the way from a model vector to a row and back.

    Names that share one tensor (tied weights) are one span. It starts from the last of them in the vector, as
    `put_model` would leave it, and goes back under each.
    """

    trained: tuple[Span, ...]
    frozen: tuple[Span, ...]
    statistics: tuple[Span, ...]
    take: Tensor
    give: Tensor

    @property
    def size(self) -> int:
        """The length of a row."""
        return len(self.take)

    @property
    def trained_size(self) -> int:
        """Where the trained parameters end and the frozen ones begin."""
        return sum(span.end - span.start for span in self.trained)

    @property
    def parameters_size(self) -> int:
        """Where the frozen parameters end and the statistics begin."""
        return self.trained_size + sum(span.end - span.start for span in self.frozen)

    def pack(self, vectors: Tensor) -> Tensor:
        """Rows of the stack from model vectors."""
        return vectors.index_select(1, self.take)

    def unpack(self, rows: Tensor) -> Tensor:
        """Model vectors from rows of the stack."""
        return rows.index_select(1, self.give)


def views(rows: Tensor, spans: Iterable[Span]) -> dict[str, Tensor]:
    """The named tensors of all rows, stacked, as views of them."""
    return {span.name: rows[:, span.start : span.end].view(-1, *span.shape) for span in spans}


def columns_of(network: nn.Module, device: torch.device) -> Columns:
    """The columns of a network's rows."""
    layout = layout_of(network)
    state = network.state_dict(keep_vars=True)
    places = {spec.name: (start, end) for spec, start, end in layout.spans()}
    spans: dict[str, Span] = {}
    taken, end = [], 0
    sorts = _sorts(network, {name: state[name] for name in places})
    for tensors in sorts:
        for names in tensors:
            start, end = end, end + state[names[0]].numel()
            spans.update(dict.fromkeys(names, Span(names[0], tuple(state[names[0]].shape), start, end)))
            taken.append(torch.arange(*places[names[-1]]))
    given = [torch.arange(spans[name].start, spans[name].end) for name in places]
    trained, frozen, statistics = (tuple(spans[names[0]] for names in tensors) for tensors in sorts)
    return Columns(trained, frozen, statistics, torch.cat(taken).to(device), torch.cat(given).to(device))


def _sorts(network: nn.Module, state: dict[str, Tensor]) -> tuple[list[list[str]], ...]:
    """The names of each tensor that is trained, of each that is frozen, and of each that is a statistic."""
    names: dict[int, list[str]] = {}
    for name, tensor in state.items():
        names.setdefault(id(tensor), []).append(name)
    is_trained = {id(parameter): parameter.requires_grad for parameter in network.parameters()}
    trained = [each for key, each in names.items() if is_trained.get(key)]
    frozen = [each for key, each in names.items() if is_trained.get(key) is False]
    statistics = [each for key, each in names.items() if key not in is_trained]
    return trained, frozen, statistics
