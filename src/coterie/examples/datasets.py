"""Small data sets by site, from coterie, from scikit-learn and simulated."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class SiteData:
    """Rows with their sites and, if known, their classes (otherwise ``truth`` has length 0)."""

    rows: npt.NDArray[np.float64]
    columns: tuple[str, ...]
    site: npt.NDArray[np.str_]
    truth: npt.NDArray[np.str_]

    def by_site(self) -> dict[str, npt.NDArray[np.float64]]:
        return {str(name): self.rows[self.site == name] for name in np.unique(self.site)}

    def complete(self) -> SiteData:
        whole = ~np.isnan(self.rows).any(axis=1)
        truth = self.truth[whole] if self.has_truth else self.truth
        return SiteData(self.rows[whole], self.columns, self.site[whole], truth)

    @property
    def has_truth(self) -> bool:
        return len(self.truth) > 0


def penguins() -> SiteData:
    """344 penguins of three islands (CC0): bill length and depth, flipper length, body mass; two rows are empty.

    Sites differ strongly: one island has all Gentoos, another all Chinstraps, Adelies live on all three.
    """
    text = files("coterie.examples").joinpath("data/penguins.csv").read_text()
    head, *lines = list(csv.reader(text.splitlines()))
    columns: Any = list(zip(*lines, strict=True))
    rows = np.array([[float(v) if v else np.nan for v in column] for column in columns[2:]]).T
    return SiteData(rows, tuple(head[2:]), np.array(columns[0]), np.array(columns[1]))


def digits() -> SiteData:
    """1,797 images of handwritten digits, 8 x 8 (from scikit-learn), scaled to 0 to 1, split among five sites."""
    from sklearn.datasets import load_digits

    rows, truth = load_digits(return_X_y=True)
    return shared_out(rows / 16, tuple(f"pixel {i}" for i in range(64)), truth)


def circles() -> SiteData:
    """1,000 points on two concentric circles, split among five sites."""
    from sklearn.datasets import make_circles

    rows, truth = make_circles(1000, factor=0.3, noise=0.05, random_state=0)
    return shared_out(rows, ("x", "y"), truth)


def shared_out(rows: npt.NDArray[np.float64], columns: tuple[str, ...], truth: npt.NDArray[Any]) -> SiteData:
    """Rows split at random, with a fixed seed, among five sites of nearly equal size."""
    order = np.random.default_rng(0).permutation(len(rows))
    sites = np.array([f"site-{i}" for i in range(5)])
    return SiteData(rows, columns, sites[order % 5], truth.astype(str))
