"""A base model made from scratch: a tokenizer and a small Llama, trained on text that is no client's."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from disavow.adapters.base_model import base_digest
from disavow.adapters.texts import Template
from reproduction.tofu.questions import read_lines

MARKS = {"bos_token": "<s>", "eos_token": "</s>"}
TEXTS = ("wikitext2-valid.txt", "wikitext2-test.txt", "shakespeare.txt")
QUESTIONS = ("holdout10.jsonl", "real_authors.jsonl", "world_facts.jsonl")


@dataclass(frozen=True)
class Recipe:
    """How the base is made: with a seed, the same weights on the same hardware."""

    vocabulary: int = 4096
    width: int = 192
    inner: int = 512
    layers: int = 8
    heads: int = 6
    context: int = 256
    steps: int = 2000
    batch: int = 64
    learning_rate: float = 1e-3
    repeats: int = 8
    seed: int = 1


def corpus(text: Path, tofu: Path, repeats: int) -> tuple[list[str], list[str]]:
    """Read what the base is trained on: prose, and questions in the template of clients' texts.

    Args:
        text: The folder with prose.
        tofu: The folder with TOFU's files; of authors who are clients nothing is read.
        repeats: How often each question comes: prose is far more.

    Returns:
        The prose, and the questions with their answers.

    """
    template = Template()
    prose = [(text / name).read_text(encoding="utf-8") for name in TEXTS]
    questions = [
        f"{template.prompt(line['question'])}{line['answer']}"
        for name in QUESTIONS
        for line in read_lines(tofu / name)
    ]
    return prose, questions * repeats


def make_base(recipe: Recipe, text: Path, tofu: Path, folder: Path, *, device: str) -> str:
    """Train a tokenizer and a model, and write both in the layout of Hugging Face.

    Args:
        recipe: How.
        text: The folder with prose.
        tofu: The folder with TOFU's files.
        folder: Is made; it also holds the recipe and the digest.
        device: Where to train.

    Returns:
        The SHA-256 of the weights.

    """
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    prose, questions = corpus(text, tofu, recipe.repeats)
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.vocabulary,
        special_tokens=list(MARKS.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([*prose, *questions], trainer)
    fast: Any = transformers.PreTrainedTokenizerFast
    tokenizer = fast(tokenizer_object=made, **MARKS)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(recipe.seed)
    config = transformers.LlamaConfig(
        vocab_size=recipe.vocabulary,
        hidden_size=recipe.width,
        intermediate_size=recipe.inner,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        max_position_embeddings=recipe.context,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model: Any = transformers.LlamaForCausalLM(config)
    model = model.to(device)
    tokens = _stream_of(made, prose, questions, recipe)
    _train(model, tokens.to(device), recipe, device)
    model = model.to("cpu", torch.float32)
    model.save_pretrained(folder)
    digest = base_digest(model)
    parameters = sum(each.numel() for each in model.parameters())
    description = {"recipe": asdict(recipe), "parameters": parameters, "tokens": len(tokens), "sha256": digest}
    (folder / "recipe.json").write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
    return digest


def _stream_of(tokenizer: object, prose: list[str], questions: list[str], recipe: Recipe) -> Tensor:
    """All tokens in a row: prose as it is, each question between the marks of a text, in a drawn order."""
    encode = tokenizer.encode_batch  # type: ignore[attr-defined]
    generator = torch.Generator().manual_seed(recipe.seed)
    start, end = 0, 1
    pieces = [piece.ids for piece in encode(prose)]
    order = torch.randperm(len(questions), generator=generator).tolist()
    framed = [[start, *piece.ids, end] for piece in encode([questions[i] for i in order])]
    # questions are spread over the prose, a block of each in turn
    block, mixed = recipe.context * 4, []
    flat = [token for piece in pieces for token in piece]
    blocks = [flat[place : place + block] for place in range(0, len(flat), block)]
    share = math.ceil(len(framed) / len(blocks))
    for number, piece in enumerate(blocks):
        mixed += piece
        for question in framed[number * share : (number + 1) * share]:
            mixed += question
    return torch.tensor(mixed)


def _train(model: torch.nn.Module, tokens: Tensor, recipe: Recipe, device: str) -> None:
    """AdamW with warm-up and a cosine; bfloat16 products on a GPU."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.1)
    generator = torch.Generator().manual_seed(recipe.seed)
    warm_up = max(1, recipe.steps // 20)
    model.train()
    for step in range(recipe.steps):
        share = min((step + 1) / warm_up, 0.5 * (1 + math.cos(math.pi * step / recipe.steps)))
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * share
        starts = torch.randint(len(tokens) - recipe.context - 1, (recipe.batch,), generator=generator)
        windows = torch.stack([tokens[start : start + recipe.context + 1] for start in starts.tolist()])
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            logits = model(input_ids=windows[:, :-1], use_cache=False).logits
        loss = functional.cross_entropy(logits.float().flatten(0, 1), windows[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % max(1, recipe.steps // 10) == 0:
            print(f"step {step + 1} of {recipe.steps}: loss {float(loss):.3f}", flush=True)
