"""The study of Lu et al. (2020), "Communication-efficient k-means for edge-based machine learning".

Tables II and III and figures 1 and 3 on MNIST: scalars sent, normalized cost and time at the source of NR, FSS and
JL pipelines with one source, of BKLW and JL+BKLW with ten; the same with k = 10, where the cost tells more; and
clusters that are rare or differ between sites.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.engines.inprocess import InProcess, in_process
from coterie.estimators import EdgeKMeans
from coterie.examples.datasets import SiteData
from coterie.maths.clustering import nearest, weighted_kmeans
from coterie.messages.verbs import Protocol
from coterie.methods.edge.pca import mean_of_all
from coterie.methods.edge.questions import EdgeSettings
from coterie.methods.edge.stages import Pipeline
from coterie.runtime.channel import Outcome
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import Progress, run
from coterie.sites.tables import ArrayTable
from coterie_studies.closed_forms import edge_cost
from coterie_studies.edge_kmeans.figures import write_findings
from coterie_studies.edge_kmeans.sets import (
    CASES,
    FULL,
    QUICK,
    SMALL_CASES,
    Case,
    Cases,
    EdgeSet,
    EdgeSets,
    Rows,
    Sources,
    Way,
    zero_mean,
)
from coterie_studies.folder import Scope
from coterie_studies.study import Label, Study, Trial

__all__ = ["STUDY", "make_study"]

Floats = npt.NDArray[np.float64]
Values = dict[str, float]
SOURCES: tuple[Sources, ...] = ("one", "ten")


def make_study(quick: tuple[EdgeSets, Cases], full: tuple[EdgeSets, Cases]) -> Study:
    """The study over these sets and cases."""
    return Study(
        "edge-kmeans",
        "k-means from small summaries (Lu et al. 2020): tables II and III, figures 1 and 3",
        partial(_trials, quick, full),
        partial(write_findings, quick, full),
    )


def _trials(quick: tuple[EdgeSets, Cases], full: tuple[EdgeSets, Cases], scope: Scope) -> list[Trial]:
    sets, cases = quick if scope.quick else full
    found: list[Trial] = []
    for name, one in sets.items():
        for seed in range(scope.seeds):  # those of one seed follow each other: their times are compared
            for sources in SOURCES:
                found += _of_set(name, one, sources, seed)
    for name, case in cases.items():
        for seed in range(2 * scope.seeds):
            for way in case.ways:
                labels: dict[str, Label] = {"set": name, "way": way.name, "seed": seed}
                found.append(Trial(f"{name}/{way.name}/seed={seed}", partial(_of_case, case, way, seed), labels))
    return found


def _of_set(name: str, one: EdgeSet, sources: Sources, seed: int) -> Iterator[Trial]:
    for way in one.ways(sources):
        if seed < way.most_seeds:
            labels: dict[str, Label] = {"set": name, "sources": sources, "way": way.name, "sizes": way.sizes}
            key = f"{name}/{sources}/{way.name}/{way.sizes or '-'}/seed={seed}"
            yield Trial(key, partial(_measured, one, sources, way, seed), {**labels, "seed": seed})


# ---------------------------------------------------------------- one trial


def _measured(one: EdgeSet, sources: Sources, way: Way, seed: int) -> Values:
    """Centers by one way, their cost over the best, what was sent, and the time it took at the sources."""
    rows = _loaded(one.load)
    tables = _shared_out(one.load, sources, seed)
    if way.pipeline == "nr":
        centers, told = _optimum(one, seed), _nr_sent(one.n_clusters, tables)
    elif way.pipeline == "mean":
        (_, mean), ledger, seconds = _run(mean_of_all(rows.shape[1]), tables, "federated-pca")
        centers, told = mean[None], {**_sent(ledger), "seconds": seconds}
    else:
        centers, told = _fitted(way, one.n_clusters, tables, seed)
    return {"ratio": _cost(rows, centers) / _cost(rows, _optimum(one, 0)), **told}


def _of_case(case: Case, way: Way, seed: int) -> Values:
    """The same where rows and sites are drawn anew for every seed, or where sites are sorted by label."""
    data, best = _drawn(case, seed)
    word, _, size = way.pipeline.partition(":")
    if word == "uniform":
        centers, told = uniform_sample(data.rows, int(size), case.n_clusters, seed)
    else:
        centers, told = _fitted(way, case.n_clusters, data.by_site(), seed)
    return {"ratio": _cost(data.rows, centers) / best, **told}


def _fitted(way: Way, k: int, tables: Mapping[str, Rows], seed: int) -> tuple[Floats, Values]:
    """The estimator's centers, found as its ``fit`` finds them."""
    made = EdgeKMeans(k, pipeline=way.pipeline, refine=way.refine, budget=way.budget, center=False, random_state=seed)
    made.begin()
    result, ledger, seconds = _run(made.protocol(made.context(_width(tables))), tables, made.method)
    return result.centers, {**_sent(ledger), "seconds": seconds}


def _run(steps: Protocol[Any], tables: Mapping[str, Rows], method: str) -> tuple[Any, Ledger, float]:
    """What a protocol finds, what was sent, and the seconds all sources computed, one after the other.

    The last question, what the centers found cost, is none of the paper's: it is counted, but not timed.
    """
    ledger, seconds = Ledger(), [0.0]
    with in_process({name: ArrayTable(rows, name=name) for name, rows in tables.items()}, threads=1) as channel:
        timed = _Timed(channel)

        def answered(told: Progress) -> None:
            if not told.exchange.asked.endswith(".Close"):
                seconds.append(timed.seconds)

        result = run(steps, timed, method=method, ledger=ledger, watch=answered)
    return result, ledger, seconds[-1]


@dataclass
class _Timed:
    """A channel, and the seconds its sites computed: of the time that took, what this process had of the machine."""

    channel: InProcess
    seconds: float = 0.0

    def sites(self) -> Sequence[str]:
        """The names of the sites."""
        return self.channel.sites()

    def exchange(self, payloads: Mapping[str, bytes], timeout: float | None) -> Mapping[str, Outcome]:
        """Let every site answer."""
        computed, had, began = self._computed(), time.process_time(), time.perf_counter()
        found = self.channel.exchange(payloads, timeout)
        share = (time.process_time() - had) / (time.perf_counter() - began)
        self.seconds += share * (self._computed() - computed)
        return found

    def _computed(self) -> float:
        return sum(site.compute_seconds for site in self.channel.members.values())


def _nr_sent(k: int, tables: Mapping[str, Rows]) -> Values:
    """What NR sends, in closed form: from one source the rows of MNIST are more than a site ever sends at once."""
    sizes = [len(rows) for rows in tables.values()]
    spent = edge_cost(
        EdgeSettings(pipeline=Pipeline(())), Pipeline(()), k, _width(tables), sizes, n_sites=len(sizes),
        rounds=0, method="nr",
    )  # fmt: skip
    return {"floats_up": spent.floats_up, "bytes_up": spent.bytes_up, "rounds": spent.rounds, "seconds": 0.0}


def uniform_sample(rows: Rows, size: int, k: int, seed: int) -> tuple[Floats, Values]:
    """Centers of rows drawn uniformly from all sites' together, none twice; only their numbers are sent."""
    drawn = rows[np.random.default_rng(seed).choice(len(rows), size, replace=False)].astype(np.float64)
    centers = weighted_kmeans(drawn, np.ones(size), k, seed=seed)
    return centers, {"floats_up": drawn.size, "bytes_up": 8 * drawn.size, "rounds": 1, "seconds": 0.0}


def _sent(ledger: Ledger) -> Values:
    return {name: ledger.total(name) for name in ("floats_up", "bytes_up", "rounds")}


def _width(tables: Mapping[str, Rows]) -> int:
    return int(next(iter(tables.values())).shape[1])


def _cost(rows: Rows, centers: Floats) -> float:
    return float(nearest(rows, centers)[1].sum(dtype=np.float64))


# ---------------------------------------------------------------- kept between trials


@lru_cache(maxsize=1)
def _loaded(load: Callable[[], SiteData]) -> Rows:
    return zero_mean(load())


@lru_cache(maxsize=1)
def _shared_out(load: Callable[[], SiteData], sources: Sources, seed: int) -> Mapping[str, Rows]:
    """All rows at one source, or at random over ten, in another way for every seed."""
    rows = _loaded(load)
    if sources == "one":
        return {"all": rows}
    dealt = np.random.default_rng(seed).permutation(len(rows)) % 10
    return {f"source-{i}": rows[dealt == i] for i in range(10)}


@lru_cache(maxsize=4)
def _optimum(one: EdgeSet, seed: int) -> Floats:
    """X*: the best of ten starts on all rows."""
    return _best_of_ten(_loaded(one.load), one.n_clusters, seed)


@lru_cache(maxsize=2)
def _drawn(case: Case, seed: int) -> tuple[SiteData, float]:
    """Rows by site, and the best cost known: of ten starts on all rows, or from the means of the classes."""
    from sklearn.cluster import KMeans

    data, k = case.draw(seed), case.n_clusters
    means = np.array([data.rows[data.truth == label].mean(axis=0) for label in np.unique(data.truth)])
    given: Floats = KMeans(k, init=means, n_init=1).fit(data.rows).cluster_centers_
    return data, min(_cost(data.rows, centers) for centers in (given, _best_of_ten(data.rows, k, 0)))


def _best_of_ten(rows: Rows, k: int, seed: int) -> Floats:
    from sklearn.cluster import KMeans

    centers: Floats = KMeans(k, n_init=10, random_state=seed).fit(rows).cluster_centers_.astype(np.float64)
    return centers


STUDY = make_study((QUICK, SMALL_CASES), (FULL, CASES))
