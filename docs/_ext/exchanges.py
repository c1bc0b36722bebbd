"""What travels in a run of each method, drawn: what the server sees of all sites together, and what of each."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Literal

Kind = Literal["ask", "sum", "each", "own"]
"""Sent to the sites; seen as one sum of all sites; seen of every site; computed at a site and kept there."""


@dataclass(frozen=True)
class Step:
    """One step of a run."""

    kind: Kind
    what: str
    again: bool = False
    """Whether it is repeated, round by round."""


START = (
    Step("sum", "number, sum and squares of the columns"),
    Step("ask", "cells, split where the rows spread most; places to move"),
    Step("sum", "rows and sums of each cell and place", again=True),
)
LLOYD = (Step("ask", "k centers"), Step("sum", "sum and number of the rows nearest to each center", again=True))
CLOSE = Step("sum", "cost and number of rows of the final centers")
LABELS = Step("own", "labels of the site's rows")
STEPS: dict[str, tuple[Step, ...]] = {
    "federated-kmeans": (*START, *LLOYD, CLOSE, LABELS),
    "lloyd": (*START, *LLOYD, CLOSE, LABELS),
    "one-shot": (
        Step("own", "k-means of the site's rows"),
        Step("each", "k centers and their numbers of rows"),
        CLOSE,
    ),
    "landmarks": (
        Step("own", "a few coarse centers of the site's rows"),
        Step("each", "these centers, a few bits a coordinate (where policies allow averages)"),
        Step("sum", "or instead: sums of cells, from which landmarks are made"),
        Step("ask", "landmarks, and candidate clusters of them"),
        Step("sum", "cost of each candidate; means of kernel features by cluster", again=True),
        LABELS,
    ),
    "dspgd": (
        Step("ask", "a seed for random features, eigenpairs so far"),
        Step("sum", "products of features with a vector (Lanczos), or all products at once (Gram)", again=True),
        Step("own", "the rows' components"),
        *LLOYD,
        LABELS,
    ),
    "edge-kmeans": (
        Step("own", "k-means of the site's rows"),
        Step("each", "k centers and their numbers of rows (where policies allow averages)"),
        Step("sum", "or instead: rows and sums of cells"),
        *LLOYD,
        CLOSE,
        LABELS,
    ),
    "federated-pca": (
        Step("sum", "number and sum of rows"),
        Step("each", "the site's own leading axes (where policies allow averages)"),
        Step("sum", "or instead: products of all pairs of columns"),
    ),
    "vertical-kernel-pca": (
        Step("own", "the kernel matrix of the site's own columns"),
        Step("each", "tags of the rows' keys, which the server cannot read"),
        Step("each", "leading eigenpairs: one number a row and component"),
        Step("ask", "nothing more: the server combines the eigenpairs"),
    ),
    "choose-k": (
        *START,
        Step("sum", "two halves of the rows, by the nearest of these points"),
        Step("ask", "the best clusters for every k"),
        Step("sum", "sizes, cost, silhouettes and agreement of the halves, for every k"),
    ),
    "describe": (
        Step("sum", "number, sum and squares of each column's values; how many are missing"),
        Step("ask", "bins around each mean"),
        Step("sum", "number of values in each bin, of rows in each category"),
    ),
}
_LINES = {
    "ask": "M120 18 H70 M70 18 L14 6 M70 18 H14 M70 18 L14 30",
    "sum": "M14 6 L66 18 M14 18 H66 M14 30 L66 18 M74 18 H120",
    "each": "M14 6 L120 12 M14 18 H120 M14 30 L120 24",
    "own": "M14 6 H36 M14 18 H36 M14 30 H36 M42 1 V35",
}
_MEANING = {
    "ask": "the server asks all sites",
    "sum": "the server sees the sum over all sites",
    "each": "the server sees it of every site",
    "own": "stays at the site",
}


def drawing(method: str) -> str:
    """The steps of a method as HTML: a drawing of who sees what, and what it is."""
    steps = "".join(_item(step) for step in STEPS[method])
    used = [kind for kind in _LINES if any(step.kind == kind for step in STEPS[method])]
    legend = "".join(f'<li class="{kind}">{_icon(kind)}<span>{_MEANING[kind]}</span></li>' for kind in used)
    return f'<ol class="exchange">{steps}</ol><ul class="exchange legend">{legend}</ul>'


def _item(step: Step) -> str:
    again = ' <small class="again">every round</small>' if step.again else ""
    return f'<li class="{step.kind}">{_icon(step.kind)}<span>{escape(step.what)}{again}</span></li>'


def _icon(kind: Kind) -> str:
    dots = "".join(f'<circle cx="10" cy="{y}" r="4"/>' for y in (6, 18, 30))
    server = "" if kind == "own" else '<rect x="120" y="8" width="18" height="20" rx="3"/>'
    both = '<circle class="both" cx="70" cy="18" r="6"/>' if kind == "sum" else ""
    return (
        f'<svg viewBox="0 0 144 36" width="144" height="36" role="img" aria-label="{_MEANING[kind]}">'
        f'<path d="{_LINES[kind]}"/>{dots}{server}{both}</svg>'
    )
