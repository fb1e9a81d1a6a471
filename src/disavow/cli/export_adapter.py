"""`disavow export-adapter`."""

from __future__ import annotations

import shutil
from pathlib import Path

from disavow.adapters.export import write_peft_folder
from disavow.adapters.task import save_adapter
from disavow.cli.output import print_json, results
from disavow.errors import ConfigError, DisavowError
from disavow.federation import Federation


def export_adapter(
    directory: Path,
    output: Path,
    *,
    adapter_config: Path | None,
    base: str | None,
    to: str | None,
    as_json: bool,
) -> None:
    """Write the adapter that a run serves as a folder of PEFT.

    Args:
        directory: The run.
        output: The folder; it must not exist, or be empty.
        adapter_config: Describes the adapter of a run on Flower, which does not know it.
        base: The base of such a run, where the description names another.
        to: Who receives it, for `disavow releases`.
        as_json: Print JSON.

    Raises:
        ConfigError: The folder holds something, or the run needs a description, or needs none.
        TaskError: The run trains no adapter.
        TextNamesClient: The name of who receives it contains the id of a client.

    """
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(f"{output} exists and is never overwritten; name another folder")
    with Federation.open(directory) as federation:
        on_flower = federation.ledger.trainer.kind == "flower"
        _refuse_description(directory, on_flower, adapter_config, base)
        exported = federation.export()
        digest = exported.digest
        if adapter_config is not None:
            write_peft_folder(output, exported.data, adapter_config=adapter_config, model_digest=digest, base=base)
        else:
            save_adapter(federation.model(), output, model_digest=digest)
        release = None if to is None else _note_release(federation, output, to)
    if as_json:
        print_json({"run": str(directory), "model": digest, "folder": str(output), "release": release})
        return
    results().print(f"adapter of model {digest} written to {output}")
    if release is not None:
        results().print(f"release {release}: `disavow releases {directory}` says when it is superseded")


def _note_release(federation: Federation, output: Path, to: str) -> int | None:
    """Record who receives the adapter. One that cannot be recorded is not given out."""
    try:
        return federation.export(to=to).release
    except DisavowError:
        shutil.rmtree(output)
        raise


def _refuse_description(directory: Path, on_flower: bool, adapter_config: Path | None, base: str | None) -> None:
    """A run of the task `adapters` describes its adapter itself; one on Flower knows arrays alone."""
    if on_flower and adapter_config is None:
        raise ConfigError(
            f"{directory} was trained on Flower nodes and does not know the shape of its adapter; name PEFT's file "
            "that describes it: --adapter-config adapter_config.json"
        )
    if not on_flower and (adapter_config is not None or base is not None):
        raise ConfigError(f"{directory} knows its adapter and its base; --adapter-config and --base are for Flower")
