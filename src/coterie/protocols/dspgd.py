"""Kernel principal components by distributed stochastic proximal gradient descent, after "A communication efficient
federated kernel k-means".

Letters of the paper: T ``n_iter``, D ``n_features``, s ``n_components``, lambda ``threshold``, eta_t ``step``; A_t
the features of iteration t, drawn at the sites from (seed, t); B_t what a site keeps; W_t = [sqrt(eta_t / D) A_t,
sqrt(1 - eta_t) B_t]. With the communication-efficient mechanism (section 4.2) sites are asked about W_t' W_t, a
matrix of r_t + D rows however many rows of data there are: products with it one by one (the paper's Lanczos), or the
whole of it at once (the Gram exchange, ours).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from coterie.errors import Guarded, InputError, MalformedMessage, RosterChanged
from coterie.maths.features import FeatureMap, draw_features
from coterie.maths.kernels import Kernel, average_distance_gamma
from coterie.maths.spectra import Ritz, eigenpairs_above, full_matrix, triangle
from coterie.messages.schema import Floats, Nothing, Reply, Request, array
from coterie.messages.site_part import Block, Column, Memory, Rows, Table, answers, remembers
from coterie.messages.verbs import Protocol, present, total
from coterie.protocols.lanczos import top_eigenpairs

__all__ = [
    "Advance",
    "BeginKernel",
    "DSPGDSettings",
    "EmbeddedTable",
    "Embedding",
    "Multiply",
    "SendGram",
    "SumFeatures",
    "SumLengths",
    "dspgd",
    "embedded",
    "find_gamma",
]

MOST_FEATURES = 1 << 14
"""The most features a site makes of its rows at once."""
PIECE_BYTES = 16 << 20
"""Features are made for so many rows at a time."""
KEPT_BYTES = 64 << 20
"""Features of one iteration are kept for its next question where they fit into this."""
NONE = 1e-20
"""Eigenvalues below are what rounding leaves where all rows are equal."""
AFRESH = 1 << 20
"""Draws of features are numbered by iteration; an iteration begun again takes a number no other has."""
ROUND_NUMBERS = 1000
"""What a round costs beside the numbers it carries, in numbers: for ``solver="auto"``."""


# ---------------------------------------------------------------- gamma by sums


@dataclass(frozen=True)
class Lengths(Reply, content="sums"):
    """The number of rows, their sum, and the sum of their squared lengths."""

    rows: Floats = array(bound="rows", nonnegative=True)
    sums: Floats = array("d", bound="rows * box")
    squares: Floats = array(bound="rows * d * box**2", nonnegative=True)


@dataclass(frozen=True)
class SumLengths(Request[Lengths]):
    """Sum up your rows and their squared lengths."""

    d: int


@answers(SumLengths)
def local_lengths(table: Table, memory: Memory, ask: SumLengths) -> Lengths:
    """A site's share."""
    reply = Lengths.zeros(ask.axes)
    watched = None if memory.guard is None else memory.guard.cells(1)
    for block in table.blocks():
        rows = block.rows.astype(np.float64, copy=False)
        each = np.ones(len(rows)) if block.weights is None else block.weights
        reply += Lengths(each.sum(), each @ rows, np.asarray(each @ np.vecdot(rows, rows)))
        if watched is not None:
            watched.see(block, np.zeros(len(rows), np.intp))
    return reply if watched is None or watched.release_whole() else Lengths.zeros(ask.axes)


def find_gamma(n_columns: int, *, needed: bool = True) -> Protocol[tuple[float, float]]:
    """gamma from the mean squared distance between rows, and N: one round, d + 2 numbers a site.

    Where gamma is not ``needed`` only N counts, and 1 is returned for it.
    """
    found = yield from total(SumLengths(n_columns))
    if not float(found.rows) > 0:
        raise InputError("the sites hold 0 rows in all.")
    gamma = average_distance_gamma(float(found.rows), found.sums, float(found.squares)) if needed else 1.0
    return gamma, float(found.rows)


# ---------------------------------------------------------------- what a site keeps


@dataclass(frozen=True)
class BeginKernel(Request[Nothing], remembered=True):
    """From now on there is this kernel; begin with B_1 = 0."""

    kernel: str
    gamma: float
    degree: int
    coef0: float
    n_features: int
    form: str
    precision: str
    seed: int


@dataclass
class _Held:
    """A site's part of the iteration."""

    begin: BeginKernel
    b: Floats
    """B_t: a row for every row of the table."""
    kept: tuple[int, list[Rows]] | None = None
    """The features of one step, where they are small enough to keep."""

    def features(self, n_columns: int, step: int) -> FeatureMap:
        """The map of one step, the same at every site."""
        begin = self.begin
        kernel = Kernel(begin.kernel, begin.gamma, begin.degree, begin.coef0)
        return draw_features(
            kernel, begin.n_features, n_columns, begin.seed, step, form=begin.form, dtype=begin.precision
        )


@remembers(BeginKernel)
def keep_kernel(table: Table, memory: Memory, ask: BeginKernel) -> None:
    """Forget any earlier embedding and begin anew."""
    if ask.precision not in ("float64", "float32") or not 1 <= ask.n_features <= MOST_FEATURES:
        raise MalformedMessage(f"{ask.n_features} features of {ask.precision}: there are none such")
    if isinstance(table, EmbeddedTable):
        memory.table = table = table.raw
    if any(block.weights is not None for block in table.blocks()):
        raise InputError("rows with weights cannot be embedded yet")
    memory["dspgd"] = _Held(ask, np.zeros((table.n_rows, 0)))


@answers(BeginKernel)
def local_start(table: Table, memory: Memory, ask: BeginKernel) -> Nothing:
    """Draw one map, so that what cannot be drawn is found now."""
    _held(memory).features(len(table.columns), 0)
    return Nothing()


def _held(memory: Memory) -> _Held:
    held = memory.get("dspgd")
    if not isinstance(held, _Held):
        raise MalformedMessage("no kernel was begun in this run")
    return held


def _pieces(table: Table, held: _Held, step: int) -> Iterator[tuple[slice, Rows]]:
    """The features of the rows, some rows at a time; kept for the next question where they are small."""
    if held.kept is not None and held.kept[0] == step:
        start = 0
        for features in held.kept[1]:
            yield slice(start, start + len(features)), features
            start += len(features)
        return
    held.kept = None
    drawn, kept = held.features(len(table.columns), step), []
    small = table.n_rows * held.begin.n_features * 8 <= KEPT_BYTES
    start = 0
    for block in table.blocks():
        n_rows = max(1, PIECE_BYTES // (8 * (held.begin.n_features + block.rows.shape[1])))
        for first in range(0, len(block.rows), n_rows):
            features = drawn(block.rows[first : first + n_rows])
            if small:
                kept.append(features)
            yield slice(start, start + len(features)), features
            start += len(features)
    if small:
        held.kept = (step, kept)


def _watch(memory: Memory, step: int) -> None:
    """Let one draw of features be summed up with one roster only: the difference of two is a site's own Gram."""
    guard = memory.guard
    if guard is not None and not guard.allows(f"features {step}", guard.context, 1):
        raise Guarded("these features were summed up with other sites before")


def _parts(table: Table, memory: Memory, step: int, eta: float, means: Floats) -> Iterator[tuple[slice, Floats]]:
    """W_t[m], some rows at a time, in float64: sums are taken of it."""
    held = _held(memory)
    if not 0 < eta <= 1 or means.shape != (held.begin.n_features,):
        raise MalformedMessage(f"eta={eta} with {means.shape} means: no such step")
    root = np.sqrt(eta / held.begin.n_features)
    for rows, features in _pieces(table, held, step):
        centered = root * (features.astype(np.float64, copy=False) - means)
        yield rows, np.concatenate([centered, np.sqrt(1 - eta) * held.b[rows]], axis=1)


# ---------------------------------------------------------------- what a site is asked


@dataclass(frozen=True)
class FeatureSums(Reply, content="sums"):
    """The sum of a site's features, and the number of its rows."""

    sums: Floats = array("features", bound="rows * length * features")
    rows: Floats = array(bound="rows", nonnegative=True)


@dataclass(frozen=True)
class SumFeatures(Request[FeatureSums]):
    """Sum up the features of one step, for centering."""

    features: int
    step: int


@answers(SumFeatures)
def local_feature_sums(table: Table, memory: Memory, ask: SumFeatures) -> FeatureSums:
    """A site's share of the features' mean."""
    _watch(memory, ask.step)
    reply = FeatureSums.zeros(ask.axes)
    for _, features in _pieces(table, _held(memory), ask.step):
        reply += FeatureSums(features.sum(axis=0, dtype=np.float64), np.asarray(float(len(features))))
    return reply


@dataclass(frozen=True)
class Product(Reply, content="grams"):
    """W_t[m]' W_t[m] c."""

    product: Floats = array("n", bound="4 * rows * length")


@dataclass(frozen=True)
class Multiply(Request[Product]):
    """Multiply W_t[m]' W_t[m] with a vector: one step of the Lanczos algorithm."""

    step: int
    eta: float
    means: Floats = array("features")
    vector: Floats = array("n")


@answers(Multiply)
def local_product(table: Table, memory: Memory, ask: Multiply) -> Product:
    """A site's share of g = R c (section 4.2, step 2)."""
    _watch(memory, ask.step)
    reply = Product.zeros(ask.axes)
    for _, part in _parts(table, memory, ask.step, ask.eta, ask.means):
        reply += Product(part.T @ (part @ ask.vector))
    return reply


@dataclass(frozen=True)
class Triangle(Reply, content="grams"):
    """The upper triangle of W_t[m]' W_t[m], row by row."""

    packed: Floats = array("size", bound="4 * rows * length")


@dataclass(frozen=True)
class SendGram(Request[Triangle]):
    """Send all of W_t[m]' W_t[m] at once."""

    size: int
    n: int
    step: int
    eta: float
    means: Floats = array("features")

    @property
    def gram_rows(self) -> float:
        """A triangle is as many rows as the matrix has."""
        return self.n


@answers(SendGram)
def local_triangle(table: Table, memory: Memory, ask: SendGram) -> Triangle:
    """A site's share of W_t' W_t."""
    if ask.size != ask.n * (ask.n + 1) // 2:
        raise MalformedMessage(f"a triangle of {ask.n} rows has not {ask.size} numbers")
    _watch(memory, ask.step)
    gram = np.zeros((ask.n, ask.n))
    for _, part in _parts(table, memory, ask.step, ask.eta, ask.means):
        gram += part.T @ part
    return Triangle(triangle(gram))


@dataclass(frozen=True)
class Advance(Request[Nothing], remembered=True):
    """Lines 11 to 14 of Algorithm 1: B_{t+1}[m] = W_t[m] V diag(scales); ``last`` makes it the embedding H[m]."""

    step: int
    eta: float
    last: bool
    means: Floats = array("features")
    vectors: Floats = array("n", "s")
    scales: Floats = array("s")


@remembers(Advance)
def keep_advance(table: Table, memory: Memory, ask: Advance) -> None:
    """Keep B_{t+1}[m]; at the end let later questions see the embedded rows in the table's place."""
    held, turned = _held(memory), ask.vectors * ask.scales
    moved = np.zeros((table.n_rows, len(ask.scales)))
    for rows, part in _parts(table, memory, ask.step, ask.eta, ask.means):
        moved[rows] = part @ turned
    if ask.last:
        memory.table = EmbeddedTable(table, moved)
        memory.pop("dspgd")
    else:
        held.b, held.kept = moved, None


@answers(Advance)
def local_nothing(table: Table, memory: Memory, ask: Advance) -> Nothing:
    """Nothing leaves."""
    return Nothing()


class EmbeddedTable:
    """A table's rows in their embedding."""

    def __init__(self, raw: Table, rows: Floats) -> None:
        self.raw, self.rows = raw, rows
        self.columns = tuple(Column(f"component{i}") for i in range(rows.shape[1]))

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(self.rows)

    def raw_blocks(self) -> Iterator[Block]:
        """The embedded rows, weighted and placed as the raw ones."""
        start = 0
        for block in self.raw.blocks():
            stop = start + len(block.rows)
            yield Block(self.rows[start:stop], block.weights, block.places)
            start = stop

    def blocks(self) -> Iterator[Block]:
        """The same: every value is finite."""
        return self.raw_blocks()


# ---------------------------------------------------------------- the server's part


@dataclass(frozen=True)
class DSPGDSettings:
    """The knobs of Algorithm 1."""

    n_components: int
    n_features: int = 40
    n_iter: int = 20
    threshold: float | None = None
    """lambda; None takes the ``rank``-th eigenvalue of the first iteration (the paper: k + 2)."""
    rank: int = 2
    step: Literal["1/t", "2/t"] = "1/t"
    solver: Literal["auto", "gram", "lanczos"] = "auto"
    center: bool = False
    form: str = "phase"
    precision: str = "float64"

    def __post_init__(self) -> None:
        if self.n_components < 1:
            raise InputError(f"n_components={self.n_components} must be at least 1.")
        if self.rank < 1:
            raise InputError(f"rank={self.rank} must be at least 1.")
        if self.n_iter < 1:
            raise InputError(f"n_iter={self.n_iter} must be at least 1.")
        if self.step not in ("1/t", "2/t"):
            raise InputError(f"step={self.step!r}; it is '1/t' or '2/t'.")
        if self.solver not in ("auto", "gram", "lanczos"):
            raise InputError(f"solver={self.solver!r}; it is 'auto', 'gram' or 'lanczos'.")
        if self.form not in ("phase", "paired"):
            raise InputError(f"features={self.form!r}; they are 'phase' or 'paired'.")
        if self.form == "paired" and self.n_features % 2:
            raise InputError(f"n_features={self.n_features} must be even for features in pairs.")
        if self.precision not in ("float64", "float32"):
            raise InputError(f"precision={self.precision!r}; it is 'float64' or 'float32'.")
        if self.threshold is None and self.n_features < self.rank:
            raise InputError(
                f"n_features={self.n_features} random features cannot give the {self.rank}-th eigenvalue that the "
                f"threshold is taken from; use n_features >= {self.rank}, or give a threshold."
            )
        if self.threshold is not None and not self.threshold >= 0:
            raise InputError(f"threshold={self.threshold} cannot be negative.")

    def eta(self, t: int) -> float:
        """eta_t: 1/t as Algorithm 1 has it, or 2/t of Theorem 1, which at t = 1 would be above 1."""
        return 1.0 / t if self.step == "1/t" else min(1.0, 2.0 / t)


@dataclass(frozen=True)
class Embedding:
    """What a run of DSPGD found: eigenvalues of the kernel matrix and how any row is embedded."""

    values: Floats
    transcript: tuple[Request[Any], ...]
    """The public requests that embed a row, wherever it lies."""
    n_products: tuple[int, ...]
    """Q of every iteration; 1 where the Gram was sent."""
    ranks: tuple[int, ...]
    """r_t of every iteration."""
    threshold: float
    n_restarts: int = 0


def dspgd(kernel: Kernel, settings: DSPGDSettings, *, seed: int) -> Protocol[Embedding]:
    """Algorithm 1 up to line 18. Sites then hold the embedded rows, which later questions see as their table."""
    begin = BeginKernel(
        kernel.name,
        float(kernel.gamma),
        int(kernel.degree),
        float(kernel.coef0),
        int(settings.n_features),
        settings.form,
        settings.precision,
        seed,
    )
    yield from total(begin)
    made: list[Request[Any]] = [begin]
    products, ranks, restarts, threshold = [], [], 0, settings.threshold
    rank = 0
    for t in range(1, settings.n_iter + 1):
        solved = yield from _solved(t, rank, threshold, settings, seed)
        restarts += solved.restarts
        if threshold is None:
            threshold = float(solved.pairs.values[settings.rank - 1])
        eta, is_last = settings.eta(t), t == settings.n_iter
        least = max(eta * threshold, 1e-12 * float(solved.pairs.values[0]), NONE)
        kept = solved.pairs.above(least).signed()
        if is_last:
            kept = kept.top(settings.n_components)
        values = kept.values + ((1 - eta) * threshold if is_last else -eta * threshold)
        ask = Advance(solved.draw, eta, is_last, solved.means, kept.vectors, np.sqrt(values / kept.values))
        yield from total(ask)
        made.append(ask)
        products.append(solved.n_products)
        ranks.append(rank)
        rank = len(kept.values)
    return Embedding(values, tuple(made), tuple(products), tuple(ranks), float(threshold or 0.0), restarts)


@dataclass(frozen=True)
class _Solved:
    """The eigenpairs of one iteration."""

    pairs: Ritz
    draw: int
    means: Floats
    n_products: int
    restarts: int


def _solved(t: int, rank: int, threshold: float | None, settings: DSPGDSettings, seed: int) -> Protocol[_Solved]:
    """Line 10: eigenpairs of W_t' W_t.

    A site lost on the way changes the matrix: begin again with those left and a fresh draw of features, of which
    nothing was told of the site that is gone.
    """
    eta, n = settings.eta(t), settings.n_features + rank
    above = np.inf if threshold is None else eta * threshold
    at_least = settings.rank if threshold is None else 1
    restarts = 0
    while True:
        names = yield from present()
        draw = t + AFRESH * restarts
        try:
            means = yield from _feature_means(draw, names, settings)
            if _solver(settings, n) == "gram":
                ask = SendGram(n * (n + 1) // 2, n, draw, eta, means)
                reply = yield from total(ask, to=names, complete=True)
                found = eigenpairs_above(full_matrix(reply.packed, n))
                kept = found.top(max(at_least, int((found.values > above).sum())))
                return _Solved(kept, draw, means, 1, restarts)
            multiply = partial(_product, draw, eta, means, names)
            rng = np.random.default_rng([seed, draw, 1])
            pairs, q = yield from top_eigenpairs(n, multiply, above, at_least=at_least, rng=rng)
            return _Solved(pairs, draw, means, q, restarts)
        except RosterChanged:
            restarts += 1


def _product(draw: int, eta: float, means: Floats, names: tuple[str, ...], vector: Floats) -> Protocol[Floats]:
    """Line 5 of Algorithm 2, over all sites."""
    reply = yield from total(Multiply(draw, eta, means, vector), to=names, complete=True)
    return reply.product


def _feature_means(t: int, names: tuple[str, ...], settings: DSPGDSettings) -> Protocol[Floats]:
    """The features' mean over all rows, or zeros where nothing is centered."""
    if not settings.center:
        return np.zeros(settings.n_features)
    found = yield from total(SumFeatures(settings.n_features, t), to=names, complete=True)
    return found.sums / max(float(found.rows), 1e-300)


def _solver(settings: DSPGDSettings, n: int) -> str:
    """Gram or Lanczos, whichever is expected to cost less; about three quarters of n products do for Lanczos."""
    if settings.solver != "auto":
        return settings.solver
    q = 0.75 * n
    return "gram" if n * (n + 1) / 2 + ROUND_NUMBERS <= q * (n + ROUND_NUMBERS) else "lanczos"


def embedded(table: Table, transcript: tuple[Request[Any], ...]) -> EmbeddedTable:
    """Rows embedded as the sites of a run embedded theirs, from its public requests alone."""
    memory = Memory()
    for request in transcript:
        seen = memory.table or table
        if isinstance(request, BeginKernel):
            keep_kernel(seen, memory, request)
        else:
            keep_advance(seen, memory, request)
    found = memory.table
    if not isinstance(found, EmbeddedTable):
        raise InputError("the transcript does not end in an embedding.")
    return found
