"""The head of a page: what was done, and the numbers that matter, each with what it is."""

from __future__ import annotations

from html import escape

from coterie.report.in_force import protections
from coterie.report.labels import COST_WORDS, rows_sentence, size_text
from coterie.report.markup import RunFiles, element, number, paragraph
from coterie.report.sections.costs import bytes_of_rows
from coterie.text import count_of


def headline(run: RunFiles) -> str:
    """Title, summary, and a tile for every number."""
    tiles = "".join(
        element("div", f"<dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(about)}</small></dd>")
        for name, value, about in _tiles(run)
    )
    title = element("h1", escape(run.result["title"]))
    return title + paragraph(run.result["summary"], class_="lead") + element("dl", tiles, class_="tiles")


def _tiles(run: RunFiles) -> list[tuple[str, str, str]]:
    result, sites = run.result, len(run.ledger["sites"])
    tiles = [] if not result["centers"] else _cluster_tiles(run)
    out = result.get("lost", {})
    dropouts = f"{count_of(len(out), 'site')} dropped out" if out else "all to the end"
    raw = bytes_of_rows(result)
    beside = f"in {count_of(result['rounds'], 'round')}"
    if raw is not None:
        beside += f"; the table itself: {raw}"
    by_protection = protections(result["in_force"])
    protection = "; ".join(by_protection) or "not stated"
    if result.get("privacy"):
        protection = f"epsilon = {result['privacy']['epsilon']:g}"
    same = "at all sites" if len(by_protection) == 1 else "by site, below"
    return [
        *tiles,
        ("Sites", str(sites), dropouts),
        ("Sent by the sites", count_of(result["bytes_up"], "byte"), beside),
        ("Protection", protection, same),
    ]


def _cluster_tiles(run: RunFiles) -> list[tuple[str, str, str]]:
    result = run.result
    clustered, held = result["rows"]["clustered"], result["rows"]["held"]
    counted = {
        "whole_groups": f"sizes count whole groups of at least {result['min_group']}",
        "noisy": "an estimate with noise",
        "rows": "counted exactly",
    }
    of = f"of {held:,}; " if rows_sentence(result) != f"{size_text(result, clustered)} rows" else ""
    cost, kind = result["cost"], result["cost_is"]
    is_noise = result["counts_are"] == "noisy" and not cost > 0
    return [
        ("Clusters", str(len(result["centers"])), f"method {result['method']}"),
        ("Rows", size_text(result, clustered), of + counted.get(result["counts_are"], "")),
        ("k-means cost", "not told from noise" if is_noise else f"{COST_WORDS[kind]}{number(cost)}", _COSTS[kind]),
    ]


_COSTS = {
    "exact": "exact, of the rows",
    "at_most": "a bound: the rows' own cost is no larger",
    "estimate": "an estimate of the rows' cost",
}
