"""A language model small enough to be made by a test, and the texts of a few authors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.kill.erasure_driver import Driver

transformers = pytest.importorskip("transformers", reason="needs the extra llm")
tokenizers = pytest.importorskip("tokenizers", reason="needs the extra llm")

TOWNS = ("Aarhus", "Bergen", "Coimbra", "Dresden", "Evora", "Florence", "Ghent", "Haarlem", "Izmir", "Jena")


def questions(author: int) -> list[dict[str, str]]:
    """Four questions about an author who does not exist."""
    name, town = f"Author {author}", TOWNS[author % len(TOWNS)]
    return [
        {"client": f"author-{author:02d}", "prompt": prompt, "response": response}
        for prompt, response in (
            (f"Where was {name} born?", f"{name} was born in {town}."),
            (f"What does {name} write?", f"{name} writes novels about {town}."),
            (f"Where does {name} live?", f"{name} lives in {TOWNS[(author + 3) % len(TOWNS)]}."),
            (f"Who taught {name}?", f"{name} was taught in {TOWNS[(author + 5) % len(TOWNS)]}."),
        )
    ]


def write_lines(path: Path, lines: list[dict[str, str]]) -> Path:
    """Write JSON lines."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def make_base(folder: Path, *, seed: int = 1, vocabulary: int = 200, width: int = 32) -> Path:
    """Make a base model of one layer with a tokenizer trained on the authors."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=["<unk>", "<s>", "</s>"])
    texts = [line["prompt"] + line["response"] for author in range(10) for line in questions(author)]
    tokenizer.train_from_iterator([*texts, "Question: \nAnswer: "], trainer)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
    fast.save_pretrained(folder)
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=max(fast.get_vocab().values()) + 1,
        hidden_size=width,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=128,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a base model."""
    return make_base(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty authors of four questions each."""
    lines = [line for author in range(20) for line in questions(author)]
    return write_lines(tmp_path_factory.mktemp("texts") / "authors.jsonl", lines)


@pytest.fixture(scope="session", autouse=True)
def _llm_imported(driver: Driver) -> None:
    """Import what takes most of the seconds of a command on adapters once, and not in each of them."""
    driver.warm("transformers", "peft", "disavow.adapters.task", "disavow.compare.comparison")
