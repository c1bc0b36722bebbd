"""Data whose rows really come from different places: what clustering together gains, and what it loses to pooling.

Every data set is clustered together (masked, by the default policy; and with rows as they are, local centers seen or
by sums only), by each site alone, and pooled (scikit-learn, best of 10 starts). All are judged on all sites' rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from coterie.examples.datasets import SiteData, penguins
from coterie.maths.clustering import nearest
from coterie.messages.site_api import Block
from coterie.methods.shared.prepared import Missing
from coterie.runtime.ledger import Ledger
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from coterie_studies.curves import Ratios, draw_ratios
from coterie_studies.datasets import heart_disease, pjm_load_shapes, wisdm
from coterie_studies.folder import Scope
from coterie_studies.study import Findings, Study, Trial
from coterie_studies.tables import Row, estimate

__all__ = ["SETS", "STUDY", "NaturalSet", "measure"]

Floats = npt.NDArray[np.float64]
WAYS = {
    "together": "together, local centers seen",
    "sums": "together, sums only",
    "masked": "together, masked, default policy",
}


@dataclass(frozen=True)
class NaturalSet:
    """A data set, how it is prepared, and into how many clusters it goes."""

    title: str
    load: Callable[[], SiteData]
    n_clusters: int
    scale: Literal["none", "standard"] = "standard"
    missing: Missing = "refuse"


SETS: dict[str, NaturalSet] = {
    "wisdm": NaturalSet("WISDM, 36 phone users, k = 6", wisdm, 6, missing="mean"),
    "pjm": NaturalSet("PJM load shapes, 11 zones, k = 8", pjm_load_shapes, 8, scale="none"),
    "heart": NaturalSet("Heart disease, 4 hospitals, k = 2", heart_disease, 2, missing="mean"),
    "penguins": NaturalSet("Penguins, 3 islands, k = 3", penguins, 3, missing="drop"),
}

NOTES = """
Together, three ways, each ending in Lloyd's algorithm by sums: every site sends a few local centers once, for the
start; the start is by sums, too; the same with masked sums and every site's default policy, which is what
`coterie cluster` does over separate files. Columns are scaled and missing values
filled by questions to the sites, counted with the rest. Alone: a site's own k-means, best of 10 starts, in the scale
all agreed on. Pooled: scikit-learn, best of 10 starts. All are judged on all rows; the cost is a ratio to the pooled
one of the same seed. Chance is only in the algorithms, the rows are the same for every seed; numbers are means ± half
a 95 % t-interval over seeds.

WISDM: all columns to variance 1, missing values by the mean. PJM: every day divided by its own mean, at its site;
no classes are known. Heart disease: slope, ca and thal left out (mostly missing outside Cleveland), cholesterol or
blood pressure 0 is missing, missing values by the mean; k = 2 against disease or none, since one hospital does not
tell degrees apart. Penguins: rows that miss values dropped.
"""


# ---------------------------------------------------------------- one trial


def measure(name: str, seed: int) -> dict[str, float]:
    """Everything about one data set and seed."""
    chosen = SETS[name]
    data = chosen.load()
    if chosen.missing == "drop":
        data = data.complete()
    runs = {way: _together(chosen, data, way, seed) for way in WAYS}
    rows = runs["together"][1]
    pooled = _alone(rows, chosen.n_clusters, seed)
    best = float(nearest(rows, pooled)[1].sum())
    found = {"rows": len(rows), "sites": len(data.by_site()), **_judged("pooled", data, rows, pooled, best)}
    for way, (centers, own_rows, ledger) in runs.items():
        found |= _judged(way, data, own_rows, centers, best) | _sent(way, ledger)
    for site in data.by_site():
        own = _alone(rows[data.site == site], chosen.n_clusters, seed)
        found |= _judged(f"alone:{site}", data, rows, own, best)
    return found


def _together(chosen: NaturalSet, data: SiteData, way: str, seed: int) -> tuple[Floats, Floats, Ledger]:
    """Centers and all rows in prepared units, and what it took."""
    from coterie.estimators import FederatedKMeans, fit

    tables = {site: ArrayTable(rows, columns=data.columns, name=site) for site, rows in data.by_site().items()}
    made = fit(
        FederatedKMeans(chosen.n_clusters, init="one-shot" if way == "together" else "cells", random_state=seed),
        tables,
        scale=chosen.scale,
        missing=chosen.missing,
        sums="masked" if way == "masked" else "plain",
        policy=None if way == "masked" else Policy.simulation(),
    )
    used = made.preparation_
    assert used is not None  # fitted over tables
    rows = used.apply(Block(data.rows)).rows.astype(np.float64)
    return (made.cluster_centers_ - used.shift) / used.scale, rows, made.ledger_


def _alone(rows: Floats, n_clusters: int, seed: int) -> Floats:
    """The best centers of ten starts."""
    from sklearn.cluster import KMeans

    centers: Floats = KMeans(n_clusters, n_init=10, random_state=seed).fit(rows).cluster_centers_
    return centers


def _judged(way: str, data: SiteData, rows: Floats, centers: Floats, best: float) -> dict[str, float]:
    """Cost ratio and, where classes are known, agreement with them, over all rows."""
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    labels, squared = nearest(rows, centers)
    found = {f"{way}.ratio": float(squared.sum()) / best}
    if data.has_truth:
        found[f"{way}.ari"] = float(adjusted_rand_score(data.truth, labels))
        found[f"{way}.nmi"] = float(normalized_mutual_info_score(data.truth, labels))
    return found


def _sent(way: str, ledger: Ledger) -> dict[str, float]:
    most = max(ledger.total("bytes_up", site) for site in ledger.sites())
    return {
        f"{way}.bytes_up": ledger.total("bytes_up"),
        f"{way}.bytes_up_a_site": most,
        f"{way}.rounds": ledger.total("rounds"),
    }


# ---------------------------------------------------------------- all of them


def _trials(scope: Scope) -> list[Trial]:
    return [
        Trial(f"{name}/seed={seed}", partial(measure, name, seed), {"set": name, "seed": seed})
        for name in SETS
        for seed in range(scope.seeds)
    ]


def _write(found: Findings) -> str:
    there = [name for name in SETS if found.select(set=name)]
    quality = found.table("quality", [row for name in there for row in _quality(found, name)])
    gain = found.table("gain", [_gain(found, name) for name in there])
    found.table("sites", [row for name in there for row in _sites(found, name)])
    draw_ratios(found.figure("ratios"), [_ratios(found, name) for name in there])
    return "\n".join(
        [
            NOTES.strip(),
            "",
            "![Cost ratios](figures/ratios.png)",
            "",
            f"## Together and pooled\n\n{quality}",
            f"## What a site gains\n\nA site's cost alone over the cost together, both on all rows.\n\n{gain}",
            "Every site alone: `tables/sites.md`.",
        ]
    )


def _quality(found: Findings, name: str) -> list[Row]:
    rows: list[Row] = []
    for way, title in {**WAYS, "pooled": "pooled, best of 10"}.items():
        row: dict[str, Any] = {"data": SETS[name].title, "way": title}
        for head, what in (("cost ratio", "ratio"), ("ARI", "ari"), ("NMI", "nmi")):
            row[head] = found.estimate(f"{way}.{what}", set=name)
        for head, what in (("bytes up", "bytes_up"), ("most a site", "bytes_up_a_site"), ("rounds", "rounds")):
            row[head] = found.estimate(f"{way}.{what}", set=name)
        rows.append(row)
    return rows


def _alone_values(found: Findings, name: str, what: str) -> dict[str, list[float]]:
    """One number of every site alone, a value a seed."""
    values = found.select(set=name)[0].values
    sites = [key.removeprefix("alone:").removesuffix(".ratio") for key in values if key.startswith("alone:")]
    return {s: found.values(f"alone:{s}.{what}", set=name) for s in sites if f"alone:{s}.{what}" in values}


def _gain(found: Findings, name: str) -> Row:
    """Alone over together: mean over sites, the site that gains least and the one that gains most."""
    together = np.array(found.values("together.ratio", set=name))
    gains = np.array(list(_alone_values(found, name, "ratio").values())) / together
    row: dict[str, Any] = {
        "data": SETS[name].title,
        "mean gain": estimate(gains.mean(axis=0)),
        "least": estimate(gains.min(axis=0)),
        "most (worst site alone)": estimate(gains.max(axis=0)),
        "ARI together": found.estimate("together.ari", set=name),
    }
    agreement = np.array(list(_alone_values(found, name, "ari").values()))
    row["ARI alone, mean"] = estimate(agreement.mean(axis=0) if agreement.size else [])
    row["ARI alone, worst"] = estimate(agreement.min(axis=0) if agreement.size else [])
    return row


def _sites(found: Findings, name: str) -> list[Row]:
    agreement = _alone_values(found, name, "ari")
    return [
        {
            "data": SETS[name].title,
            "site": site,
            "cost ratio": estimate(ratios),
            "ARI": estimate(agreement.get(site, [])),
        }
        for site, ratios in _alone_values(found, name, "ratio").items()
    ]


def _ratios(found: Findings, name: str) -> Ratios:
    alone = [float(np.mean(ratios)) for ratios in _alone_values(found, name, "ratio").values()]
    title = SETS[name].title.replace(", ", "\n", 1)
    return Ratios(title, {t: found.estimate(f"{w}.ratio", set=name).mean for w, t in WAYS.items()}, alone)


STUDY = Study("natural-sites", "Natural sites: together, alone, pooled", _trials, _write, full_seeds=5)
