from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import Tensor

from disavow.domain import Layout, TensorSpec
from disavow.rounds.clustering.distances import norms_of, published, squared_l2
from tests.rounds.builders import PROPERTY, Floats32, direct_distances, gaussian

RELATIVE = 1e-6

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
matrices = arrays.arrays(np.float32, st.tuples(st.integers(1, 12), st.integers(1, 6)), elements=finite)


def agrees(vectors: Tensor) -> None:
    measured, expected = squared_l2(vectors).sqrt(), direct_distances(vectors)
    assert measured.dtype == torch.float64
    torch.testing.assert_close(measured, expected, rtol=RELATIVE, atol=0.0)


@PROPERTY
@given(matrices)
def test_distances_equal_direct_float64_for_any_numbers(rows: Floats32) -> None:
    agrees(torch.from_numpy(rows))


@pytest.mark.parametrize("norm", [1e-3, 1.0, 8.0, 1e3, 1e6])
@pytest.mark.parametrize("apart", [1e-4, 0.1])
def test_distances_do_not_depend_on_how_far_from_zero_the_rows_lie(norm: float, apart: float) -> None:
    offset = gaussian(1, 5000, seed=1)
    offset *= norm / offset.norm()
    agrees(offset + gaussian(12, 5000, seed=2, scale=apart / 70))


def test_tight_clusters_far_apart_keep_their_inner_distances() -> None:
    # six groups 1e4 apart whose members differ by 1e-2: the product shortcut alone would cancel all digits
    centres = gaussian(6, 300, seed=3, scale=1e3).repeat_interleave(5, dim=0)
    vectors = centres + gaussian(30, 300, seed=4, scale=1e-3)
    agrees(vectors[torch.randperm(30, generator=torch.Generator().manual_seed(5))])


@pytest.mark.parametrize("step", [1e-2, 1e-4])
def test_nested_scales_keep_every_distance(step: float) -> None:
    # pairs at distance 1, step, step squared, ...: each needs a finer look than the one before
    rows = [gaussian(1, 40, seed=level)[0] * step**level for level in range(8)]
    vectors = torch.stack(rows + [row * 1.5 for row in rows])
    agrees(vectors)
    agrees(vectors.flip(0))


def test_a_long_chain_of_close_rows_keeps_every_distance() -> None:
    # neighbours are close compared with the whole, so that all rows hang together in one group
    agrees(torch.linspace(1, 2, 1500)[:, None] * gaussian(1, 3, seed=6))


def test_rows_wider_than_one_block_of_columns_agree() -> None:
    agrees(gaussian(4, 20_001, seed=7) + 100)


@PROPERTY
@given(matrices, st.data())
def test_identical_rows_are_at_distance_zero_exactly(rows: Floats32, data: st.DataObject) -> None:
    copies = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=2, max_size=12))
    squared = squared_l2(torch.from_numpy(rows[copies]))
    same = torch.tensor([[bool((rows[a] == rows[b]).all()) for b in copies] for a in copies])
    assert bool((squared[same] == 0).all())
    assert bool((squared[~same] > 0).all())


def test_many_identical_rows_of_a_large_model_are_at_distance_zero_exactly() -> None:
    # a product of this size takes other kernels than a small one, whose diagonal need not match the rest
    vectors = gaussian(3, 3001, seed=8, scale=1e3)[torch.arange(60) % 3]
    squared = squared_l2(vectors)
    same = (torch.arange(60) % 3)[:, None] == torch.arange(60) % 3
    assert bool((squared[same] == 0).all())
    assert bool((squared[~same] > 0).all())


@PROPERTY
@given(matrices)
def test_the_matrix_is_symmetric_with_a_zero_diagonal_and_nothing_negative(
    rows: Floats32,
) -> None:
    squared = squared_l2(torch.from_numpy(rows))
    assert torch.equal(squared, squared.T)
    assert bool((squared.diagonal() == 0).all())
    assert bool((squared >= 0).all())


@pytest.mark.parametrize("noise", [1.0, 1e-2, 1e-4])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_cosine_distances_equal_direct_float64(noise: float, scale: float) -> None:
    vectors = (gaussian(1, 200, seed=9) + gaussian(15, 200, seed=10, scale=noise)) * scale
    vectors *= torch.linspace(0.5, 20, 15)[:, None]  # lengths must not matter
    measured = squared_l2(vectors, norms_of(vectors))
    unit = vectors.double() / vectors.double().norm(dim=1, keepdim=True)
    torch.testing.assert_close(measured, direct_distances(unit).square(), rtol=RELATIVE, atol=0.0)
    # and that is twice the cosine distance, as far as 1 - cos has digits
    torch.testing.assert_close(measured / 2, 1 - unit @ unit.T, rtol=0.0, atol=1e-12)


def test_cosine_puts_a_row_of_zeros_at_the_origin() -> None:
    vectors = torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, -5.0], [0.0, 0.0]])
    squared = squared_l2(vectors, norms_of(vectors))
    expected = torch.tensor([[0, 1, 1, 0], [1, 0, 2, 1], [1, 2, 0, 1], [0, 1, 1, 0]], dtype=torch.float64)
    torch.testing.assert_close(squared, expected, rtol=1e-15, atol=0.0)


@PROPERTY
@given(matrices)
def test_norms_equal_exact_sums_and_are_one_for_zeros(
    rows: Floats32,
) -> None:
    expected = [math.sqrt(math.fsum(float(x) ** 2 for x in row)) or 1.0 for row in rows]
    assert norms_of(torch.from_numpy(rows)).tolist() == pytest.approx(expected, rel=1e-12, abs=0.0)


def test_norms_cover_every_block_of_columns() -> None:
    vectors = gaussian(3, 20_001, seed=11)
    torch.testing.assert_close(norms_of(vectors), vectors.double().norm(dim=1), rtol=1e-12, atol=0.0)


def test_published_distances_equal_a_naive_loop() -> None:
    layout = Layout(
        (
            TensorSpec("conv", (2, 3, 4)),
            TensorSpec("scale", ()),
            TensorSpec("dense", (3, 2)),
            TensorSpec("bias", (3,)),
        )
    )
    vectors = gaussian(5, layout.size, seed=12)
    expected = torch.zeros(5, 5, dtype=torch.float64)
    for a in range(5):
        for b in range(5):
            lengths = []
            for spec, start, end in layout.spans():
                width = spec.shape[-1] if spec.shape else 1
                difference = (vectors[a, start:end].double() - vectors[b, start:end].double()).tolist()
                lengths += [math.hypot(*difference[i : i + width]) for i in range(0, len(difference), width)]
            assert len(lengths) == 6 + 1 + 3 + 1
            expected[a, b] = math.fsum(lengths) / len(lengths)
    torch.testing.assert_close(published(vectors, layout), expected, rtol=RELATIVE, atol=0.0)
