"""Questions and answers: who has which, and their tokens."""

from pathlib import Path

from torch.utils.data import Dataset

from disavow.adapters.texts import Template, encode, read_examples, to_tensors
from disavow.errors import TaskError

DATA = Path(__file__).parent / "data"


class Questions(Dataset):
    """Questions with their answers as tokens, of which the loss counts those of answers."""

    def __init__(self, examples, tokenizer, length, owner):
        self.tokens, self.labels = to_tensors(list(encode(tokenizer, examples, Template())), length, owner)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, number):
        return {"input_ids": self.tokens[number], "labels": self.labels[number]}


def load_questions(node_config):
    """The questions of this node: those in a file of its own, or of one author in a simulation."""
    if "texts" in node_config:
        return read_examples(Path(node_config["texts"]).expanduser())
    examples, number = read_examples(DATA / "authors.jsonl"), node_config["partition-id"]
    authors = sorted({each.client for each in examples})
    if number >= len(authors):
        raise TaskError(
            f"there is no author for partition {number}: {len(authors)} are in the data; allowed: "
            f'--federation-config "num-supernodes={len(authors)}"'
        )
    return tuple(each for each in examples if each.client == authors[number])


def load_held_out():
    """Questions that no node trains on."""
    return read_examples(DATA / "held-out.jsonl")
