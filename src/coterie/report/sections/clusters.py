"""The clusters: sizes, what distinguishes them, whose rows are in them, and every column of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from coterie.report.labels import rows_head, size_text
from coterie.report.markup import RunFiles, colour_class, element, paragraph, percent, place, section, table, wide
from coterie.report.portrait import Portrait, portrait_of
from coterie.report.profiles import composition_table, distinguishing_table, exactness_sentence
from coterie.report.sections.heat import heat_map
from coterie.report.sections.multiples import multiples
from coterie.text import count_of

BAR, BAR_HEIGHT = 240, 14
MOST_COLUMNS, MOST_CELLS = 200, 6000
"""Columns of the table of all clusters, and its cells."""


def clusters(run: RunFiles) -> str:
    """Nothing for a run that judged numbers of clusters."""
    result = run.result
    if not result["centers"]:
        return ""
    portrait = portrait_of(result)
    parts = [_sizes(result), _distinguishing(result), _composition(result)]
    parts.append(_NO_COLUMNS if portrait is None else _by_column(portrait, result))
    return section("clusters", "The clusters", *parts)


_NO_COLUMNS = paragraph(
    "This run asked for no profiles, and its centers are components of a kernel's features (centers.csv), which are "
    "no columns of the tables. Run it without --no-profile (a private run: with --profile all) to see what is in the "
    "clusters."
)


def _sizes(result: Mapping[str, Any]) -> str:
    """A line a cluster, with a bar."""
    counts = [max(count, 0.0) for count in result["counts"]]
    all_rows, largest = sum(counts) or 1.0, max([*counts, 1e-300])
    lines = []
    for i, count in enumerate(counts):
        width = place(BAR * count / largest)
        bar = element("rect", width=width, height=BAR_HEIGHT, rx=2, class_=colour_class(i))
        drawn = element("svg", bar, class_="bar", viewBox=f"0 0 {BAR} {BAR_HEIGHT}", aria_hidden="true")
        texts = size_text(result, result["counts"][i]), percent(count / all_rows)
        cells = "".join(element("td", escape(text)) for text in texts)
        lines.append(
            element("tr", element("th", f"cluster {i}", scope="row") + cells + element("td", drawn), data_cluster=i)
        )
    heads = "".join(element("th", escape(text), scope="col") for text in ("", rows_head(result), "share", ""))
    body = element("thead", element("tr", heads)) + element("tbody", "".join(lines))
    empty = sum(count == 0 for count in result["counts"])
    note = ""
    if empty and not result.get("privacy"):
        note = paragraph(
            f"{count_of(empty, 'cluster')} without a row: the tables may hold fewer clusters than were asked for."
        )
    return wide(element("table", body, class_="sizes"), "sizes of the clusters") + note


def _distinguishing(result: Mapping[str, Any]) -> str:
    if not result.get("profiles"):
        return ""
    head = "<h3>What distinguishes the clusters</h3>"
    return head + table(*distinguishing_table(result["profiles"])) + paragraph(exactness_sentence(result["profiles"]))


def _composition(result: Mapping[str, Any]) -> str:
    """Of each cluster the rows of every site, where all sites allow it to be seen."""
    if not result.get("composition"):
        return ""
    counted = "Each number counts whole groups." if result["composition"]["counts_are"] == "whole_groups" else ""
    seen = "The sites' policies let the server see this."
    return f"<h3>Whose rows are in them</h3>{table(*composition_table(result['composition']))}" + paragraph(
        f"{seen} {counted}".strip()
    )


def _by_column(portrait: Portrait, result: Mapping[str, Any]) -> str:
    """The heat map and the small multiples of the columns that distinguish most."""
    n_shown = min(len(portrait.columns), MOST_COLUMNS, max(20, MOST_CELLS // max(len(portrait.sizes), 1)))
    return "\n".join(
        [
            "<h3>Every column, in original units</h3>",
            *map(paragraph, _notes(portrait, result, n_shown)),
            heat_map(portrait, n_shown),
            multiples(portrait, n_shown),
        ]
    )


def _notes(portrait: Portrait, result: Mapping[str, Any], n_shown: int) -> Iterator[str]:
    """What the numbers and the colours are."""
    if portrait.is_of_profiles:
        yield (
            "A cell is a cluster's mean, or its share of 1; its colour is the difference from all rows in their "
            "standard deviations. The columns with the largest share of variance between clusters come first."
        )
    else:
        yield (
            "This run asked for no profiles: a cell is the coordinate of a center, and its colour the difference "
            "from the mean of all centers in their own standard deviations."
        )
    yield from _left_out(portrait.columns, n_shown, "profiles.csv" if portrait.is_of_profiles else "centers.csv")
    if result.get("privacy"):
        yield "All numbers are estimates with noise."


def _left_out(columns: Sequence[str], n_shown: int, file: str) -> Iterator[str]:
    if len(columns) > n_shown:
        yield (
            f"Shown are the {n_shown} of {len(columns):,} columns that distinguish the clusters most; all are in "
            f"{file}."
        )
