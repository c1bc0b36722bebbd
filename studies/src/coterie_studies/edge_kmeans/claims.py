"""What Lu et al. (2020) say of their tables and figures, and what is said here, held against what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coterie_studies.edge_kmeans.sets import MEAN, NR, Case, Cases, EdgeSet, EdgeSets, Sources, Way
from coterie_studies.study import Findings, Label
from coterie_studies.tables import Estimate, Row, estimate

__all__ = [
    "AGAINST",
    "RULES",
    "SIZES",
    "WITHIN",
    "CasePoint",
    "Point",
    "case_points",
    "claims",
    "mean_alone",
    "points",
]

SIZES = {"paper": "the paper's count", "small": "small", "": ""}
AGAINST: Mapping[Sources, str] = {"one": "FSS", "ten": "BKLW"}
"""What times are compared with."""
PAPERS, OURS = "the paper", "here"
PROPOSED = ("JL+FSS", "FSS+JL", "JL+FSS+JL")
NEAR = 0.02
"""The paper calls a difference in cost below this insignificant."""
SUBSTANTIAL = 0.8
"""At most this share is substantially less; the paper's JL+BKLW sends 0.75 of what BKLW does."""
WITHIN = 1.05
OFTEN = 0.95
RULES = f"""
A claim is held where means over seeds keep to it. A cost is similar, comparable or as good where it is at most
{100 * NEAR:.0f} % above the other, which the paper calls insignificant. Significantly fewer scalars are at most half;
substantially fewer, or less, is at most {100 * SUBSTANTIAL:.0f} %; often is in at least {100 * OFTEN:.0f} % of runs.
Of several methods the worst decides.
"""


# ---------------------------------------------------------------- what was measured


@dataclass(frozen=True)
class Point:
    """One way on one set."""

    way: Way
    floats_up: Estimate
    ratio: Estimate
    """The normalized cost."""
    gain: Estimate
    """How much of what the best centers gain over the mean alone."""
    time: Estimate
    """At the sources, over that of FSS or BKLW in the same run, at the same sizes or, without any, at small ones."""
    rounds: Estimate
    ratios: Sequence[float]
    """A run each."""


def points(found: Findings, name: str, one: EdgeSet, sources: Sources) -> list[Point]:
    """Every way that was run with so many sources."""
    made, mean = [], mean_alone(found, name)
    for way in one.ways(sources):
        where = {"set": name, "sources": sources, "way": way.name, "sizes": way.sizes}
        ratios = found.values("ratio", **where)
        if ratios:
            gain = estimate((mean - ratio) / (mean - 1) for ratio in ratios)
            time = estimate(times(found, name, sources, way, way.sizes or "small"))
            sent, rounds = (found.estimate(what, **where) for what in ("floats_up", "rounds"))
            made.append(Point(way, sent, estimate(ratios), gain, time, rounds, ratios))
    return made


def mean_alone(found: Findings, name: str) -> float:
    """The normalized cost of one center, the mean of all rows."""
    return found.estimate("ratio", set=name, way=MEAN).mean


def times(found: Findings, name: str, sources: Sources, way: Way, sizes: str) -> Iterator[float]:
    """Of every run the time at the sources over that of FSS or BKLW at these sizes."""
    for seed in range(min(found.scope.seeds, way.most_seeds)):
        where: dict[str, Label] = {"set": name, "sources": sources, "seed": seed}
        own = found.values("seconds", way=way.name, sizes=way.sizes, **where)
        theirs = found.values("seconds", way=AGAINST[sources], sizes=sizes, **where)
        if own and theirs:
            yield own[0] / theirs[0]


@dataclass(frozen=True)
class CasePoint:
    """One way on one case of rare clusters or sites that differ."""

    way: Way
    floats_up: Estimate
    ratios: Sequence[float]
    """Costs over the best known, a run each."""

    @property
    def share(self) -> float:
        """Of the runs that came close to the best."""
        return float(np.mean([ratio <= WITHIN for ratio in self.ratios]))


def case_points(found: Findings, name: str, case: Case) -> list[CasePoint]:
    """Every way that was run."""
    return [
        CasePoint(way, found.estimate("floats_up", set=name, way=way.name), ratios)
        for way in case.ways
        if (ratios := found.values("ratio", set=name, way=way.name))
    ]


# ---------------------------------------------------------------- the claims

Told = tuple[str, str, str, str, bool]
"""Who says it, for which sizes, what, what was measured, and whether that holds."""
Places = Mapping[tuple[str, str], Point]
"""By method and sizes."""


def claims(found: Findings, sets: EdgeSets, cases: Cases) -> Iterator[Row]:
    """Everything that is said of the sets and cases that were run."""
    told: list[tuple[str, Told]] = []
    for name, one in sets.items():
        single, many = (
            {(p.way.name, p.way.sizes): p for p in points(found, name, one, sources)} for sources in AGAINST
        )
        for sizes in ("paper", "small"):
            told += [(one.title, some) for some in _of_one_source(single, sizes)]
            told += [(one.title, some) for some in _of_ten_sources(many, sizes)]
        told += [(one.title, some) for some in _of_ours(single, many, mean_alone(found, name), one.n_clusters)]
    for name, case in cases.items():
        told += [(case.title, some) for some in _of_case({p.way.name: p for p in case_points(found, name, case)})]
    for title, (who, sizes, claim, here, held) in told:
        row = {"who": who, "data": title, "sizes": SIZES.get(sizes, sizes), "claim": claim, "measured": here}
        yield {**row, "verdict": "held" if held else "did not hold"}


def _of_one_source(at: Places, sizes: str) -> Iterator[Told]:
    some = [at[name, sizes] for name in PROPOSED if (name, sizes) in at]
    if len(some) < len(PROPOSED) or ("FSS", sizes) not in at or (NR, "") not in at:
        return
    fss, raw = at["FSS", sizes], at[NR, ""].floats_up.mean
    first, last, twice = some
    sent, most = max(p.floats_up.mean for p in some), max(p.ratio.mean for p in some)
    claim = "JL+FSS, FSS+JL, JL+FSS+JL: 99 % fewer scalars than NR with less than 16 % more cost"
    here = f"{100 * (1 - sent / raw):.2f} % fewer, {100 * (most - 1):.1f} % more cost"
    yield PAPERS, sizes, claim, here, sent <= 0.01 * raw and most < 1.16
    claim = "JL+FSS, FSS+JL, JL+FSS+JL: a similar or smaller cost than FSS"
    yield PAPERS, sizes, claim, f"{_listed(some)}; FSS {fss.ratio.mean:.4f}", _is_near(most, fss.ratio.mean)
    claim = "JL+FSS, FSS+JL, JL+FSS+JL: significantly fewer scalars than FSS"
    here = f"{sent:,.0f} at most; FSS {fss.floats_up.mean:,.0f}"
    yield PAPERS, sizes, claim, here, sent <= 0.5 * fss.floats_up.mean
    claim = "JL first takes less time at the source than FSS"
    here = f"{first.time.mean:.2f} (JL+FSS) and {twice.time.mean:.2f} (JL+FSS+JL) of FSS's"
    yield PAPERS, sizes, claim, here, max(first.time.mean, twice.time.mean) < 1
    claim = "JL+FSS takes less time than FSS+JL at a similar cost for no more scalars"
    here = f"{first.time.mean:.2f} and {last.time.mean:.2f} of FSS's time, {_listed([first, last])}"
    near = _is_near(first.ratio.mean, last.ratio.mean) and first.floats_up.mean <= last.floats_up.mean
    yield PAPERS, sizes, claim, here, near and first.time.mean < last.time.mean
    claim = "JL+FSS+JL: a cost comparable to that of JL+FSS"
    yield PAPERS, sizes, claim, _listed([twice, first]), _is_near(twice.ratio.mean, first.ratio.mean)


def _of_ten_sources(at: Places, sizes: str) -> Iterator[Told]:
    if ("BKLW", sizes) not in at or ("JL+BKLW", sizes) not in at:
        return
    jl, bklw = at["JL+BKLW", sizes], at["BKLW", sizes]
    others = [p for (name, of), p in at.items() if of == sizes and name.endswith("columns")]
    here = _listed([jl, bklw, *others])
    yield PAPERS, sizes, "JL+BKLW: a cost comparable to BKLW's", here, _is_near(jl.ratio.mean, bklw.ratio.mean)
    share = jl.floats_up.mean / bklw.floats_up.mean
    claim = "JL+BKLW: substantially fewer scalars than BKLW"
    yield PAPERS, sizes, claim, f"{share:.2f} of BKLW's", share <= SUBSTANTIAL
    claim = "JL+BKLW: substantially less time at the sources than BKLW"
    here = ", ".join([f"{jl.time.mean:.2f} of BKLW's", *(f"{p.way.name} {p.time.mean:.2f}" for p in others)])
    yield PAPERS, sizes, claim, here, jl.time.mean <= SUBSTANTIAL


def _of_ours(single: Places, many: Places, mean: float, k: int) -> Iterator[Told]:
    projected = [single[key] for key in single if key[0] in PROPOSED]
    if projected and k == 2:
        best = min(projected, key=lambda point: point.ratio.mean)
        here = f"{mean:.4f}; the best is {_listed([best])} ({SIZES[best.way.sizes]})"
        claim = "the mean alone does as well as JL+FSS, FSS+JL, JL+FSS+JL"
        yield OURS, "all", claim, here, _is_near(mean, best.ratio.mean)
    elif projected:
        claim = "the cost tells a clustering from none: the mean alone is more than 16 % above the best"
        yield OURS, "", claim, f"{mean:.4f}", mean >= 1.16
    for name, against, at in (("JL+FSS", "FSS", single), ("JL+BKLW", "BKLW", many)):
        for sizes in ("paper", "small"):
            mended, whole = at.get((f"{name}, refine=1", sizes)), at.get((against, sizes))
            if mended and whole:
                claim = f"one step of Lloyd (refine=1) makes {name} as good as {against}"
                yield OURS, sizes, claim, _listed([mended, whole]), _is_near(mended.ratio.mean, whole.ratio.mean)
    if k == 2 and ("auto", "") in many:
        auto = many["auto", ""]
        sent, ratio = auto.floats_up.mean, auto.ratio.mean
        claim = "auto, ten sources: a cost of at most 1.001 with at most 40,000 scalars"
        yield OURS, "", claim, f"{ratio:.4f} with {sent:,.0f}", ratio <= 1.001 and sent <= 40_000


def _of_case(at: Mapping[str, CasePoint]) -> Iterator[Told]:
    auto, coreset = at.get("auto"), at.get("coreset (disSS)")
    uniform = at.get("uniform sample, pooled")
    if auto:
        claim = f"auto is often within {WITHIN:g} of the best"
        yield OURS, "", claim, f"in {100 * auto.share:.0f} % of runs", auto.share >= OFTEN
    if coreset and uniform:
        claim = f"a coreset is within {WITHIN:g} of the best more often than a uniform sample"
        here = f"in {100 * coreset.share:.0f} % of runs; the sample in {100 * uniform.share:.0f} %"
        yield OURS, "", claim, here, coreset.share > uniform.share


def _is_near(cost: float, other: float) -> bool:
    return cost <= (1 + NEAR) * other


def _listed(some: Sequence[Point]) -> str:
    return ", ".join(f"{point.way.name} {point.ratio.mean:.4f}" for point in some)
