"""Campaigns: every run once, equal rounds trained once and the same as alone, and nothing lost on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from disavow import runs
from disavow.domain import VerdictKind
from disavow.engines.state import layout_of
from disavow.errors import ConfigError, DisavowError
from disavow.federation import Callbacks, Federation
from disavow.ledger.lock import Lock
from disavow.rounds.vectors import Model, Updates
from reproduction import campaign, grid, lines
from reproduction.campaign import Places, effort
from reproduction.cluster_measures import needed_delta, random_spread
from reproduction.grid import Point
from reproduction.lines import Line, NeededDelta, Round
from tests.refusals import refuses
from tests.reproduction.small import SEVERAL, STAYING, TOML, written


class Witness:
    """Notes what it is told; may interrupt after so many rounds."""

    def __init__(self, interrupt_after: int = -1) -> None:
        self.points: list[Point] = []
        self.notes: list[str] = []
        self.rounds = 0
        self._last = interrupt_after

    def began(self, point: Point) -> None:
        self.points.append(point)

    def executed(self, done: Round) -> None:
        self.rounds += 1
        if self.rounds == self._last:
            raise KeyboardInterrupt

    def ended(self, point: Point, line: Line) -> None:
        assert point.key == line.key

    def noted(self, note: str) -> None:
        self.notes.append(note)


def made(points: Sequence[Point], folder: Path, witness: Witness | None = None) -> list[Line]:
    (folder / "work").mkdir(exist_ok=True, parents=True)
    return campaign.run(points, Places(folder / "results", folder / "work"), witness or Witness())


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> list[Point]:
    return grid.load(written(tmp_path_factory.mktemp("grid"))).points()


@pytest.fixture(scope="module")
def done(points: list[Point], tmp_path_factory: pytest.TempPathFactory) -> list[Line]:
    return made(points, tmp_path_factory.mktemp("campaign"))


def test_every_run_has_its_line(points: list[Point], done: list[Line]) -> None:
    assert [line.key for line in done] == [point.key for point in points]
    for line in done:
        assert [each.number for each in line.rounds if each.kind == "trained"][-1] == 4
        assert line.client_epochs == sum(each.client_epochs for each in line.rounds)
        assert line.bytes.total > line.bytes.models > 0
        assert "dir" not in line.settings["data"]  # type: ignore[operator]
        assert line.distance_to_fedavg is not None


def test_the_mean_of_the_newest_models_is_measured_as_of_each_of_the_last_rounds(
    points: list[Point], done: list[Line], tmp_path: Path
) -> None:
    """Early on there are fewer than five models: the first one is its own mean."""
    for line in done:
        standing = {each.number: each.accuracy for each in line.rounds}
        assert line.averaged is not None
        assert len(line.averaged) == len(standing) == 4
        assert line.averaged[0] == standing[1]
    with Federation.create(tmp_path / "run", points[-1].settings, keys=tmp_path / "keys") as run:
        run.train()
        evaluation = run.engine.evaluate(Model(run.ledger.layout, torch.from_numpy(run.ledger.mean_model(4)[0])))
    assert evaluation is not None
    assert done[-1].averaged is not None
    assert done[-1].averaged[-1] == evaluation.accuracy


def test_the_same_requests_meet_every_method(done: list[Line]) -> None:
    request_rounds = {tuple(request.after_round for request in line.requests) for line in done}
    assert len(request_rounds) == 1
    assert len(request_rounds.pop()) >= 2, "this seed has too few requests to say anything"


def test_fedavg_trains_everything_again_at_each_request(done: list[Line]) -> None:
    plain = done[0]
    assert plain.distance_to_fedavg == (0.0,) * 4
    for request in plain.requests:
        assert (request.verdict, request.to_round, request.rounds) == ("rollback", 1, request.after_round)
    for leavers, request in enumerate(plain.requests, 1):
        assert request.client_epochs == request.rounds * (10 - leavers) * 2


def test_federaser_keeps_updates_and_trains_less(done: list[Line]) -> None:
    plain, eraser = done[0], done[1]
    assert plain.bytes.updates == 0 < eraser.bytes.updates
    assert {each.kind for each in eraser.rounds} == {"trained", "rebuilt"}
    assert sum(r.client_epochs for r in eraser.requests) < sum(r.client_epochs for r in plain.requests)


def test_plain_updates_take_more_and_nothing_else_changes(tmp_path: Path) -> None:
    both = TOML.replace('"fedavg", "federaser", "published", "sticky"', '"federaser-1", "federaser-plain"')
    points = grid.load(written(tmp_path, both)).points()
    packed, plain = made(points, tmp_path)
    size = 4 * layout_of(runs.prepare(points[0].settings).network).size
    kept = 4 * (10 - len(plain.requests))
    assert kept * size < plain.bytes.updates <= kept * (size + 4096 + 100)  # headers, and padding to whole pages
    assert packed.bytes.updates < plain.bytes.updates
    assert (packed.accuracy, packed.bytes.models) == (plain.accuracy, plain.bytes.models)


def test_deniable_requests_train_nothing(done: list[Line]) -> None:
    deniable = [request for line in done[2:] for request in line.requests if request.verdict == "deniable"]
    assert deniable
    assert all((r.to_round, r.rounds, r.client_epochs) == (None, 0, 0.0) for r in deniable)


def test_equal_rounds_are_trained_once(done: list[Line]) -> None:
    published = [line for line in done if line.method == "published"]
    assert not any(each.shared for each in published[0].rounds[1:])
    first = published[1].requests[0].after_round
    assert all(each.shared for each in published[1].rounds[:first])


def test_a_shared_run_is_the_run_that_a_user_would_make(
    points: list[Point], done: list[Line], tmp_path: Path
) -> None:
    point, line = points[-1], done[-1]
    with Federation.create(tmp_path / "run", point.settings, keys=tmp_path / "keys") as run:
        accuracies: list[float] = []
        run.train(Callbacks(on_round=lambda summary: accuracies.append(summary.evaluation.accuracy)))  # type: ignore[union-attr]
        verdicts = [str(request.verdict) for request in run.ledger.requests()]
    assert accuracies == [each.accuracy for each in line.rounds]
    assert [verdict.split(" to ")[0] for verdict in verdicts] == [request.verdict for request in line.requests]


def test_what_was_interrupted_goes_on_and_comes_to_the_same(
    points: list[Point], done: list[Line], tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        made(points, tmp_path, Witness(interrupt_after=len(done[0].rounds) + 2))
    file = tmp_path / "results" / "lenet5-mnist-iid.jsonl"
    assert [line.key for line in lines.read(file)] == [points[0].key]
    witness = Witness()
    again = made(points, tmp_path, witness)
    assert witness.points == points[1:]
    assert not witness.notes
    for old, new in zip(done, again, strict=True):
        assert _what_came_out(old) == _what_came_out(new)
    [room] = (tmp_path / "work").iterdir()
    assert not [left for left in room.iterdir() if left.is_dir() and left.name != "keys"]


def _what_came_out(line: Line) -> object:
    rounds = [replace(each, seconds=0.0, shared=False) for each in line.rounds]
    requests = [replace(each, seconds=0.0) for each in line.requests]
    return line.key, rounds, requests, line.accuracy, line.distance_to_fedavg


def test_a_line_cut_off_in_the_middle_is_run_again_and_the_others_are_not(
    points: list[Point], done: list[Line], tmp_path: Path
) -> None:
    file = tmp_path / "results" / "lenet5-mnist-iid.jsonl"
    for line in done:
        lines.append(file, line)
    file.write_bytes(file.read_bytes()[:-100])
    witness = Witness()
    made(points, tmp_path, witness)
    assert witness.points == points[-1:]
    assert any("cut off" in note for note in witness.notes)
    assert any("no distances" in note for note in witness.notes), "FedAvg's models are not in this workroom"
    assert [line.key for line in lines.read(file)] == [point.key for point in points]


def test_runs_that_another_process_is_at_are_left_to_it(
    points: list[Point], done: list[Line], tmp_path: Path
) -> None:
    paths, witness = Places(tmp_path / "results", tmp_path / "work"), Witness()
    room = paths.room_of(points[0])
    room.mkdir(parents=True)
    lines.append(paths.file_of(points[0]), done[0])
    with Lock(room):
        assert [line.key for line in campaign.run(points, paths, witness)] == [points[0].key]
    assert not witness.points
    [note] = witness.notes
    assert note.startswith("MNIST-iid, lenet5, seed 1 is left to others: ")
    assert "in use by process" in note


def test_clusters_are_compared_with_random_groups_and_hidden_by_noise(done: list[Line]) -> None:
    for line in done[:2]:
        assert (line.width, line.hidden) == (None, None)
    for line in done[2:]:
        assert line.width is not None
        assert line.hidden is not None
        assert 0.5 < line.width.over_random < 1.05  # who is most alike is grouped
        assert 0 < line.width.pairs_within <= 1
        assert 0 < line.hidden.median_composed <= line.hidden.worst_composed


@pytest.mark.parametrize("name", ["relative", "fixed"])
def test_as_many_clients_could_leave_as_need_no_larger_delta(name: str, tmp_path: Path) -> None:
    def trained(delta: str) -> tuple[NeededDelta | None, float]:
        [point] = grid.load(written(tmp_path, f"{STAYING}delta = {delta}\n")).points()
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        with Federation.create(folder, point.settings, keys=tmp_path / "keys") as run:
            run.train()
            verdicts = [verdict.kind for _, verdict in run.departures()]
            return needed_delta(run), verdicts.count(VerdictKind.DENIABLE) / len(verdicts)

    needed, everybody = trained('"adaptive"')
    assert everybody == 1
    assert needed is not None
    found = getattr(needed, name)
    assert list(found) == sorted(found)
    for twentieths in (0, 10, 20):
        share = max(twentieths, 1) / 20
        more, less = (found[twentieths] * factor for factor in (1.0001, 0.9999))
        assert trained(f'"{more:.6f}x"' if name == "relative" else f"{more}")[1] >= share
        assert trained(f'"{less:.6f}x"' if name == "relative" else f"{less}")[1] < share


def test_random_groups_of_equal_updates_have_the_distance_that_is_between_them() -> None:
    vectors = torch.zeros(6, 4)
    vectors[:, 0] = torch.tensor([0.0, 3.0] * 3)
    updates = Updates(tuple("abcdef"), (1,) * 6, vectors)
    assert random_spread(updates, [6], (), np.random.default_rng(1)) == 3.0
    assert 0 < random_spread(updates, [2, 2, 2], (), np.random.default_rng(1)) < 3.0


def test_a_share_of_the_clients_trains_less_and_who_never_did_is_never_present(tmp_path: Path) -> None:
    text = TOML.replace('"federaser", "published", "sticky"', '"fedavg-sampled"')
    plain, sampled = made(grid.load(written(tmp_path, text)).points(), tmp_path)
    assert [each.client_epochs for each in plain.rounds[:1]] == [10 * 2]
    assert [each.client_epochs for each in sampled.rounds[:1]] == [2 * 2]
    for request in sampled.requests:
        if request.verdict == "rollback":
            assert request.to_round is not None
            assert request.rounds == request.after_round - request.to_round + 1  # not from the first round on
        else:
            assert (request.verdict, request.rounds) == ("never present", 0)
    assert sampled.width is None


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> list[Point]:
    return grid.load(written(tmp_path_factory.mktemp("several"), SEVERAL)).points()


@pytest.mark.torture
def test_groups_in_processes_of_their_own_come_to_the_same(several: list[Point], tmp_path: Path) -> None:
    alone, witness = made(several, tmp_path / "alone"), Witness()
    paths = Places(tmp_path / "results", tmp_path / "work")
    together = campaign.run(several, paths, witness, jobs=3)
    assert sorted(point.key for point in witness.points) == sorted(point.key for point in several)
    assert [_what_came_out(line) for line in together] == [_what_came_out(line) for line in alone]
    assert witness.rounds == sum(len(line.rounds) for line in together)
    assert not witness.notes
    assert campaign.run(several, paths, Witness(interrupt_after=1), jobs=3) == together  # nothing is run again


@pytest.mark.torture
def test_what_fails_in_one_group_is_said_and_the_others_are_made(several: list[Point], tmp_path: Path) -> None:
    """A room where no run can be made: a file lies where its folder should."""
    paths, witness = Places(tmp_path / "results", tmp_path / "work"), Witness()
    broken = several[0]
    room = paths.room_of(broken)
    room.mkdir(parents=True)
    (room / "keys").write_text("in the way")
    with pytest.raises(DisavowError) as refused:
        campaign.run(several, paths, witness, jobs=2)
    assert "1 of 3 groups failed" in str(refused.value)
    kept = lines.read(paths.file_of(broken))
    assert {line.key for line in kept} == {point.key for point in several if point.seed != broken.seed}


@pytest.mark.torture
def test_an_interruption_ends_the_processes_and_keeps_what_is_finished(
    several: list[Point], tmp_path: Path
) -> None:
    paths = Places(tmp_path / "results", tmp_path / "work")
    with pytest.raises(KeyboardInterrupt):
        campaign.run(several, paths, Witness(interrupt_after=5), jobs=2)
    for point in several:  # nobody is at any of them
        if paths.room_of(point).is_dir():
            with Lock(paths.room_of(point)):
                pass
    witness = Witness()
    campaign.run(several, paths, witness, jobs=2)
    kept = lines.read(paths.file_of(several[0]))
    assert sorted(line.key for line in kept) == sorted(point.key for point in several)
    assert 0 < len(witness.points) <= len(several)


def test_absent_data_is_said_before_the_first_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISAVOW_DATA_DIR", str(tmp_path / "nothing"))
    text = TOML.replace('rows = ["MNIST-iid"]', 'rows = ["MNIST-iid", "CIFAR10-iid"]').replace(
        'name = "digits"\n', ""
    )
    witness = Witness()
    with refuses(ConfigError, "DISAVOW_DATA_DIR"):
        made(grid.load(written(tmp_path, text)).points(), tmp_path, witness)
    assert not witness.points


def test_runs_of_one_cell_with_different_settings_are_refused(tmp_path: Path) -> None:
    """A table shows one run a cell: results of the paper's grid are not replaced by those of another one."""
    asked = grid.load(written(tmp_path, STAYING)).points()
    others = grid.load(written(tmp_path, STAYING.replace("rounds = 3", "rounds = 4"))).points()
    with refuses(ConfigError, asked[0], "study"):
        campaign.finished(Places(tmp_path / "results", tmp_path), [*asked, *others])
    made(asked, tmp_path)
    with refuses(ConfigError, asked[0], "lenet5-mnist-dirichlet0.3.jsonl", "study"):
        made(others, tmp_path)
    apart = 'study = "mine"\n' + STAYING.replace("rounds = 3", "rounds = 4")
    assert len(made(grid.load(written(tmp_path, apart)).points(), tmp_path)) == 1
    assert len(made(asked, tmp_path)) == 1


def test_effort_grows_with_what_is_trained_again(points: list[Point]) -> None:
    efforts = {(point.method, point.x): effort(point) for point in points}
    assert efforts["fedavg", 1] > efforts["federaser", 1] > 4
    assert efforts["published", 4] > efforts["published", 2] >= 4
