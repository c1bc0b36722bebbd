"""DSPGD without the communication-efficient mechanism (CEM), for comparison: section 4.1 and the first case of
appendix B of "A communication efficient federated kernel k-means".

The server holds Z_t as a factor, a row for every row of the sites, and runs Lanczos on the N x N matrix
R_t = (1 - eta_t) Z_t + eta_t / D A_t A_t'. A step costs N + M D numbers, and every site's answer is seen: the server
picks what rows are weighted with, so these answers tell of single rows, and a default policy refuses them.

What is summed up on the way, A_t' c_q for every Lanczos vector c_q, gives A_t' U for any U they span: so the server
also knows V = W_t' U Lambda^(-1/2), with which any other row is embedded as with CEM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from coterie.errors import InputError, MalformedMessage, QuorumLost
from coterie.maths.kernels import Kernel
from coterie.maths.spectra import Ritz
from coterie.messages.schema import Floats, Nothing, Reply, Request, array
from coterie.messages.site_api import Memory, Table, answers, remembers
from coterie.messages.verbs import Protocol, each, present, total
from coterie.methods.kernel.dspgd.protocol import AFRESH, Attempt, DSPGDSettings, Embedding, Solved, iterated
from coterie.methods.kernel.dspgd.sites import Advance, feature_pieces, held_of
from coterie.methods.kernel.lanczos import top_eigenpairs
from coterie.methods.shared.counts import CountRows
from coterie.methods.shared.embedded import EmbeddedTable
from coterie.parameters import no_model


class Projection(Reply, content="rows"):
    """A_t[m]' c_q[m]."""

    projection: Floats = array("features")


class Project(Request[Projection], doing="multiplying features by a vector"):
    """Steps 1 and 2 of section 4.1: multiply your features with your part of the server's vector."""

    step: int
    features: int
    part: Floats = array("rows")


@answers(Project)
def local_projection(table: Table, memory: Memory, ask: Project) -> Projection:
    _check_rows(table, ask.part)
    reply = Projection.zeros(ask.axes)
    for rows, features in feature_pieces(table, held_of(memory), ask.step):
        reply += Projection(ask.part[rows] @ features.astype(np.float64, copy=False))
    return reply


class RowProducts(Reply, content="rows"):
    """A_t[m] A_t' c_q: a number for every row."""

    products: Floats = array("rows")


class Expand(Request[RowProducts], doing="multiplying features by the sum of projections"):
    """Steps 3 and 4 of section 4.1: multiply the sum of all projections with your features."""

    step: int
    rows: int
    sums: Floats = array("features")


@answers(Expand)
def local_row_products(table: Table, memory: Memory, ask: Expand) -> RowProducts:
    products = np.zeros(ask.rows)
    _check_rows(table, products)
    for rows, features in feature_pieces(table, held_of(memory), ask.step):
        products[rows] = features.astype(np.float64, copy=False) @ ask.sums
    return RowProducts(products)


class KeepRows(Request[Nothing], remembered=True, doing="sending embedded rows back"):
    """These are your rows of H (Algorithm 1, line 17)."""

    embedding: Floats = array("rows", "s")


@remembers(KeepRows)
def keep_rows(table: Table, memory: Memory, ask: KeepRows) -> None:
    """Let later questions see the embedded rows in the table's place."""
    _check_rows(table, ask.embedding)
    memory.table = EmbeddedTable(table, ask.embedding)
    memory.pop("dspgd", None)


def _check_rows(table: Table, given: Floats) -> None:
    if len(given) != table.n_rows:
        raise MalformedMessage(f"{len(given)} numbers for {table.n_rows} rows: the server counts other rows")


@dataclass(frozen=True, kw_only=True)
class DenseEmbedding(Embedding):
    """What a run of DSPGD without CEM found; the server knows every embedded row."""

    rows: Mapping[str, Floats] = no_model()
    """H, by site: those that stayed to the end."""


def dspgd_dense(kernel: Kernel, settings: DSPGDSettings, *, seed: int) -> Protocol[DenseEmbedding]:
    """Algorithm 1 up to line 18, DLA on R_t itself: the same iterates as with CEM, from the same features.

    A site that drops out takes no further part: the server has its rows of Z_t, but those of Z_{t+1} would need its
    answers. Its table stays as it is.
    """
    begin = settings.begin(kernel, seed)
    yield from total(begin)
    counts = yield from each(CountRows())
    if any(float(reply.weighted) for reply in counts.values()):
        raise InputError(
            "dspgd-dense needs single rows, but a site has weighted rows or groups; use dspgd, which takes weights."
        )
    server = _Server({name: np.zeros((int(reply.shown), 0)) for name, reply in counts.items()})
    embedding = yield from iterated(begin, settings, server.solved, server.proceed)
    yield from each({name: KeepRows(rows) for name, rows in server.b.items()})
    return DenseEmbedding(**vars(embedding), rows=server.b)


class _Server:
    """B_t at the server, by site."""

    def __init__(self, b: Mapping[str, Floats]) -> None:
        self.b = self._left = b

    def solved(self, at: Attempt) -> Protocol[Solved]:
        """Eigenpairs of R_t. A site that drops out takes its rows of R_t with it."""
        here = yield from present()
        self._left = {name: rows for name, rows in self.b.items() if name in here}
        size = sum(map(len, self._left.values()))
        if not size:
            raise QuorumLost(f"iteration {at.draw % AFRESH}: the remaining sites hold 0 rows; at least 1 is needed.")
        times = _Operator(at.draw, at.eta, (yield from at.feature_means(tuple(self._left))), self._left)
        at_least = min(size, at.at_least)
        pairs, q = yield from top_eigenpairs(size, times.product, at.above, at_least=at_least, rng=at.rng)
        return Solved(pairs, q, times.advance)

    def proceed(self, _: Advance, b: Floats) -> Protocol[None]:
        """B_{t+1}; sites get theirs at the end."""
        self.b = _cut(b, {name: len(rows) for name, rows in self._left.items()})
        yield from ()


class _Operator:
    """R_t, as far as the server is concerned, and what was summed up to multiply with it."""

    def __init__(self, draw: int, eta: float, means: Floats, b: Mapping[str, Floats]) -> None:
        self.sizes = {name: len(rows) for name, rows in b.items()}
        self._draw, self._eta, self._means = draw, eta, means
        self._factor = np.concatenate(list(b.values()))
        self._summed: list[tuple[Floats, Floats]] = []
        """Every vector c_q with A_t' c_q."""

    def product(self, vector: Floats) -> Protocol[Floats]:
        """g_q = (1 - eta_t) Z_t c_q + eta_t A_t A_t' c_q / D: two rounds, N + M D numbers.

        Centered, A_t is A_t - 1 m' throughout: sites need not know.
        """
        parts, n_features = _cut(vector, self.sizes), len(self._means)
        asked = {name: Project(self._draw, n_features, part) for name, part in parts.items()}
        projections = yield from each(asked, complete=True)
        sums = np.sum([reply.projection for reply in projections.values()], axis=0) - self._means * vector.sum()
        self._summed.append((vector, sums))
        expand = {name: Expand(self._draw, count, sums) for name, count in self.sizes.items()}
        replies = yield from each(expand, complete=True)
        spread = np.concatenate([replies[name].products for name in self.sizes]) - self._means @ sums
        known = self._factor @ (self._factor.T @ vector)
        product: Floats = (1 - self._eta) * known + self._eta / n_features * spread
        return product

    def advance(self, kept: Ritz, scales: Floats, is_last: bool) -> Advance:
        """What sites would get with CEM: V = W_t' U Lambda^(-1/2)."""
        projected = np.zeros((len(self._means), len(kept.values)))
        for vector, sums in self._summed:
            projected += np.outer(sums, vector @ kept.vectors)
        features = np.sqrt(self._eta / len(self._means)) * projected
        carried = np.sqrt(1 - self._eta) * (self._factor.T @ kept.vectors)
        vectors = np.concatenate([features, carried]) / np.sqrt(kept.values)
        return Advance(self._draw, self._eta, is_last, self._means, vectors, scales)


def _cut(rows: Floats, sizes: Mapping[str, int]) -> dict[str, Floats]:
    """Each site's part of something with a row for every row."""
    stops = np.cumsum(list(sizes.values()))
    return dict(zip(sizes, np.split(rows, stops[:-1]), strict=True))
