"""Cases that are hard for landmark kernel k-means: what it loses there, and what another setting brings."""

from __future__ import annotations

from functools import partial

import numpy as np

from coterie.examples.datasets import SiteData, circles, digits
from coterie_studies.landmarks.sets import LandmarkSet, LandmarkSets, Way

__all__ = ["CASES", "SMALL_CASES", "clumps"]


def clumps(n_rows: int, n_columns: int, n_clusters: int, spread: float, n_sites: int = 5) -> SiteData:
    """Gaussian clumps that touch, drawn at random, always in the same way; sites hold from half to one and a half of
    the mean number of rows.

    Columns are a mix of at most ten hidden ones and a little noise, as columns of wide rows are.
    """
    rng = np.random.default_rng(0)
    hidden = min(10, n_columns)
    which = rng.integers(n_clusters, size=n_rows)
    inner = rng.normal(size=(n_clusters, hidden))[which] + spread * rng.normal(size=(n_rows, hidden))
    rows = inner @ (rng.normal(size=(hidden, n_columns)) / np.sqrt(hidden))
    rows += 0.1 * rng.normal(size=rows.shape)
    share = rng.uniform(0.5, 1.5, n_sites)
    cuts = np.cumsum(share / share.sum() * n_rows).astype(int)[:-1]
    site = np.array([f"site-{i:04d}" for i in range(n_sites)])[np.searchsorted(cuts, np.arange(n_rows), "right")]
    return SiteData(rows, tuple(f"column {i}" for i in range(n_columns)), site, which.astype(str))


def _local(setting: str, **options: int) -> Way:
    return Way("local", setting, {"landmarks": "local", **options})


SK = Way("sk", "c=1000")
CK = Way("ck", "exact", {"method": "ck"})
DEFAULT = _local("default")


def _dspgd(n_iter: int = 10) -> Way:
    return Way("dspgd-gram", f"T={n_iter}", {"method": "dspgd", "n_iter": n_iter, "solver": "gram"})


def _cases(wide: tuple[int, int], tiny: tuple[int, int], many: tuple[int, ...]) -> LandmarkSets:
    """Rows and columns of wide rows, rows and sites of tiny sites, numbers of clusters."""
    found = {
        "wide": LandmarkSet(
            f"{wide[1]:,} columns",
            partial(clumps, *wide, 5, 1.0),
            5,
            10,
            (CK, DEFAULT, _local("2 bit", landmark_bits=2), _local("1 bit", landmark_bits=1), _dspgd()),
            yardstick=("", "ck"),
            why="a landmark is as long as a row: bytes grow with the columns",
        ),
        "tiny": LandmarkSet(
            f"{tiny[1]:,} sites of {tiny[0] // tiny[1] // 2} to {tiny[0] // tiny[1] * 3 // 2} rows",
            partial(clumps, *tiny, 10, 0.5, tiny[1]),
            10,
            20,
            (SK, DEFAULT, _local("m=200", n_landmarks=200), _local("10 rounds", max_rounds=10), _dspgd()),
            why="a site's centers stand for a handful of rows, and at least four are asked of each",
        ),
    }
    for k in many:
        found[f"many-{k}"] = LandmarkSet(
            f"{k} clusters",
            partial(clumps, 100 * k, 8, k, 0.15),
            k,
            2 * k,
            (
                SK,
                DEFAULT,
                _local("10 rounds", max_rounds=10),
                _local(f"m={10 * k}, 10 rounds", n_landmarks=10 * k, max_rounds=10),
                _dspgd(),
            ),
            why="landmarks and sums of features both grow with the clusters",
        )
    found["slow"] = LandmarkSet(
        "Digits, gamma x 30",
        digits,
        10,
        20,
        (
            CK,
            DEFAULT,
            _local("10 rounds", max_rounds=10),
            _local("m=400", n_landmarks=400),
            _local("m=400, 10 rounds", n_landmarks=400, max_rounds=10),
            _dspgd(),
        ),
        gamma_times=30.0,
        yardstick=("", "ck"),
        why="eigenvalues fall slowly: no few landmarks span the kernel",
    )
    found["few-columns"] = LandmarkSet(
        "Circles, default policy",
        circles,
        2,
        6,
        (
            CK,
            Way("auto", "default", is_masked=True),
            Way("auto", "10 rounds", {"max_rounds": 10}, is_masked=True),
            Way("auto", "m=100, 10 rounds", {"n_landmarks": 100, "max_rounds": 10}, is_masked=True),
            _local("rows as they are"),
        ),
        gamma=4.0,
        yardstick=("", "ck"),
        why="of rows of two columns sites tell through 16 features at most, and of no cell with few rows",
    )
    return found


CASES = _cases((2000, 5000), (40_000, 1000), (60, 100))
SMALL_CASES = _cases((500, 2000), (4000, 100), (60,))
