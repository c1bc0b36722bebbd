"""A small drawing a column, in original units: quartiles and mean of every cluster."""

from __future__ import annotations

from html import escape

import numpy as np

from coterie.report.markup import colour_class, element, number, percent, place
from coterie.report.portrait import Portrait

FIRST, MOST, MOST_LINES = 12, 48, 600
"""Drawings that are seen at once, of all that can be unfolded; lines of clusters in all of them."""
WIDTH, LEFT, RIGHT, LINE, TOP = 250, 26, 10, 17, 6


def multiples(portrait: Portrait, n_shown: int) -> str:
    """Drawings of the columns that distinguish clusters most; nothing where only centers are known."""
    if not portrait.is_of_profiles:
        return ""
    n = min(n_shown, MOST, max(FIRST, MOST_LINES // max(len(portrait.sizes), 1)))
    figures = [_figure(portrait, column) for column in range(n)]
    first, others = "".join(figures[:FIRST]), "".join(figures[FIRST:])
    legend = (
        "A bar spans the middle half of a cluster's rows, the line in it is the median, the dot the mean, and the "
        "broken line the mean of all rows; without quartiles, a bar spans a standard deviation about the mean. A "
        "column of 0 and 1 has a bar up to its share of 1."
    )
    folded = ""
    if others:
        summary = element("summary", f"{len(figures) - FIRST} more columns")
        folded = element("details", summary + element("div", others, class_="multiples"), id="more-multiples")
    return element("p", legend, class_="note") + element("div", first, class_="multiples") + folded


def _figure(portrait: Portrait, column: int) -> str:
    low, high = _ends(portrait, column)
    height = TOP + LINE * len(portrait.sizes) + 18
    whole = float(portrait.whole_mean[column])
    parts = [
        _text(LEFT, height - 4, _shown(portrait, column, low)),
        _text(WIDTH - RIGHT, height - 4, _shown(portrait, column, high), "end"),
    ]
    if low <= whole <= high:
        x = place(_across(whole, low, high))
        parts.append(element("line", x1=x, x2=x, y1=TOP, y2=height - 18, class_="whole"))
    parts += [_cluster(portrait, cluster, column, low, high) for cluster in range(len(portrait.sizes))]
    name = escape(portrait.columns[column])
    label = f"{portrait.columns[column]}: {_words(portrait, column)}"
    drawn = element("svg", "".join(parts), viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=label, width=WIDTH)
    return element("figure", element("figcaption", name) + drawn, data_name=portrait.columns[column])


def _words(portrait: Portrait, column: int) -> str:
    means = portrait.values["mean"][:, column]
    return ", ".join(f"cluster {i} {_shown(portrait, column, float(mean))}" for i, mean in enumerate(means))


def _shown(portrait: Portrait, column: int, value: float) -> str:
    return percent(value) if portrait.is_share[column] and value == value else number(value)


def _span(portrait: Portrait, cluster: int, column: int) -> tuple[float, float]:
    """Where a cluster's bar begins and ends."""
    of = {name: float(values[cluster, column]) for name, values in portrait.values.items()}
    if portrait.is_share[column]:
        return 0.0, of["mean"]
    if np.isnan(of["q1"]):
        return of["mean"] - of["sd"], of["mean"] + of["sd"]
    return of["q1"], of["q3"]


def _ends(portrait: Portrait, column: int) -> tuple[float, float]:
    """The values at both ends of the axis."""
    if portrait.is_share[column]:
        return 0.0, 1.0
    spans = [_span(portrait, cluster, column) for cluster in range(len(portrait.sizes))]
    values = np.array(
        [*spans, *zip(portrait.values["mean"][:, column], [portrait.whole_mean[column]] * len(spans), strict=True)]
    )
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    room = 0.04 * (high - low) or max(abs(low) * 0.1, 1e-9)
    return low - room, high + room


def _across(value: float, low: float, high: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * min(max((value - low) / (high - low), 0.0), 1.0)


def _cluster(portrait: Portrait, cluster: int, column: int, low: float, high: float) -> str:
    y = TOP + LINE * cluster + LINE / 2
    label = _text(LEFT - 8, y + 4, str(cluster), "end")
    mean, median = (float(portrait.values[name][cluster, column]) for name in ("mean", "median"))
    first, last = _span(portrait, cluster, column)
    if np.isnan(mean):
        return label
    parts = [label]
    if first <= last:
        x = _across(first, low, high)
        width = max(_across(last, low, high) - x, 1.0)
        parts.append(
            element("rect", x=place(x), y=place(y - 5), width=place(width), height=10, class_=colour_class(cluster))
        )
    if not portrait.is_share[column]:
        if not np.isnan(median):
            x = _across(median, low, high)
            parts.append(element("rect", x=place(x - 1), y=place(y - 6), width=2, height=12, class_="median"))
        parts.append(element("circle", cx=place(_across(mean, low, high)), cy=place(y), r=3, class_="mean"))
    title = element("title", f"cluster {cluster}: {_shown(portrait, column, mean)}")
    return element("g", title + "".join(parts), data_cluster=cluster)


def _text(x: float, y: float, text: str, anchor: str | None = None) -> str:
    return element("text", escape(text), x=place(x), y=place(y), text_anchor=anchor)
