"""Tasks: what a user brings to a federation. See `Task` and `task`."""

from __future__ import annotations

from disavow.tasks.factory import build
from disavow.tasks.task import Task, task

__all__ = ["Task", "build", "task"]
