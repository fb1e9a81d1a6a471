"""Killed while requests are decided about, models released and leavers readmitted: nothing is lost or doubled."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from disavow.ledger import Ledger, fsck
from tests.ledger.making import create, record_next
from tests.ledger.test_request_events import forget

pytestmark = pytest.mark.kill

KILLS = 4
_PROGRAM = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from disavow.domain import Decision, EventKind
from disavow.ledger import Ledger

with Ledger.open(Path(sys.argv[1]), shared=True) as ledger:
    print("open", flush=True)
    while True:
        at = datetime.now(UTC)
        kind = EventKind.RESUMED if ledger.request(2).paused else EventKind.PAUSED
        ledger.decide_request(2, kind, Decision("officer", at, "because"))
        print(kind.value, flush=True)
        ledger.note_release(digest=str(at), newest=0, after="", averaged=1, to="somebody", at=at)
        print("release", flush=True)
        if ledger.has_left("dora"):
            ledger.readmit("dora", Decision("officer", at, "again"))
            print("readmitted", flush=True)
"""


def test_decisions_releases_and_returns_survive_kills_at_any_instant(tmp_path: Path) -> None:
    run, draw = tmp_path / "run", random.Random(24)
    with create(run) as ledger:
        record_next(ledger)
        forget(ledger, "dora")
        ledger.place_requests(["ada"], at=ledger.created_at)
    released, returned = 0, 0
    for _ in range(KILLS):
        with Ledger.open(run) as ledger:
            events, releases = len(ledger.request(2).history), len(ledger.releases())
        with subprocess.Popen([sys.executable, "-c", _PROGRAM, run], stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "open\n"
            time.sleep(draw.uniform(0.01, 0.3))
            worker.send_signal(signal.SIGKILL)
            words = worker.stdout.read().split()
        assert worker.returncode == -signal.SIGKILL
        with Ledger.open(run, write=True) as ledger:
            decided = sum(word in ("paused", "resumed") for word in words)
            kinds = [event.kind.value for event in ledger.request(2).history]
            # what was told is there; at most one more was committed and not told
            assert 0 <= len(ledger.releases()) - releases - words.count("release") <= 1
            assert all(one != other for one, other in pairwise(kinds))
            assert 0 <= len(kinds) - events - decided <= 1
            released += words.count("release")
            returned += words.count("readmitted")
            assert returned == 0 or not ledger.has_left("dora")
            assert len(ledger.readmissions("dora")) <= 1
        assert [finding for finding in fsck(run) if finding.fault] == []
    assert released > 0
