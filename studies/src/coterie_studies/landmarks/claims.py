"""What is promised of landmark kernel k-means, held against what was measured; means over seeds decide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from coterie_studies.landmarks.sets import LandmarkSet, LandmarkSets, Promise
from coterie_studies.study import Findings
from coterie_studies.tables import Cell, Estimate, Row, estimate

__all__ = ["DSPGD", "OURS", "RULES", "WAYS", "Point", "claims", "headline", "places", "points", "yardstick"]

OURS = {"local": "landmarks, local", "summed": "landmarks, masked sums"}
DSPGD = {"dspgd-gram": "DSPGD + CEM, Gram", "dspgd-lanczos": "DSPGD + CEM, Lanczos"}
POOLED = {"ck": "CK, rows pooled", "sk": "SK, rows pooled"}
WAYS = {
    **OURS,
    "auto": "landmarks, masked, default policy",
    **DSPGD,
    "rfk": "RFK k-means",
    "ce-pca": "CE PCA",
    **POOLED,
}
NEAR = 0.01
RULES = f"""
A promise of f_K is held where some setting of the way keeps to its bytes, its rounds and its ratio; named is the one
of the lowest ratio within bytes and rounds. NMI: the default setting of local landmarks (by masked sums: the larger
one) is at most {NEAR} below SK's mean, by both means of the entropies. Bytes against DSPGD: the cheapest setting of
local landmarks with an f_K no higher than that of the longest DSPGD run, whose numbers count 8 bytes each, those of
the cheaper solver, and of its iterations alone: gamma, the start and the clustering are given to it.
"""


# ---------------------------------------------------------------- what was measured


@dataclass(frozen=True)
class Point:
    """One setting of one way of clustering."""

    way: str
    setting: str
    ratio: Estimate
    """f_K over the yardstick."""
    nmi: Estimate
    arithmetic: Estimate
    bytes_up: Estimate
    floats_up: Estimate
    floats_iterations: Estimate
    rounds: Estimate
    rounds_masking: Estimate
    singles: Estimate
    seconds: Estimate


def yardstick(found: Findings, name: str, one: LandmarkSet) -> float:
    """The best cost of any seed with rows pooled; NaN where it was not run."""
    of, way = one.yardstick
    costs = found.values("cost", set=of or name, kind="clusters", way=way)
    return min(costs) if costs else float("nan")


def points(found: Findings, name: str, one: LandmarkSet, *ways: str) -> list[Point]:
    """Every setting of these ways that was run; of all ways where none is named."""
    level, made = yardstick(found, name, one), []
    for way in one.ways:
        where = {"set": name, "kind": "clusters", "way": way.name, "setting": way.setting}
        costs = found.values("cost", **where)
        if not costs or (ways and way.name not in ways):
            continue
        heads = ("nmi_geometric", "nmi_arithmetic", "bytes_up", "floats_up", "floats_iterations", "rounds")
        numbers = [found.estimate(head, **where) for head in (*heads, "rounds_masking", "singles", "seconds")]
        made.append(Point(way.name, way.setting, estimate(cost / level for cost in costs), *numbers))
    return made


def places(found: Findings, name: str, one: LandmarkSet) -> Iterator[Row]:
    """The table of a data set: a row a way and setting."""
    for point in points(found, name, one):
        yield {
            "data": one.title,
            "way": WAYS[point.way],
            "setting": point.setting,
            "bytes up a site": point.bytes_up,
            "values sent a site": point.floats_up,
            "rounds": point.rounds,
            "rounds of masking": point.rounds_masking,
            "f_K ratio": point.ratio,
            "NMI (geometric)": point.nmi,
            "NMI (arithmetic)": point.arithmetic,
            "seconds": f"{point.seconds.mean:.2g}",
        }


# ---------------------------------------------------------------- beside DSPGD


def headline(found: Findings, name: str, one: LandmarkSet) -> Iterator[Row]:
    """Bytes and rounds of every DSPGD run over those of our cheapest setting that is as good or better."""
    for theirs in points(found, name, one, *DSPGD):
        for way, title in OURS.items():
            mine = _cheapest(points(found, name, one, way), theirs.ratio.mean)
            row: dict[str, Cell] = {
                "data": one.title,
                "DSPGD": f"{WAYS[theirs.way]}, {theirs.setting}",
                "its f_K ratio": f"{theirs.ratio.mean:.4f}",
                "its bytes a site (8 a number)": round(8 * theirs.floats_up.mean),
                "its rounds": round(theirs.rounds.mean),
                "ours": f"{title}, {mine.setting}" if mine else f"{title}: none as good",
            }
            if mine is not None:
                row |= {
                    "our f_K ratio": f"{mine.ratio.mean:.4f}",
                    "our bytes a site": round(mine.bytes_up.mean),
                    "our rounds": round(_all_rounds(mine)),
                    "times fewer bytes": f"{8 * theirs.floats_up.mean / mine.bytes_up.mean:.1f}",
                    "times fewer rounds": f"{_all_rounds(theirs) / _all_rounds(mine):.1f}",
                }
            yield row


def _cheapest(some: list[Point], ratio: float) -> Point | None:
    good = [point for point in some if point.ratio.mean <= ratio]
    return min(good, key=lambda point: point.bytes_up.mean) if good else None


def _all_rounds(point: Point) -> float:
    return point.rounds.mean + point.rounds_masking.mean


# ---------------------------------------------------------------- the claims

Told = tuple[str, str, bool]
"""What is promised, what was measured, and whether that holds."""


def claims(found: Findings, sets: LandmarkSets) -> Iterator[Row]:
    """Every promise about the sets that were run."""
    for name, one in sets.items():
        is_judged = not np.isnan(yardstick(found, name, one))
        told = [*_of_clusters(found, name, one), *_of_agreement(found, name, one)] if is_judged else []
        if is_judged and one.saves is not None:
            told += _of_savings(found, name, one, one.saves)
        if one.recover is not None:
            told += _of_embedding(found, name, one.recover)
        for claim, here, held in told:
            verdict = "held" if held else "did not hold"
            yield {"data": one.title, "promised": claim, "measured": here, "verdict": verdict}


def _of_clusters(found: Findings, name: str, one: LandmarkSet) -> Iterator[Told]:
    for promise in one.promises:
        some = points(found, name, one, promise.way)
        if some:
            yield _kept(promise, some)
    summed = points(found, name, one, "summed")
    if summed:
        most = max(point.singles.mean for point in summed)
        yield "masked sums: no answer of a single site is seen", f"{most:g} answers", most == 0


def _kept(promise: Promise, some: list[Point]) -> Told:
    claim = f"{OURS[promise.way]}: f_K ratio at most {promise.ratio:g} with {promise.bytes_a_site:,g} bytes a site"
    claim += f" in {promise.rounds:g} rounds" if np.isfinite(promise.rounds) else ""
    within = [p for p in some if p.bytes_up.mean <= promise.bytes_a_site and p.rounds.mean <= promise.rounds]
    if not within:
        least = min(some, key=lambda point: point.bytes_up.mean)
        return claim, f"no setting: the least is {_told(least)}", False
    best = min(within, key=lambda point: point.ratio.mean)
    return claim, _told(best), best.ratio.mean <= promise.ratio


def _told(point: Point) -> str:
    sent = f"{point.bytes_up.mean:,.0f} bytes, {point.rounds.mean:g} rounds"
    return f"{point.ratio.mean:.4f}, {sent} ({point.setting})"


def _of_agreement(found: Findings, name: str, one: LandmarkSet) -> Iterator[Told]:
    of, way = one.yardstick
    heads = ("nmi_geometric", "nmi_arithmetic")
    level = [found.estimate(head, set=of or name, kind="clusters", way=way).mean for head in heads]
    local = [point for point in points(found, name, one, "local") if point.setting == "default"]
    for point in local + points(found, name, one, "summed")[-1:]:
        below = max(level[0] - point.nmi.mean, level[1] - point.arithmetic.mean)
        claim = f"{OURS[point.way]}: NMI at most {NEAR} below {way.upper()}'s {level[0]:.4f}, or above"
        yield claim, f"{point.nmi.mean:.4f} ({point.setting})", below <= NEAR


def _of_savings(found: Findings, name: str, one: LandmarkSet, times: float) -> Iterator[Told]:
    theirs = points(found, name, one, *DSPGD)
    longest = [point for point in theirs if point.setting == theirs[-1].setting]
    if not longest:
        return
    rival = min(longest, key=lambda point: point.floats_iterations.mean)
    claim = f"{OURS['local']}: at least {times:g} times fewer bytes than DSPGD at equal or better f_K"
    mine = _cheapest(points(found, name, one, "local"), rival.ratio.mean)
    if mine is None:
        yield claim, f"no setting reaches {rival.ratio.mean:.4f} ({WAYS[rival.way]}, {rival.setting})", False
        return
    factor = 8 * rival.floats_iterations.mean / mine.bytes_up.mean
    here = f"{factor:.0f} times: {_told(mine)}, DSPGD {rival.ratio.mean:.4f}, {8 * rival.floats_iterations.mean:,.0f}"
    yield claim, f"{here} bytes ({WAYS[rival.way]}, {rival.setting})", factor >= times


def _of_embedding(found: Findings, name: str, promised: tuple[float, float]) -> Iterator[Told]:
    error, most = promised
    where = {"set": name, "kind": "embedding", "way": "local"}
    measured, sent = found.estimate("error", **where), found.estimate("bytes_up", **where)
    if not measured.n:
        return
    claim = f"{OURS['local']}: recover error at most {error:g}"
    claim += f" with {most:,g} bytes a site" if np.isfinite(most) else ""
    here = f"{measured.mean:.2e}, {sent.mean:,.0f} bytes"
    yield claim, here, measured.mean <= error and sent.mean <= most
