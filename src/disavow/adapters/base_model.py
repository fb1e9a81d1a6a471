"""The frozen base: a causal language model and its tokenizer, from a folder."""

from __future__ import annotations

import hashlib
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from disavow.errors import TaskError, how_to_install

HUB = "hub:"
"""Before the name of a model of the Hugging Face hub: without it nothing is ever downloaded."""


def import_libraries() -> tuple[Any, Any]:
    """Import transformers and peft.

    Returns:
        Both modules.

    Raises:
        TaskError: One of them is not installed.

    """
    try:
        import peft
        import transformers
    except ImportError as error:
        raise TaskError(f"adapters need {error.name or error}: {how_to_install('llm')}") from None
    # what is shown of a run's progress is shown by its commands
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    # peft asks transformers for a name that is about to change, which is theirs to settle
    warnings.filterwarnings("ignore", message="`is_gradient_checkpointing`", category=FutureWarning)
    # of GPT-2, whose matrices lie the other way round: it sets what it warns of
    warnings.filterwarnings("ignore", message="fan_in_fan_out is set to False", category=UserWarning)
    return transformers, peft


def load_tokenizer(model: str) -> Any:
    """Load the tokenizer of a model.

    Args:
        model: Its folder, or `hub:` and its name.

    Raises:
        TaskError: There is none, or it cannot be read.

    """
    transformers, _ = import_libraries()
    name, offline = _place(model)
    try:
        return transformers.AutoTokenizer.from_pretrained(name, local_files_only=offline)
    except Exception as error:  # transformers raises almost anything
        raise TaskError(
            f"there is no tokenizer to be read in {model}: {in_one_line(error)}; allowed: a folder into which the "
            "tokenizer of the model was saved, too (tokenizer.json)"
        ) from None


def load_base(model: str) -> nn.Module:
    """Load a causal language model in float32.

    Args:
        model: Its folder in the layout of Hugging Face, or `hub:` and its name.

    Raises:
        TaskError: It is no such folder, or its weights cannot be read.

    """
    transformers, _ = import_libraries()
    name, offline = _place(model)
    try:
        # eager attention is plain products of matrices, which clients can be stacked in
        base: nn.Module = transformers.AutoModelForCausalLM.from_pretrained(
            name, dtype=torch.float32, attn_implementation="eager", local_files_only=offline
        )
    except Exception as error:  # transformers raises almost anything
        raise TaskError(
            f"there is no causal language model to be read in {model}: {in_one_line(error)}; allowed: a folder "
            "into which one was saved by transformers (config.json, model.safetensors)"
        ) from None
    return base


def _place(model: str) -> tuple[str, bool]:
    """What transformers is to look for, and whether only on this machine."""
    if model.startswith(HUB):
        return model.removeprefix(HUB), False
    folder = Path(model)
    if not (folder / "config.json").is_file():
        raise TaskError(
            f"{model} is no model: no config.json in it; allowed: a folder in the layout of Hugging Face, or "
            "hub:NAME to download one"
        )
    return str(folder), True


def refuse_other_tokenizer(base: nn.Module, tokens: Sequence[Tensor], model: str) -> None:
    """Refuse tokens that the model has no embedding of.

    Args:
        base: The model.
        tokens: All texts.
        model: What it is called, for errors.

    Raises:
        TaskError: The tokenizer is of another model.

    """
    rows = base.get_input_embeddings().num_embeddings  # type: ignore[operator]
    largest = max(int(each.max()) for each in tokens)
    if largest >= rows:
        raise TaskError(
            f"the tokenizer of {model} does not fit its model: it gives the token {largest}, and the model knows "
            f"{rows}; allowed: the tokenizer that the model was trained with"
        )


def refuse_long_texts(base: nn.Module, length: int, model: str) -> None:
    """Refuse texts that are longer than the model's table of positions, as GPT-2 has one.

    Rotary positions have none, and go on.

    Args:
        base: The model.
        length: Tokens of the longest text.
        model: What it is called, for errors.

    Raises:
        TaskError: The model has no position for the last token.

    """
    positions = getattr(base.config.get_text_config(), "max_position_embeddings", None)  # type: ignore[operator,union-attr]
    if not isinstance(positions, int) or length <= positions:
        return
    tables = {each for each in base.modules() if isinstance(each, nn.Embedding)} - {base.get_input_embeddings()}  # type: ignore[operator]
    # some have two rows more
    if any(positions <= each.num_embeddings <= positions + 2 for each in tables):
        raise TaskError(
            f"a text has {length} tokens, and {model} knows {positions} positions; allowed: shorter texts, or "
            f"task.options.length = {positions}, which cuts longer responses"
        )


def base_digest(base: nn.Module) -> str:
    """Compute the SHA-256 of a base model's parameters, so that an adapter can say what it belongs to.

    Args:
        base: The model, without an adapter.

    Returns:
        In hexadecimal.

    """
    found = hashlib.sha256(b"disavow/base/v1\x00")
    for name, tensor in sorted(base.state_dict().items()):
        found.update(f"{len(name)} {name} {tensor.dtype} {tuple(tensor.shape)}\x00".encode())
        found.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return found.hexdigest()


def in_one_line(error: Exception) -> str:
    """Say in one line what a library raised.

    Args:
        error: The exception.

    """
    return textwrap.shorten(str(error), 240, placeholder=" ...").rstrip(".:; ") or type(error).__name__
