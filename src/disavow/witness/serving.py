"""A witness over HTTP: add-checkpoint, and who it is."""

from __future__ import annotations

import json
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from disavow.errors import ConfigError
from disavow.witness.answers import LARGEST_REQUEST, Answer, Witness

_logger = logging.getLogger("disavow.witness")

_MOST_CONNECTIONS = 100
_IDLE_SECONDS = 30


class _Server(ThreadingHTTPServer):
    """Serves so many connections at a time; what comes beyond is closed at once."""

    def __init__(self, address: tuple[str, int], witness: Witness) -> None:
        self.witness = witness
        self._room = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, if there is room."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell of what went wrong; a connection that was lost is nothing to tell."""
        del request, client_address
        error = sys.exception()
        if not isinstance(error, OSError):
            _logger.error("a request could not be answered", exc_info=error)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "disavow-witness"
    sys_version = ""
    timeout = _IDLE_SECONDS
    disable_nagle_algorithm = True
    wbufsize = -1  # an answer leaves in one piece

    def do_GET(self) -> None:
        """Say who this is."""
        witness = self.server.witness
        about = {
            "what": "a witness of transparency logs (C2SP tlog-witness, cosignature/v1)",
            "key": str(witness.signer.public),
            "logs": [log.origin for log in witness.logs],
        }
        if self.path == "/healthz":
            self._send(Answer(HTTPStatus.OK, json.dumps(about) + "\n", "application/json"))
        elif self.path == "/":
            text = f"{about['what']}\n{about['key']}\n"
            self._send(Answer(HTTPStatus.OK, text))
        else:
            self._send(Answer(HTTPStatus.NOT_FOUND, "there is nothing here\n"))

    def do_POST(self) -> None:
        """Answer add-checkpoint."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self._send(Answer(HTTPStatus.LENGTH_REQUIRED, "a request says how long it is\n"), close=True)
        elif int(length[:20]) > LARGEST_REQUEST:
            self._send(Answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the request is too large\n"), close=True)
        elif self.path != "/add-checkpoint":
            self._send(Answer(HTTPStatus.NOT_FOUND, "there is nothing here\n"), close=True)
        else:
            body = self.rfile.read(int(length))
            if len(body) == int(length):  # otherwise whoever asked has gone
                self._send(self.server.witness.add_checkpoint(body))

    def _send(self, answer: Answer, *, close: bool = False) -> None:
        data = answer.body.encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        if close:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: what the witness decides is logged where it is decided."""


def listen(witness: Witness, *, host: str, port: int) -> tuple[ThreadingHTTPServer, str]:
    """Open the port; the server, which is yet to serve, and its URL.

    Args:
        witness: What answers.
        host: The address to listen at.
        port: The port; 0 for any that is free.

    Raises:
        ConfigError: The address cannot be used.

    """
    try:
        server = _Server((host, port), witness)
    except OSError as error:
        raise ConfigError(f"--host {host} --port {port} cannot be used: {error.strerror or error}") from None
    shown = f"[{host}]" if ":" in host else host
    return server, f"http://{shown}:{server.server_address[1]}"


def serve(witness: Witness, *, host: str, port: int, on_start: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        witness: What answers.
        host: The address to listen at.
        port: The port; 0 for any that is free.
        on_start: Told the URL once the port is open.

    Raises:
        ConfigError: The address cannot be used.

    """
    server, url = listen(witness, host=host, port=port)

    def stop(number: int, frame: object) -> None:
        del number, frame
        threading.Thread(target=server.shutdown).start()  # which waits for the loop that this interrupts

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        on_start(url)
        server.serve_forever(poll_interval=0.2)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        server.server_close()
