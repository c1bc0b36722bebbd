"""Parts of a page: elements, tables, numbers, and what a page is made of."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from coterie.arrays import Floats, Integers
from coterie.secure.certificates import RunCertificate

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442", "#000000")
"""Distinct for every kind of colour vision (Okabe & Ito)."""
NOTHING = "-"
_MOST_DIGITS, _LEAST = 1e7, 1e-4
_VOID = ("input", "meta", "circle", "ellipse", "line", "path", "polyline", "rect")


@dataclass(frozen=True)
class ShownRows:
    """A sample of rows, which only a page of an owner of all data shows who asks for it."""

    rows: Floats
    """In original units, a column for each input column."""
    labels: Integers
    n_held: int


@dataclass(frozen=True)
class RunFiles:
    """What a page is made of."""

    result: Mapping[str, Any]
    ledger: Mapping[str, Any]
    choice: Mapping[str, Any] | None = None
    certificate: RunCertificate | None = None
    shown: ShownRows | None = None
    compared: tuple[list[dict[str, Any]], list[dict[str, Any]]] | None = None
    """This run and others, and every pair of them, as ``coterie compare`` has them."""


def element(name: str, content: str = "", /, **attributes: Any) -> str:
    """An element around content that is markup; ``class_`` is ``class``, ``data_v`` is ``data-v``, and None leaves an
    attribute out."""
    parts = [name]
    for key, value in attributes.items():
        if value is not None:
            parts.append(f"{key.rstrip('_').replace('_', '-')}='{escape(str(value))}'")
    start = f"<{' '.join(parts)}>"
    if name in ("input", "meta"):
        return start
    return f"{start[:-1]}/>" if name in _VOID and not content else f"{start}{content}</{name}>"


def paragraph(text: str, **attributes: Any) -> str:
    """A paragraph of plain text."""
    return element("p", escape(text), **attributes)


def section(name: str, title: str, *parts: str) -> str:
    """A section with its head, which links lead to."""
    head = element("h2", escape(title), id=f"{name}-head")
    return element("section", "\n".join([head, *filter(None, parts)]), id=name, aria_labelledby=f"{name}-head")


def table(
    head: Sequence[str],
    lines: Iterable[Sequence[str]],
    *,
    caption: str = "",
    first: str | None = None,
    is_sortable: bool = False,
) -> str:
    """A table of plain texts, whose first column names its lines; ``first`` is the CSS class of its first line."""
    lines = list(lines)
    classes = ["text" if any(map(_is_text, cells)) else None for cells in zip(*lines, strict=True)] or [None] * len(
        head
    )
    columns = list(zip(head, classes, strict=True))
    heads = "".join(element("th", _head(text, is_sortable), scope="col", class_=kind) for text, kind in columns)
    rows: list[str] = []
    for line in lines:
        cells = "".join(
            element("td", escape(text), class_=kind) for text, kind in zip(line[1:], classes[1:], strict=True)
        )
        whole = element("th", escape(line[0]), scope="row") + cells
        rows.append(element("tr", whole, class_=None if rows else first))
    parts = [element("caption", escape(caption))] if caption else []
    parts += [element("thead", element("tr", heads)), element("tbody", "".join(rows))]
    return wide(element("table", "".join(parts), class_="sortable" if is_sortable else None), caption or head[0])


def _is_text(cell: str) -> bool:
    """Whether a cell is neither a number nor nothing."""
    return bool(cell) and cell != NOTHING and re.match(r"(at most |about )?[-+]?\d", cell) is None


def _head(text: str, is_sortable: bool) -> str:
    return element("button", escape(text), type="button") if is_sortable and text else escape(text)


def wide(content: str, label: str) -> str:
    """A box in which what is wider than the page is scrolled, also by keys."""
    return element("div", content, class_="wide", tabindex=0, role="region", aria_label=label or "table")


def number(value: float | None) -> str:
    """A number of four digits for people.

    >>> number(0.23), number(12345.678), number(-1.5), number(3e-7), number(None)
    ('0.23', '12,346', '-1.5', '3e-07', '-')
    """
    if value is None or value != value:
        return NOTHING
    size = abs(value)
    if size and not _LEAST <= size < _MOST_DIGITS:
        return f"{value:.3g}"
    digits = max(0, 3 - math.floor(math.log10(size))) if size else 0
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: float) -> str:
    """A share in percent.

    >>> percent(0.123), percent(0.0004), percent(0)
    ('12 %', '0.04 %', '0 %')
    """
    return f"{100 * share:.0f} %" if share >= 0.005 or not share else f"{100 * share:.1g} %"


def colour_class(cluster: int) -> str:
    """The CSS class of a cluster's colour; colours come again, names of clusters do not."""
    return f"c{cluster % len(COLOURS)}"


def place(value: float) -> str:
    """A coordinate of a drawing."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text
