"""A base model made from scratch: a tokenizer and a small Llama, trained on text that is no client's.

The text is little (about a million tokens) for four million parameters, which would learn it by heart: dropout and
weight decay work against that, and the weights that are kept are those of the evaluation that foresaw held-out text
best.
"""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from disavow.adapters.base_model import base_digest
from disavow.adapters.texts import IGNORED, Example, Template, encode, to_tensors
from disavow.engines.stacked.tasks import reproducible
from reproduction.tofu.questions import held_out_questions, read_lines, training_questions

MARKS = {"bos_token": "<s>", "eos_token": "</s>"}
TEXTS = ("wikitext2-valid.txt", "wikitext2-test.txt", "shakespeare.txt")
FACTS = ("real_authors.jsonl", "world_facts.jsonl")
HELD_OUT_SHARE = 0.02
"""Of each text: its end, which the base is evaluated on."""

OnEvaluation = Callable[["Evaluated"], None]


@dataclass(frozen=True)
class Recipe:
    """How the base is made: with a seed, the same weights on the same hardware.

    Attributes:
        vocabulary: Tokens of the byte-pair encoding.
        width: Numbers of a token's hidden state.
        inner: Numbers inside a layer's MLP.
        layers: How many.
        heads: Of each layer's attention.
        context: Tokens of a training window.
        steps: Of training.
        batch: Windows of a step.
        learning_rate: At its highest, after the warm-up.
        weight_decay: Of AdamW.
        dropout: Of embeddings and of what attention and MLP add, in training; the saved model has none.
        repeats: How often each question comes: prose is far more.
        evaluations: How often held-out text is evaluated.
        seed: Of weights, windows and dropout.

    """

    vocabulary: int = 4096
    width: int = 192
    inner: int = 512
    layers: int = 8
    heads: int = 6
    context: int = 256
    steps: int = 2400
    batch: int = 64
    learning_rate: float = 2e-3
    weight_decay: float = 0.1
    dropout: float = 0.2
    repeats: int = 4
    evaluations: int = 16
    seed: int = 1


SMALL = Recipe(
    vocabulary=512, width=32, inner=64, layers=1, heads=2, context=64, batch=8, steps=40, repeats=1, evaluations=2
)
"""For a test."""


@dataclass(frozen=True)
class Corpus:
    """What the base is trained on, and what it is evaluated on.

    Attributes:
        prose: Texts.
        questions: Questions with their answers.
        held_out_prose: The end of each text.
        held_out_questions: About authors of whom the base sees nothing.

    """

    prose: tuple[str, ...]
    questions: tuple[tuple[str, str], ...]
    held_out_prose: tuple[str, ...]
    held_out_questions: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Evaluated:
    """Held-out perplexities at a step.

    Attributes:
        step: Of training.
        train_loss: Of that step's windows.
        prose_perplexity: A token of held-out prose.
        answer_perplexity: A token of held-out answers.

    """

    step: int
    train_loss: float
    prose_perplexity: float
    answer_perplexity: float


@dataclass(frozen=True)
class MadeBase:
    """A base as it was made.

    Attributes:
        recipe: How.
        parameters: Of the model.
        tokens: That it was trained on, each text counted once and each question as often as it comes.
        sha256: Of the weights.
        kept: The evaluation whose weights were kept.
        evaluations: All of them.
        repeats_exactly: Whether the first steps, taken twice, gave the same weights here.
        seconds: Of training.
        device: Where.

    """

    recipe: Recipe
    parameters: int
    tokens: int
    sha256: str
    kept: Evaluated
    evaluations: tuple[Evaluated, ...]
    repeats_exactly: bool
    seconds: float
    device: str


def read_corpus(text: Path, tofu: Path) -> Corpus:
    """Read what the base is trained and evaluated on; of authors who are clients nothing is read.

    Args:
        text: The folder with prose.
        tofu: The folder with TOFU's files.

    """
    whole = [(text / name).read_text(encoding="utf-8") for name in TEXTS]
    cuts = [round(len(each) * (1 - HELD_OUT_SHARE)) for each in whole]
    facts = [(line["question"], line["answer"]) for name in FACTS for line in read_lines(tofu / name)]
    return Corpus(
        tuple(each[:cut] for each, cut in zip(whole, cuts, strict=True)),
        (*training_questions(tofu), *facts),
        tuple(each[cut:] for each, cut in zip(whole, cuts, strict=True)),
        tuple(held_out_questions(tofu)),
    )


def make_base(
    recipe: Recipe,
    text: Path,
    tofu: Path,
    folder: Path,
    *,
    device: str,
    on_evaluation: OnEvaluation = lambda evaluated: None,
) -> MadeBase:
    """Train a tokenizer and a model, and write both in the layout of Hugging Face, with the recipe beside them.

    Args:
        recipe: How.
        text: The folder with prose.
        tofu: The folder with TOFU's files.
        folder: Is made.
        device: Where to train.
        on_evaluation: Hears of each evaluation.

    Returns:
        What was made.

    """
    corpus = read_corpus(text, tofu)
    tokenizer = _tokenizer(corpus, recipe)
    tokenizer.save_pretrained(folder)
    tokens = _stream(tokenizer, corpus, recipe).to(device)
    held_out = _HeldOut.of(tokenizer, corpus, recipe, device)
    began = time.perf_counter()
    with reproducible(torch.device(device)):
        few = replace(recipe, steps=min(10, recipe.steps), evaluations=0)
        digests = {base_digest(_trained(tokenizer, tokens, held_out, few, device)[0]) for _ in range(2)}
        model, evaluations, kept = _trained(tokenizer, tokens, held_out, recipe, device, on_evaluation)
    seconds = time.perf_counter() - began
    model.save_pretrained(folder)
    made = MadeBase(
        recipe,
        sum(each.numel() for each in model.parameters()),
        len(tokens),
        base_digest(model),
        kept,
        evaluations,
        len(digests) == 1,
        seconds,
        torch.cuda.get_device_name() if device.startswith("cuda") else "cpu",
    )
    (folder / "recipe.json").write_text(json.dumps(asdict(made), indent=1) + "\n", encoding="utf-8")
    return made


def _tokenizer(corpus: Corpus, recipe: Recipe) -> Any:
    """A byte-level byte-pair encoding of what the base is trained on."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    template = Template()
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.vocabulary,
        special_tokens=list(MARKS.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    questions = [f"{template.prompt(question)}{answer}" for question, answer in corpus.questions]
    made.train_from_iterator([*corpus.prose, *(questions * recipe.repeats)], trainer)
    fast: Any = transformers.PreTrainedTokenizerFast
    return fast(tokenizer_object=made, **MARKS)


def _stream(tokenizer: Any, corpus: Corpus, recipe: Recipe) -> Tensor:
    """All tokens in a row: blocks of prose, with questions between them in a drawn order."""
    generator = torch.Generator().manual_seed(recipe.seed)
    prose = [token for each in corpus.prose for token in tokenizer(each, add_special_tokens=False)["input_ids"]]
    encoded = [[*prompt, *response] for prompt, response in _encoded(tokenizer, corpus.questions * recipe.repeats)]
    order = torch.randperm(len(encoded), generator=generator).tolist()
    block = recipe.context * 4
    starts = range(0, len(prose), block)
    share = math.ceil(len(encoded) / len(starts))
    mixed: list[int] = []
    for number, start in enumerate(starts):
        mixed += prose[start : start + block]
        for which in order[number * share : (number + 1) * share]:
            mixed += encoded[which]
    return torch.tensor(mixed)


def _encoded(tokenizer: Any, questions: tuple[tuple[str, str], ...]) -> list[tuple[list[int], list[int]]]:
    return list(encode(tokenizer, (Example("", q, a, q) for q, a in questions), Template()))


@dataclass(frozen=True)
class _HeldOut:
    """Windows of held-out prose, and held-out questions with labels."""

    prose: Tensor
    tokens: Tensor
    labels: Tensor

    @classmethod
    def of(cls, tokenizer: Any, corpus: Corpus, recipe: Recipe, device: str) -> _HeldOut:
        flat = [
            token
            for each in corpus.held_out_prose
            for token in tokenizer(each, add_special_tokens=False)["input_ids"]
        ]
        rows = len(flat) // (recipe.context + 1)
        prose = torch.tensor(flat[: rows * (recipe.context + 1)]).view(rows, -1)
        encoded = _encoded(tokenizer, corpus.held_out_questions)
        tokens, labels = to_tensors(encoded, max(len(p) + len(r) for p, r in encoded), "held-out questions")
        return cls(prose.to(device), tokens.to(device), labels.to(device))

    @torch.no_grad()
    def evaluate(self, model: Any) -> tuple[float, float]:
        """Mean losses of a token: of prose, and of answers."""
        model.eval()
        prose = _mean_loss(model, self.prose[:, :-1], self.prose[:, 1:])
        answers = _mean_loss(model, self.tokens[:, :-1], self.labels[:, 1:])
        model.train()
        return prose, answers


def _mean_loss(model: Any, inputs: Tensor, wanted: Tensor) -> float:
    total = 0.0
    for some, labels in zip(inputs.split(32), wanted.split(32), strict=True):
        logits = model(input_ids=some, use_cache=False).logits.float().flatten(0, 1)
        total += float(
            functional.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED, reduction="sum").double()
        )
    return total / int((wanted != IGNORED).sum())


@contextmanager
def _dropout(model: Any, share: float) -> Iterator[None]:
    """Dropout that the architecture itself does not have: on embeddings and on what attention and MLP add."""

    def drop(module: nn.Module, inputs: object, output: Any) -> Any:
        del inputs
        if isinstance(output, tuple):
            return functional.dropout(output[0], share, module.training), *output[1:]
        return functional.dropout(output, share, module.training)

    layers = [part for layer in model.model.layers for part in (layer.self_attn, layer.mlp)]
    hooks = [part.register_forward_hook(drop) for part in (model.model.embed_tokens, *layers)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _trained(
    tokenizer: Any,
    tokens: Tensor,
    held_out: _HeldOut,
    recipe: Recipe,
    device: str,
    on_evaluation: OnEvaluation = lambda evaluated: None,
) -> tuple[Any, tuple[Evaluated, ...], Evaluated]:
    """AdamW with warm-up and a cosine, bfloat16 products on a GPU; the weights that foresaw held-out text best."""
    import transformers

    torch.manual_seed(recipe.seed)
    shape: dict[str, Any] = {
        "vocab_size": recipe.vocabulary,
        "hidden_size": recipe.width,
        "intermediate_size": recipe.inner,
        "num_hidden_layers": recipe.layers,
        "num_attention_heads": recipe.heads,
        "num_key_value_heads": recipe.heads,
        "max_position_embeddings": recipe.context,
        "tie_word_embeddings": True,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        # eager attention repeats itself exactly; fused kernels do not in their backward pass
        "attn_implementation": "eager",
    }
    config = transformers.LlamaConfig(**shape)
    made: Any = transformers.LlamaForCausalLM(config)
    model = made.to(device)
    matrices = [each for each in model.parameters() if each.dim() > 1]
    others = [each for each in model.parameters() if each.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": others, "weight_decay": 0.0}],
        lr=recipe.learning_rate,
        betas=(0.9, 0.95),
    )
    generator = torch.Generator().manual_seed(recipe.seed)
    offsets = torch.arange(recipe.context + 1, device=tokens.device)
    warm_up, every = max(1, recipe.steps // 20), max(1, recipe.steps // max(1, recipe.evaluations))
    evaluations: list[Evaluated] = []
    best, kept, lowest = None, Evaluated(0, math.nan, math.nan, math.nan), math.inf
    model.train()
    with _dropout(model, recipe.dropout):
        for step in range(1, recipe.steps + 1):
            factor = min(step / warm_up, 0.5 * (1 + math.cos(math.pi * step / recipe.steps)))
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate * factor
            starts = torch.randint(len(tokens) - recipe.context - 1, (recipe.batch,), generator=generator)
            windows = tokens[starts.to(tokens.device)[:, None] + offsets]
            with torch.autocast(tokens.device.type, torch.bfloat16, enabled=tokens.device.type == "cuda"):
                logits = model(input_ids=windows[:, :-1], use_cache=False).logits
            loss = functional.cross_entropy(logits.float().flatten(0, 1), windows[:, 1:].flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if recipe.evaluations and step % every == 0:
                prose, answers = held_out.evaluate(model)
                evaluated = Evaluated(step, float(loss.detach()), math.exp(prose), math.exp(answers))
                evaluations.append(evaluated)
                on_evaluation(evaluated)
                if prose + answers < lowest:
                    best, kept, lowest = copy.deepcopy(model.state_dict()), evaluated, prose + answers
    if best is not None:
        model.load_state_dict(best)
    return model.to("cpu", torch.float32), tuple(evaluations), kept
