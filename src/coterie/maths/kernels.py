"""Kernels and their exact values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from coterie.arrays import Floats, Rows
from coterie.errors import InputError
from coterie.maths import exact

Name = Literal["rbf", "laplacian", "polynomial"]

KERNELS: tuple[Name, ...] = ("rbf", "laplacian", "polynomial")


@dataclass(frozen=True)
class Kernel:
    """``rbf`` exp(-gamma |x-y|^2), ``laplacian`` exp(-gamma |x-y|_1), ``polynomial`` (gamma <x,y> + coef0)^degree.

    Where a paper has sigma, gamma = 1 / (2 sigma^2).
    """

    name: str
    gamma: float
    degree: int = 3
    coef0: float = 1.0

    def __post_init__(self) -> None:
        if self.name not in KERNELS:
            raise InputError(f"kernel={self.name!r} is unknown; use {', '.join(KERNELS)}.")
        if not (np.isfinite(self.gamma) and self.gamma > 0):
            raise InputError(f"gamma={self.gamma} must be finite and above 0.")
        if self.degree < 1 or not self.coef0 >= 0:
            raise InputError(f"degree={self.degree} must be at least 1 and coef0={self.coef0} at least 0.")

    def between(self, rows: Rows, others: Rows) -> Floats:
        """The matrix of kernel values between two sets of rows."""
        from sklearn.metrics.pairwise import pairwise_kernels

        settings = {"gamma": self.gamma, "degree": self.degree, "coef0": self.coef0}
        return np.asarray(pairwise_kernels(rows, others, self.name, filter_params=True, **settings), np.float64)

    def exact(self, rows: Rows, others: Rows) -> Floats:
        """The same with the same bits on every machine."""
        if self.name == "laplacian":
            apart = np.array([np.abs(row - others).sum(axis=1) for row in rows.astype(np.float64)])
            return exact.exponential(-self.gamma * apart.reshape(len(rows), len(others)))
        if self.name == "rbf":
            return exact.exponential(-self.gamma * exact.squared_distances(rows, others))
        base = self.gamma * exact.product(rows, others.T) + self.coef0
        powers = base
        for _ in range(self.degree - 1):
            powers = powers * base
        return powers

    def quick(self, rows: Rows, points: Floats, variance: Rows | None = None) -> Rows:
        """The same in the rows' precision, for an rbf kernel by one matrix product, shifted to the origin if needed.

        ``variance`` is that, per column, of the rows behind each row of a group. Values are then those of the rbf
        kernel averaged over a Gaussian of that variance, (1 + 2 gamma v)^(-d/2) exp(-gamma |x - y|^2 / (1 + 2 gamma
        v)). Other kernels ignore it.
        """
        if self.name != "rbf":
            return self.between(rows, points).astype(rows.dtype, copy=False)
        offset = points.mean(axis=0)
        if np.abs(offset).max(initial=0.0) > 8 * np.abs(points - offset).max(initial=0.0):
            rows, points = rows - offset.astype(rows.dtype), points - offset
        near = points.astype(rows.dtype)
        values: Rows = rows @ (-2 * near.T)
        values += np.vecdot(near, near)
        values += np.vecdot(rows, rows)[:, None]
        np.maximum(values, 0, out=values)
        if variance is None:
            values *= rows.dtype.type(-self.gamma)
            return np.exp(values, out=values)
        wider = (1 + 2 * self.gamma * variance[:, None]).astype(rows.dtype)
        values *= rows.dtype.type(-self.gamma) / wider
        values -= np.log(wider) * rows.dtype.type(rows.shape[1] / 2)
        return np.exp(values, out=values)

    def diagonal(self, rows: Rows) -> Floats:
        if self.name != "polynomial":
            return np.ones(len(rows))
        squared: Floats = np.vecdot(rows, rows).astype(np.float64)
        return (self.gamma * squared + self.coef0) ** self.degree


def average_distance_gamma(rows: float, sums: Floats, squares: float) -> float:
    """gamma = N^2 / (2 sum_ij |x_i - x_j|^2), from N, the sum of all rows and the sum of their squared lengths.

    The sum over pairs is 2 N sum |x|^2 - 2 |sum x|^2.
    """
    apart = 2 * rows * squares - 2 * float((sums * sums).sum())
    if not apart > 1e-12 * max(rows * squares, 1e-300):
        raise InputError("all rows are equal, so gamma cannot be computed from their distances; set gamma.")
    return rows**2 / (2 * apart)
