"""The command line: parse, call, print. Heavy imports stay inside commands."""

from __future__ import annotations

import sys

from disavow.errors import DisavowError


def main() -> None:
    """Run `disavow`. Every refusal is one line on stderr and an exit code of its own; see `errors`."""
    from disavow.cli.app import app

    try:
        app()
    except DisavowError as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone; there is nobody to tell
        sys.exit(1)
