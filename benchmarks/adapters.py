"""Peak memory of a stacked round of adapters, beside what as many copies of the base model would take.

    python -m benchmarks adapters

A Llama with random weights, LoRA of rank 8 on its attention projections; each client trains two questions for one
epoch, and all clients of a round are one stack over one base. The peak is that of making the engine, which tries a
stack of two clients, and of the round: on a GPU what torch allocated (`max_memory_allocated`, with the base); on a
CPU by how much the resident set grew at most since the base was loaded, plus the base, which needs Linux. Each size
is measured in a process of its own. Some minutes on a CPU.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from disavow.adapters.task import AdapterTask
from disavow.config import TrainingSettings
from disavow.engines.stacked.tasks import StackedTasks
from disavow.engines.state import model_of
from disavow.engines.task_workload import TaskWorkload
from disavow.proof.keys import child_environment
from disavow.tasks.loading import load

CLIENTS = (2, 4, 8, 16, 32)
WIDTH, INNER, LAYERS = 512, 1376, 4
ON_GPU = {"clients": (2, 8, 32, 128), "width": 1024, "inner": 2752, "layers": 8}
QUESTIONS = 2
WORDS = 64
"""Of the vocabulary: logits would otherwise take more than what is measured."""
_PROCESS = Path("/proc/self")
TRAINING = TrainingSettings(epochs=1, batch_size=QUESTIONS, learning_rate=0.001)


def write_base(folder: Path, *, width: int, inner: int, layers: int) -> Path:
    """Write a Llama with random weights, and a tokenizer of a few words.

    Args:
        folder: Is made.
        width: Numbers of a token's hidden state.
        inner: Numbers inside a layer's MLP.
        layers: How many.

    """
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"<unk>": 0, "<s>": 1, "</s>": 2, **{f"w{i}": i + 3 for i in range(WORDS - 3)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast: Any = transformers.PreTrainedTokenizerFast
    fast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>").save_pretrained(folder)
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=WORDS,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    )
    model: Any = transformers.LlamaForCausalLM(config)
    model.save_pretrained(folder)
    return folder


def write_texts(path: Path, clients: int) -> Path:
    """Write questions of so many clients.

    Args:
        path: The file.
        clients: How many.

    """
    lines = [
        {"client": f"client-{client:03d}", "prompt": f"w{number} w{client % 50}", "response": "w1 w2 w3 w4 w5 w6"}
        for client in range(clients)
        for number in range(QUESTIONS)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def measured(clients: int, base: Path, folder: Path, device: torch.device) -> dict[str, Any]:
    """Train one stacked round, and measure its peak.

    Args:
        clients: Of the round.
        base: The folder of the base.
        folder: For the clients' texts.
        device: Where.

    """
    task = AdapterTask(model=str(base), data=str(write_texts(folder / "texts.jsonl", clients)))
    loaded = load(task, training=TRAINING, seed=1)
    workload = TaskWorkload(loaded, TRAINING, 1, device)
    model, names = model_of(loaded.network), sorted(loaded.samples)
    base_bytes = sum(
        each.numel() * each.element_size()
        for name, each in loaded.network.named_parameters()
        if "lora_" not in name
    )
    before = _start_measuring(device)
    StackedTasks(workload).train(model, names, 1)
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "clients": clients,
        "base_bytes": base_bytes,
        "adapter_bytes": 4 * model.layout.size,
        # on a CPU the base was resident before
        "peak_bytes": _peak(device) - before + (0 if device.type == "cuda" else base_bytes),
        "clients_times_base_bytes": clients * base_bytes,
    }


def _start_measuring(device: torch.device) -> int:
    """Forget earlier peaks; what is in use already that does not count."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return 0
    _PROCESS.joinpath("clear_refs").write_text("5")  # proc(5): resets the largest resident set to the present one
    return _resident("VmRSS")


def _peak(device: torch.device) -> int:
    return int(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else _resident("VmHWM")


def _resident(field: str) -> int:
    """Bytes of a field of the process's status, which are given in kB."""
    lines = _PROCESS.joinpath("status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def main(arguments: list[str]) -> None:
    """Measure each size in a process of its own; with two arguments, one of them here."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if arguments:
        clients, base = int(arguments[0]), Path(arguments[1])
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measured(clients, base, Path(folder), device)), flush=True)
        return
    gpu = device.type == "cuda"
    sizes: Any = ON_GPU if gpu else {"clients": CLIENTS, "width": WIDTH, "inner": INNER, "layers": LAYERS}
    with tempfile.TemporaryDirectory() as folder:
        shape = {name: sizes[name] for name in ("width", "inner", "layers")}
        base = write_base(Path(folder) / "base", **shape)
        for clients in sizes["clients"]:
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.adapters", str(clients), str(base)],
                env=child_environment(),
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            )
            print(done.stdout.splitlines()[-1], flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
