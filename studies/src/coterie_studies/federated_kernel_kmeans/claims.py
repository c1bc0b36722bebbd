"""What "A communication efficient federated kernel k-means" says of its figures, held against what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coterie_studies.federated_kernel_kmeans.sets import KernelSet
from coterie_studies.study import Findings
from coterie_studies.tables import Estimate, Row, estimate

__all__ = ["RULES", "STEPS", "WAYS", "Point", "averages", "claims", "course", "means", "points"]

WAYS = {"cem": "FK k-means (the paper's)", "gram": "coterie: Gram, Lloyd", "rfk": "RFK k-means", "ce-pca": "CE PCA"}
"""The ways of figure 3 that pool no rows."""
STEPS = {"dense": "without CEM", "cem": "with CEM", "gram": "Gram exchange (coterie)"}
"""The ways of an iteration of DSPGD."""

NEAR = 0.02
RULES = f"""
A claim is held where, in means over seeds, t x error is below the constant at every t; the curves with and without
CEM are less than 1 % apart at every t; the saving is above 98 %; Q_0 / Q_1 is within 10 % of 1; r_t over the last
fifth of the iterations is within 5 % of the fifth before; the largest r_t is at least s; it is below a tenth of a
site's rows; the best NMI is at most {NEAR} below the pooled one; at every rival's cost from FK's lowest on, FK has an
NMI at least as high for no more; FK costs at most 40 % of what the rival does, each at its cheapest setting that
reaches the highest NMI both reach.
"""


# ---------------------------------------------------------------- what was measured


def course(found: Findings, name: str, one: KernelSet, way: str, what: str) -> list[Estimate]:
    """One number of every iteration."""
    n_iter = one.n_iter_dense if way == "dense" else one.n_iter
    return [found.estimate(f"{what}.{t}", set=name, way=way) for t in range(1, n_iter + 1)]


def means(found: Findings, name: str, one: KernelSet, way: str, what: str) -> npt.NDArray[np.float64]:
    """Its means over seeds."""
    return np.array([made.mean for made in course(found, name, one, way, what)])


def averages(found: Findings, name: str, one: KernelSet, way: str, what: str) -> list[float]:
    """Its mean over the iterations that were run with and without CEM, a number a seed."""
    t = range(1, min(one.n_iter, one.n_iter_dense) + 1)
    runs = found.select(set=name, way=way)
    return [float(np.mean([run.values[f"{what}.{i}"] for i in t])) for run in runs]


@dataclass(frozen=True)
class Point:
    """One setting of one way of figure 3."""

    setting: str
    nmi: Estimate
    arithmetic: Estimate
    ratio: Estimate
    """f_K over the pooled one."""
    floats_up: Estimate
    bytes_up: Estimate
    rounds: Estimate


def points(found: Findings, name: str, one: KernelSet, way: str) -> Iterator[Point]:
    """Every setting of a way; of DSPGD every T of its one run."""
    level = found.estimate("cost", set=name, way="pooled").mean
    labels = [trial.labels for trial in found.trials]
    settings = dict.fromkeys(str(some["setting"]) for some in labels if (some["set"], some["way"]) == (name, way))
    turns = [(f"T={t}", f"{t}.") for t in one.turns] if way in STEPS else [("", "")]
    for setting in settings:
        for turn, prefix in turns:
            where = {"set": name, "way": way, "setting": setting}
            yield Point(
                turn or setting,
                found.estimate(f"{prefix}nmi_geometric", **where),
                found.estimate(f"{prefix}nmi_arithmetic", **where),
                estimate([cost / level for cost in found.values(f"{prefix}cost", **where)]),
                *(found.estimate(prefix + what, **where) for what in ("floats_up", "bytes_up", "rounds")),
            )


# ---------------------------------------------------------------- the claims

Told = tuple[str, str, str, bool]
"""The figure, what the text says, what we measured, and whether that holds."""


def claims(found: Findings, name: str, one: KernelSet) -> Iterator[Row]:
    """Everything the text says of a data set."""
    told = list(_of_convergence(found, name, one)) if one.bound is not None else []
    if one.turns:
        told += [*_of_iterations(found, name, one), *_of_quality(found, name, one)]
    for figure, claim, ours, held in told:
        verdict = "held" if held else "did not hold"
        yield {"figure": figure, "data": one.title, "the paper": claim, "here": ours, "verdict": verdict}


def _of_convergence(found: Findings, name: str, one: KernelSet) -> Iterator[Told]:
    cem, dense = (means(found, name, one, way, "error") for way in ("cem", "dense"))
    scaled = np.arange(1, len(cem) + 1) * cem
    over = np.flatnonzero(scaled >= (one.bound or 0))
    ours = f"at most {scaled.max():.3g}/t" + (f", too much from t = {over[0] + 1} on" if over.size else "")
    yield "1", f"recover error below {one.bound:g}/t", ours, not over.size
    n = min(len(cem), len(dense))
    apart = float(np.abs(cem[:n] / dense[:n] - 1).max())
    yield "1", "the curves with and without CEM nearly overlap", f"{apart:.0e} apart, relative", apart < 0.01


def _of_iterations(found: Findings, name: str, one: KernelSet) -> Iterator[Told]:
    sent, steps = (
        {way: float(np.mean(averages(found, name, one, way, what))) for way in ("dense", "cem")}
        for what in ("floats", "products")
    )
    saved = 100 * (1 - sent["cem"] / sent["dense"])
    yield "2", "CEM saves more than 98 %", f"{saved:.2f} %", saved > 98
    ratio = steps["dense"] / steps["cem"]
    yield "4", "Q_0 / Q_1 is about 1", f"{ratio:.3f}", abs(ratio - 1) <= 0.1
    ranks, s = means(found, name, one, "cem", "rank"), one.n_components
    fifth = max(1, len(ranks) // 5)
    last, before, most = ranks[-fifth:].mean(), ranks[-2 * fifth : -fifth].mean(), float(ranks.max())
    yield "5", "r_t converges", f"{before:.1f}, then {last:.1f}", abs(last / before - 1) <= 0.05
    yield "5", f"the largest r_t is a constant factor above s = {s}", f"{most:.1f} = {most / s:.2f} s", most >= s
    rows = found.values("rows", set=name, way="cem")[0] / 5
    yield "5", "r_t is much smaller than a site's rows", f"{most:.1f} of {rows:,.0f}", most < 0.1 * rows


def _of_quality(found: Findings, name: str, one: KernelSet) -> Iterator[Told]:
    of = {way: list(points(found, name, one, way)) for way in (*WAYS, "pooled")}
    at = {way: [(point.floats_up.mean, point.nmi.mean) for point in some] for way, some in of.items()}
    fk, best, level = at["cem"], max((point.nmi for point in of["cem"]), key=_mean), of["pooled"][0].nmi
    yield "3", f"NMI comparable to {one.pooled.upper()}'s {level}", str(best), best.mean >= level.mean - NEAR
    if one.has_highest:
        rivals = [place for way in ("rfk", "ce-pca") for place in at[way] if place[0] >= min(fk)[0]]
        beaten = [_best_for(fk, cost) >= nmi for cost, nmi in rivals]
        here = f"at {sum(beaten)} of {len(beaten)} rivals' costs"
        yield "3", "the highest NMI for any cost", here, bool(beaten) and all(beaten)
    if one.saves_on:
        rival = at[one.saves_on]
        target = min(best.mean, max(nmi for _, nmi in rival))
        ours, theirs = (min(cost for cost, nmi in some if nmi >= target) for some in (fk, rival))
        saved = 100 * (1 - ours / theirs)
        claim = f"60 % fewer numbers than {WAYS[one.saves_on]} at the highest NMI"
        here = f"{abs(saved):.0f} % {'fewer' if saved > 0 else 'more'} at NMI {target:.3f}"
        yield "3", claim, here, saved >= 60


def _mean(made: Estimate) -> float:
    return made.mean


def _best_for(places: Sequence[tuple[float, float]], cost: float) -> float:
    """The best NMI for no more than a cost."""
    return max(nmi for spent, nmi in places if spent <= cost)
