"""What a site keeps and is asked in DSPGD: random features of its rows, some rows at a time, and products of them.

The server's part, and the paper's letters, are in :mod:`coterie.methods.kernel.dspgd.protocol`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.errors import InputError, MalformedMessage
from coterie.maths.axes import add_products
from coterie.maths.kernels import Kernel
from coterie.maths.spectra import triangle
from coterie.messages.bounds import Limits
from coterie.messages.schema import Fields, Floats, Integers, Nothing, Reply, Request, array
from coterie.messages.site_api import Memory, Rows, Table, answers, remembers
from coterie.methods.kernel.features import Drawn
from coterie.methods.shared.embedded import EmbeddedTable, StreamedTable
from coterie.methods.shared.limits import N_MARKS, marks

MOST_STEPS = 1 << 32


class BeginKernel(Drawn, Request[Nothing], remembered=True, doing="setting the kernel"):
    """From now on there is this kernel; begin with B_1 = 0."""

    precision: str


@dataclass
class _Held:
    """A site's part of the iteration."""

    begin: BeginKernel
    b: Floats
    """B_t: a row for every row of the table."""
    counts: Floats
    """What every row counts."""
    features: tuple[int, StreamedTable] | None = None
    """Those of one step."""


@remembers(BeginKernel)
def keep_kernel(table: Table, memory: Memory, ask: BeginKernel) -> None:
    """Forget any earlier embedding and begin anew."""
    if isinstance(table, StreamedTable):
        memory.table = table = table.raw
    ask.draw(len(table.columns), 0, ask.precision)  # what cannot be drawn is found now
    counts = np.concatenate([np.zeros(0), *(block.counts for block in table.blocks())])
    memory["dspgd"] = _Held(ask, np.zeros((table.n_rows, 0)), counts)


def held_of(memory: Memory) -> _Held:
    held = memory.get("dspgd")
    if not isinstance(held, _Held):
        raise MalformedMessage("no kernel was begun in this run")
    return held


def feature_pieces(table: Table, held: _Held, step: int) -> Iterator[tuple[slice, Rows]]:
    """The features of the rows, some rows at a time; kept for the next question where they are small."""
    if held.features is None or held.features[0] != step:
        if not 1 <= step < MOST_STEPS:  # below, another seed may draw the same
            raise MalformedMessage(f"there is no step {step}")
        drawn = held.begin.draw(len(table.columns), step, held.begin.precision)
        held.features = step, StreamedTable(table, lambda block: drawn(block.rows), held.begin.n_features)
    start = 0
    for features, *_ in held.features[1].raw_blocks():
        yield slice(start, start + len(features)), features
        start += len(features)


def _parts(table: Table, memory: Memory, step: int, eta: float, means: Floats) -> Iterator[tuple[slice, Floats]]:
    """W_t[m], some rows at a time, in float64: sums are taken of it."""
    held = held_of(memory)
    if not 0 < eta <= 1 or means.shape != (held.begin.n_features,):
        raise MalformedMessage(f"eta={eta} with {means.shape} means: no such step")
    root = np.sqrt(eta / held.begin.n_features)
    for rows, features in feature_pieces(table, held, step):
        centered = root * (features.astype(np.float64, copy=False) - means)
        yield rows, np.concatenate([centered, np.sqrt(1 - eta) * held.b[rows]], axis=1)


class FeatureMagnitudes(Reply, content="sums"):
    """Marks of the number of rows, and of the squared length of rows of W_t."""

    rows: Integers = array(N_MARKS, dtype="uint1", bound="1")
    length: Integers = array(N_MARKS, dtype="uint1", bound="1")


class ReportFeatureLength(Request[FeatureMagnitudes], doing="finding the largest length of features"):
    """Mark how long your rows of W_t are, for whatever eta_t, centered or not."""

    step: int


@answers(ReportFeatureLength)
def local_feature_length(table: Table, memory: Memory, ask: ReportFeatureLength) -> FeatureMagnitudes:
    """The site's marks. Centering makes a row of A_t at most twice as long; sums need the root of its length, too."""
    held, largest = held_of(memory), 0.0
    for _, features in feature_pieces(table, held, ask.step):
        wide = features.astype(np.float64, copy=False)
        largest = max(largest, float(np.vecdot(wide, wide).max(initial=0.0)) / held.begin.n_features)
    carried = float(np.vecdot(held.b, held.b).max(initial=0.0))
    length = max(4 * largest, carried, np.sqrt(largest))
    return FeatureMagnitudes(marks(np.asarray(held.counts.sum())), marks(np.asarray(length)))


class OfFeatures(Fields):
    """What a question about W_t states: the step, and how long rows of W_t are at most, squared; inf is not known."""

    step: int
    length: float

    @property
    def measure(self) -> ReportFeatureLength | None:
        """Sites mark the length where the kernel does not bound it."""
        return ReportFeatureLength(self.step) if math.isinf(self.length) else None


def longest(kernel: Kernel, *, center: bool) -> float:
    """The most a row of W_t is long, squared; features of a polynomial kernel, products of signs, have no bound."""
    return math.inf if kernel.name == "polynomial" else 8.0 if center else 2.0


class FeatureSums(Reply, content="grams"):
    """The sum of a site's features, and the number of its rows: one row more of a Gram, bordered by ones."""

    sums: Floats = array("features", bound="rows * length * features")
    rows: Floats = array(bound="rows", nonnegative=True)


class SumFeatures(OfFeatures, Request[FeatureSums], doing="summing features for centering"):
    """Sum up the features of one step, for centering."""

    features: int


@answers(SumFeatures)
def local_feature_sums(table: Table, memory: Memory, ask: SumFeatures) -> FeatureSums:
    reply, held = FeatureSums.zeros(ask.axes), held_of(memory)
    for rows, features in feature_pieces(table, held, ask.step):
        counts = held.counts[rows]
        reply += FeatureSums(counts @ features.astype(np.float64, copy=False), np.asarray(counts.sum()))
    return reply


class Product(Reply, content="grams"):
    """W_t[m]' W_t[m] c."""

    product: Floats = array("n", bound="4 * rows * length")


class Multiply(OfFeatures, Request[Product], doing="multiplying by the kernel matrix (a Lanczos step)"):
    """Multiply W_t[m]' W_t[m] with a vector: one step of the Lanczos algorithm."""

    eta: float
    means: Floats = array("features")
    vector: Floats = array("n")


@answers(Multiply)
def local_product(table: Table, memory: Memory, ask: Multiply) -> Product:
    """A site's share of g = R c (section 4.2, step 2)."""
    reply, counts = Product.zeros(ask.axes), held_of(memory).counts
    for rows, part in _parts(table, memory, ask.step, ask.eta, ask.means):
        reply += Product(part.T @ (counts[rows] * (part @ ask.vector)))
    return reply


class Triangle(Reply, content="grams"):
    """The upper triangle of W_t[m]' W_t[m], row by row."""

    packed: Floats = array("size", bound="4 * rows * length")


class SendGram(OfFeatures, Request[Triangle], doing="summing the Gram matrix of features"):
    """Send all of W_t[m]' W_t[m] at once."""

    size: int
    n: int
    eta: float
    means: Floats = array("features")


@answers(SendGram)
def local_triangle(table: Table, memory: Memory, ask: SendGram) -> Triangle:
    if ask.size != ask.n * (ask.n + 1) // 2:
        raise MalformedMessage(f"a triangle of {ask.n} rows has not {ask.size} numbers")
    gram, counts = np.zeros((ask.n, ask.n)), held_of(memory).counts
    for rows, part in _parts(table, memory, ask.step, ask.eta, ask.means):
        add_products(gram, part, counts[rows])
    return Triangle(triangle(gram))


class Advance(Request[Nothing], remembered=True, doing="taking a proximal gradient step"):
    """Lines 11 to 14 of Algorithm 1: B_{t+1}[m] = W_t[m] V diag(scales); ``last`` makes it the embedding H[m]."""

    step: int
    eta: float
    last: bool
    means: Floats = array("features")
    vectors: Floats = array("n", "s")
    scales: Floats = array("s")

    def limits_after(self, limits: Limits) -> Limits:
        """The table stays as it is until the last step."""
        return {} if self.last else limits


@remembers(Advance)
def keep_advance(table: Table, memory: Memory, ask: Advance) -> None:
    """Keep B_{t+1}[m]; at the end let later questions see the embedded rows in the table's place."""
    held, turned = held_of(memory), ask.vectors * ask.scales
    moved = np.zeros((table.n_rows, len(ask.scales)))
    for rows, part in _parts(table, memory, ask.step, ask.eta, ask.means):
        moved[rows] = part @ turned
    if ask.last:
        memory.table = EmbeddedTable(table, moved)
        memory.pop("dspgd")
    else:
        held.b, held.features = moved, None


def embedded(table: Table, transcript: tuple[Request[Any], ...]) -> EmbeddedTable:
    """Rows embedded as the sites of a run embedded theirs, from its public requests alone."""
    memory = Memory()
    for request in transcript:
        keep = keep_kernel if isinstance(request, BeginKernel) else keep_advance
        keep(memory.table or table, memory, request)
    last = memory.table
    if not isinstance(last, EmbeddedTable):
        raise InputError("the transcript does not end in an embedding.")
    return last
