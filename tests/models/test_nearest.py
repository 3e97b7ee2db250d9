"""The nearest node, exactly: against all distances in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from fedsage.config import NeighGenConfig
from fedsage.graph.arrays import squared_norms
from fedsage.kernels.door import WIDTHS, spans
from fedsage.models.nearest import nearest
from fedsage.models.neighgen import FGen
from fedsage.rng import generator
from fedsage.shapes import Array

PLENTY = 2**20
COUNTS = (1, 15, 16, 17, 33, 79, 80, 81, 96, 160, 167, 239, 320)


def features(nodes: int, d_x: int, density: float, seed: int) -> Array:
    """Some nodes have no feature at all, and every third is a copy of the one before it."""
    stream = generator(seed, "features")
    x = stream.standard_normal((nodes, d_x), dtype=np.float32)
    x *= stream.random((nodes, d_x)) < density
    x[2::3] = x[1::3][: len(x[2::3])]
    return x


def distances(rows: Array, x: Array) -> Array:
    return np.stack([((row - x.astype(np.float64)) ** 2).sum(axis=1) for row in rows])


@pytest.mark.parametrize("kind", ["sparse", "dense"])
@pytest.mark.parametrize("count", COUNTS)
def test_no_node_is_nearer_and_on_sparse_features_the_first_of_equals_is_taken(
    count: int, kind: str
) -> None:
    for seed in range(4):
        nodes, d_x = ((1, 1), (9, 3), (70, 40), (200, 130))[seed]
        dense = features(nodes, d_x, (1.0, 0.5, 0.1, 0.05)[seed], seed)
        x = csr_array(dense) if kind == "sparse" else dense
        rows = generator(seed, "rows").standard_normal((count, d_x), dtype=np.float32)
        found = nearest(torch.from_numpy(rows), x, squared_norms(x), PLENTY)
        every = distances(rows, dense)
        mine = np.take_along_axis(every, found[:, None], axis=1)[:, 0]
        np.testing.assert_allclose(mine, every.min(axis=1), rtol=1e-5, atol=1e-5)
        if kind == "dense":  # BLAS may round the same product in two ways
            continue
        _, first, group = np.unique(dense, axis=0, return_index=True, return_inverse=True)
        np.testing.assert_array_equal(found, first[group.ravel()[found]])


def test_how_rows_lie_in_memory_makes_no_difference() -> None:
    x = csr_array(features(50, 30, 0.2, 0))
    rows = torch.from_numpy(generator(0, "rows").standard_normal((90, 30), dtype=np.float32))
    one, other = (
        nearest(each, x, squared_norms(x), PLENTY) for each in (rows, rows.T.clone().T)
    )
    np.testing.assert_array_equal(one, other)


def test_what_fgen_puts_out_is_searched_without_a_copy() -> None:
    stream = generator(0, "fgen")
    z, noise = (torch.from_numpy(stream.standard_normal((20, 4), np.float32)) for _ in "zn")
    rows = FGen(7, NeighGenConfig(widths=(4, 4), hidden=(5,)), stream)(z, noise)
    assert rows.shape == (20, 7) and rows.T.is_contiguous()


def test_a_row_that_is_no_number_has_a_node_all_the_same() -> None:
    x = csr_array(features(5, 3, 0.5, 0))
    rows = torch.full((18, 3), torch.nan)
    assert nearest(rows, x, squared_norms(x), PLENTY).tolist() == [0] * 18


@pytest.mark.parametrize("count", range(min(WIDTHS), 400))
def test_parts_cover_every_column(count: int) -> None:
    found = [*spans(count)]
    covered = {column for start, width in found for column in range(start, start + width)}
    assert covered == set(range(count))
    assert all(width in WIDTHS for _, width in found)
    assert sum(width for _, width in found) < count + min(WIDTHS)
