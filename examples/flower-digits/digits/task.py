"""The network, the data, and how both meet."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Subset, TensorDataset

from disavow.data.digits import digits

torch.set_num_threads(1)  # many clients share a machine

HELD_OUT = 297  # digits that no client holds


class Net(nn.Module):
    """Two convolutions and two dense layers."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.fc1 = nn.Linear(16 * 2 * 2, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        """Scores of the ten digits."""
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


def load_all():
    """All digits, in a fixed order that mixes them."""
    held = digits()
    order = torch.randperm(len(held.labels), generator=torch.Generator().manual_seed(0))
    return held.images[order], held.labels[order]


def load_records(partition_id, num_partitions):
    """The digits of one client, and the key of each: digit-0, digit-1, ..."""
    images, labels = load_all()
    numbers = range(HELD_OUT + partition_id, len(labels), num_partitions)
    return TensorDataset(images[numbers], labels[numbers]), [f"digit-{number}" for number in numbers]


def loaders(data, batch_size):
    """A loader to train with and one to test with."""
    cut = int(len(data) * 0.8)
    training, testing = Subset(data, range(cut)), Subset(data, range(cut, len(data)))
    return DataLoader(training, batch_size=batch_size, shuffle=True), DataLoader(testing, batch_size=64)


def load_held_out():
    """The digits that only the server tests with."""
    images, labels = load_all()
    return DataLoader(TensorDataset(images[:HELD_OUT], labels[:HELD_OUT]), batch_size=64)


def train(net, loader, epochs, lr):
    """Train the network in place; the mean loss of the last epoch."""
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    net.train()
    total = 0.0
    for _ in range(epochs):
        total = 0.0
        for images, labels in loader:
            optimizer.zero_grad()
            loss = functional.cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / max(1, len(loader))


def test(net, loader):
    """The mean loss and the accuracy."""
    net.eval()
    loss, right, count = 0.0, 0, 0
    with torch.no_grad():
        for images, labels in loader:
            scores = net(images)
            loss += functional.cross_entropy(scores, labels, reduction="sum").item()
            right += (scores.argmax(1) == labels).sum().item()
            count += len(labels)
    return loss / count, right / count
