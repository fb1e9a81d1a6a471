"""`disavow erase`, `disavow requests` and `disavow fsck --absent`, run as a person runs them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from disavow.erasure.proof_files import default_openings
from disavow.federation import Federation
from disavow.ledger import fsck
from disavow.ledger.copying import run_id_of
from disavow.ledger.id_search import files_with
from disavow.ledger.keyring import Keyring
from disavow.rounds.options import now
from tests.cli.erasing import Command, contents, models, states


def test_a_dry_run_says_what_it_costs_and_changes_no_byte(run: Path, pair: list[str], disavow: Command) -> None:
    before = contents(run)
    words = disavow("erase", run, "client-01", "--dry-run")
    assert (words.returncode, words.stderr) == (0, "")
    verdict, odds, *_, unchanged = words.stdout.splitlines()
    assert verdict == "client-01: deniable; the answer is immediate and the model stays"
    assert odds.strip().startswith("client-01: odds of ")
    assert unchanged == "Nothing was changed."
    data = disavow("erase", run, *pair, "--dry-run", "--json")
    assert (data.returncode, data.stderr) == (0, "")
    document = json.loads(data.stdout)
    left = 8 - len(pair)
    seconds = document["cost"].pop("seconds")
    assert seconds > 0
    assert document == {
        "run": str(run),
        "dry_run": True,
        "clients": pair,
        "records": None,
        "verdict": "rollback",
        "first_broken_round": 1,
        "rollback_to_round": 1,
        "mechanism": "retrain",
        "approximate": False,
        "cost": {
            "rounds": 3,
            "client_epochs": 3 * left,
            "exchanged_bytes": document["cost"]["exchanged_bytes"],
        },
        "served_round": 3,
        "criterion": "survivors",
        "log10_odds": {},
        "obstacle": None,
        "cannot_retrain": None,
        "proof_too_large": None,
    }
    assert document["cost"]["exchanged_bytes"] % (2 * 3 * left * 4) == 0
    assert contents(run) == before
    assert [path.name for path in (run.parent / "keys").iterdir()] == ["keyring"]
    assert Keyring(run.parent / "keys", run_id_of(run)).tombstones() == 0


def test_a_deniable_request_is_answered_in_a_sentence_and_asking_twice_repeats_it(
    run: Path, disavow: Command
) -> None:
    served = models(run)
    first = disavow("erase", run, "client-03")
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("client-03: request 1: deniable; answered 20")
    assert first.stdout.splitlines()[0].endswith(" UTC")
    assert "proof: not signed, there is no key" in first.stdout.splitlines()[1]
    second = disavow("erase", run, "client-03", "client-03")
    assert (second.returncode, second.stdout) == (0, first.stdout)
    assert models(run) == served
    keyring = Keyring(run.parent / "keys", run_id_of(run))
    assert (keyring.find("client-03"), keyring.has_left("client-03"), keyring.faults()) == (None, True, [])
    assert files_with(run, "client-03") + files_with(keyring.folder, "client-03") == []
    listed = disavow("requests", run)
    assert listed.returncode == 0
    assert "(erased)" in listed.stdout
    assert "client-03" not in listed.stdout
    clean = disavow("fsck", run, "--absent", "client-03")
    assert clean.returncode == 0
    assert f"'client-03' is in no file of {run}" in clean.stdout
    [opening] = default_openings(run).iterdir()
    assert f"note: {opening}: " in clean.stdout
    assert str(opening) not in disavow("fsck", run, "--absent", "client-0").stdout  # another id that it contains
    opening.unlink()
    assert str(opening) not in disavow("fsck", run, "--absent", "client-03").stdout


@pytest.mark.parametrize("kind", ["file", "dangling link"])
def test_openings_that_are_no_folder_are_refused_before_anything_is_placed(
    run: Path, kind: str, disavow: Command
) -> None:
    openings = default_openings(run)
    openings.touch() if kind == "file" else openings.symlink_to("nowhere")
    assert disavow("erase", run, "client-03").returncode == 2
    assert states(run) == []
    openings.unlink()
    assert disavow("erase", run, "client-03").returncode == 0


@pytest.mark.parametrize("kind", ["fifo", "link", "empty payload"])
def test_a_proof_that_is_none_does_not_change_an_answer(run: Path, kind: str, disavow: Command) -> None:
    assert disavow("erase", run, "client-03").returncode == 0
    [proof] = (run / "proofs").iterdir()
    proof.unlink()
    if kind == "fifo":
        os.mkfifo(proof)
    elif kind == "link":
        proof.symlink_to("/etc/passwd")
    else:
        proof.write_bytes(b"{}")
    assert disavow("erase", run, "client-03").returncode == 0
    assert disavow("fsck", run).returncode == 1


def test_a_rollback_is_answered_in_json_and_listed_so(run: Path, pair: list[str], disavow: Command) -> None:
    result = disavow("erase", run, *pair, "--yes", "--json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["run"] == str(run)
    assert [one["client"] for one in document["requests"]] == pair
    for number, one in enumerate(document["requests"], start=1):
        assert (one["number"], one["state"], one["verdict"], one["first_broken_round"], one["remark"]) == (
            number,
            "answered",
            "rollback",
            1,
            "",
        )
        assert one["cost"]["rounds"] == 3
        assert one["cost"]["client_epochs"] == 3 * (8 - len(pair))
        assert one["seconds_taken"] >= 0
    assert "rollback to round 1" in result.stderr
    assert [(number, attempt) for number, attempt, _ in models(run)] == [(1, 2), (2, 2), (3, 2)]
    data = disavow("requests", run, "--json")
    listed = json.loads(data.stdout)["requests"]
    # no round that stands shows them
    assert [(one.pop("noise"), one.pop("summary")["rounds"]) for one in document["requests"]] == [
        (None, 0),
        (None, 0),
    ]
    alike = [{key: one[key] for key in row} for one, row in zip(document["requests"], listed, strict=True)]
    assert [{**one, "client": None} for one in alike] == listed
    clean = disavow("fsck", run, *(word for client in pair for word in ("--absent", client)), "--json")
    document = json.loads(clean.stdout)
    assert (clean.returncode, document["run"], document["clean"]) == (0, str(run), True)
    # only their openings name them still, beside the run: that is noted, each with whom it names
    beside = {str(path) for path in default_openings(run).iterdir()}
    assert {finding["where"] for finding in document["findings"]} == beside
    assert len(document["findings"]) == len(pair)
    assert not any(finding["fault"] for finding in document["findings"])


def test_no_requests(run: Path, disavow: Command) -> None:
    words, data = disavow("requests", run), disavow("requests", run, "--json")
    assert (words.returncode, words.stdout, data.returncode) == (0, "no requests\n", 0)
    assert json.loads(data.stdout) == {"run": str(run), "requests": []}


def test_a_client_who_never_took_part(run: Path, disavow: Command) -> None:
    with Federation.open(run, write=True) as opened:
        opened.ledger.register(["newcomer"])
    result = disavow("erase", run, "newcomer")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("newcomer: request 1: never present; answered ")
    assert files_with(run, "newcomer") == []


def test_too_few_to_retrain_is_said_first_and_afterwards(run: Path, disavow: Command) -> None:
    everyone = [f"client-0{i}" for i in range(1, 7)]
    first = disavow("erase", run, *everyone, "--dry-run")
    assert "rollback to round 1; it cannot be retrained (2 participants are left, fewer than k = 3)" in first.stdout
    assert "the initial model is served" in first.stdout
    result = disavow("erase", run, *everyone, "--yes")
    assert result.returncode == 0, result.stderr
    remark = "not retrained: 2 participants are left, fewer than k = 3; the initial model is served"
    assert [remark in line for line in result.stdout.splitlines()[:12:2]] == [True] * 6
    assert "export it again" in result.stdout.splitlines()[-1]
    assert models(run) == []
    assert fsck(run) == []


@pytest.mark.parametrize("client", ["[/b]", "[bold]somebody", "[red]"])
def test_an_id_that_looks_like_markup_is_an_id(run: Path, client: str, disavow: Command) -> None:
    with Federation.open(run, write=True) as opened:
        opened.ledger.register([client])
        opened.ledger.place_requests([client], at=now())
    for arguments in ([client, "--dry-run"], [], [client]):
        result = disavow("erase" if arguments else "requests", run, *arguments)
        assert (result.returncode, client in result.stdout) == (0, True), (arguments, result.stdout, result.stderr)
