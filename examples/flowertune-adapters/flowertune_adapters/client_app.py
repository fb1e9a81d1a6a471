"""What runs on a node."""

import tempfile

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.common.config import unflatten_dict

from disavow.flower.client import ClientApp, seed_everything, without_excluded
from flowertune_adapters.dataset import Questions, load_questions
from flowertune_adapters.models import get_adapter, get_model, get_tokenizer, learning_rate, set_adapter

app = ClientApp()  # keeps this node's receipts, says who it is, and verifies the proof once it has left


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the adapter on the questions of this node."""
    config = unflatten_dict(context.run_config)
    questions = load_questions(context.node_config)
    questions = without_excluded(msg, questions, [each.record for each in questions])  # those that were erased
    model = get_model(config["model"])
    set_adapter(model, msg.content["arrays"].to_torch_state_dict())
    seed = seed_everything(msg.content["config"])  # a retraining gives the same bits
    data = Questions(questions, get_tokenizer(config["model"]), config["train"]["seq-length"], "this node")
    rate = learning_rate(config["train"], msg.content["config"]["server-round"])
    loss = fine_tune(model, data, config["train"]["training-arguments"], rate, seed)
    metrics = {"train_loss": loss, "num-examples": len(data)}
    content = RecordDict({"arrays": ArrayRecord(get_adapter(model)), "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


def fine_tune(model, data, arguments, rate, seed):
    """Train the adapter in place; the mean loss."""
    from transformers import PrinterCallback, Trainer, TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        given = {name.replace("-", "_"): value for name, value in arguments.items()}
        chosen = TrainingArguments(
            **{"save_strategy": "no", "report_to": "none", "disable_tqdm": True, **given},
            output_dir=folder,
            learning_rate=rate,
            seed=seed % 2**32,
            remove_unused_columns=False,
        )
        trainer = Trainer(model=model, args=chosen, train_dataset=data)
        trainer.remove_callback(PrinterCallback)
        return trainer.train().training_loss
