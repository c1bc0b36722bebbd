"""Ten honest sites with handwritten digits, and one that lies."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

import coterie
from coterie import FederatedKMeans
from coterie.maths.clustering import nearest

N_SITES, K = 10, 10
DIGITS = load_digits().data
HONEST = {f"site-{i}": DIGITS[i::N_SITES] for i in range(N_SITES)}
RANGES = np.zeros(64), np.full(64, 16.0)
"""What a pixel can be."""
LIES = np.full((60, 64), 300.0)
"""Extreme values: far outside what a pixel can be."""


def with_liar(rows):
    return {**HONEST, "liar": rows}


def fitted(tables, **options):
    """The default method and policy, at one seed whoever takes part."""
    return coterie.fit(FederatedKMeans(K, random_state=0), tables, **options)


def outside(model):
    """Centers that lie outside what values can be."""
    beyond = (model.cluster_centers_ < RANGES[0] - 1e-6) | (model.cluster_centers_ > RANGES[1] + 1e-6)
    return np.flatnonzero(beyond.any(axis=1))


def captured(model):
    """Centers that no honest row is nearest to."""
    return np.setdiff1d(np.arange(K), nearest(DIGITS, model.cluster_centers_)[0])


def cost_of_honest(model):
    """What the honest sites' rows cost at the model's centers."""
    return float(nearest(DIGITS, model.cluster_centers_)[1].sum())
