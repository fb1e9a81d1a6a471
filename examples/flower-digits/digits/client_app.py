"""What runs on a node."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits.task import Net, load_data
from digits.task import test as test_fn
from digits.task import train as train_fn
from disavow.flower.client import answer, evidence_mod, seed_everything

app = ClientApp(mods=[evidence_mod])  # keeps this node's receipts
app.query("disavow")(answer)  # says who this node is, and verifies the proof once it has left


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the model on the digits of this node."""
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    loader, _ = load(context)
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
    _, loader = load(context)
    loss, accuracy = test_fn(model, loader)
    metrics = {"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(loader.dataset)}
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)


def load(context: Context):
    """The data of this node."""
    config = context.node_config
    return load_data(config["partition-id"], config["num-partitions"], context.run_config["batch-size"])
