"""`disavow export-adapter`."""

from __future__ import annotations

from pathlib import Path

from disavow.adapters.task import save_adapter
from disavow.cli.output import print_json, results
from disavow.errors import ConfigError
from disavow.federation import Federation


def export_adapter(directory: Path, output: Path, *, as_json: bool) -> None:
    """Write the adapter that a run serves as a folder of PEFT.

    Args:
        directory: The run.
        output: The folder; it must not exist, or be empty.
        as_json: Print JSON.

    Raises:
        ConfigError: The folder holds something.
        TaskError: The run trains no adapter.

    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(f"{output} exists and is never overwritten; name another folder")
    with Federation.open(directory) as federation:
        digest = federation.export().digest
        save_adapter(federation.model(), output, model_digest=digest)
    if as_json:
        print_json({"run": str(directory), "model": digest, "folder": str(output)})
    else:
        results().print(f"adapter of model {digest} written to {output}")
