"""An ordinary analyst with hundreds of jobs: chosen points, declared ranges, missing values treated so and so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.spatial import cKDTree
from sklearn.datasets import load_digits

import coterie
from coterie import FederatedKernelPCA, FederatedKMeans
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from coterie.sites.views import grouped_view

Rows = npt.NDArray[np.float64]
NEAR = 1e-4
"""Of the largest value: a masked sum keeps some digits only."""
OPEN = Policy(protection="none")


def digits(_: Path) -> Rows:
    return np.asarray(load_digits().data, np.float64)


def heart(folder: Path) -> Rows:
    """With its missing values."""
    z = np.load(folder / "heart_disease.npz")
    return np.asarray(z["X"], np.float64)


def mushrooms(folder: Path) -> Rows:
    return np.asarray(np.load(folder / "mushrooms.npz")["X"][:900], np.float64)


DATA: dict[str, Callable[[Path], Rows]] = {"digits": digits, "heart": heart, "mushrooms": mushrooms}


def dealt(rows: Rows, n_sites: int = 3) -> dict[str, ArrayTable]:
    return {f"site-{i}": ArrayTable(rows[i::n_sites]) for i in range(n_sites)}


class Analyst:
    """Orders jobs for what it wants to know: how many rows are in two cells, and what they add up to (two jobs), or
    how far away the rows next to a point are (one)."""

    def __init__(self, rows: Rows, policy: Policy) -> None:
        self.rows, self.tables, self.policy = rows, dealt(rows), policy
        self.n_jobs = 0

    def asked(self, start: Rows, **options: Any) -> tuple[Rows, Rows]:
        """Counts and sums of the cells of two chosen points."""
        found = {}
        for rounds in (0, 1):
            estimator = FederatedKMeans(2, init=start, max_rounds=rounds, tol=0.0)
            found[rounds] = coterie.fit(estimator, self.tables, policy=self.policy, **options)
            self.n_jobs += 1
        counts = np.asarray(found[0].counts_, np.float64)
        return counts, counts[:, None] * found[1].cluster_centers_

    def cuts(self, n_cuts: int, seed: int, *, is_spread: bool = False, **options: Any) -> Iterator[tuple[Rows, Rows]]:
        """Points on both sides of hyperplanes that move by about a row, or over all of them."""
        rng, filled = np.random.default_rng(seed), np.nan_to_num(self.rows)
        direction = rng.normal(size=filled.shape[1])
        along = np.unique(filled @ direction)
        first = int(rng.integers(0, max(1, len(along) - n_cuts - 1)))
        places = range(first, min(first + n_cuts, len(along) - 1))
        step = direction / (direction @ direction)
        for place in np.linspace(0, len(along) - 2, n_cuts).astype(int) if is_spread else places:
            cut = (along[place] + along[place + 1]) / 2
            yield self.asked(np.array([(cut - 1) * step, (cut + 1) * step]), **options)

    def ranges(self, n_ranges: int, seed: int) -> Iterator[tuple[Rows, Rows]]:
        """The same points in units of declared ranges: one of them moves."""
        rng, d = np.random.default_rng(seed), self.rows.shape[1]
        low, high = np.nanmin(self.rows, axis=0) - 1.0, np.nanmax(self.rows, axis=0) + 1.0
        start = rng.uniform(0.2, 0.8, (2, d))
        widest = int(np.argmax(np.nanstd(self.rows, axis=0)))
        for more in np.linspace(0.0, 0.5, n_ranges):
            moved = high.copy()
            moved[widest] += more * (high - low)[widest]
            yield self.asked(start, scale="minmax", ranges=(low, moved), **self.options())

    def holes(self, n_cuts: int, seed: int) -> Iterator[tuple[Rows, Rows]]:
        """Each cut twice: with incomplete rows filled, and without them."""
        ways = [self.cuts(n_cuts, seed, is_spread=True, missing=how) for how in ("mean", "drop")]
        for filled, complete in zip(*ways, strict=True):
            yield filled[0] - complete[0], filled[1] - complete[1]

    def gammas(self, n_rows: int, seed: int) -> Rows:
        """Kernels so narrow that one row alone is near a landmark: its distances from d + 1 landmarks around it."""
        rng, filled, found = np.random.default_rng(seed), self.filled(), []
        for target in filled[rng.choice(len(filled), n_rows, replace=False)]:
            away = ((filled - target) ** 2).sum(axis=1)
            away = float(away[away > 0].min())
            first = target + 0.1 * np.sqrt(away / len(target)) * rng.normal(size=len(target))
            step, gamma = 0.2 * np.sqrt(away), 12 / away
            near, *others = (self.distance(point, gamma) for point in (first, *(first + step * np.eye(len(first)))))
            if np.isfinite([near, *others]).all():
                found.append(first + (near - np.array(others) + step**2) / (2 * step))
        return np.reshape(found, (-1, self.rows.shape[1]))

    def distance(self, point: Rows, gamma: float) -> float:
        """The square of a row's distance from a point, from the sum of all rows' squared kernel values there."""
        estimator = FederatedKernelPCA(1, landmarks=point[None], gamma=gamma, center=False)
        fitted = coterie.fit(estimator, self.tables, policy=self.policy, **self.options())
        self.n_jobs += 1
        total = float(fitted.eigenvalues_.sum())
        return -np.log(total) / (2 * gamma) if total > 0 else np.inf  # nothing is near

    def options(self) -> dict[str, Any]:
        return {"missing": "mean"} if np.isnan(self.rows).any() else {}

    def filled(self) -> Rows:
        return np.where(np.isnan(self.rows), np.nanmean(self.rows, axis=0), self.rows)


def guesses(found: Iterator[tuple[Rows, Rows]]) -> Rows:
    """Sums of cells, their means, and both of the differences of neighbours."""
    counts, sums = map(np.array, zip(*found, strict=True))
    made = [np.zeros((0, sums.shape[2]))]
    for gap in (0, 1, 2, 3):
        for cell in (0, 1):
            more, fewer = counts[gap:, cell], sums[gap:, cell]
            if gap:
                more, fewer = more - counts[:-gap, cell], fewer - sums[:-gap, cell]
            some = np.abs(more) > 0.5
            made += [fewer, -fewer, fewer[some] / more[some][:, None]]
    return np.concatenate(made)


def recovered(rows: Rows, found: Rows) -> int:
    """How many rows a guess is next to, besides those that all of a group are equal to."""
    kept = rows[~np.isnan(rows).any(axis=1)]
    if np.isnan(rows).any():  # what is missing is known to be
        kept = np.unique(np.where(np.isnan(rows), np.nanmean(rows, axis=0), rows), axis=0)
    near = NEAR * np.abs(kept).max()
    away, _ = cKDTree(found).query(np.unique(kept, axis=0), p=np.inf, distance_upper_bound=near)
    hit = np.unique(kept, axis=0)[np.isfinite(away)]
    pure = [np.zeros((0, rows.shape[1]))]
    for table in dealt(rows).values():
        (block,) = grouped_view(table, 5, SiteLedger()).raw_blocks()
        pure.append(block.rows[block.within < 1e-12 * max(float(block.within.max()), 1e-300)])
    alike = np.concatenate(pure)
    return sum(not len(alike) or np.nanmax(np.abs(alike - row), axis=1).min() > near for row in hit)


def told(rows: Rows, policy: Policy, n: Mapping[str, int]) -> tuple[int, int]:
    """How many rows an analyst recovers by so many questions of each choice, and of how many jobs."""
    analyst, found = Analyst(rows, policy), [np.zeros((0, rows.shape[1]))]
    options = analyst.options()
    if n.get("cuts"):
        found.append(guesses(analyst.cuts(n["cuts"], 1, **options)))
    if n.get("ranges"):
        found.append(guesses(analyst.ranges(n["ranges"], 2)))
    if n.get("holes") and options:
        found.append(guesses(analyst.holes(n["holes"], 3)))
    if n.get("gammas"):
        found.append(analyst.gammas(n["gammas"], 4))
    return recovered(rows, np.concatenate(found)), analyst.n_jobs


def small() -> Rows:
    rows = np.random.default_rng(5).normal(size=(90, 4))
    rows[::18, 1] = np.nan
    return rows


@pytest.mark.parametrize(("choice", "n"), [("cuts", 5), ("ranges", 12), ("holes", 6), ("gammas", 2)])
def test_each_choice_gives_rows_over_rows_and_none_over_groups(choice, n):
    assert told(small(), OPEN, {choice: n})[0] >= 1
    assert told(small(), Policy(), {choice: n})[0] == 0


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", DATA)
def test_three_hundred_jobs_of_every_choice_get_no_row(name, data_folder):
    """With ``max_runs`` lifted, as the default of this process is; the 101st job of ``standard`` is refused."""
    rows = DATA[name](data_folder)
    n_rows, n_jobs = told(rows, Policy(), {"cuts": 80, "ranges": 40, "holes": 10, "gammas": 2})
    assert n_jobs >= 300
    assert n_rows == 0
