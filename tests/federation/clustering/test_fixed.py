from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from disavow.data import client_ids
from disavow.federation.clustering.fixed import fixed
from tests.federation.builders import PROPERTY


def names(count: int, k: int, seed: int = 1) -> list[list[str]]:
    clients = client_ids(count)
    return [[clients[i] for i in group.tolist()] for group in fixed(clients, k, seed)]


@PROPERTY
@given(st.integers(2, 9), st.integers(0, 60), st.integers(0, 5))
def test_clusters_are_as_equal_as_can_be(k: int, more: int, seed: int) -> None:
    count = k + more
    groups = names(count, k, seed)
    sizes = [len(group) for group in groups]
    assert len(groups) == count // k
    assert min(sizes) >= k
    assert max(sizes) < 2 * k
    assert max(sizes) - min(sizes) <= 1
    assert sorted(client for group in groups for client in group) == list(client_ids(count))


def test_clusters_depend_on_ids_and_seed_alone() -> None:
    assert names(20, 4) == names(20, 4)
    assert names(20, 4, seed=1) != names(20, 4, seed=2)


def test_clusters_are_not_the_order_of_the_ids() -> None:
    in_order = [list(client_ids(40)[i : i + 4]) for i in range(0, 40, 4)]
    assert sorted(names(40, 4)) != in_order
