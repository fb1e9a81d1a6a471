"""What every mechanism owes: one suite, inherited by one test class a mechanism; and the toy federation it runs on.

    class TestRetrain(MechanismContract):
        def make(self) -> Mechanism: ...

The toy federation is real in everything but its training: ledger, journal, clusters, draws and files are those of
any run, and a round takes milliseconds.
"""

from __future__ import annotations

import atexit
import shutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from disavow import config, runs
from disavow.config import Settings
from disavow.data import client_ids
from disavow.domain import ErasureRequest, Evaluation, Layout, TensorSpec
from disavow.erasure.dry_run import foresee
from disavow.erasure.mechanisms import Mechanism, Work, build
from disavow.erasure.proof_files import default_openings, opening_path, proof_path
from disavow.erasure.receipts import receipts
from disavow.federation import Callbacks, Federation
from disavow.ledger import Ledger, RoundSummary, fsck, journal, log
from disavow.ledger.id_search import files_with
from disavow.ledger.keyring import FOLDER
from disavow.ledger.keys import default_folder
from disavow.ledger.members import Filled
from disavow.ledger.schema import rounds
from disavow.proof.notes import Signer
from disavow.proof.verify import Report, TrustedKey, VerificationInputs, verify
from disavow.rounds.randomness import training_stream
from disavow.rounds.vectors import Model, Updates
from tests.ledger.making import files_of
from tests.proof import second_verifier as second
from tests.rounds.builders import MOMENT

SIGNER = Signer("fl.example", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
LAYOUT = Layout((TensorSpec("body.weight", (3, 2)), TensorSpec("body.bias", (2,))))


@dataclass(frozen=True)
class ToyEngine:
    """Clients pull the model towards places of their own, with a jitter of each round."""

    seed: int
    jitter: float = 0.5

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        """See `Engine`."""
        share = 0.2 if epochs is None else 0.1 * epochs
        rows = [share * self._one(model, client, round_number) for client in clients]
        samples = tuple(5 + len(client) + int(client[-1], 36) % 4 for client in clients)
        return Updates(tuple(clients), samples, torch.stack(rows))

    def _one(self, model: Model, client: str, round_number: int) -> torch.Tensor:
        size = model.layout.size
        home = training_stream(self.seed, "home", client=client).normal(size)
        jitter = training_stream(self.seed, "jitter", round_number=round_number, client=client).normal(size)
        return (home + self.jitter * jitter).float() - model.vector

    def evaluate(self, model: Model) -> Evaluation:
        """See `Engine`."""
        loss = float(model.vector.double().square().mean())
        return Evaluation(1 / (1 + loss), loss)

    def close(self) -> None:
        """See `Engine`."""


def toy_settings(clients: int = 9, **changed: Any) -> Settings:
    """Settings of a toy run: k = 3, x = 2, sticky clusters, seeded draws; a table is merged, not replaced."""
    values: dict[str, Any] = {
        "seed": 3,
        "rounds": 4,
        "draws": "seeded",
        "data": {"clients": clients},
        "training": {"epochs": 2},
        "clustering": {"k": 3},
        "deniability": {"x": 2},
    }
    for name, value in changed.items():
        values[name] = {**values.get(name, {}), **value} if isinstance(value, dict) else value
    return config.from_values(values, source="tests")


def start_toy(
    directory: Path,
    settings: Settings,
    *,
    ids: Sequence[str] = (),
    keys: Path | None = None,
    signer: Signer | None = None,
) -> Federation:
    """A new toy run; its keyring is with all others unless a folder for keys is given."""
    ledger = Ledger.create(
        directory,
        policy=settings.policy,
        layout=LAYOUT,
        initial=np.linspace(-1, 1, LAYOUT.size, dtype=np.float32),
        clients=ids or client_ids(settings.data.clients),
        config=config.to_toml(settings),
        created_by="tests",
        at=MOMENT,
        signer=signer,
        keys=keys,
        models_at=settings.ledger.models,
    )
    return _assembled(settings, ledger, keys)


_kept: dict[str, Path] = {}
"""Toy runs that were trained in this process, by their settings; their keyrings are beside them."""


def trained_toy(directory: Path, settings: Settings) -> Federation:
    """A trained toy run: a copy of one that was trained before with the same settings, if there is one.

    Copies go by one keyring: where a test has one already, the next is trained as a run of its own.
    """
    text = config.to_toml(settings)
    if text not in _kept:
        folder = TemporaryDirectory(prefix="disavow-toys-")
        atexit.register(folder.cleanup)
        _kept[text] = Path(folder.name)
        with start_toy(_kept[text] / "run", settings, keys=_kept[text] / "keys") as run:
            run.train()
    [keyring] = (_kept[text] / "keys" / FOLDER).iterdir()
    used = default_folder() / FOLDER / keyring.name
    if used.exists():
        run = start_toy(directory, settings)
        run.train()
        return run
    used.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copytree(keyring, used)
    shutil.copytree(_kept[text] / "run", directory)
    return reopen_toy(directory)


def reopen_toy(directory: Path, *, keys: Path | None = None) -> Federation:
    """A toy run that was started before, as another process would open it."""
    return _assembled(runs.settings_of(directory), Ledger.open(directory, write=True, keys=keys), keys)


def _assembled(settings: Settings, ledger: Ledger, keys: Path | None) -> Federation:
    engine = ToyEngine(settings.seed)
    return Federation(ledger.directory, settings, ledger, keys or default_folder(), own_engine=engine)


def ask(run: Federation, *clients: str) -> tuple[int, ...]:
    """Place requests and leave them waiting; of who was forgotten, find that which its opening tells of."""
    asking = [client for client in clients if not run.ledger.has_left(client)]
    placed = dict(zip(asking, run.ledger.place_requests(asking, at=MOMENT), strict=True))
    found = {client: run.request_of(client) for client in clients if client not in placed}
    placed |= {client: request.number for client, request in found.items() if request is not None}
    return tuple(placed[client] for client in clients)


def leave(run: Federation, *clients: str) -> tuple[ErasureRequest, ...]:
    """Place requests and see them answered."""
    numbers = ask(run, *clients)
    run.answer()
    return run.ledger.requests(numbers)


def standing(ledger: Ledger) -> list[RoundSummary]:
    """The rounds that stand."""
    return [summary for summary in ledger.summaries() if summary.standing]


def digests(ledger: Ledger) -> list[str]:
    """The models of the rounds that stand."""
    return [summary.after for summary in standing(ledger)]


def groups(ledger: Ledger, number: int) -> set[frozenset[str]]:
    """Who is with whom in a standing round."""
    return {frozenset(group) for group in ledger.membership(number)}


def faults(directory: Path, keys: Path | None = None) -> list[str]:
    """What fsck finds wrong."""
    return [str(finding) for finding in fsck(directory, keys=keys) if finding.fault]


def pair_first_together_in(ledger: Ledger, number: int, *, size: int = 3) -> tuple[str, str]:
    """Two clients who share a cluster of `size` for the first time in round `number`, and none as small before.

    With k = `size` = 3 and x = 2 their leaving together breaks that round first.
    """
    for pair in combinations(ledger.clients(), 2):
        together = [t for t in range(1, number + 1) if any(set(pair) <= g for g in groups(ledger, t))]
        small = [t for t in together if any(set(pair) <= g and len(g) == size for g in groups(ledger, t))]
        if small == [number]:
            return pair
    raise AssertionError(f"no two clients meet in a cluster of {size} first in round {number}")


def rolled_back(run: Federation, leavers: Sequence[str], to: int) -> None:
    """Withdraw and supersede as an erasure does, and stop before anything is rebuilt."""
    from disavow.domain import Verdict, VerdictKind

    ask(run, *leavers)
    with run.ledger._begin() as connection:
        erasure = journal.open_erasure(
            connection,
            run.ledger.members,
            journal.waiting(connection),
            Verdict(VerdictKind.ROLLBACK, to),
            mechanism=run.mechanism.name,
            at=MOMENT,
        )
        journal.supersede(connection, to, erasure)
        log.log_erasure(connection, run.ledger.members, erasure)


def participants(ledger: Ledger, number: int) -> set[str]:
    """Clients still in who took part in a standing round, with clusters or without."""
    return {client for client in ledger.clients() if number in ledger.rounds_with(client)}


def brought(ledger: Ledger, client: str) -> list[Filled]:
    """What a client brought to all recorded rounds."""
    with ledger._connect() as connection:
        headers = connection.execute(sa.select(rounds).order_by(rounds.c.id)).all()
        filled = [slot for row in headers for slot in ledger.members.of_round(connection, row).values()]
    return [slot for slot in filled if slot.client.id == client]


def rebuild_all(run: Federation, *, last: int) -> int:
    """Call the mechanism until there is nothing left to rebuild; how often."""
    calls = 0
    while ahead(run, last=last, most=1).steps:
        run.mechanism.rebuild_next(run.ledger, run.engine, run.options)
        calls += 1
    return calls


def ahead(
    run: Federation, *, last: int, leavers: Sequence[str] = (), first: int | None = None, most: int | None = None
) -> Work:
    """What the mechanism has before it, from the next round on unless said otherwise."""
    first = first or run.ledger.last_round + 1
    return run.mechanism.ahead(run.ledger, run.options, first=first, last=last, leavers=leavers, most=most)


def mates(run: Federation, count: int = 2) -> list[str]:
    """Clients of one cluster of round 1: two of three leaving breaks it, where x = 2."""
    return sorted(run.ledger.membership(1)[0])[:count]


@dataclass(frozen=True)
class Failing(ToyEngine):
    """Dies after so many calls, as a power cut would have it."""

    calls: Counter[str] = field(default_factory=Counter)
    most: int = 2

    def train(
        self, model: Model, clients: Sequence[str], round_number: int, *, epochs: int | None = None
    ) -> Updates:
        self.calls["train"] += 1
        if self.calls["train"] >= self.most:
            raise KeyboardInterrupt
        return super().train(model, clients, round_number, epochs=epochs)


class MechanismContract(ABC):
    """Rebuilds superseded rounds one at a time, with the survivors, from the model of before."""

    @abstractmethod
    def make(self) -> Mechanism:
        """The mechanism under test."""

    def trained(self, directory: Path, *, signer: Signer | None = None, **changed: Any) -> Federation:
        """A trained toy run that rebuilds with the mechanism under test."""
        settings = toy_settings(**{"rounds": 6, "mechanism": {"name": self.make().name}, **changed})
        if signer is None:
            return trained_toy(directory, settings)
        run = start_toy(directory, settings, signer=signer)
        run.train()
        return run

    def test_it_says_what_it_is(self) -> None:
        mechanism = self.make()
        assert mechanism.name
        assert isinstance(mechanism.exact, bool)
        assert build(toy_settings(mechanism={"name": mechanism.name}).mechanism) == mechanism

    def test_it_never_goes_back_to_a_later_round_than_the_one_that_broke(self) -> None:
        assert all(1 <= self.make().goes_back_to(broken) <= broken for broken in range(1, 20))

    def test_one_call_rebuilds_one_round_from_the_model_of_before_without_the_leavers(self, tmp_path: Path) -> None:
        with self.trained(tmp_path / "run") as run:
            rolled_back(run, ["client-04"], 3)
            before = run.ledger.digest_before(3)
            run.mechanism.rebuild_next(run.ledger, run.engine, run.options)
            assert run.ledger.next_round() == (4, 2)
            assert run.ledger.summary(3).attempt == 2
            assert run.ledger.digest_before(3) == before
            assert participants(run.ledger, 3) == set(run.ledger.clients())
            assert "client-04" not in run.ledger.clients()
        assert faults(tmp_path / "run") == []

    def test_call_after_call_rounds_follow_one_another_without_a_gap(self, tmp_path: Path) -> None:
        with self.trained(tmp_path / "run") as run:
            rolled_back(run, ["client-04", "client-05"], 1)
            foreseen = ahead(run, last=6)
            assert foreseen.obstacle is None
            assert rebuild_all(run, last=6) == len(foreseen.steps) > 1
            numbers = range(1, len(foreseen.steps) + 1)
            assert [(s.number, s.attempt) for s in standing(run.ledger)] == [(n, 2) for n in numbers]
        assert faults(tmp_path / "run") == []

    def test_each_round_starts_from_the_model_of_the_one_before_it(self, tmp_path: Path) -> None:
        with self.trained(tmp_path / "run") as run:
            leave(run, *mates(run))
            models = [run.ledger.initial_model, *digests(run.ledger)]
            numbers = range(1, len(models))
            assert [run.ledger.digest_before(number) for number in numbers] == models[:-1]
            assert [run.ledger.summary(number).after for number in numbers] == models[1:]

    def test_a_rebuilt_model_is_not_the_one_it_replaces(self, tmp_path: Path) -> None:
        with self.trained(tmp_path / "run") as run:
            old = digests(run.ledger)
            leave(run, *mates(run))
            assert not set(old) & set(digests(run.ledger))

    def test_interrupted_between_rounds_it_goes_on_to_the_same_models(self, tmp_path: Path) -> None:
        ends = []
        for name, interrupted in (("one", False), ("two", True)):
            run = self.trained(tmp_path / name)
            rolled_back(run, ["client-01"], 2)
            while ahead(run, last=6, most=1).steps:
                run.mechanism.rebuild_next(run.ledger, run.engine, run.options)
                if interrupted:
                    run.close()
                    run = reopen_toy(tmp_path / name)
            ends.append(digests(run.ledger))
            run.close()
        assert ends[0] == ends[1]

    @pytest.mark.parametrize("calls", [1, 2])
    def test_interrupted_in_an_erasure_it_ends_as_if_nothing_had_happened(self, tmp_path: Path, calls: int) -> None:
        with self.trained(tmp_path / "one") as run:
            pair = mates(run)
            leave(run, *pair)
            end = digests(run.ledger)
        with self.trained(tmp_path / "two") as run:
            ask(run, *pair)
            engine = Failing(run.options.seed, most=calls)
            with pytest.raises(KeyboardInterrupt):
                replace(run, own_engine=engine).answer()
        assert faults(tmp_path / "two") == []
        with reopen_toy(tmp_path / "two") as run:
            assert len(run.answer()) == 2
            assert digests(run.ledger) == end
        assert faults(tmp_path / "two") == []

    def test_no_leaver_is_left_anywhere(self, tmp_path: Path) -> None:
        with self.trained(tmp_path / "run") as run:
            pair = mates(run)
            contributed = [filled for client in pair for filled in brought(run.ledger, client)]
            assert contributed
            folder = run.ledger.keyring.folder
            leave(run, *pair)
            assert not set(pair) & set(run.ledger.clients())
            for filled in contributed:
                assert not run.ledger.updates.path(filled).exists()
        for client in pair:
            assert files_with(tmp_path / "run", client) == []
            assert files_with(folder, client) == []
        assert faults(tmp_path / "run") == []

    @pytest.mark.parametrize("leavers", [1, 2, 3, 6, 7])
    def test_the_dry_run_foresees_what_happens(self, tmp_path: Path, leavers: int) -> None:
        with self.trained(tmp_path / "run") as run:
            those = [client for group in run.ledger.membership(1) for client in sorted(group)][:leavers]
            foreseen = foresee(run.ledger, those, run.options, run.mechanism)
            [*_, request] = leave(run, *those)
            assert request.verdict == foreseen.verdict
            assert request.cost is not None
            assert replace(request.cost, seconds=0.0) == replace(foreseen.cost, seconds=0.0)
            assert run.ledger.last_round == foreseen.served
            assert (foreseen.obstacle or "") in request.remark
            assert request.approximate == (foreseen.approximate and foreseen.cost.rounds > 0)
        assert faults(tmp_path / "run") == []

    def test_a_second_request_is_honoured_after_a_first(self, tmp_path: Path) -> None:
        with self.trained(tmp_path / "run", clients=12) as run:
            leave(run, *mates(run))
            run.train()
            assert run.ledger.last_round == 6
            leaver = run.ledger.clients()[0]
            foreseen = foresee(run.ledger, [leaver], run.options, run.mechanism)
            [request] = leave(run, leaver)
            assert request.verdict == foreseen.verdict
            assert run.ledger.last_round == foreseen.served
            assert leaver not in run.ledger.clients()
            run.train()
            assert run.ledger.last_round == 6
        assert faults(tmp_path / "run") == []

    def test_who_asks_while_rounds_are_rebuilt_is_answered_too(self, tmp_path: Path) -> None:
        with self.trained(tmp_path / "run", clients=12) as run:
            ask(run, *mates(run))
            late = sorted(run.ledger.membership(1)[1])[:2]

            def asks(summary: RoundSummary) -> None:
                if summary.number == 2 and set(late) <= set(run.ledger.clients()):
                    ask(run, *late)

            run.answer(Callbacks(on_round=asks))
            assert {request.state.value for request in run.ledger.requests()} == {"answered"}
            assert len(run.ledger.requests()) == 4
            assert len(run.ledger.clients()) == 8
            run.train()
            assert [s.number for s in standing(run.ledger)] == list(range(1, 7))
        assert faults(tmp_path / "run") == []
        for client in late:
            assert files_with(tmp_path / "run", client) == []

    def test_its_proofs_hold_by_both_verifiers(self, tmp_path: Path) -> None:
        with self.trained(tmp_path / "run", clients=12, signer=SIGNER) as run:
            pair = mates(run)
            kept = [data for _, data in receipts(run.ledger, pair[0], SIGNER)]
            for request, client in zip(leave(run, *pair), pair, strict=True):
                report = verified(run, request.number, kept if client == pair[0] else [])
                assert report.opening is not None
                assert report.opening.client == client
                assert report.history is not None
                assert (report.history.rebuilt == 0) == run.mechanism.exact
            run.train()
            leaver = run.ledger.clients()[0]
            kept = [data for _, data in receipts(run.ledger, leaver, SIGNER)]
            assert len(kept) == 6
            [request] = leave(run, leaver)
            verified(run, request.number, kept)
        assert faults(tmp_path / "run") == []

    def test_the_obstacle_foreseen_is_the_obstacle_met(self, tmp_path: Path) -> None:
        seen = []
        for name, leavers in (("few", 6), ("too many", 7)):
            with self.trained(tmp_path / name) as run:
                those = run.ledger.clients()[:leavers]
                foreseen = ahead(run, first=1, last=6, leavers=those)
                rolled_back(run, those, 1)
                assert ahead(run, last=6) == foreseen
                seen.append(foreseen)
        assert (seen[0].obstacle, bool(seen[0].steps)) == (None, True)
        assert seen[1].obstacle
        assert not seen[1].steps

    def test_where_nothing_can_be_rebuilt_the_rollback_still_happens(self, tmp_path: Path) -> None:
        with self.trained(tmp_path / "run") as run:
            [*_, request] = leave(run, *run.ledger.clients()[:7])
            assert request.verdict is not None
            assert request.verdict.round == 1
            assert "fewer than k = 3" in request.remark
            assert request.remark.endswith("the initial model is served")
            assert standing(run.ledger) == []
        assert faults(tmp_path / "run") == []

    def test_looking_ahead_changes_nothing(self, tmp_path: Path) -> None:
        self.trained(tmp_path / "run").close()
        before = files_of(tmp_path / "run")
        with Ledger.open(tmp_path / "run") as ledger:
            options = runs.round_options(runs.settings_of(tmp_path / "run"))
            for leavers in range(10):
                self.make().ahead(ledger, options, first=1, last=6, leavers=ledger.clients()[:leavers])
        assert files_of(tmp_path / "run") == before

    def test_where_there_is_nothing_to_rebuild_there_is_no_work(self, tmp_path: Path) -> None:
        with self.trained(tmp_path / "run") as run:
            assert ahead(run, first=7, last=6) == Work()


def verified(run: Federation, request: int, receipts: Sequence[bytes]) -> Report:
    """The report of a request's proof with its opening and receipts, which both verifiers must accept."""
    directory = run.ledger.directory
    proof = proof_path(directory, request).read_bytes()
    opening = opening_path(default_openings(directory), run.ledger.run_id, request).read_bytes()
    keys = f"{SIGNER.public}\n".encode()
    assert second.verify(proof, keys, opening=opening, receipts=list(receipts)) == (0, None)
    return verify(VerificationInputs(proof, [TrustedKey(SIGNER.public)], opening=opening, receipts=receipts))
