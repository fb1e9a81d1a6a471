"""What rollbacks do to accuracy: pairs of runs that differ in x alone."""

from __future__ import annotations

from statistics import fmean

from reproduction.quantities import settled_accuracy
from reproduction.rollback_effect import rollback_effect_table
from tests.reproduction.making import line

RUNS = [
    line("MNIST-iid", "published", 4, x, seed=seed, network="resnet-mini") for x in (2, 3, 4) for seed in (1, 2, 3)
]


def cells(text: str, name: str) -> list[str]:
    [found] = [row for row in text.splitlines() if row.startswith(f"| {name} ")]
    return [cell.strip() for cell in found.strip("|").split("|")][1:]


def test_a_pair_is_of_one_seed_with_the_least_and_the_strictest_x() -> None:
    of = {(one.x, one.seed): one for one in RUNS}
    points = [100 * (settled_accuracy(of[4, seed]) - settled_accuracy(of[2, seed])) for seed in (1, 2, 3)]
    more = fmean(
        sum(request.verdict == "rollback" for request in of[4, seed].requests)
        - sum(request.verdict == "rollback" for request in of[2, seed].requests)
        for seed in (1, 2, 3)
    )
    found = cells(rollback_effect_table(RUNS), "ResNet-mini, iid, k=4")
    assert found == ["3", f"{more:.1f}", f"{fmean(points):+.2f}", f"{max(map(abs, points)):.2f}"]


def test_a_run_without_its_counterpart_is_no_pair_and_what_has_none_was_not_run() -> None:
    some = [one for one in RUNS if (one.x, one.seed) != (4, 2)]
    text = rollback_effect_table(some)
    assert cells(text, "ResNet-mini, iid, k=4")[0] == "2"
    assert set(cells(text, "LeNet5, unequal sizes, k=10")) == {"not run"}
