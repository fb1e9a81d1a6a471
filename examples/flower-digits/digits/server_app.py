"""What runs on the server."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from digits.task import Net, load_held_out, test
from disavow.flower import KIPFedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for as many rounds as the run config says."""
    config = context.run_config
    torch.manual_seed(0)
    strategy = KIPFedAvg(
        fraction_evaluate=config["fraction-evaluate"],
        min_available_nodes=config["min-available-nodes"],
        ledger=config["ledger"],
        k=config["k"],
        x=config["x"],
        identity=config["identity"],
        local_epochs=config["local-epochs"],
    )
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        num_rounds=config["num-server-rounds"],
        timeout=config["timeout"],
        train_config=ConfigRecord({"lr": config["learning-rate"]}),
        evaluate_fn=global_evaluate,
    )
    last = max(result.evaluate_metrics_serverapp)
    print(f"round {last}: accuracy {result.evaluate_metrics_serverapp[last]['accuracy']:.3f}")


def global_evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Test the global model on held-out digits."""
    model = Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    loss, accuracy = test(model, load_held_out())
    return MetricRecord({"accuracy": accuracy, "loss": loss})
