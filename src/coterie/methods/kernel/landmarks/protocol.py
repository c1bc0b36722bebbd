"""Landmark kernel k-means and kernel PCA: Nystroem's method without any row leaving a site.

Any point may serve as a landmark, so landmarks can be coarse averages of rows. Once the server knows L, it embeds the
landmarks themselves, phi(x) = k(x, L) K(L, L)^(-1/2), and clusters them by the rows each stands for, without asking
again; sites label their rows by the nearest center among their features. Rounds of Lloyd's algorithm there, by sums
or by averages, improve on it. Only an embedding (kernel PCA) needs the Gram of all rows' features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from coterie.errors import InputError
from coterie.extents import is_asked
from coterie.maths import clustering, exact
from coterie.maths.landmarks import LandmarkMap, Landmarks, decoded, feature_root, merged, missed_share
from coterie.maths.spectra import exact_eigenpairs, full_matrix
from coterie.messages.schema import Floats
from coterie.messages.verbs import Protocol, each, present, total
from coterie.methods.kernel.clusters import KernelParameters, LandmarkFit, find_gamma
from coterie.methods.kernel.landmarks import sites
from coterie.methods.kernel.landmarks.search import Searched, nearest_counts, summed_landmarks
from coterie.methods.method import COUNT_OR_NONE, RunContext
from coterie.methods.shared.counts import check_rows
from coterie.methods.shared.lloyd import Moments, lloyd
from coterie.methods.shared.restarts import STARTS, best_of
from coterie.parameters import Allowed, parameter

SAMPLE = 2000
"""Rows a site finds its centers with."""
FEW_COLUMNS = 64
"""Up to so many columns each has a range of its own: 8 bytes a column are little then."""
FEWEST_EACH = 4
"""Centers a site is asked for at least."""
WORTHWHILE = {"local": 0.25, "summed": 0.75}
"""More landmarks are asked for where half of them miss so much of what the others are apart. Of local ones many are
nearly there twice, since sites have similar rows; summed ones are means of different cells."""
SUM_BITS = 32
"""Enough for sums of features in a masked round."""
NONE = 1e-9
"""Eigenvalues below this share of the largest count as none."""


@dataclass(eq=False, repr=False, kw_only=True)
class LandmarkParameters(KernelParameters):
    """How landmarks are found."""

    landmarks: Any = parameter(
        "auto",
        "``local``: each site sends coarse centers of its own. ``summed``: means of cells over all sites, without "
        "per-site results. ``auto``: local where every site allows averages, else summed. Or an array of points.",
        chooses="points",
    )
    n_landmarks: int | None = parameter(
        None,
        "About how many over all sites. None starts with 5 per cluster, at least 30, and asks once for more if these "
        "miss much.",
        COUNT_OR_NONE,
    )
    landmark_bits: int = parameter(
        4, "Bits of each coordinate of a landmark, 1 to 8.", Allowed(whole=True, low=1, high=8)
    )
    value_range: tuple[float, float] | None = parameter(
        None,
        "The smallest and largest value of any prepared row, if public; saves a sum where landmarks are summed.",
        chooses="ranges",
    )

    method = "landmarks"
    result_type: ClassVar[type[Any]] = LandmarkFit

    def check(self, n_columns: int) -> None:
        """Raise an error if the parameters do not fit tables with ``n_columns`` columns."""
        super().check(n_columns)
        if not isinstance(self.landmarks, str):
            points = self.points
            if points.ndim != 2 or not np.isfinite(points).all():
                raise InputError("landmarks must be an array of points, a row each, every value finite.")
            if points.shape[1] != n_columns:
                raise InputError(f"landmarks have {points.shape[1]} columns, but the sites' rows have {n_columns}.")
        elif self.landmarks not in ("auto", "local", "summed"):
            raise InputError(f"landmarks={self.landmarks!r}; use 'auto', 'local', 'summed' or an array of points.")
        if self.value_range is not None and not self.value_range[0] < self.value_range[1]:
            raise InputError(f"value_range={self.value_range} must be (smallest, largest).")

    @property
    def points(self) -> Floats:
        """Landmarks that are known beforehand."""
        return np.asarray(self.landmarks, np.float64)

    def source(self, averages: bool) -> str:
        """``given``, ``local`` or ``summed``; ``auto`` depends on whether every site allows averages."""
        if not isinstance(self.landmarks, str):
            return "given"
        return ("local" if averages else "summed") if self.landmarks == "auto" else self.landmarks

    def number(self, n_clusters: int) -> int:
        """How many landmarks to begin with."""
        return max(30, 5 * n_clusters) if self.n_landmarks is None else self.n_landmarks


class _Mapped(NamedTuple):
    """Landmarks, the map they give, and the precision in which sites get them."""

    landmarks: Landmarks
    map: LandmarkMap
    precision: str

    @property
    def request(self) -> sites.UseLandmarks:
        """What lets sites see their rows' features."""
        return sites.UseLandmarks(*sites.UseLandmarks.stated(self.map, self.precision))


def _find(settings: LandmarkParameters, source: str, n_clusters: int, context: RunContext) -> Protocol[_Mapped]:
    """Landmarks, and more of them where that pays."""
    n_columns, seed = context.n_columns, context.seed
    if source == "given":
        landmarks, precision = (yield from _given(settings.points)), "float64"
        kernel = settings.kernel_at(_gamma(settings, landmarks))
    else:
        first = yield from _asked(settings, source, settings.number(n_clusters), n_columns, seed=seed)
        landmarks, precision = first.landmarks, "float32"
        kernel = settings.kernel_at(_gamma(settings, landmarks))
        missed = 0.0 if settings.n_landmarks is not None else missed_share(kernel, landmarks, seed=seed)
        if settings.n_landmarks is None and is_asked(missed > WORTHWHILE[source]):
            number = 2 * len(landmarks.points)
            more = yield from _asked(settings, source, number, n_columns, seed=seed, before=first)
            landmarks = _joined(landmarks, more.landmarks)
            kernel = settings.kernel_at(_gamma(settings, landmarks))
    points = landmarks.points.astype(precision).astype(np.float64)  # as sites will know them
    root = feature_root(kernel, points, row_bytes=int(precision[-2:]) // 8)
    return _Mapped(landmarks, LandmarkMap.of(kernel, points, root), precision)


def _gamma(settings: LandmarkParameters, landmarks: Landmarks) -> float:
    """The paper's gamma, N^2 / (2 sum of squared distances), from the rows' squared distances from their mean."""
    if settings.gamma is None and not landmarks.scatter > 0:
        raise InputError("all rows are equal, so no gamma can be found from their distances; give one.")
    return landmarks.n_rows / (4 * landmarks.scatter) if settings.gamma is None else float(settings.gamma)


def _joined(first: Landmarks, second: Landmarks) -> Landmarks:
    """Both sets, each for half of the rows."""
    points = np.concatenate([first.points, second.points])
    weights = np.concatenate([first.weights, second.weights]) / 2
    return Landmarks(points, weights, (first.scatter + second.scatter) / 2)


def _given(points: Floats) -> Protocol[Landmarks]:
    """Points known beforehand; sites count the rows nearest to each."""
    distinct = np.unique(points, axis=0)
    gamma, n_rows = yield from find_gamma(points.shape[1])
    counts = yield from nearest_counts(distinct)
    check_rows(counts.sum())
    return Landmarks(distinct, counts * (n_rows / counts.sum()), n_rows / (4 * gamma))


def _asked(
    settings: LandmarkParameters,
    source: str,
    number: int,
    n_columns: int,
    *,
    seed: int,
    before: Searched | None = None,
) -> Protocol[Searched]:
    """About so many landmarks from the sites."""
    if source == "local":
        return Searched((yield from _local(settings, number, n_columns, seed=seed if before is None else seed + 1)))
    bits, limits = settings.landmark_bits, settings.value_range
    return (yield from summed_landmarks(number, n_columns, bits=bits, seed=seed, limits=limits, before=before))


def _local(settings: LandmarkParameters, number: int, n_columns: int, *, seed: int) -> Protocol[Landmarks]:
    """Every site's own centers; merged where there are many more than asked for. Per-site results are seen."""
    names = yield from present()
    replies = (yield from each(local_request(settings, number, n_columns, len(names), seed))).values()
    parts = [decoded(reply.codes, reply.low, reply.span, settings.landmark_bits) for reply in replies]
    points = np.concatenate(parts)
    weights = np.concatenate([reply.counts for reply in replies]).astype(np.float64)
    check_rows(weights.sum())
    middle = weights @ points / weights.sum()
    scatter = sum(_scatter(part, reply, middle) for part, reply in zip(parts, replies, strict=True))
    return Landmarks(*merged(points, weights, number, seed=seed), scatter)


def local_request(
    settings: LandmarkParameters, number: int, n_columns: int, n_sites: int, seed: int
) -> sites.SendLandmarks:
    q = max(FEWEST_EACH, -(-number // max(n_sites, 1)))
    ranges = n_columns if n_columns <= FEW_COLUMNS else 1
    return sites.SendLandmarks(q, n_columns, ranges, settings.landmark_bits, SAMPLE, seed)


def _scatter(points: Floats, reply: sites.LocalLandmarks, middle: Floats) -> float:
    """A site's squared distances from the mean of all rows: those from its own mean, and what that is away."""
    counts = reply.counts.astype(np.float64)
    own = counts @ points / max(float(counts.sum()), 1e-300)
    return float(reply.scatter) + float(counts.sum() * ((own - middle) ** 2).sum())


def cluster_by_landmarks(
    settings: LandmarkParameters,
    n_clusters: int,
    context: RunContext,
    *,
    max_rounds: int,
    tol: float,
    n_starts: int = STARTS,
) -> Protocol[LandmarkFit]:
    """Kernel k-means without an embedding: the landmarks are clustered, then rounds of Lloyd among the features."""
    settings.check(context.n_columns)
    source, seed = settings.source(context.averages), context.seed
    mapped = yield from _find(settings, source, n_clusters, context)
    rows, weights, is_local = mapped.landmarks.n_rows, mapped.landmarks.weights, source == "local"
    check_rows(rows, n_clusters)
    features = mapped.map.own_features()
    starts = clustering.several_starts(features, weights, n_clusters, n_starts, seed=seed)
    spread = np.average((features - np.average(features, 0, weights)) ** 2, 0, weights)
    shift = tol * float(np.mean(spread))
    if is_local:  # sites compare the starts on their rows in the round that announces the landmarks
        ask = sites.TryLandmarks(*sites.TryLandmarks.stated(mapped.map, mapped.precision), np.array(starts))
        replies = (yield from each(ask)).values()
        start = starts[int(np.argmin(sum(reply.rows * reply.costs.astype(np.float64) for reply in replies)))]
        clusters = yield from lloyd(start, max_rounds=max_rounds, tol=shift, moments=_moments_by_averages)
    else:
        yield from total(mapped.request)
        start = yield from best_of(starts, 1)
        clusters = yield from lloyd(start, max_rounds=max_rounds, tol=shift, bits=SUM_BITS)
    return LandmarkFit(mapped.map.kernel, mapped.map, rows, clusters, landmark_values(features, weights), len(starts))


def _moments_by_averages(centers: Floats) -> Protocol[Moments]:
    """Sums and counts from every site's own means, in float16: k (r + 2) half numbers a round and site."""
    replies = (yield from each(sites.MeanByCell("float16", centers))).values()
    sums = sum(reply.counts[:, None] * reply.means.astype(np.float64) for reply in replies)
    counts = sum(reply.counts.astype(np.float64) for reply in replies)
    return Moments(np.asarray(sums), np.asarray(counts), np.zeros(()))


def landmark_values(features: Floats, weights: Floats) -> Floats:
    """Eigenvalues of the kernel matrix as the landmarks see them."""
    eigenvalues = np.linalg.eigvalsh((features * weights[:, None]).T @ features)[::-1]
    values: Floats = eigenvalues[eigenvalues > NONE * max(float(eigenvalues[0]), 1e-300)].astype(np.float64)
    return values


def embed_by_landmarks(
    settings: LandmarkParameters, n_components: int, context: RunContext, *, center: bool, announce: bool = False
) -> Protocol[LandmarkFit]:
    """The top components of all rows' features: the triangle of their Gram once, (r+1)(r+2)/2 numbers a site.

    ``announce`` lets sites know, so that later questions see the components in the rows' place.
    """
    settings.check(context.n_columns)
    mapped = yield from _find(settings, settings.source(context.averages), max(1, n_components // 2), context)
    yield from total(mapped.request)
    n = mapped.map.projection.shape[1] + 1
    packed = (yield from total(sites.SendFeatureGram(n * (n + 1) // 2, n, "float32"), bits=SUM_BITS)).packed
    gram = full_matrix(np.asarray(packed, np.float64), n)
    rows, mean = gram[0, 0], gram[0, 1:] / max(float(gram[0, 0]), 1e-300)
    shift = mean if center else np.zeros(n - 1)
    pairs = exact_eigenpairs(gram[1:, 1:] - rows * np.outer(shift, shift))
    kept = pairs.above(NONE * max(float(pairs.values[0]), 1e-300)).top(n_components).signed()
    kept = kept.sized(1, min(n_components, len(pairs.values)))
    turned = exact.product(mapped.map.projection, kept.vectors)
    embedding = replace(mapped.map, projection=turned, shift=exact.product(shift, kept.vectors))
    if announce:
        yield from total(mapped._replace(map=embedding).request)
    return LandmarkFit(embedding.kernel, embedding, float(rows), values=kept.values)
