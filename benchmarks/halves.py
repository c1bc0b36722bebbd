"""How often two halves of the sites disagree where nobody lies, and where one site does.

Sites are as the data came: stations, zones, users. The clusters are scikit-learn's of all rows. Halves are drawn
1,000 times; a run draws them once.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

from benchmarks.cases import CASES, prepared
from benchmarks.measure import Grid, Line, Result, data_folder
from coterie.maths.clustering import nearest
from coterie.methods.shared import halves

__all__ = ["BENCHMARKS"]

Floats = npt.NDArray[np.float64]
DRAWS, N_LIES, FEWEST = 1000, 60, 6
FACTORS = (2.0, 4.0, 8.0)


def compare() -> Result:
    """Shares of draws that are flagged, with the factors of :mod:`coterie.methods.shared.halves` and others."""
    grid = Grid(
        "halves: how many draws of 1,000 are flagged",
        (
            "data",
            "sites",
            "k",
            *(f"honest, factor {f:g}" for f in FACTORS),
            "honest, cost",
            "copies of a row",
            "at all maxima",
            "far",
        ),
        "factor of a cluster's share; the cost by a factor of 2; last: the cluster of 60 lies by factor 4",
    )
    found = {}
    for name, k, tables in _sets():
        honest, low = _parts(tables, _centers(tables, k)), np.concatenate(list(tables.values()))
        rates = [_rate(honest, factor) for factor in FACTORS]
        caught = []
        for lies in (low[len(low) // 2], low.max(axis=0), low.max(axis=0) + 20 * np.ptp(low, axis=0)):
            with_liar = {**tables, "liar": np.tile(lies, (N_LIES, 1))}
            centers = _centers(with_liar, k)
            own = int(nearest(lies[None], centers)[0][0])
            caught.append(_rate(_parts(with_liar, centers), halves.SHARE_FACTOR, own))
        costs = _rate(honest, np.inf)
        grid.rows.append((name, str(len(tables)), str(k), *(f"{rate:.0f}" for rate in (*rates, costs, *caught))))
        found[name] = rates[1], caught
    lines = [
        Line("digits, sites alike: flagged though nobody lies", found["digits"][0], "of 1,000", limit=20),
        Line("digits: 60 rows far outside missed", DRAWS - found["digits"][1][2], "of 1,000", limit=0),
    ]
    return Result("halves: false alarms and lies", lines, "the factors are those of a run", [grid])


def _sets() -> list[tuple[str, int, Mapping[str, Floats]]]:
    """Digits at ten like sites, and every case with sites enough."""
    rows = load_digits().data
    sets: list[tuple[str, int, Mapping[str, Floats]]] = [("digits", 10, {str(i): rows[i::10] for i in range(10)})]
    folder = data_folder()
    if folder is not None:
        for case in CASES.values():
            tables = prepared(case).tables
            if len(tables) >= FEWEST:
                sets += [(case.name, case.ks[0], tables)]
        with np.load(folder / "pjm_load.npz") as loads:  # not divided by a day's mean: clusters are zones
            sets.append(("pjm, MW", 8, {str(s): loads["X"][loads["site"] == s].astype(float) for s in range(11)}))
    return sets


def _centers(tables: Mapping[str, Floats], k: int) -> Floats:
    rows = np.concatenate(list(tables.values()))
    centers: Floats = KMeans(k, n_init=3, random_state=0).fit(rows).cluster_centers_
    return centers


def _parts(tables: Mapping[str, Floats], centers: Floats) -> list[tuple[Floats, float]]:
    """By site the rows of each cluster, and their cost."""
    parts = []
    for own in tables.values():
        labels, squared = nearest(own, centers)
        parts.append((np.bincount(labels, minlength=len(centers)).astype(float), float(squared.sum())))
    return parts


def _rate(parts: list[tuple[Floats, float]], factor: float, cluster: int | None = None) -> float:
    """How many draws are flagged: by any cluster's share, by the share of one, or (factor inf) by cost."""
    counts, costs = np.array([part[0] for part in parts]), np.array([part[1] for part in parts])
    names = tuple(f"{i:04d}" for i in range(len(parts)))
    n_flagged = 0
    for seed in range(DRAWS):
        drawn = halves.drawn_halves(names, seed)
        places = [np.array([int(name) for name in half]) for half in drawn]
        both = tuple(
            halves.Half(h, counts[p].sum(axis=0), costs[p].sum()) for h, p in zip(drawn, places, strict=True)
        )
        found = halves.Halves((both[0], both[1]))
        flagged = found.mostly_in_one(factor)
        n_flagged += (
            found.costs_differ if np.isinf(factor) else bool(flagged) if cluster is None else cluster in flagged
        )
    return float(n_flagged)


BENCHMARKS = {"halves": compare}
