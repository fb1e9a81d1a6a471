from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

from disavow.rounds.randomness import Secrets, Stream, derive, training_stream
from tests.rounds.builders import PROPERTY


def stream(name: str = "test") -> Stream:
    return Stream(derive(name))


class Scripted(Stream):
    """A stream whose words are given, to reach what chance reaches once in 2^53."""

    def __init__(self, *words: int) -> None:
        super().__init__(bytes(32))
        self._script = list(words)

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        return np.array([self._script.pop(0) for _ in range(count)], dtype=np.uint64)


parts = st.lists(st.integers() | st.text(), max_size=4)


@PROPERTY
@given(parts, parts)
def test_no_two_lists_of_parts_share_a_key(first: list[int | str], second: list[int | str]) -> None:
    assert (derive(*first) == derive(*second)) == (first == second)
    assert len(derive(*first)) == 32


def test_neither_joining_parts_nor_changing_their_kind_gives_the_same_key() -> None:
    assert len({derive("ab", "c"), derive("a", "bc"), derive("abc"), derive("abc", ""), derive("", "abc")}) == 5
    assert derive(1) != derive("1")


def test_a_stream_is_the_same_on_every_machine() -> None:
    # fixed values: were they to change, seeded runs could no longer be repeated
    assert Stream(bytes(32)).words(2).tolist() == [9910523521560253916, 9736928157321283757]
    # AES-256 of a block of zeros under a key of zeros is dc95c078a2408989 ad48a21492842087 (FIPS 197, KAT vectors)
    assert Stream(bytes(32)).words(2).astype("<u8").tobytes().hex() == "dc95c078a2408989ad48a21492842087"


def test_a_stream_goes_on_where_it_was() -> None:
    once, twice = stream(), stream()
    assert once.words(5).tolist() == [*twice.words(2).tolist(), *twice.words(3).tolist()]


@PROPERTY
@given(st.integers(1, 2**63), st.integers(0, 1000))
def test_below_stays_below(bound: int, number: int) -> None:
    assert 0 <= Stream(derive(number)).below(bound) < bound


def test_below_throws_away_the_words_that_would_favour_low_numbers() -> None:
    # 2^64 = 3 * 6148914691236517205 + 1: one word too many, the last
    assert Scripted(2**64 - 1, 5).below(3) == 2
    assert Scripted(2**64 - 2).below(3) == (2**64 - 2) % 3
    assert Scripted(2**64 - 1).below(2) == 1


@pytest.mark.parametrize("bound", [2, 3, 7, 10])
def test_below_is_uniform(bound: int) -> None:
    source = stream("below")
    counts = np.bincount([source.below(bound) for _ in range(20_000)], minlength=bound)
    assert scipy.stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("word", [0, 1, 2**11 - 1, 2**63, 2**64 - 2**12, 2**64 - 2**11, 2**64 - 1])
def test_uniform_numbers_lie_strictly_between_0_and_1(word: int) -> None:
    number = float(Scripted(word).uniform(1))
    assert 0 < number < 1


@pytest.mark.parametrize("word", [0, 2**64 - 1])
def test_no_word_draws_infinite_noise(word: int) -> None:
    assert bool(torch.isfinite(Scripted(word).normal(1)).all())
    assert bool(torch.isfinite(Scripted(word).laplace(1)).all())


def test_uniform_numbers_are_uniform() -> None:
    assert scipy.stats.kstest(stream("uniform").uniform(50_000).numpy(), "uniform").pvalue > 1e-4


def test_normal_numbers_are_standard_gaussian() -> None:
    assert scipy.stats.kstest(stream("normal").normal(50_000).numpy(), "norm").pvalue > 1e-4


def test_laplace_numbers_have_standard_deviation_1() -> None:
    numbers = stream("laplace").laplace(50_000).numpy()
    assert scipy.stats.kstest(numbers, "laplace", args=(0, 2**-0.5)).pvalue > 1e-4
    assert float(np.std(numbers)) == pytest.approx(1, abs=0.03)


@PROPERTY
@given(st.integers(0, 200), st.integers(0, 1000))
def test_a_permutation_holds_every_number_once(count: int, number: int) -> None:
    order = Stream(derive(number)).permutation(count)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(count))


def test_every_permutation_is_as_likely() -> None:
    source = stream("permutation")
    seen = [tuple(source.permutation(3).tolist()) for _ in range(6_000)]
    counts = [seen.count(order) for order in sorted(set(seen))]
    assert len(counts) == 6
    assert scipy.stats.chisquare(counts).pvalue > 1e-4


def test_a_generator_is_repeatable_and_moves_the_stream_on() -> None:
    one, other = stream(), stream()
    assert one.generator().random() == other.generator().random()
    assert one.generator().random() != stream().generator().random()


def test_training_streams_differ_by_seed_round_client_and_purpose() -> None:
    streams = [
        training_stream(1, "batches", round_number=1, client="a"),
        training_stream(2, "batches", round_number=1, client="a"),
        training_stream(1, "other", round_number=1, client="a"),
        training_stream(1, "batches", round_number=2, client="a"),
        training_stream(1, "batches", round_number=1, client="b"),
        training_stream(1, "batches"),
        Secrets(1).stream(1, 1, "batches"),
    ]
    assert len({int(each.words(1)[0]) for each in streams}) == len(streams)


def test_seeded_secrets_repeat_and_differ_by_round_attempt_and_purpose() -> None:
    def first(seed: int, number: int, attempt: int, purpose: str) -> int:
        return int(Secrets(seed).stream(number, attempt, purpose).words(1)[0])

    assert first(1, 1, 1, "noise") == first(1, 1, 1, "noise")
    keys = [(1, 1, 1, "noise"), (2, 1, 1, "noise"), (1, 2, 1, "noise"), (1, 1, 2, "noise"), (1, 1, 1, "slots")]
    assert len({first(*key) for key in keys}) == len(keys)


def test_fresh_secrets_never_repeat() -> None:
    draws = {Secrets().stream(1, 1, "noise").words(2).tobytes() for _ in range(100)}
    assert len(draws) == 100
