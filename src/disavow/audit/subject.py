"""What is audited: a client of a run, and whether it can be, said before hours are spent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from disavow import runs
from disavow.config import Settings, participants_of
from disavow.data import FederatedData, OnProgress
from disavow.data import load as load_data
from disavow.data.dataset import Indices
from disavow.data.progress import nothing
from disavow.domain import Anchors, Layout, Policy, escaped
from disavow.engines.workload import Workload
from disavow.errors import ConfigError, UnknownClient
from disavow.ledger import Ledger
from disavow.rounds.randomness import training_stream
from disavow.rounds.vectors import Model

FEWEST_RECORDS = 10
"""Records of either kind below which no attacker that scores records could be told from chance."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A client still in, with its run's settings and state, and the data at hand.

    `anchors` are those of its fixed clusters, which a world without the client shares: its place is a gap there.
    `images` and `labels` are all samples, those to train on before those held out. `own` and `held_out` are the
    numbers of the records that attackers score: the client's, and held-out ones with the same labels.
    """

    directory: Path
    client: str
    clients: tuple[str, ...]
    rounds: int
    settings: Settings
    policy: Policy
    layout: Layout
    network: nn.Module
    initial: Model
    images: Tensor
    labels: Tensor
    parts: dict[str, Indices]
    anchors: Anchors | None
    own: Indices
    held_out: Indices

    @property
    def records(self) -> Indices:
        """The own records, then the held-out ones."""
        return np.concatenate([self.own, self.held_out])

    def workload(self, *, held: Indices | None = None) -> Workload:
        """Return what engines train on; `held` takes the place of the client's own records.

        The test is one record: nobody looks at how well a world does on it, and a larger one would take time.
        """
        parts = self.parts if held is None else {**self.parts, self.client: held}
        return Workload(
            network=self.network,
            images=self.images,
            labels=self.labels,
            parts=parts,
            test_images=self.images[self.held_out[:1]],
            test_labels=self.labels[self.held_out[:1]],
            settings=self.settings.training,
            seed=self.settings.seed,
        )


def subject_of(
    directory: Path,
    client: str,
    *,
    data: FederatedData | None = None,
    seed: int = 1,
    on_progress: OnProgress = nothing,
    keys: Path | None = None,
) -> Subject:
    """Prepare a client to be audited.

    `data` stands in for the data that the run's settings name. `seed` draws the held-out records. `on_progress`
    hears how far the data is, where it takes time to load.

    Args:
        directory: The run.
        client: Its id.
        data: What the clients hold; None: it is loaded.
        seed: That of the audit.
        on_progress: Called with how far the data is.
        keys: The folder of the operator's keys; `DISAVOW_KEYS` unless told otherwise.

    Returns:
        The client and its run.

    Raises:
        UnknownClient: It is not in the run.
        ConfigError: It cannot be audited, and why.
        CannotRetrain: Its run cannot be trained here.

    """
    settings = runs.settings_of(directory)
    runs.refuse_on_nodes(settings, directory)
    with Ledger.open(directory, keys=keys) as ledger:
        _refuse(ledger, client)
        runs.refuse_changed(ledger, settings)  # else records could be taken for the client's that are others'
        runs.refuse_other_trainer(ledger, settings)
        if data is None:
            data = load_data(settings.data, seed=settings.seed, on_progress=on_progress)
            runs.refuse_other_data(ledger, data)
        else:
            runs.refuse_missing_data(ledger, data)
        clients, rounds = ledger.clients(), ledger.last_round
        policy, layout, anchors = ledger.policy, ledger.layout, ledger.anchors()
        initial = Model(layout, torch.from_numpy(ledger.model_before(1)))
    _refuse_too_few_clients(client, len(clients), policy, settings)
    own = np.asarray(data.parts[client])
    held_out = _alike(data, own, seed)
    _refuse_too_few_records(client, own, held_out)
    return Subject(
        directory=directory,
        client=client,
        clients=clients,
        rounds=rounds,
        settings=settings,
        policy=policy,
        layout=layout,
        network=runs.network_of(settings, data),
        initial=initial,
        images=torch.cat([data.train.images, data.test.images]),
        labels=torch.cat([data.train.labels, data.test.labels]),
        parts={name: np.asarray(data.parts[name]) for name in clients},
        anchors=anchors,
        own=own,
        held_out=held_out + len(data.train),
    )


def _refuse_too_few_clients(client: str, clients: int, policy: Policy, settings: Settings) -> None:
    # of anchored clusters whole ones take part, gaps and all
    participants = clients - 1 if policy.anchored else participants_of(clients - 1, settings.training.fraction)
    if participants < policy.k:
        raise ConfigError(
            f"without {escaped(client)} only {participants} participants are left, fewer than k = {policy.k}: "
            "there is no model retrained without it to compare with"
        )


def _refuse_too_few_records(client: str, own: Indices, held_out: Indices) -> None:
    if min(len(own), len(held_out)) < FEWEST_RECORDS:
        raise ConfigError(
            f"{escaped(client)} holds {len(own)} records, and {len(held_out)} held-out ones have their labels; "
            f"an audit needs at least {FEWEST_RECORDS} of each"
        )


def _refuse(ledger: Ledger, client: str) -> None:
    if client not in ledger.clients():
        raise UnknownClient(f"{client!r} is not a client of this run, or has left it; an audit is for one still in")
    if ledger.last_round == 0:
        raise ConfigError(f"no round stands in {ledger.directory}: there is no model to attack yet")
    waiting = [request for request in ledger.requests() if request.pending]
    if waiting:
        those = "1 request is" if len(waiting) == 1 else f"{len(waiting)} requests are"
        raise ConfigError(
            f"{those} not answered yet in {ledger.directory}; `disavow resume {ledger.directory}` answers them, "
            "then audit"
        )


def _alike(data: FederatedData, own: Indices, seed: int) -> Indices:
    """Held-out records with the labels of the own ones (their strata, where images have attributes), as many of
    each where there are so many.
    """
    stream = training_stream(seed, "audit, held out")
    wanted = np.bincount(data.train.groups[torch.from_numpy(own)].numpy())
    labels = data.test.groups.numpy()
    order = stream.permutation(len(labels))
    chosen = [order[labels[order] == label][:count] for label, count in enumerate(wanted)]
    return np.sort(np.concatenate(chosen))
