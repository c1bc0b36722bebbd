"""How far two clusterings of the same rows agree, from the table of how many rows each pair of clusters shares."""

from __future__ import annotations

import numpy as np

from coterie.arrays import Floats


def adjusted_rand(table: Floats) -> float:
    """The adjusted Rand index (Hubert & Arabie 1985): 1 for the same clusters, about 0 for unrelated ones.

    Where only one value is possible, as with one cluster each, they are the same.
    """
    both, first, second = (float(_pairs(part).sum()) for part in (table, table.sum(axis=1), table.sum(axis=0)))
    total = float(_pairs(table.sum()))
    if not total > 0:
        return 1.0
    expected, most = first * second / total, (first + second) / 2
    return 1.0 if most - expected <= 1e-12 * most else (both - expected) / (most - expected)


def _pairs(counts: Floats) -> Floats:
    return np.asarray(np.maximum(counts * (counts - 1), 0.0) / 2)
