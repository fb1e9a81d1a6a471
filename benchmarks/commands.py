"""CPU seconds of the commands that only read a run or answer without training.

    python -m benchmarks.commands

A run of 20 clients and 20 rounds on the embedded digits; each command in a process of its own, user and system time
together, the least of five: a machine that does other work adds to all of them. Imports take most of it; the first
line, of importing the libraries alone, says how much, and how fast the machine is.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from disavow.config import Settings
from disavow.federation import Federation
from disavow.ledger.rows import time_to_text
from disavow.proof.keys import child_environment, generate
from disavow.rounds.options import now

REPEATS = 5
LEAVER = "client-07"
LIBRARIES = "import sqlalchemy, pydantic, typer"
COMMANDS = {
    "status": ["status", "RUN"],
    "requests": ["requests", "RUN"],
    "clients": ["clients", "RUN"],
    "dry run": ["erase", "RUN", LEAVER, "--dry-run"],
    "deniable erase": ["erase", "RUN", LEAVER],
    "fsck": ["fsck", "RUN"],
    "export": ["export", "RUN", "--output", "OUT"],
    "receipt": ["receipt", "RUN", LEAVER, "--output", "OUT"],
}


def cpu_seconds(arguments: list[str], keys: Path) -> float:
    """Run one command.

    Args:
        arguments: What the command line says after `python`.
        keys: The folder of the operator's keys.

    Returns:
        Seconds of user and system time that it took.

    """
    # compiled files are written, as an installer does: to compile the sources is no part of a command
    environment = {name: value for name, value in child_environment().items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env={**environment, "DISAVOW_KEYS": str(keys)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    if code := os.waitstatus_to_exitcode(status):
        raise RuntimeError(f"python {' '.join(arguments)} ended with {code}")
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print one line of JSON for each command."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        original = folder / "original"
        generate(original / "keys", name="benchmarks", passphrase=None, at=time_to_text(now()))
        with Federation.create(original / "run", Settings(), keys=original / "keys") as federation:
            federation.train()
        libraries = min(cpu_seconds(["-c", LIBRARIES], original / "keys") for _ in range(REPEATS))
        print(json.dumps({"command": "libraries alone", "cpu_seconds": round(libraries, 3)}), flush=True)
        for name, arguments in COMMANDS.items():
            seconds = []
            for repeat in range(REPEATS):
                copied = shutil.copytree(original, folder / f"{name}-{repeat}")
                paths = {"RUN": str(copied / "run"), "OUT": str(copied / "out")}
                command = ["-m", "disavow", *(paths.get(each, each) for each in arguments)]
                seconds.append(cpu_seconds(command, copied / "keys"))
            print(json.dumps({"command": name, "cpu_seconds": round(min(seconds), 3)}), flush=True)


if __name__ == "__main__":
    main()
