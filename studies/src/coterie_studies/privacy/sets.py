"""Sets on which private runs are compared with pooled ones: rows, the ranges stated of their columns, clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.datasets import make_circles
from sklearn.metrics import normalized_mutual_info_score

from coterie.examples.datasets import digits as load_digits
from coterie.maths.clustering import nearest
from coterie.maths.kernels import Kernel, average_distance_gamma
from coterie_studies import datasets
from coterie_studies.datasets import stored
from coterie_studies.kernel_quality import Reference

__all__ = [
    "FULL",
    "KERNEL",
    "QUICK",
    "QUICK_KERNEL",
    "Loaded",
    "PrivateSet",
    "by_site",
    "captured",
    "complete",
    "judged",
    "judged_in_kernel",
    "loaded",
]

Floats = npt.NDArray[np.float64]
Values = dict[str, float]


@dataclass(frozen=True)
class Loaded:
    """Rows within stated ranges, scaled to them, and their classes, if known."""

    rows: Floats
    low: Floats
    high: Floats
    truth: npt.NDArray[np.str_]

    @property
    def is_whole(self) -> bool:
        """Whether no value is missing."""
        return not np.isnan(self.rows.sum())


@dataclass(frozen=True)
class PrivateSet:
    """A set: ``load`` gives rows in their own units, the lows and highs stated of their columns, and classes."""

    title: str
    load: Callable[[], tuple[npt.NDArray[np.floating], Floats, Floats, npt.NDArray[np.str_]]]
    n_clusters: int
    most_seeds: int = 10
    gamma: float | None = None
    """Of the kernel, where the set is one for kernel methods alone; None: the average distance's."""
    n_components: int = 20
    """Eigenpairs of the kernel in which the pooled reference is looked for."""


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
    return _circles(10_000)


def _few_rings() -> tuple[Floats, Floats, Floats, npt.NDArray[np.str_]]:
    """3,000 of such rows."""
    return _circles(3_000)


def _circles(n_rows: int) -> tuple[Floats, Floats, Floats, npt.NDArray[np.str_]]:
    rows, truth = make_circles(n_rows, factor=0.3, noise=0.05, random_state=0)
    return rows, np.full(2, -1.2), np.full(2, 1.2), truth.astype(str)


def _outwards(rows: Floats, truth: npt.NDArray[np.str_]) -> tuple[Floats, Floats, Floats, npt.NDArray[np.str_]]:
    """Ranges of the columns, rounded outwards to two figures."""
    low, high = np.nanmin(rows, axis=0), np.nanmax(rows, axis=0)
    step = 10.0 ** np.floor(np.log10(np.maximum(high - low, 1e-12)) - 1)
    return rows, np.floor(low / step) * step, np.ceil(high / step) * step, truth


FULL = {
    "digits": PrivateSet("Digits", _digits, 10),
    "gaussians": PrivateSet("Ten Gaussians in the plane", _gaussians, 10),
    "heart": PrivateSet("Heart disease", _heart, 2),
    "pjm": PrivateSet("Load shapes (PJM)", _pjm, 8),
    "mushrooms": PrivateSet("Mushrooms", _mushrooms, 2, n_components=6),
    "covtype": PrivateSet("Covtype", _covtype, 7, most_seeds=5),
    "mnist": PrivateSet("MNIST", _mnist, 10, most_seeds=5),
}
QUICK = {name: FULL[name] for name in ("digits", "gaussians")}
RINGS = PrivateSet("Rings", _rings, 2, gamma=20.0, n_components=10)
KERNEL = {**{name: FULL[name] for name in ("mnist", "digits", "mushrooms")}, "rings": RINGS}
QUICK_KERNEL = {"rings": replace(RINGS, load=_few_rings)}


@lru_cache(maxsize=1)
def loaded(one: PrivateSet) -> Loaded:
    """A set's rows, scaled so that every stated range is 0 to 1; missing values stay missing."""
    rows, low, high, truth = one.load()
    width = np.where(high > low, high - low, 1.0)
    return Loaded((rows - low) / width, *_unit(rows.shape[1]), truth)


@lru_cache(maxsize=1)
def complete(one: PrivateSet) -> Floats:
    """A set's rows, missing values filled with the true means of their columns."""
    data = loaded(one)
    return data.rows if data.is_whole else np.where(np.isnan(data.rows), np.nanmean(data.rows, axis=0), data.rows)


def by_site(one: PrivateSet, n_sites: int) -> dict[str, Floats]:
    """A set's rows, shared out at random among sites."""
    rows = loaded(one).rows
    site = np.random.default_rng(0).integers(0, n_sites, len(rows))
    return {f"site-{i:02d}": rows[site == i] for i in range(n_sites)}


def judged(one: PrivateSet, centers: Floats) -> Values:
    """The cost of centers on all rows over that of the pooled reference, and the NMI where classes are known."""
    labels, squared = nearest(complete(one), centers)
    return {"ratio": float(squared.sum()) / _pooled_cost(one), **_agreement(one, labels)}


def judged_in_kernel(one: PrivateSet, labels: npt.NDArray[np.int32]) -> Values:
    """The same of the kernel k-means cost, f_K, with one gamma for all runs."""
    reference, best = _kernel_reference(one)
    return {"ratio": reference.cost(labels) / best, **_agreement(one, labels)}


def captured(one: PrivateSet, components: Floats) -> float:
    """The variance of all rows along some axes, over that along the best axes of the same number."""
    centered = complete(one) - complete(one).mean(axis=0)
    gram = centered.T @ centered
    axes = np.linalg.qr(components.T)[0]
    return float(np.trace(axes.T @ gram @ axes) / np.linalg.eigvalsh(gram)[-len(components) :].sum())


def _agreement(one: PrivateSet, labels: npt.NDArray[np.integer]) -> Values:
    truth = loaded(one).truth
    return {"nmi": float(normalized_mutual_info_score(truth, labels))} if len(truth) else {}


@lru_cache(maxsize=1)
def _pooled_cost(one: PrivateSet) -> float:
    """Of scikit-learn's clusters of all rows: the best of ten starts."""
    return float(KMeans(one.n_clusters, n_init=10, random_state=0).fit(complete(one)).inertia_)


@lru_cache(maxsize=1)
def _kernel_reference(one: PrivateSet) -> tuple[Reference, float]:
    """What kernel clusters are judged by, and the best cost of ten starts among its leading eigenpairs."""
    rows = complete(one).astype(np.float32)
    squares = float(np.vdot(rows, rows))
    gamma = one.gamma or average_distance_gamma(float(len(rows)), rows.sum(axis=0, dtype=np.float64), squares)
    reference = Reference(Kernel("rbf", gamma), rows)
    pairs = reference.pairs(one.n_components)
    labels = KMeans(one.n_clusters, n_init=10, random_state=0).fit_predict(pairs.vectors * np.sqrt(pairs.values))
    return reference, reference.cost(labels)
