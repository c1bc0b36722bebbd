"""What is done to the values of a table, alike to the last bit on every machine: rows are known by their values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coterie.arrays import Floats
from coterie.maths import exact
from coterie.messages.site_api import Rows


def transformed(values: Floats, transform: str) -> Floats:
    """The values by a transform, the same to the last bit on every machine; NaN for one that has none."""
    if transform == "sqrt":
        return np.sqrt(np.where(values >= 0, values, np.nan))
    if transform == "log":
        return exact.logarithm(values)
    more = 1.0 + values
    small = more == 1.0  # log1p keeps the digits of small values
    ratio = np.where(small, 1.0, values / np.where(small, 1.0, more - 1.0))
    with np.errstate(invalid="ignore"):
        return np.where(small | np.isposinf(values), values, exact.logarithm(more) * ratio)


def divide(rows: Rows, columns: Sequence[int], norm: str) -> None:
    """Divide each row by the mean or norm of its values that are present; by zero: they count as missing.

    Columns are added one after the other, so that every machine has the same last bits.
    """
    total, n_present = np.zeros(len(rows)), np.zeros(len(rows))
    for column in columns:
        values = rows[:, column].astype(np.float64)
        there = ~np.isnan(values)
        n_present += there
        value = np.where(there, values, 0.0)
        total += value if norm == "mean" else np.abs(value) if norm == "l1" else value * value
    divisor = total / np.maximum(n_present, 1) if norm == "mean" else np.sqrt(total) if norm == "l2" else total
    divisor = np.where(divisor == 0, np.nan, divisor)
    for column in columns:
        rows[:, column] = rows[:, column] / divisor
