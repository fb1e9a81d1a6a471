"""Print a document to PDF with a Chromium that is at hand; it gets a fresh profile, no network and little time."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from disavow.proof.keys import child_environment

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""What it is called on PATH, the first that is found."""

LONGEST_SECONDS = 60.0

_OPTIONS = (
    "--headless",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # whatever it would ask the network for, it finds nobody
    "--no-pdf-header-footer",  # they would show where the file lay
)


@dataclass(frozen=True)
class Printed:
    """A PDF, or why there is none.

    Args:
        data: The file; None where there is none.
        reason: Why there is none, in words; "" where there is one.

    """

    data: bytes | None
    reason: str = ""


def print_pdf(document: bytes, *, seconds: float = LONGEST_SECONDS) -> Printed:
    """Print an HTML document.

    Args:
        document: The page.
        seconds: How long it may take.

    Returns:
        The PDF, or why there is none: nothing depends on it.

    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        return Printed(None, "there is no Chromium on PATH")
    with tempfile.TemporaryDirectory(prefix="disavow-pdf-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        page, printed = folder / "evidence.html", folder / "evidence.pdf"
        page.write_bytes(document)
        ended = _run(
            [
                browser,
                *_OPTIONS,
                *(["--no-sandbox"] if os.geteuid() == 0 else []),  # Chromium has none for root
                f"--user-data-dir={folder / 'profile'}",
                f"--print-to-pdf={printed}",
                page.as_uri(),
            ],
            folder,
            seconds,
        )
        if ended is None:
            return Printed(None, f"{Path(browser).name} took more than {seconds:.0f} s")
        if ended or not printed.is_file():
            return Printed(None, f"{Path(browser).name} ended with {ended} and printed nothing")
        return Printed(printed.read_bytes())


def _run(command: list[str], home: Path, seconds: float) -> int | None:
    """Run a program without our keys and at most so long; its exit code, or None where it took longer."""
    with subprocess.Popen(  # noqa: S603 - a browser from PATH, and a page of our own
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=child_environment({"HOME": str(home)}),
        start_new_session=True,
    ) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # and all that it has started
            return None
