"""The study of "A communication efficient federated kernel k-means": its figures 1 to 5.

One run of DSPGD of T iterations holds every shorter one: only the last step differs, and what that would have been
is known from B_{T+1}. So a trial runs all iterations once and records the values sent, Q and r_t (figures 2, 4
and 5), the recover error (figure 1), and at T = 10, 20, ... the clusters it would have ended in (figure 3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from coterie.engines.inprocess import in_process
from coterie.examples.datasets import SiteData
from coterie.maths.clustering import nearest, weighted_kmeans
from coterie.maths.kernels import Kernel, average_distance_gamma
from coterie.messages.verbs import Protocol
from coterie.methods.kernel.clusters import (
    EmbeddedKMeans,
    KernelFit,
    KernelParameters,
    SumLengths,
    cluster_by_coreset,
    cluster_embedded,
)
from coterie.methods.kernel.dspgd.method import embed_by_dspgd
from coterie.methods.kernel.dspgd.protocol import DSPGDSettings, Embedding
from coterie.methods.method import RunContext
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.sites.tables import ArrayTable
from coterie_studies.closed_forms import one_round, pooled_cost
from coterie_studies.federated_kernel_kmeans.figures import write_findings
from coterie_studies.federated_kernel_kmeans.sets import FULL, QUICK, KernelSet, Sets
from coterie_studies.folder import Scope
from coterie_studies.kernel_quality import Reference, factors, nmi, shrunk, squared_distance, unshrunk
from coterie_studies.study import Label, Study, Trial

__all__ = ["STUDY", "floats_by_iteration", "make_study"]

Floats = npt.NDArray[np.float64]
Values = dict[str, float]
T = TypeVar("T")

MOST_EXACT = 20_000
"""Rows up to which figure 1's eigenpairs are those of the kernel matrix itself."""
STEPS = ("Multiply", "SendGram", "Project", "Expand")
"""The questions of an iteration that are answered in numbers."""


def make_study(quick: Sets = QUICK, full: Sets = FULL) -> Study:
    """The study over these sets."""
    return Study(
        "federated-kernel-kmeans",
        "Federated kernel k-means: figures 1 to 5",
        partial(_trials, quick, full),
        partial(write_findings, quick, full),
        full_seeds=5,
    )


def _trials(quick: Sets, full: Sets, scope: Scope) -> list[Trial]:
    found = []
    for seed in range(scope.seeds):
        for name, chosen in (quick if scope.quick else full).items():
            for way, setting, measure in _measures(chosen, seed):
                labels: dict[str, Label] = {"set": name, "way": way, "setting": setting, "seed": seed}
                found.append(Trial(f"{name}/{way}/{setting}/seed={seed}", measure, labels))
    return found


def _measures(chosen: KernelSet, seed: int) -> Iterator[tuple[str, str, Callable[[], Values]]]:
    """Everything there is to measure of a set and seed: the way, its setting, the function."""
    for way in ("cem", "gram", "dense") if chosen.turns else ("cem", "dense"):
        yield way, f"T={_iterations(chosen, way)}", partial(_dspgd, chosen, way, seed)
    if chosen.turns:
        yield "pooled", chosen.pooled, partial(_ck if chosen.pooled == "ck" else _sk, chosen, seed)
        for points in chosen.rfk_points:
            yield "rfk", f"C={points}", partial(_baseline, chosen, "rfk", chosen.rfk_features, points, seed)
        for n_features in chosen.ce_pca_features:
            yield "ce-pca", f"D={n_features}", partial(_baseline, chosen, "ce-pca", n_features, chosen.n_points, seed)


STUDY = make_study()


# ---------------------------------------------------------------- DSPGD: with CEM by Lanczos or Gram, and without


def _iterations(chosen: KernelSet, way: str) -> int:
    return chosen.n_iter_dense if way == "dense" else chosen.n_iter


def _dspgd(chosen: KernelSet, way: str, seed: int) -> Values:
    """Every iteration of one run."""
    data, n_iter = _loaded(chosen), _iterations(chosen, way)
    fit, ledger = _embedded(chosen, way, seed)
    made = _embedding(fit)
    found: Values = {"rows": len(data.rows), "threshold": made.threshold}
    for t, floats in enumerate(floats_by_iteration(made, ledger)[:n_iter], start=1):
        found |= {f"floats.{t}": floats, f"products.{t}": made.n_products[t - 1], f"rank.{t}": made.ranks[t - 1]}
    turns = () if way == "dense" else chosen.turns
    wants_errors = chosen.bound is not None and way != "gram"
    for t, b in enumerate(factors(made, data.rows) if turns or wants_errors else (), start=1):
        if wants_errors:
            found |= _errors(chosen, b, t, made.threshold)
        if t in turns:
            ended = _ended(chosen, fit, b, way, seed, _spent_by(ledger, t))
            found |= {f"{t}.{name}": value for name, value in ended.items()}
    return found


def _embedded(chosen: KernelSet, way: str, seed: int) -> tuple[KernelFit, Ledger]:
    """A run, and what it took: one iteration more than is told of, so that the last one told of leaves B_{T+1}."""
    data = _loaded(chosen)
    settings = DSPGDSettings(
        n_components=chosen.n_components,
        n_features=chosen.n_features,
        n_iter=_iterations(chosen, way) + 1,
        rank=chosen.n_clusters + 2,
        solver="gram" if way == "gram" else "lanczos",
        cem=way != "dense",
    )
    steps = embed_by_dspgd(KernelParameters(gamma=chosen.gamma), settings, data.rows.shape[1], seed=seed)
    return _run(steps, data.by_site(), "dspgd-dense" if way == "dense" else "dspgd")


def _embedding(fit: KernelFit) -> Embedding:
    assert isinstance(fit.embedding, Embedding)  # DSPGD's
    return fit.embedding


def floats_by_iteration(made: Embedding, ledger: Ledger) -> list[int]:
    """Numbers up in every iteration, from the ledger: Q exchanges each, or two times as many without CEM."""
    steps = [one for one in ledger.exchanges if one.asked.rpartition(".")[2] in STEPS]
    each = len(steps) // sum(made.n_products)
    cuts = np.cumsum(np.array(made.n_products) * each)[:-1]
    floats = [sum(site.floats_up for site in one.sites.values()) for one in steps]
    return [int(part.sum()) for part in np.split(np.array(floats), cuts)]


def _errors(chosen: KernelSet, b: Floats, t: int, threshold: float) -> Values:
    """The recover error |K_t - K_s|^2 / N^2, and that of the iterate from its limit, |Z_{t+1} - D_lambda(K)|^2 / N^2.

    ``floor`` is what the first tends to: eigenvalues between lambda and the s-th do not stay in K_t.
    """
    exact, s = _exact(chosen), chosen.n_components
    pairs, n = exact.pairs(2 * s), len(b)
    below = pairs.top(s).values[pairs.top(s).values <= threshold]
    is_whole = pairs.values[-1] <= threshold
    away = squared_distance(b, shrunk(pairs, threshold)) / n**2 if is_whole else float("nan")
    error = exact.recover_error(unshrunk(b, threshold, s), s)
    return {f"error.{t}": error, f"iterate.{t}": away, "floor": float((below**2).sum()) / n**2}


def _ended(chosen: KernelSet, fit: KernelFit, b: Floats, way: str, seed: int, spent: Ledger) -> Values:
    """The clusters, had this been the last iteration: by a coreset, as in the paper, or by sums (ours)."""
    data, k = _loaded(chosen), chosen.n_clusters
    h = unshrunk(b, _embedding(fit).threshold, chosen.n_components)
    fit = replace(fit, values=np.vecdot(h.T, h.T))
    if way == "cem":
        steps = cluster_by_coreset(fit, k, n_points=chosen.n_points, seed=seed)
    else:
        steps = cluster_embedded(fit, EmbeddedKMeans(k, init="cells"), RunContext(h.shape[1], seed))
    clusters, ledger = _run(steps, replace(data, rows=h).by_site(), "dspgd")
    spent.exchanges += ledger.exchanges
    return {**_judged(chosen, nearest(h, clusters.centers)[0]), **_sent(spent), "components": h.shape[1]}


def _spent_by(ledger: Ledger, t: int) -> Ledger:
    """What a run had spent when its t-th iteration was over (with CEM: when sites had been told so)."""
    ends = [i for i, one in enumerate(ledger.exchanges) if one.asked.endswith(".Advance")]
    spent = Ledger(ledger.method)
    spent.exchanges = ledger.exchanges[: ends[t - 1] + 1]
    return spent


# ---------------------------------------------------------------- what it is compared with


def _baseline(chosen: KernelSet, method: str, n_features: int, n_points: int, seed: int) -> Values:
    """RFK, CE PCA (d_s = 50, d_p = 250, p = 500) or CK as estimators."""
    from coterie.estimators.registry import make_estimator

    data = _loaded(chosen)
    sizes = {} if method == "ck" else {"n_features": n_features, "n_points": n_points}
    shared = {"n_clusters": chosen.n_clusters, "n_components": chosen.n_components, "gamma": chosen.gamma}
    made: Any = make_estimator(method, {**shared, **sizes, "random_state": seed})
    made.fit(data.rows, sites=data.site)
    return {**_judged(chosen, made.labels_), **_sent(made.ledger_)}


def _ck(chosen: KernelSet, seed: int) -> Values:
    return _baseline(chosen, "ck", 1, 1, seed)


def _sk(chosen: KernelSet, seed: int) -> Values:
    """SK with 1000 landmarks, rows in blocks: at once, as the estimator has them, they would not fit into memory."""
    data = _loaded(chosen)
    found = Reference(_kernel(chosen), data.rows, exact_rows=0, seed=seed + 1).pairs(chosen.n_components)
    h: Floats = found.vectors * np.sqrt(found.values)
    centers = weighted_kmeans(h, np.ones(len(h)), chosen.n_clusters, seed=seed)
    d, sizes = data.rows.shape[1], [len(rows) for rows in data.by_site().values()]
    spent = one_round([SumLengths(d)] * len(sizes), method="sk") + pooled_cost(d, sizes, method="sk")
    sent = {"floats_up": spent.floats_up, "bytes_up": spent.bytes_up, "rounds": spent.rounds}
    return {**_judged(chosen, nearest(h, centers)[0]), **sent}


# ---------------------------------------------------------------- shared by all


def _run(steps: Protocol[T], tables: Mapping[str, Floats], method: str) -> tuple[T, Ledger]:
    """What a protocol finds over these sites' rows, and what it took."""
    ledger = Ledger()
    with in_process({name: ArrayTable(rows, name=name) for name, rows in tables.items()}) as channel:
        return run(steps, channel, method=method, ledger=ledger), ledger


def _judged(chosen: KernelSet, labels: npt.NDArray[Any]) -> Values:
    return {**nmi(_loaded(chosen).truth, labels), "cost": _reference(chosen).cost(labels)}


def _sent(ledger: Ledger) -> Values:
    return {name: ledger.total(name) for name in ("floats_up", "bytes_up", "rounds")}


@lru_cache(maxsize=1)
def _loaded(chosen: KernelSet) -> SiteData:
    return chosen.load()


@lru_cache(maxsize=1)
def _reference(chosen: KernelSet) -> Reference:
    """What every clustering of a set is judged by, the same for all seeds."""
    return Reference(_kernel(chosen), _loaded(chosen).rows)


@lru_cache(maxsize=4)
def _exact(chosen: KernelSet) -> Reference:
    """Figure 1's: the kernel matrix itself, formed once a process."""
    return Reference(_kernel(chosen), _loaded(chosen).rows, exact_rows=MOST_EXACT)


def _kernel(chosen: KernelSet) -> Kernel:
    rows = _loaded(chosen).rows
    gamma = average_distance_gamma(float(len(rows)), rows.sum(axis=0), float(np.vdot(rows, rows)))
    return Kernel("rbf", gamma if chosen.gamma is None else chosen.gamma)
