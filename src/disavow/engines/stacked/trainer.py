"""Train the clients of any number of federations in stacks: who takes which step together, and how many fit."""

from __future__ import annotations

import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from disavow.domain import Evaluation
from disavow.engines.objectives import evaluation_of, losses_of
from disavow.engines.stacked.check import CannotStack, check_stacking, error_line
from disavow.engines.stacked.network import StackedNetwork
from disavow.engines.stacked.precision import Precision, multiplication_precision
from disavow.engines.stacked.step import SGD, ClientStack, Shape, TrainingStep
from disavow.engines.state import put_model
from disavow.engines.trainer import Ask
from disavow.engines.workload import Workload
from disavow.rounds.threads import one_thread
from disavow.rounds.vectors import Model, Updates, require_layout

Item = TypeVar("Item")
Result = TypeVar("Result")
Ints = npt.NDArray[np.int64]

_NETWORKS = 4
"""Networks that stay prepared."""

_COPIES = 8
"""Tensors of samples that stay on the device."""

_SHARE = 0.5
"""Of the memory that is free, how much is planned with: graphs hold theirs beside what plain launches take."""

_ON_CPU = 64
"""Clients at once on a CPU, where stacking brings no speed and only checks need it."""

_SCORED = 8192
"""Samples that are scored at once."""


class StackedTrainer:
    """Train all clients at once: their parameters are stacked, and a step is one program for all of them.

    Args:
        device: Where to train.
        precision: `float32` multiplies exactly; `tf32` and `bf16` are faster and deviate by 1e-3 and 1e-2 or so.
        graphs: `auto` captures steps as CUDA graphs, once for each shape; `never` does not.
    """

    def __init__(
        self,
        device: torch.device,
        *,
        precision: Precision = "float32",
        graphs: Literal["auto", "never"] = "auto",
    ) -> None:
        # by its number, as tensors name it
        self._device = torch.device("cuda", torch.cuda.current_device()) if str(device) == "cuda" else device
        self._precision: Precision = precision
        self._captures = graphs == "auto" and device.type == "cuda"
        self._networks: OrderedDict[Hashable, _Prepared] = OrderedDict()
        self._copies = WeakIdKeyDictionary()

    def train(self, asks: Sequence[Ask]) -> list[Updates]:
        """See `Trainer`. Clients of all asks that have one network and one data set are trained together.

        Raises:
            CannotStack: What worked when the network was tried does not on these samples.
        """
        together: dict[Hashable, list[int]] = {}
        for number, ask in enumerate(asks):
            workload = ask.workload
            key = id(workload.network), id(workload.images), id(workload.labels)
            together.setdefault(key, []).append(number)
        vectors: dict[int, Tensor] = {}
        with self._working():
            for numbers in together.values():
                trained = self._train([asks[number] for number in numbers])
                vectors.update(zip(numbers, trained, strict=True))
        name = "stacked" if self._precision == "float32" else f"stacked {self._precision}"
        return [
            Updates(ask.clients, tuple(len(ask.workload.parts[c]) for c in ask.clients), vectors[number], name)
            for number, ask in enumerate(asks)
        ]

    def evaluate(self, workload: Workload, models: Sequence[Model]) -> list[Evaluation]:
        """See `Trainer`."""
        if not models:
            return []
        with self._working():
            network = self._prepared(workload).step.network
            require_layout(models, network.layout)
            images, labels = self._on_device(workload.test_images), self._on_device(workload.test_labels)
            return [evaluation_of(self._scores(network, model, images), labels) for model in models]

    def prepare(self, workload: Workload) -> None:
        """Check now, and not when it trains, whether the clients of a workload can be stacked.

        Raises:
            ConfigError: They cannot; the module at fault is named.
        """
        with self._working():
            self._prepared(workload)

    def close(self) -> None:
        """See `Trainer`: everything on the device is let go of."""
        self._networks.clear()
        self._copies.clear()
        self._free_cache()

    def _train(self, asks: Sequence[Ask]) -> list[Tensor]:
        """Train asks of one network and one data set; the updates of each."""
        workload = asks[0].workload
        prepared = self._prepared(workload)
        step = prepared.step
        models = self._vectors(step.network, [ask.model for ask in asks])
        names = step.optimizer.hyperparameters
        settings = [[getattr(ask.workload.settings, name) for name in names] for ask in asks]
        rates = torch.tensor(settings, dtype=torch.float32, device=self._device)
        images, labels = self._on_device(workload.images), self._on_device(workload.labels)
        clients = [
            _Client.of(ask, client, number=number) for number, ask in enumerate(asks) for client in ask.clients
        ]
        # the longest first, so that those of a chunk have about as far to go
        order = sorted(range(len(clients)), key=lambda i: -len(clients[i].batches))
        largest = max((len(batch) for client in clients for batch in client.batches), default=1)

        def train_some(positions: Sequence[int]) -> Tensor:
            some = [clients[position] for position in positions]
            which = to_device(np.array([client.ask for client in some]), self._device)
            start, own_rates = models.index_select(0, which), rates.index_select(0, which)
            try:
                return self._train_stack(prepared, some, start, own_rates, images, labels)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # a network may be the user's own, and refuse some samples alone
                raise CannotStack(f"torch.func cannot train these samples: {error_line(error)}") from error

        def shortage(clients: int) -> None:
            prepared.at_most[largest] = max(1, clients // 2)
            self._release()

        updates = torch.zeros(len(clients), models.shape[1], device=self._device)
        at_most = prepared.clients_at_once(largest, images, labels)
        for positions, part in in_chunks(order, even_chunks(len(order), at_most), train_some, shortage=shortage):
            updates.index_copy_(0, to_device(np.array(positions), self._device), part)
        return list(updates.split([len(ask.clients) for ask in asks]))

    def _train_stack(
        self,
        prepared: _Prepared,
        clients: Sequence[_Client],
        models: Tensor,
        rates: Tensor,
        images: Tensor,
        labels: Tensor,
    ) -> Tensor:
        """The updates of clients that are stacked at once."""
        batches = [client.batches for client in clients]
        launches = list(plan_launches(batches, equal_sizes=prepared.coupled))
        shapes = Counter(launch.shape for launch in launches)
        samples = max((shape.clients * shape.samples for shape in shapes), default=1)
        stack = prepared.stack_for(len(clients), samples, images, labels)
        if self._captures:
            self._capture(stack, shapes)
        rows = prepared.step.network.rows(models)
        stack.load(rows, rates)
        # all numbers go over in one transfer, and nothing waits for the device from here on
        blocks = [launch.block(batches, stack.spare) for launch in launches]
        numbers = to_device(np.concatenate(blocks) if blocks else np.empty(0, np.int64), self._device)
        for launch, block in zip(launches, numbers.split([len(block) for block in blocks]), strict=True):
            stack.launch(launch.shape, images, labels, block)
        return stack.trained(len(clients)) - models

    def _capture(self, stack: ClientStack, shapes: Counter[Shape]) -> None:
        try:
            stack.capture(shapes)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self._captures = False
            warnings.warn(
                f"capturing a CUDA graph failed; going on without, more slowly ({type(error).__name__}: {error})",
                RuntimeWarning,
                stacklevel=2,
            )

    def _scores(self, network: StackedNetwork, model: Model, images: Tensor) -> Tensor:
        """What one model says of all samples, in evaluation mode."""
        put_model(network.evaluation, model)

        def scores(some: Sequence[int]) -> Tensor:
            part: Tensor = network.evaluation(images[some[0] : some[-1] + 1])
            return part

        chunks = in_chunks(range(len(images)), _SCORED, scores, shortage=lambda _: self._release())
        return torch.cat([part for _, part in chunks])

    def _prepared(self, workload: Workload) -> _Prepared:
        """What is kept for a network; checked when it is met for the first time."""
        images, labels = workload.images, workload.labels
        key = id(workload.network), images.shape[1:], images.dtype, labels.shape[1:], labels.dtype
        if key not in self._networks:
            while len(self._networks) >= _NETWORKS:
                self._networks.popitem(last=False)
            network = StackedNetwork(workload.network, self._device)
            step = TrainingStep(network, losses_of, SGD, bf16=self._precision == "bf16")
            with multiplication_precision("float32"):
                # whether a network can be stacked is a matter of its code, not of the precision
                coupled = check_stacking(TrainingStep(network, losses_of, SGD), images, labels)
            self._networks[key] = _Prepared(step, coupled)
        self._networks.move_to_end(key)
        return self._networks[key]

    def _vectors(self, network: StackedNetwork, models: Sequence[Model]) -> Tensor:
        require_layout(models, network.layout)
        return torch.stack([model.vector.detach().to(self._device) for model in models])

    def _on_device(self, tensor: Tensor) -> Tensor:
        """Samples on the device, copied once for as long as the tensor is alive and unchanged."""
        known: tuple[int, Tensor] | None = self._copies.get(tensor)
        if known is not None and known[0] == tensor._version:
            return known[1]
        copied = tensor.to(self._device)
        if copied is not tensor:
            if len(self._copies) >= _COPIES:
                self._copies.clear()
            self._copies[tensor] = tensor._version, copied
        return copied

    def _release(self) -> None:
        """Let go of whatever can be made again."""
        for prepared in self._networks.values():
            prepared.stack = None
        self._copies.clear()
        self._free_cache()

    def _free_cache(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    @contextmanager
    def _working(self) -> Iterator[None]:
        on_device = torch.cuda.device(self._device) if self._device.type == "cuda" else one_thread()
        with on_device, torch.no_grad(), multiplication_precision(self._precision):
            yield


@dataclass(frozen=True, eq=False)
class _Client:
    """One client of an ask: the numbers of its samples, batch by batch."""

    ask: int
    batches: list[Ints]

    @classmethod
    def of(cls, ask: Ask, client: str, *, number: int) -> _Client:
        held = np.asarray(ask.workload.parts[client])
        return cls(number, [held[batch] for batch in ask.workload.batches_of(client, ask.round_number)])


@dataclass(eq=False)
class _Prepared:
    """A network that was checked, with the memory that it was last trained in."""

    step: TrainingStep
    coupled: bool
    """Whether the samples of a batch see each other, so that none may be added to it."""

    def __post_init__(self) -> None:
        self.stack: ClientStack | None = None
        self.at_most: dict[int, int] = {}
        """For a batch size, how many clients fit at once."""

    def stack_for(self, clients: int, samples: int, images: Tensor, labels: Tensor) -> ClientStack:
        """Memory for so many clients, and samples in a launch; that of before, if it is large enough."""
        if self.stack is None or clients > self.stack.clients or samples > self.stack.samples:
            self.stack = None  # before the next is made
            self.stack = ClientStack(self.step, clients, samples, images, labels)
        return self.stack

    def clients_at_once(self, size: int, images: Tensor, labels: Tensor) -> int:
        """How many clients with batches of this size are stacked: what fits into a share of the free memory."""
        device = self.step.network.device
        if device.type != "cuda":
            return _ON_CPU
        if size not in self.at_most:
            before = torch.cuda.memory_allocated(device)
            torch.cuda.reset_peak_memory_stats(device)
            tried = Shape(2, size)
            ClientStack(self.step, tried.clients, 2 * size, images, labels).advance(tried)
            each = (torch.cuda.max_memory_allocated(device) - before) / tried.clients
            free = torch.cuda.mem_get_info(device)[0]
            free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
            self.at_most[size] = max(1, int(_SHARE * free / each))
        return self.at_most[size]


@dataclass(frozen=True, eq=False)
class Launch:
    """One step of some clients: client `clients[i]` takes its batch number `batch`. `shape` has padding in it."""

    shape: Shape
    clients: tuple[int, ...]
    batch: int

    def block(self, batches: Sequence[Sequence[Ints]], spare: int) -> Ints:
        """List what goes to the device: numbers of samples, client by client; then the clients; then batch sizes.

        Args:
            batches: Those of each client.
            spare: The row that pads the launch: no client's.

        Returns:
            All of it in one array.
        """
        (width, size), real = self.shape, len(self.clients)
        block = np.empty(width * (size + 2), dtype=np.int64)
        numbers, which, sizes = np.split(block, [width * size, width * (size + 1)])
        samples = numbers.reshape(width, size)
        for row, client in enumerate(self.clients):
            batch = batches[client][self.batch]
            samples[row, : len(batch)] = batch
            # a short batch is filled up with its own last sample: one of another client's might not be finite
            samples[row, len(batch) :] = batch[-1]
            which[row], sizes[row] = client, len(batch)
        samples[real:], which[real:], sizes[real:] = samples[0], spare, size
        return block


def plan_launches(batches: Sequence[Sequence[Ints]], *, equal_sizes: bool) -> Iterator[Launch]:
    """Plan steps that take every batch of every client once, and each client's batches in order.

    Args:
        batches: Those of each client.
        equal_sizes: Whether batches of a launch must have one size, because the network normalises batches; others
            are padded to the largest.

    Yields:
        The launches, in order.
    """
    for number in range(max(map(len, batches), default=0)):
        active = [client for client, own in enumerate(batches) if number < len(own)]
        size_of = {client: len(batches[client][number]) for client in active}
        active.sort(key=size_of.__getitem__)
        groups = [list(group) for _, group in groupby(active, size_of.__getitem__)] if equal_sizes else [active]
        for group in groups:
            largest = max(size_of[client] for client in group)
            yield Launch(Shape(padded_width(len(group)), largest), tuple(sorted(group)), number)


def padded_width(clients: int) -> int:
    """Choose the next of a few widths, so that a stack that loses a client keeps the shape it was captured for.

    Args:
        clients: How many take part.

    Returns:
        Round numbers, because people choose them; less than a tenth is padding.

    >>> [padded_width(clients) for clients in (1, 7, 20, 21, 49, 50, 51, 1000, 1001)]
    [1, 7, 20, 22, 50, 50, 55, 1000, 1100]
    """
    unit = 1
    while clients > 100 * unit:
        unit *= 10
    step = unit if clients <= 20 * unit else 2 * unit if clients <= 50 * unit else 5 * unit
    return -(-clients // step) * step


def even_chunks(items: int, at_most: int) -> int:
    """Choose the size of chunks, none larger than allowed and none much smaller than the others.

    Args:
        items: How many there are.
        at_most: How many a chunk may have.

    Returns:
        The size.

    >>> even_chunks(1000, 600), even_chunks(50, 64)
    (500, 50)
    """
    return -(-items // -(-items // at_most)) if items else at_most


def in_chunks(
    items: Sequence[Item],
    size: int,
    work: Callable[[Sequence[Item]], Result],
    *,
    shortage: Callable[[int], None],
) -> Iterator[tuple[Sequence[Item], Result]]:
    """Do work chunk by chunk; where memory runs out, do that chunk again in halves, down to single items.

    Args:
        items: What there is to do.
        size: Items of a chunk.
        work: A pure function: what a chunk had done before it broke off is done again.
        shortage: Called with the size of a chunk that did not fit, before it is tried again.

    Yields:
        Each chunk and what the work returned.

    Raises:
        torch.OutOfMemoryError: A single item does not fit.
    """
    start = 0
    while start < len(items):
        chunk = items[start : start + size]
        done: tuple[Result] | None = None
        with suppress(torch.OutOfMemoryError):
            done = (work(chunk),)
        if done is None:
            # only now: the error held on to the memory that the next try needs
            shortage(len(chunk))
            if len(chunk) > 1:
                size = -(-len(chunk) // 2)
                continue
            done = (work(chunk),)
        yield chunk, done[0]
        start += len(chunk)


def to_device(numbers: Ints, device: torch.device) -> Tensor:
    """Send whole numbers; from pinned memory they go without waiting for the work before them.

    Args:
        numbers: On the CPU.
        device: Where to.

    Returns:
        The same there.
    """
    host = torch.from_numpy(numbers)
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host
