"""Tables and figures of the study of landmark kernel k-means."""

from __future__ import annotations

from collections.abc import Iterator

from coterie_studies.curves import Chart, Line, draw_lines
from coterie_studies.landmarks.claims import OURS, RULES, WAYS, Point, claims, headline, places, points, yardstick
from coterie_studies.landmarks.sets import LandmarkSet, LandmarkSets
from coterie_studies.study import Findings
from coterie_studies.tables import Row

__all__ = ["write_findings"]

NOTES = """
Landmark kernel k-means (coterie's own, the default) beside DSPGD with its paper's settings and what the paper
compares with. RBF kernel; no way is told gamma, unless a set names one. Rows are shared out at random over five
sites, or sorted by label first. Local landmarks: `small` is 2 bits a coordinate and no round of Lloyd's algorithm,
`default` has no argument, `no round` the same without rounds of Lloyd's algorithm, `large` 100 landmarks, 4 bits
and 4 rounds. Masked sums: `coterie.fit` with the default policy, at most 3 rounds. DSPGD ends in
Lloyd's algorithm by sums. Of RFK and CE PCA, the ends and the middle of their paper's curves.

f_K is the kernel k-means cost, judged with the average-distance gamma of all rows, in the same way for all: by the
kernel matrix up to 3000 rows, else by Nystroem with 1000 rows. Ratios are to the best of all seeds of SK (rows
pooled, 1000 landmarks; CK, the exact one, where a table says so), so SK's own mean is above 1. Bytes and numbers
are those that left a site, the mean over sites, from the ledger of the run (SK's from the closed form). Seconds are
of all sites and the server in one process, on one thread. Numbers are means ± half a 95 % t-interval over seeds;
figures show intervals from three seeds on. A seed draws landmarks, features and starts; rows and their sites stay.
"""
QUICK = """
Quick scope: scikit-learn's digits stand in for MNIST and two circles (gamma = 4) for Mushrooms, under the same
promises. Both are small, and what is held or not is said of them alone.
"""
MARKS = {"local": "o", "summed": "s", "dspgd-gram": "D", "dspgd-lanczos": "^", "rfk": "v", "ce-pca": "P"}
"""The curves, in the order of their colours."""
SEEDS_FOR_INTERVALS = 3


def write_findings(quick: LandmarkSets, full: LandmarkSets, found: Findings) -> str:
    """Write all tables and figures; the summary."""
    chosen = (quick if found.scope.quick else full).items()
    there = {name: one for name, one in chosen if found.select(set=name)}
    sets = {name: one for name, one in there.items() if not one.why}
    cases = {name: one for name, one in there.items() if one.why}
    text = [NOTES.strip(), QUICK if found.scope.quick else ""]
    if sets:
        promised = found.table("claims", list(claims(found, sets)))
        text += ["## What is promised", "", promised, RULES.strip(), ""]
        beside = [row for name, one in sets.items() for row in headline(found, name, one)]
        if beside:
            text += ["## Bytes and rounds of DSPGD over ours", "", found.table("headline", beside), ""]
        text += _written_quality(found, sets)
        text += _written_embeddings(found, sets)
    if cases:
        table = found.table("cases", [row for name, one in cases.items() for row in places(found, name, one)])
        why = [f"- {one.title}: {one.why}." for one in cases.values()]
        text += ["## Hard cases: where it loses, and what helps", "", *why, "", _by(cases), "", table]
    return "\n".join(text)


def _written_quality(found: Findings, sets: LandmarkSets) -> list[str]:
    text = ["## Quality and cost", ""]
    for name, one in sets.items():
        table = found.table(f"quality-{name}", list(places(found, name, one)))
        text += [f"### {one.title}", "", table, _best(found, name, one), ""]
    judged = {name: one for name, one in sets.items() if yardstick(found, name, one) > 0}
    if judged:
        for figure, what in (("nmi", "nmi"), ("cost", "ratio")):
            charts = [_chart(found, name, one, what) for name, one in judged.items()]
            across = 2 if len(charts) % 2 == 0 else len(charts)
            grid = [charts[i : i + across] for i in range(0, len(charts), across)]
            draw_lines(found.figure(figure), grid, "SK, rows pooled (mean)")
            text.append(f"![{figure} against bytes](figures/{figure}.png)\n")
    return text


def _best(found: Findings, name: str, one: LandmarkSet) -> str:
    """Which way has the lowest f_K of all in the mean: the yardstick need not be the best there is."""
    best = min(points(found, name, one), key=lambda point: point.ratio.mean, default=None)
    if best is None or not best.ratio.mean > 0:
        return ""
    return f"The lowest mean f_K of all: {WAYS[best.way]}, {best.setting} ({best.ratio.mean:.4f})."


def _written_embeddings(found: Findings, sets: LandmarkSets) -> list[str]:
    rows = [row for name, one in sets.items() for row in _embeddings(found, name, one)]
    return ["## Embeddings", "", found.table("embeddings", rows)] if rows else []


def _embeddings(found: Findings, name: str, one: LandmarkSet) -> Iterator[Row]:
    for way in one.embeddings:
        where = {"set": name, "kind": "embedding", "way": way.name, "setting": way.setting}
        error = found.estimate("error", **where)
        if error.n:
            half = f" ± {(error.high - error.low) / 2:.1e}" if error.n > 1 else ""
            yield {
                "data": f"{one.title}, s = {one.n_components}",
                "way": WAYS[way.name],
                "setting": way.setting,
                "recover error": f"{error.mean:.2e}{half}",
                "bytes up a site": found.estimate("bytes_up", **where),
                "values sent a site": found.estimate("floats_up", **where),
                "rounds": found.estimate("rounds", **where),
                "rounds of masking": found.estimate("rounds_masking", **where),
            }


def _by(cases: LandmarkSets) -> str:
    exact = ", ".join(one.title for one in cases.values() if one.yardstick[1] == "ck")
    return f"Ratios are to the best of CK for {exact}; to that of SK for the others." if exact else ""


# ---------------------------------------------------------------- figures


def _chart(found: Findings, name: str, one: LandmarkSet, what: str) -> Chart:
    """NMI or the f_K ratio against bytes: a line a way, spots for ours, whose settings are no sequence."""
    lines = []
    for kind, (way, mark) in enumerate(MARKS.items()):
        some = sorted(points(found, name, one, way), key=lambda point: point.bytes_up.mean)
        if some:
            lines.append(_line(WAYS[way], some, what, kind, mark))
    of, pooled = one.yardstick
    where = {"set": of or name, "kind": "clusters", "way": pooled}
    if what == "nmi":
        level = found.estimate("nmi_geometric", **where).mean
    else:
        level = found.estimate("cost", **where).mean / yardstick(found, name, one)
    y_name = "NMI (geometric)" if what == "nmi" else "f_K, ratio to SK's best"
    return Chart(one.title, "bytes up a site", y_name, lines, "x", level)


def _line(title: str, some: list[Point], what: str, kind: int, mark: str) -> Line:
    made = [getattr(point, what) for point in some]
    shown = made if made[0].n >= SEEDS_FOR_INTERVALS else []
    return Line(
        title,
        [point.bytes_up.mean for point in some],
        [one.mean for one in made],
        [one.low for one in shown],
        [one.high for one in shown],
        kind,
        "none" if title in OURS.values() else "-",
        mark,
    )
