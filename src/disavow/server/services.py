"""What the routes of an application share: its settings, its database, its runs, and what files requests."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastapi import Request

from disavow.server.filing import Filing
from disavow.server.forecasting import Forecasting
from disavow.server.open_runs import OpenRuns
from disavow.server.protection import Rates
from disavow.server.receipts import ReceiptSigner
from disavow.server.settings import ServerSettings
from disavow.server.state import State


@dataclass(frozen=True, eq=False)
class Services:
    """What the routes of an application share.

    Args:
        settings: What the service was started with.
        state: Its own database.
        runs: The runs that it serves.
        filing: Places requests.
        signer: Signs receipts of OpenDSR and callbacks.
        failures: Counts failed log-ins by address.
        forecasting: Makes forecasts for pages.

    """

    settings: ServerSettings
    state: State
    runs: OpenRuns
    filing: Filing
    signer: ReceiptSigner
    failures: Rates
    forecasting: Forecasting = field(default_factory=Forecasting)

    def close(self) -> None:
        """Let go of all of it."""
        self.filing.close()
        self.forecasting.close()
        self.runs.close()
        self.state.close()


def services_of(request: Request) -> Services:
    """Give what the application of a request has."""
    services: Services = request.app.state.services
    return services
