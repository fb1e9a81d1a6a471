"""The built-in task `adapters`: LoRA matrices of a causal language model, trained on each client's own text."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import AdamW, Optimizer

from disavow.adapters.base_model import (
    HUB,
    base_digest,
    import_libraries,
    in_one_line,
    load_base,
    load_tokenizer,
    refuse_long_texts,
    refuse_other_tokenizer,
)
from disavow.adapters.export import PROVENANCE
from disavow.adapters.options import MODULES, LoraOptions, refuse_options
from disavow.adapters.texts import (
    IGNORED,
    Example,
    Template,
    TextSamples,
    Tokens,
    collate,
    encode,
    read_examples,
    to_tensors,
    without_padding,
)
from disavow.errors import TaskError
from disavow.tasks.task import Task, outputs_and_targets


class AdapterNetwork(nn.Module):
    """A causal language model with an adapter, from tokens to logits."""

    def __init__(self, peft_model: nn.Module) -> None:
        """Wrap a model.

        Args:
            peft_model: A `peft.PeftModel`.

        """
        super().__init__()
        self.peft_model = peft_model

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute logits.

        Args:
            tokens: One row a text.

        Returns:
            For each position of each text, a number for each token that may come next.

        """
        logits: Tensor = self.peft_model(input_ids=tokens, use_cache=False).logits
        return logits


class AdapterTask(Task):
    """Text of clients, and an adapter over one frozen base that all of them train.

    The vector of a round holds the adapter alone, so that a federation over a language model costs what its adapter
    costs. The loss counts the tokens of responses.
    """

    collate = staticmethod(collate)

    def __init__(
        self,
        *,
        model: str,
        data: str,
        test: str | None = None,
        rank: int = 8,
        alpha: float = 16.0,
        modules: Sequence[str] = MODULES,
        freeze_a: bool = False,
        length: int | None = None,
        adapter: str | None = None,
        before: str = Template.before,
        between: str = Template.between,
    ) -> None:
        """Describe the federation; nothing is read before it is needed.

        Args:
            model: The folder of the base, in the layout of Hugging Face; or `hub:` and the name of one to download.
            data: JSON lines with client, prompt and response.
            test: The same of held-out questions; whose they are plays no part.
            rank: Of the adapter's matrices.
            alpha: Scales them, with the rank.
            modules: The projections that get an adapter.
            freeze_a: Train the B matrices alone.
            length: Tokens of a text at most; by default those of the longest.
            adapter: The folder of an adapter to start from, which has a shape of its own: rank, alpha and modules
                play no part; by default a new one, whose B is zero.
            before: Text before a prompt.
            between: Text between prompt and response.

        Raises:
            TaskError: An option cannot be what it is.

        """
        refuse_options(locals())
        self._model = model if model.startswith(HUB) else str(Path(model).expanduser().absolute())
        self._adapter = None if adapter is None else Path(adapter).expanduser().absolute()
        self._data = Path(data).expanduser().absolute()
        self._test = None if test is None else Path(test).expanduser().absolute()
        self._length = length
        self._lora = LoraOptions(rank, alpha, tuple(modules), freeze_a)
        self._template = Template(before, between)
        self.kept_options = {
            "model": self._model,
            "data": str(self._data),
            "rank": rank,
            "alpha": alpha,
            "modules": list(modules),
            "freeze_a": freeze_a,
            "before": before,
            "between": between,
            **({} if self._test is None else {"test": str(self._test)}),
            **({} if length is None else {"length": length}),
            **({} if self._adapter is None else {"adapter": str(self._adapter)}),
        }

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer of the base."""
        return load_tokenizer(self._model)

    @cached_property
    def template(self) -> Template:
        """How examples are written."""
        return self._template

    @cached_property
    def examples(self) -> tuple[Example, ...]:
        """All examples of the clients."""
        return read_examples(self._data)

    @cached_property
    def _encoded(self) -> dict[str, list[Tokens]]:
        found: dict[str, list[Tokens]] = {}
        for example, tokens in zip(
            self.examples, encode(self.tokenizer, self.examples, self._template), strict=True
        ):
            found.setdefault(example.client, []).append(tokens)
        return found

    @cached_property
    def length(self) -> int:
        """Tokens of a text."""
        longest = max(len(prompt) + len(response) for each in self._encoded.values() for prompt, response in each)
        return longest if self._length is None else min(self._length, longest)

    def model(self) -> nn.Module:
        """See `Task`."""
        _, peft = import_libraries()
        base = load_base(self._model)
        texts = [each.tensors[0] for each in self._tensors.values()]
        if self._test_tensors is not None:
            texts.append(self._test_tensors[0])
        refuse_other_tokenizer(base, texts, self._model)
        refuse_long_texts(base, max(each.shape[1] for each in texts), self._model)
        digest = base_digest(base)
        lora = self._lora
        if self._adapter is not None:
            made = load_adapter(base, self._adapter, digest)
        else:
            config = peft.LoraConfig(
                r=lora.rank,
                lora_alpha=lora.alpha,
                target_modules=list(lora.modules),
                lora_dropout=0.0,
                bias="none",
                task_type="CAUSAL_LM",
            )
            try:
                made = peft.get_peft_model(base, config)
            except ValueError as error:
                raise TaskError(
                    f"{self._model} has no projections called {', '.join(lora.modules)}: {in_one_line(error)}; "
                    "name its own by task.options.modules"
                ) from None
        if lora.freeze_a:
            for name, parameter in made.named_parameters():
                if "lora_A" in name:
                    parameter.requires_grad = False
        return AdapterNetwork(made)

    def clients(self) -> Mapping[str, Any]:
        """See `Task`."""
        return self._tensors

    @cached_property
    def _tensors(self) -> dict[str, TextSamples]:
        return {
            client: TextSamples(to_tensors(each, self.length, client)) for client, each in self._encoded.items()
        }

    def test_data(self) -> Any | None:
        """See `Task`."""
        return self._test_tensors

    @cached_property
    def _test_tensors(self) -> tuple[Tensor, Tensor] | None:
        """As long as the longest of them, or as `length` says: how long a client's text is plays no part."""
        if self._test is None:
            return None
        encoded = list(encode(self.tokenizer, read_examples(self._test), self._template))
        longest = max(len(prompt) + len(response) for prompt, response in encoded)
        if self._length is not None:
            longest = min(longest, max(self._length, max(len(prompt) for prompt, _ in encoded) + 1))
        return to_tensors(encoded, longest, "the test data")

    @cached_property
    def _records(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for example in self.examples:
            found.setdefault(example.client, []).append(example.record)
        return found

    def record_keys(self, client: str) -> Sequence[str] | None:
        """See `Task`: by default the prompt names an example."""
        return self._records[client]

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Compute the mean cross entropy of the tokens of responses; see `Task`."""
        logits, labels = outputs_and_targets(model, without_padding(*batch))
        return response_loss(logits, labels)

    def log_likelihoods(self, model: nn.Module, batch: Any) -> Tensor:
        """Compute the log-likelihood of each response: the sum over its tokens, for a response is one outcome."""
        logits, labels = outputs_and_targets(model, batch)
        shifted, wanted = logits[:, :-1].flatten(0, 1), labels[:, 1:]
        losses = functional.cross_entropy(shifted, wanted.flatten(), ignore_index=IGNORED, reduction="none")
        return -losses.reshape(wanted.shape).sum(1)

    def answers(self, model: nn.Module, batch: Any) -> Tensor:
        """Give the likeliest token at each position of the responses, given all before it; see `Task`."""
        found = []
        for tokens, labels in zip(*(each.split(_EVALUATED) for each in batch), strict=True):
            found.append(model(tokens)[:, :-1].argmax(-1)[labels[:, 1:] != IGNORED])
        return torch.cat(found)

    def optimizer(self, model: nn.Module) -> Optimizer:
        """Use AdamW at the settings' learning rate and weight decay; see `Task`."""
        training = self.training
        parameters = [each for each in model.parameters() if each.requires_grad]
        return AdamW(parameters, lr=training.learning_rate, weight_decay=training.weight_decay)

    def evaluate(self, model: nn.Module, data: Any) -> Mapping[str, float]:
        """Measure the loss of held-out responses and the share of their tokens that are foreseen; see `Task`."""
        device = next(model.parameters()).device
        loss = right = count = 0.0
        tokens, labels = data
        for start in range(0, len(tokens), _EVALUATED):
            some, wanted = without_padding(tokens[start : start + _EVALUATED], labels[start : start + _EVALUATED])
            logits, wanted = model(some.to(device)), wanted.to(device)
            counted = wanted[:, 1:] != IGNORED
            number = float(counted.sum())
            loss += number * float(response_loss(logits, wanted))
            right += float((logits[:, :-1].argmax(-1) == wanted[:, 1:])[counted].sum())
            count += number
        return {"loss": loss / max(1.0, count), "token_accuracy": right / max(1.0, count)}


_EVALUATED = 32
"""Texts that are evaluated at once: their logits are as many as tokens times vocabulary."""


def response_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Compute the mean cross entropy of the tokens that count.

    Args:
        logits: For each position, of the token that comes next.
        labels: The tokens; `IGNORED` where none counts.

    Returns:
        A scalar.

    """
    shifted, wanted = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    total = functional.cross_entropy(shifted, wanted, ignore_index=IGNORED, reduction="sum")
    return total / (wanted != IGNORED).sum().clamp(min=1)


def save_adapter(network: nn.Module, folder: Path, *, model_digest: str) -> None:
    """Write an adapter as PEFT does, so that `peft.PeftModel.from_pretrained` loads it.

    Args:
        network: An `AdapterNetwork`, with the numbers of a run's model.
        folder: Is made.
        model_digest: Of the run's model, as proofs name it.

    Raises:
        TaskError: The run trains no adapter.

    """
    if not isinstance(network, AdapterNetwork):
        raise TaskError("the run trains no adapter; allowed: a run of the task adapters")
    peft_model: Any = network.peft_model
    peft_model.save_pretrained(folder)
    with torch.no_grad():
        base = base_digest(_without_adapter(peft_model))
    (folder / PROVENANCE).write_text(json.dumps({"base": base, "model": model_digest}, indent=2) + "\n")


def load_adapter(base: nn.Module, folder: Path, digest: str) -> nn.Module:
    """Put an adapter on its base.

    Args:
        base: The model without an adapter.
        folder: What `save_adapter`, or PEFT, wrote.
        digest: Of the base.

    Returns:
        The model with the adapter, which can be trained.

    Raises:
        TaskError: It is no adapter, or one of another base.

    """
    _, peft = import_libraries()
    description = folder / PROVENANCE
    if description.is_file():
        wanted = _base_named_in(description)
        if wanted != digest:
            raise TaskError(
                f"the adapter {folder} belongs to another base: its digest is {wanted[:12]}, that of this model "
                f"{digest[:12]}; allowed: the base that it was trained on, as task.options.model"
            )
    try:
        made = peft.PeftModel.from_pretrained(base, str(folder), is_trainable=True, local_files_only=True)
    except Exception as error:  # peft raises almost anything
        raise TaskError(
            f"there is no adapter of this model to be read in {folder}: {in_one_line(error)}; allowed: a folder of "
            "PEFT with a LoRA adapter that was trained on it"
        ) from None
    for each in made.peft_config.values():
        if not isinstance(each, peft.LoraConfig):
            raise TaskError(f"the adapter {folder} is of type {each.peft_type}; allowed: LORA")
    found: nn.Module = made
    return found


def _base_named_in(description: Path) -> str:
    """The digest of the base that an adapter belongs to."""
    try:
        named = json.loads(description.read_text(encoding="utf-8"))["base"]
    except (OSError, ValueError, TypeError, KeyError):
        named = None
    if not isinstance(named, str):
        raise TaskError(
            f"{description} does not say which base the adapter belongs to; allowed: the file as disavow wrote it, "
            "or none"
        )
    return named


def _without_adapter(peft_model: Any) -> nn.Module:
    """The base as it was loaded: PEFT replaces layers, and can give them back."""
    plain: nn.Module = copy.deepcopy(peft_model).unload()
    return plain
