from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from disavow.engines.batches import batches
from tests.rounds.builders import PROPERTY


def positions(
    samples: int, *, epochs: int = 1, batch_size: int = 4, seed: int = 1, round_number: int = 1, client: str = "a"
) -> list[list[int]]:
    drawn = batches(
        samples, epochs=epochs, batch_size=batch_size, seed=seed, round_number=round_number, client=client
    )
    return [batch.tolist() for batch in drawn]


@PROPERTY
@given(st.integers(1, 50), st.integers(1, 4), st.integers(1, 60))
def test_every_epoch_takes_every_sample_once_the_last_short_batch_included(
    samples: int, epochs: int, batch_size: int
) -> None:
    drawn = positions(samples, epochs=epochs, batch_size=batch_size)
    a_epoch = -(-samples // batch_size)
    assert len(drawn) == a_epoch * epochs
    for start in range(0, len(drawn), a_epoch):
        epoch = drawn[start : start + a_epoch]
        assert sorted(i for batch in epoch for i in batch) == list(range(samples))
        assert all(len(batch) == batch_size for batch in epoch[:-1])
        assert len(epoch[-1]) == samples - batch_size * (a_epoch - 1)


def test_epochs_are_shuffled_anew() -> None:
    first, second = positions(30, epochs=2, batch_size=30)
    assert first != second
    assert first != sorted(first)


def test_batches_repeat_and_change_with_seed_round_and_client() -> None:
    drawn = positions(30)
    assert drawn == positions(30)
    others = [positions(30, seed=2), positions(30, round_number=2), positions(30, client="b")]
    assert all(other != drawn for other in others)


def test_what_one_client_draws_does_not_depend_on_whether_another_drew_before() -> None:
    alone = positions(20, client="b")
    for _ in range(3):
        positions(50, client="a")
    assert positions(20, client="b") == alone
