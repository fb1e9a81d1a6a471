"""Every erasure leaves a proof that holds, whatever the policy."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from disavow.domain import RequestState, VerdictKind
from disavow.erasure.prove import (
    prove_what_if,
)
from disavow.errors import LedgerError, VerificationError
from disavow.federation import Callbacks
from disavow.ledger import fsck, log
from disavow.proof.verify import VerificationInputs, verify
from tests.erasure.mechanisms.contract import (
    ask,
    leave,
    pair_first_together_in,
)
from tests.erasure.proving import (
    CLUSTER,
    DRAWN,
    SERVER,
    deniable_client,
    detail,
    held,
    opening_of,
    pair_that_breaks,
    predicate_of,
    proof_of,
    received,
    served,
    start,
    trained,
    trust,
)
from tests.refusals import refuses

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
        nameless = verify(VerificationInputs(proof=proof_of(run, 1), trusted=trust()))
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
            with refuses(VerificationError, "check 16 (model)"):
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
        run.ledger.register(["newcomer"])
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
        run.ledger.register(["newcomer"])
        batch = [*pair_first_together_in(run.ledger, 3), "newcomer"]
        leave(run, *batch)
        reports = [held(run, number, client) for number, client in enumerate(batch, start=1)]
        assert len({predicate_of(report)["withdrawal"] for report in reports}) == 1
        assert [predicate_of(report)["request"] for report in reports] == [0, 1, 2]
        kinds = [predicate_of(report)["verdict"]["kind"] for report in reports]
        assert kinds == ["rollback", "rollback", "never present"]
        for mine, other in ((1, 2), (2, 1), (1, 3), (3, 1)):
            crossed = VerificationInputs(proof=proof_of(run, mine), opening=opening_of(run, other), trusted=trust())
            with refuses(VerificationError, "check 14 (opening)"):
                verify(crossed)


def test_where_nobody_is_left_to_retrain_the_proof_is_about_the_model_that_is_served(tmp_path: Path) -> None:
    with trained(tmp_path / "run", number=4, deniability={"x": 3}) as run:
        leave(run, "client-01", "client-04")
        report = held(run, 1, "client-01", model=run.ledger.initial_model)
        assert predicate_of(report)["verdict"] == {"kind": "rollback", "from": 1}
        assert "0 stand" in detail(report, "rounds")
    assert fsck(tmp_path / "run") == []


@DRAWN
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.torture) for seed in range(1, 9))])
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
                inputs = VerificationInputs(
                    made.sealed(SERVER), trust(), made.opening.encode(), received(run, client)
                )
                assert verify(replace(inputs, what_if=True)).valid
        assert kinds
    assert fsck(tmp_path / "run") == []


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
    "noise by sensitivity": {"deniability": {"odds": 10.0}, "noise": {"mode": "sensitivity", "sigma": 2.2}},
    "statistics of the drawn": {"noise": {"statistics": "drawn"}},
    "cosine": {"clustering": {"metric": "cosine"}},
    "k-means": {"clustering": {"method": "constrained-kmeans"}},
    "fixed clusters": {"clustering": {"method": "fixed", "sticky": False}},
    "some take part": {"training": {"fraction": 0.5}},
    "fresh draws": {"draws": "fresh"},
    "next to no noise": {"noise": {"sigma": 1e-170}},
    "calibrated to next to nothing": {"noise": {"mode": "calibrated", "clip": 0.5, "tau": 1e-38}},
}


WITH_TWO_DRAWN = ("relative delta", "fixed clusters", "noise by sensitivity")
MORE_WITH_TWO_DRAWN = ("laplace", "calibrated", "limited odds", "k-means")


@pytest.mark.parametrize(
    ("name", "drawn"),
    [
        *((name, 1) for name in POLICIES),
        *((name, 2) for name in WITH_TWO_DRAWN),
        *(pytest.param(name, 2, marks=pytest.mark.torture) for name in MORE_WITH_TWO_DRAWN),
    ],
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
        numbers: list[int] = []

        def on_round(summary: object) -> None:
            if not numbers:
                numbers.extend(ask(run, other))

        run.answer(Callbacks(on_round))
        assert [request.state for request in run.ledger.requests()] == [RequestState.ANSWERED] * 3
        for number, client in enumerate([*pair, other], start=1):
            held(run, number, client)
    assert fsck(tmp_path / "run") == []
