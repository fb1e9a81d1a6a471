"""Tracking: rounds, metrics, verdicts and costs written to TensorBoard, MLflow or a tracker of one's own."""

from __future__ import annotations

from disavow.tracking.follow import Follower, in_one_line
from disavow.tracking.tracker import Tracker, from_settings

__all__ = ["Follower", "Tracker", "from_settings", "in_one_line"]
