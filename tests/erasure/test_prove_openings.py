"""When proofs and openings are written, and where; whatever interrupts that."""

from __future__ import annotations

import base64
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from disavow.domain import RequestState
from disavow.erasure.proof_files import check_openings, default_openings, opening_path, proof_path, what_if_path
from disavow.errors import AlreadyForgotten, ConfigError, IntegrityError
from disavow.federation import Callbacks, Federation
from disavow.ledger import fsck, journal
from disavow.ledger.files import write_durably
from disavow.ledger.id_search import files_with
from disavow.ledger.members import Members
from disavow.ledger.proofs import ProofStore
from disavow.proof.envelope import Envelope
from disavow.proof.notes import Signer
from disavow.proof.opening import Opening
from disavow.proof.verify import VerificationInputs, verify
from tests.erasure.erased_runs import forgotten, keys_of, secrets_of
from tests.erasure.mechanisms.contract import (
    ask,
    leave,
    pair_first_together_in,
)
from tests.erasure.proving import (
    CLUSTER,
    DRAWN,
    SERVER,
    held,
    pair_that_breaks,
    predicate_of,
    proof_of,
    reopened,
    served,
    trained,
    trust,
)
from tests.ledger.making import files_of
from tests.refusals import refuses
from tests.rounds.builders import MOMENT

# -- when and where ----------------------------------------------------------------------------------------------


def test_the_proof_is_made_before_anything_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = journal.give_up_contributions

    def watched(connection: sa.Connection, members: Members, leavers: Sequence[int]) -> None:
        report = held(tmp_path / "run", 1, "client-05")
        seen.append((report.valid, members.keyring.count()))
        real(connection, members, leavers)

    with trained(tmp_path / "run") as run:
        monkeypatch.setattr(journal, "give_up_contributions", watched)
        leave(run, "client-05")
        assert run.ledger.keyring.count() == 8
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
    report = verify(VerificationInputs(proof=proof_of(tmp_path / "run", 1), opening=opening, trusted=trust()))
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
        with refuses(ConfigError, "openings", tmp_path / where):
            replace(run, openings=tmp_path / where).answer()
        with refuses(ConfigError, "openings", tmp_path / where):
            check_openings(tmp_path / where, tmp_path / "run")
        assert set(files_of(tmp_path / "run")) == before
        assert [request.state for request in run.ledger.requests()] == [RequestState.WAITING]


def salts_of(run: Federation, *leavers: str) -> Iterator[bytes]:
    """The salts of these clients' slots and requests."""
    for client, number in run.ledger.numbers_of(leavers).items():
        yield from secrets_of(run.ledger, client)[::2]
        yield from (request.salts.client for request in run.ledger.judged_requests_of([number]))


@DRAWN
def test_afterwards_no_file_of_the_run_holds_the_leavers_ids_or_salts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    found: list[bytes] = []
    real = journal.give_up_contributions
    with trained(tmp_path / "run", **changed) as run:
        pair = pair_that_breaks(run)
        keys = keys_of(run.ledger, *pair)

        def watched(connection: sa.Connection, members: Members, leavers: Sequence[int]) -> None:
            found.extend(salts_of(run, *pair))
            real(connection, members, leavers)

        monkeypatch.setattr(journal, "give_up_contributions", watched)
        leave(run, *pair)
        assert forgotten(run.ledger.keyring, keys, *pair)
    assert len(found) == 2 * 4 + 2  # a slot a round for both, and a request each
    for client in pair:
        assert files_with(tmp_path / "run", client) == []
    forms = [form for salt in found for form in (salt, base64.b64encode(salt), salt.hex().encode())]
    for name, data in files_of(tmp_path / "run").items():
        shown = [data]
        if name.startswith("proofs/"):
            shown.append(Envelope.decode(data).statement)
        for content in shown:
            assert not any(form in content for form in forms), name
            assert not any(client.encode() in content for client in pair), name
    openings = b"".join(files_of(default_openings(tmp_path / "run")).values())
    assert sum(base64.b64encode(salt) in openings for salt in found) >= 2  # they are with the leavers instead
    assert fsck(tmp_path / "run") == []


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
            patch.setattr(journal, "give_up_contributions", interrupt)
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
            patch.setattr(journal, "give_up_contributions", interrupt)
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
        written: dict[int, Path] = {}
        [number] = run.ledger.place_requests(["client-04"], at=MOMENT, openings=wish)
        [other] = run.ledger.place_requests(["client-01"], at=MOMENT)
        run.answer(Callbacks(on_opening=written.__setitem__))
        assert written == {
            number: opening_path(wish, run.ledger.run_id, number),
            other: opening_path(default_openings(run.ledger.directory), run.ledger.run_id, other),
        }
        assert all(path.exists() for path in written.values())
        # asked again, nothing is noted of somebody who is gone
        with refuses(AlreadyForgotten, "client-04"):
            run.ledger.place_requests(["client-04"], at=MOMENT, openings=wish)
        keyring = run.ledger.keyring.folder
    for folder in (tmp_path / "run", keyring):  # the wish names a client, and is in the keyring as long as it waits
        assert files_with(folder, "for client-04") == []


def test_a_wish_for_an_opening_may_be_placed_later_than_the_request(tmp_path: Path) -> None:
    with trained(tmp_path / "run", **CLUSTER) as run:
        [number] = ask(run, "client-04")
        run.ledger.place_requests(["client-04"], at=MOMENT, openings=tmp_path)
        run.answer()
        assert opening_path(tmp_path, run.ledger.run_id, number).exists()


@pytest.mark.parametrize("wish", ["run/openings", "run", "gone", "a file"])
def test_an_opening_goes_beside_the_run_where_the_folder_asked_for_cannot_be_used(
    tmp_path: Path, wish: str
) -> None:
    (tmp_path / "a file").touch()
    with trained(tmp_path / "run", **CLUSTER) as run:
        [number] = run.ledger.place_requests(["client-04"], at=MOMENT, openings=tmp_path / wish)
        run.answer()
        held(run, number, "client-04")
    assert not (tmp_path / "run" / "openings").exists()
    assert fsck(tmp_path / "run") == []
    assert files_with(tmp_path / "run", "client-04") == []
