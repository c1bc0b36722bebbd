"""Landmark kernel k-means and kernel PCA: Nystroem's method without any row leaving a site.

Any point may serve as a landmark, so landmarks can be coarse averages of rows. Once the server knows L, it embeds the
landmarks themselves, phi(x) = k(x, L) K(L, L)^(-1/2), and clusters them by the rows each stands for, without asking
again; sites label their rows by the nearest center among their features. Rounds of Lloyd's algorithm there, by sums
or by averages, improve on it. Only an embedding (kernel PCA) needs the Gram of all rows' features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coterie.errors import InputError
from coterie.maths import clustering
from coterie.maths.landmarks import LandmarkMap, Landmarks, decoded, feature_root, merged, missed_share
from coterie.maths.spectra import eigenpairs_above, full_matrix
from coterie.messages.schema import Floats
from coterie.messages.verbs import Protocol, each, present, total
from coterie.methods.kernel.clusters import KernelProblem, LandmarkFit
from coterie.methods.kernel.gamma import find_gamma
from coterie.methods.kernel.landmarks.search import Searched, nearest_counts, summed_landmarks
from coterie.methods.kernel.landmarks.sites import (
    MeanByCell,
    SendFeatureGram,
    SendLandmarks,
    TryLandmarks,
    UseLandmarks,
)
from coterie.methods.shared.costs import Cost, to_all
from coterie.methods.shared.lloyd import Close, KMeansFit, closed, lloyd
from coterie.parameters import Allowed, check_parameters, checked

FEW_COLUMNS = 64
"""Up to so many columns each has a range of its own: 8 bytes a column are little then."""
FEWEST_EACH = 4
"""Centers a site is asked for at least."""
WORTHWHILE = {"local": 0.25, "summed": 0.75}
"""More landmarks are asked for where half of them miss so much of what the others are apart. Of local ones many are
nearly there twice, since sites have similar rows; summed ones are means of different cells."""
MOST_STARTS = 8
"""Solutions for the landmarks that sites judge by their rows: a number each, where a round of Lloyd is hundreds."""
SUM_BITS = 32
"""Enough for sums of features in a masked round."""
NONE = 1e-9
"""Eigenvalues below this share of the largest count as none."""


@dataclass(frozen=True)
class LandmarkSettings:
    """The knobs of landmark kernel k-means."""

    way: str = "auto"
    """``local``: each site's own centers; ``summed``: no per-site result is seen; ``auto``: local if allowed."""
    points: Floats | None = None
    """Landmarks that are known beforehand."""
    n_landmarks: int | None = checked(Allowed(whole=True, low=1, none=True), None)
    """About how many over all sites; None begins with 5 a cluster, at least 30, and asks for more where it pays."""
    bits: int = 4
    """Of each coordinate of a landmark."""
    sample: int = 2000
    """Rows a site finds its centers with."""
    value_range: tuple[float, float] | None = None
    """The smallest and the largest value of any row, where they are public: saves a sum in the summed way."""

    def __post_init__(self) -> None:
        if self.way not in ("auto", "local", "summed"):
            raise InputError(f"landmarks={self.way!r}; they are 'auto', 'local', 'summed' or an array of points.")
        check_parameters(self)
        if not 1 <= self.bits <= 8:
            raise InputError(f"landmark_bits={self.bits}; they are 1 to 8.")
        if self.points is not None and (self.points.ndim != 2 or not np.isfinite(self.points).all()):
            raise InputError("landmarks is an array of points, a row each, every value finite.")
        if self.value_range is not None and not self.value_range[0] < self.value_range[1]:
            raise InputError(f"value_range={self.value_range}; it is (smallest, largest), the smallest first.")

    def decided(self, averages: bool) -> LandmarkSettings:
        """The same with ``auto`` decided: whether every site lets its averages be seen."""
        return replace(self, way="local" if averages else "summed") if self.way == "auto" else self

    def number(self, n_clusters: int) -> int:
        """How many landmarks to begin with."""
        return max(30, 5 * n_clusters) if self.n_landmarks is None else self.n_landmarks


@dataclass(frozen=True)
class _Found:
    """Landmarks, the map they give, and the precision in which sites are told of them."""

    landmarks: Landmarks
    map: LandmarkMap
    precision: str


# ---------------------------------------------------------------- landmarks


def _find(
    problem: KernelProblem,
    settings: LandmarkSettings,
    n_clusters: int,
    n_columns: int,
    *,
    seed: int,
) -> Protocol[_Found]:
    """Landmarks, and more of them where that pays."""
    if problem.gamma is not None:
        problem.kernel(1.0)  # what cannot be is said before anyone is asked
    if settings.points is not None:
        landmarks, precision = (yield from _given(settings.points, n_columns)), "float64"
        kernel = problem.kernel(_gamma(problem, landmarks))
    else:
        asked = yield from _asked(settings, settings.number(n_clusters), n_columns, seed=seed)
        landmarks, precision = asked.landmarks, "float32"
        kernel = problem.kernel(_gamma(problem, landmarks))
        if settings.n_landmarks is None and missed_share(kernel, landmarks, seed=seed) > WORTHWHILE[settings.way]:
            number = 2 * len(landmarks.points)
            more = yield from _asked(settings, number, n_columns, seed=seed, before=asked)
            landmarks = _joined(landmarks, more.landmarks)
            kernel = problem.kernel(_gamma(problem, landmarks))
    points = landmarks.points.astype(precision).astype(np.float64)  # as sites will know them
    root = feature_root(kernel, points, row_bytes=int(precision[-2:]) // 8)
    return _Found(landmarks, LandmarkMap.of(kernel, points, root), precision)


def _gamma(problem: KernelProblem, landmarks: Landmarks) -> float:
    """The paper's gamma, N^2 / (2 sum of squared distances), from the rows' squared distances from their mean."""
    if problem.gamma is not None:
        return float(problem.gamma)
    if not landmarks.scatter > 0:
        raise InputError("all rows are equal, so no gamma can be found from their distances; give one.")
    return landmarks.n_rows / (4 * landmarks.scatter)


def _joined(first: Landmarks, second: Landmarks) -> Landmarks:
    """Both sets, each for half of the rows."""
    points = np.concatenate([first.points, second.points])
    return Landmarks(
        points, np.concatenate([first.weights, second.weights]) / 2, (first.scatter + second.scatter) / 2
    )


def _given(points: Floats, n_columns: int) -> Protocol[Landmarks]:
    """Points known beforehand; sites count the rows nearest to each."""
    if points.shape[1] != n_columns:
        raise InputError(f"landmarks have {points.shape[1]} columns, the sites' rows {n_columns}.")
    distinct = np.unique(points, axis=0)
    gamma, n_rows = yield from find_gamma(n_columns)
    counts = yield from nearest_counts(distinct)
    if not counts.any():
        raise InputError("the sites left hold 0 rows in all.")
    return Landmarks(distinct, counts * (n_rows / counts.sum()), n_rows / (4 * gamma))


def _asked(
    settings: LandmarkSettings, number: int, n_columns: int, *, seed: int, before: Searched | None = None
) -> Protocol[Searched]:
    """About so many landmarks from the sites."""
    if settings.way == "local":
        return Searched((yield from _local(settings, number, n_columns, seed=seed if before is None else seed + 1)))
    limits = settings.value_range
    return (
        yield from summed_landmarks(number, n_columns, bits=settings.bits, seed=seed, limits=limits, before=before)
    )


def _local(settings: LandmarkSettings, number: int, n_columns: int, *, seed: int) -> Protocol[Landmarks]:
    """Every site's own centers; merged where there are many more than asked for. Per-site results are seen."""
    names = yield from present()
    ask = _local_request(settings, number, n_columns, len(names), seed)
    replies = (yield from each(ask)).values()
    parts = [decoded(reply.codes, reply.low, reply.span, settings.bits) for reply in replies]
    points = np.concatenate(parts)
    weights = np.concatenate([r.counts for r in replies]).astype(np.float64)
    if not weights.any():
        raise InputError("the sites hold 0 rows in all.")
    middle = weights @ points / weights.sum()
    scatter = sum(_scatter(part, reply, middle) for part, reply in zip(parts, replies, strict=True))
    return Landmarks(*merged(points, weights, number, seed=seed), scatter)


def _local_request(settings: LandmarkSettings, number: int, n_columns: int, n_sites: int, seed: int) -> SendLandmarks:
    q = max(FEWEST_EACH, -(-number // max(n_sites, 1)))
    ranges = n_columns if n_columns <= FEW_COLUMNS else 1
    return SendLandmarks(q, n_columns, ranges, settings.bits, settings.sample, seed)


def _scatter(points: Floats, reply: Any, middle: Floats) -> float:
    """A site's squared distances from the mean of all rows: those from its own mean, and what that is away."""
    counts = reply.counts.astype(np.float64)
    own = counts @ points / max(float(counts.sum()), 1e-300)
    return float(reply.scatter) + float(counts.sum() * ((own - middle) ** 2).sum())


# ---------------------------------------------------------------- clustering


def cluster_by_landmarks(
    problem: KernelProblem,
    settings: LandmarkSettings,
    n_clusters: int,
    n_columns: int,
    *,
    max_rounds: int,
    tol: float,
    seed: int,
    averages: bool = True,
) -> Protocol[LandmarkFit]:
    """Kernel k-means without an embedding: the landmarks are clustered, then rounds of Lloyd among the features.

    ``averages`` says whether every site lets its averages be seen.
    """
    settings = settings.decided(averages)
    mapped = yield from _find(problem, settings, n_clusters, n_columns, seed=seed)
    rows = mapped.landmarks.n_rows
    if rows < n_clusters:
        raise InputError(f"the sites hold {rows:g} rows in all; n_clusters={n_clusters} needs at least as many.")
    features: Floats = mapped.map.embed(mapped.map.landmarks).astype(np.float64, copy=False)
    weights, is_local = mapped.landmarks.weights, settings.way == "local" and settings.points is None
    starts = clustering.several_starts(features, weights, n_clusters, MOST_STARTS if is_local else 1, seed=seed)
    if is_local:  # sites judge the starts by their rows in the round that tells them of the landmarks
        ask = TryLandmarks(*TryLandmarks.stated(mapped.map, mapped.precision), np.array(starts))
        replies = (yield from each(ask)).values()
        centers = starts[int(np.argmin(sum(reply.rows * reply.costs.astype(np.float64) for reply in replies)))]
    else:
        yield from total(UseLandmarks(*UseLandmarks.stated(mapped.map, mapped.precision)))
        centers = starts[0]  # the best as the landmarks see it
    spread = np.average((features - np.average(features, 0, weights)) ** 2, 0, weights)
    shift = tol * float(np.mean(spread))
    if is_local:
        clusters = yield from _lloyd_by_averages(centers, max_rounds=max_rounds, tol=shift)
    else:
        clusters = yield from lloyd(centers, max_rounds=max_rounds, tol=shift, bits=SUM_BITS)
    return LandmarkFit(mapped.map.kernel, mapped.map, rows, clusters, _values(features, weights), len(starts))


def _lloyd_by_averages(centers: Floats, *, max_rounds: int, tol: float) -> Protocol[KMeansFit]:
    """Lloyd's algorithm from every site's own means, in float16: k (r + 2) half numbers a round and site."""
    rounds = 0
    while rounds < max_rounds:
        rounds += 1
        replies = yield from each(MeanByCell("float16", centers))
        counts = sum(reply.counts.astype(np.float64) for reply in replies.values())
        sums = sum(reply.counts[:, None] * reply.means.astype(np.float64) for reply in replies.values())
        before, centers = centers, clustering.means(np.asarray(sums), np.asarray(counts), fallback=centers)
        if clustering.squared_shift(before, centers) <= tol:
            break
    return (yield from closed(centers, rounds))


def _values(features: Floats, weights: Floats) -> Floats:
    """Eigenvalues of the kernel matrix as the landmarks see them."""
    eigenvalues = np.linalg.eigvalsh((features * weights[:, None]).T @ features)[::-1]
    values: Floats = eigenvalues[eigenvalues > NONE * max(float(eigenvalues[0]), 1e-300)].astype(np.float64)
    return values


# ---------------------------------------------------------------- an embedding


def embed_by_landmarks(
    problem: KernelProblem,
    settings: LandmarkSettings,
    n_components: int,
    n_columns: int,
    *,
    center: bool,
    seed: int,
    averages: bool = True,
    announce: bool = False,
) -> Protocol[LandmarkFit]:
    """The top components of all rows' features: the triangle of their Gram once, (r+1)(r+2)/2 numbers a site.

    ``averages`` says whether every site lets its averages be seen; ``announce`` lets sites know,
    so that later questions see the components in the rows' place.
    """
    if n_components < 1:
        raise InputError(f"n_components={n_components} must be at least 1.")
    mapped = yield from _find(problem, settings.decided(averages), max(1, n_components // 2), n_columns, seed=seed)
    yield from total(UseLandmarks(*UseLandmarks.stated(mapped.map, mapped.precision)))
    n = mapped.map.projection.shape[1] + 1
    ask = SendFeatureGram(n * (n + 1) // 2, n, "float32")
    packed = (yield from total(ask, bits=SUM_BITS)).packed
    gram = full_matrix(np.asarray(packed, np.float64), n)
    rows, mean = gram[0, 0], gram[0, 1:] / max(float(gram[0, 0]), 1e-300)
    shift = mean if center else np.zeros(n - 1)
    pairs = eigenpairs_above(gram[1:, 1:] - rows * np.outer(shift, shift))
    kept = pairs.above(NONE * max(float(pairs.values[0]), 1e-300)).top(n_components).signed()
    map_ = replace(mapped.map, projection=mapped.map.projection @ kept.vectors, shift=shift @ kept.vectors)
    if announce:
        yield from total(UseLandmarks(*UseLandmarks.stated(map_, mapped.precision)))
    return LandmarkFit(map_.kernel, map_, float(rows), values=kept.values)


# ---------------------------------------------------------------- what it costs


def local_landmarks_cost(
    n_sites: int, fit: LandmarkFit, settings: LandmarkSettings, *, seed: int, method: str = "landmarks"
) -> Cost:
    """q d codes, 2 numbers a column (or in all), q counts and 1 more; 1 a start; k (r + 1) a round; k + 1 last."""
    assert fit.clusters is not None
    centers, d = fit.clusters.centers, fit.embedding.landmarks.shape[1]
    first = _local_request(settings, settings.number(len(centers)), d, n_sites, seed)
    starts = np.zeros((fit.n_starts, *centers.shape))
    second = TryLandmarks(*TryLandmarks.stated(fit.embedding, "float32"), starts)
    steps = [MeanByCell("float16", centers)] * fit.clusters.n_rounds
    return to_all(n_sites, first, second, *steps, Close(centers), method=method)
