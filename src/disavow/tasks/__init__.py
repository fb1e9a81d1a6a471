"""Tasks: what a user brings to a federation. See `Task` and `task`; `image_task` for the built-in images."""

from __future__ import annotations

from disavow.tasks.factory import build
from disavow.tasks.images import ImageTask, image_task
from disavow.tasks.task import Task, task

__all__ = ["ImageTask", "Task", "build", "image_task", "task"]
