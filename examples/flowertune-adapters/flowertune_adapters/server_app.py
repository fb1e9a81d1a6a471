"""What runs on the server."""

import shutil
from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.common.config import unflatten_dict
from flwr.serverapp import Grid, ServerApp

from disavow.adapters.task import response_loss
from flowertune_adapters.dataset import Questions, load_held_out
from flowertune_adapters.models import get_adapter, get_model, get_tokenizer, set_adapter
from flowertune_adapters.strategy import FlowerTuneLlm

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for as many rounds as the run config says."""
    config = unflatten_dict(context.run_config)
    torch.manual_seed(0)
    model = get_model(config["model"])
    saved = Path(config["train"]["save-path"]).expanduser()
    model.peft_config["default"].save_pretrained(saved)  # the shape of the adapter, for `disavow export-adapter`
    strategy = FlowerTuneLlm(
        fraction_train=config["strategy"]["fraction-train"],
        fraction_evaluate=config["strategy"]["fraction-evaluate"],
        min_available_nodes=config["strategy"]["min-available-nodes"],
        ledger=config["strategy"]["ledger"],
        k=config["strategy"]["k"],
        x=config["strategy"]["x"],
        local_epochs=config["train"]["training-arguments"]["num-train-epochs"],
    )
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(get_adapter(model)),
        num_rounds=config["num-server-rounds"],
        timeout=config["strategy"]["timeout"],
        evaluate_fn=get_evaluate_fn(model, config, saved),
    )
    for number, metrics in sorted(result.evaluate_metrics_serverapp.items()):
        print(f"round {number}: loss of held-out answers {metrics['loss']:.3f}")


def get_evaluate_fn(model, config, saved):
    """A function that measures the loss of held-out answers, and saves the adapter of every so many rounds."""
    every, last = config["train"]["save-every-round"], config["num-server-rounds"]
    held_out = Questions(
        load_held_out(), get_tokenizer(config["model"]), config["train"]["seq-length"], "the held-out questions"
    )

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        for folder in saved.glob("round-*"):  # a round that is undone leaves no adapter behind
            if int(folder.name.removeprefix("round-")) >= server_round:
                shutil.rmtree(folder)
        set_adapter(model, arrays.to_torch_state_dict())
        if server_round > 0 and (server_round % every == 0 or server_round == last):
            model.save_pretrained(saved / f"round-{server_round}")
        model.eval()
        with torch.no_grad():
            logits = model(input_ids=held_out.tokens).logits
        return MetricRecord({"loss": float(response_loss(logits, held_out.labels))})

    return evaluate
