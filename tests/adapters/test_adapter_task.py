"""Adapters as a task: what is trained, how authors leave, and what PEFT makes of the export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from peft.tuners.lora import Linear

from disavow import config
from disavow.adapters.base_model import load_base
from disavow.adapters.task import AdapterTask, response_loss
from disavow.adapters.texts import IGNORED
from disavow.config import TrainingSettings
from disavow.domain import Exclusions, RequestState
from disavow.engines.sequential import SequentialEngine
from disavow.engines.stacked.tasks import StackedTasks
from disavow.engines.state import layout_of, model_of, put_model
from disavow.engines.task_workload import TaskWorkload
from disavow.errors import TaskError, TextNamesClient
from disavow.federation import Federation
from disavow.rounds.vectors import Model
from disavow.tasks.factory import build
from disavow.tasks.loading import load
from tests.adapters.conftest import make_base, questions, write_lines
from tests.cli.forked import disavow
from tests.cli.process import assert_refused
from tests.refusals import refuses

TRAINING = TrainingSettings(epochs=1, batch_size=4, learning_rate=0.01)


def settings(base: Path, texts: Path, **changes: Any) -> Any:
    """A federation of authors."""
    values = {
        "seed": 3,
        "rounds": 3,
        "task": {"factory": "adapters", "options": {"model": str(base), "data": str(texts), "rank": 2}},
        "training": {"epochs": 1, "batch_size": 4, "learning_rate": 0.01},
        "clustering": {"k": 4},
        "deniability": {"x": 2},
        "noise": {"sigma": 0.0001},
    }
    return config.from_values({**values, **changes}, source="tests")


def test_only_the_adapter_is_in_the_vector(base: Path, texts: Path) -> None:
    task = AdapterTask(model=str(base), data=str(texts), rank=2)
    names = [each.name for each in layout_of(task.model()).tensors]
    assert len(names) == 4 * 2  # four projections, A and B
    assert all("lora_" in name for name in names)


def test_with_frozen_a_the_mean_of_updates_is_the_update_of_the_mean(base: Path, texts: Path) -> None:
    task = AdapterTask(model=str(base), data=str(texts), rank=2, freeze_a=True)
    names = [each.name for each in layout_of(task.model()).tensors]
    assert len(names) == 4
    assert all("lora_B" in name for name in names)

    def added(vector: torch.Tensor, task: AdapterTask) -> list[torch.Tensor]:
        """What an adapter of these numbers adds to each projection."""
        torch.manual_seed(1)  # A is drawn, and the same for all clients
        network = task.model()
        put_model(network, Model(layout_of(network), vector))
        return [each.get_delta_weight("default") for each in network.modules() if isinstance(each, Linear)]

    def differs(task: AdapterTask) -> bool:
        vectors = torch.randn(2, layout_of(task.model()).size, generator=torch.Generator().manual_seed(2))
        one, other, mean = (added(each, task) for each in (*vectors, vectors.mean(0)))
        return not all(torch.allclose((a + b) / 2, c, atol=1e-5) for a, b, c in zip(one, other, mean, strict=True))

    assert not differs(task)
    assert differs(AdapterTask(model=str(base), data=str(texts), rank=2))


def test_the_loss_counts_responses_alone(base: Path, texts: Path) -> None:
    task = AdapterTask(model=str(base), data=str(texts), rank=2)
    tokens, labels = task.clients()["author-03"].tensors
    assert tokens.shape == labels.shape == (4, task.length)
    first = labels[0][labels[0] != IGNORED]
    assert task.tokenizer.decode(first, skip_special_tokens=True) == "Author 3 was born in Dresden."
    logits = torch.randn(4, task.length, 50, generator=torch.Generator().manual_seed(1))
    changed = logits.clone()
    changed[:, -1] += 100  # after the last label
    wanted = labels.clamp(max=49).where(labels != IGNORED, IGNORED)
    assert torch.equal(response_loss(logits, wanted), response_loss(changed, wanted))


LONG = {
    "client": "author-07",
    "prompt": "And then?",
    "response": "Author 7 was born in Aarhus and lives in Bergen. " * 3,
}
"""The longest text of all."""


def with_a_long_text(texts: Path, path: Path, *, times: int = 1) -> Path:
    """The texts of all authors, of whom one has by far the longest."""
    line = {**LONG, "response": LONG["response"] * times}
    path.write_text(texts.read_text(encoding="utf-8") + json.dumps(line) + "\n", encoding="utf-8")
    return path


def test_an_author_trains_and_holds_the_same_however_long_the_texts_of_others_are(
    base: Path, texts: Path, tmp_path: Path
) -> None:
    both = [texts, with_a_long_text(texts, tmp_path / "long.jsonl")]
    tasks = [AdapterTask(model=str(base), data=str(each), rank=2) for each in both]
    assert tasks[0].length < tasks[1].length
    few, many = (TaskWorkload(load(each, training=TRAINING, seed=3), TRAINING, 3) for each in tasks)
    clients = ["author-03", "author-12"]
    updates = [SequentialEngine(each).train(model_of(each.network), clients, 1) for each in (few, many)]
    assert torch.equal(updates[0].vectors, updates[1].vectors)
    differing = [client for client, digest in few.loaded.digests.items() if many.loaded.digests[client] != digest]
    assert differing == ["author-07"]


def test_a_question_that_was_erased_leaves_what_an_author_without_it_holds(
    base: Path, texts: Path, tmp_path: Path
) -> None:
    long = with_a_long_text(texts, tmp_path / "long.jsonl")
    whole, never = (AdapterTask(model=str(base), data=str(each), rank=2) for each in (long, texts))
    erased = load(whole, training=TRAINING, seed=3).without(
        {"author-07": Exclusions(bytes(32)).adding([LONG["prompt"]])}
    )
    other = load(never, training=TRAINING, seed=3)
    assert erased.digests == other.digests
    vectors = [
        SequentialEngine(each).train(model_of(each.network), ["author-07"], 1).vectors
        for each in (TaskWorkload(loaded, TRAINING, 3) for loaded in (erased, other))
    ]
    assert torch.equal(*vectors)


def test_held_out_responses_are_as_long_as_they_are(base: Path, texts: Path, tmp_path: Path) -> None:
    held_out = write_lines(tmp_path / "held-out.jsonl", [LONG])
    task = AdapterTask(model=str(base), data=str(texts), test=str(held_out))
    test = task.test_data()
    assert test is not None
    labels = test[1]
    said = task.tokenizer.decode(labels[0][labels[0] != IGNORED], skip_special_tokens=True)
    assert said == LONG["response"]
    cut = AdapterTask(model=str(base), data=str(texts), test=str(held_out), length=30)
    test = cut.test_data()
    assert test is not None
    assert test[0].shape == (1, 30)


def test_texts_of_several_lengths_make_a_batch(base: Path, texts: Path) -> None:
    rows = [(torch.arange(n), torch.arange(n)) for n in (3, 5)]
    tokens, labels = AdapterTask(model=str(base), data=str(texts)).collate(rows)
    assert tokens.tolist() == [[0, 1, 2, 0, 0], [0, 1, 2, 3, 4]]
    assert labels[0].tolist() == [0, 1, 2, IGNORED, IGNORED]


def test_stacked_adapters_are_those_that_train_alone(base: Path, texts: Path) -> None:
    loaded = load(AdapterTask(model=str(base), data=str(texts), rank=2), training=TRAINING, seed=3)
    workload = TaskWorkload(loaded, TRAINING, 3)
    model, clients = model_of(loaded.network), ["author-00", "author-07", "author-19"]
    together = StackedTasks(workload).train(model, clients, 1)
    alone = SequentialEngine(workload).train(model, clients, 1)
    torch.testing.assert_close(together.vectors, alone.vectors, rtol=1e-3, atol=1e-5)
    assert float(alone.vectors.abs().max()) > 0


def test_a_retrained_run_is_bit_for_bit_the_run_without_the_author(
    base: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty authors, one layer, three rounds, on the reference engine; plain averaging, which always retrains.

    The author has the longest text, to which the others are padded.
    """
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "keys"))
    plain = {
        "clustering": {"k": 1},
        "deniability": {"x": 1},
        "noise": {"sigma": 0.0},
        "engine": {"name": "sequential", "device": "cpu"},
    }
    texts = with_a_long_text(texts, tmp_path / "authors.jsonl")
    without = [line for line in texts.read_text(encoding="utf-8").splitlines() if '"author-07"' not in line]
    others = tmp_path / "others.jsonl"
    others.write_text("\n".join(without), encoding="utf-8")
    with Federation.create(tmp_path / "never", settings(base, others, **plain)) as never:
        never.train()
        expected = never.state_dict()
    with Federation.create(tmp_path / "run", settings(base, texts, **plain)) as federation:
        federation.train()
        before = federation.state_dict()
        [request] = federation.erase(["author-07"]).requests.values()
        found = federation.state_dict()
    assert str(request.verdict) == "rollback to round 1"
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert not all(torch.equal(found[name], before[name]) for name in before)
    # the author's texts are deleted, too: another may leave all the same
    texts.write_text("\n".join(without), encoding="utf-8")
    with Federation.open(tmp_path / "run", write=True) as federation:
        [request] = federation.erase(["author-08"]).requests.values()
    assert str(request.verdict) == "rollback to round 1"
    assert request.state is RequestState.ANSWERED


def test_one_question_can_be_erased(
    base: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "keys"))
    with Federation.create(tmp_path / "run", settings(base, texts)) as federation:
        federation.train()
        question = "Where was Author 4 born?"
        assert question in (federation.record_keys_of("author-04") or ())
        federation.erase("author-04", records=[question])
        assert question not in (federation.record_keys_of("author-04") or ())


def test_the_export_is_an_adapter_that_peft_loads(
    base: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISAVOW_KEYS", str(tmp_path / "keys"))
    with Federation.create(tmp_path / "run", settings(base, texts)) as federation:
        federation.train()
        tokens = federation.prepared.loaded.samples["author-03"].batch(torch.arange(4).numpy())[0]
        with torch.no_grad():
            expected = federation.model().eval()(tokens)
        digest = federation.export().digest
    given = ("export-adapter", tmp_path / "run", "-o", tmp_path / "adapter", "--json")
    assert_refused(disavow(*given, "--to", "friends of author-03"), TextNamesClient)
    assert not (tmp_path / "adapter").exists()
    done = disavow(*given, "--to", "Ministry of Health")
    assert json.loads(done.stdout)["model"] == digest
    with Federation.open(tmp_path / "run") as federation:
        [release] = federation.releases()
    assert (release.digest, release.recipient) == (digest, "Ministry of Health")
    assert release.number == json.loads(done.stdout)["release"]
    plain = transformers.AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager")
    adapted = peft.PeftModel.from_pretrained(plain, tmp_path / "adapter").eval()
    with torch.no_grad():
        torch.testing.assert_close(adapted(input_ids=tokens).logits, expected)
    assert disavow("export-adapter", tmp_path / "run", "-o", tmp_path / "adapter").returncode != 0
    # another federation may start from it, on its own base alone
    started = AdapterTask(model=str(base), data=str(texts), adapter=str(tmp_path / "adapter")).model()
    with torch.no_grad():
        torch.testing.assert_close(started.eval()(tokens), expected)
    other = make_base(tmp_path / "other", seed=2)
    with pytest.raises(TaskError, match="another base"):
        AdapterTask(model=str(other), data=str(texts), adapter=str(tmp_path / "adapter")).model()


def test_a_text_may_hold_what_other_tools_take_for_the_end_of_a_line(base: Path, tmp_path: Path) -> None:
    line = {**questions(1)[0], "response": "One\u2028two\x85three\x0cfour."}
    path = tmp_path / "texts.jsonl"
    path.write_bytes((json.dumps(line, ensure_ascii=False) + "\r\n\n").encode())
    [example] = AdapterTask(model=str(base), data=str(path)).examples
    assert example.response == line["response"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"client": "a", "prompt": "Who?", "response": " "}, "response"),
        ({"client": "a", "response": "Nobody."}, "prompt"),
        ({"prompt": "Who?", "response": "Nobody."}, "client"),
    ],
)
def test_a_line_without_text_is_named(line: dict[str, str], said: str, base: Path, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "texts.jsonl", [*questions(1), line])
    with pytest.raises(TaskError, match=f"line 5.*{said}"):
        AdapterTask(model=str(base), data=str(path)).clients()


def test_what_is_no_model_is_refused(base: Path, texts: Path, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"no config\.json"):
        AdapterTask(model=str(tmp_path), data=str(texts)).clients()
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(TaskError, match="tokenizer"):
        AdapterTask(model=str(tmp_path), data=str(texts)).clients()
    with pytest.raises(TaskError, match="cannot be read"):
        AdapterTask(model=str(base), data=str(tmp_path / "none.jsonl")).clients()
    with pytest.raises(TaskError, match="modules"):
        AdapterTask(model=str(base), data=str(texts), modules=["c_attn"]).model()
    with pytest.raises(TaskError, match="no room"):
        AdapterTask(model=str(base), data=str(texts), length=3).clients()


def test_a_tokenizer_of_another_model_is_refused(texts: Path, tmp_path: Path) -> None:
    folder = make_base(tmp_path / "model", vocabulary=300)
    small = make_base(tmp_path / "small", vocabulary=120)
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((small / name).read_bytes())
    with pytest.raises(TaskError, match="does not fit"):
        AdapterTask(model=str(folder), data=str(texts)).model()
    # also where only held-out texts show it
    known = write_lines(tmp_path / "known.jsonl", [{"client": "a", "prompt": "W", "response": "h"}])
    AdapterTask(model=str(folder), data=str(known), before="", between=" ").model()
    with pytest.raises(TaskError, match="does not fit"):
        AdapterTask(model=str(folder), data=str(known), test=str(texts), before="", between=" ").model()


def test_texts_that_are_longer_than_a_table_of_positions_are_refused(
    base: Path, texts: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    transformers.AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    shape: dict[str, Any] = {"vocab_size": 200, "n_positions": 16, "n_embd": 32, "n_layer": 1, "n_head": 2}
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape)).save_pretrained(folder)
    options: dict[str, Any] = {"model": str(folder), "data": str(texts), "modules": ["c_attn"]}
    with refuses(TaskError, folder, "length = 16"):
        AdapterTask(**options).model()
    AdapterTask(**options, length=16).model()
    # rotary positions go on
    AdapterTask(model=str(base), data=str(with_a_long_text(texts, tmp_path / "long.jsonl", times=20))).model()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"rank": 0}, "rank"),
        ({"rank": "two"}, "rank"),
        ({"alpha": -1.0}, "alpha"),
        ({"modules": "q_proj"}, "modules"),
        ({"modules": []}, "modules"),
        ({"freeze_a": "no"}, "freeze_a"),
        ({"length": 0}, "length"),
        ({"between": 3}, "between"),
        ({"test": ""}, "test"),
        ({"ranks": 2}, "ranks"),
        ({"model": None}, "model"),
    ],
)
def test_an_option_of_a_wrong_kind_is_named_in_one_line(options: dict[str, Any], named: str) -> None:
    with refuses(TaskError, named, "allowed") as refusal:
        build("adapters", {"model": "base", "data": "authors.jsonl", **options})
    assert "\n" not in str(refusal.value)


def test_an_option_that_is_needed_is_named() -> None:
    with refuses(TaskError, "data"):
        build("adapters", {"model": "base"})


def test_what_is_no_adapter_of_the_base_is_refused_in_one_line(base: Path, texts: Path, tmp_path: Path) -> None:
    def folder(name: str, made: Any = None, **files: str) -> Path:
        path = tmp_path / name
        path.mkdir()
        if made is not None:
            made.save_pretrained(path)
        for file, text in files.items():
            (path / f"{file}.json").write_text(text, encoding="utf-8")
        return path

    config = peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    fits = peft.get_peft_model(load_base(str(base)), config)
    wide = peft.get_peft_model(load_base(str(make_base(tmp_path / "model", width=64))), config)
    prompts = peft.PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
    for given in (
        folder("empty"),
        folder("wide", wide),
        folder("list", fits, provenance="[1]"),
        folder("text", fits, provenance="base"),
        folder("number", fits, provenance='{"base": 3}'),
        folder("prompts", peft.get_peft_model(load_base(str(base)), prompts)),
    ):
        with refuses(TaskError, given) as refusal:
            AdapterTask(model=str(base), data=str(texts), adapter=str(given)).model()
        assert "\n" not in str(refusal.value)
    AdapterTask(model=str(base), data=str(texts), adapter=str(folder("plain", fits))).model()


def test_what_is_no_tokenizer_is_refused_in_one_line_that_says_what_to_do(texts: Path, tmp_path: Path) -> None:
    folder = make_base(tmp_path / "model")
    for path in folder.glob("tokenizer*"):
        path.unlink()
    with refuses(TaskError, folder, "tokenizer.json") as refusal:
        AdapterTask(model=str(folder), data=str(texts)).clients()
    assert "\n" not in str(refusal.value)
