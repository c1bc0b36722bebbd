"""Federated k-means: Algorithm 1 of Triebe & Rajagopal (2019), "Federated k-means: clustering algorithm and proof of
concept", whole: sampled sites, local epochs, mini-batches, rates at both ends, momentum, reassignment.

Letters of the paper: C ``fraction``, E ``epochs``, B ``batch_size``, alpha ``server_rate`` (and ``server_momentum``),
beta ``site_rate``, T ``max_rounds``, Gamma the centers, Lambda the sizes. A site answers sizes times centers, and
sizes, so that every setting works with sums. With C=1, E=1, B=all and both rates 1 it is Lloyd's algorithm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from coterie.errors import Guarded, InputError, MalformedMessage, Repeated, RunError
from coterie.maths import clustering
from coterie.messages.schema import Floats, Integers, Reply, Request, array
from coterie.messages.site_part import Block, Memory, Table, answers
from coterie.messages.verbs import Protocol, present, total
from coterie.protocols.cells import GuardedCells
from coterie.protocols.costs import Cost, exchange_cost
from coterie.protocols.lloyd import KMeansFit, Sizes, closed, lloyd_cost
from coterie.protocols.prepared import Spread
from coterie.protocols.seeding import Start, cells_start, one_shot, random_start, var_part

__all__ = [
    "Reassignment",
    "Settings",
    "Train",
    "WeightedCenters",
    "choose_start",
    "federated_kmeans",
    "federated_kmeans_cost",
]

MAX_EPOCHS = 1000
"""The most passes a site makes over its rows in one round; whoever asks for more keeps it from everyone else."""

WINDOW_ROWS = 1 << 16
"""Mini-batches are shuffled among at least this many rows at a time; a smaller table is shuffled as a whole."""


@dataclass(frozen=True)
class WeightedCenters(Reply, content="sums"):
    """A site's centers times their sizes, and the sizes, after its last epoch."""

    weighted: Floats = array("k", "d", bound="4 * rows * box")
    sizes: Floats = array("k", bound="rows", nonnegative=True)


@dataclass(frozen=True)
class Train(Request[WeightedCenters]):
    """ClientKMeans: move these centers over your rows for some epochs."""

    epochs: int
    batch_size: int
    """Rows a mini-batch; 0 is all of them."""
    site_rate: float
    seed: int
    step: int
    centers: Floats = array("k", "d")


@answers(Train)
def local_weighted_centers(table: Table, memory: Memory, ask: Train) -> WeightedCenters:
    """ClientKMeans(i, Gamma) of Algorithm 1. An empty cluster's center stays; sizes are those of the last epoch."""
    if not 1 <= ask.epochs <= MAX_EPOCHS or not 0 < ask.site_rate <= 1:
        raise MalformedMessage(f"epochs={ask.epochs}, site_rate={ask.site_rate}: no such training")
    if memory.guard is not None and ask.site_rate < 1 and (ask.epochs > 1 or ask.batch_size > 0):
        raise Guarded("centers that keep part of an earlier batch tell of cells no guard has seen; use site_rate = 1")
    centers, sizes = ask.centers.copy(), np.zeros(ask.axes["k"])
    watched: GuardedCells | None = None
    for epoch in range(ask.epochs):
        sizes = np.zeros(ask.axes["k"])
        if memory.guard is not None and epoch == ask.epochs - 1:
            watched = GuardedCells(memory.guard, ask.centers)
        for batch in _batches(table, ask, epoch):
            m = _moments(batch, centers, watched)
            sizes = sizes + m.counts
            share = np.divide(m.counts, sizes, out=np.zeros_like(sizes), where=sizes > 0)
            goal = clustering.means(m.sums, m.counts, fallback=centers)
            centers = _moved(centers, goal, ask.site_rate * share[:, None])
    if watched is not None:
        centers, sizes = _released(watched, centers)
    return WeightedCenters(sizes[:, None] * centers, sizes)


def _moved(centers: Floats, goal: Floats, rate: Floats | float) -> Floats:
    """Centers moved towards their goal; at rate 1 exactly onto it, without a rounding error on the way."""
    return np.where(np.equal(rate, 1.0), goal, centers + rate * (goal - centers))


def _moments(batch: Iterator[Block], centers: Floats, watched: GuardedCells | None) -> clustering.Moments:
    """Moments of one batch, which may come in several blocks or, at a site without rows, in none."""
    sums, counts, cost = np.zeros(centers.shape), np.zeros(len(centers)), np.zeros(())
    for block in batch:
        labels, squared = clustering.nearest(block.rows, centers)
        if watched is not None:
            watched.see(block, labels)
        part = clustering.moments_of(block.rows, labels, squared, len(centers), block.weights)
        sums, counts, cost = sums + part.sums, counts + part.counts, cost + part.cost
    return clustering.Moments(sums, counts, cost)


def _released(cells: GuardedCells, centers: Floats) -> tuple[Floats, Floats]:
    """The trained centers and their sizes; in place of a cell that is held back, what its guard sends for it."""
    found, sent = cells.moments, cells.released()
    is_own = (sent.counts == found.counts) & (sent.means == found.means).all(axis=1)
    return np.where(is_own[:, None], centers, sent.means), sent.counts


def _batches(table: Table, ask: Train, epoch: int) -> Iterator[Iterator[Block]]:
    """The rows as one batch, or as mini-batches in an order all ends can recompute."""
    if ask.batch_size <= 0:
        yield table.blocks()
        return
    rng = np.random.default_rng([ask.seed, ask.step, epoch])
    for window in _windows(table, ask.batch_size):
        starts = np.arange(0, len(window.rows), ask.batch_size)
        for start in rng.permutation(starts):
            yield iter([_part(window, start, start + ask.batch_size)])


def _part(block: Block, start: int, stop: int) -> Block:
    """Some of a block's rows."""
    return Block(*[None if part is None else part[start:stop] for part in block])  # type: ignore[arg-type]


def _windows(table: Table, batch_size: int) -> Iterator[Block]:
    """The rows in windows of whole batches, so that the table may exceed memory."""
    whole = -(-WINDOW_ROWS // batch_size) * batch_size
    held: list[Block] = []
    start = 0
    for block in table.blocks():
        places = np.arange(start, start + len(block.rows)) if block.places is None else block.places
        held.append(Block(block.rows, block.counts, places))
        start += len(block.rows)
        if sum(len(one.rows) for one in held) >= whole:
            together = _joined(held)
            yield _part(together, 0, whole)
            held = [_part(together, whole, len(together.rows))]
    if sum(len(one.rows) for one in held):
        yield _joined(held)


def _joined(blocks: list[Block]) -> Block:
    return Block(*map(np.concatenate, zip(*blocks, strict=True)))


# ---------------------------------------------------------------- the server's part


@dataclass(frozen=True)
class Reassignment:
    """Small clusters move: below ``share`` of the sampled sites' rows for ``patience`` rounds in a row."""

    low: Floats
    high: Floats
    share: float = 0.01
    patience: int = 20


@dataclass(frozen=True)
class Settings:
    """The knobs of Algorithm 1."""

    fraction: float = 1.0
    epochs: int = 1
    batch_size: int | None = None
    server_rate: float = 1.0
    server_momentum: float = 0.0
    site_rate: float = 1.0
    max_rounds: int = 100

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "max_rounds"):
            if isinstance(getattr(self, name), bool | str | float):
                raise InputError(f"{name}={getattr(self, name)!r} must be a whole number.")
        for name, low, high in (("fraction", 0, 1), ("server_rate", 0, 2), ("site_rate", 0, 1)):
            if not low < getattr(self, name) <= high:
                raise InputError(f"{name}={getattr(self, name)} must be above {low} and at most {high}.")
        if not 0 <= self.server_momentum < 1:
            raise InputError(f"server_momentum={self.server_momentum} must be at least 0 and below 1.")
        for name, value in (("epochs", self.epochs), ("batch_size", self.batch_size)):
            if value is not None and value < 1:
                raise InputError(f"{name}={value} must be at least 1.")
        if self.epochs > MAX_EPOCHS:
            raise InputError(f"epochs={self.epochs} must be at most {MAX_EPOCHS}.")
        if self.max_rounds < 0:
            raise InputError(f"max_rounds={self.max_rounds} cannot be negative.")

    @property
    def is_lloyd(self) -> bool:
        """Whether a round is one of Lloyd's algorithm over all sites."""
        steps = (self.fraction, self.epochs, self.batch_size or 0, self.server_rate, self.site_rate)
        return steps == (1.0, 1, 0, 1.0, 1.0) and not self.server_momentum

    @staticmethod
    def sizes_after(known: Sizes | None, sizes: Floats, moved: Floats) -> Sizes | None:
        """The sizes after a round of Lloyd's algorithm, and the cost at most.

        Moving the centers onto the means of their cells takes sizes times squared shifts off the cost, and putting
        rows to the nearest ones cannot add to it.
        """
        return None if known is None else Sizes(sizes, np.maximum(known.cost - sizes @ np.vecdot(moved, moved), 0.0))

    def ask(self, centers: Floats, seed: int, step: int) -> Train:
        """What sites are asked in one round."""
        return Train(self.epochs, self.batch_size or 0, self.site_rate, seed, step, centers)


def federated_kmeans(
    centers: Floats,
    settings: Settings,
    *,
    tol: float = 0.0,
    seed: int = 0,
    reassignment: Reassignment | None = None,
    trajectory: list[Floats] | None = None,
    known: Sizes | None = None,
) -> Protocol[KMeansFit]:
    """Algorithm 1 from given centers.

    ``tol`` is a squared shift of all centers at which to stop; it is used only where every site takes part in every
    round, since a sample of sites never stands still. ``trajectory`` collects the centers of every round. ``known``
    are the sizes and the cost at the start: with them Lloyd's steps also end well where a site is lost while cells
    stand still, and the others do not tell of them without it.
    """
    known = known if settings.is_lloyd and reassignment is None else None
    velocity = np.zeros_like(centers)
    small = np.zeros(len(centers), np.int64)
    rounds, been = 0, [centers]
    while rounds < settings.max_rounds:
        sampled = yield from _sampled(settings.fraction, seed, rounds + 1)
        try:
            reply = yield from total(settings.ask(centers, seed, rounds + 1), to=sampled)
        except Repeated:
            if known is None:
                raise
            break
        rounds += 1
        goal = clustering.means(reply.weighted, reply.sizes, fallback=centers)
        known = settings.sizes_after(known, reply.sizes, goal - centers)
        velocity = settings.server_momentum * velocity + (1 - settings.server_momentum) * (goal - centers)
        aim = goal if settings.server_momentum == 0 else centers + velocity
        centers = _moved(centers, aim, settings.server_rate)
        if reassignment is not None:
            small = _count_small(reply.sizes, small, reassignment)
            centers, velocity, small = _reassigned(centers, velocity, small, reassignment, seed, rounds)
        if trajectory is not None:
            trajectory.append(centers)
        if settings.fraction >= 1 and clustering.has_been_at(centers, been, tol):
            break
        been = [*been, centers] if settings.server_momentum == 0 else [centers]
    return (yield from closed(centers, rounds, known))


def _sampled(fraction: float, seed: int, step: int) -> Protocol[Sequence[str] | None]:
    """S_t: m = max(1, int(C M)) of the sites that are there; None is all of them."""
    if fraction >= 1:
        return None
    names = yield from present()
    m = max(1, int(fraction * len(names)))
    chosen = np.random.default_rng([seed, step]).choice(len(names), m, replace=False)
    return [names[i] for i in sorted(chosen)]


def _count_small(sizes: Floats, small: Integers, rule: Reassignment) -> Integers:
    is_small = sizes < rule.share * sizes.sum()
    return np.where(is_small, small + 1, 0)


def _reassigned(
    centers: Floats, velocity: Floats, small: Integers, rule: Reassignment, seed: int, step: int
) -> tuple[Floats, Floats, Integers]:
    """Move what has been small for too long to a fresh random place in the public box, its momentum reset."""
    moved = (small >= rule.patience)[:, None]
    rng = np.random.default_rng([seed, step, 1])
    places = clustering.random_in_box(rule.low, rule.high, len(centers), rng)
    return np.where(moved, places, centers), np.where(moved, 0.0, velocity), np.where(moved[:, 0], 0, small)


def choose_start(
    init: str | Floats, n_clusters: int, spread: Spread, *, seed: int, min_count: int = 1
) -> Protocol[Start]:
    """Starting centers by name, never a row of a site.

    ``"auto"`` is one-shot where every site lets its averages be seen, else cells by sums.
    """
    d = len(spread.mean)
    if not isinstance(init, str):
        return Start(np.array(init, np.float64))
    if init == "random":
        return Start(random_start(spread.low, spread.high, n_clusters, seed=seed))
    if init == "var-part":
        return (yield from var_part(n_clusters, d, about=spread))
    if init == "cells":
        return (yield from cells_start(n_clusters, d, seed=seed, about=spread))
    if init == "one-shot":
        return Start((yield from one_shot(n_clusters, d, seed=seed, min_count=min_count)))
    if init != "auto":
        raise InputError(f"init={init!r} is none of auto, one-shot, cells, var-part, random, nor centers.")
    try:
        return Start((yield from one_shot(n_clusters, d, seed=seed, min_count=min_count, complete=True)))
    except (RunError, InputError):
        return (yield from cells_start(n_clusters, d, seed=seed, about=spread))


def federated_kmeans_cost(
    n_sites: int, k: int, d: int, rounds: int, settings: Settings, *, method: str = "federated-kmeans"
) -> Cost:
    """k(d+1) numbers from each of the m sampled sites a round, and k+1 from every site to close."""
    m = n_sites if settings.fraction >= 1 else max(1, int(settings.fraction * n_sites))
    ask = settings.ask(np.zeros((k, d)), 0, 0)
    one = exchange_cost(m, floats=k * (d + 1), float_bytes=8, request=ask, method=method)
    return one * rounds + lloyd_cost(n_sites, k, d, 0, method=method)
