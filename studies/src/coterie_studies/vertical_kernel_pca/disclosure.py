"""What the eigenpairs that a site sends in Algorithm 1 of He et al. (2020) tell of its rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import linalg

from coterie.maths.factors import kernel_pairs
from coterie.maths.spectra import Ritz
from coterie_studies.vertical_kernel_pca.sets import Disclosure, gamma_of

__all__ = ["KERNELS", "disclosed_by_pairs", "fitted_to", "rows_from_pairs"]

Floats = npt.NDArray[np.float64]
Values = dict[str, float]
KERNELS = ("linear", "rbf")
SMALLEST = 1e-12
"""Of a kernel value, so that it has a logarithm."""


def rows_from_pairs(kernel: str, gamma: float, pairs: Ritz, n_columns: int) -> Floats:
    """Rows like the site's, up to a turn and, for rbf, a shift: what its eigenpairs alone say.

    Linear: V sqrt(lambda), whose products are those of the rows. Rbf: the logarithms of V lambda V' are distances,
    and classical scaling finds points that have them.
    """
    if kernel == "linear":
        made = pairs.vectors * np.sqrt(np.maximum(pairs.values, 0.0))
        return np.pad(made[:, :n_columns], ((0, 0), (0, max(0, n_columns - made.shape[1]))))
    values = np.clip((pairs.vectors * pairs.values) @ pairs.vectors.T, SMALLEST, 1.0)
    squared = -np.log(values) / gamma
    np.fill_diagonal(squared, 0.0)
    products = -(squared - squared.mean(axis=0) - squared.mean(axis=1)[:, None] + squared.mean()) / 2
    n = len(products)
    found, vectors = linalg.eigh(products, subset_by_index=[max(0, n - n_columns), n - 1])
    return np.asarray((vectors * np.sqrt(np.maximum(found, 0.0)))[:, ::-1])


def fitted_to(guess: Floats, known: Floats, which: npt.NDArray[np.intp], *, shifted: bool) -> Floats:
    """All rows of a guess, turned, and shifted where it must be, so that some come nearest to rows that are known."""
    from_ = guess[which].mean(axis=0) if shifted else np.zeros(guess.shape[1])
    to = known.mean(axis=0) if shifted else np.zeros(known.shape[1])
    turn = linalg.orthogonal_procrustes(guess[which] - from_, known - to)[0]
    return np.asarray((guess - from_) @ turn + to)


def disclosed_by_pairs(disclosure: Disclosure, seed: int) -> Values:
    """How far rows found so are from the true ones, as a share of their distance from their mean.

    ``all``: turned by all true rows, so that nothing but the turn is in doubt; ``few``: by as many as a site has
    columns and one, judged by the others.
    """
    rows, rng, found = disclosure.load().rows, np.random.default_rng(seed), {}
    n, gamma = len(rows), gamma_of(disclosure.sigma, 1.0)
    for width in disclosure.widths:
        own = rows[:, rng.permutation(rows.shape[1])[:width]]
        few, every = rng.permutation(n)[: width + 1], np.arange(n)
        for kernel in KERNELS:
            pairs = kernel_pairs(kernel, gamma, own, n, seed=0)
            for rank in disclosure.ranks:
                guess = rows_from_pairs(kernel, gamma, pairs.top(rank), width)
                for name, which, judged in (("all", every, every), ("few", few, np.setdiff1d(every, few))):
                    made = fitted_to(guess, own[which], which, shifted=kernel == "rbf")
                    off, spread = (float(np.linalg.norm(own[judged] - to)) for to in (made[judged], own.mean(axis=0)))
                    found[f"{kernel}.{width}.{rank}.{name}"] = off / spread
    return found
