"""The study of differential privacy: what noise costs k-means, kernel k-means and PCA, beside what others lose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from coterie_studies.folder import Scope
from coterie_studies.privacy.figures import write_findings
from coterie_studies.privacy.peers import PEERS, clustered_by_peer
from coterie_studies.privacy.runs import RUNS, Setting, measured
from coterie_studies.privacy.sets import FULL, KERNEL, QUICK, QUICK_KERNEL, PrivateSet, Values
from coterie_studies.study import Label, Study, Trial

__all__ = ["STUDY"]

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0)
NEAR, FAR = 1.0, 100.0
"""The epsilon of everything that is compared at one, and the largest there is."""
SITES = (3, 5, 10, 20, 50)
WIDENING = 4.0
LIMIT_SEEDS = 3
FIXED_DELTA = 1e-6
Made = tuple[dict[str, Label], int, Callable[[int], Values]]
"""Labels of one kind of trial, the most seeds it is run with, and what it measures for a seed."""


def _trials(scope: Scope) -> list[Trial]:
    made = _quick() if scope.quick else _full()
    return [
        Trial("/".join(map(str, labels.values())) + f"/seed={seed}", partial(measure, seed), {**labels, "seed": seed})
        for labels, most, measure in made
        for seed in range(min(scope.seeds, most))
    ]


def _quick() -> Iterator[Made]:
    for name, one in QUICK.items():
        yield from (_private("kmeans", name, one, Setting(epsilon)) for epsilon in (0.5, 1.0, 4.0))
        yield from _peers(name, one)
    digits = QUICK["digits"]
    yield from (_private("sites", "digits", digits, Setting(tolerated=t)) for t in (0, 2, 4))
    yield _private("pca", "digits", digits, Setting())
    for name, one in QUICK_KERNEL.items():
        yield _private("kernel", name, one, Setting())


def _full() -> Iterator[Made]:
    """Those of one set follow each other: its rows and references are kept."""
    for name, one in FULL.items():
        yield from (_private("kmeans", name, one, Setting(epsilon)) for epsilon in EPSILONS)
        yield from (_private("limit", name, one, Setting(epsilon), LIMIT_SEEDS) for epsilon in (FAR, None))
        yield from _peers(name, one)
        if name == "digits":
            yield from _of_digits(one)
        if name in ("digits", "pjm"):
            yield from (_private("pca", name, one, Setting(epsilon)) for epsilon in EPSILONS)
    for name, one in KERNEL.items():
        epsilons = (0.1, 1.0) if name == "mnist" else EPSILONS
        yield from (_private("kernel", name, one, Setting(epsilon)) for epsilon in epsilons)


def _of_digits(one: PrivateSet) -> Iterator[Made]:
    """Dropouts, numbers of sites, noise that is enough at every site alone, delta, ranges too wide."""
    for n_sites in SITES:
        for tolerated in (0, 1, 2, n_sites - 1) if n_sites == 5 else (0, n_sites - 1):
            yield _private("sites", "digits", one, Setting(n_sites=n_sites, tolerated=tolerated))
    yield from (_private("delta", "digits", one, Setting(epsilon, delta=FIXED_DELTA)) for epsilon in EPSILONS)
    yield _private("ranges", "digits", one, Setting(widening=WIDENING))


def _private(kind: str, name: str, one: PrivateSet, setting: Setting, most_seeds: int = 10) -> Made:
    labels: dict[str, Label] = {"kind": kind, "set": name, "epsilon": setting.epsilon or "none"}
    if kind == "sites":
        labels |= {"sites": setting.n_sites, "tolerated": setting.tolerated}
    run = RUNS.get(kind, RUNS["kmeans"])
    return labels, min(most_seeds, one.most_seeds), partial(measured, run, one, setting)


def _peers(name: str, one: PrivateSet) -> Iterator[Made]:
    for peer in PEERS:
        labels: dict[str, Label] = {"kind": "peer", "set": name, "peer": peer}
        yield labels, one.most_seeds, partial(clustered_by_peer, one, peer, NEAR)


STUDY = Study(
    "privacy",
    "Differential privacy: what noise costs, and what it costs others",
    _trials,
    write_findings,
    quick_seeds=3,
)
