"""Rows at several sites whose number of clusters is known, drawn by rules that are stated here; and rows without any.

``mixture(i)`` is drawn from ``default_rng([64, i])``. Columns: 2, 3, 5, 8, 12, 20, 35 or 50; clusters: 2 to 12;
sites: 3 to 20. Centers are uniform in the smallest cube in which they fit at least ``apart`` from each other,
which is uniform between 4 and 8; clusters are Gaussian with deviations of .7 to 1.3 and sizes that differ up to
fourfold, 100 to 300 rows a cluster on average and at least 60 a site. Each site has 40 rows of all clusters; the
others are dealt so that each cluster has its own shares of the sites.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tests.federations import Rows

COLUMNS = (2, 3, 5, 8, 12, 20, 35, 50)
LEAST_ROWS, EVERYWHERE = 60, 40


class Dealt(NamedTuple):
    """Rows by site, and how many clusters they have; 1 for none."""

    tables: dict[str, Rows]
    n_clusters: int


def mixture(number: int) -> Dealt:
    """Gaussian clusters."""
    rng = np.random.default_rng([64, number])
    d, k, n_sites = int(rng.choice(COLUMNS)), int(rng.integers(2, 13)), int(rng.integers(3, 21))
    centers = _centers_apart(k, d, rng.uniform(4, 8), rng)
    sizes = rng.uniform(1, 4, k)
    n = max(int(rng.integers(100, 301)) * k, LEAST_ROWS * n_sites)
    labels = rng.permutation(np.repeat(np.arange(k), rng.multinomial(n, sizes / sizes.sum())))
    rows = centers[labels] + rng.normal(size=(n, d)) * rng.uniform(0.7, 1.3, k)[labels, None]
    shares = rng.dirichlet(np.ones(n_sites), k)
    owners = np.array([rng.choice(n_sites, p=shares[label]) for label in labels])
    owners[: EVERYWHERE * n_sites] = np.arange(EVERYWHERE * n_sites) % n_sites
    return Dealt(_by_site(rows, owners), k)


def without_clusters(number: int, *, kind: str) -> Dealt:
    """``uniform`` rows, or one ``gaussian``, at 3 to 20 sites of 60 to 200 rows."""
    rng = np.random.default_rng([20, number])
    d, n_sites = int(rng.choice(COLUMNS)), int(rng.integers(3, 21))
    n = int(rng.integers(60, 200)) * n_sites
    rows = rng.uniform(size=(n, d)) if kind == "uniform" else rng.normal(size=(n, d))
    return Dealt(_by_site(rows, np.arange(n) % n_sites), 1)


def _by_site(rows: Rows, owners: Rows) -> dict[str, Rows]:
    return {f"site-{m}": rows[owners == m] for m in range(int(owners.max()) + 1)}


def _centers_apart(k: int, d: int, apart: float, rng: np.random.Generator) -> Rows:
    """Centers drawn one after the other in a cube that grows until all of them fit."""
    side = apart
    while True:
        centers: list[Rows] = []
        for _ in range(200 * k):
            place = rng.uniform(0, side, d)
            if all(((place - other) ** 2).sum() >= apart**2 for other in centers):
                centers.append(place)
            if len(centers) == k:
                return np.array(centers)
        side *= 1.05
