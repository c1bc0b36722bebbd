"""The demonstration: three islands cluster their penguins together without pooling them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from coterie.engines.inprocess import in_process
from coterie.maths.clustering import nearest
from coterie.messages.site_part import Block, Column
from coterie.messages.verbs import Protocol
from coterie.protocols.lloyd import KMeansFit, lloyd
from coterie.protocols.preparation import Preparation, agree, standard
from coterie.protocols.seeding import var_part
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import Progress, run
from coterie.sites.tables import ArrayTable
from coterie.studies.datasets import SiteData, penguins

__all__ = ["Comparison", "Demo", "demo"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """One way to cluster: how good on all rows, at what cost."""

    way: str
    ari: float
    nmi: float
    cost_ratio: float
    """k-means cost over all rows, as a ratio to the pooled optimum."""
    floats_up: int
    bytes_up: int
    rounds: int


@dataclass(frozen=True)
class Demo:
    """What the demonstration found, ready to be written down or drawn."""

    data: SiteData
    preparation: Preparation
    scaled: Floats
    fit: KMeansFit
    labels: npt.NDArray[np.intp]
    alone: dict[str, npt.NDArray[np.intp]]
    comparisons: list[Comparison]
    ledger: Ledger
    n_clusters: int


def _together(columns: tuple[str, ...], n_clusters: int) -> Protocol[tuple[Preparation, KMeansFit]]:
    """Agree on columns, scale by sums, start by sums, and let Lloyd's algorithm run."""
    d = len(columns)
    yield from agree([Column(name) for name in columns])
    made = yield from standard(d, missing="drop")
    start = yield from var_part(n_clusters, d, origin=np.zeros(d))
    return made, (yield from lloyd(start))


def demo(n_clusters: int = 3, *, folder: Path | None = None, watch: Callable[[Progress], None] | None = None) -> Demo:
    """Cluster the penguins of three islands: together, each island alone, and pooled.

    With ``folder`` every island's own ledger is kept there.
    """
    data = penguins()
    tables = {name: ArrayTable(rows, columns=data.columns, name=name) for name, rows in data.by_site().items()}
    ledger = Ledger()
    with in_process(tables, folder=folder) as channel:
        made, fit = run(_together(data.columns, n_clusters), channel, method="lloyd", ledger=ledger, watch=watch)
    whole = data.complete()
    scaled = made.apply(Block(whole.rows)).rows.astype(np.float64)
    labels = nearest(scaled, fit.centers)[0]
    pooled = KMeans(n_clusters, n_init=10, random_state=0).fit(scaled)
    pooled_bytes = int(whole.rows.nbytes)
    best = float(pooled.inertia_)
    comparisons = [
        _compare("together (coterie)", whole, scaled, fit.centers, best, ledger),
        Comparison("pooled (scikit-learn)", *_quality(whole, pooled.labels_), 1.0, whole.rows.size, pooled_bytes, 1),
    ]
    alone = {}
    for name in tables:
        own = KMeans(n_clusters, n_init=10, random_state=0).fit(scaled[whole.site == name])
        alone[name] = own.labels_.astype(np.intp)
        comparisons.append(_compare(f"{name} alone", whole, scaled, own.cluster_centers_, best, None))
    return Demo(whole, made, scaled, fit, labels, alone, comparisons, ledger, n_clusters)


def _quality(data: SiteData, labels: Any) -> tuple[float, float]:
    return (
        float(adjusted_rand_score(data.truth, labels)),
        float(normalized_mutual_info_score(data.truth, labels)),
    )


def _compare(
    way: str, data: SiteData, scaled: Floats, centers: Floats, best: float, ledger: Ledger | None
) -> Comparison:
    labels, squared = nearest(scaled, np.asarray(centers, np.float64))
    up = (
        (0, 0, 0) if ledger is None else (ledger.total("floats_up"), ledger.total("bytes_up"), ledger.total("rounds"))
    )
    return Comparison(way, *_quality(data, labels), float(squared.sum()) / best, *up)
