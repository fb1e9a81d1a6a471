"""Which engine, and for the fast one which trainer: what the settings ask for, or what is fastest here."""

from __future__ import annotations

import logging

import torch

from disavow.config import EngineSettings
from disavow.engines.compiled import CompiledTrainer, NoKernels, NotAChain
from disavow.engines.sequential import SequentialEngine
from disavow.engines.trainer import Trainer, VectorisedEngine
from disavow.engines.workload import Workload
from disavow.errors import ConfigError
from disavow.rounds.local_training import Engine

_log = logging.getLogger(__name__)


def build(workload: Workload, settings: EngineSettings) -> Engine:
    """Build the engine that the settings ask for.

    Args:
        workload: Network, samples and training settings.
        settings: The section `engine` of the configuration.

    Returns:
        The engine, to be closed by the caller.

    Raises:
        ConfigError: The device or precision is not to be had here.
    """
    if settings.name == "sequential":
        return SequentialEngine(workload)
    return VectorisedEngine(workload, trainer_for(workload, settings))


def trainer_for(workload: Workload, settings: EngineSettings) -> Trainer:
    """Build the fastest trainer for this network on this device.

    On a GPU clients are stacked: by kernels of our own where they know all of the network, else by torch.func. On a
    CPU stacking is slower than training one client after the other: there the compiled kernels train chains, one
    thread a core, and worker processes train all others.

    Args:
        workload: Network, samples and training settings.
        settings: The section `engine` of the configuration.

    Returns:
        The trainer, to be closed by the caller.

    Raises:
        ConfigError: The device or precision is not to be had here.
    """
    device = device_of(settings)
    if device.type != "cpu":
        return _on_gpu(workload, settings, device)
    if settings.precision != "float32":
        raise ConfigError(f'engine.precision is "{settings.precision}"; allowed on a CPU: "float32"')
    if settings.compile == "auto":
        try:
            _refuse_attributes(workload)
            return CompiledTrainer(workload.network, _shape(workload))
        except NotAChain as reason:
            _log.info("no compiled kernels for %s: %s", type(workload.network).__name__, reason)
        except NoKernels as reason:
            _log.warning("no compiled kernels, so worker processes train: %s", reason)
    from disavow.engines.pool import PoolTrainer

    return PoolTrainer()


def _on_gpu(workload: Workload, settings: EngineSettings, device: torch.device) -> Trainer:
    if settings.compile == "auto" and settings.precision == "float32":
        from disavow.engines.fused import FusedTrainer, NotFusable

        try:
            return FusedTrainer(workload.network, _shape(workload), device)
        except (NotFusable, NotAChain, NoKernels) as reason:
            _log.info("no fused kernels for %s: %s", type(workload.network).__name__, reason)
    from disavow.engines.stacked import StackedTrainer

    return StackedTrainer(device, precision=settings.precision)


def device_of(settings: EngineSettings) -> torch.device:
    """Find the device that the settings ask for; `auto` is a GPU where there is one.

    Args:
        settings: The section `engine` of the configuration.

    Returns:
        The device.

    Raises:
        ConfigError: It is a GPU, and there is none.
    """
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError('engine.device is "cuda", but PyTorch sees no GPU here; allowed: "auto", "cpu"')
    wanted = settings.device != "cpu" and torch.cuda.is_available()
    return torch.device("cuda" if wanted else "cpu")


def _refuse_attributes(workload: Workload) -> None:
    if workload.task == "attributes":
        raise NotAChain("the kernels learn one class a sample, and these samples have attributes")


def _shape(workload: Workload) -> tuple[int, int, int]:
    if workload.images.dim() != 4:  # noqa: PLR2004 - a batch of channels, height and width
        raise NotAChain("the kernels know images alone, and these samples are none")
    channels, height, width = workload.images.shape[1:]
    return channels, height, width
