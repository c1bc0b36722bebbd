"""Private questions about whole rows that several methods ask."""

from __future__ import annotations

import numpy as np

from coterie.arrays import Floats, Integers
from coterie.messages.contributions import (
    ByCell,
    Contribution,
    Gram,
    Noisy,
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


class NoisyColumns(Noisy):
    """By column the sum of values and of their squares."""

    rows: Integers = noisy(norm="1")
    sums: Integers = noisy("d", norm="reach")
    squares: Integers = noisy("d", norm="reach**2")


class SumWholeColumns(PrivateRequest[NoisyColumns], doing="summing columns with noise"):
    """Sum up your rows and the squares of their values; each row counts as at most ``reach`` long."""

    d: int
    reach: int


@contributes(SumWholeColumns)
def column_moments(rows: Floats, memory: Memory, ask: SumWholeColumns) -> tuple[Contribution, ...]:
    within = shortened(rows, ask.reach)
    return Whole(np.ones((len(rows), 1))), Whole(within), Whole(within * within)


class NoisyMarks(Noisy):
    """The number of rows and the sum of their marks by column."""

    rows: Integers = noisy(norm="1")
    sums: Integers = noisy("d", norm="reach")


class SumMarks(PrivateRequest[NoisyMarks], doing="counting missing values with noise"):
    """Sum up your rows, which mark what is missing; each counts as at most ``reach`` long."""

    d: int
    reach: int


@contributes(SumMarks)
def marked(rows: Floats, memory: Memory, ask: SumMarks) -> tuple[Contribution, ...]:
    return Whole(np.ones((len(rows), 1))), Whole(shortened(rows, ask.reach))


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


PRIVATE = (SumRows, SumWholeColumns, SumMarks, SumProducts, SumByCell, MeasureCost)
