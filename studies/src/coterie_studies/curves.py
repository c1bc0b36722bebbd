"""Figures of studies: spots with intervals, lines with bands, paths of centers over rounds, ratios by site."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter, StrMethodFormatter

from coterie.report.markup import COLOURS

GREY = "#8a8a8a"


@dataclass(frozen=True)
class Spot:
    """What one setting gave: every seed's value, their mean and its interval (NaN: none)."""

    label: str
    values: Sequence[float]
    mean: float
    low: float
    high: float
    kind: int = 0
    """Spots of one kind share a colour."""


@dataclass(frozen=True)
class Panel:
    """Spots side by side, and a level to compare them with."""

    title: str
    x_name: str
    y_name: str
    spots: Sequence[Spot]
    level: float | None = None
    log: bool = False
    """Whether the y axis is logarithmic; panels of a row are all of one kind."""


@contextmanager
def _figure(path: Path, width: float, height: float, grid: str = "") -> Iterator[Figure]:
    """A figure in the house style, with a ``grid`` across ``x``, ``y`` or ``both``, saved at the end."""
    style: dict[Any, Any] = {
        "axes.axisbelow": True,
        "axes.grid": bool(grid),
        "axes.grid.axis": grid or "both",
        "grid.color": "#ececec",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 10,
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained", dpi=130)
        yield figure
        figure.savefig(path)


def draw_spots(path: Path, grid: Sequence[Sequence[Panel]], kinds: Sequence[str], level_name: str = "") -> None:
    """A grid of panels; a row of them shares its y axis. ``kinds`` names the colours."""
    across = len(grid[0])
    width = max(4.6, 1.2 + across * max(3.2, 0.52 * max(len(p.spots) for row in grid for p in row)))
    with _figure(path, width, 2.5 * len(grid) + 0.6, "y") as figure:
        axes = figure.subplots(len(grid), across, sharey="row", squeeze=False)
        for i, row in enumerate(grid):
            for j, panel in enumerate(row):
                _draw_panel(axes[i][j], panel)
                axes[i][j].set_title(panel.title if i == 0 else "", loc="left")
                axes[i][j].set_ylabel(panel.y_name if j == 0 else "")
                axes[i][j].set_xlabel(panel.x_name if i == len(grid) - 1 else "")
            axes[i][0].set_yscale("log" if row[0].log else "linear")
            values = (v for panel in row for spot in panel.spots for v in spot.values)
            axes[i][0].set_ylim(*_limits(values, (panel.level for panel in row), is_log=row[0].log))
        marks = [_mark(name, COLOURS[i], "o") for i, name in enumerate(kinds)]
        if level_name:
            marks.append(Line2D([], [], color=GREY, linestyle="--", linewidth=1.2, label=level_name))
        figure.legend(handles=marks, loc="outside lower center", ncols=2 if width < 7 else 4, frameon=False)


def _limits(values: Iterable[float], levels: Iterable[float | None], *, is_log: bool) -> tuple[float, float]:
    """Room beyond the values and the levels to compare them with; an interval of few seeds may run out of it."""
    values = [*(v for v in values if np.isfinite(v)), *(level for level in levels if level is not None)]
    if is_log:
        room = (max(values) / min(values)) ** 0.12
        return min(values) / room, max(values) * room
    room = 0.12 * ((max(values) - min(values)) or 1.0)
    return min(values) - room, max(values) + room


def _mark(name: str, colour: str, marker: str, size: float = 6) -> Line2D:
    return Line2D([], [], color=colour, marker=marker, markersize=size, linestyle="none", label=name)


def _draw_panel(axis: Any, panel: Panel) -> None:
    if panel.level is not None:
        axis.axhline(panel.level, color=GREY, linestyle="--", linewidth=1.2, zorder=0)
    for x, spot in enumerate(panel.spots):
        colour, n = COLOURS[spot.kind], len(spot.values)
        beside = x + 0.22 + np.linspace(-0.06, 0.06, n) * (n > 1)
        axis.scatter(beside, spot.values, s=9, color=colour, alpha=0.35, linewidths=0)
        if np.isfinite([spot.low, spot.high]).all():
            axis.vlines(x, spot.low, spot.high, color=colour, linewidth=1.6)
        axis.scatter([x], [spot.mean], s=34, color=colour, zorder=3)
    axis.set_xticks(range(len(panel.spots)), [spot.label for spot in panel.spots])
    axis.set_xlim(-0.5, len(panel.spots) - 0.3)


@dataclass(frozen=True)
class Line:
    """One curve, by name; where ``low`` and ``high`` are given, with bars at its points or, without marks, a band."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    kind: int = 0
    """Its colour; -1 is grey."""
    style: str = "-"
    mark: str = ""


@dataclass(frozen=True)
class Chart:
    """Lines in one frame, and a level to compare them with."""

    title: str
    x_name: str
    y_name: str
    lines: Sequence[Line]
    log: str = ""
    """The axes that are logarithmic: any of ``x`` and ``y``."""
    level: float | None = None
    from_zero: bool = False


def draw_lines(path: Path, grid: Sequence[Sequence[Chart]], level_name: str = "") -> None:
    """A grid of charts, each with axes of its own; one legend names every line once."""
    across = len(grid[0])
    with _figure(path, 1.0 + 3.6 * across, 2.6 * len(grid) + 0.8, "both") as figure:
        axes = figure.subplots(len(grid), across, squeeze=False)
        named: dict[str, Line2D] = {}
        for i, row in enumerate(grid):
            for j, chart in enumerate(row):
                _draw_chart(axes[i][j], chart)
                axes[i][j].set_title(chart.title, loc="left")
                axes[i][j].set_ylabel(chart.y_name if j == 0 or chart.y_name != row[j - 1].y_name else "")
                is_lowest = i == len(grid) - 1 or j >= len(grid[i + 1])
                axes[i][j].set_xlabel(chart.x_name if is_lowest else "")
                named |= {line.name: Line2D([], [], label=line.name, **_look(line)) for line in chart.lines}
            for axis in axes[i][len(row) :]:
                axis.set_visible(False)
        marks = list(named.values())
        if level_name:
            marks.append(Line2D([], [], color=GREY, linestyle="--", linewidth=1.2, label=level_name))
        columns = max(1, min(len(marks), int((1.0 + 3.6 * across) // 2.4)))
        figure.legend(handles=marks, loc="outside lower center", ncols=columns, frameon=False)


def _look(line: Line) -> dict[str, Any]:
    colour = GREY if line.kind < 0 else COLOURS[line.kind]
    return {"color": colour, "linestyle": line.style, "linewidth": 1.5, "marker": line.mark or None, "markersize": 5}


def _draw_chart(axis: Any, chart: Chart) -> None:
    if chart.level is not None:
        axis.axhline(chart.level, color=GREY, linestyle="--", linewidth=1.2, zorder=0)
    if "x" in chart.log:
        axis.set_xscale("log")
        x = [value for line in chart.lines for value in line.x]
        is_wide = bool(x) and max(x) > 100 * min(x)
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 3) if is_wide else (1, 2, 5)))
        is_small = bool(x) and min(x) < 1
        axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}") if is_small else EngFormatter(sep=""))
        axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_yscale("log" if "y" in chart.log else "linear")
    for line in chart.lines:
        axis.plot(line.x, line.y, **_look(line))
        if len(line.low) and np.isfinite([*line.low, *line.high]).all():
            if line.mark:
                axis.vlines(line.x, line.low, line.high, color=_look(line)["color"], linewidth=1.0, alpha=0.6)
            else:
                axis.fill_between(line.x, line.low, line.high, color=_look(line)["color"], alpha=0.15, linewidth=0)
    low, high = _limits((v for line in chart.lines for v in line.y), [chart.level], is_log="y" in chart.log)
    axis.set_ylim(0 if chart.from_zero else low, high)


def draw_paths(path: Path, panels: Mapping[str, npt.NDArray[np.float64]], levels: Sequence[float]) -> None:
    """Where each center is after every round, a line a center; the first row is the start.

    ``levels`` are where the centers of the true groups lie.
    """
    with _figure(path, 1.0 + 4.2 * len(panels), 3.6) as figure:
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axis, (title, places) in zip(axes, panels.items(), strict=True):
            for level in levels:
                axis.axhline(level, color=GREY, linestyle="--", linewidth=0.8, zorder=0)
            for c in range(places.shape[1]):
                axis.plot(places[:, c], color=COLOURS[c % len(COLOURS)], linewidth=1.5, label=f"center {c + 1}")
                axis.scatter([0], places[:1, c], color=COLOURS[c % len(COLOURS)], s=20, zorder=3)
            axis.set_title(title, loc="left")
            axis.xaxis.get_major_locator().set_params(integer=True)
            axis.set_xlabel("round")
            axis.set_xlim(left=-0.02 * len(places), right=len(places) - 1)
        axes[0].set_ylabel("place of the centers")
        handles = [*axes[0].get_legend_handles_labels()[0]]
        handles.append(Line2D([], [], color=GREY, linestyle="--", linewidth=0.8, label="means of the Gaussians"))
        figure.legend(handles=handles, loc="outside lower center", ncols=3 if len(panels) == 1 else 6, frameon=False)


@dataclass(frozen=True)
class Ratios:
    """One data set: what each way costs as a ratio to the pooled optimum, and what each site alone costs."""

    name: str
    ways: Mapping[str, float]
    alone: Sequence[float]


def draw_ratios(path: Path, rows: Sequence[Ratios]) -> None:
    """A line a data set on a logarithmic axis: 1 is the pooled optimum, a faint dot each site alone."""
    names = list(rows[0].ways)
    with _figure(path, 7.9, 1.3 + 0.75 * len(rows), "x") as figure:
        axis = figure.subplots()
        axis.axvline(1, color=GREY, linestyle="--", linewidth=1.2, zorder=0)
        for y, row in enumerate(reversed(rows)):
            jitter = np.random.default_rng(0).uniform(-0.13, 0.13, len(row.alone))
            axis.scatter(row.alone, y + jitter, s=20, color=COLOURS[1], alpha=0.5, linewidths=0)
            for i, name in enumerate(names):
                axis.scatter([row.ways[name]], [y + 0.3 * (i - (len(names) - 1) / 2)], s=48, marker="Do"[i % 2],
                             color=COLOURS[(0, 2)[i % 2]], edgecolors="white", linewidths=0.6, zorder=3)  # fmt: skip
        axis.set_yticks(range(len(rows)), [row.name for row in reversed(rows)])
        axis.set_ylim(-0.6, len(rows) - 0.4)
        axis.set_xscale("log")
        ticks = _ticks(max(max(row.alone) for row in rows))
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.minorticks_off()
        axis.set_xlabel("k-means cost over all sites' rows, as a ratio to the pooled optimum (logarithmic)")
        marks = [_mark(name, COLOURS[(0, 2)[i % 2]], "Do"[i % 2]) for i, name in enumerate(names)]
        marks.append(_mark("a site alone", COLOURS[1], "o", 4))
        marks.append(Line2D([], [], color=GREY, linestyle="--", linewidth=1.2, label="pooled, best of 10"))
        figure.legend(handles=marks, loc="outside upper center", ncols=len(marks), frameon=False)


def _ticks(largest: float) -> list[float]:
    """Round numbers from 1 to beyond the largest."""
    steps = [1, 1.2, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 200, 500, 1000]
    return [step for step in steps if step <= largest * 1.05] or [1]
