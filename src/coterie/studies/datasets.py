"""Data that ships with coterie, by site."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["SiteData", "penguins"]


@dataclass(frozen=True)
class SiteData:
    """Rows with the site each belongs to and, for judging a clustering, its class."""

    rows: npt.NDArray[np.float64]
    columns: tuple[str, ...]
    site: npt.NDArray[np.str_]
    truth: npt.NDArray[np.str_]

    def by_site(self) -> dict[str, npt.NDArray[np.float64]]:
        """Each site's rows."""
        return {str(name): self.rows[self.site == name] for name in np.unique(self.site)}

    def complete(self) -> SiteData:
        """Without the rows that miss a value."""
        whole = ~np.isnan(self.rows).any(axis=1)
        return SiteData(self.rows[whole], self.columns, self.site[whole], self.truth[whole])


def penguins() -> SiteData:
    """344 penguins of three islands (CC0): bill length and depth, flipper length, body mass; two miss all four.

    Sites differ strongly: one island has all Gentoos, another all Chinstraps, Adelies live on all three.
    """
    text = files("coterie.studies").joinpath("data/penguins.csv").read_text()
    head, *lines = list(csv.reader(text.splitlines()))
    columns: Any = list(zip(*lines, strict=True))
    rows = np.array([[float(v) if v else np.nan for v in column] for column in columns[2:]]).T
    return SiteData(rows, tuple(head[2:]), np.array(columns[0]), np.array(columns[1]))
