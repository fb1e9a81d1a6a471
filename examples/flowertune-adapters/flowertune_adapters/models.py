"""The frozen base, the adapter over it, and how fast it learns."""

import math
from pathlib import Path

from disavow.adapters.base_model import HUB, import_libraries, load_base, load_tokenizer
from disavow.errors import TaskError


def base_name(config):
    """The folder of the base, or what is to be downloaded."""
    name = config["name"]
    if name.startswith(HUB):
        return name
    folder = Path(name).expanduser()
    if not folder.is_absolute() or not folder.is_dir():
        raise TaskError(
            f"model.name: there is no folder {name} on this machine; allowed: an absolute path, such as one that "
            "`python make_base.py ~/models/flowertune-tiny` has made, or hub:NAME to download a base"
        )
    return str(folder)


def get_tokenizer(config):
    """The tokenizer of the base."""
    return load_tokenizer(base_name(config))


def get_model(config):
    """The base with a new adapter; only the adapter is trained."""
    _, peft = import_libraries()
    base = load_base(base_name(config))
    lora = peft.LoraConfig(
        r=config["lora"]["peft-lora-r"],
        lora_alpha=config["lora"]["peft-lora-alpha"],
        target_modules=config["lora"]["target-modules"].split(","),
        task_type="CAUSAL_LM",
    )
    return peft.get_peft_model(base, lora)


def get_adapter(model):
    """The adapter's matrices, which are all that is sent."""
    _, peft = import_libraries()
    return peft.get_peft_model_state_dict(model)


def set_adapter(model, matrices):
    """Put matrices that were received into the adapter."""
    _, peft = import_libraries()
    peft.set_peft_model_state_dict(model, matrices)


def learning_rate(config, server_round):
    """The learning rate of a round: a cosine, and the same whenever the round is trained."""
    highest, lowest = config["learning-rate-max"], config["learning-rate-min"]
    done = min(1.0, (server_round - 1) / config["annealing-rounds"])
    return lowest + (highest - lowest) * (1 + math.cos(math.pi * done)) / 2
