"""The demonstration: three islands cluster their penguins without pooling them."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from coterie.estimators import FederatedKMeans, fit
from coterie.examples.datasets import SiteData, penguins
from coterie.maths.clustering import nearest
from coterie.messages.site_api import Table
from coterie.report.labels import rows_sentence
from coterie.report.outputs import shown_rows, write_run
from coterie.report.page import write_page
from coterie.runtime.events import Write
from coterie.runtime.ledger import Ledger
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """One clustering: its quality on all rows, and what was sent for it."""

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
    """The results of the demonstration."""

    data: SiteData
    tables: dict[str, Table]
    fitted: FederatedKMeans
    alone: dict[str, npt.NDArray[np.intp]]
    comparisons: list[Comparison]


def demo(n_clusters: int = 3, *, journal: Path | None = None, events: Write | None = None) -> Demo:
    """Cluster the penguins of three islands: together, pooled, and each island alone.

    ``journal`` is a folder for every island's own ledger.
    """
    data = penguins()
    tables: dict[str, Table] = {
        name: ArrayTable(rows, columns=data.columns, name=name) for name, rows in data.by_site().items()
    }
    options: dict[str, Any] = {"scale": "standard", "missing": "drop", "profile": True, "events": events}
    fitted = fit(FederatedKMeans(n_clusters, random_state=0), tables, journal=journal, **options)
    plain = fit(
        FederatedKMeans(n_clusters, random_state=0), tables, sums="plain", policy=Policy.simulation(), **options
    )
    whole = data.complete()
    scaled = fitted.prepared_rows(whole.rows).astype(np.float64)
    pooled = KMeans(n_clusters, n_init=10, random_state=0).fit(scaled)
    best = float(pooled.inertia_)
    comparisons = [
        _compare("together, masked", whole, scaled, fitted._prepared_centers, best, fitted.ledger_),
        _compare("together, plain", whole, scaled, plain._prepared_centers, best, plain.ledger_),
        Comparison(
            "pooled (scikit-learn)", *_quality(whole, pooled.labels_), 1.0, whole.rows.size, int(whole.rows.nbytes), 1
        ),
    ]
    alone = {}
    for name in tables:
        own = KMeans(n_clusters, n_init=10, random_state=0).fit(scaled[whole.site == name])
        alone[name] = own.labels_.astype(np.intp)
        comparisons.append(_compare(f"{name} alone", whole, scaled, own.cluster_centers_, best, None))
    return Demo(whole, tables, fitted, alone, comparisons)


def write_demo(results: Demo, folder: Path, *, show_rows: bool = False) -> Path:
    """Write the files of the run, with the comparison; return the path of the report, which shows no bird unless it
    is to ``show_rows``."""
    result = write_run(
        folder, results.fitted, results.tables, {"data": "penguins", "scale": "standard", "missing": "drop"}
    )
    together = results.comparisons[0]
    result |= {
        "title": "Penguins of three islands, clustered without pooling",
        "summary": (
            f"{len(results.data.rows)} birds with all measurements, {len(results.alone)} islands, "
            f"{results.fitted.n_clusters} clusters: {together.rounds} rounds, {together.bytes_up:,} bytes sent, "
            f"k-means cost {together.cost_ratio:.4f} times that of the pooled rows. "
            f"{rows_sentence(result)} are in groups in which no value is missing, and only these were used."
        ),
        "comparisons": [dataclasses.asdict(c) for c in results.comparisons],
    }
    (folder / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    return write_page(folder, shown=shown_rows(results.fitted, results.tables) if show_rows else None)


def _quality(data: SiteData, labels: Any) -> tuple[float, float]:
    return float(adjusted_rand_score(data.truth, labels)), float(normalized_mutual_info_score(data.truth, labels))


def _compare(
    name: str, data: SiteData, scaled: Floats, centers: Floats, best: float, ledger: Ledger | None
) -> Comparison:
    labels, squared = nearest(scaled, np.asarray(centers, np.float64))
    totals = [0 if ledger is None else ledger.total(what) for what in ("floats_up", "bytes_up", "rounds")]
    return Comparison(name, *_quality(data, labels), float(squared.sum()) / best, *totals)
