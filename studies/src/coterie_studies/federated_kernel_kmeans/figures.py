"""Tables and figures of the study of "A communication efficient federated kernel k-means"."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from coterie_studies.curves import Chart, Line, Panel, Spot, draw_lines, draw_spots
from coterie_studies.federated_kernel_kmeans.claims import RULES, STEPS, WAYS, averages, claims, course, means, points
from coterie_studies.federated_kernel_kmeans.sets import KernelSet, Sets
from coterie_studies.study import Findings
from coterie_studies.tables import Cell, Estimate, Row, estimate

__all__ = ["write_findings"]

NOTES = """
Five sites, rows shared out at random. MNIST / 255, D = 40, s = 20; Mushrooms 0/1, D = 20, s = 6; Covtype with every
column from 0 to 1, D = 40, s = 14. gamma by the average distance, lambda the (k + 2)-th eigenvalue of the first
iteration, eta_t = 1/t, features with a phase. FK k-means as in the paper is DSPGD by Lanczos, then a coreset of
embedded rows; coterie's way has the same iterates by the Gram exchange, then Lloyd's algorithm by sums, its start
included. CE PCA: d_s = 50, d_p = 250, p = 500; the text names no D and C for MNIST, so D is that of the other sets
and C = 1000. CK is exact; SK has 1000 landmarks (the text does not say how many). Both pool all rows, so they are a
level, not a curve. Numbers up are over all sites, those for gamma included, and every one is from the ledger of its
run (SK's, which is run in blocks, from the closed form). f_K is the kernel k-means cost, as a ratio to that of CK or
SK, judged in the same way for all: by the kernel matrix up to 3000 rows, else by Nystroem with 1000 rows of its own.

Numbers are means ± half a 95 % t-interval over seeds; figures show intervals from three seeds on. A seed draws
features, coresets and starts; rows and their sites stay. A curve of figure 3 runs over T (FK), C (RFK) or D (CE PCA)
as its table does.

Skipped: the Smartphone data, which is private to its owner.
"""
QUICK = """
Quick scope: scikit-learn's digits stand in for MNIST and two circles (gamma = 4) for Mushrooms. Both are small, and
what is said of the paper's claims is about them, not about the paper's data.
"""
LIMIT = """
The recover error does not tend to 0: those of the first s eigenvalues that are below lambda do not stay in K_t, and
its limit is the sum of their squares over N^2. The iterates Z_t do converge to theirs, D_lambda(K).
"""


def write_findings(quick: Sets, full: Sets, found: Findings) -> str:
    """Write all tables and figures; the summary."""
    sets = {name: one for name, one in (quick if found.scope.quick else full).items() if found.select(set=name)}
    text = [NOTES.strip(), QUICK if found.scope.quick else ""]
    if not sets:
        return "\n".join([*text, "No data set was there to run."])
    told = found.table("claims", [row for name, one in sets.items() for row in claims(found, name, one)])
    text += ["## The paper's claims", "", told, RULES.strip(), ""]
    found.table("by-iteration", [row for name, one in sets.items() for row in _by_iteration(found, name, one)])
    text += _written_convergence(found, {name: one for name, one in sets.items() if one.bound is not None})
    text += _written_costs(found, {name: one for name, one in sets.items() if one.turns})
    return "\n".join([*text, "Every iteration: `tables/by-iteration.csv`."])


def _written_convergence(found: Findings, sets: Sets) -> list[str]:
    """Figure 1: a row a data set, the mean to the left and the standard deviation to the right."""
    if not sets:
        return []
    table = found.table("convergence", [_convergence(found, *one) for one in sets.items()])
    draw_lines(found.figure("figure-1"), [_convergence_charts(found, *one) for one in sets.items()])
    return ["## Figure 1: convergence", "", table, LIMIT.strip(), "", _shown("1")]


def _written_costs(found: Findings, sets: Sets) -> list[str]:
    """Figures 2 to 5."""
    if not sets:
        return []
    cost = found.table("iterations", [_iterations(found, *one) for one in sets.items()])
    quality = found.table("quality", [row for one in sets.items() for row in _quality(found, *one)])
    draw_spots(found.figure("figure-2"), [[_floats(found, *one) for one in sets.items()]], list(STEPS.values()))
    draw_lines(found.figure("figure-4"), [[_products(found, *one) for one in sets.items()]])
    draw_lines(found.figure("figure-5"), [[_ranks(found, *one) for one in sets.items()]], "s")
    for unit, figure in (("floats_up", "figure-3"), ("bytes_up", "figure-3-bytes")):
        rows = [[_quality_chart(found, *one, unit, what) for one in sets.items()] for what in ("nmi", "ratio")]
        draw_lines(found.figure(figure), rows, "rows pooled (CK or SK)")
    text = ["## Figures 2, 4 and 5: an iteration", "", cost, *map(_shown, "245")]
    return [*text, "## Figure 3: quality and cost", "", quality, _shown("3"), _shown("3-bytes")]


def _shown(number: str) -> str:
    return f"![Figure {number}](figures/figure-{number}.png)\n"


# ---------------------------------------------------------------- tables


def _convergence(found: Findings, name: str, one: KernelSet) -> Row:
    t = np.arange(1, one.n_iter + 1)
    errors, away = (means(found, name, one, "cem", what) for what in ("error", "iterate"))
    late = t >= min(5, one.n_iter - 1)
    slope = float(np.polyfit(np.log(t[late]), np.log(away[late]), 1)[0])
    return {
        "data": one.title,
        "largest t x recover error": f"{(t * errors).max():.3g}",
        "the paper's constant": f"{one.bound:g}",
        "recover error at the end": f"{errors[-1]:.2e}",
        "its limit": f"{found.estimate('floor', set=name, way='cem').mean:.2e}",
        "largest t x distance of Z_t from its limit": f"{(t * away).max():.3g}",
        "slope of that distance, log by log": f"{slope:.2f}",
    }


def _iterations(found: Findings, name: str, one: KernelSet) -> Row:
    floats = {way: estimate(averages(found, name, one, way, "floats")) for way in STEPS}
    row: dict[str, Cell] = {"data": one.title, "t up to": min(one.n_iter, one.n_iter_dense)}
    row |= {f"numbers {title}": floats[way] for way, title in STEPS.items()}
    for way, head in (("cem", "CEM saves"), ("gram", "the Gram saves")):
        row[head] = f"{100 * (1 - floats[way].mean / floats['dense'].mean):.2f} %"
    row["Q_0"], row["Q_1"] = (estimate(averages(found, name, one, w, "products")) for w in ("dense", "cem"))
    return {**row, "largest r_t": float(means(found, name, one, "cem", "rank").max()), "s": one.n_components}


def _quality(found: Findings, name: str, one: KernelSet) -> Iterator[Row]:
    for way, title in {"pooled": f"{one.pooled.upper()}, rows pooled", **WAYS}.items():
        for point in points(found, name, one, way):
            yield {
                "data": one.title,
                "way": title,
                "setting": "" if way == "pooled" else point.setting,
                "NMI (geometric)": point.nmi,
                "NMI (arithmetic)": point.arithmetic,
                "f_K ratio": point.ratio,
                "values sent": point.floats_up,
                "bytes up": point.bytes_up,
                "rounds": point.rounds,
            }


def _by_iteration(found: Findings, name: str, one: KernelSet) -> Iterator[Row]:
    heads = {
        "error": "recover error",
        "iterate": "distance of Z_t",
        "floats": "numbers",
        "products": "Q",
        "rank": "r_t",
    }
    for t in range(1, max(one.n_iter, one.n_iter_dense) + 1):
        row: dict[str, Cell] = {"data": one.title, "t": t}
        for way, title in STEPS.items():
            made = {head: found.estimate(f"{what}.{t}", set=name, way=way) for what, head in heads.items()}
            row |= {f"{head} {title}": some for head, some in made.items() if some.n}
        yield row


# ---------------------------------------------------------------- figures


def _convergence_charts(found: Findings, name: str, one: KernelSet) -> list[Chart]:
    mean, spread = [], []
    for kind, (way, style) in enumerate((("cem", "-"), ("dense", "--"))):
        made = course(found, name, one, way, "error")
        t, title = range(1, len(made) + 1), f"recover error, {STEPS[way]}"
        mean.append(Line(title, t, [some.mean for some in made], kind=kind, style=style))
        spread.append(Line(title, t, [some.deviation for some in made], kind=kind, style=style))
    t = range(1, one.n_iter + 1)
    away = means(found, name, one, "cem", "iterate").tolist()
    mean.append(Line("distance of Z_t from its limit", t, away, kind=2))
    mean.append(Line("the paper's constant over t", t, [(one.bound or 0) / i for i in t], kind=-1, style=":"))
    charts = [Chart(f"{one.title}: mean ({one.bound:g}/t dotted)", "t", "squared distance / N²", mean, "xy")]
    if np.isfinite(spread[0].y).all():
        charts.append(Chart(f"{one.title}: standard deviation", "t", "squared distance / N²", spread, "xy"))
    return charts


def _floats(found: Findings, name: str, one: KernelSet) -> Panel:
    spots = []
    for kind, (way, label) in enumerate(zip(STEPS, ("no CEM", "CEM", "Gram"), strict=True)):
        values = averages(found, name, one, way, "floats")
        made = estimate(values)
        spots.append(Spot(label, values, made.mean, made.low, made.high, kind))
    return Panel(
        f"{one.title}, t up to {min(one.n_iter, one.n_iter_dense)}", "", "values sent an iteration", spots, log=True
    )


def _products(found: Findings, name: str, one: KernelSet) -> Chart:
    lines = []
    for kind, (way, head) in enumerate((("dense", "Q_0"), ("cem", "Q_1"))):
        made = course(found, name, one, way, "products")
        lines.append(_line(f"{head}, {STEPS[way]}", range(1, len(made) + 1), made, kind))
    return Chart(one.title, "t", "Lanczos steps", lines, from_zero=True)


def _ranks(found: Findings, name: str, one: KernelSet) -> Chart:
    made = course(found, name, one, "cem", "rank")
    line = _line("r_t", range(1, len(made) + 1), made, 0)
    return Chart(one.title, "t", "rank of Z_t", [line], level=one.n_components, from_zero=True)


def _quality_chart(found: Findings, name: str, one: KernelSet, unit: str, what: str) -> Chart:
    lines = []
    for kind, (way, title) in enumerate(WAYS.items()):
        some = list(points(found, name, one, way))
        sent = [getattr(point, unit).mean for point in some]
        lines.append(_line(title, sent, [getattr(point, what) for point in some], kind, "osD^"[kind]))
    level = getattr(next(points(found, name, one, "pooled")), what).mean
    title = f"{one.title} (dashed: {one.pooled.upper()})" if what == "nmi" else ""
    y_name = "NMI (geometric)" if what == "nmi" else "f_K, ratio to pooled"
    x_name = {"floats_up": "values sent, all sites", "bytes_up": "bytes up, all sites"}[unit]
    return Chart(title, x_name, y_name, lines, "x", level)


def _line(title: str, x: Sequence[float], made: Sequence[Estimate], kind: int, mark: str = "") -> Line:
    """Means, from three seeds on with their intervals."""
    low, high = ([some.low for some in made], [some.high for some in made]) if made[0].n > 2 else ([], [])
    return Line(title, x, [some.mean for some in made], low, high, kind, mark=mark)
