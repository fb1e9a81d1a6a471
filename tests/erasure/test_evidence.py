"""What the judge gets to see, against a naive reading of the whole ledger."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from disavow.domain import Cluster, ClusterEvidence, Policy, RebuiltEvidence, Slot, Verdict, VerdictKind
from disavow.erasure.judge import judge, judge_growing
from disavow.ledger import Ledger, fsck, journal, log
from disavow.ledger.evidence import evidence, growing
from disavow.ledger.members import Members
from tests.ledger.making import LAYOUT, POLICY, create, files_of, member, record_next
from tests.rounds.builders import MOMENT, PROPERTY

KEY = b"k" * 32
POPULATION = tuple(f"c{i:02d}" for i in range(14))


@dataclass(frozen=True)
class Remembered:
    """A round as a naive server would remember it."""

    groups: tuple[tuple[str, ...], ...]
    spreads: tuple[float, ...]
    delta: float


@dataclass
class Story:
    """A ledger with a random history, and the same history in plain lists."""

    ledger: Ledger
    rng: random.Random
    delta: float | None
    standing: list[Remembered]
    gone: set[str]

    def record(self) -> None:
        present = [client for client in POPULATION if client not in self.gone]
        taking_part = self.rng.sample(present, self.rng.randint(2, len(present)))
        groups = self._partition(taking_part)
        spreads = tuple(self.rng.choice([0.25, 0.5, 1.0]) for _ in groups)
        delta = self.delta if self.delta is not None else max(spreads)
        order = [client for group in groups for client in group]
        record_next(
            self.ledger,
            after=np.full(LAYOUT.size, self.rng.random(), dtype=np.float32),
            delta=delta,
            clusters=tuple(
                Cluster(
                    len(group) / len(order),
                    spread,
                    tuple(Slot(member(c)) for c in group),
                )
                for group, spread in zip(groups, spreads, strict=True)
            ),
        )
        self.standing.append(Remembered(groups, spreads, delta))

    def _partition(self, taking_part: list[str]) -> tuple[tuple[str, ...], ...]:
        found, left = [], list(taking_part)
        while left:
            size = self.rng.randint(2, 3)
            size = 5 - size if len(left) - size == 1 else size  # nobody stays alone
            found.append(tuple(left[:size]))
            left = left[size:]
        return tuple(found)

    def naive(self, leavers: set[str], needed: int) -> Verdict:
        """The definition over the whole ledger, without any index."""
        gone = self.gone | leavers
        for number, remembered in enumerate(self.standing, start=1):
            for group, spread in zip(remembered.groups, remembered.spreads, strict=True):
                if set(group) & leavers and (len(set(group) - gone) < needed or spread > remembered.delta):
                    return Verdict(VerdictKind.ROLLBACK, number)
        return Verdict(VerdictKind.DENIABLE)

    def judged(self, leavers: set[str], policy: Policy) -> Verdict:
        with self.ledger._connect() as connection:
            members, numbers = self.ledger.members, numbers_of(self.ledger, leavers)
            # nothing is remembered in these: every round is looked at anew, and the first ones alone at first
            by_and_by = growing(connection, Members(members.keyring, members.run_id), numbers, policy, at_first=1)
            first = judge_growing(by_and_by, policy)
            assert first == judge(evidence(connection, members, numbers, policy), policy)
            return first

    def withdraw(self, leavers: set[str], rollback_to: int | None, *, delete: bool) -> None:
        """As an erasure does it, whatever the verdict; half of the time also forget them."""
        self.ledger.place_requests(sorted(leavers), at=MOMENT)
        numbers, members = numbers_of(self.ledger, leavers), self.ledger.members
        if self.ledger.never_present(numbers) == set(numbers):
            rollback_to = None  # whoever was never there undoes nothing
        kind = VerdictKind.DENIABLE if rollback_to is None else VerdictKind.ROLLBACK
        with self.ledger._begin() as connection:
            erasure = journal.open_erasure(
                connection,
                members,
                journal.waiting(connection),
                Verdict(kind, rollback_to),
                mechanism="retrain",
                at=MOMENT,
            )
            log.log_erasure(connection, members, erasure)
            if rollback_to is not None:
                journal.supersede(connection, rollback_to, erasure)
                journal.finish_rebuilding(connection, epochs=1, model_bytes=4)
                del self.standing[rollback_to - 1 :]
        if delete:
            with self.ledger._begin() as connection:
                journal.give_up_contributions(connection, members, list(self.ledger.leavers_to_forget()))
            self.ledger.forget(self.ledger.leavers_to_forget())
        self.gone |= leavers


def numbers_of(ledger: Ledger, ids: set[str]) -> list[int]:
    return list(ledger.numbers_of(sorted(ids)).values())


@pytest.mark.parametrize("examples", [6, pytest.param(60, marks=pytest.mark.torture)])
def test_random_ledgers_are_judged_as_the_definition_says(
    tmp_path_factory: pytest.TempPathFactory, examples: int
) -> None:
    verdicts: set[str] = set()

    @settings(PROPERTY, max_examples=examples)
    @given(st.integers(0, 2**32 - 1), st.booleans())
    def property_holds(seed: int, fixed: bool) -> None:
        rng = random.Random(seed)
        policy = replace(POLICY, delta=0.5 if fixed else None)
        with create(tmp_path_factory.mktemp("story") / "run", clients=POPULATION, policy=policy) as ledger:
            story = Story(ledger, rng, policy.delta, [], set())
            while len(POPULATION) - len(story.gone) > 4:
                for _ in range(rng.randint(0, 2)):
                    story.record()
                present = sorted(set(POPULATION) - story.gone)
                # many questions on each state: asking is cheap, and changes nothing
                for _ in range(12):
                    requesters, x, drawn = (
                        set(rng.sample(present, rng.randint(1, 3))),
                        rng.randint(1, 4),
                        rng.randint(1, 2),
                    )
                    due = story.naive(requesters, x + drawn - 1)
                    found = story.judged(requesters, replace(policy, x=x, representatives=drawn))
                    assert found == due, (seed, sorted(requesters), x, drawn)
                    verdicts.add(str(due))
                leavers = set(rng.sample(present, rng.randint(1, 2)))
                due = story.naive(leavers, 1)
                # now and then an earlier rollback than due, so that superseded rounds lie about
                undone = rng.choice([due.round, rng.randint(1, len(story.standing)) if story.standing else None])
                story.withdraw(leavers, undone, delete=rng.random() < 0.5)
            # these are ledgers that could be
            assert [str(finding) for finding in fsck(ledger.directory) if finding.fault] == []

    property_holds()
    # ledgers on which everything comes to one verdict would show nothing
    assert {"deniable", "rollback to round 1", "rollback to round 2"} <= verdicts


@pytest.fixture
def four(tmp_path: Path) -> Iterator[Ledger]:
    """Two clusters of three and two, twice."""
    ids = ("al", "bo", "cy", "di", "ed")
    ledger = create(tmp_path / "run", clients=ids)
    al, bo, cy, di, ed = (member(client) for client in ids)
    for _ in range(2):
        record_next(
            ledger,
            clusters=(
                Cluster(0.6, 0.25, (Slot(al), Slot(bo), Slot(cy))),
                Cluster(0.4, 0.25, (Slot(di), Slot(ed))),
            ),
        )
    with ledger:
        yield ledger


def verdict_on(ledger: Ledger, *leavers: str, x: int = 2) -> Verdict:
    policy = replace(POLICY, x=x)
    with ledger._connect() as connection:
        numbers = numbers_of(ledger, set(leavers))
        return judge(evidence(connection, ledger.members, numbers, policy), policy)


def withdrawn(ledger: Ledger, *leavers: str) -> None:
    Story(ledger, random.Random(), None, [], set()).withdraw(set(leavers), None, delete=True)


def clusters_of(shown: Iterable[ClusterEvidence | RebuiltEvidence]) -> list[ClusterEvidence]:
    """All of it, where nothing was rebuilt."""
    found = list(shown)
    assert all(isinstance(each, ClusterEvidence) for each in found)
    return [each for each in found if isinstance(each, ClusterEvidence)]


def test_leaving_together_is_judged_together(four: Ledger) -> None:
    assert verdict_on(four, "bo") == verdict_on(four, "al") == Verdict(VerdictKind.DENIABLE)
    assert verdict_on(four, "al", "bo") == Verdict(VerdictKind.ROLLBACK, 1)
    withdrawn(four, "al")
    assert verdict_on(four, "bo") == Verdict(VerdictKind.ROLLBACK, 1)


@pytest.mark.parametrize("x", [1, 2])
def test_when_a_whole_cluster_leaves_nobody_in_it_is_deniable(four: Ledger, x: int) -> None:
    """Only its members could have been drawn: others like them, in another cluster, do not count."""
    assert verdict_on(four, "al", "bo", "cy", x=x) == Verdict(VerdictKind.ROLLBACK, 1)
    withdrawn(four, "al")
    withdrawn(four, "bo")
    assert verdict_on(four, "cy", x=x) == Verdict(VerdictKind.ROLLBACK, 1)


def test_only_clusters_that_held_a_leaver_are_judged(four: Ledger) -> None:
    withdrawn(four, "ed")
    with four._connect() as connection:
        numbers = numbers_of(four, {"bo"})
        shown = clusters_of(evidence(connection, four.members, numbers, POLICY))
    assert sorted((cluster.round, cluster.survivors, cluster.leavers) for cluster in shown) == [
        (1, 2, tuple(numbers)),
        (2, 2, tuple(numbers)),
    ]


def test_the_ratio_is_that_of_the_proof(four: Ledger) -> None:
    """displacement / τ: 0.6·0.25 over σ·√((0.6·0.25)² + (0.4·0.25)²), whatever the number of representatives."""
    due = 0.15 / (POLICY.sigma * (0.15**2 + 0.1**2) ** 0.5)
    with four._connect() as connection:
        shown = clusters_of(evidence(connection, four.members, numbers_of(four, {"bo"}), POLICY))
    assert [cluster.ratio for cluster in shown] == pytest.approx([due, due])


def test_superseded_rounds_are_no_evidence(four: Ledger) -> None:
    four.place_requests(["ed"], at=MOMENT)
    with four._begin() as connection:
        verdict = Verdict(VerdictKind.ROLLBACK, 2)
        waiting = journal.waiting(connection)
        erasure = journal.open_erasure(connection, four.members, waiting, verdict, mechanism="retrain", at=MOMENT)
        journal.supersede(connection, 2, erasure)
    with four._connect() as connection:
        shown = evidence(connection, four.members, numbers_of(four, {"al", "di"}), POLICY)
        assert {cluster.round for cluster in shown} == {1}


def test_each_cluster_is_shown_once_even_when_it_loses_several(four: Ledger) -> None:
    with four._connect() as connection:
        shown = clusters_of(evidence(connection, four.members, numbers_of(four, {"al", "bo", "cy"}), POLICY))
        assert [(cluster.survivors, len(cluster.leavers)) for cluster in shown] == [(0, 3), (0, 3)]


def test_nobody_leaving_is_no_evidence(four: Ledger) -> None:
    with four._connect() as connection:
        assert list(evidence(connection, four.members, [], POLICY)) == []


def test_more_leavers_than_one_statement_can_carry(tmp_path: Path) -> None:
    """1,200 leave at once, in one round of 1,400; every one of them is in the evidence."""
    ids = [f"n{i:04d}" for i in range(1400)]
    pairs = [ids[i : i + 2] for i in range(0, 1400, 2)]
    with create(tmp_path / "run", clients=ids) as ledger:
        record_next(
            ledger,
            clusters=tuple(Cluster(2 / 1400, 0.25, (Slot(member(one)), Slot(member(two)))) for one, two in pairs),
        )
        leaving = numbers_of(ledger, set(ids[:1200]))
        with ledger._connect() as connection:
            shown = clusters_of(evidence(connection, ledger.members, leaving, POLICY))
    assert len(shown) == 600
    assert sum(cluster.survivors for cluster in shown) == 0


def test_it_only_reads(four: Ledger) -> None:
    withdrawn(four, "ed")
    four.close()
    before = files_of(four.directory)
    with Ledger.open(four.directory) as ledger:  # nothing can be written through this one
        assert verdict_on(ledger, "bo", "di").round == 1
    assert files_of(four.directory) == before


SCAN = re.compile(r"\bSCAN (memberships|slots|withdrawals|clusters)\b")


def test_it_is_answered_from_indexes(four: Ledger) -> None:
    """The cost of asking grows with the rounds, each of which is looked up; no other table is walked through."""
    withdrawn(four, "ed")
    plans: list[str] = []
    statements: list[str] = []
    with four._connect() as connection:
        leavers = numbers_of(four, {"bo", "di"})

        @sa.event.listens_for(connection, "before_cursor_execute")
        def explain(_: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
            statements.append(statement)
            cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            plans.extend(row[3] for row in cursor.fetchall())

        shown = list(evidence(connection, four.members, leavers, POLICY))
    assert shown
    assert len(statements) > 2
    assert any("SEARCH" in plan for plan in plans)
    assert [plan for plan in plans if SCAN.search(plan)] == []


def test_rounds_without_the_leaver_cost_one_look_up_each_however_many_took_part(tmp_path: Path) -> None:
    """Counted in SQLite's own steps, not in seconds."""

    def steps(others: int, pairs: int) -> int:
        ids = [f"n{i:04d}" for i in range(2 * pairs)]
        with create(tmp_path / f"{others} of {pairs}", clients=["leaver", "friend", *ids]) as ledger:

            def round_of(names: list[str]) -> None:
                groups = [names[i : i + 2] for i in range(0, len(names), 2)]
                record_next(
                    ledger,
                    clusters=tuple(
                        Cluster(1 / len(groups), 0.25, (Slot(member(one)), Slot(member(two))))
                        for one, two in groups
                    ),
                )

            for _ in range(2):
                round_of(["leaver", "friend", *ids[:2]])
            for _ in range(others):
                round_of(ids)
            withdrawn(ledger, ids[0])
            numbers = numbers_of(ledger, {"leaver"})
            count = 0

            def tick() -> int:
                nonlocal count
                count += 1
                return 0

            with ledger._connect() as connection:
                raw: Any = connection.connection.driver_connection
                raw.set_progress_handler(tick, 1)
                assert len(list(evidence(connection, ledger.members, numbers, POLICY))) == 2
                raw.set_progress_handler(None, 0)
            return count

    none, some, many, large = steps(0, 2), steps(10, 2), steps(20, 2), steps(20, 40)
    assert many - some == pytest.approx(some - none, rel=0.1)
    assert (many - none) / 20 < 50
    assert large == pytest.approx(many, rel=0.05)
