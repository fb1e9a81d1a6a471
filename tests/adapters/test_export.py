"""The adapter of a run on Flower, which knows arrays alone, as a folder of PEFT."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers

from disavow import config
from disavow.adapters.base_model import base_digest, load_base
from disavow.adapters.export import write_peft_folder
from disavow.adapters.task import AdapterTask
from disavow.domain import Layout, TensorSpec
from disavow.errors import ConfigError, TaskError
from disavow.federation import Federation
from disavow.rounds.vectors import Model
from tests.adapters.conftest import make_base
from tests.cli.forked import disavow
from tests.cli.process import assert_refused

LORA: dict[str, Any] = {"r": 2, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}


def make_run(directory: Path, tensors: dict[str, torch.Tensor]) -> Path:
    """A run on Flower that serves these tensors."""
    layout = Layout(tuple(TensorSpec(name, tuple(each.shape)) for name, each in tensors.items()))
    model = Model(layout, torch.cat([each.flatten() for each in tensors.values()]))
    Federation.on_nodes(directory, config.from_values({"clustering": {"k": 3}}, source="tests"), model).close()
    return directory


@pytest.fixture
def flower_run(base: Path, tmp_path: Path) -> tuple[Path, Path, torch.nn.Module]:
    """A run on Flower, PEFT's description of its adapter, and the model that both come from."""
    torch.manual_seed(5)
    adapted = peft.get_peft_model(load_base(str(base)), peft.LoraConfig(**LORA))
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter)
    adapted.peft_config["default"].save_pretrained(str(tmp_path / "saved"))
    run = make_run(tmp_path / "run", peft.get_peft_model_state_dict(adapted))
    return run, tmp_path / "saved" / "adapter_config.json", adapted.eval()


def test_the_folder_holds_the_model_that_proofs_are_about(
    base: Path, texts: Path, tmp_path: Path, flower_run: tuple[Path, Path, torch.nn.Module]
) -> None:
    run, description, adapted = flower_run
    done = disavow("export-adapter", run, "-o", tmp_path / "adapter", "--adapter-config", description, "--json")
    assert done.returncode == 0, done.stderr
    weights = (tmp_path / "adapter" / "adapter_model.safetensors").read_bytes()
    with Federation.open(run) as federation:
        assert federation.export().data == weights
    digest = hashlib.sha256(weights).hexdigest()
    assert json.loads(done.stdout)["model"] == digest
    said = json.loads((tmp_path / "adapter" / "provenance.json").read_text())
    assert said == {"base": base_digest(load_base(str(base))), "model": digest}
    plain = transformers.AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager")
    loaded = peft.PeftModel.from_pretrained(plain, tmp_path / "adapter").eval()
    tokens = torch.arange(3, 13)[None]
    with torch.no_grad():
        torch.testing.assert_close(loaded(input_ids=tokens).logits, adapted(input_ids=tokens).logits)
    # a run without Flower may start from it, on its own base alone
    AdapterTask(model=str(base), data=str(texts), adapter=str(tmp_path / "adapter")).model()
    other = make_base(tmp_path / "other", seed=2)
    with pytest.raises(TaskError, match="another base"):
        AdapterTask(model=str(other), data=str(texts), adapter=str(tmp_path / "adapter")).model()


def test_what_does_not_fit_is_refused_and_nothing_is_written(
    tmp_path: Path, flower_run: tuple[Path, Path, torch.nn.Module]
) -> None:
    run, description, _ = flower_run
    adapter, other, none = tmp_path / "adapter", tmp_path / "other.json", tmp_path / "none.json"
    assert_refused(disavow("export-adapter", run, "-o", adapter), ConfigError, "--adapter-config")
    other.write_text(json.dumps({**json.loads(description.read_text()), "r": 4}))
    none.write_text("{}")
    with Federation.open(run) as federation:
        weights = federation.export().data
    for given, base, said in [(other, None, "lora_A"), (none, None, none), (description, str(tmp_path), tmp_path)]:
        with pytest.raises(TaskError, match=str(said)):
            write_peft_folder(adapter, weights, adapter_config=given, model_digest="", base=base)
    assert not adapter.exists()
