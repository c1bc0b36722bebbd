"""Sets on which private runs are compared with pooled ones: rows, the ranges stated of their columns, clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans

from coterie.examples.datasets import digits as load_digits
from coterie_studies import datasets
from coterie_studies.datasets import stored

__all__ = ["FULL", "QUICK", "Loaded", "PrivateSet", "cost_ratio", "dealt", "loaded"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Loaded:
    """Rows within stated ranges, scaled to them, and their classes, if known."""

    rows: Floats
    low: Floats
    high: Floats
    truth: npt.NDArray[np.str_]


@dataclass(frozen=True)
class PrivateSet:
    """A set: ``load`` gives rows in their own units, the lows and highs stated of their columns, and classes."""

    title: str
    load: Callable[[], tuple[npt.NDArray[np.floating], Floats, Floats, npt.NDArray[np.str_]]]
    n_clusters: int
    epsilons: tuple[float, ...] = (0.1, 0.5, 1.0, 2.0, 4.0)
    gamma: float | None = None
    """Of the kernel, where the set is one for kernel methods alone."""


def _no_classes() -> npt.NDArray[np.str_]:
    return np.array([], np.str_)


def _unit(n_columns: int) -> tuple[Floats, Floats]:
    return np.zeros(n_columns), np.ones(n_columns)


def _digits() -> tuple[Floats, Floats, Floats, npt.NDArray[np.str_]]:
    data = load_digits()
    return data.rows, *_unit(64), data.truth


def _mushrooms() -> tuple[Floats, Floats, Floats, npt.NDArray[np.str_]]:
    data = datasets.mushrooms()
    return data.rows, *_unit(112), data.truth


def _mnist() -> tuple[Floats, Floats, Floats, npt.NDArray[np.str_]]:
    data = datasets.mnist()
    return data.rows, *_unit(784), data.truth


def _covtype() -> tuple[Floats, Floats, Floats, npt.NDArray[np.str_]]:
    """The ten columns of numbers, and the ranges they are documented with, rounded outwards."""
    archive = stored("covtype")
    return _outwards(archive["X"][:, :10].astype(float), archive["y"].astype(str))


def _heart() -> tuple[Floats, Floats, Floats, npt.NDArray[np.str_]]:
    """All 13 columns of the four hospitals; many values are missing."""
    archive = stored("heart_disease")
    return _outwards(archive["X"].astype(float), np.where(archive["y"] > 0, "disease", "none"))


def _pjm() -> tuple[Floats, Floats, Floats, npt.NDArray[np.str_]]:
    """Daily load shapes; one range for all hours, so that hours weigh alike."""
    rows = datasets.pjm_load_shapes().rows
    low, high = np.floor(rows.min() * 10) / 10, np.ceil(rows.max() * 10) / 10
    return rows, np.full(24, low), np.full(24, high), _no_classes()


def _gaussians() -> tuple[Floats, Floats, Floats, npt.NDArray[np.str_]]:
    """20,000 rows of ten Gaussians in the plane."""
    rng = np.random.default_rng(0)
    centers, which = rng.uniform(-1, 1, (10, 2)), rng.integers(0, 10, 20_000)
    rows = centers[which] + 0.05 * rng.normal(size=(20_000, 2))
    return rows, np.full(2, -1.5), np.full(2, 1.5), which.astype(str)


def _rings() -> tuple[Floats, Floats, Floats, npt.NDArray[np.str_]]:
    """10,000 rows on two rings around the same place."""
    from sklearn.datasets import make_circles

    rows, truth = make_circles(10_000, factor=0.4, noise=0.05, random_state=0)
    return rows, np.full(2, -1.5), np.full(2, 1.5), truth.astype(str)


def _outwards(rows: Floats, truth: npt.NDArray[np.str_]) -> tuple[Floats, Floats, Floats, npt.NDArray[np.str_]]:
    """Ranges of the columns, rounded outwards to two figures."""
    low, high = np.nanmin(rows, axis=0), np.nanmax(rows, axis=0)
    step = 10.0 ** np.floor(np.log10(np.maximum(high - low, 1e-12)) - 1)
    return rows, np.floor(low / step) * step, np.ceil(high / step) * step, truth


QUICK = {
    "digits": PrivateSet("Digits", _digits, 10),
    "gaussians": PrivateSet("Ten Gaussians in the plane", _gaussians, 10),
}
FULL = {
    "digits": PrivateSet("Digits", _digits, 10),
    "mnist": PrivateSet("MNIST", _mnist, 10),
    "mushrooms": PrivateSet("Mushrooms", _mushrooms, 2),
    "covtype": PrivateSet("Covtype", _covtype, 7),
    "gaussians": PrivateSet("Ten Gaussians in the plane", _gaussians, 10),
    "heart": PrivateSet("Heart disease", _heart, 2),
    "pjm": PrivateSet("Load shapes (PJM)", _pjm, 8),
}


@lru_cache(maxsize=1)
def loaded(one: PrivateSet) -> Loaded:
    """A set's rows, scaled so that every stated range is 0 to 1; missing values stay missing."""
    rows, low, high, truth = one.load()
    width = np.where(high > low, high - low, 1.0)
    return Loaded((rows - low) / width, *_unit(rows.shape[1]), truth)


@lru_cache(maxsize=1)
def _reference(one: PrivateSet) -> tuple[Floats, float]:
    """Complete rows, and the cost of scikit-learn's clusters of all of them: the best of ten starts."""
    rows = loaded(one).rows
    whole = np.where(np.isnan(rows), np.nanmean(rows, axis=0), rows)
    return whole, float(KMeans(one.n_clusters, n_init=10, random_state=0).fit(whole).inertia_)


def cost_ratio(one: PrivateSet, centers: Floats) -> float:
    """The cost of centers on all rows, over that of the pooled reference."""
    whole, cost = _reference(one)
    squares = (whole * whole).sum(axis=1)
    nearest = ((centers * centers).sum(axis=1) - 2 * whole @ centers.T).min(axis=1)
    return float((squares + nearest).sum() / cost)


def dealt(n_rows: int, n_sites: int) -> npt.NDArray[np.int64]:
    """The site of each row, drawn at random."""
    return np.random.default_rng(0).integers(0, n_sites, n_rows)
