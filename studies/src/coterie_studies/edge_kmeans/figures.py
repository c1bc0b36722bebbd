"""Tables and figures of the study of k-means from small summaries (Lu et al. 2020)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from coterie_studies.curves import Chart, Line, Panel, Spot, draw_lines, draw_spots
from coterie_studies.edge_kmeans.claims import (
    AGAINST,
    PAPERS,
    RULES,
    SIZES,
    WITHIN,
    CasePoint,
    Point,
    case_points,
    claims,
    mean_alone,
    points,
    times,
)
from coterie_studies.edge_kmeans.sets import BUDGET, MEAN, NR, PAPER, Case, Cases, EdgeSet, EdgeSets, Sources, Way
from coterie_studies.study import Findings
from coterie_studies.tables import Cell, Row, estimate

__all__ = ["write_findings"]

NOTES = """
MNIST / 255 less the columns' means, all 60,000 rows, so from -1 to 1 with zero mean, as in the paper, and therefore
`center=False`. One source holds all rows; ten hold rows at random, in another way for every seed. A seed also draws
projections, samples and starts. The normalized cost is cost(P, X) / cost(P, X*) with X* by scikit-learn's KMeans,
ten starts, on all rows; NR is that by definition, with any seed, and does not compute at the source. Scalars are all
values sent by all sources, from the ledger of the run (NR's from the closed form: from one source the rows of MNIST
are more than a site ever sends at once); k + 1 of them a source say what the centers found cost, which the paper
does without.

Sizes: `the paper's count` lets every method send about as many scalars as in the paper's tables (by `budget`; the
paper says no other size); `small` is what `EdgeKMeans` takes by itself. By its budget alone JL+BKLW would project
onto all columns there are, which reduces nothing; it projects onto three quarters of them, because in the paper it
sends three quarters of BKLW's scalars, and in lines of their own onto half and onto all. `refine=1` adds a step of
Lloyd by sums; `auto` is what we recommend, `local centers` each source's own k centers, clustered by the server; of
both no row leaves its source. The mean is the one center of k = 1, by a sum.

Gain is (c - cost) / (c - 1), c being the normalized cost of the mean alone: 1 for the best centers, 0 for none. Time
is what all sources spent computing, one thread each, as a ratio to that of FSS (one source) or BKLW (ten) in the same
run at the same sizes, for lines without sizes at small ones; the question what the centers found cost is left out.
Numbers are means ± half a 95 % t-interval over runs; figures show intervals from three runs on. With k = 10 there are
fewer runs, of the largest sizes one.

Skipped: the NeurIPS word counts (11,463 x 5,812; figures 2 and 4), which could not be had: the data folder has an
extract of 37 words only.
"""
QUICK = """
Quick scope: scikit-learn's digits stand in for MNIST; the paper's counts are taken as shares of all the numbers there
are (with one source and k = 10 four times as much: less would not do). Digits are small, and what is held or not is
said of them alone.
"""
TABLES: dict[Sources, str] = {"one": "Table II, figure 1: one source", "ten": "Table III, figure 3: ten sources"}
ROWS, STEP, NONE, UNIFORM = "rows are sent", "rows, then a step of Lloyd", "no row is sent", "a uniform sample"
LINES = {
    "FSS or BKLW": (0, "o"),
    "JL+FSS or JL+BKLW": (1, "s"),
    "FSS+JL": (2, "D"),
    "JL+FSS+JL": (3, "^"),
    "JL+BKLW, half the columns": (5, "<"),
    "JL+BKLW, all columns": (5, ">"),
    "JL+FSS or JL+BKLW, refine=1": (4, "P"),
    "local centers": (7, "x"),
    "auto": (7, "*"),
}
"""Colours and marks of methods; one source's and ten's share theirs."""
SHORT = {
    "coreset (disSS)": "disSS",
    ", pooled": "",
    "+": "+\n",
    ", refine=1": "\n1 step",
    ", half the columns": "\nd / 2",
    ", all columns": "\nd / 1",
    "local c": "local\nc",
    "uniform s": "uniform\ns",
}
"""Of names below spots."""
SEEDS_FOR_INTERVALS = 3
RARE = f"""
Clusters of 5000, 20 and 10 rows, the small ones 40 deviations away from the large one, k = 3. At random: five sites
hold rows of all three; apart: three sites share the large one, each small one has a site to itself. 75 points in all
are sent by the coreset and by FSS, 15 of them the sites' own centers, and by the uniform sample, which is drawn from
all rows pooled; local centers are three a site. Every run draws its own rows.

Digits sorted by label over ten sites, k = 10, at most {BUDGET:,} scalars whatever the method: so local centers are 20
a site. Runs draw samples and starts anew, not rows.

Costs are over the best known: ten starts on all rows, or one from the classes' means, whichever is less.
"""
T = TypeVar("T")
Everything = tuple[EdgeSets, Cases]


def write_findings(quick: Everything, full: Everything, found: Findings) -> str:
    """Write all tables and figures; the summary."""
    all_sets, all_cases = quick if found.scope.quick else full
    sets, cases = _there(found, all_sets), _there(found, all_cases)
    text = [NOTES.strip(), QUICK if found.scope.quick else ""]
    if not sets:
        text.append("The paper's data was not there to run; what was skipped, and why, is below.\n")
    text += _written_claims(found, sets, cases)
    for name, one in sets.items():
        text += _written_set(found, name, one)
    if sets:
        grid = [[_trade(found, name, one, sources) for sources in AGAINST] for name, one in sets.items()]
        draw_lines(found.figure("cost-by-scalars"), grid, "the mean alone")
        text += ["## Cost by scalars", "", "![Cost by scalars](figures/cost-by-scalars.png)\n"]
    return "\n".join([*text, *_written_cases(found, cases)])


def _written_claims(found: Findings, sets: EdgeSets, cases: Cases) -> list[str]:
    """What is said of the paper's setting and by us; then the paper's sentences at other sizes and with k = 10."""
    told = list(claims(found, sets, cases))
    titles = [one.title for one in sets.values() if one.n_clusters == 2]
    beyond = [r for r in told if r["who"] == PAPERS and (r["sizes"] != SIZES["paper"] or r["data"] not in titles)]
    text = ["## What is said, and what was measured", ""]
    text += [found.table("claims", [row for row in told if row not in beyond]), RULES.strip(), ""]
    if beyond:
        text += ["The paper's sentences where it does not say them, at other sizes and with k = 10:", ""]
        text.append(found.table("claims-beyond", beyond))
    return text


def _there(found: Findings, some: Mapping[str, T]) -> dict[str, T]:
    return {name: one for name, one in some.items() if found.select(set=name)}


# ---------------------------------------------------------------- the paper's setting


def _written_set(found: Findings, name: str, one: EdgeSet) -> list[str]:
    text = [f"## {one.title}", "", _told_of_mean(found, name, one), ""]
    for sources, title in TABLES.items():
        some = points(found, name, one, sources)
        figure = f"figure-{'1' if sources == 'one' else '3'}-{name}"
        table = found.table(f"{name}-{sources}", [_row(point, one, sources, some) for point in some])
        against = f"the mean alone (cost), {AGAINST[sources]} (time)"
        draw_spots(found.figure(figure), _spots(found, name, some, sources), (ROWS, NONE, STEP), against)
        text += [f"### {title}", "", table, f"![{title}](figures/{figure}.png)\n"]
    return text


def _told_of_mean(found: Findings, name: str, one: EdgeSet) -> str:
    """What the paper's measure can tell here."""
    mean, methods = mean_alone(found, name), [p for s in AGAINST for p in points(found, name, one, s)]
    projected = [p for p in methods if _reduces(p)]
    told = f"One center, the mean of all rows, has a normalized cost of {mean:.4f}."
    if projected:
        low, high = (f(p.gain.mean for p in projected) for f in (min, max))
        worst = max(p.ratio.mean for p in projected)
        told += (
            f" Methods that project onto fewer columns at random, without a step of Lloyd, are at {worst:.4f} at "
            "most and have "
            f"{100 * low:.0f} to {100 * high:.0f} % of what the best {one.n_clusters} centers gain over it."
        )
    if mean < 1.16:
        told += (
            " So any method would keep to the paper's limit of 16 % more cost with one center, and the normalized "
            "cost hardly tells a clustering from none: read the gain."
        )
    return told


def _reduces(point: Point) -> bool:
    """Whether it projects onto fewer columns, and nothing mends that."""
    return "JL" in point.way.name and not point.way.refine and not point.way.name.endswith("all columns")


def _row(point: Point, one: EdgeSet, sources: Sources, some: Sequence[Point]) -> Row:
    way, raw = point.way, [p.floats_up.mean for p in some if p.way.name == NR]
    row: dict[str, Cell] = {"sizes": SIZES[way.sizes], "method": way.name}
    if one.is_papers:
        row["the paper's scalars"] = f"{PAPER[way.name]:,}" if way.sizes != "small" and way.name in PAPER else ""
    row["scalars"] = point.floats_up
    row["of NR's"] = f"{100 * point.floats_up.mean / raw[0]:.3g} %" if raw else ""
    row |= {"normalized cost": point.ratio, "gain": point.gain, f"time over {AGAINST[sources]}'s": point.time}
    return {**row, "rounds": point.rounds, "runs": point.ratio.n}


def _spots(found: Findings, name: str, some: Sequence[Point], sources: Sources) -> list[list[Panel]]:
    """Cost above time, the paper's count beside small sizes; what has no sizes is in both."""
    grid: list[list[Panel]] = [[], []]
    for sizes in ("paper", "small"):
        shown = [p for p in some if p.way.sizes == sizes or (not p.way.sizes and p.way.name not in (NR, MEAN))]
        took = [list(times(found, name, sources, p.way, sizes)) for p in shown]
        costs = [_spot(p.way, p.ratios, (ROWS, NONE, STEP)) for p in shown]
        spent = [_spot(p.way, values, (ROWS, NONE, STEP)) for p, values in zip(shown, took, strict=True)]
        grid[0].append(Panel(SIZES[sizes], "", "normalized cost", costs, mean_alone(found, name)))
        grid[1].append(Panel("", "", f"time, ratio to {AGAINST[sources]}'s", spent, 1.0))
    return grid


def _spot(way: Way, values: Sequence[float], kinds: Sequence[str]) -> Spot:
    made, kind = estimate(values), STEP if way.refine else ROWS
    if way.name in ("auto", "local centers"):
        kind = NONE
    elif way.name.startswith("uniform"):
        kind = UNIFORM
    low, high = (made.low, made.high) if len(values) >= SEEDS_FOR_INTERVALS else (np.nan, np.nan)
    return Spot(_short(way.name), values, made.mean, low, high, kinds.index(kind))


def _short(name: str) -> str:
    """A method's name on few columns."""
    for long, short in SHORT.items():
        name = name.replace(long, short)
    return name


def _trade(found: Findings, name: str, one: EdgeSet, sources: Sources) -> Chart:
    """Cost by scalars: a line a method, from small sizes to the paper's count."""
    lines, some = [], points(found, name, one, sources)
    for title, (kind, mark) in LINES.items():
        names = [word + (", refine=1" if "refine" in title else "") for word in title.split(", r")[0].split(" or ")]
        mine = sorted((p for p in some if p.way.name in names), key=lambda p: p.floats_up.mean)
        if mine:
            x, y = [p.floats_up.mean for p in mine], [p.ratio.mean for p in mine]
            lines.append(Line(title, x, y, kind=kind, style=":", mark=mark))
    title = f"{one.title}, {sources} source{'s' if sources == 'ten' else ''}"
    return Chart(title, "scalars", "normalized cost", lines, "x", mean_alone(found, name))


# ---------------------------------------------------------------- rare clusters, and sites that differ


def _written_cases(found: Findings, cases: Cases) -> list[str]:
    if not cases:
        return []
    rows = [row for name, case in cases.items() for row in _case_rows(found, name, case)]
    text = ["## Rare clusters, and sites that differ", "", RARE.strip(), "", found.table("cases", rows)]
    text += [*(_who_wins(case_points(found, name, case), case) for name, case in cases.items()), ""]
    for k, kinds in ((3, (ROWS, NONE, UNIFORM)), (10, (ROWS, NONE, STEP, UNIFORM))):
        grid: dict[str, list[Panel]] = {}
        for name, case in cases.items():
            if case.n_clusters == k:
                spots = [_spot(p.way, p.ratios, kinds) for p in case_points(found, name, case)]
                panel = Panel(case.data, "", f"{case.sites}: cost / best", spots, WITHIN)
                grid.setdefault(case.sites, []).append(panel)
        if grid:
            draw_spots(found.figure(f"cases-k{k}"), list(grid.values()), kinds, f"{WITHIN:g} of the best known")
            text.append(f"![Cases, k = {k}](figures/cases-k{k}.png)\n")
    return text


def _case_rows(found: Findings, name: str, case: Case) -> Iterator[Row]:
    for point in case_points(found, name, case):
        yield {
            "data": case.title,
            "method": point.way.name,
            "scalars": point.floats_up,
            f"runs within {WITHIN:g}": f"{100 * point.share:.0f} %",
            "cost over the best, mean": f"{np.mean(point.ratios):.4g}",
            "median": f"{np.median(point.ratios):.4g}",
            "worst": f"{np.max(point.ratios):.4g}",
            "runs": len(point.ratios),
        }


def _who_wins(some: Sequence[CasePoint], case: Case) -> str:
    shares = sorted({point.share for point in some}, reverse=True)
    told = [f"{', '.join(p.way.name for p in some if p.share == share)} ({100 * share:.0f} %)" for share in shares]
    return f"- {case.title}, runs within {WITHIN:g}: {'; '.join(told)}."
