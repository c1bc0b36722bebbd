"""Pictures of clusters by site."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442", "#000000")
"""Distinct for every kind of colour vision (Okabe & Ito)."""


def draw_clusters_by_site(
    path: Path,
    rows: npt.NDArray[np.float64],
    sites: npt.NDArray[Any],
    panels: Mapping[str, Mapping[str, npt.NDArray[Any]]],
    centers: npt.NDArray[np.float64],
    axes_names: Sequence[str],
    held: Mapping[str, int] | None = None,
) -> None:
    """A panel for every site and clustering, over two columns of ``rows``.

    ``panels`` maps the name of a clustering to each site's labels; ``centers`` are those of the first clustering.
    ``held`` is how many rows each site holds, where a sample of them is drawn.
    """
    names = list(next(iter(panels.values())))
    across = min(len(names), 4)
    tiers = [(clustering, names[i : i + across]) for clustering in panels for i in range(0, len(names), across)]
    with matplotlib.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(3.2 * across, 2.9 * len(tiers) + 0.3), layout="constrained", dpi=130)
        grid = figure.subplots(len(tiers), across, sharex=True, sharey=True, squeeze=False)
        for i, (clustering, shown) in enumerate(tiers):
            for j, panel in enumerate(grid[i]):
                if j >= len(shown):
                    panel.set_axis_off()
                    continue
                _draw_site(panel, rows, rows[sites == shown[j]], panels[clustering][shown[j]])
                panel.set_title(f"{shown[j]} ({_drawn(int((sites == shown[j]).sum()), (held or {}).get(shown[j]))})")
                if clustering == next(iter(panels)):
                    panel.scatter(centers[:, 0], centers[:, 1], s=90, marker="X", c="black", edgecolors="white")
                if j == 0:
                    panel.set_ylabel(f"{clustering}\n{axes_names[1]}")
                if i == len(tiers) - 1:
                    panel.set_xlabel(axes_names[0])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a name in a script the font lacks
            figure.savefig(path)


def _drawn(shown: int, held: int | None) -> str:
    """How many rows are drawn: ``1,500 of 20,000 rows`` where these are not all."""
    return f"{shown:,} rows" if held in (None, shown) else f"{shown:,} of {held:,} rows"


def _draw_site(panel: Any, rows: npt.NDArray[Any], own: npt.NDArray[Any], labels: npt.NDArray[Any]) -> None:
    colours = [COLOURS[int(label) % len(COLOURS)] for label in labels]
    panel.scatter(rows[:, 0], rows[:, 1], s=5, c="#e4e4e4", linewidths=0)
    panel.scatter(own[:, 0], own[:, 1], s=14, c=colours, linewidths=0.3, edgecolors="white")
