"""A plain, careful PyTorch loop: no framework, as many processes as there are cores, one thread each.

The processes are started once, hold the data, train a fixed share of the clients and test a share of the images.
The model travels through shared memory.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier

import torch
from torch import Tensor, multiprocessing

from . import task


@dataclass(frozen=True, eq=False)
class Board:
    """What the processes share: the model, what each makes of it, and when they go on."""

    model: Tensor
    sums: Tensor
    right: Tensor
    barrier: Barrier


def main() -> None:
    """Time the rounds that were asked for."""
    options = task.arguments()
    data = task.load(options.data, "cpu")
    network = task.LeNet5()
    task.ready(network, data)
    context = multiprocessing.get_context("spawn")
    model = flat(network)
    board = Board(
        model=model.share_memory_(),
        sums=torch.zeros(options.workers, len(model)).share_memory_(),
        right=torch.zeros(options.workers, dtype=torch.int64).share_memory_(),
        barrier=context.Barrier(options.workers + 1),
    )
    workers = [context.Process(target=work, args=(options, rank, board)) for rank in range(options.workers)]
    for worker in workers:
        worker.start()
    seconds = [lead_round(options, board) for _ in range(options.warmup + options.rounds)]
    for worker in workers:
        worker.join()
    task.answer(options, seconds, int(board.right.sum()) / len(data.test_labels), {"torch": torch.__version__})


def lead_round(options: argparse.Namespace, board: Board) -> float:
    """One round as the leading process sees it: how many seconds it took."""
    start = time.perf_counter()
    board.barrier.wait()  # the workers train
    board.barrier.wait()
    board.model.copy_(board.sums.sum(dim=0) / (options.clients * options.samples))
    board.barrier.wait()  # the workers test
    board.barrier.wait()
    return time.perf_counter() - start


def work(options: argparse.Namespace, rank: int, board: Board) -> None:
    """A worker's life."""
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    try:
        data = task.load(options.data, options.device)
        network = task.LeNet5()
        task.ready(network, data)
        held = [data.of_client(client, options.samples) for client in range(rank, options.clients, options.workers)]
        test_images, test_labels = (
            data.test_images[rank :: options.workers],
            data.test_labels[rank :: options.workers],
        )
        for _ in range(options.warmup + options.rounds):
            board.barrier.wait()
            board.sums[rank] = weighted_sum(network, board.model.to(options.device), held)
            board.barrier.wait()
            board.barrier.wait()
            put(network, board.model.to(options.device))
            board.right[rank] = task.count_right(network, test_images, test_labels)
            board.barrier.wait()
    except BaseException:
        board.barrier.abort()  # or everybody else would wait for this one
        raise


def weighted_sum(network: task.LeNet5, model: Tensor, held: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The models of some clients, each trained from `model`, times the number of samples of each."""
    total = torch.zeros_like(model)
    for images, labels in held:
        put(network, model)
        task.train(network, images, labels)
        total.add_(flat(network), alpha=len(labels))
    return total


def flat(network: task.LeNet5) -> Tensor:
    """The network's parameters as one vector."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in network.parameters()])


@torch.no_grad()
def put(network: task.LeNet5, model: Tensor) -> None:
    """Copy a vector into the network's parameters, which keep their order of memory."""
    parameters = list(network.parameters())
    for parameter, part in zip(parameters, model.split([p.numel() for p in parameters]), strict=True):
        parameter.copy_(part.view(parameter.shape))


if __name__ == "__main__":
    main()
