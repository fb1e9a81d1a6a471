"""Write a folder of PEFT from the model of a run on Flower, which does not know the shape of its adapter.

The names of such a run's tensors are those that PEFT gives them, so that its model is PEFT's file as it stands. Its
SHA-256 is the digest that the run's proofs are about.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from disavow.adapters.base_model import HUB, base_digest, import_libraries, in_one_line, load_base
from disavow.errors import TaskError

PROVENANCE = "provenance.json"
"""Beside an adapter: which base it belongs to, and which model of a run it is."""

_WEIGHTS = "adapter_model.safetensors"


def write_peft_folder(
    folder: Path, weights: bytes, *, adapter_config: Path, model_digest: str, base: str | None = None
) -> None:
    """Write an adapter that `peft.PeftModel.from_pretrained` loads; nothing is written unless it fits its base.

    Args:
        folder: Is made.
        weights: The run's model as a safetensors file, kept byte for byte.
        adapter_config: The file `adapter_config.json` of PEFT that says what shape the adapter has.
        model_digest: The SHA-256 of the weights, as proofs name it.
        base: The folder of the base, or `hub:` and its name; by default what the file names.

    Raises:
        TaskError: The file describes no LoRA adapter, there is no such base, or the weights are not of this shape.

    """
    _, peft = import_libraries()
    config = _read_config(peft, adapter_config)
    name = base or str(config.base_model_name_or_path)
    network = load_base(name)
    digest = base_digest(network)
    _refuse_other_weights(peft, network, config, weights, adapter_config)
    config.base_model_name_or_path, config.inference_mode = name.removeprefix(HUB), True
    config.save_pretrained(folder)
    (folder / _WEIGHTS).write_bytes(weights)
    (folder / PROVENANCE).write_text(json.dumps({"base": digest, "model": model_digest}, indent=2) + "\n")


def _read_config(peft: Any, path: Path) -> Any:
    try:
        config = peft.PeftConfig.from_peft_type(**peft.PeftConfig.from_json_file(str(path)))
    except Exception as error:  # peft raises almost anything
        raise TaskError(f"{path} is no adapter_config.json of PEFT: {in_one_line(error)}") from None
    if not isinstance(config, peft.LoraConfig):
        raise TaskError(f"{path} describes an adapter of type {config.peft_type}; allowed: LORA")
    return config


def _refuse_other_weights(peft: Any, network: Any, config: Any, weights: bytes, path: Path) -> None:
    import safetensors.torch

    try:
        expected = peft.get_peft_model_state_dict(peft.get_peft_model(network, config))
    except ValueError as error:
        raise TaskError(f"{path} does not fit its base: {in_one_line(error)}") from None
    shapes = {name: tuple(tensor.shape) for name, tensor in expected.items()}
    found = {name: tuple(tensor.shape) for name, tensor in safetensors.torch.load(weights).items()}
    if found != shapes:
        differing = sorted(name for name in {*shapes, *found} if shapes.get(name) != found.get(name))
        raise TaskError(
            f"the run's model is not an adapter as {path} describes it: {len(differing)} tensors differ, the first "
            f"of them {differing[0]}; allowed: the file that its server app wrote"
        )
