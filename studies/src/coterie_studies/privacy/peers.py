"""k-means with differential privacy as others make it: over all rows in one place, by somebody trusted with them.

Written from the formulas of Su et al. (2016) and of FastLloyd's public code, in continuous noise; diffprivlib is run
as it is, where it is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from coterie.maths.accounting import mu_of
from coterie.maths.clustering import counts_by_cell, nearest, sums_by_cell
from coterie_studies.datasets import DataMissing
from coterie_studies.privacy.sets import PrivateSet, Values, complete, judged

__all__ = ["PEERS", "clustered_by_peer", "fast_lloyd", "su_lloyd"]

Floats = npt.NDArray[np.float64]
Peer = Callable[[Floats, int, float, float, int], Floats]
"""Rows from 0 to 1, clusters, epsilon, delta and seed to centers."""

RHO = 0.225
"""How far sums are from the middle of the box (Su et al. 2016)."""
LEAST_ROUNDS, MOST_ROUNDS = 2, 7
ALPHA = 0.8
"""Of FastLloyd's radius."""
TRIES = 100


def clustered_by_peer(one: PrivateSet, name: str, epsilon: float, seed: int) -> Values:
    """The cost of a peer's centers over that of the pooled reference, and NMI; missing values have true means."""
    rows = complete(one)
    return judged(one, PEERS[name](rows, one.n_clusters, epsilon, len(rows) ** -1.1, seed))


def su_lloyd(rows: Floats, k: int, epsilon: float, delta: float, seed: int) -> Floats:  # noqa: ARG001
    """DP-Lloyd (Su et al. 2016): Lloyd's algorithm with Laplace noise, as many rounds as leave it small."""
    (n, d), rng = rows.shape, np.random.default_rng(seed)
    counting = np.cbrt(4 * d * RHO**2)
    rounds = _rounds(epsilon / np.sqrt(500 * k**3 / n**2 * (d + counting) ** 3))
    unit = rounds * (d + counting) / epsilon
    within, centers = 2 * rows - 1, _apart(k, d, rng)
    for _ in range(rounds):
        sums, counts = _sums(within, centers, np.inf)
        sums += rng.laplace(scale=unit, size=sums.shape) + centers * counts[:, None]
        counts += rng.laplace(scale=unit / counting, size=k)
        centers = np.clip(sums / np.maximum(counts, 1)[:, None], -1, 1)
    return (centers + 1) / 2


def fast_lloyd(rows: Floats, k: int, epsilon: float, delta: float, seed: int) -> Floats:
    """FastLloyd (Diaa et al. 2025): sums of how far rows are from their center, within a radius; centers move
    no farther than that, and are folded back into the box. Gaussian noise."""
    (n, d), rng = rows.shape, np.random.default_rng(seed)
    sigma, weight = 1 / mu_of(epsilon, delta), 1 + np.sqrt(4 * d)
    radius = ALPHA * np.sqrt(d) / k ** (1 / d)
    rounds = _rounds(0.016 * n**2 / (k**3 * (radius * weight * sigma) ** 2))
    noise = sigma * np.sqrt(rounds * weight)
    within, centers = 2 * rows - 1, _apart(k, d, rng)
    for i in range(rounds):
        reach = radius if i else np.sqrt(d)
        sums, counts = _sums(within, centers, reach)
        sums += rng.normal(scale=noise * reach / (4 * d) ** 0.25, size=sums.shape)
        counts += rng.normal(scale=noise, size=k)
        step = sums / np.maximum(counts, 1)[:, None]
        step *= np.minimum(1, reach / np.linalg.norm(step, axis=1))[:, None]
        centers = 1 - np.abs((centers + step + 1) % 4 - 2)
    return (centers + 1) / 2


def _diffprivlib(rows: Floats, k: int, epsilon: float, delta: float, seed: int) -> Floats:  # noqa: ARG001
    try:
        from diffprivlib.models import KMeans
    except ImportError as problem:
        raise DataMissing(f"diffprivlib cannot be imported ({problem}); install coterie-studies[peers].") from None
    ends = np.zeros(rows.shape[1]), np.ones(rows.shape[1])
    centers: Floats = KMeans(k, epsilon=epsilon, bounds=ends, random_state=seed).fit(rows).cluster_centers_
    return centers


PEERS: dict[str, Peer] = {"fast-lloyd": fast_lloyd, "su-lloyd": su_lloyd, "diffprivlib": _diffprivlib}


def _rounds(most: float) -> int:
    return int(np.clip(most, LEAST_ROUNDS, MOST_ROUNDS))


def _sums(rows: Floats, centers: Floats, reach: float) -> tuple[Floats, Floats]:
    """By nearest center the sum of rows less their center, and their number; rows beyond reach are left out."""
    labels, squared = nearest(rows, centers)
    counted = (squared <= reach**2).astype(np.float64)
    counts = counts_by_cell(labels, counted, len(centers))
    return sums_by_cell(rows, labels, counted, len(centers)) - centers * counts[:, None], counts


def _apart(k: int, d: int, rng: np.random.Generator) -> Floats:
    """Centers drawn in the box from -1 to 1, at least a distance from its sides and twice that from each other; it
    is halved whenever too many draws in a row fail."""
    distance, draw = 1.0, partial(rng.uniform, size=d)
    while True:
        centers = [draw(distance - 1, 1 - distance)]
        for _ in range(TRIES * k):
            other = draw(distance - 1, 1 - distance)
            if min(np.linalg.norm(other - center) for center in centers) >= 2 * distance:
                centers.append(other)
            if len(centers) == k:
                return np.array(centers)
        distance /= 2
