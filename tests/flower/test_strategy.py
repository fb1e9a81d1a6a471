"""The strategy over real messages: rounds, leavers, restarts, and the same models as the reference."""

from __future__ import annotations

import copy
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

import torch
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from disavow import runs
from disavow.domain import RequestState, TrainedBy, VerdictKind
from disavow.engines.sequential import SequentialEngine
from disavow.erasure.mechanisms.federaser import FedEraser
from disavow.erasure.mechanisms.retrain import Retrain, RetrainFromScratch
from disavow.errors import ConfigError, KeyringMissing, RunOutdated
from disavow.flower import KIPFedAvg
from disavow.flower.replies import ArrayFormat
from disavow.ledger import Ledger, fsck
from disavow.ledger.requests import RESTORED
from disavow.rounds.options import RoundOptions
from disavow.rounds.participation import Rank, SecretOrder, participants, rank_by_seed
from disavow.rounds.randomness import Secrets
from disavow.rounds.round import run_round
from tests.engines.contract import a_case
from tests.flower.builders import initial_arrays, learner, make_grid, place, placing, rounds_received, strategy
from tests.flower.loopback import LoopbackGrid, Node
from tests.flower.test_training import app_of
from tests.refusals import refuses
from tests.rounds.builders import ledger_of

pytestmark = pytest.mark.flower


def start(made: KIPFedAvg, grid: Grid, rounds: int, **more: Any) -> Any:
    return made.start(grid=grid, initial_arrays=initial_arrays(), num_rounds=rounds, timeout=2.0, **more)


def vector_of(arrays: ArrayRecord) -> np.ndarray[Any, Any]:
    return ArrayFormat.of(initial_arrays()).to_vector(arrays)


def members(ledger: Ledger, number: int) -> set[str]:
    return {client for cluster in ledger.membership(number) for client in cluster}


def test_it_takes_the_place_of_fedavg(tmp_path: Path) -> None:
    grid = make_grid(7)
    result = start(strategy(tmp_path / "run", fraction_evaluate=1.0), grid, 3, evaluate_fn=placing(tmp_path, {}))
    with Ledger.open(tmp_path / "run") as ledger:
        assert ledger.next_round() == (4, 1)
        assert members(ledger, 3) == {f"c{i}" for i in range(1, 8)}
        assert np.array_equal(vector_of(result.arrays), ledger.model_after(3))
        assert [summary.evaluation.accuracy for summary in ledger.summaries() if summary.evaluation] == [0.5] * 3
    assert result.arrays["count"].numpy() == 3
    losses = {n: record["train_loss"] for n, record in result.train_metrics_clientapp.items()}
    assert losses == pytest.approx({1: 1, 2: 2, 3: 3})
    losses = {n: record["eval_loss"] for n, record in result.evaluate_metrics_clientapp.items()}
    assert losses == pytest.approx({1: 1, 2: 2, 3: 3})
    assert sorted(result.evaluate_metrics_serverapp) == [0, 1, 2, 3]
    assert [finding for finding in fsck(tmp_path / "run") if finding.fault] == []


def test_several_representatives_are_drawn_where_asked_for(tmp_path: Path) -> None:
    with refuses(ConfigError, "representatives"):
        strategy(tmp_path / "run", k=3, x=1, representatives=3)
    start(strategy(tmp_path / "run", k=3, x=1, representatives=2), make_grid(7), 2)
    with Ledger.open(tmp_path / "run") as ledger:
        assert (ledger.policy.representatives, ledger.next_round()) == (2, (3, 1))
    assert [finding for finding in fsck(tmp_path / "run") if finding.fault] == []


def test_its_constructor_takes_what_fedavg_takes_in_the_same_order() -> None:
    import inspect

    theirs = [p for p in inspect.signature(FedAvg.__init__).parameters.values() if p.name != "self"]
    ours = [p for p in inspect.signature(KIPFedAvg.__init__).parameters.values() if p.name != "self"]
    assert [(p.name, p.default, p.kind) for p in ours[: len(theirs)]] == [
        (p.name, p.default, p.kind) for p in theirs
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("identity", "client_id"),
        ("identity", None),
        ("repeats", -1),
        ("repeats", 1.5),
        ("too_large", float("nan")),
        ("too_large", float("inf")),
        ("too_large", 1),
        ("too_large", "100"),
    ],
)
def test_an_argument_that_makes_no_sense_is_refused_by_name(tmp_path: Path, name: str, value: Any) -> None:
    with refuses(ConfigError, f"{name} "):
        strategy(tmp_path / "run", **{name: value})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"training": {"batch_size": 64}}, "training.batch_size"),
        ({"training": {"epochs": 2, "momentum": 0.9}}, "training.momentum"),
        ({"data": {"clients": 5}}, "data"),
        ({"model": {"name": "convnet"}}, "model"),
        ({"requests": {"rate": 0.1}}, "requests"),
        ({"engine": {"name": "sequential"}}, "engine"),
    ],
)
def test_settings_that_only_the_nodes_know_are_refused(tmp_path: Path, more: dict[str, Any], name: str) -> None:
    """The run's config.toml does not hold them: commands would take it for one that somebody has changed."""
    with refuses(ConfigError, name):
        strategy(tmp_path / "run", settings=more)


def test_a_run_records_that_nodes_train_it(tmp_path: Path) -> None:
    for rounds in (1, 2):
        start(strategy(tmp_path / "run"), make_grid(5), rounds)
        with Ledger.open(tmp_path / "run") as ledger:
            assert ledger.trainer == TrainedBy("flower")


def test_commands_know_the_settings_of_a_run_as_its_own(tmp_path: Path) -> None:
    more = {"training": {"epochs": 2}, "clustering": {"metric": "cosine"}, "draws": "seeded"}
    start(strategy(tmp_path / "run", settings=more), make_grid(5), 1)
    with Ledger.open(tmp_path / "run") as ledger:
        runs.refuse_changed(ledger, runs.settings_of(tmp_path / "run"))


@pytest.mark.parametrize("name", ["ledger", "keys", "openings"])
def test_a_relative_path_is_refused_because_nobody_knows_where_it_would_lie(tmp_path: Path, name: str) -> None:
    with refuses(ConfigError, f"{name} "):
        strategy(tmp_path / "run", **{name: "runs/mine"})


def test_a_run_may_lie_in_somebodys_home_and_the_log_says_where_that_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    start(strategy("~/runs/mine"), make_grid(7), 1)
    with Ledger.open(tmp_path / "runs" / "mine") as ledger:
        assert ledger.next_round() == (2, 1)
    assert f"ledger {(tmp_path / 'runs' / 'mine').resolve()}" in caplog.text
    with refuses(ConfigError, "ledger "):
        strategy("~nobody-of-this-name/mine")


def test_with_equal_seeds_the_models_are_those_of_the_sequential_engine(tmp_path: Path) -> None:
    case = a_case("resnet-mini")
    grid = LoopbackGrid(
        {i: Node(app_of(case, client), {"client-id": client}) for i, client in enumerate(case.parts, start=1)}
    )
    made = strategy(tmp_path / "flower", k=2, x=1, seed=case.seed, settings={"draws": "seeded"})
    arrays = ArrayRecord(copy.deepcopy(case.network).state_dict())
    made.start(grid=grid, initial_arrays=arrays, num_rounds=3, timeout=5.0)
    options = RoundOptions(seed=case.seed, secrets=Secrets(case.seed))
    policy = made.settings.policy
    here = ledger_of(tmp_path / "here", case.parts, case.model.layout, policy, case.model.vector)
    with here, Ledger.open(tmp_path / "flower") as there:
        for number in (1, 2, 3):
            run_round(here, SequentialEngine(case), options)
            assert np.array_equal(there.model_after(number), here.model_after(number)), number
            assert sorted(map(sorted, there.membership(number))) == sorted(map(sorted, here.membership(number)))


# -- leavers -----------------------------------------------------------------------------------------------


def test_a_deniable_request_is_answered_between_rounds_and_the_leaver_is_never_asked_again(tmp_path: Path) -> None:
    grid, run = make_grid(8), tmp_path / "run"
    start(strategy(run, fraction_evaluate=1.0), grid, 4, evaluate_fn=placing(run, {2: ["c5"]}))
    with Ledger.open(run) as ledger:
        [request] = ledger.requests()
        assert (request.state, request.verdict and request.verdict.kind) == (
            RequestState.ANSWERED,
            VerdictKind.DENIABLE,
        )
        assert "c5" not in ledger.clients()
    assert rounds_received(grid.nodes[5]) == [1, 2]
    kinds = [message.metadata.message_type for message in grid.nodes[5].received]
    assert kinds.count("evaluate") == 1  # of round 1: after round 2 it had left
    assert rounds_received(grid.nodes[6]) == [1, 2, 3, 4]


def leave_together(run: Path, grid: LoopbackGrid, made: KIPFedAvg) -> list[str]:
    """Train two rounds; then as many of one cluster as break it ask."""
    start(made, grid, 2)
    with Ledger.open(run) as ledger:
        cluster = min(ledger.membership(1), key=len)
    return list(cluster[: len(cluster) - 1])


def test_after_a_rollback_the_round_number_goes_back_and_the_retraining_is_exact(tmp_path: Path) -> None:
    grid, run = make_grid(9), tmp_path / "run"
    leavers = leave_together(run, grid, strategy(run))
    result = start(strategy(run), grid, 4, evaluate_fn=placing(run, {3: leavers}))
    with Ledger.open(run) as ledger:
        requests = ledger.requests()
        assert {str(request.verdict) for request in requests} == {"rollback to round 1"}
        assert {request.remark for request in requests} == {""}
        assert requests[0].cost is not None
        assert requests[0].cost.rounds == 3
        assert ledger.next_round() == (5, 1)
        assert members(ledger, 1) == set(ledger.clients())
    stayed = next(node for node in grid.nodes.values() if node.config["client-id"] not in leavers)
    assert rounds_received(stayed) == [1, 2, 3, 1, 2, 3, 4]
    assert sorted(result.train_metrics_clientapp) == [1, 2, 3, 4]


def test_where_clients_do_not_use_the_seed_the_report_says_so(tmp_path: Path) -> None:
    grid, run = make_grid(9, learner(seeded=False)), tmp_path / "run"
    leavers = leave_together(run, grid, strategy(run))
    start(strategy(run), grid, 3, evaluate_fn=placing(run, {3: leavers}))
    with Ledger.open(run) as ledger:
        survivors = len(ledger.clients())
        assert {request.remark for request in ledger.requests()} == {
            f"retrained, not reproducible: {survivors} of {survivors} survivors returned another update from the "
            "same model than before"
        }


def test_a_leaver_does_not_come_back_with_another_node(tmp_path: Path) -> None:
    grid, run = make_grid(8), tmp_path / "run"
    start(strategy(run), grid, 2, evaluate_fn=placing(run, {1: ["c5"]}))
    grid.nodes[99] = Node(learner(), {"client-id": "c5"})
    grid.nodes[5].connected = False
    grid.nodes[98] = Node(learner(), {"client-id": "newcomer"})
    start(strategy(run), grid, 3)
    assert rounds_received(grid.nodes[99]) == []
    assert rounds_received(grid.nodes[98]) == [3]


# -- starting again ----------------------------------------------------------------------------------------


def test_a_run_restored_from_a_backup_withdraws_its_leavers_again_and_admits_none_of_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run, grid = tmp_path / "run", make_grid(7)
    start(strategy(run), grid, 1)
    backup = shutil.copytree(run, tmp_path / "backup")
    grid.nodes[8] = Node(learner(), {"client-id": "c8"})  # joins after the backup
    start(strategy(run), grid, 2)
    place(run, ["c2", "c8"])
    start(strategy(run), grid, 3)
    shutil.rmtree(run)
    backup.rename(run)
    for number in (2, 8):
        grid.nodes[number].received.clear()
    caplog.set_level(logging.WARNING)
    with refuses(RunOutdated, run):
        start(strategy(run), grid, 3)
    assert Ledger.accept(run).slots == 1
    start(strategy(run), grid, 3)
    assert "restored from a backup" in caplog.text
    assert (rounds_received(grid.nodes[2]), rounds_received(grid.nodes[8])) == ([], [])
    with Ledger.open(run) as ledger:
        assert [(r.state, r.remark) for r in ledger.requests()] == [(RequestState.ANSWERED, RESTORED)]
        assert members(ledger, 3) == {f"c{i}" for i in (1, 3, 4, 5, 6, 7)}
    assert fsck(run) == []


def test_a_server_that_starts_again_goes_on_where_the_ledger_stands(tmp_path: Path) -> None:
    grid, run = make_grid(7), tmp_path / "run"
    start(strategy(run), grid, 2)
    made = strategy(run)
    made.start(grid=grid, initial_arrays=initial_arrays(5.0), num_rounds=3, timeout=2.0)  # not its first model
    assert rounds_received(grid.nodes[1]) == [1, 2, 3]
    with Ledger.open(run) as ledger:
        assert not ledger.model_before(1).any()
        assert ledger.digest_before(3) == ledger.round(2).after
    assert "rounds = 3" in (run / "config.toml").read_text()


def test_nothing_is_trained_where_enough_rounds_stand(tmp_path: Path) -> None:
    grid, run = make_grid(7), tmp_path / "run"
    first = start(strategy(run), grid, 2)
    again = start(strategy(run), grid, 2)
    assert rounds_received(grid.nodes[1]) == [1, 2]
    assert np.array_equal(vector_of(first.arrays), vector_of(again.arrays))


@pytest.mark.parametrize(
    ("other", "named"),
    [({"k": 4}, "clustering.k"), ({"noise": "none"}, "noise.mode")],
)
def test_a_run_keeps_its_promises(tmp_path: Path, other: dict[str, Any], named: str) -> None:
    start(strategy(tmp_path / "run"), make_grid(7), 1)
    with refuses(ConfigError, named):
        start(strategy(tmp_path / "run", **other), make_grid(7), 2)


def test_a_run_keeps_its_model(tmp_path: Path) -> None:
    start(strategy(tmp_path / "run"), make_grid(7), 1)
    fewer = ArrayRecord({name: array for name, array in initial_arrays().items() if name != "bias"})
    with pytest.raises(ConfigError):
        strategy(tmp_path / "run").start(grid=make_grid(7), initial_arrays=fewer, num_rounds=2)


# -- Flower's habits ---------------------------------------------------------------------------------------


def test_a_fraction_takes_part_and_never_fewer_than_min_train_nodes(tmp_path: Path) -> None:
    start(strategy(tmp_path / "half", fraction_train=0.5), make_grid(8), 1)
    start(strategy(tmp_path / "least", fraction_train=0.1, min_train_nodes=6), make_grid(8), 1)
    for name, count in (("half", 4), ("least", 6)):
        with Ledger.open(tmp_path / name) as ledger:
            assert len(members(ledger, 1)) == count


@pytest.mark.parametrize("draws", ["fresh", "seeded"])
def test_who_takes_part_goes_by_the_operators_key_and_by_the_seed_only_with_seeded_draws(
    tmp_path: Path, draws: str
) -> None:
    """Eight rounds of four in eight: by chance both ways would agree once in 70^8 times."""
    run, keys = tmp_path / "run", tmp_path / "operator"
    options = {"fraction_train": 0.5, "keys": keys, "settings": {"draws": draws}}
    start(strategy(run, **options), make_grid(8), 4)
    start(strategy(run, **options), make_grid(8), 8)  # nor does a restart change it
    clients = [f"c{i}" for i in range(1, 9)]
    with Ledger.open(run, keys=keys) as ledger:
        taking_part = [tuple(sorted(members(ledger, number))) for number in range(1, 9)]
        order = SecretOrder.of(ledger)
        order.clients.remember(clients)

    def schedule(rank: Rank) -> list[tuple[str, ...]]:
        return [participants(clients, fraction=0.5, rank=rank, round_number=number) for number in range(1, 9)]

    assert (taking_part == schedule(order.rank)) is (draws == "fresh")
    assert (taking_part == schedule(rank_by_seed(1))) is (draws == "seeded")


def test_a_run_is_not_continued_without_its_keyring(tmp_path: Path) -> None:
    start(strategy(tmp_path / "run", fraction_train=0.5, keys=tmp_path / "operator"), make_grid(8), 1)
    with refuses(KeyringMissing, str(tmp_path / "elsewhere")):
        start(strategy(tmp_path / "run", fraction_train=0.5, keys=tmp_path / "elsewhere"), make_grid(8), 2)
    assert not (tmp_path / "elsewhere").exists()


def test_nobody_waits_for_clients_that_have_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    grid, run = make_grid(8), tmp_path / "run"
    everybody = {"min_train_nodes": 8, "min_available_nodes": 8}
    start(strategy(run, **everybody), grid, 3, evaluate_fn=placing(run, {1: ["c5"]}))
    start(strategy(run, **everybody), grid, 4)  # nor when the server app is started again
    assert rounds_received(grid.nodes[6]) == [1, 2, 3, 4]
    assert rounds_received(grid.nodes[5]) == [1]
    assert "waiting for nodes" not in caplog.text


def test_min_train_nodes_are_waited_for_before_anybody_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    made = strategy(tmp_path / "run", min_train_nodes=6)
    made.start(grid=make_grid(4), initial_arrays=initial_arrays(), num_rounds=1, timeout=0.1)
    assert "4 clients are here, 6 are needed" in caplog.text
    assert 'flwr run --federation-config "num-supernodes=6" simulates as many' in caplog.text


def test_on_a_superlink_nobody_is_told_of_simulations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    grid = make_grid(4)
    for node in grid.nodes.values():
        pem = ec.generate_private_key(ec.SECP384R1()).public_key()
        node.public_key = pem.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    made = strategy(tmp_path / "run", min_train_nodes=6)
    made.start(grid=grid, initial_arrays=initial_arrays(), num_rounds=1, timeout=0.1)
    assert caplog.text.count("4 clients are here, 6 are needed\n") == 1


def test_metrics_that_cannot_be_aggregated_cost_no_round(tmp_path: Path) -> None:
    def broken(records: list[Any], key: str) -> MetricRecord:
        raise KeyError(key)

    result = start(strategy(tmp_path / "run", train_metrics_aggr_fn=broken), make_grid(7), 1)
    assert result.train_metrics_clientapp == {}
    with Ledger.open(tmp_path / "run") as ledger:
        assert ledger.next_round() == (2, 1)


def test_a_spent_budget_ends_the_training_and_not_the_app(tmp_path: Path) -> None:
    settings = {"noise": {"clip": 1.0, "tau": 10.0}, "privacy": {"epsilon": 1.5}}
    result = start(strategy(tmp_path / "run", noise="calibrated", settings=settings), make_grid(7), 50)
    with Ledger.open(tmp_path / "run") as ledger:
        standing = ledger.last_round
        assert 0 < standing < 50
        assert np.array_equal(vector_of(result.arrays), ledger.model_after(standing))


@pytest.mark.parametrize(
    "more",
    [
        {"settings": {"mechanism": {"name": "federaser"}}},
        {"mechanism": FedEraser()},
        {"mechanism": FedEraser(calibration=0.25)},
        {"mechanism": FedEraser(), "settings": {"ledger": {"retention": 10_000}}},
        {"mechanism": FedEraser(), "noise": "calibrated", "settings": {"noise": {"clip": 1.0, "tau": 1.0}}},
        {"mechanism": FedEraser(), "settings": {"privacy": {"epsilon": 8.0}}},
    ],
)
def test_federaser_is_refused_whichever_way_it_is_asked_for(tmp_path: Path, more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        strategy(tmp_path / "run", **more)
    assert not (tmp_path / "run").exists()


class Own(Retrain):
    """A mechanism of the user's own, under the name of another."""


class Unregistered(Retrain):
    """A mechanism that nobody registered."""

    name = "mine"


@pytest.mark.parametrize("mechanism", [Own(), Unregistered(), object()])
def test_a_mechanism_that_no_settings_name_is_refused(tmp_path: Path, mechanism: Any) -> None:
    with refuses(ConfigError, "mechanism"):
        strategy(tmp_path / "run", mechanism=mechanism)


def test_a_mechanism_given_as_an_object_is_the_one_of_the_run(tmp_path: Path) -> None:
    start(strategy(tmp_path / "run", mechanism=RetrainFromScratch()), make_grid(5), 1)
    assert 'name = "retrain-from-scratch"' in (tmp_path / "run" / "config.toml").read_text()
    with Ledger.open(tmp_path / "run") as ledger:
        assert ledger.policy.mechanism == "retrain-from-scratch"
    start(strategy(tmp_path / "run", settings={"mechanism": {"name": "retrain-from-scratch"}}), make_grid(5), 2)
    with refuses(ConfigError, "mechanism.name"):
        start(strategy(tmp_path / "run"), make_grid(5), 3)
    with refuses(ConfigError, "mechanism"):
        strategy(tmp_path / "run", mechanism=Retrain(), settings={"mechanism": {"name": "retrain-from-scratch"}})


def test_without_an_evaluation_rounds_are_recorded_and_old_models_thinned_all_the_same(tmp_path: Path) -> None:
    run = tmp_path / "run"
    start(strategy(run, settings={"ledger": {"retention": 500}}), make_grid(7), 6)
    with Ledger.open(run) as ledger:
        assert ledger.next_round() == (7, 1)
        assert 0 < len(ledger.unevaluated()) < 6  # of the others the model is gone
        assert all(summary.evaluation is None for summary in ledger.summaries())
    # an app that learns to evaluate later evaluates what is there
    start(strategy(run, settings={"ledger": {"retention": 500}}), make_grid(7), 7, evaluate_fn=placing(run, {}))
    with Ledger.open(run) as ledger:
        assert ledger.unevaluated() == ()
        assert ledger.summary(7).evaluation is not None


def test_every_client_has_other_seeds_in_every_round(tmp_path: Path) -> None:
    grid = make_grid(7)
    start(strategy(tmp_path / "run", seed=4), grid, 2)

    def seeds(message: Message) -> tuple[int, bytes]:
        return message.content["config"]["disavow-seed"], message.content["config"]["disavow-batches"]

    found = [seeds(m) for node in grid.nodes.values() for m in node.received if m.metadata.message_type == "train"]
    assert len(set(found)) == len(found) == 14
    assert torch.Generator().manual_seed(found[0][0]) is not None
