"""Federated k-means: Algorithm 1 of Triebe & Rajagopal (2019), with sampled sites, local epochs, mini-batches, rates
at both ends, momentum and reassignment.

Gamma are the centers, Lambda the sizes; the parameters give the paper's other letters. A site answers sizes times
centers, and sizes, so that every setting works with sums. With C=1, E=1, B=all and both rates 1 it is Lloyd's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError, MalformedMessage
from coterie.extents import is_over
from coterie.maths import clustering
from coterie.messages.schema import Floats, Integers, Reply, Request, array
from coterie.messages.site_api import Block, Memory, Table, answers
from coterie.messages.verbs import Protocol, present, total
from coterie.methods.kmeans.chosen import AUTO, kmeans_of_chosen
from coterie.methods.kmeans.lloyd import KMeansSettings
from coterie.methods.kmeans.private import private_kmeans
from coterie.methods.method import COUNT_OR_NONE, Method, PrivateSettings, RunContext
from coterie.methods.shared.choosing import CHOOSING, LARGEST, SMALLEST
from coterie.methods.shared.lloyd import Close, KMeansFit, block_moments, closed
from coterie.methods.shared.preparation import spread
from coterie.methods.shared.prepared import Spread
from coterie.methods.shared.private_subspace import Box
from coterie.methods.shared.private_sums import PRIVATE
from coterie.methods.shared.restarts import JUDGED, n_init_parameter
from coterie.methods.shared.starts import Split, Summarise
from coterie.parameters import Allowed, parameter

MAX_EPOCHS = 1000
"""The most passes a site makes over its rows in one round, so that one question cannot occupy it for long."""

WINDOW_ROWS = 1 << 16
"""Mini-batches are shuffled among at least this many rows at a time; a smaller table is shuffled as a whole."""


class WeightedCenters(Reply, content="sums"):
    """A site's centers times their sizes, and the sizes, after its last epoch."""

    weighted: Floats = array("k", "d", bound="rows * (box[d] + centers[d])")
    sizes: Floats = array("k", bound="rows", nonnegative=True)


class Train(Request[WeightedCenters], doing="training centers at the sites"):
    """ClientKMeans: move these centers over your rows for some epochs."""

    epochs: int
    batch_size: int
    """Rows a mini-batch, a row of weight 2 being two; 0 is all of them."""
    site_rate: float
    seed: int
    step: int
    centers: Floats = array("k", "d")


@answers(Train)
def local_weighted_centers(table: Table, memory: Memory, ask: Train) -> WeightedCenters:
    """ClientKMeans(i, Gamma) of Algorithm 1. An empty cluster's center stays; sizes are those of the last epoch."""
    if not 1 <= ask.epochs <= MAX_EPOCHS or not 0 < ask.site_rate <= 1:
        raise MalformedMessage(f"epochs={ask.epochs}, site_rate={ask.site_rate}: no such training")
    centers, sizes = ask.centers.copy(), np.zeros(ask.axes["k"])
    for epoch in range(ask.epochs):
        sizes = np.zeros(ask.axes["k"])
        for batch in _batches(table, ask, epoch):
            m = block_moments(batch, centers)
            sizes = sizes + m.counts
            share = np.divide(m.counts, sizes, out=np.zeros_like(sizes), where=sizes > 0)
            goal = clustering.means(m.sums, m.counts, fallback=centers)
            centers = _moved(centers, goal, ask.site_rate * share[:, None])
    return WeightedCenters(sizes[:, None] * centers, sizes)


def _moved(centers: Floats, goal: Floats, rate: Floats | float) -> Floats:
    """Centers moved towards their goal; at rate 1 exactly onto it, without a rounding error on the way."""
    if np.all(np.equal(rate, 1.0)):
        return goal
    return np.where(np.equal(rate, 1.0), goal, centers + rate * (goal - centers))


def _batches(table: Table, ask: Train, epoch: int) -> Iterator[Iterator[Block]]:
    """The rows as one batch, or as mini-batches in an order all ends can recompute."""
    if ask.batch_size <= 0:
        yield table.blocks()
        return
    rng = np.random.default_rng([ask.seed, ask.step, epoch])
    for window in _windows(table, ask.batch_size):
        for start in rng.permutation(np.arange(0, window.length, ask.batch_size)):
            yield iter([window.between(start, start + ask.batch_size)])


class _Window:
    """Rows laid end to end, each as long as it counts: a cut between batches may share a row out to both."""

    def __init__(self, blocks: list[Block]) -> None:
        self._rows = np.concatenate([block.rows for block in blocks])
        self._counts = np.concatenate([block.counts for block in blocks])
        self._ends = np.cumsum(self._counts)

    @property
    def length(self) -> float:
        """What all rows count."""
        return float(self._ends[-1]) if len(self._ends) else 0.0

    def between(self, start: float, stop: float) -> Block:
        """The rows from one place to another."""
        part = slice(np.searchsorted(self._ends, start, "right"), np.searchsorted(self._ends, stop) + 1)
        ends = self._ends[part]
        return Block(self._rows[part], np.minimum(ends, stop) - np.maximum(ends - self._counts[part], start))


def _windows(table: Table, batch_size: int) -> Iterator[_Window]:
    """The rows in windows of whole batches, so that the table may exceed memory."""
    whole = -(-WINDOW_ROWS // batch_size) * batch_size
    held: list[Block] = []
    for block in table.blocks():
        held.append(block)
        while sum(float(part.counts.sum()) for part in held) >= whole:
            together = _Window(held)
            yield _Window([together.between(0.0, whole)])
            held = [together.between(whole, together.length)]
    if held:
        yield _Window(held)


@dataclass(frozen=True)
class Reassignment:
    """Small clusters move: below ``share`` of the sampled sites' rows for ``patience`` rounds in a row."""

    low: Floats
    high: Floats
    share: float = 0.01
    patience: int = 20


@dataclass(eq=False, repr=False)
class FederatedSettings(PrivateSettings, KMeansSettings):
    """The parameters of Algorithm 1."""

    n_clusters: Any = parameter(
        8,
        f"How many clusters. ``auto``: the number from {SMALLEST} to {LARGEST} that the rows support, or an error "
        "where they support none; see :func:`coterie.choose_k`.",
        Allowed(AUTO, whole=True, low=1),
    )
    _: KW_ONLY
    init: str | npt.ArrayLike = parameter(
        "auto",
        "Where to start; never a row of a site. ``auto``: cells, and public random places that moved to the rows "
        "near them, clustered apart and together; ``cells``: the means of four cells a cluster, clustered; "
        "``var-part``: the means of as many cells as clusters; ``random``: within two deviations of the mean; "
        "``one-shot``: every site's own centers, clustered (per-site results are seen; the others need sums only). "
        "Or an array of centers.",
        chooses="points",
    )
    n_init: str | int = n_init_parameter()
    fraction: float = parameter(1.0, "C: the share of sites sampled each round.", Allowed(above=0, high=1))
    epochs: int = parameter(
        1, "E: passes a site makes over its rows in a round.", Allowed(whole=True, low=1, high=MAX_EPOCHS)
    )
    batch_size: int | None = parameter(None, "B: rows a mini-batch at the sites; None is all rows.", COUNT_OR_NONE)
    server_rate: float = parameter(
        1.0, "alpha: how far the server moves its centers towards the sites' means.", Allowed(above=0, high=2)
    )
    server_momentum: float = parameter(
        0.0,
        "How much of the last step the server keeps: ``v = momentum * v + (1 - momentum) * step``.",
        Allowed(low=0, below=1),
    )
    site_rate: float = parameter(
        1.0, "beta: how far a site moves its centers towards its batch means.", Allowed(above=0, high=1)
    )
    reassign: bool | tuple[float, int] = parameter(
        False,
        "Move a cluster below a share of the sampled rows for some rounds in a row, (share, rounds), to a random "
        "place within two deviations of the mean. True is the paper's (0.01, 20).",
    )
    max_rounds: int = parameter(100, "T: the most rounds.", Allowed(whole=True, low=0))
    tol: float = parameter(
        1e-4,
        "Stop when the squared shift of all centers is at most ``tol`` times the mean variance of the columns, as "
        "scikit-learn does. Only where every site takes part in every round.",
        Allowed(low=0),
    )

    method = "federated-kmeans"
    used_privately = ("n_clusters",)

    def protocol(self, context: RunContext) -> Protocol[KMeansFit]:
        """A start, and rounds from there; with differential privacy another way."""
        if context.releases is None or context.preparation is None:
            return self._automatic(context) if self.n_clusters == AUTO else super().protocol(context)
        self.check(context.n_columns)
        box = Box(*context.preparation.box)
        return private_kmeans(self.n_clusters, box, context.releases, context.seed)

    def check(self, n_columns: int) -> None:
        """Raise an error if the parameters do not fit tables with ``n_columns`` columns."""
        super().check(n_columns)
        if not isinstance(self.reassign, bool | np.bool_) and np.shape(self.reassign) != (2,):
            raise InputError(f"reassign={self.reassign!r} must be True, False or (share, rounds).")
        if self.n_clusters == AUTO:
            self._check_automatic()

    def _check_automatic(self) -> None:
        for name, allowed in (("init", AUTO), ("n_init", AUTO), ("privacy", None)):
            if not isinstance(getattr(self, name), type(allowed)) or getattr(self, name) != allowed:
                raise InputError(
                    f"n_clusters='auto' does not go with {name}; leave it out, or say how many clusters."
                )

    def _automatic(self, context: RunContext) -> Protocol[KMeansFit]:
        """From the candidate with the number of clusters that is recommended."""
        self.check(context.n_columns)
        columns = context.spread or (yield from spread(context.n_columns))
        return (
            yield from kmeans_of_chosen(
                columns, context.seed, lambda start: self.improve(start, columns, context.seed)
            )
        )

    def ask(self, centers: Floats, seed: int, step: int) -> Train:
        """What sites are asked in one round."""
        return Train(self.epochs, self.batch_size or 0, self.site_rate, seed, step, centers)

    def improve(self, start: Floats, columns: Spread, seed: int) -> Protocol[KMeansFit]:
        """Algorithm 1 from a start."""
        tol, rule = self.tol * float(np.mean(columns.deviation**2)), None
        if self.reassign is not False:
            share, patience = (0.01, 20) if self.reassign is True else self.reassign
            rule = Reassignment(columns.low, columns.high, share, patience)
        return federated_kmeans(start, self, tol=tol, seed=seed, reassignment=rule)


def federated_kmeans(
    centers: Floats,
    settings: FederatedSettings,
    *,
    tol: float = 0.0,
    seed: int = 0,
    reassignment: Reassignment | None = None,
    trajectory: list[Floats] | None = None,
) -> Protocol[KMeansFit]:
    """Algorithm 1 from given centers.

    ``tol`` is a squared shift of all centers at which to stop; it is used only where every site takes part in every
    round, since a sample of sites never stands still. ``trajectory`` collects the centers of every round.
    """
    velocity = np.zeros_like(centers)
    small = np.zeros(len(centers), np.int64)
    rounds = 0
    while rounds < settings.max_rounds:
        rounds += 1
        sampled = yield from _sampled(settings.fraction, seed, rounds)
        reply = yield from total(settings.ask(centers, seed, rounds), to=sampled)
        before, aim = centers, clustering.means(reply.weighted, reply.sizes, fallback=centers)
        if settings.server_momentum:
            velocity = settings.server_momentum * velocity + (1 - settings.server_momentum) * (aim - centers)
            aim = centers + velocity
        centers = _moved(centers, aim, settings.server_rate)
        if reassignment is not None:
            small = np.where(reply.sizes < reassignment.share * reply.sizes.sum(), small + 1, 0)
            centers, velocity, small = _reassigned(centers, velocity, small, reassignment, seed, rounds)
        if trajectory is not None:
            trajectory.append(centers)
        if settings.fraction >= 1 and is_over(clustering.squared_shift(before, centers) <= tol):
            break
    return (yield from closed(centers, rounds))


def _sampled(fraction: float, seed: int, step: int) -> Protocol[Sequence[str] | None]:
    """S_t: m = max(1, int(C M)) of the sites that are there; None is all of them."""
    if fraction >= 1:
        return None
    names = yield from present()
    m = max(1, int(fraction * len(names)))
    chosen = np.random.default_rng([seed, step]).choice(len(names), m, replace=False)
    return [names[i] for i in sorted(chosen)]


def _reassigned(
    centers: Floats, velocity: Floats, small: Integers, rule: Reassignment, seed: int, step: int
) -> tuple[Floats, Floats, Integers]:
    """Move what has been small for too long to a fresh random place in the public box, its momentum reset."""
    moved = (small >= rule.patience)[:, None]
    rng = np.random.default_rng([seed, step, 1])
    places = clustering.random_in_box(rule.low, rule.high, len(centers), rng)
    return np.where(moved, places, centers), np.where(moved, 0.0, velocity), np.where(moved[:, 0], 0, small)


METHOD = Method(
    "federated-kmeans",
    "Federated k-means: sampled sites, local epochs, rates (Triebe & Rajagopal 2019)",
    (Train, Close, Split, *JUDGED, Summarise, *CHOOSING, *PRIVATE),
    "k(d+1) a round from each sampled site and k+1 to close; start: at most 4k(2d+1) + 16k(d+1) a round, then at "
    "most 8k(d+1) a round while starts are compared; one-shot start: k(d+1)",
    "per cluster the sum and number of rows, over the sampled sites; with a one-shot start each site's centers",
    optional="only with a one-shot start",
    settings=(FederatedSettings,),
    use="for k-means clusters: the default",
)
