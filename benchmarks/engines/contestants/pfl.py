# mypy: ignore-errors
"""pfl-research's simulated backend with its federated averaging, sharded over processes by `torchrun`.

Users' data sets are in memory and made once, with their batches; nothing is evaluated on users; central evaluation
is sharded and uses large batches: what its guide "Fast distributed simulations" says. Its data sets give their
batches in the same order in every epoch. That is left as it is: shuffling would only slow it down.
"""

from __future__ import annotations

import functools
import itertools
import time
from importlib.metadata import version

import torch
from torch.nn import functional

from . import task

_NEVER = 10**9


class Network(task.LeNet5):
    """The network with what pfl asks of it."""

    def loss(self, images, labels):
        """What a user's training makes smaller."""
        return functional.cross_entropy(self(images), labels)

    @torch.no_grad()
    def metrics(self, images, labels):
        """What central evaluation adds up."""
        from pfl.metrics import Weighted

        right = (self(images).argmax(dim=1) == labels).sum().item()
        return {"accuracy": Weighted(right, len(labels))}


def main() -> None:
    """Time the rounds that were asked for."""
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.internal.ops import pytorch_ops
    from pfl.model.pytorch import PyTorchModel

    options = task.arguments()
    torch.set_num_threads(1)
    data = task.load(options.data, options.device)
    network = Network()
    task.ready(network, data)
    model = PyTorchModel(
        model=network,
        local_optimizer_create=functools.partial(torch.optim.SGD, fused=True),
        central_optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
    )
    evaluation = NNEvalHyperParams(local_batch_size=task.TEST_BATCH)
    stamps, accuracies = [time.perf_counter()], []
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=options.warmup + options.rounds,
            evaluation_frequency=_NEVER,  # on users, that is; the first round does it all the same
            train_cohort_size=options.clients,
            val_cohort_size=0,
        ),
        backend=backend(options, data),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=task.EPOCHS, local_learning_rate=task.LEARNING_RATE, local_batch_size=task.BATCH
        ),
        model_eval_params=evaluation,
        callbacks=callbacks(data, evaluation, stamps, accuracies),
        send_metrics_to_platform=False,
    )
    if pytorch_ops.distributed.global_rank == 0:
        seconds = [after - before for before, after in itertools.pairwise(stamps)]
        task.answer(options, seconds, accuracies[-1], {"pfl": version("pfl"), "torch": torch.__version__})


def backend(options, data):
    """Where users train: all of them in each round, weighted by their samples."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import MinimizeReuseUserSampler

    @functools.cache
    def held(client):
        return PyTorchTensorDataset(data.of_client(client, options.samples), user_id=str(client))

    users = FederatedDataset(held, MinimizeReuseUserSampler(list(range(options.clients))))
    return SimulatedBackend(users, users, postprocessors=[WeightByDatapoints()])


def callbacks(data, evaluation, stamps, accuracies):
    """After each round: the test, then the time."""
    from pfl.callback.base import TrainingProcessCallback
    from pfl.callback.central_evaluation import CentralEvaluationCallback
    from pfl.data.pytorch import PyTorchTensorDataset

    class Stopwatch(TrainingProcessCallback):
        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):  # noqa: ARG002
            found = aggregate_metrics.to_simple_dict().get("Central val | accuracy")
            accuracies.append(found)
            stamps.append(time.perf_counter())
            return False, type(aggregate_metrics)()

    test = PyTorchTensorDataset((data.test_images, data.test_labels))
    return [CentralEvaluationCallback(test, model_eval_params=evaluation), Stopwatch()]


if __name__ == "__main__":
    main()
