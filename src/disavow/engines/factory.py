"""Which engine, and for the fast one which trainer: what the settings ask for, or what is fastest here."""

from __future__ import annotations

import logging

import torch

from disavow.config import EngineSettings
from disavow.domain import EngineChoice, Evaluation
from disavow.engines.compiled import CompiledTrainer, NoKernels, NotAChain
from disavow.engines.sequential import SequentialEngine
from disavow.engines.trainer import Trainer, VectorisedEngine
from disavow.engines.workload import Workload
from disavow.errors import ConfigError

_log = logging.getLogger(__name__)

NOT_COMPILED = 'engine.compile is "never"'

SEQUENTIAL = EngineChoice("sequential", (("others", 'engine.name is "sequential"'),))
"""The reference engine, where the settings ask for it."""


def build(workload: Workload, settings: EngineSettings) -> SequentialEngine[Evaluation] | VectorisedEngine:
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
        return SequentialEngine(workload, SEQUENTIAL)
    return VectorisedEngine(workload, *choose(workload, settings))


def trainer_for(workload: Workload, settings: EngineSettings) -> Trainer:
    """Build the fastest trainer for this network on this device.

    Args:
        workload: Network, samples and training settings.
        settings: The section `engine` of the configuration.

    Returns:
        The trainer of `choose`, to be closed by the caller.

    Raises:
        ConfigError: The device or precision is not to be had here.
    """
    return choose(workload, settings)[0]


def choose(workload: Workload, settings: EngineSettings) -> tuple[Trainer, EngineChoice]:
    """Build the fastest trainer for this network on this device, and say why no faster one would do.

    On a GPU clients are stacked: by kernels of our own where they know all of the network, else by torch.func. On a
    CPU stacking is slower than training one client after the other: there the compiled kernels train chains, one
    thread a core, and worker processes train all others.

    Args:
        workload: Network, samples and training settings.
        settings: The section `engine` of the configuration.

    Returns:
        The trainer, to be closed by the caller, and its name with the reasons.

    Raises:
        ConfigError: The device or precision is not to be had here.
    """
    device = device_of(settings)
    if device.type != "cpu":
        return _on_gpu(workload, settings, device)
    refuse_precision(settings)
    passed_over = [no_stack(settings)]
    try:
        if settings.compile != "auto":
            raise NotAChain(NOT_COMPILED)
        _refuse_attributes(workload)
        return CompiledTrainer(workload.network, _shape(workload)), EngineChoice("compiled", tuple(passed_over))
    except NotAChain as reason:
        _log.info("no compiled kernels for %s: %s", type(workload.network).__name__, reason)
        passed_over.insert(0, ("compiled", one_line(reason)))
    except NoKernels as reason:
        _log.warning("no compiled kernels, so worker processes train: %s", reason)
        passed_over.insert(0, ("compiled", one_line(reason)))
    from disavow.engines.pool import PoolTrainer

    return PoolTrainer(), EngineChoice("pool", tuple(passed_over))


def _on_gpu(workload: Workload, settings: EngineSettings, device: torch.device) -> tuple[Trainer, EngineChoice]:
    from disavow.engines.fused import FusedTrainer, NotFusable

    try:
        if settings.compile != "auto":
            raise NotFusable(NOT_COMPILED)
        if settings.precision != "float32":
            raise NotFusable(f"they compute in float32, not in {settings.precision}")
        return FusedTrainer(workload.network, _shape(workload), device), EngineChoice("fused")
    except (NotFusable, NotAChain, NoKernels) as reason:
        _log.info("no fused kernels for %s: %s", type(workload.network).__name__, reason)
        passed_over = (("fused", one_line(reason)),)
    from disavow.engines.stacked import StackedTrainer

    return StackedTrainer(device, precision=settings.precision), EngineChoice("stacked", passed_over)


def no_stack(settings: EngineSettings) -> tuple[str, str]:
    """Say why clients are not stacked where a CPU trains."""
    chosen = settings.device == "cpu" and torch.cuda.is_available()
    return "stacked", 'engine.device is "cpu"' if chosen else "no GPU"


def one_line(reason: Exception) -> str:
    """Give the first line of an error, as part of a sentence."""
    lines = str(reason).strip().splitlines()
    return lines[0].rstrip(".;:") if lines else type(reason).__name__


def refuse_precision(settings: EngineSettings) -> None:
    """Refuse products of matrices that a CPU does not have."""
    if settings.precision != "float32":
        raise ConfigError(f'engine.precision is "{settings.precision}"; allowed on a CPU: "float32"')


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
