"""`disavow verifier`: the verify page as a file; needs nothing that an auditor has not."""

from __future__ import annotations

from pathlib import Path

from disavow.cli.output import print_json, results
from disavow.cli.written import refuse_other
from disavow.errors import ConfigError
from disavow.verifier.assemble import assemble


def verifier(output: Path, *, force: bool, as_json: bool) -> None:
    """Write the verify page."""
    page = assemble()
    try:
        if not refuse_other(output, page, force=force):
            output.write_bytes(page)
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {error.strerror}") from None
    if as_json:
        print_json({"page": str(output), "bytes": len(page)})
        return
    results().print(
        f"{output}: {len(page):,} bytes. Open it in a browser and drop in a proof and the server's public key; it "
        "needs no network, and has none."
    )
