"""Theorem 2 (section 5.2, appendix D): what the communication-efficient mechanism saves."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from coterie.maths.kernels import Kernel
from coterie.methods.kernel.dspgd.protocol import DSPGDSettings
from tests.federations import blobs, split_evenly, tables_of
from tests.theorems.dspgd_runs import allow, average_gamma, floats_by_step


@pytest.fixture(autouse=True)
def _methods(monkeypatch):
    allow(monkeypatch)


def both(rows, settings, tables, *, seed=0):
    kernel = Kernel("rbf", average_gamma(rows))
    return [floats_by_step(kernel, settings, tables, seed=seed, dense=dense) for dense in (True, False)]


def assert_theorem_2(n, m, d, dense, with_cem):
    """(N + M D) Q_0 / (M (r_t + D) Q_1), iteration by iteration, exactly; returns the shares saved."""
    (slow, slow_floats), (fast, fast_floats) = dense, with_cem
    shares = []
    for t, (before, after) in enumerate(zip(slow_floats, fast_floats, strict=True)):
        q0, q1, r = slow.n_products[t], fast.n_products[t], fast.ranks[t]
        assert Fraction(before, after) == Fraction((n + m * d) * q0, m * (r + d) * q1)
        shares.append(1 - after / before)
    assert slow.ranks == fast.ranks
    return shares


@pytest.mark.parametrize(("n_sites", "split"), [(1, "evenly"), (3, "unevenly"), (7, "evenly")])
def test_the_ratio_is_theorem_2s(n_sites, split):
    rows = blobs(140, 5, 3, seed=1)
    settings = DSPGDSettings(4, n_features=10, n_iter=5, rank=5, solver="lanczos")
    owners = np.minimum(np.arange(140) // 3, n_sites - 1)
    tables = split_evenly(rows, n_sites) if split == "evenly" else tables_of(rows, owners, n_sites)
    assert_theorem_2(140, n_sites, 10, *both(rows, settings, tables))


def test_with_cem_the_cost_of_a_step_does_not_depend_on_the_number_of_rows():
    rows, settings = blobs(80, 5, 3, seed=1), DSPGDSettings(4, n_features=10, n_iter=4, rank=5, solver="lanczos")
    doubled = np.concatenate([rows, rows])  # twice the eigenvalues and twice the threshold: the same ranks
    steps = []
    for data in (rows, doubled):
        found, floats = floats_by_step(Kernel("rbf", 0.05), settings, split_evenly(data, 4))
        steps.append([f / q for f, q in zip(floats, found.n_products, strict=True)])
    assert steps[0] == steps[1] == [4 * (r + 10.0) for r in found.ranks]


@pytest.mark.slow
@pytest.mark.data
def test_cem_saves_97_percent_in_every_iteration_on_mushrooms(data_folder):
    """Measured: 98.4 % and more; the paper says more than 98 % on average."""
    rows = np.load(data_folder / "mushrooms.npz")["X"].astype(np.float32)
    found = both(rows, DSPGDSettings(6, n_features=20, n_iter=20, rank=4, solver="lanczos"), split_evenly(rows, 5))
    shares = assert_theorem_2(8124, 5, 20, *found)
    assert min(shares) >= 0.97
    assert np.mean(shares) >= 0.98
    assert max(found[1][0].ranks) < 6  # Figure 5 has it above s


@pytest.mark.slow
@pytest.mark.data
def test_cem_saves_98_percent_in_every_iteration_on_mnist(data_folder):
    """All 60,000 rows, both ways. Measured: 99.5 %."""
    rows = np.load(data_folder / "mnist.npz")["X"].astype(np.float32) / 255
    found = both(rows, DSPGDSettings(20, n_features=40, n_iter=3, rank=12, solver="lanczos"), split_evenly(rows, 5))
    assert min(assert_theorem_2(60000, 5, 40, *found)) >= 0.98


@pytest.mark.slow
@pytest.mark.data
def test_cem_saves_98_percent_on_covtype_by_the_formula_with_q_measured_on_a_part(data_folder):
    """20,000 of 581,012 rows give Q_0, Q_1 and r_t. All rows, run once, 45 s an iteration without CEM: 99.96 %."""
    whole = np.load(data_folder / "covtype.npz")["X"]
    low, high = whole.min(axis=0), whole.max(axis=0)
    part = np.random.default_rng(0).choice(len(whole), 20000, replace=False)
    rows = ((whole[part] - low) / np.maximum(high - low, 1)).astype(np.float32)
    found = both(rows, DSPGDSettings(14, n_features=40, n_iter=10, rank=9, solver="lanczos"), split_evenly(rows, 5))
    assert_theorem_2(20000, 5, 40, *found)
    slow, fast = found[0][0], found[1][0]
    for q0, q1, r in zip(slow.n_products, fast.n_products, fast.ranks, strict=True):
        assert 5 * (r + 40) * q1 <= 0.02 * (581012 + 5 * 40) * q0
