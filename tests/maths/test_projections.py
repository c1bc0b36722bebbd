"""Random projections that are seeds, bases, and the way back from them."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.errors import InputError
from coterie.maths.projections import FORMS, Basis, Projection, lifted, product

every_form = pytest.mark.parametrize("form", FORMS)


@every_form
def test_squared_lengths_are_right_on_average(form):
    """Exactly so over all draws: the mean over 400 seeds is within four standard errors."""
    row = np.random.default_rng(0).normal(size=(1, 30))
    ratios = [float((Projection(form, 30, 8, seed).apply(row) ** 2).sum() / (row**2).sum()) for seed in range(400)]
    assert abs(np.mean(ratios) - 1) < 4 * np.std(ratios) / np.sqrt(len(ratios))


@every_form
def test_inner_products_are_right_on_average(form):
    a, b = np.random.default_rng(1).normal(size=(2, 1, 30))
    found = []
    for seed in range(400):
        one = Projection(form, 30, 8, seed)
        found.append(float(np.vecdot(one.apply(a), one.apply(b))[0]))
    assert abs(np.mean(found) - float(np.vecdot(a, b)[0])) < 4 * np.std(found) / np.sqrt(len(found))


@every_form
@pytest.mark.parametrize(("d", "p"), [(1, 1), (2, 1), (3, 3), (20, 19), (64, 16), (300, 40)])
def test_what_was_lifted_is_projected_onto_itself_again(form, d, p):
    for seed in range(5):
        one = Projection(form, d, p, seed)
        points = np.random.default_rng(seed).normal(size=(7, p))
        np.testing.assert_allclose(one.apply(one.lift(points)), points, rtol=1e-12, atol=1e-12)


@every_form
def test_the_lift_is_the_shortest_point_there_is(form):
    one = Projection(form, 12, 5, 3)
    point = np.random.default_rng(0).normal(size=(1, 5))
    back = one.lift(point)
    unseen = np.linalg.svd(one.dense.T)[2][5:]  # directions the projection does not see
    np.testing.assert_allclose(one.apply(unseen), 0, atol=1e-12)
    np.testing.assert_allclose(unseen @ back[0], 0, atol=1e-12)


def test_chains_are_lifted_through_every_map():
    rng = np.random.default_rng(4)
    basis = Basis(np.linalg.qr(rng.normal(size=(9, 4)))[0])
    maps = [Projection("gaussian", 20, 9, 1), basis, Projection("sparse", 4, 3, 2)]
    points = rng.normal(size=(6, 3))
    again = lifted(points, maps)
    for one in maps:
        again = one.apply(again)
    np.testing.assert_allclose(again, points, rtol=1e-11, atol=1e-11)
    rows = rng.normal(size=(5, 20))
    np.testing.assert_allclose(maps[2].apply(basis.apply(maps[0].apply(rows))), rows @ product(maps), atol=1e-12)


def test_an_orthogonal_projection_onto_all_columns_turns_rows_and_changes_no_distance():
    rows = np.random.default_rng(0).normal(size=(20, 7))
    turned = Projection("orthogonal", 7, 7, 5).apply(rows)
    np.testing.assert_allclose(turned @ turned.T, rows @ rows.T, atol=1e-13 * 7)
    assert np.abs(turned - rows).max() > 0.1


@every_form
def test_it_is_a_seed_the_same_at_both_ends_and_in_both_precisions(form):
    rows = np.random.default_rng(2).normal(size=(5, 25))
    first, again, other = (Projection(form, 25, 6, seed).apply(rows) for seed in (3, 3, 4))
    assert first.tobytes() == again.tobytes()
    assert np.abs(first - other).max() > 0.01
    coarse = Projection(form, 25, 6, 3).apply(rows.astype(np.float32))
    assert coarse.dtype == np.float32
    np.testing.assert_allclose(coarse, first, rtol=1e-5, atol=1e-5)


def test_a_sparse_one_holds_few_entries():
    made = Projection("sparse", 10_000, 20, 0).matrix
    assert made.nnz < 1.2 * 10_000 * 20 / 100


def test_what_cannot_be_projected_is_an_error():
    with pytest.raises(InputError, match="3 columns cannot be projected onto 4"):
        Projection("gaussian", 3, 4, 0)
    with pytest.raises(InputError, match="gaussian, sparse, orthogonal"):
        Projection("fast", 3, 2, 0)
