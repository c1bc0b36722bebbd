"""Columns that identify rows: no cluster is described by them."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from coterie.arrays import Floats
from coterie.messages.site_api import Table

FEWEST = 30
"""Of fewer values, that all are different says nothing."""


def identifying_columns(table: Table, names: Collection[str]) -> frozenset[str]:
    """Those of some columns whose values are all different whole numbers; rows are read while there may be any."""
    seen: dict[int, list[Floats]] = {i: [] for i, column in enumerate(table.columns) if column.name in names}
    for block in table.raw_blocks():
        for place, before in list(seen.items()):
            values = block.rows[:, place].astype(np.float64)
            values = values[~np.isnan(values)]
            before.append(values)
            if (values != np.rint(values)).any() or _repeat(values):
                del seen[place]
        if not seen:
            break
    whole = {place: np.concatenate([np.zeros(0), *values]) for place, values in seen.items()}
    return frozenset(
        table.columns[i].name for i, values in whole.items() if len(values) >= FEWEST and not _repeat(values)
    )


def _repeat(values: Floats) -> bool:
    return len(np.unique(values)) < len(values)
