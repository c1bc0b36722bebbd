"""CE PCA (Balcan et al. 2016), a baseline of federated kernel k-means: kernel principal components in the span of a
few rows found by sketches, then distributed linear k-means. Rows travel as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field

import numpy as np
from scipy import linalg, sparse

from coterie.errors import MalformedMessage
from coterie.extents import between, shared_out, sized
from coterie.maths.coresets import allotted
from coterie.maths.kernels import Kernel
from coterie.maths.landmarks import LandmarkMap
from coterie.messages.schema import Floats, Nothing, Reply, Request, array
from coterie.messages.site_api import Memory, Rows, Table, answers, remembers, rows_at
from coterie.messages.verbs import Protocol, each, total
from coterie.methods.kernel.baselines import JITTER, NONE, BaselineFit, BaselineSettings, embedded_by, top_directions
from coterie.methods.kernel.clusters import SumLengths
from coterie.methods.kernel.features import Drawn
from coterie.methods.method import COUNT, Method, RunContext, values_of
from coterie.methods.shared.coresets import SampleCoreset, SumCost, coreset
from coterie.methods.shared.counts import check_rows
from coterie.methods.shared.embedded import StreamedTable
from coterie.methods.shared.lloyd import Close
from coterie.parameters import parameter


class Sketch(Reply, content="rows"):
    """Rows added up with random signs into a few; the rows themselves where there are no more than that."""

    sketch: Floats = array("rows", "t")


class SketchFeatures(Drawn, Request[Sketch], remembered=True, doing="sketching random features"):
    """Embed your random features in ``t`` dimensions, keep that, and sketch your rows of it into ``rows``."""

    rows: int
    t: int


class Mass(Reply, content="rows"):
    """The sum of a site's scores; the server chose how rows are scored, so only those who may see rows may see it."""

    mass: Floats = array(nonnegative=True)


class ScoreByLeverage(Request[Mass], remembered=True, doing="scoring rows by leverage"):
    """Score every row by its leverage, the squared length of its embedded features times ``inverse``."""

    inverse: Floats = array("t", "t")


class ScoreByResidual(Request[Mass], remembered=True, doing="scoring rows by residual"):
    """Score every row by its squared distance, in the kernel's space, to the span of these rows."""

    landmarks: Floats = array("p", "d")


class DrawnRows(Reply, content="rows"):
    """Rows as they are; a site that has too few sends some again."""

    points: Floats = array("rows", "d", bound="box[d]")


class DrawRows(Request[DrawnRows], doing="sampling rows"):
    """Draw rows by their scores, without replacement."""

    rows: int
    d: int
    step: int
    seed: int
    place: int


class ProjectRows(Request[Sketch], remembered=True, doing="projecting rows on the landmarks"):
    """Add these landmarks; project your rows on the span of all ``t`` of them and sketch that into ``rows``."""

    rows: int
    t: int
    seed: int
    landmarks: Floats = array("p", "d")


class EmbedRows(Request[Nothing], remembered=True, doing="embedding rows"):
    """From now on a row is its kernel values with the landmarks, times ``projection``."""

    projection: Floats = array("t", "s")


@dataclass
class _Scored:
    """What a site keeps between the questions."""

    kernel: Kernel
    features: Floats
    scores: Floats
    landmarks: list[Floats] = field(default_factory=list)

    def projected(self, rows: Rows) -> Floats:
        """Coordinates in an orthonormal basis of the landmarks' span."""
        landmarks = np.concatenate(self.landmarks)
        root = _root(self.kernel, landmarks)
        coordinates: Floats = linalg.solve_triangular(root, self.kernel.between(landmarks, rows), trans="T").T
        return coordinates


def _root(kernel: Kernel, landmarks: Floats) -> Floats:
    """R with R'R = K(Y, Y). A Cholesky factor is unique, so that all ends mean the same basis Q = phi(Y) R^-1."""
    matrix = kernel.between(landmarks, landmarks)
    root: Floats = linalg.cholesky(matrix + JITTER * np.mean(np.diag(matrix)) * np.eye(len(matrix)))
    return root


def _scored(memory: Memory) -> _Scored:
    held = memory.get("ce-pca")
    if not isinstance(held, _Scored):
        raise MalformedMessage("no features were sketched in this run")
    return held


def _sketched(table: Table, rows: Floats, size: int, *seed: int) -> Floats:
    """T'A with one random sign and place a row (a sparse embedding); A itself, padded, where it has few rows."""
    n = len(rows)
    weighted = np.sqrt(rows_at(table, np.arange(n))[1])[:, None] * rows
    if n <= size:
        return np.concatenate([weighted, np.zeros((size - n, rows.shape[1]))])
    rng = np.random.default_rng([*seed, n])
    places, signs = rng.integers(0, size, n), rng.choice([-1.0, 1.0], n)
    added: Floats = sparse.csr_array((signs, (places, np.arange(n))), shape=(size, n)) @ weighted
    return added


@remembers(SketchFeatures)
def keep_sketched_features(table: Table, memory: Memory, ask: SketchFeatures) -> None:
    """Keep E = S(phi(A)): D random features, then a Gaussian map to t dimensions (none where t = D)."""
    if isinstance(table, StreamedTable):
        memory.table = table = table.raw
    features = embedded_by(table, ask, ask.n_features).rows
    if ask.t != ask.n_features:
        normal = np.random.default_rng([ask.seed, 3]).normal(size=(ask.n_features, ask.t))
        features = features @ (normal / np.sqrt(ask.t))
    memory["ce-pca"] = _Scored(ask.the_kernel(), features, np.zeros(len(features)))


@answers(SketchFeatures)
def local_feature_sketch(table: Table, memory: Memory, ask: SketchFeatures) -> Sketch:
    """E^i T^i (Algorithm 1 of Balcan et al., step 2), transposed."""
    return Sketch(_sketched(table, _scored(memory).features, ask.rows, ask.seed, 4))


@remembers(ScoreByLeverage)
def keep_leverage(table: Table, memory: Memory, ask: ScoreByLeverage) -> None:
    """Algorithm 1, step 4."""
    held = _scored(memory)
    turned = held.features @ ask.inverse
    held.scores = np.vecdot(turned, turned) * rows_at(table, np.arange(table.n_rows))[1]


@remembers(ScoreByResidual)
def keep_residuals(table: Table, memory: Memory, ask: ScoreByResidual) -> None:
    """Algorithm 2, step 2: k(x, x) - |Q' phi(x)|^2; what rounding leaves of it is none."""
    held, residuals = _scored(memory), [np.zeros(0)]
    held.landmarks = [ask.landmarks]
    for block in table.blocks():
        whole, inside = held.kernel.diagonal(block.rows), held.projected(block.rows)
        left = whole - np.vecdot(inside, inside)
        residuals.append(np.where(left > 10 * NONE * whole, left, 0.0))
    held.scores = np.concatenate(residuals) * rows_at(table, np.arange(table.n_rows))[1]


@answers(ScoreByLeverage)
@answers(ScoreByResidual)
def local_mass(table: Table, memory: Memory, ask: ScoreByLeverage | ScoreByResidual) -> Mass:
    return Mass(np.asarray(_scored(memory).scores.sum()))


@answers(DrawRows)
def local_drawn_rows(table: Table, memory: Memory, ask: DrawRows) -> DrawnRows:
    """Rows drawn by the scores kept last; zeros where no row has any."""
    scores = _scored(memory).scores
    possible = int((scores > 0).sum())
    if not possible:
        return DrawnRows.zeros(ask.axes)
    rng = np.random.default_rng([ask.seed, 5, ask.step, ask.place])
    drawn = rng.choice(len(scores), min(ask.rows, possible), replace=False, p=scores / scores.sum())
    return DrawnRows(np.resize(rows_at(table, np.sort(drawn))[0], (ask.rows, ask.d)))


@remembers(ProjectRows)
def keep_landmarks(table: Table, memory: Memory, ask: ProjectRows) -> None:
    """All landmarks: those by leverage and those by residual."""
    held = _scored(memory)
    held.landmarks = [*held.landmarks[:1], ask.landmarks]


@answers(ProjectRows)
def local_projection(table: Table, memory: Memory, ask: ProjectRows) -> Sketch:
    """Pi^i T^i (Algorithm 3, step 2), transposed."""
    held = _scored(memory)
    coordinates = [held.projected(block.rows) for block in table.blocks() if len(block.rows)]
    return Sketch(_sketched(table, np.concatenate([np.zeros((0, ask.t)), *coordinates]), ask.rows, ask.seed, 6))


@remembers(EmbedRows)
def keep_embedding(table: Table, memory: Memory, ask: EmbedRows) -> None:
    """Let later questions see the components in the rows' place."""
    held = _scored(memory)
    embedding = LandmarkMap.of(held.kernel, np.concatenate(held.landmarks), ask.projection)
    memory.table = embedded_by(table, embedding, ask.projection.shape[1])
    memory.pop("ce-pca")


@dataclass(eq=False, repr=False, kw_only=True)
class CEPCAOptions:
    """The parameters of CE PCA that are open to choice, with the letters of appendix G."""

    n_features: int = parameter(200, "D: random features.", COUNT)
    n_landmarks: int = parameter(500, "p: rows drawn as representatives.", COUNT)


@dataclass
class CEPCASettings(CEPCAOptions):
    """What CE PCA runs with: s, D, d_s, d_p and p. Half of the p rows are drawn by leverage, half by residual (Balcan
    et al. leave the split open)."""

    n_components: int
    n_embedded: int = 50
    """d_s: dimensions the features are embedded in; never more than D."""
    n_sketched: int = 250
    """d_p: how many rows a site's sketches have."""


@dataclass(frozen=True)
class CEPCAFit:
    """Kernel principal components: how any row is embedded, and what was drawn where."""

    embedding: LandmarkMap
    values: Floats
    """Eigenvalues of the kernel matrix as its sketches show them."""
    drawn: tuple[tuple[int, ...], ...]
    """The rows each site sent by leverage and, unless nothing was left over, by residual."""
    n_by_leverage: int
    """How many landmarks are by leverage; equal rows count once."""


def ce_pca(kernel: Kernel, settings: CEPCASettings, *, n_columns: int, seed: int) -> Protocol[CEPCAFit]:
    """Algorithms 1 to 3 of Balcan et al. 2016. Sites then see their rows' components as their table. Rows travel.

    Settled, where they are silent: the kernel's subspace embedding is D random features and a Gaussian map to d_s;
    sketches of rows are sparse embeddings, of d_p rows both times; rows are shared out among sites in proportion to
    the sites' scores and drawn without replacement; landmarks that are equal count once.
    """
    sketches = yield from each(sketch_request(kernel, settings, seed), complete=True)
    factor = linalg.qr(_stacked(sketches), mode="r")[0]
    inverse = linalg.pinv(factor[: factor.shape[1]])
    masses = yield from each(ScoreByLeverage(inverse), complete=True)
    n_first = (settings.n_landmarks + 1) // 2
    first, sizes = yield from _drawn(masses, n_first, n_columns, 1, seed)
    check_rows(len(first))
    masses = yield from each(ScoreByResidual(first), complete=True)
    second, more = yield from _drawn(masses, settings.n_landmarks - n_first, n_columns, 2, seed)
    both = np.concatenate([first, second])
    ask = ProjectRows(settings.n_sketched, len(both), seed, second)
    turn, values = top_directions(_stacked((yield from each(ask, complete=True))), settings.n_components)
    embedding = LandmarkMap.of(kernel, both, linalg.solve_triangular(_root(kernel, both), turn))
    yield from total(EmbedRows(embedding.projection), complete=True)
    return CEPCAFit(embedding, values, (sizes, more) if more else (sizes,), len(first))


def _stacked(sketches: Mapping[str, Sketch]) -> Floats:
    return np.concatenate([reply.sketch for reply in sketches.values()])


def _drawn(
    masses: dict[str, Mass], count: int, d: int, step: int, seed: int
) -> Protocol[tuple[Floats, tuple[int, ...]]]:
    """Different rows drawn by score over all sites, and how many each site was asked for; nobody without scores."""
    scores = np.array([float(reply.mass) for reply in masses.values()])
    if not (between(bool(scores.any()), step == 1, True) and count):
        return np.zeros((0, d)), ()
    sizes = shared_out(allotted(count, scores))
    asks = {
        name: DrawRows(size, d, step, seed, place)
        for place, (name, size) in enumerate(zip(masses, sizes, strict=True))
    }
    parts = yield from each(asks, complete=True)
    drawn = np.unique(np.concatenate([part.points for part in parts.values()]), axis=0)
    return sized(drawn, 1, count), sizes


def sketch_request(kernel: Kernel, settings: CEPCASettings, seed: int) -> SketchFeatures:
    stated = SketchFeatures.stated(kernel, settings.n_features, "phase", seed)
    return SketchFeatures(*stated, settings.n_sketched, min(settings.n_embedded, settings.n_features))


def ce_pca_kmeans(
    kernel: Kernel, n_clusters: int, settings: CEPCASettings, *, n_columns: int, n_points: int = 1000, seed: int
) -> Protocol[tuple[CEPCAFit, BaselineFit]]:
    """CE PCA, then distributed k-means of the components by a coreset (appendix G)."""
    components = yield from ce_pca(kernel, settings, n_columns=n_columns, seed=seed)
    points = yield from coreset(n_clusters, len(components.values), n_points=n_points, seed=seed)
    centers = points.centers(n_clusters, seed=seed)
    return components, BaselineFit(components.embedding, centers, components.values, points.sizes)


@dataclass(eq=False, repr=False)
class CEPCAClusterSettings(CEPCAOptions, BaselineSettings):
    """Of kernel k-means by CE PCA."""

    _: KW_ONLY
    n_points: int = parameter(1000, "C: points of the coreset.", COUNT)

    method = "ce-pca"

    def cluster(self, kernel: Kernel, size: int, context: RunContext) -> Protocol[BaselineFit]:
        """Components from a few pooled rows, then k-means by a coreset."""
        settings = CEPCASettings(size, **values_of(self, CEPCAOptions))
        _, fit = yield from ce_pca_kmeans(
            kernel, int(self.n_clusters), settings, n_columns=context.n_columns, n_points=self.n_points,
            seed=context.seed,
        )  # fmt: skip
        return fit


METHOD = Method(
    "ce-pca",
    "Kernel PCA from a few pooled rows, then k-means by a coreset (Balcan et al. 2016): a baseline",
    (
        SumLengths, SketchFeatures, ScoreByLeverage, DrawRows, ScoreByResidual, ProjectRows, EmbedRows, SumCost,
        SampleCoreset, Close,
    ),
    "d+2 for gamma, sketches of d_p (d_s + s) numbers, p rows, and (C_m + k)(s+1) for a coreset",
    "some rows, and components of more",
    visibility="rows",
    settings=(CEPCAClusterSettings,),
    needs_rows=True,
    is_baseline=True,
)  # fmt: skip
