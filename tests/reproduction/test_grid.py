"""Grids: which runs they are, what each is told, and how what is wrong with them is said."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import get_args

import pytest

from disavow.errors import ConfigError
from reproduction import grid
from reproduction.lines import PLAIN, PaperRow
from tests.refusals import refuses
from tests.reproduction.small import TOML, written

PACKAGED = (
    "lenet5",
    "resnet-mini",
    "convnet",
    "storage",
    "accuracy",
    "skew",
    "skew-requests",
    "large-k",
    "last-batch",
    "trade-off",
)


@pytest.mark.parametrize("name", PACKAGED)
def test_packaged_grids_are_whole_and_know_a_small_version(name: str) -> None:
    found = grid.packaged(name)
    assert found.has_quick
    full, small = found.points(), found.points(quick=True)
    assert all(not point.quick for point in full)
    assert all(point.quick and point.settings.data.name == "digits" for point in small)
    assert len({point.key for point in full} | {point.key for point in small}) == len(full) + len(small)


def test_no_run_is_of_two_studies() -> None:
    """Its line would be in the file of one of them, and the other's table would lack it."""
    for quick in (False, True):
        made = {(point.key, point.study) for name in PACKAGED for point in grid.packaged(name).points(quick=quick)}
        assert len({key for key, _ in made}) == len(made)


def test_two_grids_of_one_study_share_their_runs() -> None:
    shared = {point.key for point in grid.packaged("accuracy").points() if point.row == "MNIST-iid"}
    assert {p.key for p in grid.packaged("skew").points() if p.row == "MNIST-iid"} < shared


def test_the_papers_grid_has_every_cell_of_its_tables() -> None:
    points = grid.packaged("lenet5").points()
    # with three representatives a cluster of four keeps enough survivors for x = 2 alone
    assert len(points) == 3 * 8 * (1 + 1 + 4 + 2 * 4 * 3 + (1 + 3 * 3))
    first = points[0]
    assert (first.method, first.settings.clustering.k, first.settings.mechanism.name) == (
        "fedavg",
        1,
        "retrain-from-scratch",
    )
    settings = points[-1].settings
    assert (settings.rounds, settings.data.clients, settings.requests.rate) == (50, 50, 0.2)
    assert (settings.training.epochs, settings.training.batch_size, settings.training.learning_rate) == (
        3,
        128,
        0.02,
    )
    assert settings.draws == "seeded"


def test_methods_differ_in_what_they_promise_only(tmp_path: Path) -> None:
    points = grid.load(written(tmp_path)).points()
    assert [(point.method, point.k, point.x) for point in points] == [
        ("fedavg", 1, 1),
        ("federaser", 1, 1),
        ("published", 4, 2),
        ("published", 4, 4),
        ("sticky", 4, 2),
        ("sticky", 4, 4),
    ]
    shared = {
        (p.settings.seed, p.settings.data, p.settings.model, p.settings.training, p.settings.requests)
        for p in points
    }
    assert len(shared) == 1
    published, sticky = points[2].settings, points[4].settings
    assert (published.clustering.sticky, published.noise.statistics) == (False, "drawn")
    assert (sticky.clustering.sticky, sticky.noise.statistics) == (True, "mean")
    assert {point.method for point in points if point.k == 1} == PLAIN & {point.method for point in points}


def test_accuracy_at_large_k_has_every_iid_row_of_both_networks() -> None:
    points = grid.packaged("large-k").points()
    rows = {row for row in get_args(PaperRow) if row.endswith("-iid")}
    assert {(p.row, p.network) for p in points} == set(product(rows, ("lenet5", "resnet-mini")))
    # for each row, network and seed: FedAvg, and, at both k, a share of its clients and five variants
    assert (len(points), len({p.group for p in points})) == (4 * 2 * 3 * (1 + 2 + 5 * 2), 4 * 2 * 3)


SAMPLED = TOML.replace('"published", "sticky"', '"fedavg-sampled"').replace("k = [4]", "k = [4, 5]")


def test_federated_averaging_with_a_share_of_the_clients_has_neither_clusters_nor_x(tmp_path: Path) -> None:
    points = [p for p in grid.load(written(tmp_path, SAMPLED)).points() if p.method == "fedavg-sampled"]
    assert [(point.k, point.x, point.settings.training.fraction) for point in points] == [(4, 1, 0.25), (5, 1, 0.2)]
    for point in points:
        assert (point.settings.clustering.k, point.settings.deniability.x) == (1, 1)
        assert point.settings.mechanism.name == "retrain"


def test_three_representatives_are_drawn_where_enough_survivors_can_be_left(tmp_path: Path) -> None:
    text = TOML.replace('"sticky"]', '"sticky", "sticky-3"]').replace("k = [4]", "k = [4, 5]")
    points = [point for point in grid.load(written(tmp_path, text)).points() if point.method == "sticky-3"]
    assert [(point.k, point.x, point.settings.clustering.representatives) for point in points] == [
        (4, 2, 3),
        (5, 2, 3),
    ]


VARIANTS = """
[variants.narrow]
deniability.delta = "0.5x"

[variants.wide]
deniability.delta = "2x"
"""


def test_variants_change_settings_of_methods_with_clusters(tmp_path: Path) -> None:
    points = grid.load(written(tmp_path, TOML + VARIANTS)).points()
    assert [point.variant for point in points if point.method == "sticky"] == ["narrow"] * 2 + ["wide"] * 2
    assert [point.settings.deniability.delta for point in points if point.method == "sticky"][::2] == ["0.5x", "2x"]
    assert [point.variant for point in points if point.method in PLAIN] == ["", ""]
    assert len({point.key for point in points}) == len(points)


def test_a_variant_cannot_change_what_its_group_shares(tmp_path: Path) -> None:
    with refuses(ConfigError, "variants.narrow.training"):
        grid.load(written(tmp_path, TOML + VARIANTS.replace("deniability.delta", "training.epochs", 1)))


def test_rows_of_label_skew_are_told_how_labels_are_dealt(tmp_path: Path) -> None:
    rows = '["MNIST-dirichlet0.3", "CIFAR10-dirichlet0.1", "MNIST-labels2"]'
    text = TOML.replace('["MNIST-iid"]', rows).replace('name = "digits"\n', "")
    data = {point.row: point.settings.data for point in grid.load(written(tmp_path, text)).points()}
    assert [(each.name, each.partition, each.alpha) for each in data.values()][:2] == [
        ("mnist", "dirichlet", 0.3),
        ("cifar10", "dirichlet", 0.1),
    ]
    assert (data["MNIST-labels2"].partition, data["MNIST-labels2"].labels_per_client) == ("pathological", 2)


def test_an_edition_tells_results_of_other_code_apart(tmp_path: Path) -> None:
    now, before = (grid.load(written(tmp_path, f"edition = {n}\n" + TOML)).points() for n in (2, 1))
    assert [point.key for point in grid.load(written(tmp_path)).points()] == [point.key for point in now]
    assert not {point.key for point in now} & {point.key for point in before}


def test_disk_is_compared_with_updates_of_every_round_compressed_and_not() -> None:
    points = {point.method: point.settings for point in grid.packaged("storage").points(quick=True)}
    mechanism = points["federaser-1"].mechanism
    assert (mechanism.interval, mechanism.compress) == (1, True)
    plain = points["federaser-plain"]
    assert plain.mechanism == mechanism.model_copy(update={"compress": False})
    assert plain.model_copy(update={"mechanism": mechanism}) == points["federaser-1"]


def test_keys_stay_what_they_were_when_there_are_more_settings() -> None:
    """A finished run is known by its key; this one is of a line in `results/`."""
    points = {(point.row, point.method): point for point in grid.packaged("storage").points()}
    found = points["MNIST-iid", "federaser-1"].key
    assert found == "ec0516fc5cf18f236daee24fed49a8098c16ec52fbf3a0f080fc1bfba6f8fc52"


def test_a_key_tells_results_apart_and_not_machines(tmp_path: Path) -> None:
    found = grid.load(written(tmp_path))
    here = found.points(engine={"name": "auto", "device": "cpu"})
    assert [point.key for point in here] == [point.key for point in found.points()]
    other = grid.load(written(tmp_path, TOML.replace("rounds = 4", "rounds = 5"))).points()
    assert not {point.key for point in here} & {point.key for point in other}
    assert not {point.key for point in here} & {point.key for point in found.points(seeds=(2,))}


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('rows = ["MNIST-iid"]', 'rows = ["MNIST"]', "rows.0"),
        ("k = [4]", "kk = [4]", "kk is not a key of a grid; allowed: study, edition, rows"),
        ("k = [4]", "k = []", "k: "),
        ("rounds = 4", "rounds = 0", "rounds is 0; allowed: a whole number of at least 1"),
        ("k = [4]", "k = [11]", "clustering.k is 11; allowed: 1 to 10"),
        ("rounds = 4", "rounds = ", "not TOML"),
    ],
)
def test_what_cannot_be_used_is_said_by_name(tmp_path: Path, old: str, new: str, named: str) -> None:
    path = written(tmp_path, TOML.replace(old, new))
    with pytest.raises(ConfigError) as refused:
        grid.load(path)
    assert str(path) in str(refused.value)
    assert named in str(refused.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with refuses(ConfigError, "no such file"):
        grid.load(tmp_path / "none.toml")


def test_a_grid_without_a_small_version_says_so(tmp_path: Path) -> None:
    with refuses(ConfigError, "[quick]"):
        grid.load(written(tmp_path)).points(quick=True)
