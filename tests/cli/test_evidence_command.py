"""`disavow evidence`: what goes on record about a request, in every state that it can be in."""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from disavow.errors import ConfigError, LedgerError, RunMissing, UnknownRequest, VerificationError
from disavow.evidence.pdf import print_pdf
from disavow.ledger import Ledger
from disavow.proof.envelope import Envelope
from disavow.wording import day
from tests.cli.process import COMMAND, assert_refused, environment, run
from tests.cli.process import disavow as in_process
from tests.cli.signed_run import LEAVER, SECRET, STAYER, World, tampered

BASE = {"evidence.html", "keys.json", "checkpoint.txt", "request.json", "SHA256SUMS"}
PROVED = BASE | {"proof.json", "serving.json", "verify.html"}
WHO = ("--by", "the officer")


@pytest.fixture
def pack(copied: World) -> Callable[..., Path]:
    """Make a pack by the command, without a PDF; give its folder."""

    def make(number: int = 1, *options: str, name: str = "pack") -> Path:
        folder = copied.folder / name
        ended = copied.call("evidence", copied.run, str(number), "-o", folder, "--no-pdf", *options)
        assert ended.status == 0, ended.stderr
        return folder

    return make


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def words(folder: Path) -> str:
    """The document as somebody reads it."""
    text = re.sub(r"<style>.*?</style>", "", (folder / "evidence.html").read_text(encoding="utf-8"), flags=re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def decision(folder: Path) -> str:
    """What the document says first: the decision in one sentence."""
    [found] = re.findall(r'<p class="decision">(.*?)</p>', (folder / "evidence.html").read_text(encoding="utf-8"))
    return html.unescape(found)


def pair_of(world: World) -> list[str]:
    """Two clients of one cluster, of whom too few are left when both go."""
    with Ledger.open(world.run, keys=world.keys) as ledger:
        clusters = [sorted(filter(None, members)) for members in ledger.membership(1)]
    [pair] = [members[:2] for members in clusters if LEAVER not in members][:1]
    return pair


def set_purge(world: World) -> None:
    """Have the run promise that whoever leaves is trained out of the model by the deadline."""
    path = world.run / "config.toml"
    text = path.read_text()
    assert 'purge = "never"' in text
    path.write_text(text.replace('purge = "never"', 'purge = "deadline"'))


def test_a_deniable_answer(copied: World, pack: Callable[..., Path]) -> None:
    folder = pack()
    assert names(folder) == PROVED
    assert decision(folder).startswith("Granted: the client was removed")
    text = words(folder)
    shown = json.loads(copied.call("show-proof", folder / "proof.json", "--json").stdout)
    for said in (
        "What was NOT promised That the client's data was never used.",
        f"drawn at least once is {shown['summary']['drawn']:.1%}",
        "That the model is trained again without the client. It was not.",
        "kept",
        *shown["not_claimed"],
    ):
        assert said in text
    # the command that the document gives verifies the proof, and names nobody without the opening
    [command] = re.findall(r"<pre>disavow verify (.*?)</pre>", (folder / "evidence.html").read_text(), flags=re.S)
    arguments = command.replace("\\", "").split()
    verified = copied.driver.run("verify", *arguments, "--json", keys=copied.keys, cwd=folder)
    assert verified.status == 3, verified.stdout
    passed = {each["name"]: each["passed"] for each in json.loads(verified.stdout)["checks"]}
    assert passed["history"] is True
    assert passed["serving"] is True


def test_every_file_has_its_digest_and_is_for_its_owner_alone(copied: World, pack: Callable[..., Path]) -> None:
    folder = pack()
    sums = {line[66:]: line[:64] for line in (folder / "SHA256SUMS").read_text().splitlines()}
    assert set(sums) == names(folder) - {"SHA256SUMS"}
    text = words(folder)
    for name, digest in sums.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
        assert (folder / name).stat().st_mode & 0o077 == 0
        assert name == "evidence.html" or digest in text
    assert folder.stat().st_mode & 0o077 == 0
    as_json = copied.made("evidence", copied.run, "1", "-o", copied.folder / "again", "--no-pdf")
    assert {name: each["sha256"] for name, each in as_json["files"].items() if name in sums}.keys() == sums.keys()
    assert (as_json["state"], as_json["names_client"], as_json["no_pdf"]) == ("answered", False, None)


def test_no_file_names_the_client_unless_its_opening_is_asked_for(copied: World, pack: Callable[..., Path]) -> None:
    folder = pack()
    for path in folder.iterdir():
        assert LEAVER.encode() not in path.read_bytes()
    assert LEAVER.encode() not in Envelope.decode((folder / "proof.json").read_bytes()).statement

    ended = copied.call("evidence", copied.run, "1", "-o", copied.folder / "own", "--no-pdf", "--with-opening")
    assert (ended.status, "WARNING" in ended.stderr) == (0, True)
    opened = copied.folder / "own"
    assert names(opened) == PROVED | {"opening.json"}
    assert "This folder says who the client is." in words(opened)
    assert [path.name for path in opened.iterdir() if LEAVER.encode() in path.read_bytes()] == ["opening.json"]
    files = ("--key", opened / "keys.json", "--opening", opened / "opening.json", "--client", LEAVER)
    assert copied.call("verify", opened / "proof.json", *files).status == 0

    copied.opening.unlink()
    gone = copied.call("evidence", copied.run, "1", "-o", copied.folder / "later", "--with-opening")
    assert (gone.status, LedgerError.code in gone.stderr) == (LedgerError.exit_code, True)
    assert not (copied.folder / "later").exists()


def test_the_document_loads_nothing_and_takes_no_text_for_html(copied: World) -> None:
    hostile = "<script>alert(1)</script><img src=http://x.example/>"
    assert copied.call("request", "show", copied.run, "1").status == 0
    path = copied.run / "config.toml"
    path.write_text(path.read_text().replace('approval = "never"', 'approval = "always"'))
    assert copied.call("erase", copied.run, STAYER, "--by", hostile, "--yes").status != 0  # it waits
    assert copied.call("request", "refuse", copied.run, "2", "--by", hostile, "--reason", hostile).status == 0
    folder = copied.folder / "pack"
    assert copied.call("evidence", copied.run, "2", "-o", folder, "--no-pdf").status == 0
    page = (folder / "evidence.html").read_text(encoding="utf-8")
    assert hostile not in page
    assert html.escape(hostile, quote=False) in page
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    style = re.findall(r"<style>(.*?)</style>", page, flags=re.S)
    assert re.fullmatch(
        r"default-src 'none'; style-src 'sha256-[^']+'; base-uri 'none'; form-action 'none'", html.unescape(policy)
    )
    assert len(style) == 1
    assert not re.findall(r"<(?:a|img|script|link|iframe|object|form)\b|\sstyle=|\son\w+=|url\(", page)


def test_rounds_that_were_trained_again(copied: World, pack: Callable[..., Path]) -> None:
    copied.made("erase", copied.run, *pair_of(copied), "--yes")
    folder = pack(2)
    assert names(folder) == PROVED  # its first proof says that nothing of it is left: there is no second
    assert decision(folder) == (
        "Granted and complete: the client was removed from the training, and the record of who it was is destroyed."
        " The model was trained again without it."
    )
    cost = json.loads((folder / "request.json").read_text())["cost"]
    assert cost["rounds"] == 2
    text = words(folder)
    assert f"Answering {cost['rounds']} {cost['client_epochs']}" in text
    assert "All rounds from 1 on were undone and trained again without this client." in text
    assert "drawn at least once is" not in text


def test_an_interim_answer_and_then_a_purge(copied: World, pack: Callable[..., Path]) -> None:
    set_purge(copied)
    folder = pack()
    assert decision(folder).startswith("Granted in a first step: ")
    text = words(folder)
    assert "To be trained out of the model by then" in text
    assert "That the model is free of the client already." in text
    assert "That the model is trained again without the client." not in text

    done = copied.made("purge", copied.run, "--yes")
    folder = pack(name="purged")
    assert names(folder) == PROVED | {"proof-interim.json"}
    assert decision(folder).startswith("Granted and complete: ")
    text = words(folder)
    assert f"all leavers together {done['cost']['rounds']} {done['cost']['client_epochs']}" in text
    assert "trained out of the model" in text.lower()
    key = ("--key", folder / "keys.json", "--opening", copied.opening)
    for name, purged in (("proof.json", True), ("proof-interim.json", False)):
        assert copied.call("verify", folder / name, *key).status == 0
        shown = json.loads(copied.call("show-proof", folder / name, "--json").stdout)
        assert (shown["purged"] is not None) == purged


def test_records_of_a_client_that_stays(copied: World, pack: Callable[..., Path]) -> None:
    keys = ("--record", "0", "--record", "1", "--unchecked")
    copied.made("erase", copied.run, STAYER, *keys, "--yes")
    folder = pack(2)
    assert decision(folder).startswith("Granted: 2 records of a client were excluded from the training")
    text = words(folder)
    assert "That the records were never used." in text
    assert "That the client deleted the records on its own machines. Of that there is the client's word" in text
    assert STAYER not in text


@pytest.mark.parametrize(
    ("steps", "state", "said"),
    [
        ((), "waiting", "Not decided yet: the request waits for somebody to approve or refuse it."),
        ((("pause", "--reason", "who is it?"),), "paused", "Not decided yet: the request is paused"),
        ((("approve",),), "waiting", "Not decided yet: the request waits to be answered."),
        ((("refuse", "--reason", "unfounded"),), "refused", "Refused: nothing was erased."),
        ((("cancel",),), "cancelled", "Withdrawn before it was decided: nothing was erased."),
    ],
)
def test_what_is_not_answered_is_said_to_prove_nothing(
    copied: World, pack: Callable[..., Path], steps: tuple[tuple[str, ...], ...], state: str, said: str
) -> None:
    path = copied.run / "config.toml"
    path.write_text(path.read_text().replace('approval = "never"', 'approval = "always"'))
    assert copied.call("erase", copied.run, STAYER, "--yes").status != 0  # it waits
    for what, *options in steps:
        assert copied.call("request", what, copied.run, "2", *WHO, *options).status == 0
    folder = pack(2)
    assert names(folder) == BASE
    assert json.loads((folder / "request.json").read_text())["state"] == state
    assert decision(folder).startswith(said)
    text = words(folder)
    assert "What was NOT promised That anything was erased." in text
    assert "There is no proof" in text
    for path in folder.iterdir():
        assert STAYER.encode() not in path.read_bytes()  # though the run still knows whose it is
    for event in json.loads((folder / "request.json").read_text())["history"][1:]:
        assert event["actor"] in text
        assert event["reason"] in text


def test_the_timeline_has_each_deadline_and_who_approved(copied: World, pack: Callable[..., Path]) -> None:
    path = copied.run / "config.toml"
    path.write_text(path.read_text().replace('approval = "never"', 'approval = "always"'))
    assert copied.call("erase", copied.run, STAYER, "--yes").status != 0
    forecast = copied.made("request", "show", copied.run, "2")["request"]["forecast_digest"]
    waiting = words(pack(2, name="waiting"))
    assert "Forecast, if it were answered now: deniable" in waiting
    for what, *options in (
        ("pause", "--reason", "asked for a passport"),
        ("resume", "--reason", "passport seen"),
        ("extend", "--reason", "many at once", "--until", "2999-01-01"),
    ):
        ended = copied.call("request", what, copied.run, "2", *WHO, *options)
        assert (ended.status == 0) == (what != "extend")  # that is too late
    assert copied.call("request", "extend", copied.run, "2", *WHO, "--reason", "many at once").status == 0
    assert copied.call("request", "approve", copied.run, "2", *WHO, "--forecast", forecast).status == 0
    assert copied.call("resume", copied.run).status == 0
    folder = pack(2)
    text, request = words(folder), json.loads((folder / "request.json").read_text())
    assert f"Deadline extended Reason: many at once {day(request['due'])} the officer" in text
    assert re.search(r"Approved on .* by the officer, having seen the forecast " + forecast[:16], text)
    for reason in ("asked for a passport", "passport seen"):
        assert f"Reason: {reason}" in text


def test_without_a_key_there_is_no_proof_and_the_document_says_so(run: Path, disavow: Any, tmp_path: Path) -> None:
    assert disavow("erase", run, LEAVER).returncode == 0
    assert disavow("evidence", run, "1", "-o", tmp_path / "pack", "--no-pdf").returncode == 0
    assert names(tmp_path / "pack") == {"evidence.html", "request.json", "SHA256SUMS"}
    text = words(tmp_path / "pack")
    assert decision(tmp_path / "pack").startswith("Granted: ")
    assert "There is no signed proof" in text


# -- the folder ----------------------------------------------------------------------------------------------------


def test_a_folder_that_is_used_is_left_as_it_is(copied: World) -> None:
    full = copied.folder / "full"
    full.mkdir()
    (full / "mine").write_text("mine")
    for folder in (full, full / "mine", copied.run / "pack", copied.folder / "none" / "pack"):
        refused = copied.call("evidence", copied.run, "1", "-o", folder, "--no-pdf")
        assert (refused.status, ConfigError.code in refused.stderr) == (ConfigError.exit_code, True)
    assert names(full) == {"mine"}
    (copied.folder / "link").symlink_to(copied.run)
    assert copied.call("evidence", copied.run, "1", "-o", copied.folder / "link").status == ConfigError.exit_code
    (full / "mine").unlink()
    assert copied.call("evidence", copied.run, "1", "-o", full, "--no-pdf").status == 0
    assert names(full) == PROVED


def test_what_a_killed_process_left_is_removed(copied: World) -> None:
    left = copied.folder / ".pack.unfinished"
    left.mkdir()
    (left / "opening.json").write_text(LEAVER)
    assert copied.call("evidence", copied.run, "1", "-o", copied.folder / "pack", "--no-pdf").status == 0
    assert names(copied.folder / "pack") == PROVED
    assert not left.exists()


def test_when_the_disk_is_full_nothing_is_left(copied: World) -> None:
    ended = copied.driver.run(
        "evidence", copied.run, "1", "-o", "pack", "--no-pdf", keys=copied.keys, cwd=copied.folder, limit=50_000
    )
    assert ended.status != 0
    assert not [path for path in copied.folder.iterdir() if "pack" in path.name]


def test_a_proof_that_does_not_hold_goes_on_no_record(copied: World) -> None:
    proof = copied.run / "proofs" / "request-1.json"
    tampered(proof, proof)
    ended = copied.call("evidence", copied.run, "1", "-o", copied.folder / "pack", "--no-pdf")
    assert (ended.status, VerificationError.code in ended.stderr) == (VerificationError.exit_code, True)
    assert not (copied.folder / "pack").exists()
    unknown = copied.call("evidence", copied.run, "9", "-o", copied.folder / "pack")
    assert (unknown.status, UnknownRequest.code in unknown.stderr) == (UnknownRequest.exit_code, True)


# -- the PDF -------------------------------------------------------------------------------------------------------


def test_without_chromium_there_is_no_pdf_and_one_line_says_so(world: World, tmp_path: Path) -> None:
    environ = environment(PATH=str(tmp_path), DISAVOW_KEYS=str(world.keys), DISAVOW_PASSPHRASE=SECRET)
    done = run([*COMMAND, "evidence", str(world.run), "1", "-o", "pack"], cwd=tmp_path, env=environ)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "no PDF: there is no Chromium on PATH\n"
    assert names(tmp_path / "pack") == PROVED


@pytest.mark.parametrize(("script", "reason"), [("exit 3", "ended with 3"), ("sleep 60 & sleep 60", "more than")])
def test_a_browser_that_fails_or_hangs_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    browser = tmp_path / "chromium"
    browser.write_text(f"#!/bin/sh\nenv > {tmp_path}/environment\n{script}\n")
    browser.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("DISAVOW_PASSPHRASE", SECRET)
    printed = print_pdf(b"<!DOCTYPE html>", seconds=2)
    assert (printed.data, reason in printed.reason) == (None, True)
    assert SECRET not in (tmp_path / "environment").read_text()


def test_help_has_an_example() -> None:
    shown = in_process("evidence", "--help")
    assert "disavow evidence runs/first 3 -o evidence-3" in " ".join(shown.stdout.split())
    assert_refused(in_process("evidence", "nowhere", "1", "-o", "x"), RunMissing)


# -- kills ---------------------------------------------------------------------------------------------------------


@pytest.mark.kill
@pytest.mark.parametrize("kills", [3, pytest.param(40, marks=pytest.mark.torture)])
def test_killed_at_any_instant_the_folder_is_whole_or_not_there(world: World, tmp_path: Path, kills: int) -> None:
    environ = environment(DISAVOW_KEYS=str(world.keys), DISAVOW_PASSPHRASE=SECRET)
    arguments = ["evidence", str(world.run), "1", "-o", "pack", "--no-pdf"]
    command = [*COMMAND, *arguments]
    started = time.monotonic()
    assert run(command, cwd=tmp_path, env=environ).returncode == 0
    took = time.monotonic() - started
    shutil.rmtree(tmp_path / "pack")
    for instant in range(kills):
        with subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=subprocess.DEVNULL) as process:
            time.sleep(took * (0.5 + 0.5 * instant / kills))
            process.kill()
        if (tmp_path / "pack").exists():
            assert names(tmp_path / "pack") == PROVED
            shutil.rmtree(tmp_path / "pack")
    assert run(command, cwd=tmp_path, env=environ).returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == {"pack"}
    assert names(tmp_path / "pack") == PROVED
