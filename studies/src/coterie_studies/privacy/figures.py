"""Tables and the figure of the study of differential privacy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from coterie_studies.curves import Chart, Line, draw_lines
from coterie_studies.privacy.claims import LSH, PEER_TITLES, by_peer, claims
from coterie_studies.privacy.sets import FULL, KERNEL, PrivateSet
from coterie_studies.study import Findings, Label
from coterie_studies.tables import Cell, Row, estimate

__all__ = ["write_findings"]

NOTES = """
Private runs over sites in one process, with masked sums, integers and noise from the operating system, under a budget
of just the epsilon named; delta is the number of rows to the power of -1.1. Five sites, rows shared out at random,
every site's noise needed (`tolerated=0`), unless a table says otherwise. Ranges are those of the data, rounded
outwards; missing values are filled with noisy means. The cost is judged on all rows, as a ratio to scikit-learn's
`KMeans(n_init=10)` on the pooled rows; kernel costs (f_K, one gamma for all) to the best of ten starts among the
pooled kernel's leading eigenpairs. Numbers are means ± half a 95 % t-interval over seeds. A seed draws starts; noise
is drawn anew in every run, so no run gives the same numbers twice. A run stops where noise hides the number of rows:
it has no cost, and a table says how many had one.
"""
PEER_NOTES = """
Peers have all rows in one place and are trusted with them; missing values have their true means. FastLloyd and
DP-Lloyd are written here from their papers, the number of rows given to them; DP-Lloyd and diffprivlib promise more
(delta = 0). Google's LSH clustering is on no package index: its figures were measured with
`learning/clustering` of github.com/google/differential-privacy at commit b5b0286e313b, its default parameters,
dp-accounting 0.6.0, on the same rows with the same epsilon and delta, seeds 0 to 9 (0 to 4 for Covtype and MNIST).
It was run with rows about the middle of their ranges and the ranges' radius, and with rows about their true mean and
the true radius, as its authors did; a table shows the better of the two. All runs are in
`studies/src/coterie_studies/privacy/lsh_clustering.csv`.
"""
MARKS = {"fast-lloyd": "s", "su-lloyd": "^", "diffprivlib": "v", LSH: "D"}
HEADS = {"ratio": "cost ratio", "nmi": "NMI", "captured": "variance captured"}
ACROSS = 4


def write_findings(found: Findings) -> str:
    """Write all tables and the figure; the summary."""
    text = [NOTES.strip(), ""]
    draw_lines(found.figure("cost"), _grid(found), "pooled, scikit-learn's best of ten")
    text += ["![Cost against epsilon](figures/cost.png)", ""]
    for title, name, rows in (
        ("What is promised", "claims", claims(found)),
        ("k-means: cost against epsilon", "cost", _by_epsilon(found, "kmeans", "ratio", FULL)),
        ("k-means: NMI against epsilon", "nmi", _by_epsilon(found, "kmeans", "nmi", FULL)),
        ("Sites and tolerated dropouts, digits, epsilon 1", "sites", _sites(found)),
        ("Delta and wider ranges, digits", "choices", _choices(found)),
        ("Peers at epsilon 1", "peers", _peers(found)),
        ("Kernel k-means: cost against epsilon", "kernel", _by_epsilon(found, "kernel", "ratio", KERNEL)),
        ("Kernel k-means: NMI against epsilon", "kernel-nmi", _by_epsilon(found, "kernel", "nmi", KERNEL)),
        ("PCA: variance along 5 axes over the most there is", "pca", _by_epsilon(found, "pca", "captured", FULL)),
    ):
        made = list(rows)
        if made:
            text += [f"## {title}", "", found.table(name, made), PEER_NOTES if name == "peers" else ""]
    return "\n".join(text)


def _cell(found: Findings, what: str, **where: Label) -> Cell:
    """A mean with its interval; and how many runs had a result, where noise hid the rows of others."""
    values = found.values(what, **where)
    made, hidden = estimate(values), sum(map(math.isnan, values))
    if not hidden:
        return made
    return f"{made} ({made.n} of {len(values)} runs)" if made.n else "noise hides the rows"


def _epsilons(found: Findings, kind: str) -> list[float]:
    """Those that runs of a kind were made with."""
    return sorted({float(one.labels["epsilon"]) for one in found.trials if one.labels["kind"] == kind})


def _by_epsilon(found: Findings, kind: str, what: str, sets: Mapping[str, PrivateSet]) -> Iterator[Row]:
    """A row a set, a column an epsilon."""
    for name, one in sets.items():
        if not found.values(what, kind=kind, set=name):
            continue
        row: dict[str, Cell] = {"data": one.title}
        for epsilon in _epsilons(found, kind):
            row[f"epsilon {epsilon:g}"] = _cell(found, what, kind=kind, set=name, epsilon=epsilon)
        if kind == "kmeans" and found.values(what, kind="limit", set=name):
            row["epsilon 100"] = found.estimate(what, kind="limit", set=name, epsilon=100.0)
            row["no noise"] = found.estimate(what, kind="limit", set=name, epsilon="none")
        yield row


def _sites(found: Findings) -> Iterator[Row]:
    settings = {(one.labels["sites"], one.labels["tolerated"]): "" for one in found.trials if "sites" in one.labels}
    for n_sites, tolerated in settings:
        where: dict[str, Label] = {"kind": "sites", "sites": n_sites, "tolerated": tolerated}
        is_alone = int(tolerated) == int(n_sites) - 1
        row: dict[str, Cell] = {"sites": n_sites, "tolerated": tolerated}
        row["noise"] = "of each site enough by itself" if is_alone else "of the sum of sites"
        yield row | {HEADS[what]: _cell(found, what, **where) for what in ("ratio", "nmi")}


def _choices(found: Findings) -> Iterator[Row]:
    for kind, title in (("kmeans", "N^-1.1"), ("delta", "1e-6")):
        for epsilon in _epsilons(found, kind) if found.values("ratio", kind="delta") else ():
            yield _choice(found, kind, epsilon, title, "of the data")
    if found.values("ratio", kind="ranges"):
        yield _choice(found, "ranges", 1.0, "N^-1.1", "4 times as wide")


def _choice(found: Findings, kind: str, epsilon: float, delta: str, ranges: str) -> Row:
    where: dict[str, Label] = {"kind": kind, "set": "digits", "epsilon": epsilon}
    row: dict[str, Cell] = {"epsilon": epsilon, "delta": delta, "ranges": ranges}
    return row | {HEADS[what]: _cell(found, what, **where) for what in ("ratio", "nmi")}


def _peers(found: Findings) -> Iterator[Row]:
    for name, one in FULL.items():
        ours: dict[str, Label] = {"kind": "kmeans", "set": name, "epsilon": 1.0}
        if not found.values("ratio", **ours):
            continue
        measured = {what: found.estimate(what, **ours) for what in ("ratio", "nmi")}
        yield {"data": one.title, "way": "coterie", **{HEADS[what]: value for what, value in measured.items()}}
        for peer, title in PEER_TITLES.items():
            ratio = by_peer(found, name, peer, "ratio")
            if ratio.n:
                source = "elsewhere, see below" if peer == LSH else "by this command"
                row: dict[str, Cell] = {"data": one.title, "way": title, HEADS["ratio"]: ratio}
                yield row | {HEADS["nmi"]: by_peer(found, name, peer, "nmi"), "measured": source}


def _grid(found: Findings) -> list[list[Chart]]:
    charts = [
        _chart(found, name, one) for name, one in FULL.items() if found.values("ratio", kind="kmeans", set=name)
    ]
    return [charts[i : i + ACROSS] for i in range(0, len(charts), ACROSS)]


def _chart(found: Findings, name: str, one: PrivateSet) -> Chart:
    """Our cost by epsilon with intervals, and peers as points at epsilon 1."""
    epsilons = _epsilons(found, "kmeans")
    made = [found.estimate("ratio", kind="kmeans", set=name, epsilon=epsilon) for epsilon in epsilons]
    lows, highs = [one.low for one in made], [one.high for one in made]
    lines = [Line("coterie", epsilons, [one.mean for one in made], lows, highs, 0, mark="o")]
    for kind, (peer, mark) in enumerate(MARKS.items(), start=1):
        theirs = by_peer(found, name, peer, "ratio")
        if theirs.n:
            lines.append(
                Line(PEER_TITLES[peer], [1.0], [theirs.mean], [theirs.low], [theirs.high], kind, "none", mark)
            )
    return Chart(one.title, "epsilon", "cost, ratio to pooled", lines, "x", 1.0)
