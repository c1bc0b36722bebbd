"""Coarse points, the features they give, and when more of them would pay."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from coterie.maths.clustering import nearest_of_each, rough_centers, weighted_kmeans
from coterie.maths.kernels import Kernel
from coterie.maths.landmarks import (
    NEIGHBORS,
    TRUSTED,
    GroupCovariance,
    LandmarkMap,
    Landmarks,
    coded,
    decoded,
    feature_root,
    merged,
    missed_share,
    neighbor_differences,
)
from tests.federations import blobs

ROWS = blobs(80, 4, 3, seed=1, spread=2.0)
RBF = Kernel("rbf", 0.05)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("n_ranges", [1, 4])
def test_codes_are_within_half_a_step(bits, n_ranges):
    codes, low, span = coded(ROWS * [1, 10, 100, 0], bits, n_ranges)
    assert codes.min() >= 0
    assert codes.max() < 1 << bits
    off = np.abs(decoded(codes, low, span, bits) - ROWS * [1, 10, 100, 0])
    assert (off <= 0.5 * span / ((1 << bits) - 1) * (1 + 1e-6) + 1e-6).all()
    assert off.max() > 0


def test_no_points_and_equal_points_have_codes_too():
    codes, low, span = coded(np.zeros((0, 3)), 4, 3)
    assert codes.shape == (0, 3)
    codes, low, span = coded(np.full((5, 3), 7.0), 4, 1)
    np.testing.assert_array_equal(decoded(codes, low, span, 4), np.full((5, 3), 7.0))


@pytest.mark.parametrize("kernel", [RBF, Kernel("laplacian", 0.1), Kernel("polynomial", 0.1, 2)])
def test_all_rows_as_landmarks_give_the_kernel_itself(kernel):
    features = LandmarkMap.of(kernel, ROWS, feature_root(kernel, ROWS)).embed(ROWS)
    exact = kernel.between(ROWS, ROWS)
    np.testing.assert_allclose(features @ features.T, exact, atol=1e-8 * exact.max())


def test_landmarks_that_are_there_twice_or_nearly_do_no_harm():
    points = np.concatenate([ROWS[:10], ROWS[:10], ROWS[:10] + 1e-9])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        root = feature_root(RBF, points, row_bytes=4)
        features = LandmarkMap.of(RBF, points, root).embed(ROWS)
        coarse = LandmarkMap.of(RBF, points, root).embed(ROWS.astype(np.float32))
    assert root.shape[1] <= 10
    assert (np.vecdot(features, features) <= 1 + 1e-9).all()  # a projection never lengthens
    np.testing.assert_allclose(features, coarse, atol=5e-3)
    assert coarse.dtype == np.float32


def test_far_from_the_origin_kernel_values_keep_their_digits():
    for kernel in (RBF, Kernel("laplacian", 0.1)):
        np.testing.assert_allclose(
            kernel.quick(ROWS + 1e6, ROWS[:9] + 1e6), kernel.between(ROWS, ROWS[:9]), atol=1e-7
        )


def test_many_points_are_merged_and_their_weights_add_up():
    weights = np.arange(80) % 3.0
    points, counts = merged(ROWS, weights, 10, seed=0)
    assert len(points) == 10
    assert counts.sum() == pytest.approx(weights.sum())
    np.testing.assert_allclose(counts @ points, weights @ ROWS, rtol=1e-9)
    same, counts = merged(np.repeat(ROWS[:5], 2, axis=0), np.ones(10), 10, seed=0)
    assert len(same) == 5
    np.testing.assert_array_equal(counts, np.full(5, 2.0))


def test_what_half_of_the_landmarks_miss_grows_with_gamma():
    found = Landmarks(ROWS, np.ones(80), 1.0)
    shares = [missed_share(Kernel("rbf", gamma), found, seed=0) for gamma in (0.001, 0.05, 5.0)]
    assert shares[0] < 0.02 < shares[1] < shares[2]
    assert shares[2] > 0.5
    alone = Landmarks(np.ones((1, 3)), np.ones(1), 0.0)
    assert missed_share(RBF, alone, seed=0) == 0.0


def test_the_nearest_center_of_each_of_several_sets():
    starts = np.random.default_rng(0).normal(size=(3, 4, 4))
    expected = np.array([((ROWS[:, None] - centers) ** 2).sum(-1).min(1) for centers in starts]).T
    np.testing.assert_allclose(nearest_of_each(ROWS, starts), expected, rtol=1e-9)


def test_rough_centers_are_those_of_k_means_also_far_away_and_of_few_points():
    rows = blobs(300, 3, 3, seed=2, spread=0.1)
    rough, exact = (
        rough_centers(rows + 1e6, np.ones(300), 3, seed=0) - 1e6,
        weighted_kmeans(rows, np.ones(300), 3, seed=0),
    )
    np.testing.assert_allclose(np.sort(rough, axis=0), np.sort(exact, axis=0), atol=0.05)
    assert rough_centers(rows[:2], np.ones(2), 5, seed=0).shape == (5, 3)


def test_the_scatter_within_is_that_of_drawn_rows_to_first_order():
    """By hand: features of rows drawn about each row shown, in directions of very different size."""
    rng = np.random.default_rng(4)
    shown, landmarks, counts = rng.normal(size=(3, 4)), rng.normal(size=(6, 4)), np.array([5.0, 7.0, 9.0])
    variance, squares = np.array([1e-4, 2e-4, 5e-5]), np.array([30.0, 9.0, 0.0, 1.0])
    covariance = GroupCovariance.of(squares, rng.normal(size=(20, 2)) @ rng.normal(size=(2, 4)) * [1, 1, 1, 0])
    root = covariance.coordinates(np.eye(4))
    kernel = Kernel("rbf", 0.3)
    map_ = LandmarkMap.of(kernel, landmarks, feature_root(kernel, landmarks))
    slow = np.zeros((6, 6))
    for row, v, count in zip(shown, variance, counts, strict=True):
        drawn = row + np.sqrt(v) * rng.normal(size=(200_000, root.shape[1])) @ root.T
        slow += count * np.cov(map_.embed(drawn).T, bias=True)
    found = map_.within(shown, variance, counts, covariance)
    np.testing.assert_allclose(found, slow, atol=0.01 * np.trace(slow))


def test_the_covariance_within_groups_has_the_columns_deviations_and_part_of_the_neighbors_correlations():
    rng = np.random.default_rng(5)
    differences, squares = rng.normal(size=(50, 4)) @ rng.normal(size=(4, 4)) * [1, 1, 0, 1], np.array([4.0, 1, 2, 0])
    for some in (differences, differences[:3]):
        root = GroupCovariance.of(squares, some).coordinates(np.eye(4))
        lengths, deviations = np.linalg.norm(some, axis=0), np.sqrt(squares * 4 / 7)
        scaled = some / np.where(lengths > 0, lengths, 1.0)
        expected = TRUSTED * (scaled.T @ scaled)
        np.fill_diagonal(expected, 1.0)
        np.testing.assert_allclose(root @ root.T, expected * np.outer(deviations, deviations), atol=1e-12)


def test_neighbors_are_the_nearest_rows():
    rows = np.random.default_rng(6).normal(size=(600, 3))
    found = neighbor_differences(rows).reshape(-1, NEIGHBORS + 1, 3)
    assert len(found) == 200  # every third row
    for i, differences in enumerate(found):
        apart = np.sort(np.linalg.norm(rows[3 * i] - rows, axis=1))[: NEIGHBORS + 1]
        np.testing.assert_allclose(np.sort(np.linalg.norm(differences, axis=1)), apart, atol=1e-12)
    assert neighbor_differences(rows[:0]).shape == (0, 3)  # a block of which every group was left out
    assert not neighbor_differences(rows[:1]).any()
    assert len(neighbor_differences(rows[:2])) == 4
