"""Arithmetic with the same bits on every machine: it is right, and the bits are the same."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg

from coterie.maths import exact, exact_kmeans
from coterie.maths.clustering import best_centers, moments, weighted_kmeans
from coterie.maths.kernels import KERNELS, Kernel
from tests.blas_kernels import ROOT, environment, kernel_of
from tests.kernel_runs import OFF


@given(st.integers(1, 8), st.integers(0, 40), st.integers(1, 8), st.integers(-300, 300), st.integers(0, 1000))
def test_a_product_is_that_of_the_real_numbers_rounded(m, inner, n, power, seed):
    rng = np.random.default_rng(seed)
    a = np.ldexp(rng.normal(size=(m, inner)), power + rng.integers(-20, 20, (m, 1)))
    b = rng.normal(size=(inner, n))
    found, expected = exact.product(a, b), a.astype(np.longdouble) @ b.astype(np.longdouble)
    sizes = np.abs(a).max(axis=1, initial=0)[:, None] * np.abs(b).max(axis=0, initial=0) * max(inner, 1)
    assert (np.abs(found - expected) <= 3e-16 * np.abs(expected) + 1e-17 * sizes).all()


def test_vectors_are_rows_or_columns():
    a, v = np.arange(6.0).reshape(2, 3), np.array([1.0, 2.0, 4.0])
    np.testing.assert_array_equal(exact.product(a, v), a @ v)
    np.testing.assert_array_equal(exact.product(v, a.T), v @ a.T)
    assert exact.product(v, v).shape == ()
    assert exact.product(v, v) == 21


def test_the_exponential():
    values = np.concatenate([np.linspace(-690, 690, 20001), [0.0, -0.0, 1.0]])
    np.testing.assert_allclose(exact.exponential(values), np.exp(values), rtol=1e-15)
    np.testing.assert_array_equal(exact.exponential(np.array([-1e300, -800.0, 0.0])), [0.0, 0.0, 1.0])


SPECTRA = {
    "some": np.arange(40.0),
    "equal ones": np.repeat([5.0, 2.0, 0.0], 8),
    "falling": 0.3 ** np.arange(30.0),
    "both signs": np.linspace(-1, 1, 25),
    "huge": 1e150 * np.arange(1, 9.0),
    "none": np.zeros(6),
    "one": np.array([3.0]),
}


@pytest.mark.parametrize("name", SPECTRA)
def test_eigenpairs(name):
    values = np.sort(SPECTRA[name])
    turn = linalg.qr(np.random.default_rng(0).normal(size=(len(values),) * 2))[0]
    matrix = (turn * values) @ turn.T
    matrix = (matrix + matrix.T) / 2
    found, vectors = exact.eigenpairs(matrix)
    scale = np.abs(values).max()
    np.testing.assert_allclose(found, values, atol=1e-13 * scale)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(len(values)), atol=1e-13)
    np.testing.assert_allclose(matrix @ vectors, vectors * found, atol=1e-13 * scale)


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_values_are_those_of_the_kernel(name):
    rng, kernel = np.random.default_rng(0), Kernel(name, 0.3)
    rows, others = rng.normal(size=(20, 4)) + 5, rng.normal(size=(7, 4)) + 5
    np.testing.assert_allclose(kernel.exact(rows, others), kernel.between(rows, others), rtol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_centers_are_as_good_as_those_of_another_solver(seed):
    rng = np.random.default_rng(seed)
    points, weights = rng.normal(size=(60, 3)) + 1e3, rng.random(60)
    cost, centers = best_centers(points, weights, 5, seed=seed)
    assert cost == pytest.approx(float(moments(points, centers, weights).cost), rel=1e-6)
    assert cost <= 1.02 * float(moments(points, weighted_kmeans(points, weights, 5, seed=seed), weights).cost)


def test_no_center_is_left_without_points():
    points = np.array([[0.0], [1.0], [10.0], [11.0]])
    lost = exact_kmeans._improved(points, np.ones(4), np.array([[5.0], [100.0]]), 0.0)
    np.testing.assert_allclose(np.sort(lost.centers[:, 0]), [0.5, 10.5])


BITS = """
import numpy as np
from coterie.maths import exact
from coterie.maths.clustering import best_centers
rng = np.random.default_rng(0)
a, b = rng.normal(size=(60, 333)), rng.normal(size=(333, 60))
gram = exact.product(a, a.T)
ties = np.array(np.meshgrid(*[[-1.0, 1.0]] * 4)).reshape(4, -1).T / 3
found = [exact.product(a, b), exact.exponential(a), *exact.eigenpairs(gram), *exact.eigenpairs(np.eye(8) + 1 / 3),
         *(best_centers(ties, np.ones(16), k, seed=k).centers for k in (2, 3, 5))]
print(b"".join(np.ascontiguousarray(each).tobytes() for each in found).hex())
"""


def test_the_bits_are_the_same_with_other_kernels_and_other_loops():
    oldest = next(filter(kernel_of, ("Nehalem", "armv8")), "")
    runs = [environment(""), environment(oldest, **OFF)]
    lines = {
        subprocess.run([sys.executable, "-c", BITS], env=each, cwd=ROOT, capture_output=True, check=True).stdout
        for each in runs
    }
    assert len(lines) == 1
