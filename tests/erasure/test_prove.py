"""Every erasure leaves a proof that holds, made while what it opens is there, and nothing that names anybody."""

from __future__ import annotations

import base64
import json
import random
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations, count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from disavow import config, runs
from disavow.data import client_ids
from disavow.domain import RequestState, VerdictKind
from disavow.erasure.judge import judge
from disavow.erasure.prove import (
    check_openings,
    default_openings,
    opening_path,
    proof_path,
    prove_what_if,
    renew,
    sign_late,
    unsigned_path,
    what_if_path,
)
from disavow.erasure.receipts import receipts, receipts_of_round
from disavow.errors import ConfigError, IntegrityError, LedgerError, UnknownClient, VerificationError
from disavow.federation import Callbacks, Federation
from disavow.ledger import Ledger, fsck, journal, log
from disavow.ledger.absent import files_with
from disavow.ledger.clients import numbers_of
from disavow.ledger.evidence import evidence
from disavow.ledger.files import write_durably
from disavow.ledger.proofs import ProofStore
from disavow.ledger.schema import clients, memberships, requests
from disavow.proof import canonical
from disavow.proof.envelope import Envelope
from disavow.proof.notes import Signer
from disavow.proof.opening import Opening
from disavow.proof.verify import Asked, Report, TrustedKey, examine, verify
from tests.erasure.mechanisms.contract import (
    LAYOUT,
    ToyEngine,
    ask,
    leave,
    pair_first_together_in,
    standing,
    toy_settings,
)
from tests.ledger.making import files_of
from tests.rounds.builders import MOMENT

SERVER = Signer("fl.example", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
SUCCESSOR = Signer("fl.example", Ed25519PrivateKey.from_private_bytes(b"s" * 32))

CLUSTER: dict[str, Any] = {"clustering": {"sticky": False}, "deniability": {"x": 2}}
TWO_DRAWN: dict[str, Any] = {"clustering": {"sticky": False, "representatives": 2}, "deniability": {"x": 1}}
DRAWN = pytest.mark.parametrize("changed", [CLUSTER, TWO_DRAWN], ids=["one drawn", "two drawn"])


def start(directory: Path, signer: Signer | None = SERVER, *, number: int = 9, **changed: Any) -> Federation:
    settings = toy_settings(number, **changed)
    ledger = Ledger.create(
        directory,
        policy=settings.policy,
        layout=LAYOUT,
        initial=np.linspace(-1, 1, LAYOUT.size, dtype=np.float32),
        clients=client_ids(number),
        config=config.to_toml(settings),
        created_by="tests",
        at=MOMENT,
        signer=signer,
    )
    return assembled(ledger)


def trained(directory: Path, signer: Signer | None = SERVER, *, number: int = 9, **changed: Any) -> Federation:
    run = start(directory, signer, number=number, **changed)
    run.train()
    return run


def reopened(directory: Path, signer: Signer | None = SERVER) -> Federation:
    return assembled(Ledger.open(directory, write=True, signer=signer))


def assembled(ledger: Ledger) -> Federation:
    settings = runs.settings_of(ledger.directory)
    keys = ledger.directory.with_name("keys")
    return Federation(ledger.directory, settings, ledger, keys, own_engine=ToyEngine(settings.seed))


def trust(*signers: Signer) -> list[TrustedKey]:
    return [TrustedKey(signer.public) for signer in signers or (SERVER,)]


def opening_of(run: Federation | Path, request: int) -> bytes:
    directory = run if isinstance(run, Path) else run.ledger.directory
    with Ledger.open(directory) as ledger:
        return opening_path(default_openings(directory), ledger.run_id, request).read_bytes()


def signed_late(run: Federation, request: int) -> bytes:
    return sign_late(run.ledger, unsigned_path(run.ledger.directory, request).read_bytes(), SERVER)


def proof_of(run: Federation | Path, request: int) -> bytes:
    return proof_path(run if isinstance(run, Path) else run.ledger.directory, request).read_bytes()


def held(run: Federation | Path, request: int, client: str, **more: Any) -> Report:
    """The report of a request's proof, which must hold and name this client."""
    if "checkpoint" in more:
        more["checkpoint"] = more["checkpoint"].encode()
    asked = Asked(
        proof=proof_of(run, request),
        opening=opening_of(run, request),
        **{"trusted": trust(), **more},
    )
    report = verify(asked)
    assert report.opening is not None
    assert report.opening.client == client
    return report


def received(run: Federation, client: str) -> list[bytes]:
    return [data for _, data in receipts(run.ledger, client, run.ledger.signer)]


def predicate_of(report: Report) -> dict[str, Any]:
    assert report.statement is not None
    return report.statement.predicate.to_json()


def served(run: Federation) -> str:
    rounds = standing(run.ledger)
    return rounds[-1].after if rounds else run.ledger.initial_model


def deniable_client(run: Federation) -> str:
    for client in run.ledger.clients():
        try:
            prove_what_if(run.ledger, client)
        except LedgerError:
            continue
        return client
    raise AssertionError("nobody is deniable")


def pair_that_breaks(run: Federation) -> tuple[str, str]:
    """Two who cannot both leave without a rollback, not to round 1 if there are such."""
    policy = run.ledger.policy
    found: dict[int, tuple[str, str]] = {}
    with run.ledger._connect() as connection:
        for pair in combinations(run.ledger.clients(), 2):
            touched = evidence(connection, list(numbers_of(connection, pair).values()), policy)
            verdict = judge(touched, policy)
            found.setdefault(verdict.round or 0, pair)
    return next(pair for first, pair in sorted(found.items(), reverse=True) if first)


def detail(report: Report, name: str) -> str:
    [found] = [result.detail for result in report.results if result.name == name]
    return found


# -- every erasure -----------------------------------------------------------------------------------------------


@DRAWN
def test_a_deniable_erasure_leaves_a_proof_that_holds(tmp_path: Path, changed: dict[str, Any]) -> None:
    with trained(tmp_path / "run", **changed) as run:
        client = deniable_client(run)
        [request] = leave(run, client)
        assert request.verdict is not None
        assert request.verdict.kind is VerdictKind.DENIABLE
        report = held(run, 1, client, model=served(run))
        assert [result.passed for result in report.results].count(False) == 0
        assert predicate_of(report)["verdict"] == {"kind": "deniable", "from": None}
        assert len(report.survivors) == len(report.bounds) == 4
        assert min(report.survivors) >= 2
        nameless = verify(Asked(proof=proof_of(run, 1), trusted=trust()))
        assert nameless.valid
        assert not nameless.named
    assert fsck(tmp_path / "run") == []


@DRAWN
def test_a_rollback_leaves_proofs_that_hold_about_the_retrained_model(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    with trained(tmp_path / "run", **changed) as run:
        before = served(run)
        pair = pair_that_breaks(run)
        answered = leave(run, *pair)
        verdict = answered[0].verdict
        assert verdict is not None
        assert verdict.kind is VerdictKind.ROLLBACK
        assert served(run) != before
        for number, client in enumerate(pair, start=1):
            report = held(run, number, client, model=served(run))
            said = predicate_of(report)
            assert said["verdict"] == {"kind": "rollback", "from": verdict.round}
            assert len(said["clusters"]) == (verdict.round or 0) - 1
            assert len(said["rounds"]["superseded"]) == 4 - len(said["clusters"])
            with pytest.raises(VerificationError, match=r"check 16 \(model\)"):
                held(run, number, client, model=before)
    assert fsck(tmp_path / "run") == []


def test_a_rollback_to_an_earlier_round_than_the_broken_one_leaves_proofs_that_hold(tmp_path: Path) -> None:
    """All but the first and the last checkpoint are thinned: it goes back to round 1, wherever it broke."""
    with trained(tmp_path / "run", ledger={"retention": 1}, **CLUSTER) as run:
        pair = pair_that_breaks(run)
        verdict = leave(run, *pair)[0].verdict
        assert verdict is not None
        assert verdict.round is not None
        assert (verdict.round > 1, verdict.back_to) == (True, 1)
        for number, client in enumerate(pair, start=1):
            report = held(run, number, client, model=served(run))
            assert predicate_of(report)["verdict"] == {"kind": "rollback", "from": 1}
            assert detail(report, "verdict").startswith("rollback from round 1")
            assert predicate_of(report)["clusters"] == []
    assert fsck(tmp_path / "run") == []


@DRAWN
def test_who_was_never_there_gets_a_proof_of_that(tmp_path: Path, changed: dict[str, Any]) -> None:
    with trained(tmp_path / "run", **changed) as run:
        run.ledger.register(["newcomer"], key=run.tombstone_key())
        leave(run, "newcomer")
        report = held(run, 1, "newcomer")
        assert predicate_of(report)["verdict"]["kind"] == "never present"
        assert predicate_of(report)["clusters"] == []
    with start(tmp_path / "young", **changed) as run:
        leave(run, "client-01")
        report = held(run, 1, "client-01", model=run.ledger.initial_model)
        assert "never present" in detail(report, "verdict")


def test_everyone_of_a_batch_gets_a_proof_of_their_own(tmp_path: Path) -> None:
    with trained(tmp_path / "run", **CLUSTER) as run:
        run.ledger.register(["newcomer"], key=run.tombstone_key())
        batch = [*pair_first_together_in(run.ledger, 3), "newcomer"]
        leave(run, *batch)
        reports = [held(run, number, client) for number, client in enumerate(batch, start=1)]
        assert len({predicate_of(report)["withdrawal"] for report in reports}) == 1
        assert [predicate_of(report)["request"] for report in reports] == [0, 1, 2]
        kinds = [predicate_of(report)["verdict"]["kind"] for report in reports]
        assert kinds == ["rollback", "rollback", "never present"]
        for mine, other in ((1, 2), (2, 1), (1, 3), (3, 1)):
            crossed = Asked(proof=proof_of(run, mine), opening=opening_of(run, other), trusted=trust())
            with pytest.raises(VerificationError, match=r"check 14 \(opening\) failed"):
                verify(crossed)


def test_where_nobody_is_left_to_retrain_the_proof_is_about_the_model_that_is_served(tmp_path: Path) -> None:
    with trained(tmp_path / "run", number=4, deniability={"x": 3}) as run:
        leave(run, "client-01", "client-04")
        report = held(run, 1, "client-01", model=run.ledger.initial_model)
        assert predicate_of(report)["verdict"] == {"kind": "rollback", "from": 1}
        assert "0 stand" in detail(report, "rounds")
    assert fsck(tmp_path / "run") == []


@DRAWN
@pytest.mark.parametrize("seed", range(3))
def test_any_story_of_leaving_and_training_is_proved_to_its_end(
    tmp_path: Path, changed: dict[str, Any], seed: int
) -> None:
    """Some leave, more is trained, others leave; each proof holds when it is made, and with all receipts."""
    rng = random.Random(seed)
    most = 4 - changed["clustering"].get("representatives", 1)
    wide = {**changed, "deniability": {"x": rng.randint(1, most)}}
    with start(tmp_path / "run", number=14, seed=seed + 3, **wide) as run:
        kinds, older, rounds = set(), [], 2
        for _ in range(4):
            replace(run, settings=run.settings.model_copy(update={"rounds": rounds})).train()
            rounds += rng.randint(0, 1)
            leavers = rng.sample(run.ledger.clients(), rng.randint(1, 2))
            kept = {client: received(run, client) for client in leavers}
            with run.ledger._connect() as connection:
                older.append(log.signed_head(connection))
            for request, client in zip(leave(run, *leavers), leavers, strict=True):
                for note in older:
                    report = held(
                        run, request.number, client, receipts=kept[client], checkpoint=note, model=served(run)
                    )
                assert request.verdict is not None
                assert predicate_of(report)["verdict"]["kind"] == request.verdict.kind.value
                kinds.add(request.verdict.kind)
            for client in run.ledger.clients()[:3]:
                try:
                    made = prove_what_if(run.ledger, client)
                except LedgerError:
                    continue
                asked = Asked(made.sealed(SERVER), trust(), made.opening.encode(), received(run, client))
                assert verify(replace(asked, what_if=True)).valid
        assert kinds
    assert fsck(tmp_path / "run") == []


# -- renewed -------------------------------------------------------------------------------------------------------


def renewed(run: Federation, request: int, signer: Signer = SERVER) -> bytes:
    kept = Envelope.decode(proof_of(run, request)).payload
    return renew(run.ledger, kept, signer)


@DRAWN
@pytest.mark.parametrize("seed", range(4))
def test_every_proof_can_be_renewed_for_the_present_head_whatever_came_after_it(
    tmp_path: Path, changed: dict[str, Any], seed: int
) -> None:
    """Rounds, departures from the same clusters, rollbacks over the leaver's rounds; its opening stays."""
    rng, superseded = random.Random(seed), 0
    with start(tmp_path / "run", number=14, seed=seed + 30, **changed) as run:
        left: dict[int, str] = {}
        kept: dict[str, list[bytes]] = {}
        for rounds in (2, 3, 4, 4):
            replace(run, settings=run.settings.model_copy(update={"rounds": rounds})).train()
            leavers = rng.sample(run.ledger.clients(), rng.randint(1, 2))
            kept |= {client: received(run, client) for client in leavers}
            left |= {request.number: client for request, client in zip(leave(run, *leavers), leavers, strict=True)}
            for number, client in left.items():
                proof = renewed(run, number)
                asked = Asked(proof, trust(), opening_of(run, number), kept[client], model=served(run))
                report = verify(asked)
                assert report.opening is not None
                assert report.opening.client == client
                said = predicate_of(report)
                assert len(said["leaves"]) == log_size(run)
                assert said["verdict"] == predicate_of(held(run, number, client))["verdict"]
                superseded += len(report.opening.rounds) > len(said["clusters"])
    assert superseded or seed  # or nothing of the kind came up at all
    assert fsck(tmp_path / "run") == []


def log_size(run: Federation) -> int:
    with run.ledger._connect() as connection:
        return log.head_size(connection)


def test_a_proof_at_the_present_head_is_renewed_as_it_is(tmp_path: Path) -> None:
    with trained(tmp_path / "run", **CLUSTER) as run:
        client = deniable_client(run)
        leave(run, client)
        assert renewed(run, 1) == proof_of(run, 1)


def test_rounds_that_were_rebuilt_approximately_since_do_not_keep_a_proof_from_being_renewed(
    tmp_path: Path,
) -> None:
    more: dict[str, Any] = {**CLUSTER, "mechanism": {"name": "federaser", "interval": 1}}
    with trained(tmp_path / "run", number=14, **more) as run:
        client = deniable_client(run)
        leave(run, client)
        leave(run, *pair_that_breaks(run))
        report = verify(Asked(renewed(run, 1), trust(), opening_of(run, 1), model=served(run)))
        assert report.history is not None
        assert report.history.rebuilt


def test_a_renewed_proof_is_signed_with_the_key_that_replaced_the_one_before(tmp_path: Path) -> None:
    with trained(tmp_path / "run", **CLUSTER) as run:
        client = deniable_client(run)
        leave(run, client)
    with reopened(tmp_path / "run", SUCCESSOR) as run:
        proof = renewed(run, 1, SUCCESSOR)
        stolen = [TrustedKey(SERVER.public, revoked="2026-01-01T00:00:00.000000+00:00"), *trust(SUCCESSOR)]
        assert verify(Asked(proof, stolen, opening_of(run, 1))).named
        with pytest.raises(VerificationError):
            verify(Asked(proof_of(run, 1), stolen, opening_of(run, 1)))
        with pytest.raises(IntegrityError):
            renewed(run, 1, SERVER)  # the log names the new key


def test_a_statement_that_waits_for_a_key_can_be_renewed_too(tmp_path: Path) -> None:
    with trained(tmp_path / "run", None, **CLUSTER) as run:
        client = deniable_client(run)
        leave(run, client)
        leave(run, deniable_client(run))
        unsigned = unsigned_path(run.ledger.directory, 1).read_bytes()
        assert verify(Asked(renew(run.ledger, unsigned, SERVER), trust(), opening_of(run, 1))).named


def test_what_is_no_proof_of_this_run_is_not_renewed(tmp_path: Path) -> None:
    with trained(tmp_path / "run", **CLUSTER) as run, trained(tmp_path / "other", seed=8, **CLUSTER) as other:
        leave(run, deniable_client(run))
        leave(other, deniable_client(other))
        foreign = Envelope.decode(proof_of(other, 1)).payload
        with pytest.raises(IntegrityError):
            renew(run.ledger, foreign, SERVER)
        statement = json.loads(Envelope.decode(proof_of(run, 1)).payload)
        statement["predicate"]["clusters"][0]["slot"] ^= 1
        leave(run, deniable_client(run))
        with pytest.raises(IntegrityError):
            renew(run.ledger, canonical.encode(statement), SERVER)


def test_nothing_is_renewed_while_a_rebuild_is_unfinished(tmp_path: Path) -> None:
    with trained(tmp_path / "run", **CLUSTER) as run:
        client = deniable_client(run)
        leave(run, client)
        ask(run, *pair_that_breaks(run))
        refused = []

        def on_round(summary: object) -> None:
            with pytest.raises(LedgerError, match="unfinished"):
                renewed(run, 1)
            refused.append(summary)

        run.answer(Callbacks(on_round))
        assert refused
        assert verify(Asked(renewed(run, 1), trust(), opening_of(run, 1), model=served(run))).named


POLICIES: dict[str, dict[str, Any]] = {
    "no noise": {"noise": {"mode": "none"}},
    "laplace": {"noise": {"distribution": "laplace"}},
    "sigma 0": {"noise": {"sigma": 0.0}},
    "much noise": {"noise": {"sigma": 50.0}},
    "calibrated": {"noise": {"mode": "calibrated", "clip": 0.5, "tau": 0.01}},
    "fixed delta": {"deniability": {"delta": 3.0}},
    "narrow delta": {"deniability": {"delta": 0.9}},
    "relative delta": {"deniability": {"delta": "1.2x"}},
    "limited odds": {"deniability": {"odds": 100.0}, "noise": {"sigma": 2.0}},
    "odds that nobody keeps to": {"deniability": {"odds": 1.01}},
    "odds without noise": {"deniability": {"odds": 1e9}, "noise": {"mode": "none"}},
    "statistics of the drawn": {"noise": {"statistics": "drawn"}},
    "cosine": {"clustering": {"metric": "cosine"}},
    "k-means": {"clustering": {"method": "constrained-kmeans"}},
    "fixed clusters": {"clustering": {"method": "fixed", "sticky": False}},
    "some take part": {"training": {"fraction": 0.5}},
    "fresh draws": {"draws": "fresh"},
    "next to no noise": {"noise": {"sigma": 1e-170}},
    "calibrated to next to nothing": {"noise": {"mode": "calibrated", "clip": 0.5, "tau": 1e-38}},
}


WITH_TWO_DRAWN = ("laplace", "calibrated", "relative delta", "limited odds", "k-means", "fixed clusters")


@pytest.mark.parametrize(
    ("name", "drawn"), [*((name, 1) for name in POLICIES), *((name, 2) for name in WITH_TWO_DRAWN)]
)
def test_whatever_the_policy_the_proof_holds(tmp_path: Path, name: str, drawn: int) -> None:
    changed = POLICIES[name]
    clustering = {"representatives": drawn, **changed.get("clustering", {})}
    with trained(tmp_path / "run", number=14, **{**changed, "clustering": clustering}) as run:
        one, two, three = run.ledger.clients()[4:7]
        kept = received(run, one)
        leave(run, one)
        held(run, 1, one, receipts=kept, model=served(run))
        leave(run, two, three)
        held(run, 2, two)
        held(run, 3, three)
    assert fsck(tmp_path / "run") == []


def test_a_client_who_asks_while_another_rollback_is_under_way_is_proved_too(tmp_path: Path) -> None:
    with trained(tmp_path / "run", **CLUSTER) as run:
        pair = pair_first_together_in(run.ledger, 2)
        other = next(client for client in run.ledger.clients() if client not in pair)
        ask(run, *pair)
        asked: list[int] = []

        def on_round(summary: object) -> None:
            if not asked:
                asked.extend(ask(run, other))

        run.answer(Callbacks(on_round))
        assert [request.state for request in run.ledger.requests()] == [RequestState.ANSWERED] * 3
        for number, client in enumerate([*pair, other], start=1):
            held(run, number, client)
    assert fsck(tmp_path / "run") == []


# -- when and where ----------------------------------------------------------------------------------------------


def test_the_proof_is_made_before_anything_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = journal.delete_leavers

    def watched(connection: sa.Connection, leavers: Sequence[int]) -> None:
        report = held(tmp_path / "run", 1, "client-05")
        seen.append((report.valid, connection.execute(sa.select(sa.func.count()).select_from(clients)).scalar()))
        real(connection, leavers)

    with trained(tmp_path / "run") as run:
        monkeypatch.setattr(journal, "delete_leavers", watched)
        leave(run, "client-05")
    assert seen == [(True, 9)]


def test_the_opening_lies_beside_the_run_and_nobody_else_can_read_it(tmp_path: Path) -> None:
    with trained(tmp_path / "run") as run:
        leave(run, "client-05")
    folder = tmp_path / "run.openings"
    assert folder == default_openings(tmp_path / "run")
    [path] = folder.iterdir()
    assert path.name.startswith("request-1-")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert Opening.decode(path.read_bytes()).client == "client-05"
    inside = [name for name, data in files_of(tmp_path / "run").items() if b"disavow/opening" in data]
    assert inside == []


def test_openings_go_where_they_are_told_to(tmp_path: Path) -> None:
    with trained(tmp_path / "run") as run:
        leave(replace(run, openings=tmp_path / "else" / "where"), "client-05")
    assert not default_openings(tmp_path / "run").exists()
    [path] = (tmp_path / "else" / "where").iterdir()
    opening = path.read_bytes()
    report = verify(Asked(proof=proof_of(tmp_path / "run", 1), opening=opening, trusted=trust()))
    assert report.named


def test_two_runs_that_share_a_folder_for_openings_overwrite_nothing(tmp_path: Path) -> None:
    """As a run does that is made anew where another one was: what opens the old proofs is kept nowhere else."""
    for name in ("one", "two"):
        with trained(tmp_path / name) as run:
            leave(replace(run, openings=tmp_path / "openings"), "client-05")
    found = [Opening.decode(path.read_bytes()).run_id for path in (tmp_path / "openings").iterdir()]
    assert len(set(found)) == 2


@pytest.mark.parametrize("where", ["run", "run/openings", "run/deep/er", "link", "other/../run/x"])
def test_openings_never_lie_inside_the_run(tmp_path: Path, where: str) -> None:
    (tmp_path / "other").mkdir()
    with trained(tmp_path / "run") as run:
        (tmp_path / "link").symlink_to(tmp_path / "run", target_is_directory=True)
        ask(run, "client-05")
        before = set(files_of(tmp_path / "run"))
        with pytest.raises(ConfigError, match="openings and receipts are never kept in the run"):
            replace(run, openings=tmp_path / where).answer()
        with pytest.raises(ConfigError, match="openings and receipts are never kept in the run"):
            check_openings(tmp_path / where, tmp_path / "run")
        assert set(files_of(tmp_path / "run")) == before
        assert [request.state for request in run.ledger.requests()] == [RequestState.WAITING]


def secrets_of(run: Federation, *leavers: str) -> Iterator[bytes]:
    """The salts of these clients' slots and requests, as the tables have them."""
    with run.ledger._connect() as connection:
        mine = sa.select(clients.c.number).where(clients.c.id.in_(leavers))
        yield from connection.execute(sa.select(memberships.c.salt).where(memberships.c.client.in_(mine))).scalars()
        salts = sa.select(requests.c.client_salt).where(requests.c.client.in_(mine))
        yield from (salt for salt in connection.execute(salts).scalars() if salt is not None)


@DRAWN
def test_afterwards_no_file_of_the_run_holds_the_leavers_ids_or_salts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    found: list[bytes] = []
    real = journal.delete_leavers
    with trained(tmp_path / "run", **changed) as run:
        pair = pair_that_breaks(run)

        def watched(connection: sa.Connection, leavers: Sequence[int]) -> None:
            found.extend(secrets_of(run, *pair))
            real(connection, leavers)

        monkeypatch.setattr(journal, "delete_leavers", watched)
        leave(run, *pair)
    assert len(found) == 2 * 4 + 2  # a slot a round for both, and a request each
    for client in pair:
        assert files_with(tmp_path / "run", client) == []
    forms = [form for salt in found for form in (salt, base64.b64encode(salt), salt.hex().encode())]
    for name, data in files_of(tmp_path / "run").items():
        shown = [data]
        if name.startswith("proofs/"):
            shown.append(Envelope.decode(data).payload)
        for content in shown:
            assert not any(form in content for form in forms), name
            assert not any(client.encode() in content for client in pair), name
    openings = b"".join(files_of(default_openings(tmp_path / "run")).values())
    assert sum(base64.b64encode(salt) in openings for salt in found) >= 2  # they are with the leavers instead
    assert fsck(tmp_path / "run") == []


# -- history -----------------------------------------------------------------------------------------------------


def test_an_older_head_is_a_prefix_of_every_later_proof(tmp_path: Path) -> None:
    with start(tmp_path / "run", **CLUSTER) as run:
        heads = []

        def keep() -> None:
            with run.ledger._connect() as connection:
                heads.append(log.signed_head(connection))

        keep()
        run.train(Callbacks(on_round=lambda summary: keep()))
        pair = pair_first_together_in(run.ledger, 3)
        leave(run, *pair)
        keep()
        assert all(heads)
        sizes = [int(str(head).split("\n")[1]) for head in heads]
        assert sizes == sorted(set(sizes))
        for head, size in zip(heads, sizes, strict=True):
            report = held(run, 1, pair[0], checkpoint=head)
            told = detail(report, "history")
            assert told.startswith(f"the older checkpoint of {size} leaves is a prefix")
            assert ("signed before the withdrawal" in told) == (size <= predicate_of(report)["withdrawal"])


def test_a_head_of_another_history_is_a_fork(tmp_path: Path) -> None:
    with trained(tmp_path / "run"):
        pass
    shutil.copytree(tmp_path / "run", tmp_path / "told differently")
    with reopened(tmp_path / "told differently") as run:
        leave(run, "client-01")
        with run.ledger._connect() as connection:
            fork = log.signed_head(connection)
        kept = received(run, "client-05")
    with reopened(tmp_path / "run") as run:
        leave(run, "client-05")
        with pytest.raises(VerificationError, match=r"check 6 \(history\) failed: .* a fork"):
            held(run, 1, "client-05", checkpoint=fork)
        with pytest.raises(
            VerificationError, match=r"check 15 \(receipts\) failed: .* the server told two stories"
        ):
            held(run, 1, "client-05", receipts=kept)


# -- receipts ----------------------------------------------------------------------------------------------------


@DRAWN
def test_receipts_from_before_hold_with_the_proof(tmp_path: Path, changed: dict[str, Any]) -> None:
    with start(tmp_path / "run", **changed) as run:
        early: list[bytes] = []

        def keep(summary: object) -> None:
            if not early:
                early.extend(received(run, "client-05"))

        run.train(Callbacks(on_round=keep))
        late = received(run, "client-05")
        assert (len(early), len(late)) == (1, 4)
        leave(run, "client-05")
        report = held(run, 1, "client-05", receipts=[*early, *late])
        assert detail(report, "receipts") == "5 lie in this log, opened or superseded"


def test_receipts_of_superseded_rounds_hold_too(tmp_path: Path) -> None:
    with trained(tmp_path / "run", **CLUSTER) as run:
        pair = pair_first_together_in(run.ledger, 2)
        kept = {client: received(run, client) for client in pair}
        bystander = next(client for client in run.ledger.clients() if client not in pair)
        theirs = received(run, bystander)
        leave(run, *pair)
        assert [summary.standing for summary in run.ledger.summaries()].count(False) == 3
        for number, client in enumerate(pair, start=1):
            assert len(kept[client]) == 4
            held(run, number, client, receipts=kept[client])
        with pytest.raises(VerificationError, match="is another client's"):
            held(run, 1, pair[0], receipts=theirs)
        # whose rounds were superseded by somebody else, and who leaves after that
        leave(run, bystander)
        held(run, 3, bystander, receipts=theirs)


def test_a_receipt_for_one_round_only_or_for_nobody(tmp_path: Path) -> None:
    with trained(tmp_path / "run") as run:
        [(number, data)] = receipts(run.ledger, "client-05", SERVER, 2)
        assert number == 2
        assert json.loads(data)["header"]["number"] == 2
        assert list(receipts(run.ledger, "client-05", SERVER, 9)) == []
        with pytest.raises(UnknownClient, match="'nobody' is not a client of this run"):
            list(receipts(run.ledger, "nobody", SERVER))
    with trained(tmp_path / "without a key", None) as run, pytest.raises(ConfigError, match="has no signing key"):
        list(receipts(run.ledger, "client-05", None))


@DRAWN
def test_the_receipts_of_a_round_are_those_of_each_client(tmp_path: Path, changed: dict[str, Any]) -> None:
    with trained(tmp_path / "run", **changed) as run:
        leave(run, "client-04")
        made = receipts_of_round(run.ledger, 2)
        assert set(made) == {c for group in run.ledger.membership(2) for c in group}
        for client, data in made.items():
            assert [(2, data)] == list(receipts(run.ledger, client, SERVER, 2))
        assert receipts_of_round(run.ledger, 99) == {}
    with trained(tmp_path / "without a key", None) as run:
        assert receipts_of_round(run.ledger, 2) == {}


# -- what if -----------------------------------------------------------------------------------------------------


@DRAWN
def test_a_what_if_holds_only_as_a_what_if(tmp_path: Path, changed: dict[str, Any]) -> None:
    with trained(tmp_path / "run", **changed) as run:
        client = deniable_client(run)
        before = files_of(tmp_path / "run" / "models")
        made = prove_what_if(run.ledger, client)
        asked = Asked(made.sealed(SERVER), trust(), made.opening.encode(), received(run, client), served(run))
        report = verify(replace(asked, what_if=True))
        assert report.opening is not None
        assert report.opening.client == client
        with pytest.raises(VerificationError, match=r"check 3 \(statement\) failed: this is a what-if"):
            verify(asked)
        # nothing happened
        assert client in run.ledger.clients()
        assert run.ledger.requests() == ()
        assert files_of(tmp_path / "run" / "models") == before
        leave(run, client)
        with pytest.raises(VerificationError, match=r"check 3 \(statement\) failed: this is an erasure"):
            held(run, 1, client, what_if=True)
        with pytest.raises(VerificationError, match="opening of a what-if is no opening of an erasure"):
            verify(Asked(proof_of(run, 1), trust(), made.opening.encode()))


def test_there_is_no_what_if_about_who_is_not_deniable_or_not_there(tmp_path: Path) -> None:
    with trained(tmp_path / "run", deniability={"x": 3}) as run:
        with pytest.raises(LedgerError, match=r"client-05.? is not deniable now: .* there is nothing to prove"):
            prove_what_if(run.ledger, "client-05")
        with pytest.raises(UnknownClient, match="'nobody' is not a client of this run"):
            prove_what_if(run.ledger, "nobody")


def test_a_what_if_about_a_newcomer_names_nobody(tmp_path: Path) -> None:
    with trained(tmp_path / "run") as run:
        run.ledger.register(["newcomer"], key=run.tombstone_key())
        made = prove_what_if(run.ledger, "newcomer")
        report = verify(Asked(made.sealed(SERVER), trust(), made.opening.encode(), what_if=True))
        assert not report.named  # anybody could claim to be in no round
        assert "nothing in the log tells who it is" in detail(report, "opening")


# -- times -------------------------------------------------------------------------------------------------------


def ticking(run: Federation, start: datetime, step: timedelta) -> Federation:
    """The run under a clock that goes on by a step whenever somebody looks."""
    moments = (start + number * step for number in count())
    return replace(run, own_options=replace(run.options, clock=lambda: next(moments)))


def times_of(report: Report) -> list[datetime]:
    return [datetime.fromisoformat(time) for time in predicate_of(report)["times"].values()]


def test_a_rollbacks_proof_tells_when_it_was_asked_judged_and_answered(tmp_path: Path) -> None:
    with trained(tmp_path / "run", **CLUSTER) as run:
        pair = pair_that_breaks(run)
        leave(ticking(run, datetime.now(UTC) + timedelta(days=1), timedelta(hours=7)), *pair)
        report = held(run, 1, pair[0])
        asked, judged, answered = times_of(report)
        retrained = [each.recorded_at for each in standing(run.ledger) if each.recorded_at > judged]
        assert asked == MOMENT < judged < min(retrained) <= max(retrained) < answered
        assert all(time.isoformat() in detail(report, "verdict") for time in (judged, answered))
    assert fsck(tmp_path / "run") == []


def test_a_proof_dates_other_leavers_to_the_day(tmp_path: Path) -> None:
    with trained(tmp_path / "run", **CLUSTER) as run:
        first, second = pair_that_breaks(run)
        start = datetime.now(UTC)
        for client in (first, second):
            run.ledger.place_requests([client], key=run.tombstone_key(), at=start)
            ticking(run, start, timedelta(seconds=1)).answer()
            start += timedelta(days=1, seconds=17)
        report = held(run, 2, second)
        leaves = predicate_of(report)["leaves"]
        dated = {leaf["type"]: leaf["at"] for leaf in leaves if leaf["type"] in ("withdrawal", "rollback")}
        days = {request["asked_at"] for leaf in leaves for request in leaf.get("requests", ())}
        assert {len(day) for day in [*dated.values(), *days]} == {len("2026-01-31")}
        assert dated.keys() == {"withdrawal", "rollback"}
        told = Envelope.decode(proof_of(run, 2)).payload.decode()
        assert predicate_of(report)["times"]["asked_at"] in told
        assert not any(time in told for time in predicate_of(held(run, 1, first))["times"].values())
    assert fsck(tmp_path / "run") == []


def test_clocks_that_are_set_back_leave_a_log_and_proofs_that_hold(tmp_path: Path) -> None:
    """Times in the log never go back, nor do those of a request; a day that is ahead begins at midnight."""
    with trained(tmp_path / "run", **CLUSTER) as run:
        pair = pair_that_breaks(run)
        later = datetime.now(UTC) + timedelta(days=2)
        run.ledger.place_requests(pair, key=run.tombstone_key(), at=later)  # by a clock that is ahead
        ticking(run, later - timedelta(days=5), timedelta(seconds=-1)).answer()
        asked, judged, answered = times_of(held(run, 1, pair[0]))
        assert asked == judged == answered == later
        [client] = [each for each in run.ledger.clients() if each not in pair][:1]
        leave(ticking(run, MOMENT, timedelta(0)), client)
        asked, judged, answered = times_of(held(run, 3, client))
        assert asked == MOMENT
        assert judged == answered == datetime(later.year, later.month, later.day, tzinfo=UTC)
    assert fsck(tmp_path / "run") == []


# -- keys --------------------------------------------------------------------------------------------------------


def test_without_a_key_the_statement_waits_to_be_signed_and_then_says_late(tmp_path: Path) -> None:
    with trained(tmp_path / "run", None, **CLUSTER) as run:
        pair = pair_first_together_in(run.ledger, 3)
        leave(run, *pair)
        assert not proof_path(tmp_path / "run", 1).exists()
        for number, client in enumerate(pair, start=1):
            proof = signed_late(run, number)
            report = verify(Asked(proof, trust(), opening_of(run, number), model=served(run)))
            assert report.opening is not None
            assert report.opening.client == client
            assert report.history is not None
            assert report.history.promised.key is None
            assert "signed late: no key bound the server when the run began" in detail(report, "policy")
    assert fsck(tmp_path / "run") == []


def test_a_statement_that_was_changed_or_is_another_runs_is_not_signed_late(tmp_path: Path) -> None:
    with trained(tmp_path / "run", None) as run, trained(tmp_path / "other", None) as other:
        for each in (run, other):
            leave(each, "client-05")
        told = json.loads(unsigned_path(tmp_path / "run", 1).read_bytes())
        theirs = unsigned_path(tmp_path / "other", 1).read_bytes()
        lie = {**told, "subject": [{**told["subject"][0], "digest": {"sha256": "00" * 32}}]}
        for statement in (theirs, json.dumps(lie).encode()):
            with pytest.raises(LedgerError, match="it is not signed"):
                sign_late(run.ledger, statement, SERVER)


def test_a_late_signature_holds_under_the_list_of_keys_too(tmp_path: Path) -> None:
    """The key is younger than everything in the log: that is what late means."""
    with trained(tmp_path / "run", None) as run:
        leave(run, "client-05")
        since = datetime.now(UTC).isoformat(timespec="microseconds")
        proof = signed_late(run, 1)
        report = examine(Asked(proof, [TrustedKey(SERVER.public, since)], opening_of(run, 1)))
        assert report.failure is None, report.failure


def test_a_run_that_gets_its_key_later_signs_from_then_on(tmp_path: Path) -> None:
    with trained(tmp_path / "run", None) as run:
        leave(run, "client-01")
    with reopened(tmp_path / "run") as run:
        leave(run, "client-05")
        report = held(run, 2, "client-05")
        assert "signed late" in detail(report, "policy")
        early = signed_late(run, 1)
        assert verify(Asked(early, trust(), opening_of(run, 1))).named
    assert fsck(tmp_path / "run") == []


def test_a_run_that_began_with_a_key_is_not_written_without_it(tmp_path: Path) -> None:
    trained(tmp_path / "run").close()
    before = files_of(tmp_path / "run")
    with pytest.raises(
        ConfigError, match=f"signed with key {SERVER.public.id[:16]} of fl.example, which is not here"
    ):
        Ledger.open(tmp_path / "run", write=True)
    after = files_of(tmp_path / "run")
    assert {name: data for name, data in after.items() if name != "lock"} == {
        name: data for name, data in before.items() if name != "lock"
    }
    with Ledger.open(tmp_path / "run") as ledger:  # reading needs none
        assert len(ledger.summaries()) == 4
    reopened(tmp_path / "run").close()


def test_the_key_can_be_changed_between_erasures(tmp_path: Path) -> None:
    with trained(tmp_path / "run") as run:
        kept = received(run, "client-05")
        leave(run, "client-01")
        with run.ledger._connect() as connection:
            head = log.signed_head(connection)
        changed_at = log.time_of(datetime.now(UTC))
    with reopened(tmp_path / "run", SUCCESSOR) as run:
        leave(run, "client-05")
    dated = [TrustedKey(SERVER.public, None, changed_at), TrustedKey(SUCCESSOR.public, changed_at)]
    for trusted in (trust(SERVER, SUCCESSOR), trust(SUCCESSOR, SERVER), dated):
        held(tmp_path / "run", 1, "client-01", trusted=trusted)
        held(tmp_path / "run", 2, "client-05", trusted=trusted, checkpoint=head, receipts=kept)
    with pytest.raises(VerificationError, match=r"check 2 \(signature\)"):
        held(tmp_path / "run", 2, "client-05", trusted=trust(SERVER))
    with pytest.raises(VerificationError, match=r"check 2 \(signature\)"):
        held(tmp_path / "run", 1, "client-01", trusted=trust(SUCCESSOR))
    backwards = [TrustedKey(SERVER.public, changed_at), TrustedKey(SUCCESSOR.public, None, changed_at)]
    for number, client in ((1, "client-01"), (2, "client-05")):
        with pytest.raises(VerificationError, match="the key that signed was not in use at"):
            held(tmp_path / "run", number, client, trusted=backwards)
    assert fsck(tmp_path / "run") == []


def test_a_key_that_was_replaced_cannot_sign_what_came_after(tmp_path: Path) -> None:
    trained(tmp_path / "run").close()
    with reopened(tmp_path / "run", SUCCESSOR) as run:
        made = prove_what_if(run.ledger, "client-05")
    asked = Asked(made.sealed(SERVER), trust(SERVER, SUCCESSOR), made.opening.encode(), what_if=True)
    with pytest.raises(VerificationError, match=r"check 7 \(policy\) failed: .* another key"):
        verify(asked)


# -- interruptions -----------------------------------------------------------------------------------------------


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("together", [1, 2], ids=["deniable", "rollback"])
def test_interrupted_between_proof_and_deletion_the_next_call_leaves_a_valid_proof_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    with trained(tmp_path / "run", **CLUSTER) as run:
        leavers = pair_first_together_in(run.ledger, 3)[:together]
        ask(run, *leavers)
        with monkeypatch.context() as patch:
            patch.setattr(journal, "delete_leavers", interrupt)
            with pytest.raises(KeyboardInterrupt):
                run.answer()
        for number, client in enumerate(leavers, start=1):
            held(run, number, client)
    assert [str(finding) for finding in fsck(tmp_path / "run") if finding.fault] == []
    for path in proof_path(tmp_path / "run", 1), *default_openings(tmp_path / "run").iterdir():
        path.write_bytes(b"torn")  # whatever was left there is made anew
    with reopened(tmp_path / "run") as run:
        run.answer()
        assert {request.state for request in run.ledger.requests()} == {RequestState.ANSWERED}
        for number, client in enumerate(leavers, start=1):
            held(run, number, client, model=served(run))
    for client in leavers:
        assert files_with(tmp_path / "run", client) == []
    assert fsck(tmp_path / "run") == []


def test_who_asks_between_a_proof_and_its_deletion_makes_it_be_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone the first one was deniable; then the second breaks the cluster they share, and it is rolled back."""
    with trained(tmp_path / "run", **CLUSTER) as run:
        pair = pair_first_together_in(run.ledger, 3)
        ask(run, pair[0])
        with monkeypatch.context() as patch:
            patch.setattr(journal, "delete_leavers", interrupt)
            with pytest.raises(KeyboardInterrupt):
                run.answer()
        ask(run, pair[1])
    with reopened(tmp_path / "run") as run:
        run.answer()
        first, second = (held(run, number, client) for number, client in enumerate(pair, start=1))
        assert predicate_of(first)["verdict"]["kind"] == "deniable"
        assert predicate_of(second)["verdict"] == {"kind": "rollback", "from": 3}
    assert fsck(tmp_path / "run") == []


@pytest.mark.parametrize("step", range(1, 5))
def test_interrupted_while_the_proofs_are_written_the_next_call_completes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    written = 0

    def counted() -> None:
        nonlocal written
        written += 1
        if written == step:
            raise KeyboardInterrupt

    def write_opening(target: Path, data: bytes, **more: Any) -> None:
        counted()
        write_durably(target, data, **more)

    def write_proof(store: ProofStore, request: int, data: bytes, **more: Any) -> None:
        counted()
        real(store, request, data, **more)

    real = ProofStore.write
    with trained(tmp_path / "run", **CLUSTER) as run:
        pair = pair_first_together_in(run.ledger, 3)
        ask(run, *pair)
        with monkeypatch.context() as patch:
            patch.setattr("disavow.erasure.prove.write_durably", write_opening)
            patch.setattr(ProofStore, "write", write_proof)
            with pytest.raises(KeyboardInterrupt):
                run.answer()
        assert set(pair) & {request.client for request in run.ledger.requests()} == set(pair)
    with reopened(tmp_path / "run") as run:
        run.answer()
        for number, client in enumerate(pair, start=1):
            held(run, number, client)
    assert fsck(tmp_path / "run") == []


@pytest.mark.parametrize("signer", [SERVER, None], ids=["signed", "unsigned"])
def test_a_deniable_request_on_damaged_rows_deletes_nothing(tmp_path: Path, signer: Signer | None) -> None:
    """Nobody checks the whole run first; what the proof is made from is checked before it is gone."""
    with trained(tmp_path / "run", signer, **CLUSTER) as run:
        with run.ledger._begin() as connection:
            connection.execute(sa.text("UPDATE slots SET commitment = zeroblob(32) WHERE round_id = 1"))
        ask(run, "client-04")
        with pytest.raises(IntegrityError):
            run.answer()
        assert [request.client for request in run.ledger.requests()] == ["client-04"]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_a_kill_left_of_openings_goes_when_they_are_written_again(tmp_path: Path, elsewhere: bool) -> None:
    """Half an opening has the id and the salts of a leaver, under a name that nobody looks for."""
    with trained(tmp_path / "run") as run:
        usual = default_openings(tmp_path / "run")
        usual.mkdir()
        mine, what_if = (
            f"request-1-{run.ledger.run_id[:8]}.json",
            what_if_path(usual, run.ledger.run_id, "client-01"),
        )
        stale = [usual / f".{mine}.0123abcd", usual / f".{what_if.name}.0123abcd"]
        others = [
            usual / ".request-1-00000000.json.0123abcd",  # of another run, which may be writing it now
            usual / f".{what_if_path(usual, run.ledger.run_id, 'client-02').name}.0123abcd",
            usual / f".{mine}.backup",
            usual / "notes",
        ]
        for path in [*stale, *others]:
            path.write_text("client-01")
        leave(replace(run, openings=tmp_path / "openings" if elsewhere else None), "client-01")
    assert not any(path.exists() for path in stale)
    assert all(path.exists() for path in others)


# -- where openings go ---------------------------------------------------------------------------------------------


def test_an_opening_goes_where_it_was_asked_for_whoever_answers(tmp_path: Path) -> None:
    with trained(tmp_path / "run", **CLUSTER) as run:
        wish = tmp_path / "for client-04"
        wish.mkdir()
        key, told = run.tombstone_key(), dict[int, Path]()
        [number] = run.ledger.place_requests(["client-04"], key=key, at=MOMENT, openings=wish)
        [other] = run.ledger.place_requests(["client-01"], key=key, at=MOMENT)
        run.answer(Callbacks(on_opening=told.__setitem__))
        assert told == {
            number: opening_path(wish, run.ledger.run_id, number),
            other: opening_path(default_openings(run.ledger.directory), run.ledger.run_id, other),
        }
        assert all(path.exists() for path in told.values())
        # asked again, nothing is noted of somebody who is gone
        run.ledger.place_requests(["client-04"], key=key, at=MOMENT, openings=wish)
    assert files_with(tmp_path / "run", "for client-04") == []


def test_a_wish_for_an_opening_may_be_placed_later_than_the_request(tmp_path: Path) -> None:
    with trained(tmp_path / "run", **CLUSTER) as run:
        [number] = ask(run, "client-04")
        run.ledger.place_requests(["client-04"], key=run.tombstone_key(), at=MOMENT, openings=tmp_path)
        run.answer()
        assert opening_path(tmp_path, run.ledger.run_id, number).exists()


@pytest.mark.parametrize("wish", ["run/openings", "run", "gone", "a file"])
def test_an_opening_goes_beside_the_run_where_the_folder_asked_for_cannot_be_used(
    tmp_path: Path, wish: str
) -> None:
    (tmp_path / "a file").touch()
    with trained(tmp_path / "run", **CLUSTER) as run:
        key = run.tombstone_key()
        [number] = run.ledger.place_requests(["client-04"], key=key, at=MOMENT, openings=tmp_path / wish)
        run.answer()
        held(run, number, "client-04")
    assert not (tmp_path / "run" / "openings").exists()
    assert fsck(tmp_path / "run") == []
    assert files_with(tmp_path / "run", "client-04") == []
