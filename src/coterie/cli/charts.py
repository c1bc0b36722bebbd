"""A line chart in text: every Braille character is a grid of two by four dots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

COLUMNS = 60
Point: TypeAlias = tuple[int, float]
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Braille's dots by row and column of a character."""
_EMPTY = 0x2800


def chart(
    points: Sequence[Point],
    width: int,
    height: int,
    *,
    label: Callable[[float], str] = "{:.4g}".format,
    plain: bool = False,
) -> list[str]:
    """Values over rounds as lines of text, at most ``width`` by ``height`` characters, and an axis below.

    ``plain`` draws in ASCII.
    """
    low, high = min(value for _, value in points), max(value for _, value in points)
    names = {0: label(high), height - 1: label(low)} if high > low else {height - 1: label(low)}
    margin = max(map(len, names.values()))
    columns = max(8, min(COLUMNS, width - margin - 2))
    cells = [[0] * columns for _ in range(height)]  # the dots of every character
    for x, y in _dots(_placed(points, 2 * columns - 1, 4 * height - 1)):
        cells[y // 4][x // 2] |= _BITS[y % 4][x % 2]
    bar, tick, corner, line = "|+`-" if plain else "│┤└─"
    rows = []
    for i, row in enumerate(cells):
        drawn = "".join(" " if not dots else "*" if plain else chr(_EMPTY + dots) for dots in row)
        rows.append(f"{names.get(i, ''):>{margin}} {tick if i in names else bar}{drawn}".rstrip())
    first, last = f"round {points[0][0]}", f"{points[-1][0]}" if len(points) > 1 else ""
    axis = f"{first}{last:>{columns - len(first)}}"
    return [*rows, f"{'':{margin}} {corner}{line * columns}", f"{'':{margin}}  {axis}"]


def _placed(points: Sequence[Point], right: int, bottom: int) -> list[tuple[int, int]]:
    """Points on a grid of dots, the highest value in row 0."""
    low, high = min(value for _, value in points), max(value for _, value in points)
    start, stop = points[0][0], points[-1][0]
    across, up = right / max(1, stop - start), bottom / (high - low) if high > low else 0.0
    return [(round((x - start) * across), bottom - round((value - low) * up)) for x, value in points]


def _dots(placed: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The points and straight lines between them."""
    yield placed[0]
    for (x0, y0), (x1, y1) in pairwise(placed):
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for i in range(1, steps + 1):
            yield x0 + round((x1 - x0) * i / steps), y0 + round((y1 - y0) * i / steps)
