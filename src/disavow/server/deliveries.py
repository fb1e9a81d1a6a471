"""Send what waits to be sent: webhooks signed with HMAC-SHA-256, callbacks of OpenDSR with the service's key.

    Disavow-Signature: t=SECONDS,v1=HEX      HMAC-SHA-256 of "SECONDS.BODY" under the webhook's secret

What is not answered with 2xx is tried again, later each time, and after the last try it is a dead letter: it stays
in the list until somebody has it tried again. What was sent may be sent twice, after a crash, and has the same id
then.
"""

from __future__ import annotations

import http.client
import ipaddress
import logging
import random
import socket
import sqlite3
import ssl
import threading
import time
from urllib.parse import urlsplit

from disavow.errors import BadRequest, DisavowError
from disavow.monitor.webhooks import signature
from disavow.server.metrics import DELIVERIES
from disavow.server.receipts import ReceiptSigner
from disavow.server.settings import ServerSettings
from disavow.server.state import State
from disavow.server.webhooks import check_url, secret_of

logger = logging.getLogger("disavow.server")

MOST_ATTEMPTS = 8
_FIRST_WAIT = 5.0
_LONGEST_WAIT = 6 * 3600.0
_ANSWER_SECONDS = 10.0
_AT_ONCE = 20


class Sender:
    """Sends deliveries from a thread of its own.

    Args:
        state: The service's database.
        signer: Signs callbacks.
        settings: Whether private addresses may be called, and how others reach this service.

    """

    def __init__(self, state: State, signer: ReceiptSigner, settings: ServerSettings) -> None:
        self._state, self._signer, self._settings = state, signer, settings
        self._stop, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="deliveries", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the delivery that is being sent."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(_ANSWER_SECONDS + 1)

    def wake(self) -> None:
        """Look now, and not in a second."""
        self._wake.set()

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                self.send_due(time.time())
            except DisavowError as error:
                logger.warning("deliveries: %s", error.code)
            self._wake.wait(1.0)
            self._wake.clear()

    def send_due(self, now: float) -> int:
        """Send what is due; how many were tried."""
        due = self._state.rows(
            "SELECT deliveries.*, webhooks.salt FROM deliveries LEFT JOIN webhooks ON webhooks.id = webhook "
            "WHERE next_at <= ? ORDER BY next_at LIMIT ?",
            (now, _AT_ONCE),
        )
        for row in due:
            if self._stop.is_set():
                break
            failure = self._send(row, now)
            self._note(row, failure, now)
        return len(due)

    def _send(self, row: sqlite3.Row, now: float) -> str | None:
        """Send one; why it failed, None where it was taken."""
        body = row["body"].encode()
        headers = {"Content-Type": "application/json", "Disavow-Delivery": str(row["id"]), "User-Agent": "disavow"}
        if row["webhook"] is not None:
            headers["Disavow-Signature"] = signature(secret_of(self._state, row["salt"]), body, int(now))
        else:
            headers |= callback_headers(self._signer, body, domain(self._settings))
        try:
            check_url(row["url"], private=self._settings.private_callbacks)
            status = post(row["url"], body, headers, private=self._settings.private_callbacks)
        except (OSError, http.client.HTTPException, BadRequest) as error:
            return type(error).__name__
        return None if 200 <= status < 300 else f"status {status}"  # noqa: PLR2004

    def _note(self, row: sqlite3.Row, failure: str | None, now: float) -> None:
        attempts = row["attempts"] + 1
        again = None if failure is None or attempts >= MOST_ATTEMPTS else now + wait_after(attempts)
        DELIVERIES.labels("delivered" if failure is None else "retried" if again else "dead").inc()
        with self._state.writing() as connection:
            connection.execute(
                "UPDATE deliveries SET attempts = ?, next_at = ?, delivered_at = ?, failure = ? WHERE id = ?",
                (attempts, again, now if failure is None else None, failure, row["id"]),
            )


def wait_after(attempts: int) -> float:
    """Seconds to wait after so many failed attempts: twice as long each time, and not all at once."""
    wait = min(_FIRST_WAIT * 2.0 ** (attempts - 1), _LONGEST_WAIT)
    return wait * random.uniform(0.8, 1.2)  # noqa: S311 - it only spreads the load


def domain(settings: ServerSettings) -> str:
    """Name the domain under which this service receives requests."""
    if settings.public_url is not None:
        return urlsplit(settings.public_url).hostname or "localhost"
    return settings.hosts[0] if settings.hosts else "localhost"


def callback_headers(signer: ReceiptSigner, body: bytes, name: str) -> dict[str, str]:
    """Sign a body as OpenDSR wants it, under its present name and its former one."""
    signed = signer.sign(body)
    return {
        "X-OpenDSR-Processor-Domain": name,
        "X-OpenDSR-Signature": signed,
        "X-OpenGDPR-Processor-Domain": name,
        "X-OpenGDPR-Signature": signed,
    }


def post(url: str, body: bytes, headers: dict[str, str], *, private: bool) -> int:
    """Send a body; the status of the answer. No redirect is followed, and no proxy asked.

    Args:
        url: Where to.
        body: What.
        headers: With which headers.
        private: Whether the address may be a private one.

    Raises:
        OSError: It cannot be reached, or its address is a private one.

    """
    parts = urlsplit(url)
    host, secure = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    # the address that was looked at is the one that is called: a name may lead elsewhere a moment later
    address = _address_of(host, port, private=private)
    connection = http.client.HTTPConnection(host, port, timeout=_ANSWER_SECONDS)
    sock = socket.create_connection((address, port), timeout=_ANSWER_SECONDS)
    try:
        if secure:
            sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
        connection.sock = sock
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        named = f"[{host}]" if ":" in host else host
        connection.request(
            "POST", path, body, {**headers, "Host": named if parts.port is None else f"{named}:{port}"}
        )
        return connection.getresponse().status
    finally:
        sock.close()


def _address_of(host: str, port: int, *, private: bool) -> str:
    found = [str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    if not private and not all(ipaddress.ip_address(each).is_global for each in found):
        raise OSError("a private address")
    return found[0]
