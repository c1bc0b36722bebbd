"""Kernel principal components by distributed stochastic proximal gradient descent, after "A communication efficient
federated kernel k-means".

Letters of the paper: T ``n_iter``, D ``n_features``, s ``n_components``, lambda ``threshold``, eta_t ``step``; A_t
the features of iteration t, drawn at the sites from (seed, t); B_t what a site keeps; W_t = [sqrt(eta_t / D) A_t,
sqrt(1 - eta_t) B_t]. With the communication-efficient mechanism (section 4.2) sites are asked about W_t' W_t, a
matrix of r_t + D rows however many rows of data there are: products with it one by one (the paper's Lanczos), or the
whole of it at once (the Gram exchange, ours).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from coterie.errors import InputError, RosterChanged
from coterie.maths.kernels import Kernel
from coterie.maths.spectra import Ritz, exact_eigenpairs, full_matrix
from coterie.messages.schema import Floats, Request
from coterie.messages.site_api import Rows
from coterie.messages.verbs import Protocol, present, total
from coterie.methods.kernel.dspgd.sites import (
    Advance,
    BeginKernel,
    Multiply,
    SendGram,
    SumFeatures,
    embedded,
    longest,
)
from coterie.methods.kernel.lanczos import top_eigenpairs
from coterie.methods.method import COUNT, COUNT_OR_NONE
from coterie.methods.shared.embedded import RowsTable
from coterie.parameters import Allowed, check_parameters, checked, no_model, parameter

NONE = 1e-20
"""Eigenvalues below are what rounding leaves where all rows are equal."""
AFRESH = 1 << 20
"""Draws of features are numbered by iteration; an iteration begun again takes a number no other has."""
ROUND_NUMBERS = 1000
"""What a round costs beside the numbers it carries, in numbers: for ``solver="auto"``."""


@dataclass(eq=False, repr=False, kw_only=True)
class DSPGDOptions:
    """The parameters of Algorithm 1 that are the same for clusters and for components, with the paper's letters."""

    n_features: int | None = parameter(
        None, "D: random features an iteration; None is 40, or twice as many as the threshold needs.", COUNT_OR_NONE
    )
    n_iter: int = parameter(20, "T: iterations.", COUNT)
    threshold: float | None = parameter(
        None,
        "lambda; None takes an eigenvalue of the first iteration, the second after those looked for.",
        Allowed(low=0, none=True),
    )
    step: str = parameter("1/t", "eta_t: Algorithm 1's 1/t, or 2/t, at most 1, of Theorem 1.", Allowed("1/t", "2/t"))
    solver: str = parameter(
        "auto",
        "``gram``: sites send the matrix of products at once; ``lanczos``: they multiply it with vectors; ``auto`` "
        "picks the cheaper.",
        Allowed("auto", "gram", "lanczos"),
    )
    cem: bool = parameter(
        True,
        "The paper's communication-efficient mechanism. Without it (method ``dspgd-dense``) a Lanczos step costs "
        "N + M D numbers and sites must allow rows; the paper compares with this.",
    )
    features: str = parameter(
        "phase", "``phase``: sqrt(2) cos(w'x + b); ``paired``: cos and sin in pairs.", Allowed("phase", "paired")
    )
    precision: str = parameter(
        "float64", "Of the features; sums are always in float64.", Allowed("float64", "float32")
    )


@dataclass
class DSPGDSettings(DSPGDOptions):
    """What Algorithm 1 runs with."""

    n_components: int = checked(COUNT)
    rank: int = checked(COUNT, 2)
    """Without a threshold it is this eigenvalue of the first iteration (the paper: k + 2)."""
    center: bool = False

    def __post_init__(self) -> None:
        check_parameters(self)
        n_features = self.n_drawn
        if self.solver == "gram" and not self.cem:
            raise InputError("solver='gram' needs the communication-efficient mechanism; use cem=True.")
        if self.features == "paired" and n_features % 2:
            raise InputError(f"n_features={n_features} must be even for features in pairs.")
        if self.threshold is None and n_features < self.rank:
            raise InputError(
                f"n_features={n_features} random features cannot give the {self.rank}-th eigenvalue that the "
                f"threshold is taken from; use n_features >= {self.rank}, or give a threshold."
            )

    @property
    def n_drawn(self) -> int:
        """How many features are drawn in an iteration."""
        return max(40, 2 * self.rank) if self.n_features is None else self.n_features

    def eta(self, t: int) -> float:
        """eta_t: 1/t as Algorithm 1 has it, or 2/t of Theorem 1, which at t = 1 would be above 1."""
        return 1.0 / t if self.step == "1/t" else min(1.0, 2.0 / t)

    def begin(self, kernel: Kernel, seed: int) -> BeginKernel:
        """The first request to the sites."""
        return BeginKernel(*BeginKernel.stated(kernel, self.n_drawn, self.features, seed), self.precision)

    def kept(self, t: int, pairs: Ritz, threshold: float) -> tuple[Ritz, Floats]:
        """The eigenpairs of R_t above eta_t lambda, and the squared lengths of the columns of B_{t+1} (line 13), or
        of H at the end (line 17)."""
        eta = self.eta(t)
        kept = pairs.above(max(eta * threshold, 1e-12 * float(pairs.values[0]), NONE)).signed()
        if t < self.n_iter:
            kept = kept.sized(0, len(pairs.vectors))
            return kept, kept.values - eta * threshold
        kept = kept.top(self.n_components).sized(1, min(self.n_components, len(pairs.vectors)))
        return kept, kept.values + (1 - eta) * threshold


@dataclass(frozen=True)
class Embedding:
    """What a run of DSPGD found: eigenvalues of the kernel matrix and how any row is embedded."""

    values: Floats
    begin: BeginKernel
    steps: tuple[Advance, ...]
    n_products: tuple[int, ...] = no_model(())
    """Q of every iteration; 1 where the Gram was sent."""
    ranks: tuple[int, ...] = no_model(())
    """r_t of every iteration."""
    threshold: float = no_model(0.0)
    n_restarts: int = no_model(0)

    @property
    def transcript(self) -> tuple[Request[Any], ...]:
        """The public requests that embed a row, wherever it lies."""
        return (self.begin, *self.steps)

    def embed(self, rows: Rows) -> Rows:
        """Rows as the sites of the run embedded theirs."""
        return embedded(RowsTable(rows), self.transcript).rows


@dataclass(frozen=True)
class Attempt:
    """What the eigenpairs of one iteration are looked for with; one begun again has a draw of features of its own."""

    settings: DSPGDSettings
    length: float
    draw: int
    eta: float
    rank: int
    above: float
    at_least: int
    rng: np.random.Generator

    def feature_means(self, names: tuple[str, ...]) -> Protocol[Floats]:
        """The features' mean over all rows, or zeros where nothing is centered."""
        n_features = self.settings.n_drawn
        if not self.settings.center:
            return np.zeros(n_features)
        reply = yield from total(SumFeatures(self.draw, self.length, n_features), to=names, complete=True)
        return reply.sums / max(float(reply.rows), 1e-300)


class Solved(NamedTuple):
    """The eigenpairs of one iteration, how many products they took, and the request that announces those kept."""

    pairs: Ritz
    n_products: int
    advance: Callable[[Ritz, Floats, bool], Advance]


def dspgd(kernel: Kernel, settings: DSPGDSettings, *, seed: int) -> Protocol[Embedding]:
    """Algorithm 1 up to line 18. Sites then hold the embedded rows, which later questions see as their table."""
    begin = settings.begin(kernel, seed)
    yield from total(begin)
    return (yield from iterated(begin, settings, _solved, lambda ask, _: total(ask)))


def iterated(
    begin: BeginKernel,
    settings: DSPGDSettings,
    solve: Callable[[Attempt], Protocol[Solved]],
    proceed: Callable[[Advance, Floats], Protocol[Any]],
) -> Protocol[Embedding]:
    """The iterations of Algorithm 1: ``solve`` finds eigenpairs, ``proceed`` gets the request that announces those
    kept, and the columns of B_{t+1} as far as eigenvectors give them.

    A site that drops out changes the matrix, so the iteration starts again with the remaining sites and a fresh draw.
    """
    steps: list[Advance] = []
    products, ranks, restarts, rank, threshold = [], [], 0, 0, settings.threshold
    length = longest(begin.the_kernel(), center=settings.center)
    for t in range(1, settings.n_iter + 1):
        eta, draw = settings.eta(t), t
        above, at_least = (np.inf, settings.rank) if threshold is None else (eta * threshold, 1)
        while True:
            rng = np.random.default_rng([begin.seed, draw, 1])
            try:
                solved = yield from solve(Attempt(settings, length, draw, eta, rank, above, at_least, rng))
                break
            except RosterChanged:
                restarts, draw = restarts + 1, draw + AFRESH
        if threshold is None:
            eigenvalues = solved.pairs.values
            threshold = float(eigenvalues[settings.rank - 1]) if len(eigenvalues) >= settings.rank else 0.0
        kept, values = settings.kept(t, solved.pairs, threshold)
        ask = solved.advance(kept, np.sqrt(values / kept.values), t == settings.n_iter)
        yield from proceed(ask, kept.vectors * np.sqrt(values))
        steps.append(ask)
        products.append(solved.n_products)
        ranks.append(rank)
        rank = len(kept.values)
    return Embedding(values, begin, tuple(steps), tuple(products), tuple(ranks), float(threshold or 0.0), restarts)


def _solved(at: Attempt) -> Protocol[Solved]:
    """Line 10: eigenpairs of W_t' W_t above a threshold, and at least so many."""
    names = yield from present()
    means, n = (yield from at.feature_means(names)), at.settings.n_drawn + at.rank

    def product(vector: Floats) -> Protocol[Floats]:
        """Line 5 of Algorithm 2, over all sites."""
        ask = Multiply(at.draw, at.length, at.eta, means, vector)
        return (yield from total(ask, to=names, complete=True)).product

    def advance(kept: Ritz, scales: Floats, is_last: bool) -> Advance:
        return Advance(at.draw, at.eta, is_last, means, kept.vectors, scales)

    if _solver(at.settings, n) == "lanczos":
        pairs, q = yield from top_eigenpairs(n, product, at.above, at_least=at.at_least, rng=at.rng)
        return Solved(pairs, q, advance)
    ask = SendGram(at.draw, at.length, n * (n + 1) // 2, n, at.eta, means)
    pairs = exact_eigenpairs(full_matrix((yield from total(ask, to=names, complete=True)).packed, n))
    return Solved(pairs.top(max(at.at_least, int((pairs.values > at.above).sum()))), 1, advance)


def _solver(settings: DSPGDSettings, n: int) -> str:
    """Gram or Lanczos, whichever is expected to cost less; about three quarters of n products do for Lanczos."""
    if settings.solver != "auto":
        return settings.solver
    q = 0.75 * n
    return "gram" if n * (n + 1) / 2 + ROUND_NUMBERS <= q * (n + ROUND_NUMBERS) else "lanczos"
