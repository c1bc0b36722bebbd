"""How good an embedding or a clustering is for a kernel: held against the kernel matrix of all rows, or Nystroem's
part of it where there are too many rows for that. Rows are gone through in blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.maths.clustering import counts_by_cell, sums_by_cell
from coterie.maths.kernels import Kernel
from coterie.maths.spectra import Ritz, eigenpairs_above, inverse_root
from coterie.messages.site_api import Memory
from coterie.methods.kernel.dspgd.protocol import Embedding
from coterie.methods.kernel.dspgd.sites import held_of, keep_advance, keep_kernel
from coterie.sites.tables import ArrayTable

__all__ = ["Reference", "factors", "nmi", "shrunk", "squared_distance", "unshrunk"]

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.floating[Any]]

FEW = 3000
"""Rows up to which the kernel matrix is used as it is, in double precision."""
BLOCK_BYTES = 32 << 20
"""Kernel values are computed for so many rows at a time."""


class Reference:
    """Features that stand for the kernel of all rows: phi(x) phi(y)' = k(x, y) exactly for up to ``exact_rows`` rows,
    else Nystroem's phi(x) = k(x, L) K(L, L)^(-1/2) with ``n_landmarks`` of the rows as L.

    They are never held for all rows: what is asked for is summed up in blocks.
    """

    def __init__(
        self, kernel: Kernel, rows: Rows, *, n_landmarks: int = 1000, exact_rows: int = FEW, seed: int = 0
    ) -> None:
        self.kernel, self.rows = kernel, rows
        self.is_exact = len(rows) <= exact_rows
        self._pairs: Ritz | None = None
        self._landmarks = rows
        if not self.is_exact:
            size = min(n_landmarks, len(rows))
            drawn = np.random.default_rng([seed, 1]).choice(len(rows), size, replace=False)
            self._landmarks = np.unique(rows[drawn], axis=0)
            self._root = inverse_root(kernel.between(self._landmarks, self._landmarks))

    def cost(self, labels: npt.NDArray[Any]) -> float:
        """f_K, the kernel k-means cost: trace(K) less, for every cluster, |sum of phi|^2 over its size."""
        names, cells = np.unique(labels, return_inverse=True)
        once, k = np.ones(len(cells)), len(names)
        sums = np.zeros((k, len(self._landmarks)))
        for where, values in self._blocks():
            sums += sums_by_cell(values, cells[where], once[where], k)
        sizes = counts_by_cell(cells, once, k)
        if self.is_exact:
            inside = float((sums[cells, np.arange(len(cells))] / sizes[cells]).sum())
        else:
            turned = sums @ self._root
            inside = float((np.vecdot(turned, turned) / sizes).sum())
        return float(self.kernel.diagonal(self.rows).sum()) - inside

    def pairs(self, count: int) -> Ritz:
        """The first eigenpairs of the kernel matrix; kept for the next question."""
        if self._pairs is None or len(self._pairs.values) < count:
            self._pairs = (self._exact_pairs if self.is_exact else self._nystroem_pairs)(count)
        return self._pairs.top(count)

    def recover_error(self, factor: Floats, s: int) -> float:
        """|H H' - K_s|_F^2 / N^2, K_s being the best part of rank s of the kernel matrix."""
        best = self.pairs(s)
        return squared_distance(factor, best.vectors * np.sqrt(best.values)) / len(self.rows) ** 2

    def _exact_pairs(self, count: int) -> Ritz:
        """From the matrix itself; beyond ``FEW`` rows in single precision: of 20,000 rows it takes 1.6 GB."""
        from scipy.sparse.linalg import eigsh

        n = len(self.rows)
        matrix = np.empty((n, n), np.float64 if n <= FEW else np.float32)
        for where, values in self._blocks():
            matrix[where] = values
        values, vectors = eigsh(matrix, min(count, n - 1), v0=np.ones(n, matrix.dtype))
        order = np.argsort(values)[::-1]
        return Ritz(values[order].astype(np.float64), vectors[:, order].astype(np.float64))

    def _nystroem_pairs(self, count: int) -> Ritz:
        """From the Gram of phi; once its directions are known, the rows are gone through again."""
        gram = np.zeros((self._root.shape[1],) * 2)
        for _, values in self._blocks():
            features = values @ self._root
            gram += features.T @ features
        found = eigenpairs_above(gram).top(count)
        found = found.above(1e-12 * found.values[0])
        turn = self._root @ (found.vectors / np.sqrt(found.values))
        vectors = np.zeros((len(self.rows), len(found.values)))
        for where, values in self._blocks():
            vectors[where] = values @ turn
        return Ritz(found.values, vectors)

    def _blocks(self) -> Iterator[tuple[slice, Floats]]:
        """Kernel values of some rows at a time with the landmarks."""
        step = max(1, BLOCK_BYTES // (8 * len(self._landmarks)))
        for start in range(0, len(self.rows), step):
            where = slice(start, min(start + step, len(self.rows)))
            yield where, self.kernel.between(self.rows[where], self._landmarks)


def squared_distance(one: Floats, other: Floats) -> float:
    """|F F' - G G'|_F^2 from the Grams of the factors; nothing N x N is formed."""
    apart = ((one.T @ one) ** 2).sum() - 2 * ((one.T @ other) ** 2).sum() + ((other.T @ other) ** 2).sum()
    return max(float(apart), 0.0)


def factors(made: Embedding, rows: Rows) -> Iterator[Floats]:
    """B_{t+1} of every iteration of DSPGD but the last, from the public requests and the rows."""
    begin: Any
    begin, *steps = made.transcript
    table, memory = ArrayTable(rows), Memory()
    keep_kernel(table, memory, begin)
    for ask in steps[:-1]:
        keep_advance(table, memory, ask)
        yield held_of(memory).b


def unshrunk(b: Floats, threshold: float, s: int) -> Floats:
    """H, had iteration t been the last: a factor of K_t = sum_{i <= s} (l_i + (1 - eta_t) lambda) u_i u_i'."""
    b = b[:, :s]
    squared = np.vecdot(b.T, b.T)
    longer: Floats = b * np.sqrt((squared + threshold) / squared)
    return longer


def shrunk(pairs: Ritz, threshold: float) -> Floats:
    """A factor of D_lambda(K) = sum over l_i > lambda of (l_i - lambda) u_i u_i', which Z_t converges to."""
    kept = pairs.above(threshold)
    factor: Floats = kept.vectors * np.sqrt(kept.values - threshold)
    return factor


def nmi(truth: npt.NDArray[Any], labels: npt.NDArray[Any]) -> dict[str, float]:
    """Normalised mutual information over the geometric mean of the entropies (Strehl & Ghosh 2002, the paper's) and
    over the arithmetic mean (scikit-learn's default)."""
    from sklearn.metrics import normalized_mutual_info_score

    ways = ("geometric", "arithmetic")
    return {f"nmi_{way}": float(normalized_mutual_info_score(truth, labels, average_method=way)) for way in ways}
