"""Clusters by column as a table with coloured cells, which the script sorts, filters and switches."""

from __future__ import annotations

from html import escape

import numpy as np

from coterie.report.markup import NOTHING, element, number, percent, wide
from coterie.report.portrait import Portrait

LEVELS, FULL = 10, 2.0
"""Steps of a colour to each side, and the difference in deviations that has the last one."""
_SHOWN = {"mean": "mean or share", "difference_in_sd": "difference in sd", "sd": "standard deviation"}
_SHOWN |= {"q1": "first quartile", "median": "median", "q3": "third quartile", "missing": "missing values"}
_SHOWN |= {"noise_of_mean": "deviation of the noise in the mean"}


def heat_map(portrait: Portrait, n_shown: int) -> str:
    """A line a column and a cell a cluster; every cell carries all that is known of it."""
    always = ("mean", "difference_in_sd")
    shown = [name for name in _SHOWN if name in always or not np.isnan(portrait.values[name]).all()]
    k = len(portrait.sizes)
    buttons = ["column", "variance between" if portrait.is_of_profiles else "", *(f"cluster {i}" for i in range(k))]
    heads = "".join(
        element("th", element("button", text, type="button"), scope="col", data_cluster=i - 2 if i > 1 else None)
        if text
        else ""
        for i, text in enumerate(buttons)
    )
    lines = [_line(portrait, place, shown) for place in range(n_shown)]
    body = element("thead", element("tr", heads)) + element("tbody", "".join(lines))
    titles = [f"{_SHOWN[name]} (estimate)" if name in portrait.about else _SHOWN[name] for name in shown]
    heat = element("table", body, class_="sortable heat", data_names="|".join(titles))
    details = element("p", _HINT, class_="details controls", id="cell-details", aria_live="polite")
    return _controls(titles) + details + wide(heat, "clusters by column") + _legend()


_HINT = "Point at a cell, or move to one with Tab and the arrow keys, to see all that is known of it."


def _controls(titles: list[str]) -> str:
    options = "".join(element("option", escape(title), value=i) for i, title in enumerate(titles))
    search = element("label", f"Columns named {element('input', id='filter', type='search', placeholder='any')}")
    choose = element("label", f"Show {element('select', options, id='show')}")
    count = element("output", "", id="filter-count", for_="filter")
    return element("div", search + choose + count, class_="controls", role="group", aria_label="what the table shows")


def _line(portrait: Portrait, place: int, shown: list[str]) -> str:
    name = element("th", escape(portrait.columns[place]), scope="row")
    between = float(portrait.between[place])
    first = element("td", percent(between), data_s=f"{between:.6g}") if portrait.is_of_profiles else ""
    cells = "".join(_cell(portrait, cluster, place, shown) for cluster in range(len(portrait.sizes)))
    return element("tr", name + first + cells)


def _cell(portrait: Portrait, cluster: int, place: int, shown: list[str]) -> str:
    values = {name: float(portrait.values[name][cluster, place]) for name in shown}
    texts = {name: number(value) for name, value in values.items()}
    if portrait.is_share[place] and texts["mean"] != NOTHING:
        texts["mean"] = percent(values["mean"])
    difference = values["difference_in_sd"]
    texts["difference_in_sd"] = NOTHING if np.isnan(difference) else f"{difference:+.2f}"
    return element(
        "td",
        texts["mean"],
        class_=_colour(difference),
        data_v="|".join(texts.values()),
        data_s=None if np.isnan(difference) else f"{difference:.4g}",
    )


def _colour(difference: float) -> str | None:
    """The class of a colour; none where nothing differs."""
    level = 0 if np.isnan(difference) else min(LEVELS, round(abs(difference) / FULL * LEVELS))
    return f"{'above' if difference > 0 else 'below'} l{level}" if level else None


def _legend() -> str:
    marks = "".join(
        element("span", f"{value:+g} sd" if value else "as all rows", class_=_colour(value))
        for value in (-FULL, -FULL / 2, 0.0, FULL / 2, FULL)
    )
    return element("p", marks, class_="legend", aria_label="colours of differences")
