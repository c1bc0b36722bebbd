"""What private kernel k-means and principal components reach on data, at epsilon 1 over five sites.

Noise is never the same twice, so bars are for means over fresh seeds, a few standard errors above what is seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator, eigsh
from sklearn.cluster import KMeans
from sklearn.datasets import make_circles
from sklearn.metrics import normalized_mutual_info_score

from coterie import FederatedKernelKMeans, FederatedKernelPCA, FederatedKMeans, FederatedPCA, Privacy
from coterie.maths.kernels import Kernel, average_distance_gamma
from coterie_studies.kernel_quality import Reference
from coterie_studies.privacy.sets import FULL, loaded


@dataclass(frozen=True)
class Judged:
    """Rows in the unit box, and what pooled Nystroem k-means (SK) reaches on them: the best of three starts."""

    rows: Any
    k: int
    gamma: float
    reference: Reference
    cost: float

    def ratio(self, epsilon, seed):
        """f_K of a private run over SK's."""
        private = FederatedKernelKMeans(self.k, privacy=at(epsilon, self.rows), random_state=seed)
        return self.reference.cost(fitted(private, self.rows).labels_) / self.cost

    def mean_ratio(self, epsilon, n_seeds):
        ratios = [self.ratio(epsilon, seed) for seed in range(n_seeds)]
        print(f"f_K {np.mean(ratios):.4f}, from {min(ratios):.4f} to {max(ratios):.4f}")
        return np.mean(ratios)


def at(epsilon, rows):
    return Privacy(epsilon=epsilon, delta=len(rows) ** -1.1)


def dealt(rows):
    """The site of each row."""
    return np.random.default_rng(0).integers(0, 5, len(rows))


def fitted(estimator, rows):
    d = rows.shape[1]
    return estimator.fit(rows, sites=dealt(rows), ranges=(np.zeros(d), np.ones(d)))


@cache
def judged(name, n_axes):
    one = FULL[name]
    rows = loaded(one).rows
    gamma = average_distance_gamma(float(len(rows)), rows.sum(axis=0), float((rows**2).sum()))
    reference = Reference(Kernel("rbf", gamma), rows)
    pairs = reference.pairs(n_axes)
    embedded = pairs.vectors * np.sqrt(pairs.values)
    found = [KMeans(one.n_clusters, n_init=1, random_state=seed).fit_predict(embedded) for seed in range(3)]
    return Judged(rows, one.n_clusters, gamma, reference, min(reference.cost(labels) for labels in found))


# ---------------------------------------------------------------- kernel k-means


def test_digits_are_clustered_nearly_as_well_as_by_pooled_nystroem():
    assert judged("digits", 20).mean_ratio(1.0, 30) <= 1.06


def test_with_next_to_no_noise_digits_are_clustered_as_over_rows():
    data = judged("digits", 20)
    runs = [FederatedKernelKMeans(data.k, random_state=seed) for seed in range(3)]
    exact = [data.reference.cost(run.fit(data.rows, sites=dealt(data.rows)).labels_) for run in runs]
    assert data.mean_ratio(100.0, 10) * data.cost <= 1.03 * np.mean(exact)


def test_two_rings_are_told_apart_where_no_linear_method_can():
    rows, truth = make_circles(10_000, factor=0.3, noise=0.05, random_state=0)
    rows = (rows + 1.25) / 2.5
    for seed in range(10):
        made = fitted(FederatedKernelKMeans(2, gamma=20, privacy=at(1.0, rows), random_state=seed), rows)
        assert normalized_mutual_info_score(truth, made.labels_) >= 0.99
    linear = fitted(FederatedKMeans(2, privacy=at(1.0, rows), random_state=0), rows)
    assert normalized_mutual_info_score(truth, linear.labels_) <= 0.05


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "n_axes", "n_seeds", "most"), [("mnist", 20, 10, 1.01), ("mushrooms", 6, 10, 1.005)]
)
def test_larger_sets_are_clustered_as_well_as_by_pooled_nystroem(data_folder, name, n_axes, n_seeds, most):
    assert judged(name, n_axes).mean_ratio(1.0, n_seeds) <= most


# ---------------------------------------------------------------- components


def captured(rows, axes):
    """The variance along some axes over that along the best ones."""
    away = rows - rows.mean(axis=0)
    scatter, turned = away.T @ away, np.linalg.qr(axes)[0]
    return np.trace(turned.T @ scatter @ turned) / np.linalg.eigvalsh(scatter)[-axes.shape[1] :].sum()


def mean_captured(rows, epsilon, n_seeds):
    runs = [FederatedPCA(5, privacy=at(epsilon, rows), random_state=seed) for seed in range(n_seeds)]
    shares = [captured(rows, fitted(run, rows).components_.T) for run in runs]
    print(f"captured {np.mean(shares):.4f}, from {min(shares):.4f} to {max(shares):.4f}")
    return np.mean(shares)


def test_components_of_digits_hold_nearly_as_much_variance_as_the_best():
    assert mean_captured(loaded(FULL["digits"]).rows, 1.0, 10) >= 0.98


def test_with_next_to_no_noise_components_and_variances_are_those_of_the_rows():
    rows = loaded(FULL["digits"]).rows
    assert mean_captured(rows, 100.0, 3) >= 0.999
    exact = FederatedPCA(5).fit(rows)
    made = fitted(FederatedPCA(5, privacy=at(100.0, rows)), rows)
    np.testing.assert_allclose(made.explained_variance_, exact.explained_variance_, rtol=0.05)
    np.testing.assert_allclose(made.explained_variance_ratio_, exact.explained_variance_ratio_, rtol=0.05)
    np.testing.assert_allclose(made.mean_, exact.mean_, atol=0.02)


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize(("epsilon", "least"), [(0.1, 0.98), (1.0, 0.99)])
def test_components_of_load_shapes_hold_nearly_as_much_variance_as_the_best(data_folder, epsilon, least):
    assert mean_captured(loaded(FULL["pjm"]).rows, epsilon, 10) >= least


def test_kernel_components_of_digits_hold_nearly_as_much_as_the_best():
    rows = loaded(FULL["digits"]).rows
    gamma = average_distance_gamma(float(len(rows)), rows.sum(axis=0), float((rows**2).sum()))
    kernel = Kernel("rbf", gamma).between(rows, rows)
    mean = kernel.mean(axis=0)
    centered = kernel - mean - mean[:, None] + mean.mean()
    best = eigsh(LinearOperator(centered.shape, matvec=centered.__matmul__), 10)[0]
    shares, ratios = [], []
    for seed in range(10):
        made = fitted(FederatedKernelPCA(10, privacy=at(1.0, rows), random_state=seed), rows)
        basis = np.linalg.qr(made.transform(rows))[0]
        shares.append(np.trace(basis.T @ centered @ basis) / best.sum())
        ratios.append(made.eigenvalues_.sum() / best.sum())
    print(f"captured {np.mean(shares):.4f}, eigenvalues {np.mean(ratios):.3f}")
    assert np.mean(shares) >= 0.92
    assert 0.75 <= np.mean(ratios) <= 1.1
