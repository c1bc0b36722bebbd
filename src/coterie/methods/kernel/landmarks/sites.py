"""What a site is asked in landmark kernel k-means: its own coarse centers, cells of rows, and features of rows.

The server's part is in :mod:`coterie.methods.kernel.landmarks.protocol`.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from coterie.errors import MalformedMessage
from coterie.maths import clustering
from coterie.maths.landmarks import GroupCovariance, LandmarkMap, coded, neighbor_differences
from coterie.maths.spectra import triangle
from coterie.messages.bounds import Limits
from coterie.messages.schema import Floats, Integers, Nothing, Reply, Request, array
from coterie.messages.site_api import Block, Memory, Rows, Table, answers, remembers, within_columns, within_scatter
from coterie.methods.shared.embedded import OfKernel, StreamedTable, raw_of, stated_kernel
from coterie.methods.shared.lloyd import table_moments
from coterie.methods.shared.starts import sample_of

MOST_LANDMARKS = 1 << 14
"""The most landmarks a site embeds its rows with."""
FEATURE_BOX = 1.01
"""Features are at most the root of k(x, x), which is 1; the root of a matrix may round them above it."""


class LocalLandmarks(Reply, content="averages"):
    """A site's own centers, a few bits a coordinate from ``low`` to ``low + span`` (of each column, or of all), how
    many rows each stands for, and the squared distances of all these rows from their mean."""

    codes: Integers = array("q", "d", dtype="uint{bits}")
    low: Floats = array("ranges", dtype="float32")
    span: Floats = array("ranges", dtype="float32", nonnegative=True)
    counts: Floats = array("q", dtype="float32", nonnegative=True)
    scatter: Floats = array(nonnegative=True)


class SendLandmarks(Request[LocalLandmarks], doing="choosing landmarks from each site's clusters"):
    """Cluster your own rows into at most ``q`` centers."""

    q: int
    d: int
    ranges: int
    bits: int
    sample: int
    seed: int


@answers(SendLandmarks)
def local_landmarks(table: Table, memory: Memory, ask: SendLandmarks) -> LocalLandmarks:
    """Centers of a bounded sample of the rows, each standing for its share of all of them.

    Ranges are those of the centers that are sent, not of rows.
    """
    if ask.ranges not in (1, ask.d) or not 1 <= ask.bits <= 8:
        raise MalformedMessage(f"{ask.ranges} ranges of {ask.bits} bits for {ask.d} columns")
    sample = sample_of(table, ask.sample, ask.seed)
    drawn = float(sample.weights.sum())
    if not drawn > 0:
        return LocalLandmarks.zeros(ask.axes)
    wanted = max(1, min(ask.q, int(drawn) // 2))
    points = clustering.rough_centers(sample.rows, sample.weights, wanted, seed=ask.seed)
    cells = clustering.moments(sample.rows, points, sample.weights)
    filled = cells.counts > 0
    codes, counts = np.zeros((ask.q, ask.d)), np.zeros(ask.q)
    means = cells.sums[filled] / cells.counts[filled, None]
    codes[: len(means)], low, span = coded(means, ask.bits, ask.ranges)
    counts[: len(means)] = cells.counts[filled] * (sample.held / drawn)
    scatter = _scatter(table, sample.rows.mean(0)) + within_columns(table).sum()
    return LocalLandmarks(codes.astype(np.int64), low, span, counts, np.asarray(scatter))


def _scatter(table: Table, near: Floats) -> float:
    """Squared distances of all rows shown from their mean; ``near`` is a point not far from it."""
    held, sums, squares = 0.0, np.zeros(len(near)), 0.0
    for block in table.blocks():
        held += float(block.counts.sum())
        away = block.rows - near.astype(block.rows.dtype)  # a block is small; an expanded square loses digits
        sums += block.counts.astype(away.dtype, copy=False) @ away
        squares += float(block.counts @ np.vecdot(away, away))
    return max(0.0, squares - float(sums @ sums) / max(held, 1e-300))


class Mapped(OfKernel):
    """What a request states of features: kernel values with the landmarks, times ``projection``, less ``shift``."""

    precision: str
    landmarks: Floats = array("m", "d", dtype="{precision}")
    projection: Floats = array("m", "r")
    shift: Floats = array("r")

    @staticmethod
    def stated(map_: LandmarkMap, precision: str) -> tuple[str, float, int, float, str, Floats, Floats, Floats]:
        """A map as a message carries it; landmarks that were found need no more than float32."""
        return (*stated_kernel(map_.kernel), precision, map_.landmarks, map_.projection, map_.shift)

    def limits_after(self, limits: Limits) -> Limits:
        """A feature is at most the root of k(x, x), where the kernel bounds it; rows are as many as before."""
        rows = {name: limit for name, limit in limits.items() if name == "rows"}
        largest = FEATURE_BOX + float(np.abs(self.shift).max(initial=0.0))
        return rows if self.kernel == "polynomial" else {**rows, "box": largest}

    def map(self) -> LandmarkMap:
        """The map it states, rounded as sites know it."""
        return LandmarkMap(self.the_kernel(), self.landmarks.astype(np.float64), self.projection, self.shift)


class UseLandmarks(Mapped, Request[Nothing], remembered=True, doing="embedding rows by landmarks"):
    """From now on a row is its features."""


class MeanCosts(Reply, content="averages"):
    """How many rows a site holds, and for every start their mean squared distance from the nearest center."""

    rows: Floats = array(dtype="float32", nonnegative=True)
    costs: Floats = array("c", dtype="float32", nonnegative=True)


class TryLandmarks(
    Mapped, Request[MeanCosts], remembered=True, doing="embedding rows by landmarks and comparing starts"
):
    """From now on a row is its features; which of these starts is nearest to yours?"""

    starts: Floats = array("c", "k", "r")


@remembers(UseLandmarks)
@remembers(TryLandmarks)
def keep_landmarks(table: Table, memory: Memory, ask: UseLandmarks | TryLandmarks) -> None:
    """Let later questions see features in the place of rows; they are made some rows at a time."""
    raw = raw_of(table)
    if ask.axes["d"] != len(raw.columns) or not 1 <= ask.axes["m"] <= MOST_LANDMARKS or not ask.axes["r"]:
        raise MalformedMessage(f"{ask.axes['m']} landmarks of {ask.axes['d']} columns for {len(raw.columns)}")
    memory.table = FeatureTable(raw, ask)


class FeatureTable(StreamedTable):
    """A table's rows as their features."""

    def __init__(self, raw: Table, ask: Mapped) -> None:
        self.map, is_exact = ask.map(), ask.precision == "float64"

        def embed(block: Block) -> Rows:
            rows = block.rows.astype(np.float64, copy=False) if is_exact else block.rows
            return self.map.embed(rows, block.variance)

        super().__init__(raw, embed, len(ask.shift))

    @cached_property
    def within_scatter(self) -> Floats:
        """An estimate of the scatter of features within groups, where the view does not show correlations."""
        total, squares = np.zeros((len(self.columns), len(self.columns))), within_columns(self.raw)
        if self.map.kernel.name != "rbf" or not squares.sum() > 0:
            return total
        differences = np.concatenate([neighbor_differences(block.rows) for block in self.raw.blocks()])
        covariance = GroupCovariance.of(squares, differences)
        for block in self._raw_pieces():
            assert block.variance is not None
            total += self.map.within(block.rows, block.variance, block.counts, covariance)
        return total

    @property
    def within_columns(self) -> Floats:
        """The same by column."""
        return np.maximum(np.diag(self.within_scatter), 0.0)


class LocalMeans(Reply, content="averages"):
    """Per center the mean and number of a site's rows nearest to it; no mean where the number is 0."""

    means: Floats = array("k", "r", dtype="{precision}")
    counts: Floats = array("k", dtype="float32", nonnegative=True)


class MeanByCell(Request[LocalMeans], doing="averaging features by cluster"):
    """Put every row to its nearest center; send the means of those that hold any."""

    precision: str
    centers: Floats = array("k", "r")


@answers(MeanByCell)
def local_means(table: Table, memory: Memory, ask: MeanByCell) -> LocalMeans:
    if ask.centers.shape[1] != len(table.columns):
        raise MalformedMessage(f"centers of {ask.centers.shape[1]} columns for rows of {len(table.columns)}")
    moments = table_moments(table, ask.centers)
    return LocalMeans(
        clustering.means(moments.sums, moments.counts, fallback=np.zeros_like(moments.sums)), moments.counts
    )


@answers(TryLandmarks)
def local_mean_costs(table: Table, memory: Memory, ask: TryLandmarks) -> MeanCosts:
    if ask.axes["r"] != len(table.columns):
        raise MalformedMessage(f"centers of {ask.axes['r']} columns for rows of {len(table.columns)}")
    costs, held = np.zeros(len(ask.starts)), 0.0
    for block in table.blocks():
        held += float(block.counts.sum())
        costs += block.counts @ clustering.nearest_of_each(block.rows, ask.starts)
    return MeanCosts(np.asarray(held), costs / max(held, 1e-300))


class FeatureGram(Reply, content="grams"):
    """The upper triangle of [1, phi]'[1, phi], row by row."""

    packed: Floats = array("size", dtype="{precision}", bound="rows * (1 + box**2)")


class SendFeatureGram(Request[FeatureGram], doing="summing products of features"):
    """Sum up the products of your rows' features, and the features themselves."""

    size: int
    n: int
    precision: str


@answers(SendFeatureGram)
def local_feature_gram(table: Table, memory: Memory, ask: SendFeatureGram) -> FeatureGram:
    if ask.size != ask.n * (ask.n + 1) // 2 or ask.n != len(table.columns) + 1:
        raise MalformedMessage(f"a triangle of {ask.n} rows has not {ask.size} numbers")
    gram = np.zeros((ask.n, ask.n))
    within = within_scatter(table)
    gram[1:, 1:] = 0.0 if within is None else within
    for block in table.blocks():
        wide = np.concatenate([np.ones((len(block.rows), 1)), block.rows], axis=1)
        gram += (wide * block.counts[:, None]).T @ wide
    return FeatureGram(triangle(gram))
