"""What federated kernel k-means is compared with (section 6 and appendix G of its paper): RFK (Chitta et al. 2012),
CK (Zha et al. 2001), SK (Wang et al. 2019) and, in :mod:`.ce_pca`, CE PCA. All disclose rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import linalg
from scipy.sparse.linalg import eigsh

from coterie.arrays import Indices, Rows
from coterie.extents import between
from coterie.maths import clustering
from coterie.maths.coresets import drawn_by_weight
from coterie.maths.kernels import Kernel
from coterie.maths.landmarks import LandmarkMap
from coterie.maths.spectra import Ritz, inverse_root
from coterie.messages.schema import Floats, Nothing, Request
from coterie.messages.site_api import Memory, Table, remembers
from coterie.messages.verbs import Protocol, each, total
from coterie.methods.kernel.clusters import (
    ComponentsOfClusters,
    KernelFit,
    KernelParameters,
    LandmarkFit,
    SumLengths,
    find_gamma,
)
from coterie.methods.kernel.features import Drawn
from coterie.methods.method import COUNT, Method, RunContext
from coterie.methods.shared.coresets import Coreset, SampleCoreset, SumCost, coreset
from coterie.methods.shared.counts import CountRows, PoolRows, check_rows
from coterie.methods.shared.embedded import EmbeddedTable, Embeds, raw_of
from coterie.methods.shared.lloyd import Assign, Close, KMeansFit, closed
from coterie.methods.shared.profiles import CountByLabel, SumByLabel
from coterie.methods.shared.starts import Split
from coterie.parameters import Allowed, parameter

NONE = 1e-9
"""Eigenvalues below this share of the largest count as none."""
LARGE = 2000
"""Rows of a kernel matrix beyond which its top eigenpairs are found from products with it."""
JITTER = 1e-10
"""Added to the landmarks' kernel matrix, as a share of its mean diagonal, so that it has a Cholesky factor."""


@dataclass(frozen=True)
class BaselineFit:
    """What labels any row: an embedding, and centers in it."""

    embedding: Embeds
    centers: Floats
    values: Floats
    """Eigenvalues of the kernel matrix of all rows; none for random features."""
    sizes: tuple[int, ...] = ()
    """The rows each site sent: pooled, or allotted of a coreset."""
    counts: Floats | None = None
    cost: float = 0.0
    """Rows by center and their squared distances in the embedding, where the server knows them."""
    labels: Mapping[str, Indices] | None = None
    """By site the center of each row, where only the server can embed rows."""


def embedded_by(table: Table, embedding: Embeds, n_components: int) -> EmbeddedTable:
    raw = raw_of(table)
    parts = [embedding.embed(block.rows) for block in raw.blocks() if len(block.rows)]
    return EmbeddedTable(raw, np.concatenate([np.zeros((0, n_components)), *parts]))


class MapFeatures(Drawn, Request[Nothing], remembered=True, doing="computing random features"):
    """From now on a row is its random features, over sqrt(D)."""


@remembers(MapFeatures)
def keep_features(table: Table, memory: Memory, ask: MapFeatures) -> None:
    """Let later questions see the features in the rows' place."""
    memory.table = embedded_by(table, ask, ask.n_features)


def rfk(
    kernel: Kernel, n_clusters: int, *, n_features: int, seed: int, n_points: int = 1000, form: str = "phase"
) -> Protocol[BaselineFit]:
    """k-means of random features by a coreset of ``n_points``: features travel."""
    features = MapFeatures(*MapFeatures.stated(kernel, n_features, form, seed))
    yield from total(features)
    points = yield from coreset(n_clusters, n_features, n_points=n_points, seed=seed)
    return BaselineFit(features, points.centers(n_clusters, seed=seed), np.zeros(0), points.sizes)


def _pool(n_columns: int) -> Protocol[tuple[Coreset, dict[str, Rows]]]:
    """All rows at the server, what each counts, and how many came from each site; and the rows of each site. Two
    rounds: counts, then rows."""
    counts = yield from each(CountRows(), complete=True)
    sizes = {name: round(float(reply.shown)) for name, reply in counts.items()}
    is_weighted = any(float(reply.weighted) for reply in counts.values())
    asks = {name: PoolRows(size, n_columns, size if is_weighted else 0) for name, size in sizes.items()}
    replies = yield from each(asks, complete=True)
    parts = replies.values()
    rows = np.concatenate([part.points for part in parts])
    weights = np.concatenate([part.weights for part in parts]) if is_weighted else np.ones(len(rows))
    check_rows(weights.sum())
    pool = Coreset(rows[weights > 0], weights[weights > 0], sizes=tuple(sizes.values()))
    return pool, {site: reply.points for site, reply in replies.items()}


def ck(kernel: Kernel, n_clusters: int, *, n_components: int, n_columns: int, seed: int) -> Protocol[BaselineFit]:
    """k-means of the first s columns of U sqrt(Lambda), K = U Lambda U' exactly. Rows are pooled."""
    pool, parts = yield from _pool(n_columns)
    roots = np.sqrt(pool.weights)
    matrix = roots[:, None] * kernel.between(pool.points, pool.points) * roots
    pairs = _top_eigenpairs(matrix, n_components, seed)
    pairs = pairs.above(NONE * pairs.values[0])
    embedding = LandmarkMap.of(kernel, pool.points, roots[:, None] * pairs.vectors / np.sqrt(pairs.values))
    return _clustered(embedding, pool, parts, pairs.values, n_clusters, seed)


def _top_eigenpairs(matrix: Floats, count: int, seed: int) -> Ritz:
    """The largest eigenvalues and their vectors; of a large matrix by ARPACK, to full precision."""
    n = len(matrix)
    if n > LARGE and 10 * count < n:
        start = np.random.default_rng([seed, 2]).normal(size=n)
        values, vectors = eigsh(matrix, count, which="LA", v0=start)
        order = np.argsort(values)
    else:
        values, vectors = linalg.eigh(matrix, subset_by_index=[max(0, n - count), n - 1])
        order = np.arange(len(values))
    return Ritz(values[order[::-1]], vectors[:, order[::-1]])


def sk(
    kernel: Kernel, n_clusters: int, *, n_landmarks: int, n_components: int, n_columns: int, seed: int
) -> Protocol[BaselineFit]:
    """k-means of the best rank-s part of Nystroem's K_nc K_cc^+ K_cn (Wang et al. 2019). Rows are pooled.

    The c landmarks are drawn uniformly among all rows, without replacement; a row of weight 2 is two.
    """
    pool, parts = yield from _pool(n_columns)
    landmarks = np.unique(pool.points[drawn_by_weight(pool.weights, n_landmarks, seed)], axis=0)
    root = inverse_root(kernel.between(landmarks, landmarks))
    features = np.sqrt(pool.weights)[:, None] * (kernel.between(pool.points, landmarks) @ root)
    turn, values = top_directions(features, n_components)
    return _clustered(LandmarkMap.of(kernel, landmarks, root @ turn), pool, parts, values, n_clusters, seed)


def top_directions(rows: Floats, count: int) -> tuple[Floats, Floats]:
    """The leading right singular vectors as columns, and the squares of their singular values."""
    _, sizes, directions = linalg.svd(rows, full_matrices=False)
    kept = int((sizes[:count] ** 2 > NONE * sizes[0] ** 2).sum())
    kept = between(kept, 1, min(count, len(sizes)))
    return directions[:kept].T, sizes[:kept] ** 2


def _clustered(
    embedding: LandmarkMap, pool: Coreset, parts: Mapping[str, Rows], values: Floats, n_clusters: int, seed: int
) -> BaselineFit:
    rows = embedding.embed(pool.points)
    centers = clustering.weighted_kmeans(rows.astype(np.float64, copy=False), pool.weights, n_clusters, seed=seed)
    m = clustering.moments(rows, centers, pool.weights)
    labels = {site: clustering.nearest(embedding.embed(own), centers)[0] for site, own in parts.items()}
    return BaselineFit(embedding, centers, values, pool.sizes, m.counts, float(m.cost), labels)


@dataclass(frozen=True)
class FeatureFit(KernelFit):
    """An embedding by random features drawn once."""

    embedding: MapFeatures


@dataclass(eq=False, repr=False)
class BaselineSettings(KernelParameters, ComponentsOfClusters):
    """What the methods federated kernel k-means is compared with have in common (appendix G)."""

    result_type: ClassVar[type[Any]] = LandmarkFit

    @abstractmethod
    def cluster(self, kernel: Kernel, size: int, context: RunContext) -> Protocol[BaselineFit]:
        """The clusters of rows embedded in so many components."""

    def protocol(self, context: RunContext) -> Protocol[KernelFit]:
        """gamma, the clusters, and their sizes where the server does not know them."""
        gamma, n_rows = yield from find_gamma(context.n_columns, needed=self.gamma is None)
        kernel = self.kernel_at(gamma)
        fit = yield from self.cluster(kernel, self.n_components or 2 * int(self.n_clusters), context)
        if fit.counts is None:
            clusters = yield from closed(fit.centers, 0)
        else:
            clusters = KMeansFit(fit.centers, fit.cost, fit.counts, 0)
        result: KernelFit = self.result_type(
            kernel, fit.embedding, n_rows, clusters, fit.values, server_labels=fit.labels
        )
        return result


@dataclass(eq=False, repr=False)
class RFKSettings(BaselineSettings):
    """Of random features drawn once."""

    _: KW_ONLY
    n_features: int = parameter(200, "D: random features.", COUNT)
    n_points: int = parameter(1000, "C: points of the coreset.", COUNT)
    form: str = parameter(
        "phase", "Of the features: ``phase`` or ``paired`` (cos and sin).", Allowed("phase", "paired")
    )

    method = "rfk"
    result_type: ClassVar[type[Any]] = FeatureFit

    def cluster(self, kernel: Kernel, size: int, context: RunContext) -> Protocol[BaselineFit]:
        """k-means of the features by a coreset."""
        return rfk(
            kernel, int(self.n_clusters), n_features=self.n_features, n_points=self.n_points, form=self.form,
            seed=context.seed,
        )  # fmt: skip


@dataclass(eq=False, repr=False)
class CKSettings(BaselineSettings):
    """Of exact kernel k-means."""

    method = "ck"

    def cluster(self, kernel: Kernel, size: int, context: RunContext) -> Protocol[BaselineFit]:
        """Rows pooled, the exact kernel matrix."""
        return ck(kernel, int(self.n_clusters), n_components=size, n_columns=context.n_columns, seed=context.seed)


@dataclass(eq=False, repr=False)
class SKSettings(BaselineSettings):
    """Of Nystroem's method."""

    _: KW_ONLY
    n_landmarks: int = parameter(500, "Rows drawn as landmarks.", COUNT)

    method = "sk"

    def cluster(self, kernel: Kernel, size: int, context: RunContext) -> Protocol[BaselineFit]:
        """Rows pooled, some of them landmarks."""
        return sk(
            kernel, int(self.n_clusters), n_landmarks=self.n_landmarks, n_components=size,
            n_columns=context.n_columns, seed=context.seed,
        )  # fmt: skip


RFK = Method(
    "rfk",
    "k-means of random features drawn once, by a coreset of them (Chitta et al. 2012): a baseline",
    (SumLengths, MapFeatures, SumCost, SampleCoreset, Assign, Close, Split),
    "d+2 for gamma, 1, and (C_m + k)(D+1) for a coreset of C points of D features",
    "features of single rows, from which the rows can be reconstructed",
    visibility="rows",
    settings=(RFKSettings,),
    is_baseline=True,
)
CK, SK = (
    Method(
        settings.method,
        f"{title}: a baseline",
        (SumLengths, CountRows, PoolRows, SumByLabel, CountByLabel),
        "d+2 for gamma, then all rows",
        "every row",
        visibility="rows",
        settings=(settings,),
        needs_rows=True,
        is_baseline=True,
    )
    for settings, title in (
        (CKSettings, "Exact kernel k-means of pooled rows"),
        (SKSettings, "Nystroem kernel k-means of pooled rows (Wang et al. 2019)"),
    )
)
