"""Random features against the kernels they stand for."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.errors import InputError
from coterie.maths.features import draw_features
from coterie.maths.kernels import Kernel, average_distance_gamma

ROWS = np.random.default_rng(0).normal(size=(7, 3)) * 0.6
FORMS = [
    (Kernel("rbf", 0.7), "phase"),
    (Kernel("rbf", 0.7), "paired"),
    (Kernel("laplacian", 0.4), "phase"),
    (Kernel("laplacian", 0.4), "paired"),
    (Kernel("polynomial", 0.5, degree=3, coef0=1.0), "phase"),
    (Kernel("polynomial", 0.5, degree=2, coef0=0.0), "phase"),
]


@pytest.mark.parametrize(("kernel", "form"), FORMS, ids=lambda x: getattr(x, "name", x))
def test_features_are_unbiased(kernel, form):
    """Besides any bound: the mean over many draws is the kernel within four standard errors, entry by entry."""
    draws = []
    for step in range(3000):
        features = draw_features(kernel, 10, 3, seed=5, step=step, form=form)(ROWS)
        draws.append(features @ features.T / 10)
    mean, error = np.mean(draws, axis=0), np.std(draws, axis=0) / np.sqrt(len(draws))
    off = np.abs(mean - kernel.between(ROWS, ROWS))
    assert (off <= 4 * error + 1e-12).all()
    assert error.max() < 0.3  # a test that could not fail would have errors as large as the kernel


@pytest.mark.parametrize("name", ["rbf", "laplacian"])
def test_features_in_pairs_have_the_length_of_the_kernel_exactly(name):
    features = draw_features(Kernel(name, 0.3), 12, 3, seed=1, step=2, form="paired")(ROWS)
    np.testing.assert_allclose((features**2).sum(axis=1) / 12, 1.0, rtol=1e-14)


def test_everyone_draws_the_same_map_and_another_one_each_step():
    kernel = Kernel("rbf", 0.7)
    one, same, other = (draw_features(kernel, 8, 3, seed=4, step=s)(ROWS) for s in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 0.1


def test_single_precision_features_are_close():
    kernel = Kernel("rbf", 0.7)
    wide = draw_features(kernel, 8, 3, seed=4, step=1)(ROWS)
    narrow = draw_features(kernel, 8, 3, seed=4, step=1, dtype=np.float32)(ROWS.astype(np.float32))
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, wide, atol=1e-5)


def test_kernels_are_scikit_learns_and_their_diagonal_fits():
    for kernel, _ in FORMS:
        np.testing.assert_allclose(np.diag(kernel.between(ROWS, ROWS)), kernel.diagonal(ROWS))
    np.testing.assert_allclose(
        Kernel("rbf", 0.7).between(ROWS[:1], ROWS[1:2])[0, 0], np.exp(-0.7 * ((ROWS[0] - ROWS[1]) ** 2).sum())
    )


def test_gamma_is_the_papers():
    apart = ((ROWS[:, None] - ROWS[None]) ** 2).sum()
    found = average_distance_gamma(len(ROWS), ROWS.sum(0), float((ROWS**2).sum()))
    assert found == pytest.approx(len(ROWS) ** 2 / (2 * apart))
    with pytest.raises(InputError, match="all rows are equal"):
        average_distance_gamma(3, np.full(2, 3.0), 6.0)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Kernel("sigmoid", 1.0), "kernel='sigmoid' is unknown"),
        (lambda: Kernel("rbf", 0.0), "gamma=0.0 must be finite and above 0"),
        (lambda: Kernel("rbf", float("nan")), "gamma=nan"),
        (lambda: draw_features(Kernel("rbf", 1.0), 7, 2, 0, 0, form="paired"), "n_features=7 is odd"),
        (lambda: draw_features(Kernel("rbf", 1.0), 8, 2, 0, 0, form="quartets"), "'phase' or 'paired'"),
    ],
)
def test_what_cannot_be_is_said(make, told):
    with pytest.raises(InputError, match=told):
        make()
