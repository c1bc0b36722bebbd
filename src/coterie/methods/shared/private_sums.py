"""Private questions about whole rows that several methods ask."""

from __future__ import annotations

import math

import numpy as np

from coterie.arrays import Floats, Integers
from coterie.messages.contributions import (
    EXACT,
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
from coterie.methods.shared.whole_rows import WIDEST, nearest_whole, shortened

FARTHEST = 4 * WIDEST
"""Centers lie no farther out: products with rows are then exact, and no row decides where another one belongs."""


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
    far = math.isqrt(EXACT // max(1, rows.shape[1]))  # up to it squares add up exactly, whoever asks
    away = np.clip(np.rint((rows - np.rint(ask.center)) * (ask.reach / ask.radius)), -far, far)
    return (Gram(shortened(away, ask.reach)),)


class NoisyCells(Noisy):
    """Per center the number of rows nearest to it, and the sum of their differences from it."""

    counts: Integers = noisy("k", norm="1")
    sums: Integers = noisy("k", "s", norm="reach")


class SumByCell(PrivateRequest[NoisyCells], doing="summing rows by their nearest centers with noise"):
    """Put every row to its nearest center; what is farther than ``reach`` counts as that far away."""

    reach: int
    centers: Floats = array("k", "s")


@contributes(SumByCell)
def cell_differences(rows: Floats, memory: Memory, ask: SumByCell) -> tuple[Contribution, ...]:
    centers = np.clip(np.rint(ask.centers), -FARTHEST, FARTHEST)
    cells = nearest_whole(rows, centers)
    return ByCell(cells), ByCell(cells, shortened(rows - centers[cells], ask.reach))


PRIVATE = (SumRows, SumWholeColumns, SumProducts, SumByCell)
