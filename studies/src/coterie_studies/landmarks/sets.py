"""The data sets of the study of landmark kernel k-means, what is run on each, and what is promised of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from coterie.examples.datasets import SiteData
from coterie_studies.datasets import mnist
from coterie_studies.federated_kernel_kmeans import sets as paper

__all__ = ["FULL", "QUICK", "LandmarkSet", "LandmarkSets", "Promise", "Way", "embedding_ways", "of_paper", "ours"]


@dataclass(frozen=True)
class Way:
    """One way to cluster or to embed, at one setting of it."""

    name: str
    setting: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Of the estimator."""
    is_masked: bool = False
    """Whether sums are masked and sites keep the default policy; else one owner plays all sites."""


@dataclass(frozen=True)
class Promise:
    """So good a clustering for so little: some setting of a way keeps to all of it, in means over seeds."""

    way: str
    ratio: float
    """f_K over the yardstick's."""
    bytes_a_site: float
    rounds: float = np.inf


@dataclass(frozen=True)
class LandmarkSet:
    """A data set and what is run on it; the kernel is RBF."""

    title: str
    load: Callable[[], SiteData]
    n_clusters: int
    n_components: int
    """s, of everything that embeds rows first."""
    ways: tuple[Way, ...]
    embeddings: tuple[Way, ...] = ()
    gamma: float | None = None
    """None lets every way find the average distance by itself."""
    gamma_times: float = 1.0
    """A multiple of that to take in its place."""
    yardstick: tuple[str, str] = ("", "sk")
    """The set ("": this one) and the way of it whose best cost is the yardstick."""
    promises: tuple[Promise, ...] = ()
    recover: tuple[float, float] | None = None
    """The recover error and the bytes a site that an embedding by local landmarks keeps below."""
    saves: float | None = None
    """So many times fewer bytes than DSPGD's numbers take, at equal or better f_K."""
    why: str = ""
    """What makes it hard, where it is such a case."""


LandmarkSets = Mapping[str, LandmarkSet]


def ours(value_range: tuple[float, float] | None = (0.0, 1.0)) -> tuple[Way, ...]:
    """Landmarks by local centers at nine budgets, and by masked sums at two."""
    local = {
        "small": {"landmark_bits": 2, "max_rounds": 0},
        "m=50, 2 bit, no round": {"n_landmarks": 50, "landmark_bits": 2, "max_rounds": 0},
        "m=50, 3 bit, 1 round": {"n_landmarks": 50, "landmark_bits": 3, "max_rounds": 1},
        "no round": {"max_rounds": 0},
        "m=50, 4 bit, no round": {"n_landmarks": 50, "landmark_bits": 4, "max_rounds": 0},
        "default": {},
        "m=50, 4 bit, 3 rounds": {"n_landmarks": 50, "landmark_bits": 4, "max_rounds": 3},
        "m=50, 4 bit, 4 rounds": {"n_landmarks": 50, "landmark_bits": 4, "max_rounds": 4},
        "large": {"n_landmarks": 100, "landmark_bits": 4, "max_rounds": 4},
    }
    made = [Way("local", name, {"landmarks": "local", **options}) for name, options in local.items()]
    for m in (30, 50):
        options = {"landmarks": "summed", "n_landmarks": m, "value_range": value_range, "max_rounds": 3}
        made.append(Way("summed", f"m={m}", options, is_masked=True))
    return tuple(made)


def _rivals(one: paper.KernelSet, turns: tuple[int, ...]) -> tuple[Way, ...]:
    """DSPGD by both solvers, RFK and CE PCA with the paper's settings, and pooled rows."""
    s, made = {"n_components": one.n_components}, [Way("sk", "c=1000")]
    for t in turns:
        for solver in ("gram", "lanczos"):
            options = {"method": "dspgd", **s, "n_features": one.n_features, "n_iter": t, "solver": solver}
            made.append(Way(f"dspgd-{solver}", f"T={t}", options))
    for c in _ends(one.rfk_points):
        options = {**s, "method": "rfk", "n_features": one.rfk_features, "n_points": c}
        made.append(Way("rfk", f"C={c}", options))
    for n_features in _ends(one.ce_pca_features):
        options = {**s, "method": "ce-pca", "n_features": n_features, "n_points": one.n_points}
        made.append(Way("ce-pca", f"D={n_features}", options))
    if one.pooled == "ck":
        made.append(Way("ck", "exact", {**s, "method": "ck"}))
    return tuple(made)


def _ends(settings: tuple[int, ...]) -> tuple[int, ...]:
    """The first, the middle and the last of a curve's settings."""
    return tuple(dict.fromkeys((settings[0], settings[len(settings) // 2], settings[-1])))


def embedding_ways(
    one: paper.KernelSet, n_iter: int, value_range: tuple[float, float] | None = (0.0, 1.0)
) -> tuple[Way, ...]:
    """Landmarks by local centers and by masked sums, and DSPGD."""
    m, dspgd = {"n_landmarks": 50}, {"method": "dspgd", "n_features": one.n_features, "n_iter": n_iter}
    return (
        Way("local", "m=50", {"landmarks": "local", **m}),
        Way("summed", "m=50", {"landmarks": "summed", "value_range": value_range, **m}, is_masked=True),
        Way("dspgd-gram", f"T={n_iter}", {**dspgd, "solver": "gram"}),
    )


def of_paper(
    one: paper.KernelSet, turns: tuple[int, ...] = (10, 30), value_range: tuple[float, float] | None = (0.0, 1.0)
) -> LandmarkSet:
    """A data set of the paper with everything that is run on it."""
    return LandmarkSet(
        one.title,
        one.load,
        one.n_clusters,
        one.n_components,
        ours(value_range) + _rivals(one, turns),
        embedding_ways(one, turns[-1], value_range),
        one.gamma,
    )


def by_label(load: Callable[[], SiteData]) -> SiteData:
    """The same rows, sorted by their class before they are cut into five sites."""
    data = load()
    site = np.empty(len(data.rows), data.site.dtype)
    for i, part in enumerate(np.array_split(np.argsort(data.truth, kind="stable"), 5)):
        site[part] = f"site-{i}"
    return replace(data, site=site)


FULL: LandmarkSets = {
    "mushrooms": replace(of_paper(paper.FULL["mushrooms"]), promises=(Promise("local", 1.001, 1200),), saves=150),
    "mnist": replace(
        of_paper(paper.FULL["mnist"]),
        promises=(
            Promise("local", 1.005, 5000, 4),
            Promise("local", 1.001, 10_000, 7),
            Promise("summed", 1.01, 60_000),
            Promise("summed", 1.01, 30_000),
        ),
        recover=(2e-4, 14_000),
        saves=150,
    ),
    "mnist-by-label": LandmarkSet(
        "MNIST sorted by label",
        partial(by_label, mnist),
        10,
        20,
        ours(),
        yardstick=("mnist", "sk"),
        promises=(Promise("local", 1.02, 5000),),
    ),
    "covtype": replace(
        of_paper(paper.FULL["covtype"], (10,)),
        promises=(Promise("local", 1.01, 1500),),
        recover=(2e-4, np.inf),
        saves=150,
    ),
}
QUICK: LandmarkSets = {
    "digits": replace(
        of_paper(paper.QUICK["digits"]),
        promises=(
            Promise("local", 1.005, 5000, 4),
            Promise("local", 1.001, 10_000, 7),
            Promise("summed", 1.01, 60_000),
        ),
        recover=(2e-4, 14_000),
        saves=150,
    ),
    "circles": replace(
        of_paper(paper.QUICK["circles"], value_range=None), promises=(Promise("local", 1.001, 1200),), saves=150
    ),
}
