"""How well clusters are separated: silhouettes, the agreement of two clusterings, what rows without clusters give."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from coterie.arrays import Floats, Indices

REFERENCES, REFERENCE_ROWS, REFERENCE_STARTS, MOST_STEPS = 10, 500, 2, 30
"""Sets of rows without clusters, the rows of each, and the starts and steps of k-means there."""
WIDTH = 1 << 12
"""Whole numbers to either side of the middle of the longest axis. Products of such rows add up exactly."""


class Nearest(NamedTuple):
    """For every row the nearest of some centers, and the squared distances to it and to the second nearest."""

    labels: Indices
    own: Floats
    other: Floats


def two_nearest(squared: Floats) -> Nearest:
    """The two nearest centers, from the squared distances of every row to every center."""
    labels, each = squared.argmin(axis=1), np.arange(len(squared))
    own = squared[each, labels]
    if squared.shape[1] == 1:
        return Nearest(labels, own, own)
    rest = squared.copy()
    rest[each, labels] = np.inf
    return Nearest(labels, own, rest.min(axis=1))


def silhouettes(near: Nearest) -> Floats:
    """The simplified silhouette of every row: ``(b - a) / b``, where ``a`` is the distance from its own center and
    ``b`` that from the second nearest; 0 where both are zero."""
    own, other = np.sqrt(np.maximum(near.own, 0.0)), np.sqrt(np.maximum(near.other, 0.0))
    return np.asarray((other - own) / np.where(other > 0, other, 1.0))


def pair_counts(first: Indices, second: Indices, n_clusters: int, weights: Floats) -> Floats:
    """The weight of the rows that two clusterings put to each pair of clusters, row by row of the table."""
    return np.bincount(first * n_clusters + second, weights, n_clusters * n_clusters).astype(np.float64)


def adjusted_rand(table: Floats) -> float:
    """The adjusted Rand index of two clusterings from the table of their pairs (Hubert & Arabie 1985).

    1 where they are the same, about 0 where they have nothing in common. Where only one value is possible, as with
    one cluster each, they are the same.
    """
    both = float(_pairs(table).sum())
    first, second = float(_pairs(table.sum(axis=1)).sum()), float(_pairs(table.sum(axis=0)).sum())
    all_pairs = float(_pairs(table.sum()))
    if not all_pairs > 0:
        return 1.0
    expected, most = first * second / all_pairs, (first + second) / 2
    return 1.0 if most - expected <= 1e-12 * most else (both - expected) / (most - expected)


def _pairs(counts: Floats) -> Floats:
    return np.asarray(np.maximum(counts * (counts - 1), 0.0) / 2)


class Reference(NamedTuple):
    """How the cost of rows without clusters falls with the number of clusters: the mean of the logarithm of its share
    of the cost of one cluster, and its deviation."""

    mean: Floats
    deviation: Floats


def reference_costs(variances: tuple[float, ...], rest: float, counts: tuple[int, ...], *, seed: int) -> Reference:
    """The costs that numbers of clusters have for rows drawn uniformly from a box (Tibshirani et al. 2001).

    The box has these variances along its axes, and ``rest`` is what the rows vary along others, where their clusters
    differ in nothing. Rows and centers are whole numbers: the result is the same on every machine.
    """
    return _reference_costs(variances, rest, counts, seed)


@lru_cache(maxsize=64)  # every site of a verified run in one process asks for the same
def _reference_costs(variances: tuple[float, ...], rest: float, counts: tuple[int, ...], seed: int) -> Reference:
    widths = np.sqrt(np.maximum(variances, 0.0))
    largest = float(widths.max(initial=0.0))
    if not largest > 0:
        return Reference(np.zeros(len(counts)), np.zeros(len(counts)))
    scaled = np.maximum(np.rint(widths / largest * WIDTH), 1.0).astype(np.int64)
    beyond = REFERENCE_ROWS * rest * (WIDTH / largest) ** 2 / 3  # a uniform row's variance is a third of its width's
    shares = np.zeros((REFERENCES, len(counts)))
    for i in range(REFERENCES):
        rng = np.random.default_rng([seed, 4, i])
        rows = rng.integers(-scaled, scaled, (REFERENCE_ROWS, len(scaled)), endpoint=True).astype(np.float64)
        apart = _squared(rows, rows)
        costs = [beyond + min(_whole_kmeans(rows, apart, k, rng) for _ in range(REFERENCE_STARTS)) for k in counts]
        shares[i] = np.array(costs) / (beyond + _whole_cost(rows, np.rint(rows.mean(axis=0, keepdims=True))))
    logs = np.log(np.maximum(shares, 1e-300))
    return Reference(np.round(logs.mean(axis=0), 9), np.round(logs.std(axis=0), 9))


def _squared(rows: Floats, centers: Floats) -> Floats:
    """The squared distances between whole rows and whole centers: sums of whole numbers, exact in any order."""
    scores = (rows * rows).sum(axis=1)[:, None] - 2 * (rows @ centers.T)
    return np.asarray(scores + (centers * centers).sum(axis=1))


def _whole_cost(rows: Floats, centers: Floats) -> float:
    return float(_squared(rows, centers).min(axis=1).sum())


def _whole_kmeans(rows: Floats, apart: Floats, n_clusters: int, rng: np.random.Generator) -> float:
    """The cost of k-means from a start by greedy k-means++, whose centers are rounded to whole numbers."""
    chosen = [int(rng.integers(len(rows)))]
    closest = apart[:, chosen[0]]
    for _ in range(1, n_clusters):
        ends = np.cumsum(closest)
        places = np.searchsorted(ends, rng.random(2 + n_clusters.bit_length()) * ends[-1], "right")
        tried = np.minimum(places, len(rows) - 1)
        left = np.minimum(closest[:, None], apart[:, tried])
        best = int(left.sum(axis=0).argmin())
        chosen.append(int(tried[best]))
        closest = left[:, best]
    centers, cost = rows[chosen], np.inf
    for _ in range(MOST_STEPS):
        squared = _squared(rows, centers)
        now, labels = float(squared.min(axis=1).sum()), squared.argmin(axis=1)
        if not now < cost:
            break
        cost, member = now, (labels == np.arange(n_clusters)[:, None]).astype(np.float64)
        held = member.sum(axis=1)[:, None]
        centers = np.where(held > 0, np.rint(member @ rows / np.maximum(held, 1.0)), centers)
    return cost
