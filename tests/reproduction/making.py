"""Result lines that look like those of real runs. They are inventions, for tests alone."""

from __future__ import annotations

import hashlib
import math
import random
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from reproduction.lines import (
    EDITION,
    PLAIN,
    UNCLUSTERED,
    ClusterWidth,
    Disk,
    Hidden,
    Line,
    Method,
    NeededDelta,
    Network,
    PaperRow,
    Request,
    Round,
    RowName,
    Versions,
)
from reproduction.odds_lines import OddsLine
from reproduction.selection import possible_xs
from reproduction.work_report import Interval, WorkCell, WorkReport

ROWS: tuple[PaperRow, ...] = get_args(PaperRow)
VERSIONS = Versions(disavow="0.1.0", python="3.11.9", torch="2.13.0", numpy="2.4.1")
REACHED = {"MNIST": 0.96, "FMNIST": 0.8, "CIFAR10": 0.44, "CelebA": 0.86}
PARAMETERS = {"lenet5": 51_902, "resnet-mini": 17_986, "convnet": 186_692}
CLIENTS, EPOCHS, SECONDS = 50, 3, 0.12
Kind = Literal["trained", "retrained", "rebuilt"]


NEEDED_DELTA = NeededDelta(
    relative=tuple(1 + i / 20 for i in range(21)), fixed=tuple(2 + i / 10 for i in range(21))
)
"""As if clients were spread evenly: half of them need a relative Δ of 1.5, all of them one of 2."""


def line(
    row: RowName = "MNIST-iid",
    method: Method = "published",
    k: int = 4,
    x: int = 3,
    *,
    network: Network = "lenet5",
    seed: int = 1,
    rounds: int = 50,
    **changed: Any,
) -> Line:
    """A run with about ten requests; some roll back: oftener for small k, always for the baselines."""
    k, x = 1 if method in PLAIN else k, 1 if method in UNCLUSTERED else x
    run = _Run(row, method, k, x, network, seed)
    for number in range(1, rounds + 1):
        run.execute(number, "trained")
        if run.requests_drawn.random() < 0.2:
            run.ask(number)
    sizes = run.sizes(rounds)
    said: dict[str, Any] = {
        "key": hashlib.sha256(f"{row} {network} {method} {k} {x} {seed} {rounds}".encode()).hexdigest(),
        "row": row,
        "network": network,
        "method": method,
        "k": k,
        "x": x,
        "seed": seed,
        "quick": False,
        "settings": {"rounds": rounds, "seed": seed, "clustering": {"k": k, "sticky": method == "sticky"}},
        "versions": VERSIONS,
        "device": "NVIDIA H200",
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "rounds": tuple(run.rounds),
        "requests": tuple(run.requests),
        "accuracy": run.rounds[-1].accuracy,
        "seconds": sum(done.seconds for done in run.rounds),
        "client_epochs": sum(done.client_epochs for done in run.rounds),
        "bytes": Disk(**sizes, total=sum(sizes.values())),
        "distance_to_fedavg": run.distances(rounds),
        "edition": EDITION,
        "width": None
        if method in UNCLUSTERED
        else ClusterWidth(over_update=1.4, over_random=0.95, pairs_within=0.98),
        "hidden": None if method in UNCLUSTERED else Hidden(median_composed=30.5, worst_composed=45.0),
        "needed_delta": None if method in UNCLUSTERED else NEEDED_DELTA,
    }
    return Line(**said | changed)


def grid(
    network: Network = "lenet5", seeds: tuple[int, ...] = (1,), rows: tuple[PaperRow, ...] = ROWS
) -> list[Line]:
    """Every run that a table needs."""
    found: list[Line] = []
    for row in rows:
        for seed in seeds:
            found += [line(row, method, network=network, seed=seed) for method in ("fedavg", "federaser")]
            found += [line(row, "fedavg-sampled", k, network=network, seed=seed) for k in (4, 6, 8, 10)]
            found += [
                line(row, method, k, x, network=network, seed=seed)
                for method in ("published", "sticky", "sticky-3")
                for k in (4, 6, 8, 10)
                for x in possible_xs(method, k)
            ]
    return found


@dataclass
class _Run:
    row: str
    method: str
    k: int
    x: int
    network: str
    seed: int
    rounds: list[Round] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    clients: int = CLIENTS

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.row} {self.method} {self.k} {self.x} {self.network} {self.seed}")
        self.requests_drawn = random.Random(f"{self.row} {self.seed}")  # every method meets the same requests
        self.attempts: dict[int, int] = {}

    def execute(self, number: int, kind: Kind) -> Round:
        self.attempts[number] = self.attempts.get(number, 0) + 1
        level = REACHED[self.row.partition("-")[0]] - (0.02 if self.method == "federaser" else 0.004 * (self.k > 1))
        accuracy = 0.1 + (level - 0.1) * (1 - math.exp(-number / 6)) + self.chance.uniform(-0.004, 0.004)
        done = Round(
            number=number,
            attempt=self.attempts[number],
            kind=kind,
            accuracy=accuracy,
            seconds=SECONDS * self.clients / CLIENTS * self.chance.uniform(0.95, 1.1),
            client_epochs=self.clients * EPOCHS * (0.5 if kind == "rebuilt" else 1.0),
            shared=False,
        )
        self.rounds.append(done)
        return done

    def ask(self, number: int) -> None:
        self.clients -= 1
        again: list[Round] = []
        to_round: int | None = None
        odds = (
            2.0
            if self.method in UNCLUSTERED
            else (0.35 if self.method == "published" else 0.12) * self.x / self.k * 2
        )
        if self.chance.random() < odds:
            to_round = 1 if self.method in UNCLUSTERED else self.chance.randint(1, number)
            kind: Kind = "rebuilt" if "federaser" in self.method else "retrained"
            again = [self.execute(one, kind) for one in range(to_round, number + 1)]
        self.requests.append(
            Request(
                after_round=number,
                verdict="deniable" if to_round is None else "rollback",
                to_round=to_round,
                rounds=len(again),
                client_epochs=sum(done.client_epochs for done in again),
                seconds=sum(done.seconds for done in again) + 0.015,
            )
        )

    def sizes(self, rounds: int) -> dict[str, int]:
        model = 4 * PARAMETERS[self.network]
        # compressed they are three quarters as large
        kept = {"federaser": 0.75 * (rounds // 2), "federaser-1": 0.75 * rounds, "federaser-plain": rounds}
        updates = int(model * CLIENTS * kept.get(self.method, 0))
        models = model * (12 if self.method == "retention" else rounds + 1)
        return {"models": models, "updates": updates, "database": 600_000, "other": 4_000}

    def distances(self, rounds: int) -> tuple[float, ...] | None:
        if self.method == "fedavg":
            return None
        return tuple(
            0.3 * (1 + 0.1 * self.k) * math.sqrt(t) + self.chance.uniform(0, 0.05) for t in range(1, rounds + 1)
        )


def odds_lines(
    numbers: tuple[int, ...] = (50, 200, 1_000, 4_000), seeds: tuple[int, ...] = (1, 2, 3)
) -> list[OddsLine]:
    """Runs whose accuracy falls with σ and whose odds fall with σ and with the number of clusters."""
    found = []
    for clients in numbers:
        for sigma in (0.03, 0.1, 0.3, 1.0):
            for seed in seeds:
                chance = random.Random(f"{clients} {sigma} {seed}")
                fedavg = 0.96 - 0.02 * math.log10(clients / 50) + chance.uniform(-0.003, 0.003)
                s = 1 / (sigma * math.sqrt(clients / 10))
                gamma, composed = ((v * v / 2 + 1.645 * v) / math.log(10) for v in (s, s * math.sqrt(50)))
                cost = min(0.8, 0.05 * (sigma / 0.1) ** 1.2 * 50 / clients)
                found.append(
                    OddsLine(
                        key=hashlib.sha256(f"{clients} {sigma} {seed}".encode()).hexdigest(),
                        clients=clients,
                        samples_per_client=60_000 // clients,
                        k=10,
                        sigma=sigma,
                        seed=seed,
                        rounds=50,
                        network="lenet5",
                        device="NVIDIA H200",
                        commit="0123456789abcdef0123456789abcdef01234567",
                        versions=VERSIONS,
                        accuracy=fedavg - cost * chance.uniform(0.8, 1.2),
                        fedavg_accuracy=fedavg,
                        log10_gamma_round=gamma * chance.uniform(0.9, 1.1),
                        log10_gamma_composed=composed * chance.uniform(0.9, 1.1),
                        worst_round=gamma * 1.3,
                        worst_composed=composed * 1.2,
                        seconds=12.0,
                    )
                )
    return found


def work_report(streams: int = 200) -> WorkReport:
    """Less work for larger k and smaller x, and for sticky clusters."""
    cells = [work_cell("fedavg", 1, 1, 3_000.0)]
    for k in (4, 6, 8, 10):
        for x in (2, 3, 4):
            mean = 3_000.0 * min(1.0, (x / k) ** 2)
            cells += [work_cell("published", k, x, mean), work_cell("sticky", k, x, mean / (2 + k - x))]
    return WorkReport(
        clients=50, rounds=50, epochs=3, request_rate=0.2, streams=streams, seed=1, cells=tuple(cells)
    )


def interval(mean: float) -> Interval:
    return Interval(mean=mean, low=0.85 * mean, high=1.2 * mean)


def work_cell(method: Method, k: int, x: int, mean: float) -> WorkCell:
    ratio = 3_000.0 / mean
    return WorkCell(
        k=k,
        x=x,
        method=method,
        answering=interval(mean),
        run=interval(mean + 700.0),
        deleting=interval(mean + 1_300.0),
        ratio=ratio,
        ratio_low=ratio / 1.2,
        ratio_high=ratio / 0.85,
    )
