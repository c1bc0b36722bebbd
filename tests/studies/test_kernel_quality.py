"""What embeddings and clusterings are judged by, against its definition."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.engines.inprocess import in_process
from coterie.maths.kernels import Kernel
from coterie.methods.kernel.baselines import sk
from coterie.runtime.run import run
from coterie_studies import kernel_quality
from coterie_studies.kernel_quality import Reference, nmi, squared_distance
from tests.federations import blobs, split_evenly

KERNEL = Kernel("rbf", 0.05)
ROWS = blobs(90, 4, 3, seed=1, spread=2.0)
LABELS = np.random.default_rng(2).integers(0, 4, 90)


@pytest.fixture(params=["exact", "nystroem, all rows"])
def reference(request, monkeypatch):
    """Both ways to the same numbers, several blocks of rows each."""
    monkeypatch.setattr(kernel_quality, "BLOCK_BYTES", 90 * 8 * 20)
    exact = request.param == "exact"
    made = Reference(KERNEL, ROWS, exact_rows=3000 if exact else 0)
    assert made.is_exact == exact
    return made


def definition(gram, labels):
    """f_K with an N x N matrix."""
    inside = [gram[np.ix_(labels == c, labels == c)].sum() / (labels == c).sum() for c in np.unique(labels)]
    return np.trace(gram) - sum(inside)


def test_the_cost_is_that_of_the_definition(reference):
    gram = KERNEL.between(ROWS, ROWS)
    assert reference.cost(LABELS) == pytest.approx(definition(gram, LABELS), rel=1e-9)
    assert reference.cost(LABELS * 7 - 3) == pytest.approx(reference.cost(LABELS), rel=1e-12)  # names do not matter


def test_the_cost_of_other_kernels_counts_their_own_diagonal():
    kernel = Kernel("polynomial", 0.1, 2)
    made = Reference(kernel, ROWS)
    assert made.cost(LABELS) == pytest.approx(definition(kernel.between(ROWS, ROWS), LABELS), rel=1e-9)


def test_fewer_landmarks_leave_some_of_the_kernel_out():
    """A cluster's mean is shorter where it is projected, so the cost is never below the true one."""
    whole = Reference(KERNEL, ROWS).cost(LABELS)
    costs = [Reference(KERNEL, ROWS, n_landmarks=m, exact_rows=0).cost(LABELS) for m in (3, 10, 40)]
    assert costs[0] > costs[1] > costs[2] >= whole * (1 - 1e-12)
    assert costs[2] == pytest.approx(whole, rel=0.01)


def test_eigenpairs_are_those_of_the_kernel_matrix(reference):
    values, vectors = np.linalg.eigh(KERNEL.between(ROWS, ROWS))
    for count in (5, 3):  # the second from what the first left
        found = reference.pairs(count)
        np.testing.assert_allclose(found.values, values[::-1][:count], rtol=1e-9)
        np.testing.assert_allclose(np.abs(np.vecdot(found.vectors.T, vectors.T[::-1][:count])), 1, atol=1e-8)


def test_single_precision_beyond_a_few_rows_is_enough(monkeypatch):
    whole = Reference(KERNEL, ROWS).pairs(5)
    monkeypatch.setattr(kernel_quality, "FEW", 50)
    found = Reference(KERNEL, ROWS, exact_rows=90).pairs(5)
    np.testing.assert_allclose(found.values, whole.values, rtol=1e-5)
    assert (found.values != whole.values).any()


def test_the_recover_error_is_that_of_the_definition(reference):
    factor = np.random.default_rng(3).normal(size=(90, 4))
    values, vectors = np.linalg.eigh(KERNEL.between(ROWS, ROWS))
    best = (vectors[:, -3:] * values[-3:]) @ vectors[:, -3:].T
    expected = ((factor @ factor.T - best) ** 2).sum() / 90**2
    assert reference.recover_error(factor, 3) == pytest.approx(expected, rel=1e-9)
    own = vectors[:, -3:] * np.sqrt(values[-3:])
    assert reference.recover_error(own, 3) == pytest.approx(0, abs=1e-12)


def test_squared_distances_are_never_negative():
    one = np.random.default_rng(0).normal(size=(30, 4))
    assert squared_distance(one, one) >= 0


def test_nystroem_pairs_are_those_of_scalable_kernel_k_means():
    made = Reference(KERNEL, ROWS, n_landmarks=90, exact_rows=0).pairs(4)
    steps = sk(KERNEL, 3, n_landmarks=90, n_components=4, n_columns=4, seed=0)
    with in_process(split_evenly(ROWS, 3)) as channel:
        fit = run(steps, channel, method="sk")
    mine, theirs = made.vectors * np.sqrt(made.values), fit.embedding.embed(ROWS)
    np.testing.assert_allclose(mine @ mine.T, theirs @ theirs.T, atol=1e-8)


def test_both_normalisations_go_by_their_names():
    truth, labels = np.array(list("aabbcc")), np.array([0, 0, 1, 1, 1, 1])
    h_truth, h_labels = np.log(3), -(np.log(1 / 3) + 2 * np.log(2 / 3)) / 3
    found = nmi(truth, labels)
    assert found["nmi_geometric"] == pytest.approx(h_labels / np.sqrt(h_truth * h_labels))
    assert found["nmi_arithmetic"] == pytest.approx(2 * h_labels / (h_truth + h_labels))
