"""The study of Triebe & Rajagopal (2019), "Federated k-means: clustering algorithm and proof of concept".

Every setting of its figures 1 to 5 is one of a grid of C x E x beta, so the grid is run once: T rounds, all rows a
batch, server rate 1 with momentum 0.5, reassignment on, starts drawn in the public box [0, k + 1]. Beside it: the
paper's central run (one start), the best of 10 central starts, and what coterie does by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product

import numpy as np
import numpy.typing as npt

from coterie.engines.inprocess import in_process
from coterie.examples.datasets import SiteData
from coterie.maths.clustering import nearest
from coterie.methods.kmeans.federated import FederatedSettings, Reassignment, federated_kmeans
from coterie.methods.shared.starts import random_start
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.sites.tables import ArrayTable
from coterie_studies.datasets import gaussian_sites
from coterie_studies.federated_kmeans.figures import write_findings
from coterie_studies.folder import Scope
from coterie_studies.study import Label, Study, Trial

__all__ = ["FULL", "QUICK", "STUDY", "Grid", "make_study"]

K = 5
LOW, HIGH = np.zeros(1), np.full(1, K + 1.0)
NEVER = -1.0
"""A tolerance no shift of centers can reach: all T rounds are run, as the paper does."""

Floats = npt.NDArray[np.float64]
Values = dict[str, float]


@dataclass(frozen=True)
class Grid:
    """The settings of Algorithm 1 that are run: C, E and beta, each with each, for T rounds."""

    fractions: tuple[float, ...]
    epochs: tuple[int, ...] = (1, 5, 10)
    rates: tuple[float, ...] = (0.1, 0.2, 1.0)
    rounds: int = 200


FULL = Grid((0.02, 0.06, 0.1, 0.3, 1.0))
QUICK = Grid((0.02, 0.1, 1.0), (1, 10), (0.1, 1.0), rounds=50)


def make_study(quick: Grid = QUICK, full: Grid = FULL) -> Study:
    """The study over these grids."""
    return Study(
        "federated-kmeans",
        "Federated k-means (Triebe & Rajagopal 2019): figures 1 to 7",
        partial(_trials, quick, full),
        write_findings,
    )


def _trials(quick: Grid, full: Grid, scope: Scope) -> list[Trial]:
    grid = quick if scope.quick else full
    found = []
    for seed in range(scope.seeds):
        measures = {
            "central": partial(_central, grid.rounds, seed),
            "best": partial(_best, seed),
            "default": partial(_default, seed, 10),
            "larger": partial(_default, seed, 50),
        }
        found += [Trial(f"{way}/seed={seed}", f, {"way": way, "seed": seed}) for way, f in measures.items()]
        for C, E, beta in product(grid.fractions, grid.epochs, grid.rates):
            labels: dict[str, Label] = {
                "way": "federated",
                "C": C,
                "E": E,
                "beta": beta,
                "T": grid.rounds,
                "seed": seed,
            }
            key = f"federated/C={C:g}/E={E}/beta={beta:g}/seed={seed}"
            found.append(Trial(key, partial(_federated, C, E, beta, grid.rounds, seed), labels))
    return found + _progress_trials(grid)


def _progress_trials(grid: Grid) -> list[Trial]:
    """The runs whose every round figures 6 and 7 show: seed 0, and C = 0.1 in figure 7."""
    central = FederatedSettings(max_rounds=min(20, grid.rounds))
    settings = {"6": central, "7a": _paper(0.1, 1, 1.0, grid.rounds), "7b": _paper(0.1, 10, 0.1, grid.rounds)}
    return [Trial(f"progress/{name}", partial(_progress, s), {"progress": name}) for name, s in settings.items()]


STUDY = make_study()


# ---------------------------------------------------------------- one trial each


def _paper(C: float, E: int, beta: float, rounds: int) -> FederatedSettings:
    """Algorithm 1 as the captions have it: alpha = (1, 0.5), B = all."""
    return FederatedSettings(fraction=C, epochs=E, server_momentum=0.5, site_rate=beta, max_rounds=rounds)


def _federated(C: float, E: int, beta: float, rounds: int, seed: int) -> Values:
    """Algorithm 1 of the paper."""
    data, ledger = gaussian_sites(seed), Ledger()
    centers = _run(data.by_site(), _paper(C, E, beta, rounds), seed, ledger)[-1]
    return {**_judged(data, centers, seed), **_sent(ledger)}


def _central(rounds: int, seed: int) -> Values:
    """The paper's central run: Lloyd on the pooled rows from the same one start, small clusters reassigned."""
    data = gaussian_sites(seed)
    centers = _run({"all": data.rows}, FederatedSettings(max_rounds=rounds), seed, Ledger())[-1]
    return _judged(data, centers, seed)


def _best(seed: int) -> Values:
    """The best of ten central starts."""
    return _judged(gaussian_sites(seed), _optimum(seed, 10), seed)


def _default(seed: int, rows_a_site: int) -> Values:
    """What coterie does by default: a one-shot start, then Lloyd over all sites."""
    from coterie.estimators import FederatedKMeans

    data = gaussian_sites(seed, rows_a_site=rows_a_site)
    made = FederatedKMeans(K, random_state=seed).fit(data.rows, sites=data.site)
    return {**_judged(data, made.cluster_centers_, seed, rows_a_site), **_sent(made.ledger_)}


def _progress(settings: FederatedSettings) -> Values:
    """The centers after every round, by names like ``012.3``; round 0 is the start."""
    data = gaussian_sites(0)
    tables = data.by_site() if settings.fraction < 1 else {"all": data.rows}
    places = _run(tables, settings, 0, Ledger())
    return {f"{t:03d}.{c}": float(place[0]) for t, at in enumerate(places) for c, place in enumerate(at)}


def _run(tables: dict[str, Floats], settings: FederatedSettings, seed: int, ledger: Ledger) -> list[Floats]:
    """The centers after every round of Algorithm 1, the random start first."""
    start = random_start(LOW, HIGH, K, seed=seed)
    places = [start]
    rule = Reassignment(LOW, HIGH)
    steps = federated_kmeans(start, settings, tol=NEVER, seed=seed, reassignment=rule, trajectory=places)
    sites = {name: ArrayTable(rows, name=name) for name, rows in tables.items()}
    with in_process(sites, threads=1) as channel:
        run(steps, channel, method="federated-kmeans", ledger=ledger)
    return places


def _judged(data: SiteData, centers: Floats, seed: int, rows_a_site: int = 10) -> Values:
    """The paper's two measures, and the k-means cost as a ratio to that of the best of ten central starts."""
    from sklearn.metrics import davies_bouldin_score

    labels, squared = nearest(data.rows, centers)
    used = len(np.unique(labels))
    best = float(nearest(data.rows, _optimum(seed, rows_a_site))[1].sum())
    return {
        "distance": float(np.sqrt(squared).mean()),
        "davies_bouldin": float(davies_bouldin_score(data.rows, labels)) if used > 1 else float("nan"),
        "cost": float(squared.sum()),
        "ratio": float(squared.sum()) / best,
        "clusters": used,
    }


@lru_cache(maxsize=32)
def _optimum(seed: int, rows_a_site: int) -> Floats:
    from sklearn.cluster import KMeans

    rows = gaussian_sites(seed, rows_a_site=rows_a_site).rows
    centers: Floats = KMeans(K, n_init=10, random_state=seed).fit(rows).cluster_centers_
    return centers


def _sent(ledger: Ledger) -> Values:
    return {name: ledger.total(name) for name in ("floats_up", "bytes_up", "bytes_down", "rounds")}
