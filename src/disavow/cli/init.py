"""`disavow init`."""

from __future__ import annotations

from pathlib import Path

from disavow.cli.output import progress, results
from disavow.config import Settings, TaskSettings, to_toml
from disavow.domain import escaped
from disavow.domain.strategies import broken_plugins
from disavow.errors import ConfigError

_TASK = '''"""The task of a federation: what disavow trains. See docs/tasks.md."""

import torch

import disavow


class Own(disavow.Task):
    """Say what is trained, by whom, on what."""

    epochs = 1  # local epochs of a round
    batch_size = 16

    def model(self):
        return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))

    def clients(self):
        # replace this by your data: an id for each client, and a Dataset or a tuple of arrays, the targets last
        generator = torch.Generator().manual_seed(1)
        data = {}
        for number in range(1, 13):
            inputs = torch.randn(40, 8, generator=generator)
            data[f"client-{number:02d}"] = inputs, (inputs.sum(dim=1) > 0).long()
        return data

    def test_data(self):
        inputs = torch.randn(200, 8, generator=torch.Generator().manual_seed(2))
        return inputs, (inputs.sum(dim=1) > 0).long()

    # optional: loss(model, batch), optimizer(model), evaluate(model, data), ...

    # def record_keys(self, client):  # so that one record can be erased, and the client stays
    #     return [...]  # a text for each example of the client, in the order of its data; it must stay the same


def build(**options):
    """Make the task; [task.options] of the settings are the keyword arguments."""
    return Own(**options)
'''


def init(path: Path, task: Path | None = None) -> None:
    """Write the defaults, commented; never over a file that is there.

    Args:
        path: The settings file; `-` prints it instead.
        task: A Python file with a task to fill in.

    Raises:
        ConfigError: A file exists, or cannot be written.

    """
    settings = Settings()
    without: tuple[str, ...] = ()
    if task is not None:
        if task.suffix != ".py" or not task.stem.isidentifier():
            raise ConfigError(f"--task is {task}; allowed: a Python file that can be imported, such as own.py")
        settings = Settings(task=TaskSettings(factory=f"{task.stem}:build", path=str(task.parent.absolute())))
        without = ("data", "model", "task.clients", "training.epochs", "training.batch_size")  # the task says them
    text = to_toml(settings, without=without)
    for sentence in broken_plugins():
        progress().print(f"warning: {escaped(sentence)}")
    if str(path) == "-":
        print(text, end="")
        return
    written = [path]
    if path.exists():
        raise ConfigError(f"{path} exists and is never overwritten; name another file")
    if task is not None and not task.exists():  # one that is there is the task
        _write(task, _TASK)
        written.append(task)
    _write(path, text)
    names = " and ".join(str(each) for each in written)
    results().print(f"wrote {names}; next: disavow train {path} --run runs/first")


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} exists and is never overwritten; name another file") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
