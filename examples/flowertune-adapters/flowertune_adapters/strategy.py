"""What FlowerTune's strategy adds to averaging: how many bytes of adapters are sent."""

from logging import INFO

from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import Grid
from flwr.supercore import log

from disavow.flower import KIPFedAvg


class FlowerTuneLlm(KIPFedAvg):
    """The strategy above, which also logs what each round costs in communication."""

    sent = 0

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid):
        """Count the adapters that go out."""
        messages = list(super().configure_train(server_round, arrays, config, grid))
        self.count(server_round, messages)
        return messages

    def aggregate_train(self, server_round: int, replies):
        """Count the adapters that have come back."""
        replies = list(replies)
        self.count(server_round, replies)
        return super().aggregate_train(server_round, replies)

    def count(self, server_round: int, messages):
        """Add the bytes of these messages' adapters."""
        size = sum(record.count_bytes() for each in messages for record in each.content.array_records.values())
        self.sent += size
        log(INFO, "round %d: %.2f MB of adapters, %.2f MB so far", server_round, size / 1e6, self.sent / 1e6)
