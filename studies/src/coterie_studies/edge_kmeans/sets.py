"""The data of the study of k-means from small summaries (Lu et al. 2020), and what is run on each set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from coterie.examples.datasets import SiteData, digits
from coterie_studies.datasets import mnist

__all__ = [
    "BUDGET",
    "CASES",
    "FULL",
    "MEAN",
    "NR",
    "PAPER",
    "QUICK",
    "SMALL_CASES",
    "Case",
    "Cases",
    "EdgeSet",
    "EdgeSets",
    "Rare",
    "Sources",
    "Way",
    "by_label",
    "zero_mean",
]

Rows = npt.NDArray[np.floating[Any]]
Sources = Literal["one", "ten"]

PAPER: Mapping[str, int] = {
    "NR": 47_040_000,
    "FSS": 402_021,
    "JL+FSS": 179_416,
    "FSS+JL": 179_416,
    "JL+FSS+JL": 182_419,
    "BKLW": 27_152_484,
    "JL+BKLW": 20_365_463,
}
"""Scalars sent on MNIST, of Tables II and III."""
NR, MEAN = "NR", "one center: the mean"
BUDGET = 13_200
"""Scalars all methods may send of digits sorted by label."""


@dataclass(frozen=True)
class Way:
    """One method at one choice of sizes."""

    name: str
    pipeline: str
    """Of the estimator; ``nr`` and ``mean`` are worked out without it, ``uniform:75`` is a pooled sample."""
    sizes: str = ""
    """``paper``: as many scalars as the paper's; ``small``: the estimator's own sizes; without a name: no choice."""
    refine: int = 0
    budget: int | None = None
    most_seeds: int = 1000
    """Of a slow one only the first few seeds are run."""


@dataclass(frozen=True)
class EdgeSet:
    """Rows from 0 to 1, and what is run on them, less their mean, by one source and by ten."""

    title: str
    load: Callable[[], SiteData]
    n_clusters: int
    one: tuple[Way, ...]
    ten: tuple[Way, ...]
    is_papers: bool = False
    """Whether the paper has numbers for it."""

    def ways(self, sources: Sources) -> tuple[Way, ...]:
        """What is run with so many sources."""
        return self.one if sources == "one" else self.ten


@dataclass(frozen=True)
class Case:
    """Clusters that are rare or differ between sites: a draw of them, and what is run on it."""

    data: str
    sites: str
    """How rows are shared out."""
    draw: Callable[[int], SiteData]
    n_clusters: int
    ways: tuple[Way, ...]

    @property
    def title(self) -> str:
        """Both."""
        return f"{self.data}, {self.sites}"


EdgeSets = Mapping[str, EdgeSet]
Cases = Mapping[str, Case]


# ---------------------------------------------------------------- the paper's setting


def zero_mean(data: SiteData) -> Rows:
    """Rows from 0 to 1 less their columns' means: from -1 to 1, as the paper has them; in single precision."""
    return np.asarray(data.rows - data.rows.mean(axis=0), np.float32)


def _ways(n_rows: int, d: int, slow: int, times: int = 1) -> tuple[tuple[Way, ...], tuple[Way, ...]]:
    """For one source and for ten; budgets are the paper's, as shares of all the numbers there are.

    By its budget alone JL+BKLW would project onto every column there is. It gets three quarters of them, because that
    is what it sends of BKLW's scalars in the paper, and beside that half and all. ``slow`` is how many seeds there
    are of the largest. With one source budgets may be so many ``times`` as large.
    """
    budget = {name: round(count * n_rows * d / PAPER["NR"]) for name, count in PAPER.items()}
    budget |= {name: times * count for name, count in budget.items() if "FSS" in name}
    nr, mean = Way(NR, "nr", most_seeds=3 if slow > 1 else 1), Way(MEAN, "mean", most_seeds=1)
    ours = (Way("auto", "auto"), Way("local centers", "centers"))
    one, few = [nr], min(slow, 3)
    for name in ("FSS", "JL+FSS", "FSS+JL", "JL+FSS+JL"):
        one.append(Way(name, name.lower(), "paper", budget=budget[name]))
    one.append(Way("JL+FSS, refine=1", "jl+fss", "paper", 1, budget["JL+FSS"]))
    most, half, project = budget["JL+BKLW"], f"jl:{d // 2}+bklw", f"jl:{3 * d // 4}+bklw"
    ten = [
        nr,
        Way("BKLW", "bklw", "paper", budget=budget["BKLW"], most_seeds=slow),
        Way("JL+BKLW", project, "paper", budget=most, most_seeds=slow),
        Way("JL+BKLW, refine=1", project, "paper", 1, most, few),
        Way("JL+BKLW, half the columns", half, "paper", budget=most, most_seeds=few),
        Way("JL+BKLW, all columns", "jl+bklw", "paper", budget=most, most_seeds=few),
    ]
    one += [Way(name, name.lower(), "small") for name in ("FSS", "JL+FSS", "FSS+JL", "JL+FSS+JL")]
    one.append(Way("JL+FSS, refine=1", "jl+fss", "small", 1))
    ten += [Way(name, name.lower(), "small") for name in ("BKLW", "JL+BKLW")]
    ten.append(Way("JL+BKLW, refine=1", "jl+bklw", "small", 1))
    return (*one, *ours, mean), (*ten, *ours, mean)


def _few(ways: tuple[Way, ...], seeds: int) -> tuple[Way, ...]:
    return tuple(replace(way, most_seeds=min(seeds, way.most_seeds)) for way in ways)


def _sets(title: str, load: Callable[[], SiteData], shape: tuple[int, int], seeds: int, times: int = 1) -> EdgeSets:
    """k = 2 as in the paper, and k = 10 with at most so many seeds, of the largest sizes one."""
    name, ten = title.lower(), _ways(*shape, 1, times)
    return {
        f"{name}-k2": EdgeSet(f"{title}, k = 2", load, 2, *_ways(*shape, 10), is_papers=load is mnist),
        f"{name}-k10": EdgeSet(f"{title}, k = 10", load, 10, _few(ten[0], seeds), _few(ten[1], seeds)),
    }


FULL = _sets("MNIST", mnist, (60_000, 784), seeds=3)
QUICK = _sets("Digits", digits, (1797, 64), seeds=2, times=4)


# ---------------------------------------------------------------- rare clusters, and sites that differ


@dataclass(frozen=True)
class Rare:
    """Gaussian clusters of 5000, 20 and 10 rows, the small ones 40 deviations away from the large one, at right
    angles, in directions of their own.

    Five sites hold rows of all three at random; or three sites share the large one and each small one has a site to
    itself.
    """

    n_columns: int
    is_apart: bool = False

    def __call__(self, seed: int) -> SiteData:
        """A draw; which rows it has does not depend on how they are shared out."""
        rng, d = np.random.default_rng([seed, self.n_columns]), self.n_columns
        which = np.repeat([0, 1, 2], [5000, 20, 10])
        turned = np.linalg.qr(rng.normal(size=(d, d)))[0]
        rows = np.concatenate([np.zeros((1, d)), 40 * turned[:2]])[which] + rng.normal(size=(len(which), d))
        dealt = rng.permutation(len(which))
        place = np.where(which > 0, which + 2, dealt % 3) if self.is_apart else dealt % 5
        site = np.array([f"site-{i}" for i in range(5)])[place]
        return SiteData(rows - rows.mean(axis=0), tuple(f"column {i}" for i in range(d)), site, which.astype(str))


def by_label(seed: int) -> SiteData:
    """Digits less their mean, sorted by label over ten sites: none holds more than three; always the same."""
    del seed
    data = digits()
    site = np.empty(len(data.rows), "<U7")
    for i, part in enumerate(np.array_split(np.argsort(data.truth, kind="stable"), 10)):
        site[part] = f"site-{i:02d}"
    return SiteData(data.rows - data.rows.mean(axis=0), data.columns, site, data.truth)


def _cases(columns: tuple[int, ...]) -> Cases:
    points = (
        Way("coreset (disSS)", "disss:60"),
        Way("FSS", "fss:60"),
        Way("uniform sample, pooled", "uniform:75"),
        Way("local centers", "centers"),
        Way("auto", "auto"),
    )
    found = {}
    for is_apart, sites in ((False, "at random"), (True, "clusters apart")):
        for d in columns:
            ways = tuple(replace(way, pipeline=way.pipeline.replace("fss:", f"pca:{d}+sample:")) for way in points)
            found[f"rare-{d}{'-apart' if is_apart else ''}"] = Case(
                f"5000, 20 and 10 rows, {d} columns", sites, Rare(d, is_apart), 3, ways
            )
    budget = BUDGET
    found["by-label"] = Case(
        "Digits",
        "sorted by label",
        by_label,
        10,
        (
            Way("coreset (disSS)", "disss", budget=budget),
            Way("FSS", "fss", budget=budget),
            Way("BKLW", "bklw", budget=budget),
            Way("JL+BKLW", "jl+bklw", budget=budget),
            Way("JL+BKLW, refine=1", "jl+bklw", refine=1, budget=budget),
            Way("uniform sample, pooled", f"uniform:{budget // 64}"),
            Way("local centers", "centers:20"),
            Way("auto", "auto", budget=budget),
        ),
    )
    return found


CASES = _cases((2, 5, 10))
SMALL_CASES = _cases((2,))
