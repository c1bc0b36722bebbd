"""Principal axes of rows that come in blocks."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.maths import axes as module
from coterie.maths.axes import principal_axes


def in_blocks(rows, counts=None, size=17):
    counts = np.ones(len(rows)) if counts is None else counts
    return lambda: ((rows[i : i + size], counts[i : i + size]) for i in range(0, len(rows), size))


def rows_with_spectrum(n, d, values, seed=0):
    rng = np.random.default_rng(seed)
    left = np.linalg.qr(rng.normal(size=(n, len(values))))[0]
    right = np.linalg.qr(rng.normal(size=(d, len(values))))[0]
    return (left * np.sqrt(values)) @ right.T, right


@pytest.mark.parametrize("wide", [False, True])
def test_they_are_the_svds(monkeypatch, wide):
    if wide:
        monkeypatch.setattr(module, "WIDE", 8)
    values = np.array([400.0, 100.0, 50.0, 9.0, 1.0, 0.5])
    rows, right = rows_with_spectrum(90, 40, values)
    found = principal_axes(in_blocks(rows), 40, 3, seed=1)
    np.testing.assert_allclose(found.values, values[:3], rtol=1e-10)
    np.testing.assert_allclose(found.vectors @ found.vectors.T, right[:, :3] @ right[:, :3].T, atol=1e-10)
    assert found.squares == pytest.approx(values.sum(), rel=1e-12)
    assert found.missed == pytest.approx(10.5, rel=1e-10)


@pytest.mark.parametrize("wide", [False, True])
def test_a_row_that_counts_twice_is_two_rows(monkeypatch, wide):
    if wide:
        monkeypatch.setattr(module, "WIDE", 4)
    rng = np.random.default_rng(3)
    rows, counts = rng.normal(size=(30, 12)), rng.integers(0, 4, 30).astype(float)
    weighted = principal_axes(in_blocks(rows, counts), 12, 12, seed=0)
    repeated = principal_axes(in_blocks(np.repeat(rows, counts.astype(int), axis=0)), 12, 12, seed=0)
    np.testing.assert_allclose(weighted.values, repeated.values, rtol=1e-9)
    assert weighted.squares == pytest.approx(repeated.squares)


def test_a_slow_spectrum_loses_little_in_a_random_range(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(300, 60))
    exact = principal_axes(in_blocks(rows), 60, 10, seed=0)
    monkeypatch.setattr(module, "WIDE", 8)
    rough = principal_axes(in_blocks(rows), 60, 10, seed=0)
    assert exact.values.sum() >= rough.values.sum() >= 0.97 * exact.values.sum()
    np.testing.assert_allclose(rough.vectors.T @ rough.vectors, np.eye(10), atol=1e-12)


def test_coarse_rows_are_summed_up_in_full_precision():
    rng = np.random.default_rng(1)
    rows = (rng.normal(size=(5000, 4)) * [1000, 1, 1, 1]).astype(np.float32)
    found = principal_axes(in_blocks(rows, size=1000), 4, 4, seed=0)
    exact = np.linalg.svd(rows.astype(np.float64), compute_uv=False) ** 2
    np.testing.assert_allclose(found.values, exact, rtol=1e-9)


def test_no_rows_have_no_axes_and_more_axes_than_columns_are_all_of_them():
    none = principal_axes(lambda: iter(()), 5, 2, seed=0)
    assert none.squares == 0
    assert none.missed == 0
    assert not none.values.any()
    assert principal_axes(in_blocks(np.eye(3)), 3, 9, seed=0).vectors.shape == (3, 3)
