"""Make a tiny base in the layout of Hugging Face, so that the example needs no download.

Its tokenizer and its weights are learned from the docstrings of Python's standard library: no client's text.

    python make_base.py ~/models/flowertune-tiny
"""

import argparse
import ast
import sys
import sysconfig
from pathlib import Path

import torch

from disavow.adapters.base_model import import_libraries
from disavow.errors import TaskError

PACKAGES = (
    "argparse",
    "asyncio",
    "collections",
    "email",
    "http",
    "logging",
    "multiprocessing",
    "unittest",
    "urllib",
)
VOCABULARY, LENGTH, BATCH = 1024, 64, 16
START, END = "<s>", "</s>"


def docstrings():
    """Every docstring of these packages."""
    library = Path(sysconfig.get_path("stdlib"))
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for package in PACKAGES:
        for path in sorted([*library.glob(f"{package}.py"), *(library / package).rglob("*.py")]):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                text = ast.get_docstring(node) if isinstance(node, documented) else None
                if text:
                    yield text


def make_tokenizer(texts):
    """Learn a byte-level tokenizer: it can write any text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=[START, END], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=START, eos_token=END)


def make_model(tokenizer):
    """A Llama of two layers with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=256,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )


def train(model, tokens, steps):
    """Teach the model what comes next in the texts."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        starts = torch.randint(len(tokens) - LENGTH, (BATCH,))
        batch = torch.stack([tokens[start : start + LENGTH] for start in starts])
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 100 == 0:
            print(f"step {step + 1}: loss {loss.item():.2f}")


def main():
    """Make the base."""
    parser = argparse.ArgumentParser(description="Make a tiny base model; nothing is downloaded.")
    parser.add_argument("folder", type=Path, help="where to, such as ~/models/flowertune-tiny")
    parser.add_argument("--steps", type=int, default=400, help="training steps; 0 leaves the weights random")
    arguments = parser.parse_args()
    folder = arguments.folder.expanduser()
    if folder.exists():
        raise TaskError(f"{folder} exists and is never overwritten; name another folder")
    import_libraries()
    torch.set_num_threads(1)  # more would wait for each other: the model is small
    torch.manual_seed(0)
    texts = list(docstrings())
    tokenizer = make_tokenizer(texts)
    model = make_model(tokenizer)
    train(model, torch.tensor(tokenizer("\n".join(texts))["input_ids"]), arguments.steps)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    print(f"{model.num_parameters():,} parameters written to {folder}")


if __name__ == "__main__":
    try:
        main()
    except TaskError as error:
        sys.exit(f"error: {error}")
