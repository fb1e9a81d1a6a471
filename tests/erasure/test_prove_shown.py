"""What a proof shows: history, receipts, what-ifs, times, keys."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from disavow.erasure.proof_files import proof_path, unsigned_path
from disavow.erasure.prove import prove_what_if, sign_late
from disavow.erasure.receipts import receipts, receipts_of_round
from disavow.errors import ConfigError, IntegrityError, LedgerError, UnknownClient, VerificationError
from disavow.federation import Callbacks, Federation
from disavow.ledger import Ledger, fsck, log
from disavow.ledger.keys import default_folder
from disavow.proof.envelope import Envelope
from disavow.proof.verify import Report, TrustedKey, VerificationInputs, examine, verify
from tests.erasure.mechanisms.contract import (
    leave,
    pair_first_together_in,
    standing,
)
from tests.erasure.proving import (
    CLUSTER,
    DRAWN,
    SERVER,
    SUCCESSOR,
    deniable_client,
    detail,
    held,
    opening_of,
    pair_that_breaks,
    predicate_of,
    proof_of,
    received,
    reopened,
    served,
    signed_late,
    start,
    trained,
    trust,
)
from tests.ledger.making import files_of
from tests.refusals import refuses
from tests.rounds.builders import MOMENT

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
            words = detail(report, "history")
            assert words.startswith(f"the older checkpoint of {size} leaves is a prefix")
            assert ("signed before the withdrawal" in words) == (size <= predicate_of(report)["withdrawal"])


def test_a_head_of_another_history_is_a_fork(tmp_path: Path) -> None:
    with trained(tmp_path / "run"):
        pass
    shutil.copytree(tmp_path / "run", tmp_path / "told differently")
    shutil.copytree(default_folder(), tmp_path / "other keys")
    with reopened(tmp_path / "told differently", keys=tmp_path / "other keys") as run:
        leave(run, "client-01")
        with run.ledger._connect() as connection:
            fork = log.signed_head(connection)
        kept = received(run, "client-05")
    with reopened(tmp_path / "run") as run:
        leave(run, "client-05")
        with refuses(VerificationError, "check 6 (history)", "fork"):
            held(run, 1, "client-05", checkpoint=fork)
        with refuses(VerificationError, "check 15 (receipts)", "two stories"):
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
        with refuses(VerificationError, "another client"):
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
        with refuses(UnknownClient, "nobody"):
            list(receipts(run.ledger, "nobody", SERVER))
    with trained(tmp_path / "without a key", None) as run, refuses(ConfigError, "signing key"):
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
        inputs = VerificationInputs(
            made.sealed(SERVER), trust(), made.opening.encode(), received(run, client), served(run)
        )
        report = verify(replace(inputs, what_if=True))
        assert report.opening is not None
        assert report.opening.client == client
        with refuses(VerificationError, "check 3 (statement)", "a what-if"):
            verify(inputs)
        # nothing happened
        assert client in run.ledger.clients()
        assert run.ledger.requests() == ()
        assert files_of(tmp_path / "run" / "models") == before
        leave(run, client)
        with refuses(VerificationError, "check 3 (statement)", "an erasure"):
            held(run, 1, client, what_if=True)
        with refuses(VerificationError, "check 14 (opening)", "what-if"):
            verify(VerificationInputs(proof_of(run, 1), trust(), made.opening.encode()))


def test_there_is_no_what_if_about_who_is_not_deniable_or_not_there(tmp_path: Path) -> None:
    with trained(tmp_path / "run", deniability={"x": 3}) as run:
        with refuses(LedgerError, "client-05", "not deniable"):
            prove_what_if(run.ledger, "client-05")
        with refuses(UnknownClient, "nobody"):
            prove_what_if(run.ledger, "nobody")


def test_a_what_if_about_a_newcomer_names_nobody(tmp_path: Path) -> None:
    with trained(tmp_path / "run") as run:
        run.ledger.register(["newcomer"])
        made = prove_what_if(run.ledger, "newcomer")
        report = verify(VerificationInputs(made.sealed(SERVER), trust(), made.opening.encode(), what_if=True))
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
        asked_at, judged, answered = times_of(report)
        retrained = [each.recorded_at for each in standing(run.ledger) if each.recorded_at > judged]
        assert asked_at == MOMENT < judged < min(retrained) <= max(retrained) < answered
        assert all(time.isoformat() in detail(report, "verdict") for time in (judged, answered))
    assert fsck(tmp_path / "run") == []


def test_a_proof_dates_other_leavers_to_the_day(tmp_path: Path) -> None:
    with trained(tmp_path / "run", **CLUSTER) as run:
        first, second = pair_that_breaks(run)
        start = datetime.now(UTC)
        for client in (first, second):
            run.ledger.place_requests([client], at=start)
            ticking(run, start, timedelta(seconds=1)).answer()
            start += timedelta(days=1, seconds=17)
        report = held(run, 2, second)
        leaves = predicate_of(report)["leaves"]
        dated = {leaf["type"]: leaf["at"] for leaf in leaves if leaf["type"] in ("withdrawal", "rollback")}
        days = {request["asked_at"] for leaf in leaves for request in leaf.get("requests", ())}
        assert {len(day) for day in [*dated.values(), *days]} == {len("2026-01-31")}
        assert dated.keys() == {"withdrawal", "rollback"}
        statement = Envelope.decode(proof_of(run, 2)).statement.decode()
        assert predicate_of(report)["times"]["asked_at"] in statement
        assert not any(time in statement for time in predicate_of(held(run, 1, first))["times"].values())
    assert fsck(tmp_path / "run") == []


def test_clocks_that_are_set_back_leave_a_log_and_proofs_that_hold(tmp_path: Path) -> None:
    """Times in the log never go back, nor do those of a request; a day that is ahead begins at midnight."""
    with trained(tmp_path / "run", **CLUSTER) as run:
        pair = pair_that_breaks(run)
        later = datetime.now(UTC) + timedelta(days=2)
        run.ledger.place_requests(pair, at=later)  # by a clock that is ahead
        ticking(run, later - timedelta(days=5), timedelta(seconds=-1)).answer()
        asked_at, judged, answered = times_of(held(run, 1, pair[0]))
        assert asked_at == judged == answered == later
        [client] = [each for each in run.ledger.clients() if each not in pair][:1]
        leave(ticking(run, MOMENT, timedelta(0)), client)
        asked_at, judged, answered = times_of(held(run, 3, client))
        assert asked_at == MOMENT
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
            report = verify(VerificationInputs(proof, trust(), opening_of(run, number), model=served(run)))
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
        unsigned = json.loads(unsigned_path(tmp_path / "run", 1).read_bytes())
        theirs = unsigned_path(tmp_path / "other", 1).read_bytes()
        lie = {**unsigned, "subject": [{**unsigned["subject"][0], "digest": {"sha256": "00" * 32}}]}
        for statement in (theirs, json.dumps(lie).encode()):
            with refuses(IntegrityError, "not signed"):
                sign_late(run.ledger, statement, SERVER)


def test_a_late_signature_holds_under_the_list_of_keys_too(tmp_path: Path) -> None:
    """The key is younger than everything in the log: that is what late means."""
    with trained(tmp_path / "run", None) as run:
        leave(run, "client-05")
        since = datetime.now(UTC).isoformat(timespec="microseconds")
        proof = signed_late(run, 1)
        report = examine(VerificationInputs(proof, [TrustedKey(SERVER.public, since)], opening_of(run, 1)))
        assert report.failure is None, report.failure


def test_a_run_that_gets_its_key_later_signs_from_then_on(tmp_path: Path) -> None:
    with trained(tmp_path / "run", None) as run:
        leave(run, "client-01")
    with reopened(tmp_path / "run") as run:
        leave(run, "client-05")
        report = held(run, 2, "client-05")
        assert "signed late" in detail(report, "policy")
        early = signed_late(run, 1)
        assert verify(VerificationInputs(early, trust(), opening_of(run, 1))).named
    assert fsck(tmp_path / "run") == []


def test_a_run_that_began_with_a_key_is_not_written_without_it(tmp_path: Path) -> None:
    trained(tmp_path / "run").close()
    before = files_of(tmp_path / "run")
    with refuses(ConfigError, SERVER.public.id[:16], "fl.example"):
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
    with refuses(VerificationError, "check 2 (signature)"):
        held(tmp_path / "run", 2, "client-05", trusted=trust(SERVER))
    with refuses(VerificationError, "check 2 (signature)"):
        held(tmp_path / "run", 1, "client-01", trusted=trust(SUCCESSOR))
    backwards = [TrustedKey(SERVER.public, changed_at), TrustedKey(SUCCESSOR.public, None, changed_at)]
    for number, client in ((1, "client-01"), (2, "client-05")):
        with refuses(VerificationError, "not in use"):
            held(tmp_path / "run", number, client, trusted=backwards)
    assert fsck(tmp_path / "run") == []


def test_a_key_that_was_replaced_cannot_sign_what_came_after(tmp_path: Path) -> None:
    trained(tmp_path / "run").close()
    with reopened(tmp_path / "run", SUCCESSOR) as run:
        made = prove_what_if(run.ledger, "client-05")
    inputs = VerificationInputs(made.sealed(SERVER), trust(SERVER, SUCCESSOR), made.opening.encode(), what_if=True)
    with refuses(VerificationError, "check 7 (policy)", "another key"):
        verify(inputs)
