"""Random features: rows whose inner products are unbiased estimates of kernel values.

A map of D features gives a matrix A with E[A A' / D] = K. It is drawn from (seed, step) at every site, so it is never
sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb

import numpy as np
import numpy.typing as npt

from coterie.arrays import Integers, Rows
from coterie.errors import InputError
from coterie.maths.kernels import Kernel

FeatureMap = Callable[[Rows], Rows]
"""Maps rows to rows of features, in the precision of the map."""


@dataclass(frozen=True)
class FourierMap:
    """sqrt(2) cos(x'w + b) with a random phase b (Rahimi & Recht 2008), or cos and sin of x'w in pairs.

    Pairs have |a(x)|^2 = D exactly and a smaller variance; phases are the paper's form.
    """

    frequencies: Rows
    phases: Rows | None

    def __call__(self, rows: Rows) -> Rows:
        angles = rows.astype(self.frequencies.dtype, copy=False) @ self.frequencies
        root = self.frequencies.dtype.type(np.sqrt(2.0))
        if self.phases is None:
            return root * np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
        angles += self.phases
        np.cos(angles, out=angles)
        angles *= root
        return angles


@dataclass(frozen=True)
class MaclaurinMap:
    """Products of signs for dot-product kernels (Kar & Karnick 2012): sqrt(a_n / p_n) prod_{j<=n} <w_j, x>."""

    orders: Integers
    signs: Rows
    """degree x d x D."""
    scales: Rows

    def __call__(self, rows: Rows) -> Rows:
        features = np.broadcast_to(self.scales, (len(rows), len(self.scales))).copy()
        for j, signs in enumerate(self.signs):
            used = self.orders > j
            features[:, used] *= rows.astype(signs.dtype, copy=False) @ signs[:, used]
        return features


def draw_features(
    kernel: Kernel,
    n_features: int,
    n_columns: int,
    seed: int,
    step: int,
    *,
    form: str = "phase",
    dtype: npt.DTypeLike = np.float64,
) -> FeatureMap:
    """The map of ``(seed, step)``."""
    rng = np.random.default_rng([seed, step])
    if kernel.name == "polynomial":
        return _draw_maclaurin(kernel, n_features, n_columns, rng, dtype)
    if form not in ("phase", "paired"):
        raise InputError(f"features={form!r} is unknown; use 'phase' or 'paired'.")
    if form == "paired" and n_features % 2:
        raise InputError(f"n_features={n_features} is odd; features='paired' needs an even number.")
    n_drawn = n_features // 2 if form == "paired" else n_features
    if kernel.name == "rbf":
        drawn = rng.normal(size=(n_columns, n_drawn)) * np.sqrt(2 * kernel.gamma)
    else:  # the spectrum of exp(-gamma |x|) is a Cauchy density in every coordinate
        drawn = rng.standard_cauchy(size=(n_columns, n_drawn)) * kernel.gamma
    phases = None if form == "paired" else rng.uniform(0, 2 * np.pi, n_drawn).astype(dtype)
    return FourierMap(drawn.astype(dtype), phases)


def _draw_maclaurin(
    kernel: Kernel, n_features: int, n_columns: int, rng: np.random.Generator, dtype: npt.DTypeLike
) -> MaclaurinMap:
    """Orders n are drawn with probability ~ 2^-(n+1) among those with nonzero coefficients."""
    orders = np.arange(kernel.degree + 1)
    coefficients = np.array(
        [comb(kernel.degree, n) * kernel.gamma**n * kernel.coef0 ** (kernel.degree - n) for n in orders]
    )
    chances = np.where(coefficients > 0, 0.5 ** (orders + 1.0), 0.0)
    chances /= chances.sum()
    drawn = rng.choice(orders, n_features, p=chances)
    signs = rng.choice([-1.0, 1.0], size=(kernel.degree, n_columns, n_features)).astype(dtype)
    return MaclaurinMap(drawn, signs, np.sqrt(coefficients[drawn] / chances[drawn]).astype(dtype))
