"""How many clusters: all numbers of clusters are judged in one round, from cells that are summed up once.

The cells of the largest number of clusters are a summary of all rows, which the server clusters as often as it likes.
Sites split their rows into two halves by a public hash of their values: the summary of a half is clustered by itself,
and a number of clusters is stable if both halves give the same clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from coterie.errors import InputError, MalformedMessage
from coterie.maths import clustering, exact, separation
from coterie.messages.schema import Floats, Integers, Reply, Request, array
from coterie.messages.site_api import Memory, Rows, Table, answers, within_columns
from coterie.messages.verbs import Protocol, total
from coterie.methods.shared.prepared import Spread
from coterie.methods.shared.starts import Points, Split, cells_and_places

SMALLEST, LARGEST, MOST = 2, 15, 100
"""The numbers of clusters that are judged where nobody says which, and the largest that can be."""
HALVES = 2
STABLE = 0.8
"""The least adjusted Rand index of two halves that supports a number of clusters."""
ERRORS = 2.0
"""So many deviations of rows without clusters are the error of a gap."""
STARTS = 10
"""Starts of k-means from which the clusters of a summary are the best."""


class HalfSums(Reply, content="sums"):
    """Per half of a site's rows and per point the number of the rows nearest to it, and their sum about an origin."""

    counts: Floats = array(HALVES, "points", bound="rows", nonnegative=True)
    sums: Floats = array(HALVES, "points", "d", bound="rows * (box[d] + origin[d])")


class SumHalves(Request[HalfSums], doing="summing up two halves of the rows"):
    """Put every row to its nearest point, apart for each half of the rows; the values of a row and the seed say to
    which half it belongs. Sums are taken about ``origin`` to keep their digits."""

    seed: int
    origin: Floats = array("d")
    points: Floats = array("points", "d")


@answers(SumHalves)
def local_half_sums(table: Table, memory: Memory, ask: SumHalves) -> HalfSums:
    reply = HalfSums.zeros(ask.axes)
    for block in table.blocks():
        cells = clustering.nearest(block.rows, ask.points)[0] + len(ask.points) * halves_of(block.rows, ask.seed)
        counts = clustering.counts_by_cell(cells, block.counts, HALVES * len(ask.points))
        sums = clustering.sums_by_cell(block.rows - ask.origin, cells, block.counts, HALVES * len(ask.points))
        reply += HalfSums(counts.reshape(HALVES, -1), sums.reshape(HALVES, *ask.points.shape))
    return reply


def halves_of(rows: Rows, seed: int) -> Integers:
    """For every row 0 or 1, by its values in single precision: the same at every site and in every order."""
    hashes = clustering.row_hashes(rows.astype(np.float32).astype(np.float64))
    factor = np.random.default_rng([seed, 5]).integers(1, 1 << 63, dtype=np.uint64) | np.uint64(1)
    hashes ^= hashes >> np.uint64(33)
    return np.asarray((hashes * factor) >> np.uint64(63), np.int64)


class Ratings(Reply, content="sums"):
    """Per candidate the rows of its clusters, their squared distances and silhouettes; and the rows by the clusters
    of both halves."""

    counts: Floats = array("all", bound="rows", nonnegative=True)
    costs: Floats = array("candidates", bound="rows * d * (box + centers)**2", nonnegative=True)
    silhouettes: Floats = array("candidates", bound="rows", nonnegative=True)
    pairs: Floats = array("pairs", bound="rows", nonnegative=True)


class RateCandidates(Request[Ratings], doing="judging numbers of clusters"):
    """Put every row to the nearest center of each candidate; and to those of its two halves, as pairs.

    Candidate ``i`` has ``sizes[i]`` centers. ``pairs`` is the sum of the sizes' squares.
    """

    pairs: int
    sizes: Integers = array("candidates", dtype="int32")
    centers: Floats = array("all", "d")
    first: Floats = array("all", "d")
    second: Floats = array("all", "d")


@answers(RateCandidates)
def local_ratings(table: Table, memory: Memory, ask: RateCandidates) -> Ratings:
    """Silhouettes are those of what the site shows: a group's mean has one, and counts as often as its rows.

    Rows of a group vary about its mean; adding this to both distances would blur clusters that groups tell apart.
    """
    _check_sizes(ask)
    reply = Ratings.zeros(ask.axes)
    ends = np.cumsum(ask.sizes)[:-1]
    for block in table.blocks():
        own, first, second = (
            np.split(_squared(block.rows, centers), ends, axis=1) for centers in (ask.centers, ask.first, ask.second)
        )
        near = [separation.two_nearest(squared) for squared in own]
        pairs = [
            separation.pair_counts(one.argmin(axis=1), two.argmin(axis=1), one.shape[1], block.counts)
            for one, two in zip(first, second, strict=True)
        ]
        sizes = zip(near, ask.sizes.tolist(), strict=True)
        reply += Ratings(
            np.concatenate([clustering.counts_by_cell(part.labels, block.counts, size) for part, size in sizes]),
            np.array([np.maximum(part.own, 0.0) @ block.counts for part in near]),
            np.array([separation.silhouettes(part) @ block.counts for part in near]),
            np.concatenate(pairs),
        )
    return Ratings(reply.counts, reply.costs + within_columns(table).sum(), reply.silhouettes, reply.pairs)


def _check_sizes(ask: RateCandidates) -> None:
    sizes = ask.sizes.tolist()
    if not sizes or min(sizes) < 1 or sum(sizes) != len(ask.centers) or sum(k * k for k in sizes) != ask.pairs:
        raise MalformedMessage(f"{len(ask.centers)} centers and {ask.pairs} pairs are not those of {sizes} clusters")


def _squared(rows: Rows, centers: Floats) -> Floats:
    """Squared distances in double precision; slightly negative ones may occur."""
    middle = centers.mean(axis=0)
    near, far = rows - middle, centers - middle
    return np.asarray(np.vecdot(near, near)[:, None] - 2 * (near @ far.T) + np.vecdot(far, far))


CHOOSING = (Split, SumHalves, RateCandidates)
"""What is asked to choose a number of clusters."""


class Support(StrEnum):
    """Whether the number of clusters with the largest silhouette is supported, or why not."""

    SUPPORTED = "supported"
    UNSTABLE = "unstable"
    NO_GAP = "no gap"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class Choice:
    """What is known of each number of clusters, and which one is recommended."""

    ks: Integers
    """The numbers of clusters, in order."""
    costs: Floats
    """The squared distances from the candidate's centers; over groups at most so much."""
    silhouettes: Floats
    """The mean simplified silhouette of what sites show: rows, or means of groups, whose silhouettes are larger."""
    gaps: Floats
    """How much farther the logarithm of the cost falls from that of one cluster than for rows without clusters."""
    gap_errors: Floats
    stabilities: Floats
    """The adjusted Rand index of the clusters of two halves of the rows."""
    support: Support
    best: int
    """The number of clusters with the largest silhouette."""
    n_rows: float
    centers: Floats
    """The candidates' centers one after the other, in prepared units."""
    counts: Floats
    """The rows nearest to each of them."""

    @property
    def recommended(self) -> int | None:
        """The number of clusters that is recommended, if one is."""
        return self.best if self.support is Support.SUPPORTED else None

    def centers_of(self, k: int) -> Floats:
        """The centers of the candidate with so many clusters."""
        place = self.ks.tolist().index(k)
        first = int(self.ks[:place].sum())
        return np.asarray(self.centers[first : first + k])


def supported_by(stability: float, gap: float, error: float) -> Support:
    """Whether the number of clusters with the largest silhouette is supported; decided alike on every machine."""
    if round(float(stability), 9) < STABLE:
        return Support.UNSTABLE
    return Support.SUPPORTED if round(float(gap - error), 9) > 0 else Support.NO_GAP


def verdict(choice: Choice) -> str:
    """What is recommended, or why nothing is, in a sentence."""
    best, place = choice.best, choice.ks.tolist().index(choice.best)
    gap = f"gap {choice.gaps[place]:.3g}, error {choice.gap_errors[place]:.2g}"
    largest = f"{best} has the largest silhouette ({choice.silhouettes[place]:.3g})"
    agreement = f"adjusted Rand index {choice.stabilities[place]:.2f}"
    match choice.support:
        case Support.SUPPORTED:
            return (
                f"{best} clusters are supported: {largest}, two halves of the rows agree on them ({agreement}), and "
                f"the cost falls farther than that of rows without clusters ({gap})."
            )
        case Support.UNSTABLE:
            return (
                f"No number of clusters is supported: {largest}, but two halves of the rows do not agree on its "
                f"clusters ({agreement}, below {STABLE:g})."
            )
        case Support.NO_GAP:
            return (
                f"No number of clusters is supported: {largest}, but its cost falls no farther than that of rows "
                f"without clusters ({gap})."
            )
    return f"{largest}. No number is recommended for clusters of a kernel's features: it depends on gamma there."


class NoneSupported(InputError):
    """No number of clusters is supported by the rows; ``choice`` says what is known of each."""

    def __init__(self, choice: Choice) -> None:
        super().__init__(f"{verdict(choice)} Say how many you want, n_clusters=K; choose_k shows all numbers.")
        self.choice = choice


def choose_k(ks: Sequence[int], spread: Spread, *, seed: int, judged: bool = True) -> Protocol[Choice]:
    """Candidates for all these numbers of clusters, and how well each is supported by all rows.

    The rounds of a start with the largest number of clusters, and two more: one sums up halves, one judges all
    candidates. Unless it is ``judged`` no number is recommended.
    """
    cells, near = yield from cells_and_places(max(ks), spread, seed=seed)
    points = np.concatenate([cells.points, near.points])
    halves = yield from total(SumHalves(seed, spread.mean, points))
    whole = _means(halves.sums.sum(axis=0), halves.counts.sum(axis=0), spread.mean, points)
    parts = [_means(*half, spread.mean, points) for half in zip(halves.sums, halves.counts, strict=True)]
    centers, first, second = (np.concatenate([_centers(part, k, seed) for k in ks]) for part in (whole, *parts))
    sizes = np.array(ks, np.int64)
    ratings = yield from total(RateCandidates(int((sizes**2).sum()), sizes, centers, first, second))
    return _choice(sizes, ratings, centers, whole, spread, seed, judged)


def _means(sums: Floats, counts: Floats, origin: Floats, points: Floats) -> Points:
    return Points(origin + clustering.means(sums, counts, fallback=points - origin), counts)


def _centers(summary: Points, k: int, seed: int) -> Floats:
    held = summary.weights > 0
    if not held.any():
        return np.resize(summary.points, (k, summary.points.shape[1]))
    return clustering.best_centers(summary.points[held], summary.weights[held], k, seed=seed, n_init=STARTS).centers


def _choice(
    sizes: Integers, ratings: Ratings, centers: Floats, whole: Points, spread: Spread, seed: int, judged: bool
) -> Choice:
    n_rows, ks = float(spread.rows), tuple(sizes.tolist())
    tables = np.split(ratings.pairs, np.cumsum(sizes**2)[:-1])
    stabilities = np.array(
        [separation.adjusted_rand(pairs.reshape(k, k)) for pairs, k in zip(tables, ks, strict=True)]
    )
    silhouettes = ratings.silhouettes / n_rows
    one = n_rows * float((spread.deviation**2).sum())
    variances, rest = box_variances(whole, spread, 2 * max(ks))
    expected = separation.reference_costs(variances, rest, ks, seed=seed)
    gaps = expected.mean - np.log(np.maximum(ratings.costs, 1e-300) / max(one, 1e-300))
    errors = ERRORS * expected.deviation * np.sqrt(1 + 1 / separation.REFERENCES)
    place = int(np.argmax(np.round(silhouettes, 9)))
    support = supported_by(stabilities[place], gaps[place], errors[place]) if judged else Support.NOT_JUDGED
    return Choice(
        sizes,
        ratings.costs,
        silhouettes,
        gaps,
        errors,
        stabilities,
        support,
        ks[place],
        n_rows,
        centers,
        ratings.counts,
    )


def box_variances(summary: Points, spread: Spread, most: int) -> tuple[tuple[float, ...], float]:
    """The variances of rows along the leading axes of their summary, and what is left of their whole variance.

    What columns vary within cells is spread over the axes as each column takes part in them.
    """
    weights = summary.weights / summary.weights.sum()
    away = summary.points - (weights[:, None] * summary.points).sum(axis=0)
    within = np.maximum(spread.deviation**2 - (weights[:, None] * away * away).sum(axis=0), 0.0)
    scaled = np.sqrt(weights)[:, None] * away
    count = min(most, *scaled.shape)
    is_wide = scaled.shape[1] > scaled.shape[0]
    gram = exact.product(scaled, scaled.T) if is_wide else exact.product(scaled.T, scaled) + np.diag(within)
    values, vectors = exact.leading_eigenpairs(gram, count)
    if is_wide:
        clear = values > 1e-12 * max(float(values[0]), 1e-300)
        axes = exact.product(scaled.T, vectors[:, clear]) / np.sqrt(values[clear])
        values = values[clear] + exact.product((axes * axes).T, within)
    kept = np.maximum(values, 0.0)
    rest = max(float((spread.deviation**2).sum()) - float(kept.sum()), 0.0)
    return tuple(kept.tolist()), rest
