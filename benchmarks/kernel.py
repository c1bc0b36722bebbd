"""Kernel k-means by DSPGD: beside the products it cannot avoid, and beside pooled kernel clustering."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from benchmarks.lloyd import _mnist
from benchmarks.measure import Grid, Line, Result, alternating, seconds
from coterie import DSPGDKernelKMeans, FederatedKernelKMeans
from coterie.engines.inprocess import in_process
from coterie.maths.features import draw_features
from coterie.maths.kernels import Kernel, average_distance_gamma
from coterie.messages.site_api import Memory
from coterie.methods.kernel.dspgd.sites import (
    Advance,
    BeginKernel,
    SendGram,
    keep_advance,
    keep_kernel,
    local_triangle,
)
from coterie.runtime.run import run
from coterie.sites.tables import ArrayTable

Rows = npt.NDArray[Any]
D, RANK, SITES = 40, 20, 5
N = D + RANK


def one_step() -> Result:
    """A site's part of one iteration against the two products and the cosines in it, all in one thread."""
    rows, name = _mnist()
    part = np.ascontiguousarray(rows[: len(rows) // SITES], dtype=np.float64)
    kernel, table, b = Kernel("rbf", 0.01), ArrayTable(part), np.random.default_rng(0).normal(size=(len(part), RANK))
    memory = Memory()
    ask, means = SendGram(1, 2.0, N * (N + 1) // 2, N, 0.5, np.zeros(D)), np.zeros(D)
    advance = Advance(1, 0.5, False, means, np.random.default_rng(1).normal(size=(N, RANK)), np.ones(RANK))

    def ours() -> None:
        keep_kernel(table, memory, BeginKernel("rbf", 0.01, 3, 1.0, D, "phase", 0, "float64"))
        memory["dspgd"].b = b
        local_triangle(table, memory, ask)
        keep_advance(table, memory, advance)

    def bare() -> None:
        drawn = draw_features(kernel, D, part.shape[1], 0, 1)
        w = np.concatenate([drawn(part), b], axis=1)
        w.T @ w
        w @ advance.vectors

    with threadpool_limits(1):
        ours()
        bare()
        ratio = alternating(ours, bare)
    lines = [Line("a site's step as a ratio to the bare products and cosines", ratio, "x", 1.5)]
    return Result(f"DSPGD, one site of {len(part)} rows of {name}, D={D}, r={RANK}", lines)


def whole_fit() -> Result:
    """A whole run against the sum of what its sites computed."""
    rows, name = _mnist()
    tables = {f"site-{i}": ArrayTable(part) for i, part in enumerate(np.array_split(rows, SITES))}
    estimator = _dspgd(solver="gram")
    estimator.begin()
    with in_process(tables, threads=1) as channel:
        took = seconds(lambda: run(estimator.protocol(estimator.context(rows.shape[1])), channel, method="dspgd"))
        inside = sum(site.compute_seconds for site in channel.members.values())
    lines = [
        Line("a whole run as a ratio to the sum of its sites' steps, one at a time", took / inside, "x", 1.3),
        Line("seconds at the sites in all", inside, "s"),
    ]
    return Result(f"Kernel k-means by DSPGD, {SITES} sites, {name}, D={D}, T=20, Gram", lines)


def beside_pooled() -> Result:
    """Quality and time beside pooled kernel clustering, on 3,000 rows so that exact methods can take part."""
    rows, name = _mnist()
    rows = np.ascontiguousarray(rows[:3000], dtype=np.float64)
    gamma = average_distance_gamma(len(rows), rows.sum(0), float((rows**2).sum()))
    exact = Kernel("rbf", gamma).between(rows, rows)
    grid = Grid(f"3,000 rows of {name}, k=10", ("way", "f_K / best", "seconds"))
    found = []
    for way, cluster in _ways(rows, gamma).items():
        labels: list[Any] = []
        took = seconds(lambda cluster=cluster, labels=labels: labels.append(cluster()))  # type: ignore[misc]
        found.append((way, _objective(exact, labels[0]), took))
    best = min(cost for _, cost, _ in found)
    grid.rows += [(way, f"{cost / best:.4f}", f"{took:.2f}") for way, cost, took in found]
    ours = next(cost for way, cost, _ in found if way.startswith("coterie")) / best
    lines = [Line("our objective as a ratio to the best of all", ours, "x")]
    remark = (
        "" if importlib.util.find_spec("tslearn") else "tslearn is not installed, so its KernelKMeans is left out."
    )
    return Result("Kernel k-means beside pooled ways", lines, remark, [grid])


def _dspgd(**options: Any) -> DSPGDKernelKMeans:
    return DSPGDKernelKMeans(10, n_components=20, n_features=D, n_iter=20, random_state=0, **options)


def _ways(rows: Rows, gamma: float) -> dict[str, Any]:
    from sklearn.cluster import KMeans, SpectralClustering
    from sklearn.kernel_approximation import Nystroem
    from sklearn.pipeline import make_pipeline

    owners = np.arange(len(rows)) % SITES
    ours, landmarks = _dspgd(gamma=gamma), FederatedKernelKMeans(10, gamma=gamma, random_state=0)
    nystroem = make_pipeline(Nystroem(gamma=gamma, n_components=100, random_state=0), KMeans(10, n_init=1))
    spectral = SpectralClustering(10, gamma=gamma, random_state=0)
    ways: dict[str, Any] = {
        f"coterie, landmarks over {SITES} sites": lambda: landmarks.fit(rows, sites=owners).labels_,
        f"coterie, DSPGD over {SITES} sites": lambda: ours.fit(rows, sites=owners).labels_,
        "scikit-learn, Nystroem(100) + KMeans, pooled": lambda: nystroem.fit_predict(rows),
        "scikit-learn, SpectralClustering, pooled": lambda: spectral.fit_predict(rows),
    }
    if importlib.util.find_spec("tslearn"):
        from tslearn.clustering import KernelKMeans

        theirs = KernelKMeans(10, kernel="rbf", kernel_params={"gamma": gamma}, random_state=0)
        ways["tslearn, KernelKMeans, pooled"] = lambda: theirs.fit_predict(rows[:, :, None])
    return ways


def _objective(exact: Rows, labels: Rows) -> float:
    """f_K of equation (1)."""
    member = np.eye(int(labels.max()) + 1)[labels]
    counts = np.maximum(member.sum(axis=0), 1)
    return float(np.trace(exact) - (np.einsum("ik,ij,jk->k", member, exact, member, optimize=True) / counts).sum())


BENCHMARKS = {"kernel-step": one_step, "kernel-fit": whole_fit, "kernel-pooled": beside_pooled}
