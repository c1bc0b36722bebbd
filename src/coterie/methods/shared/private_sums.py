"""Private questions about whole rows that several methods ask."""

from __future__ import annotations

import numpy as np

from coterie.arrays import Floats, Integers
from coterie.messages.contributions import (
    ByCell,
    Contribution,
    Gram,
    Noisy,
    OneEach,
    PrivateRequest,
    Whole,
    contributes,
    noisy,
)
from coterie.messages.schema import array
from coterie.messages.site_api import Memory
from coterie.methods.shared.whole_rows import FARTHEST, WIDEST, nearest_whole, shortened


class NoisyMoments(Noisy):
    """The number of rows, their sum, and the sum of their squared lengths."""

    rows: Integers = noisy(norm="1")
    sums: Integers = noisy("d", norm="reach")
    squares: Integers = noisy(norm="reach**2")


class SumRows(PrivateRequest[NoisyMoments], doing="summing rows with noise"):
    """Sum up your rows and their squared lengths; each counts as at most ``reach`` long."""

    d: int
    reach: int


@contributes(SumRows)
def row_moments(rows: Floats, memory: Memory, ask: SumRows) -> tuple[Contribution, ...]:
    within = shortened(rows, ask.reach)
    return Whole(np.ones((len(rows), 1))), Whole(within), Whole(np.vecdot(within, within)[:, None])


def by_cluster(rows: Floats, k: int) -> tuple[Integers, Floats]:
    """The cluster of each row, which is its first number where there are several, and its other numbers."""
    if k == 1:
        return np.zeros(len(rows), np.int64), rows
    return np.clip(rows[:, 0], 0, k - 1).astype(np.int64), rows[:, 1:]


class NoisyColumns(Noisy):
    """By cluster the number of rows; by column, too, the sum of values and of their squares."""

    rows: Integers = noisy("k", norm="1")
    sums: Integers = noisy("k", "d", norm="reach")
    squares: Integers = noisy("k", "d", norm="reach**2")


class SumWholeColumns(PrivateRequest[NoisyColumns], doing="summing columns with noise"):
    """Sum up by cluster your rows and the squares of their values; each row counts as at most ``reach`` long."""

    k: int
    d: int
    reach: int


@contributes(SumWholeColumns)
def column_moments(rows: Floats, memory: Memory, ask: SumWholeColumns) -> tuple[Contribution, ...]:
    clusters, values = by_cluster(rows, ask.k)
    within = shortened(values, ask.reach)
    return ByCell(clusters), ByCell(clusters, within), ByCell(clusters, within * within)


class NoisyMarks(Noisy):
    """By cluster the number of rows; by column, too, the sum of their marks."""

    rows: Integers = noisy("k", norm="1")
    sums: Integers = noisy("k", "d", norm="reach")


class SumMarks(PrivateRequest[NoisyMarks], doing="counting missing values with noise"):
    """Sum up by cluster your rows, which mark what is missing; each counts as at most ``reach`` long."""

    k: int
    d: int
    reach: int


@contributes(SumMarks)
def marked(rows: Floats, memory: Memory, ask: SumMarks) -> tuple[Contribution, ...]:
    clusters, values = by_cluster(rows, ask.k)
    return ByCell(clusters), ByCell(clusters, shortened(values, ask.reach))


class NoisyBins(Noisy):
    """By cluster and column how many values lie in which bin."""

    counts: Integers = noisy("k", "p", "bins", norm="p**0.5")


class CountInBins(PrivateRequest[NoisyBins], doing="counting values in bins with noise"):
    """Count by cluster the values of your rows: a whole number from 0 on is that of its bin, one far above a missing
    value."""

    k: int
    p: int
    bins: int


@contributes(CountInBins)
def bins_of_rows(rows: Floats, memory: Memory, ask: CountInBins) -> tuple[Contribution, ...]:
    clusters, values = by_cluster(rows, ask.k)
    places = np.clip(values, 0, ask.bins - 1)
    return (OneEach(np.where(values < 2 * ask.bins, places, -1).astype(np.int64), clusters),)


class NoisyGram(Noisy):
    """The triangle of the sum of all products of two columns, row by row."""

    packed: Integers = noisy("size", norm="reach**2", is_gram=True)


class SumProducts(PrivateRequest[NoisyGram], doing="summing products of columns with noise"):
    """Sum up the products of your rows with themselves, less ``center``, ``radius`` being ``reach`` whole numbers.

    Rows farther away are moved there."""

    size: int
    reach: int
    radius: float
    center: Floats = array("d")


@contributes(SumProducts)
def products(rows: Floats, memory: Memory, ask: SumProducts) -> tuple[Contribution, ...]:
    away = np.rint((rows - np.rint(ask.center)) * (ask.reach / ask.radius))
    return (Gram(shortened(np.clip(away, -FARTHEST, FARTHEST), ask.reach)),)


class NoisyCells(Noisy):
    """Per center the number of rows nearest to it, and the sum of their differences from it."""

    counts: Integers = noisy("k", norm="1")
    sums: Integers = noisy("k", "s", norm="reach")


class SumByCell(PrivateRequest[NoisyCells], doing="summing rows by their nearest centers with noise"):
    """Put every row to its nearest center; what is farther than ``reach`` counts as that far away."""

    reach: int
    centers: Floats = array("k", "s")


def nearest_of_rows(rows: Floats, centers: Floats) -> tuple[Integers, Floats]:
    """By row the nearest center, and how far the row is from it."""
    whole = np.clip(np.rint(centers), WIDEST - FARTHEST, FARTHEST - WIDEST)
    cells = nearest_whole(rows, whole)
    return cells, rows - whole[cells]


@contributes(SumByCell)
def cell_differences(rows: Floats, memory: Memory, ask: SumByCell) -> tuple[Contribution, ...]:
    cells, away = nearest_of_rows(rows, ask.centers)
    return ByCell(cells), ByCell(cells, shortened(away, ask.reach))


class NoisyCost(Noisy):
    """The sum of squared distances."""

    squares: Integers = noisy(norm="reach**2")


class MeasureCost(PrivateRequest[NoisyCost], doing="measuring the cost with noise"):
    """Sum up the squared distances of your rows from the nearest centers; none counts as farther than ``reach``."""

    reach: int
    centers: Floats = array("k", "s")


@contributes(MeasureCost)
def squared_distances(rows: Floats, memory: Memory, ask: MeasureCost) -> tuple[Contribution, ...]:
    _, away = nearest_of_rows(rows, ask.centers)
    return (Whole(np.minimum(np.vecdot(away, away), ask.reach**2)[:, None]),)


PRIVATE = (SumRows, SumWholeColumns, SumMarks, CountInBins, SumProducts, SumByCell, MeasureCost)
