"""The distributed Lanczos algorithm: eigenpairs of a matrix that is a sum over sites, from products with vectors.

Algorithm 2 of the paper, distributed as in Penna & Stanczak (2014): its line 5, "g = R c", is one question.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coterie.maths.spectra import Krylov, Ritz
from coterie.messages.schema import Floats
from coterie.messages.verbs import Protocol


def top_eigenpairs(
    size: int,
    multiply: Callable[[Floats], Protocol[Floats]],
    threshold: float,
    *,
    at_least: int = 1,
    rng: np.random.Generator,
) -> Protocol[tuple[Ritz, int]]:
    """Eigenpairs above ``threshold``, and the first ``at_least``, of the matrix that ``multiply`` multiplies with.

    Also returns Q, the number of products it took.
    """
    basis = Krylov(size, rng)
    while not basis.has_converged(threshold, at_least):
        basis.extend((yield from multiply(basis.newest)))
    pairs = basis.ritz()
    return pairs.top(max(at_least, int((pairs.values > threshold).sum()))), basis.n_products
