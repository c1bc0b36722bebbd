"""Kernel k-means over all sites' rows: an embedding of the kernel, then linear k-means of the embedded rows.

Lines 16 to 20 of Algorithm 1 of "A communication efficient federated kernel k-means"; the embedding is DSPGD's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.errors import InputError
from coterie.maths.kernels import Kernel
from coterie.messages.schema import Request
from coterie.messages.verbs import Protocol
from coterie.protocols.costs import Cost, exchange_cost
from coterie.protocols.dspgd import (
    Advance,
    DSPGDSettings,
    Embedding,
    SendGram,
    SumFeatures,
    SumLengths,
    dspgd,
    find_gamma,
)
from coterie.protocols.federated_kmeans import choose_start
from coterie.protocols.limits import find_limits, within
from coterie.protocols.lloyd import KMeansFit, lloyd
from coterie.protocols.preparation import Spread

__all__ = ["KernelFit", "KernelProblem", "cluster_embedded", "dspgd_gram_cost", "embed_by_dspgd"]


@dataclass(frozen=True)
class KernelProblem:
    """A kernel by name; without gamma, the one found from the rows' distances."""

    name: str = "rbf"
    gamma: float | None = None
    degree: int = 3
    coef0: float = 1.0

    def kernel(self, found: float) -> Kernel:
        """The kernel, once a gamma was found."""
        return Kernel(self.name, found if self.gamma is None else float(self.gamma), self.degree, self.coef0)


@dataclass(frozen=True)
class KernelFit:
    """An embedding and, where there are clusters, those of the embedded rows."""

    kernel: Kernel
    embedding: Embedding
    n_rows: float
    clusters: KMeansFit | None = None


def embed_by_dspgd(
    problem: KernelProblem, settings: DSPGDSettings, n_columns: int, *, seed: int
) -> Protocol[KernelFit]:
    """gamma by sums, then the top eigenpairs of the kernel matrix of all rows."""
    if problem.gamma is not None:
        problem.kernel(1.0)  # what cannot be is said before anyone is asked
    found, n_rows = yield from find_gamma(n_columns, needed=problem.gamma is None)
    kernel = problem.kernel(found)
    embedding = yield from within(_limits(kernel, n_rows, settings.center), dspgd(kernel, settings, seed=seed))
    return KernelFit(kernel, embedding, n_rows)


def _limits(kernel: Kernel, n_rows: float, center: bool) -> dict[str, float]:
    """How long a row of W_t may be, squared (of polynomial features nobody knows), and how many rows there are."""
    length = {} if kernel.name == "polynomial" else {"length": 8.0 if center else 2.0}
    return {**length, "all_rows": n_rows}


def cluster_embedded(
    made: KernelFit, n_clusters: int, *, init: str, max_rounds: int, tol: float, seed: int, measured: bool
) -> Protocol[KMeansFit]:
    """Linear k-means of the embedded rows by sums (ours: no embedded row leaves a site)."""
    values = made.embedding.values
    if made.n_rows < n_clusters:
        raise InputError(
            f"the sites hold {made.n_rows:g} rows in all; n_clusters={n_clusters} needs at least as many."
        )
    deviation = np.sqrt(values / made.n_rows)
    spread = Spread(made.n_rows, np.zeros(len(values)), deviation)
    limits = (yield from find_limits(len(values))) if measured else {}
    start = yield from within(limits, choose_start(init, n_clusters, spread, seed=seed))
    shift = tol * float(np.mean(deviation**2))
    return (yield from within(limits, lloyd(start, max_rounds=max_rounds, tol=shift)))


def dspgd_gram_cost(n_sites: int, d: int, made: KernelFit, *, center: bool, method: str = "dspgd") -> Cost:
    """d + 2 numbers a site for gamma; an iteration n(n+1)/2, n = r_t + D, D + 1 to center, and a round to tell."""
    limits = _limits(made.kernel, made.n_rows, center)

    def sent(request: Request[Any], floats: int, limits: dict[str, float] = limits) -> Cost:
        return exchange_cost(n_sites, floats=floats, float_bytes=8, request=request, method=method, limits=limits)

    cost = sent(SumLengths(d), d + 2, {})
    for step in made.embedding.transcript:
        cost += sent(step, 0)
        if isinstance(step, Advance):
            n, features = len(step.vectors), len(step.means)
            size = n * (n + 1) // 2
            cost += sent(SendGram(size, n, step.step, step.eta, step.means), size)
            cost += sent(SumFeatures(features, step.step), features + 1) if center else Cost()
    return cost
