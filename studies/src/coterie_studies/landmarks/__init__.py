"""The study of landmark kernel k-means and kernel PCA: beside DSPGD and its paper's baselines, and where it loses.

Every way is an estimator; all clusterings of a set are judged by one reference, with the average-distance gamma of
all rows, whatever gamma a way found by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.estimators import DSPGDKernelPCA, FederatedKernelKMeans, FederatedKernelPCA, fit
from coterie.estimators.registry import make_estimator
from coterie.examples.datasets import SiteData
from coterie.maths.clustering import nearest, weighted_kmeans
from coterie.maths.kernels import Kernel, average_distance_gamma
from coterie.maths.landmarks import LandmarkMap
from coterie.methods.kernel.clusters import SumLengths
from coterie.methods.kernel.dspgd.protocol import Embedding
from coterie.runtime.ledger import Ledger
from coterie_studies.closed_forms import one_round, pooled_cost
from coterie_studies.federated_kernel_kmeans import floats_by_iteration
from coterie_studies.folder import Scope
from coterie_studies.kernel_quality import Reference, nmi
from coterie_studies.landmarks.cases import CASES, SMALL_CASES
from coterie_studies.landmarks.figures import write_findings
from coterie_studies.landmarks.sets import FULL, QUICK, LandmarkSet, LandmarkSets, Way
from coterie_studies.study import Label, Study, Trial

__all__ = ["STUDY", "make_study"]

Values = dict[str, float]
Fitted = FederatedKernelKMeans | FederatedKernelPCA

LAST = ("dspgd-lanczos", "rfk", "ce-pca")
"""The slowest ways; run when all others are done."""
MANY = 3000
"""Rows from which they are kept in single precision."""


def make_study(quick: LandmarkSets, full: LandmarkSets) -> Study:
    """The study over these sets."""
    return Study(
        "landmarks",
        "Landmark kernel k-means: few bytes, few rounds",
        partial(_trials, quick, full),
        partial(write_findings, quick, full),
        full_seeds=5,
    )


def _trials(quick: LandmarkSets, full: LandmarkSets, scope: Scope) -> list[Trial]:
    found = []
    for seed in range(scope.seeds):
        for name, one in (quick if scope.quick else full).items():
            for kind, way, measure in _measures(one, seed):
                labels: dict[str, Label] = {"set": name, "kind": kind, "way": way.name, "setting": way.setting}
                key = f"{name}/{kind}/{way.name}/{way.setting}/seed={seed}"
                found.append(Trial(key, measure, {**labels, "seed": seed}))
    return sorted(found, key=lambda trial: trial.labels["way"] in LAST)


def _measures(one: LandmarkSet, seed: int) -> Iterator[tuple[str, Way, Callable[[], Values]]]:
    for way in one.ways:
        yield "clusters", way, partial(_pooled_in_blocks if way.name == "sk" else _clustered, one, way, seed)
    for way in one.embeddings:
        yield "embedding", way, partial(_embedded, one, way, seed)


# ---------------------------------------------------------------- one trial


def _clustered(one: LandmarkSet, way: Way, seed: int) -> Values:
    """A clustering, how good it is, and what it took."""
    began = time.perf_counter()
    options: dict[str, Any] = {"n_components": one.n_components} if way.name == "ck" else {}
    options = {
        "n_clusters": one.n_clusters,
        "gamma": _given_gamma(one),
        "random_state": seed,
        **options,
        **way.options,
    }
    made: Any = make_estimator(options.pop("method", "landmarks"), options)
    _fit(made, one, way)
    took = time.perf_counter() - began
    labels = made.labels_ if not way.is_masked else _nearest(made, _loaded(one).rows)
    return {**_judged(one, labels), **_sent(made.ledger_), **_iterations(made), "seconds": took}


def _pooled_in_blocks(one: LandmarkSet, way: Way, seed: int) -> Values:  # noqa: ARG001
    """SK with 1000 landmarks; the estimator has all rows' features at once, too many where rows are many."""
    began, data = time.perf_counter(), _loaded(one)
    found = Reference(_kernel(one), data.rows, exact_rows=0, seed=seed + 1).pairs(one.n_components)
    h = found.vectors * np.sqrt(found.values)
    centers = weighted_kmeans(h, np.ones(len(h)), one.n_clusters, seed=seed)
    labels = nearest(h, centers)[0]
    took = time.perf_counter() - began
    sizes, d = np.unique(data.site, return_counts=True)[1].tolist(), data.rows.shape[1]
    spent = one_round([SumLengths(d)] * len(sizes), method="sk") + pooled_cost(d, sizes, method="sk")
    sent = {"bytes_up": spent.bytes_up / len(sizes), "floats_up": spent.floats_up / len(sizes)}
    return {**_judged(one, labels), **sent, "rounds": spent.rounds, "rounds_masking": 0, "seconds": took}


def _embedded(one: LandmarkSet, way: Way, seed: int) -> Values:
    """Components, their recover error, and what they took."""
    began = time.perf_counter()
    kind = DSPGDKernelPCA if way.options.get("method") == "dspgd" else FederatedKernelPCA
    options = {name: value for name, value in way.options.items() if name != "method"}
    made: Any = kind(one.n_components, gamma=_given_gamma(one), center=False, random_state=seed, **options)
    _fit(made, one, way)
    took, rows = time.perf_counter() - began, _loaded(one).rows
    embedding = made.embedding_
    h = embedding.embed(rows) if isinstance(embedding, LandmarkMap) else made.transform(rows)
    error = _reference(one).recover_error(h.astype(np.float64, copy=False), one.n_components)
    return {"error": error, **_sent(made.ledger_), **_iterations(made), "seconds": took}


def _fit(estimator: Fitted, one: LandmarkSet, way: Way) -> None:
    data = _loaded(one)
    if way.is_masked:
        fit(estimator, data.by_site())
    else:
        estimator.fit(data.rows, sites=data.site)


def _nearest(made: FederatedKernelKMeans, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return nearest(made.prepared_rows(rows), made.cluster_centers_)[0]


def _judged(one: LandmarkSet, labels: npt.NDArray[Any]) -> Values:
    return {**nmi(_loaded(one).truth, labels), "cost": _reference(one).cost(labels)}


def _sent(ledger: Ledger) -> Values:
    """Numbers and bytes a site, the mean over sites, the rounds, and the answers of one site that were seen."""
    n_sites = len(ledger.sites())
    singles = [one for one in ledger.exchanges if one.seen == "single" and one.content not in ("nothing", "schema")]
    return {
        "bytes_up": ledger.total("bytes_up") / n_sites,
        "floats_up": ledger.total("floats_up") / n_sites,
        "rounds": ledger.total("rounds"),
        "rounds_masking": ledger.total("rounds_masking"),
        "singles": sum(len(one.sites) for one in singles),
    }


def _iterations(made: Fitted) -> Values:
    """The numbers a site that are DSPGD's iterations' own: gamma, the start and the clustering left out."""
    if not isinstance(made.embedding_, Embedding):
        return {}
    ledger = made.ledger_
    return {"floats_iterations": sum(floats_by_iteration(made.embedding_, ledger)) / len(ledger.sites())}


# ---------------------------------------------------------------- kept between trials


@lru_cache(maxsize=1)
def _loaded(one: LandmarkSet) -> SiteData:
    data = one.load()
    rows: Any = data.rows.astype(np.float32) if len(data.rows) > MANY else data.rows
    return replace(data, rows=rows)


@lru_cache(maxsize=1)
def _reference(one: LandmarkSet) -> Reference:
    """What a set is judged by, the same for all ways and seeds."""
    return Reference(_kernel(one), _loaded(one).rows)


@lru_cache(maxsize=1)
def _kernel(one: LandmarkSet) -> Kernel:
    if one.gamma is not None:
        return Kernel("rbf", one.gamma)
    rows = _loaded(one).rows
    squares = float(sum(np.vdot(part, part) for part in map(_double, np.array_split(rows, 20))))
    gamma = average_distance_gamma(float(len(rows)), rows.sum(axis=0, dtype=np.float64), squares)
    return Kernel("rbf", one.gamma_times * gamma)


def _double(rows: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    return rows.astype(np.float64, copy=False)


def _given_gamma(one: LandmarkSet) -> float | None:
    """What ways are told of gamma: nothing, unless it is not the average distance's."""
    return _kernel(one).gamma if one.gamma is not None or one.gamma_times != 1 else None


STUDY = make_study({**QUICK, **SMALL_CASES}, {**FULL, **CASES})
