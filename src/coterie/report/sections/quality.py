"""How good a clustering is: cost, what it explains, halves of the sites, numbers of clusters, other clusterings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

import numpy as np

from coterie.estimators.exactness import CountsAre
from coterie.methods.shared.choosing import STABLE
from coterie.report.labels import cost_head, cost_sentence
from coterie.report.markup import NOTHING, RunFiles, element, number, paragraph, percent, place, section, table
from coterie.report.portrait import portrait_of

PANEL, TALL, LEFT, BOTTOM, TOP = 300, 190, 46, 30, 24


def quality(run: RunFiles) -> str:
    """What is known of it, and where to learn the rest."""
    result = run.result
    parts = [paragraph(sentence) for sentence in _sentences(run)]
    parts.append(_halves(result.get("halves")))
    if run.choice is not None:
        parts.append(choices(run.choice, result))
    if "comparisons" in result:
        parts += [
            "<h3>Federated, pooled, and each site alone</h3>",
            table(*comparison_table(result["comparisons"]), first="ours"),
            _LEGEND,
        ]
    return section("quality", "How good it is", *parts)


def _sentences(run: RunFiles) -> Iterator[str]:
    result = run.result
    if result["centers"]:
        yield f"The k-means cost is {cost_sentence(result)}."
        portrait = portrait_of(result)
        if portrait is not None and portrait.is_of_profiles and len(portrait.columns):
            about = "about " if result["counts_are"] == CountsAre.NOISY else ""
            yield (
                f"Between the clusters lies {about}{percent(float(np.mean(portrait.between)))} of a column's "
                "variance, as a mean over all columns of the profiles."
            )
    if run.choice is None:
        yield (
            "Silhouettes and stability were not asked for in this run: coterie choose-k shows them for every number "
            "of clusters, and -k auto takes the number that the rows support."
        )


def _halves(halves: Mapping[str, Any] | None) -> str:
    """The clusters of two halves of the sites, side by side."""
    if not halves or not halves["parts"]:
        return ""
    parts = halves["parts"]
    lines = [
        [f"cluster {i}", *(f"{part['counts'][i]:,.0f}" for part in parts)] for i in range(len(parts[0]["counts"]))
    ]
    heads = ["", *(f"rows at {', '.join(part['sites'])}" for part in parts)]
    agree = "disagree" if halves["disagree"] else "agree"
    return table(heads, lines, caption=f"Two halves of the sites {agree} on the clusters.")


def choices(choice: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """What is known of each number of clusters."""
    heads = ["number of clusters", "silhouette", "gap", "its error", "stability", cost_head(result)]
    names = ("silhouette", "gap", "gap_error", "stability")
    lines = [
        [str(of["k"]), *(NOTHING if of[name] is None else f"{of[name]:.3f}" for name in names), number(of["cost"])]
        for of in choice["numbers"]
    ]
    drawings = _panels(choice)
    return "<h3>How many clusters</h3>" + paragraph(choice["verdict"]) + drawings + table(heads, lines)


def _panels(choice: Mapping[str, Any]) -> str:
    """Silhouette, gap and stability over the number of clusters; a recommended number is marked."""
    panels = {
        "silhouette": ("silhouette", None),
        "gap": ("gap over one cluster", 0.0),
        "stability": ("stability", STABLE),
    }
    figures = []
    for name, (title, least) in panels.items():
        points = [(of["k"], of[name], of["gap_error"] if name == "gap" else None) for of in choice["numbers"]]
        known = [(k, value, error or 0.0) for k, value, error in points if value is not None]
        if known:
            figures.append(_panel(title, known, least, choice["recommended"]))
    return element("div", "".join(figures), class_="panels")


def _panel(title: str, points: list[tuple[int, float, float]], least: float | None, recommended: int | None) -> str:
    values = np.array([[value - error, value + error] for _, value, error in points])
    ends = [*values.ravel(), *([] if least is None else [least])]
    low, high = min(ends), max(ends)
    room = 0.08 * (high - low) or 0.1
    low, high = low - room, high + room
    first, last = points[0][0], points[-1][0]

    def x(k: int) -> str:
        return place(LEFT + 10 + (PANEL - LEFT - 24) * (k - first) / max(last - first, 1))

    def y(value: float) -> str:
        return place(TOP + (TALL - TOP - BOTTOM) * (high - value) / (high - low))

    parts = [_text(PANEL / 2 + 10, 14, title, "middle"), _text(LEFT - 6, TOP + 8, f"{high:.2f}", "end")]
    parts.append(_text(LEFT - 6, TALL - BOTTOM, f"{low:.2f}", "end"))
    if least is not None:
        parts.append(element("line", x1=LEFT, x2=PANEL - 8, y1=y(least), y2=y(least), class_="whole"))
    if recommended is not None:
        parts.append(element("line", x1=x(recommended), x2=x(recommended), y1=TOP, y2=TALL - BOTTOM, class_="chosen"))
    parts += [
        element("line", x1=x(k), x2=x(k), y1=y(value - error), y2=y(value + error), class_="error")
        for k, value, error in points
        if error
    ]
    line = " ".join(f"{x(k)},{y(value)}" for k, value, _ in points)
    parts.append(element("polyline", points=line, class_="line"))
    for k, value, _ in points:
        title_of = element("title", f"{k} clusters: {value:.3f}")
        parts.append(element("circle", title_of, cx=x(k), cy=y(value), r=4, class_="c0"))
        if len(points) <= 16 or (k - first) % 5 == 0:
            parts.append(_text(float(x(k)), TALL - 10, str(k), "middle"))
    words = f"{title} by number of clusters: " + ", ".join(f"{k}: {value:.3f}" for k, value, _ in points)
    return element("svg", "".join(parts), viewBox=f"0 0 {PANEL} {TALL}", width=PANEL, role="img", aria_label=words)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return element("text", escape(text), x=place(x), y=place(y), text_anchor=anchor)


_LEGEND = paragraph(
    "ARI and NMI compare with the known classes, and the cost is relative to the pooled optimum: all exact, over all "
    "rows without missing values. Values and bytes are those sent by all sites; pooling sends every value of every "
    "row.",
    class_="note",
)


def comparison_table(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """The head and the cells of the comparison of clusterings."""
    columns = {
        "clustering": "{way}",
        "ARI": "{ari:.3f}",
        "NMI": "{nmi:.3f}",
        "cost ratio": "{cost_ratio:.4f}",
        "values": "{floats_up:,}",
        "bytes": "{bytes_up:,}",
        "rounds": "{rounds}",
    }
    return list(columns), [[cell.format_map(row) for cell in columns.values()] for row in rows]
