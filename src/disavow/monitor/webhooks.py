"""Send an alarm to a URL, signed as the webhooks of the service are, and again until it is taken."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from urllib.parse import urlsplit

from disavow.errors import ConfigError
from disavow.monitor.sources import NoRedirects

_SECONDS = 10.0
_ATTEMPTS = 5


def signature(secret: str, body: bytes, at: int) -> str:
    """Sign what a webhook sends.

    Args:
        secret: The webhook's.
        body: What is sent.
        at: Seconds since 1970.

    """
    mac = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256)
    return f"t={at},v1={mac.hexdigest()}"


def check_webhook(url: str) -> None:
    """Refuse what is no URL of a webhook.

    Args:
        url: The URL.

    Raises:
        ConfigError: It is none.

    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"--webhook is {url}; allowed: a URL that begins with https:// or http://")


def send(
    url: str,
    body: bytes,
    *,
    secret: str | None = None,
    attempts: int = _ATTEMPTS,
    sleep: Callable[[float], None] = time.sleep,
) -> str | None:
    """Post a body, again after 1, 2, 4 … seconds where it is not taken.

    Args:
        url: Where to.
        body: JSON.
        secret: What it is signed with, in the header Disavow-Signature; None leaves it unsigned.
        attempts: How often to try.
        sleep: Waits.

    Returns:
        Why the last attempt failed; None where it was taken.

    """
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "disavow",
        "Disavow-Delivery": secrets.token_hex(16),
    }
    opener = urllib.request.build_opener(NoRedirects)
    failure: str | None = None
    for attempt in range(attempts):
        if attempt:
            sleep(2.0 ** (attempt - 1))
        if secret is not None:
            headers["Disavow-Signature"] = signature(secret, body, int(time.time()))
        request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310 - checked by check_webhook
        try:
            with opener.open(request, timeout=_SECONDS):
                return None
        except urllib.error.HTTPError as error:
            error.close()
            failure = f"status {error.code}"
        except (OSError, HTTPException) as error:
            failure = str(getattr(error, "reason", None) or error)
    return failure
