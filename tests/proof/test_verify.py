"""The checks, one by one: what each refuses, how it is named, and what a verifier is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from disavow.errors import OtherModel, Unreadable, VerificationError
from disavow.proof.envelope import seal
from disavow.proof.verify import CHECKS, Report, TrustedKey, VerificationInputs, examine, verify
from tests.cli.process import disavow
from tests.proof import second_verifier
from tests.proof.made_proofs import NEXT, SERVER, STRANGER, Made, moment
from tests.proof.vectors.hostile.clusters import all_gone
from tests.proof.vectors.records import few_records
from tests.proof.vectors.valid import LEAVER, OTHER, deniable, limited, mate, relative, rolled_back, several
from tests.proof.vectors.witnesses import ALL, FIRST, SECOND, THIRD, cosigned, with_lines, witnessed
from tests.proof.world import World
from tests.refusals import refuses

NAMES = (
    "readable",
    "signature",
    "statement",
    "checkpoint",
    "log",
    "history",
    "policy",
    "rounds",
    "clusters",
    "survivors",
    "spread",
    "bounds",
    "verdict",
    "opening",
    "receipts",
    "model",
    "word",
    "witnesses",
    "serving",
)


def proof_of_leaver() -> Made:
    return deniable().proof(LEAVER)


def forged(change: Callable[[dict[str, Any]], object], *, relogged: bool = False) -> VerificationInputs:
    """A proof whose predicate was changed, signed again with the right key."""
    made = proof_of_leaver()
    return made.inputs(proof=made.forged(lambda statement: change(statement["predicate"]), relogged=relogged))


def wrong_subject() -> VerificationInputs:
    made = proof_of_leaver()

    def edit(statement: dict[str, Any]) -> None:
        statement["subject"][0]["digest"]["sha256"] = "0" * 64

    return made.inputs(proof=made.forged(edit))


def somebody_elses_opening() -> bytes:
    return World("deniable").train(2).leave(OTHER).proof(OTHER).opening.encode()


FAILING: dict[str, Callable[[], VerificationInputs]] = {
    "readable": lambda: proof_of_leaver().inputs(proof=b"{}"),
    "signature": lambda: proof_of_leaver().inputs(proof=seal(proof_of_leaver().payload, STRANGER)),
    "statement": lambda: proof_of_leaver().inputs(what_if=True),
    "checkpoint": lambda: forged(lambda predicate: predicate.update(checkpoint=deniable().checkpoint(2))),
    "log": lambda: forged(lambda predicate: predicate["leaves"][1].update(after="0" * 64)),
    "history": lambda: proof_of_leaver().inputs(checkpoint=World("deniable", x=1).checkpoint()),
    "policy": lambda: proof_of_leaver().inputs(trusted=[TrustedKey(SERVER.public, until=moment(1))]),
    "rounds": lambda: forged(lambda predicate: predicate["leaves"].pop(1), relogged=True),
    "clusters": lambda: forged(lambda predicate: predicate["clusters"][0].update(withdrawn=[])),
    "survivors": lambda: World("deniable", x=3).train(2).leave(LEAVER, verdict="deniable").proof(LEAVER).inputs(),
    "spread": lambda: World("wide", delta=0.1).train(2).leave(LEAVER, verdict="deniable").proof(LEAVER).inputs(),
    "bounds": lambda: forged(lambda predicate: predicate["clusters"][0].update(displacement="0")),
    "verdict": lambda: forged(lambda predicate: predicate["verdict"].update(kind="never present")),
    "opening": lambda: proof_of_leaver().inputs(opening=somebody_elses_opening()),
    "receipts": lambda: proof_of_leaver().inputs(receipts=[World("else").train(1).receipt(LEAVER, 1)]),
    "model": wrong_subject,
    "word": lambda: few_records().proof(LEAVER).inputs(word=few_records().word(LEAVER).encode()),
    "witnesses": lambda: witnessed().proof(LEAVER).inputs(witnesses=ALL),
    "serving": lambda: deniable().proof(LEAVER).inputs(serving=deniable().serving(model="0" * 64)),
}


def test_there_are_eighteen_checks_with_these_names() -> None:
    assert CHECKS == NAMES
    assert FAILING.keys() == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_exactly_this_check_fails_by_number_and_name(name: str) -> None:
    report = examine(FAILING[name]())
    number = NAMES.index(name) + 1
    assert report.failed is not None
    assert (report.failed.number, report.failed.name, report.failed.passed) == (number, name, False)
    assert [result.number for result in report.results] == list(range(1, number + 1))
    assert all(result.passed is not False for result in report.results[:-1])
    assert not report.valid


@pytest.mark.parametrize("name", NAMES)
def test_verify_raises_with_number_and_name(name: str) -> None:
    with pytest.raises(VerificationError) as caught:
        verify(FAILING[name]())
    assert str(caught.value).startswith(f"check {NAMES.index(name) + 1} ({name}) ")


def test_a_good_proof_passes_every_check() -> None:
    world = few_records()
    made = with_lines(world.proof(LEAVER, world.word(LEAVER)), cosigned(world, FIRST, SECOND, THIRD))
    inputs = made.inputs(
        receipts=[world.receipt(LEAVER, 1)],
        checkpoint=world.checkpoint(2),
        model=world.model,
        witnesses=ALL,
        serving=world.serving(),
    )
    report = verify(inputs)
    assert [(result.number, result.name, result.passed) for result in report.results] == [
        (number, name, True) for number, name in enumerate(NAMES, start=1)
    ]
    assert report.valid
    assert report.named
    assert report.failed is None


def test_what_is_not_given_is_not_checked_and_not_called_passed() -> None:
    report = verify(proof_of_leaver().inputs(opening=None))
    unchecked = {result.name for result in report.results if result.passed is None}
    assert unchecked == {"history", "opening", "receipts", "model", "word", "witnesses", "serving"}
    assert not report.named


def detail(report: Report, name: str) -> str:
    return next(result.detail for result in report.results if result.name == name)


def test_what_was_promised_is_told() -> None:
    report = verify(several().proof(LEAVER).inputs())
    assert "x = 2, 2 drawn of each cluster, Δ adaptive" in detail(report, "policy")
    assert "3 are needed" in detail(report, "survivors")
    assert "adaptive Δ excludes nobody" in detail(report, "spread")
    report = verify(relative().proof(LEAVER).inputs())
    assert "Δ 0.4x the median update norm" in detail(report, "policy")
    assert "excludes nobody" not in detail(report, "spread")


def test_the_odds_over_all_rounds_must_not_exceed_the_limit_of_the_policy() -> None:
    for odds, holds in ((1.4, False), (1.5, True)):
        report = examine(limited(odds).leave(LEAVER, verdict="deniable").proof(LEAVER).inputs())
        assert report.valid == holds
        assert holds or (report.failed is not None and report.failed.name == "bounds")


@pytest.mark.parametrize("together", [False, True])
def test_nobody_is_deniable_where_all_members_of_the_cluster_have_left(together: bool) -> None:
    """With certainty one of them was drawn. Each proof alone is refused, and by the second verifier too."""
    world, _ = all_gone(together=together)
    for name in sorted(world.gone):
        made = world.proof(name)
        report = examine(made.inputs())
        assert report.failed is not None
        assert (report.failed.number, report.failed.name) == (10, "survivors")
        key = f"{SERVER.public}\n".encode()
        assert second_verifier.verify(made.proof, key, made.opening.encode()) == (1, 10)


def test_what_cannot_be_read_has_an_exit_code_of_its_own() -> None:
    unreadable = {name for name in NAMES if isinstance(examine(FAILING[name]()).failure, Unreadable)}
    assert unreadable == {"readable"}
    for name in NAMES:
        failure = examine(FAILING[name]()).failure
        assert failure is not None
        assert failure.exit_code == (2 if name in unreadable else 1)
    broken = proof_of_leaver().inputs(opening=b"[")
    with refuses(Unreadable, "check 14 (opening)"):
        verify(broken)


def test_the_command_exits_with_0_1_2_and_3(tmp_path: Path) -> None:
    made = proof_of_leaver()
    files = {
        "proof": made.proof,
        "opening": made.opening.encode(),
        "false": FAILING["survivors"]().proof,
        "broken": made.proof[:-1],
        "key": f"{SERVER.public}\n".encode(),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)

    def code(proof: str, *more: str | Path) -> int:
        return disavow("verify", tmp_path / proof, "--key", tmp_path / "key", *more).returncode

    assert code("proof", "--opening", tmp_path / "opening") == 0
    assert code("false", "--opening", tmp_path / "opening") == 1
    assert code("broken", "--opening", tmp_path / "opening") == 2
    assert code("proof") == 3


def test_a_what_if_never_passes_as_an_erasure_whatever_it_is_called() -> None:
    made = World("if").train(2).what_if(LEAVER)
    assert verify(made.inputs()).valid
    with refuses(VerificationError, "check 3 (statement)", "what-if"):
        verify(made.inputs(what_if=False))

    def retype(statement: dict[str, Any]) -> None:
        statement["predicateType"] = "urn:disavow:proof-of-deniability:v3"

    assert not examine(made.inputs(proof=made.forged(retype), what_if=False)).valid


def test_somebody_who_left_cannot_be_shown_by_a_what_if() -> None:
    world = deniable()
    assert not examine(world.what_if(LEAVER).inputs()).valid


def test_the_key_that_signed_must_be_trusted_and_in_use() -> None:
    made = proof_of_leaver()
    server, after = TrustedKey(SERVER.public), TrustedKey(SERVER.public, since=moment(9))
    before = TrustedKey(SERVER.public, until=moment(1))
    within = TrustedKey(SERVER.public, moment(0), moment(3))
    accepted: list[list[TrustedKey]] = [[server], [TrustedKey(NEXT.public), server], [within], [before, within]]
    refused: list[list[TrustedKey]] = [[], [TrustedKey(NEXT.public)], [before], [after], [before, after]]
    assert all(examine(made.inputs(trusted=trusted)).valid for trusted in accepted)
    assert not any(examine(made.inputs(trusted=trusted)).valid for trusted in refused)


def test_a_log_that_changes_its_key_is_signed_with_the_new_one() -> None:
    world = World("rotated").train(1).rotate(NEXT).train(1).leave(LEAVER)
    both = [TrustedKey(SERVER.public), TrustedKey(NEXT.public)]
    made = world.proof(LEAVER)
    assert verify(made.inputs(trusted=both, checkpoint=world.checkpoint(2, SERVER))).valid
    old = replace(made, signer=SERVER)
    stale = old.inputs(proof=old.forged(lambda statement: None, relogged=True), trusted=both)
    with refuses(VerificationError, "check 7 (policy)"):
        verify(stale)


def test_a_run_that_was_signed_late_says_so() -> None:
    report = verify(World("late", key=None).train(1).leave(LEAVER).proof(LEAVER).inputs())
    assert "signed late" in report.results[6].detail
    assert report.history is not None
    assert report.history.promised.key is None


def test_a_retired_key_signs_nothing_that_came_after_it_even_where_the_log_names_no_key() -> None:
    made = World("late", key=None).train(2).leave(LEAVER).proof(LEAVER)  # its last time is that of minute 2
    made_later = TrustedKey(SERVER.public, since=moment(9))
    in_time = TrustedKey(SERVER.public, until=moment(2))
    retired = TrustedKey(SERVER.public, until=moment(1))
    assert examine(made.inputs(trusted=[made_later])).valid
    assert examine(made.inputs(trusted=[in_time])).valid
    assert examine(made.inputs(trusted=[retired, in_time])).valid
    report = examine(made.inputs(trusted=[retired]))
    assert report.failed is not None
    assert report.failed.name == "policy"


def test_nothing_that_a_revoked_key_signed_is_accepted_whenever_it_signed() -> None:
    world = World("rotated").train(1).rotate(NEXT).train(1).leave(LEAVER)
    made, after = world.proof(LEAVER), moment(9)
    good, revoked = TrustedKey(NEXT.public), TrustedKey(NEXT.public, revoked=after)
    old, stolen = TrustedKey(SERVER.public, until=moment(2)), TrustedKey(SERVER.public, revoked=after)
    cosigned = world.checkpoint(2, SERVER) + world.checkpoint(2, NEXT).rpartition("\n\n")[2]

    def fails(**changes: Any) -> str | None:
        failed = examine(made.inputs(**changes)).failed
        return failed.name if failed else None

    assert fails(trusted=[old, revoked]) == "signature"
    assert fails(trusted=[old, good, revoked]) == "signature"  # one entry that is not revoked does not undo another
    assert fails(trusted=[stolen, good]) is None  # the key that replaced it answers for the whole log
    assert fails(trusted=[old, good], checkpoint=world.checkpoint(2, SERVER)) is None
    assert fails(trusted=[stolen, good], checkpoint=world.checkpoint(2, SERVER)) == "history"
    assert fails(trusted=[stolen, good], checkpoint=cosigned) is None
    assert fails(trusted=[old, good], receipts=[world.receipt(LEAVER, 1, key=SERVER)]) is None
    assert fails(trusted=[stolen, good], receipts=[world.receipt(LEAVER, 1, key=SERVER)]) == "receipts"


def test_leaves_in_the_future_are_warned_of_and_decide_nothing() -> None:
    made = deniable().proof(LEAVER)  # its last leaf is of a day, the one before of minute 2
    assert verify(made.inputs()).warnings == []
    assert verify(made.inputs(now=moment(3))).warnings == []
    report = verify(made.inputs(now=moment(1)))
    assert report.valid
    assert len(report.warnings) == 1
    assert moment(2) in report.warnings[0]


def test_the_client_who_is_asked_for_is_compared_by_bytes() -> None:
    made = proof_of_leaver()
    assert verify(made.inputs(client=LEAVER)).named
    homoglyph = LEAVER.replace("c", "\N{CYRILLIC SMALL LETTER ES}")
    assert homoglyph != LEAVER
    for other in (homoglyph, OTHER, LEAVER + " ", LEAVER.upper(), "", "\udcff"):
        report = examine(made.inputs(client=other))
        assert report.failed is not None
        assert (report.failed.name, report.failure and report.failure.exit_code) == ("opening", 1)
        assert other == "" or other not in report.failed.detail or other.isascii()
    report = examine(made.inputs(client=LEAVER, opening=None))  # nothing says who it is about
    assert report.failed is not None
    assert report.failed.name == "opening"


def test_another_file_of_ours_in_the_place_of_a_proof_is_called_what_it_is() -> None:
    made, world = proof_of_leaver(), deniable()
    for kind, data in {
        "an opening": made.opening.encode(),
        "a receipt": world.receipt(LEAVER, 1),
        "a checkpoint": world.checkpoint().encode(),
        "a public key": f"{SERVER.public}\n".encode(),
        "a list of keys": b'{"keys": [], "type": "disavow/keys/v2"}',
        "a private key": b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n",
        "an unsigned statement": made.payload,
    }.items():
        report = examine(made.inputs(proof=data))
        assert report.failed is not None
        assert isinstance(report.failure, Unreadable)
        assert report.failed.detail.startswith(f"this is {kind}, not a proof")


def test_a_proof_in_the_place_of_another_file_is_called_a_proof() -> None:
    made = proof_of_leaver()
    for name, inputs in (
        ("an opening", made.inputs(opening=made.proof)),
        ("a receipt", made.inputs(receipts=[made.proof])),
    ):
        report = examine(inputs)
        assert report.failed is not None
        assert isinstance(report.failure, Unreadable)
        assert report.failed.detail.startswith(f"this is a proof, not {name}")


def test_another_model_than_the_one_proved_is_an_outcome_of_its_own() -> None:
    """A good proof stays good when training goes on; but it says nothing of later models."""
    made = deniable().proof(LEAVER)
    later = deniable().train(1).model
    first = made.predicate["leaves"][1]["after"]
    for model in (later, first, made.predicate["leaves"][0]["initial_model"], "0" * 64):
        report = examine(made.inputs(model=model))
        assert report.failed is not None
        assert report.failed.name == "model"
        assert isinstance(report.failure, OtherModel)
        assert report.failure.exit_code == 13
        assert report.named  # everything before was checked
        assert f"as of head {len(made.predicate['leaves'])}" in report.failed.detail
    assert verify(deniable().train(1).proof(LEAVER).inputs(model=later)).valid


def test_a_model_that_was_undone_is_refused_and_not_called_another_one() -> None:
    world = rolled_back()
    made, undone = world.proof(mate()), world.leaves[2]["after"]
    report = examine(made.inputs(model=undone))
    assert report.failed is not None
    assert (report.failed.name, report.failure and report.failure.exit_code) == ("model", 1)
    assert not isinstance(report.failure, OtherModel)


def test_an_opening_stays_good_for_a_proof_at_a_later_head() -> None:
    """Rounds that it opens may be superseded by then; the proof must say so of each."""
    earlier = World("rolled back", clients=8).train(2).leave(LEAVER)
    opening = earlier.proof(LEAVER).opening
    later = rolled_back().proof(LEAVER)  # its second round was superseded since
    assert len(opening.rounds) == len(later.opening.rounds) + 1
    assert verify(later.inputs(opening=opening.encode())).named
    stranger = replace(opening, rounds=(*opening.rounds, replace(opening.rounds[-1], leaf=3)))
    missing = replace(opening, rounds=opening.rounds[1:])
    turned = replace(opening, rounds=opening.rounds[::-1])
    for wrong in (stranger, missing, turned):
        report = examine(later.inputs(opening=wrong.encode()))
        assert report.failed is not None
        assert report.failed.name == "opening"


def test_survivors_are_counted_from_the_log() -> None:
    world = World("together", x=1).train(2).leave(LEAVER, OTHER)
    report = verify(world.proof(LEAVER).inputs())
    expected = []
    for past in world.standing:
        group = past.group_of(past.slots[LEAVER])
        expected.append(len(set(group.slots) - past.gone))
    assert report.survivors == expected


def test_a_rollback_that_ends_in_the_very_models_it_undid_is_not_called_retrained() -> None:
    def rolled_back(kept: int, *, idle: bool = False) -> Report:
        world = World("same", noise="none").train(3)
        models = [leaf["after"] for leaf in world.leaves[1:]]
        world.leave(LEAVER, to=2)
        if idle:  # a round that changes nothing ends in a model that stands
            return verify(world.train(1, after=[world.model]).proof(LEAVER).inputs())
        return verify(world.train(kept, after=models[1:]).train(2 - kept).proof(LEAVER).inputs())

    for kept, words in ((2, "2 rounds since the rollback"), (1, "1 round since the rollback")):
        report = rolled_back(kept)
        verdict = next(result for result in report.results if result.name == "verdict")
        assert words in verdict.detail
        assert len(report.warnings) == 1
        assert ("the one served" in report.warnings[0]) == (kept == 2)
    assert rolled_back(0).warnings == rolled_back(0, idle=True).warnings == []


def test_a_proof_stays_good_as_the_log_grows_and_older_heads_stay_prefixes() -> None:
    world = deniable()
    heads = [world.checkpoint(size) for size in range(len(world.leaves) + 1)]
    world.train(2).leave(OTHER).train(1)
    made = world.proof(LEAVER)
    assert all(examine(made.inputs(checkpoint=head)).valid for head in heads)


def test_receipts_hold_the_server_to_every_round() -> None:
    world = deniable()
    made = world.proof(LEAVER)
    receipts = [world.receipt(LEAVER, leaf, size=size) for leaf in (1, 2) for size in range(leaf + 1, 5)]
    assert verify(made.inputs(receipts=receipts)).valid
    later = deniable().train(1)
    with refuses(VerificationError, "check 15 (receipts)"):
        verify(made.inputs(receipts=[later.receipt(LEAVER, 1, size=5)]))
