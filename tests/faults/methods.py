"""What faults happen to: landmarks and DSPGD in every way they are run, small enough to be run some hundred times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import numpy as np
from sklearn.datasets import load_digits

from coterie import DSPGDKernelKMeans, DSPGDKernelPCA, FederatedKernelKMeans, FederatedKernelPCA
from coterie.messages.site_api import Memory
from coterie.methods.kernel.dspgd.protocol import Embedding
from coterie.methods.kernel.dspgd.sites import Advance, _parts, keep_advance, keep_kernel
from coterie.runtime.ledger import Exchange
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from coterie.sites.views import grouped_view
from tests.federations import Rows, split_evenly

N_SITES = 5
NAMES = tuple(f"site-{m}" for m in range(N_SITES))


@cache
def digits(n_columns: int) -> Rows:
    """Two hundred digits, neighbouring pixels added up."""
    pixels = load_digits().data[:200]
    rows: Rows = np.add.reduceat(pixels, np.linspace(0, 64, n_columns, endpoint=False).astype(int), axis=1)
    return rows


@dataclass(frozen=True)
class Method:
    """An estimator, its rows and how they are summed up; ``default`` is masked, by the default policy."""

    name: str
    make: Callable[[], Any]
    sums: Literal["plain", "masked", "default"]
    n_columns: int = 12

    @property
    def title(self) -> str:
        return f"{self.name}, {self.sums}"

    @property
    def rows(self) -> Rows:
        return digits(self.n_columns)

    def tables(self) -> dict[str, ArrayTable]:
        return split_evenly(self.rows, N_SITES)

    def shown(self) -> dict[str, ArrayTable]:
        """The tables as sites of this policy show them to a method."""
        if self.policy.protection == "none":
            return self.tables()
        found = {}
        for name, table in self.tables().items():
            blocks = list(grouped_view(table, self.policy.min_group, SiteLedger()).blocks())
            rows, weights = (np.concatenate([block[i] for block in blocks]) for i in (0, 1))
            found[name] = ArrayTable(rows, weights=weights)
        return found

    @property
    def is_masked(self) -> bool:
        return self.sums != "plain"

    @property
    def policy(self) -> Policy:
        if self.sums != "default":
            return Policy.simulation()
        return Policy(per_site_results="averages" if "local" in self.name else "none")

    def numbers(self, fitted: Any) -> list[Rows]:
        """All that a run found, as arrays: kernel, eigenvalues, clusters, and every row embedded."""
        clusters = getattr(fitted.result_, "clusters", None)
        found = [] if clusters is None else [clusters.centers, np.array(clusters.cost), clusters.counts]
        rows = fitted.embedding_.embed(self.rows)
        return [np.array(fitted.gamma_), fitted.eigenvalues_, *found, rows]


def _methods(sums: Literal["plain", "masked", "default"]) -> list[Method]:
    clusters = partial(FederatedKernelKMeans, 3, max_rounds=2, random_state=0)
    components = partial(FederatedKernelPCA, 3, random_state=0)
    dspgd = {"max_rounds": 2, "random_state": 0, "n_features": 8, "n_iter": 3, "n_components": 4}
    centered = {"random_state": 0, "n_features": 6, "n_iter": 2, "kernel": "polynomial", "degree": 2}
    lanczos = {**dspgd, "solver": "lanczos", "n_features": 6, "n_iter": 2, "n_components": 3}
    return [
        Method("landmarks local", partial(clusters, landmarks="local", n_landmarks=15), sums),
        Method("landmarks summed", partial(clusters, landmarks="summed", n_landmarks=8), sums),
        Method("landmarks summed, PCA", partial(components, landmarks="summed", n_landmarks=8), sums, 36),
        Method("dspgd gram", partial(DSPGDKernelKMeans, 3, solver="gram", **dspgd), sums),
        Method("dspgd lanczos", partial(DSPGDKernelKMeans, 3, **lanczos), sums),
        Method("dspgd gram, centered PCA", partial(DSPGDKernelPCA, 3, solver="gram", **centered), sums),
    ]


PLAIN, MASKED, DEFAULT = _methods("plain"), _methods("masked"), _methods("default")
ALL = [*PLAIN, *MASKED, *DEFAULT]
VERIFIED = [m for m in DEFAULT if m.policy.verifies]
QUICK = [
    *(m for m in PLAIN if m.name != "landmarks summed"),
    *(m for m in MASKED if "PCA" not in m.name),
    *(m for m in VERIFIED if m.name in ("landmarks summed", "dspgd lanczos")),
]
"""Every method, every solver and every way to sum up, though not each with each."""


def told_residual(fitted: Any, method: Method, exchanges: list[Exchange]) -> float:
    """The largest |W'W v - rho v| over the eigenpairs sites were told, over the rows of those who had been asked.

    Whose rows they are is read off the ledger: of the last question about W_t before sites were told.
    """
    found = fitted.embedding_
    if not isinstance(found, Embedding) or method.policy.verifies:  # there sites tell themselves
        return 0.0
    shown = [block for table in method.shown().values() for block in table.blocks()]
    counts = np.concatenate([block.counts for block in shown])
    table, memory, worst = ArrayTable(np.concatenate([block.rows for block in shown]), weights=counts), Memory(), 0.0
    owners = np.concatenate([np.full(t.n_rows, m) for m, t in enumerate(method.shown().values())])
    keep_kernel(table, memory, found.transcript[0])
    for ask, names in zip(found.transcript[1:], _asked_about(exchanges), strict=True):
        assert isinstance(ask, Advance)
        inside = np.isin(owners, [NAMES.index(name) for name in names])
        w = np.concatenate([part for _, part in _parts(table, memory, ask.step, ask.eta, ask.means)])[inside]
        product = (w * counts[inside][:, None]).T @ (w @ ask.vectors)
        rho = np.vecdot(ask.vectors, product, axis=0)
        worst = max(worst, float(np.linalg.norm(product - ask.vectors * rho, axis=0).max() / rho[0]))
        keep_advance(table, memory, ask)
    return worst


def _asked_about(exchanges: list[Exchange]) -> list[list[str]]:
    """Who answered the last question about W_t, for every time sites were told of its eigenpairs."""
    last: list[str] = []
    found = []
    for exchange in exchanges:
        if exchange.asked.endswith(("SendGram", "Multiply")):
            last = [name for name, count in exchange.sites.items() if count.outcome.is_heard]
        if exchange.asked.endswith("Advance"):
            found.append(last)
    return found
