"""What a tracker does, and which ones settings ask for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from disavow.config import TrackingSettings


class Tracker(ABC):
    """Writes figures and notes of a federation somewhere. Subclass it to write to a service of your own.

    No client id is ever passed to a tracker: erasures are known to it by the numbers of their requests.

    Example::

        class Printed(disavow.Tracker):
            def log(self, figures, step):
                print(step, dict(figures))

            def note(self, name, text, step):
                print(step, name, text)

        federation.track(Printed())
    """

    def start(self, run: str, name: str, facts: Mapping[str, str]) -> None:  # noqa: B027 - may be left out
        """Begin to write about a run, or go on with what was written about it before.

        Args:
            run: The run's id, which never changes.
            name: What people call it: the name of its directory.
            facts: Its policy, by name.

        """

    @abstractmethod
    def log(self, figures: Mapping[str, float], step: int) -> None:
        """Write figures.

        Args:
            figures: By name, such as `metrics/auroc`, `round`, `clusters`, `spread` or `erasure/seconds`.
            step: How many rounds have been executed, superseded ones too; it never goes back.

        """

    @abstractmethod
    def note(self, name: str, text: str, step: int) -> None:
        """Write a line of text.

        Args:
            name: What it is about: `rollback`, or `request-` and a number.
            text: The line, such as "rollback to round 3".
            step: As for `log`.

        """

    def close(self) -> None:  # noqa: B027
        """Write what is still buffered, and let go."""


def from_settings(settings: TrackingSettings) -> list[Tracker]:
    """Make the trackers that settings name.

    Args:
        settings: The table `[tracking]`.

    Raises:
        MissingExtra: What one of them needs is not installed.

    """
    from disavow.tracking.mlflow import MLflow
    from disavow.tracking.tensorboard import TensorBoard

    trackers: list[Tracker] = []
    if settings.tensorboard is not None:
        trackers.append(TensorBoard(settings.tensorboard))
    if settings.mlflow is not None:
        trackers.append(MLflow(settings.mlflow, experiment=settings.experiment))
    return trackers
