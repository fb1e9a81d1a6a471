"""What was forecast for a request when somebody last saw it, kept to compare with what it came to.

A forecast names no client: verdict, rounds, cost. It is kept by the id of the run, because names of runs are given
anew.
"""

from __future__ import annotations

import json
from typing import Any

from disavow.server.state import State


def keep(state: State, run_id: str, number: int, forecast: dict[str, Any], *, now: float) -> None:
    """Keep the forecast that somebody filed or approved a request by.

    Args:
        state: The service's database.
        run_id: The id of the run.
        number: The request.
        forecast: As `views.forecast` shows it.
        now: Seconds since 1970.

    """
    with state.writing() as connection:
        connection.execute(
            "INSERT OR REPLACE INTO forecasts VALUES (?, ?, ?, ?)", (run_id, number, json.dumps(forecast), now)
        )


def kept(state: State, run_id: str, number: int) -> dict[str, Any] | None:
    """Give the forecast that a request was filed or approved by; None where nobody saw one here."""
    row = state.row("SELECT forecast FROM forecasts WHERE run = ? AND number = ?", (run_id, number))
    forecast: dict[str, Any] | None = None if row is None else json.loads(row["forecast"])
    return forecast
