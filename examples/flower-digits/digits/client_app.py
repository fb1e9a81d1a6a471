"""What runs on a node."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict

from digits.task import Net, load_records, loaders
from digits.task import test as test_fn
from digits.task import train as train_fn
from disavow.flower.client import ClientApp, seed_everything, without_excluded

app = ClientApp()  # keeps this node's receipts, says who it is, and verifies the proof once it has left


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the model on the digits of this node."""
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    loader, _ = load(context, msg)
    seed_everything(msg.content["config"])  # a retraining gives the same bits
    loss = train_fn(model, loader, context.run_config["local-epochs"], msg.content["config"]["lr"])
    metrics = {"train_loss": loss, "num-examples": len(loader.dataset)}
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Test the model on digits of this node that it does not train with."""
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    _, loader = load(context, msg)
    loss, accuracy = test_fn(model, loader)
    metrics = {"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(loader.dataset)}
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)


def load(context: Context, msg: Message):
    """The data of this node, without the digits that were erased."""
    config = context.node_config
    data, keys = load_records(config["partition-id"], config["num-partitions"])
    return loaders(without_excluded(msg, data, keys), context.run_config["batch-size"])
