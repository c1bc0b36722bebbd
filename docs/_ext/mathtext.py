"""Formulas as drawings in the page itself, by matplotlib: no script and no font is fetched from anywhere."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from docutils import nodes
from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import MathTextParser
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from sphinx.application import Sphinx

SIZE = 16
"""Of the letters, in pixels: those of the text around them."""
FONT = FontProperties(family="DejaVu Sans", size=SIZE)
_LETTER = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C"}


def drawing(formula: str) -> str:
    """A formula as an image that has the colour of the text, and the formula as its name."""
    text = f"${_plain(formula)}$"
    width, height, depth, *_ = MathTextParser("path").parse(text, dpi=72, prop=FONT)
    parts = []
    for points, code in TextPath((0, 0), text, prop=FONT).iter_segments():
        numbers = " ".join(f"{value if i % 2 == 0 else -value:.4g}" for i, value in enumerate(points))
        parts.append("Z" if code == Path.CLOSEPOLY else _LETTER[code] + numbers)
    box = f"0 {-height:.4g} {width + 1:.4g} {height + depth + 1:.4g}"
    size = f'width="{width + 1:.4g}" height="{height + depth + 1:.4g}" style="vertical-align:{-depth - 1:.4g}px"'
    name = escape(formula, quote=True)
    return (
        f'<svg class="math" viewBox="{box}" {size} role="img" aria-label="{name}"><path d="{"".join(parts)}"/></svg>'
    )


def _plain(formula: str) -> str:
    """A formula in what matplotlib knows of TeX."""
    for ours, theirs in {r"\lVert": r"\Vert", r"\rVert": r"\Vert", r"\le ": r"\leq ", r"\ge ": r"\geq "}.items():
        formula = formula.replace(ours, theirs)
    formula = re.sub(r"\\sqrt *(\\?\w+)", r"\\sqrt{\1}", re.sub(r"\\big(?=[()\[\]])", "", formula))
    return " ".join(formula.split())


def visit_inline(self: Any, node: nodes.Element) -> None:
    self.body.append(drawing(node.astext()))
    raise nodes.SkipNode


def visit_block(self: Any, node: nodes.Element) -> None:
    lines = "".join(f"<p>{drawing(line)}</p>" for line in node.astext().split(r"\\"))
    self.body.append(f'<div class="math">{lines}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the drawings as a renderer of formulas."""
    app.add_html_math_renderer("mathtext", (visit_inline, None), (visit_block, None))
    return {"version": "1", "parallel_read_safe": True}
