"""What columns are divided by. The columns of one text column (``sex=f``, ``sex=m``) are scaled together.

Each number then has variance 1, and so has each text column as a whole: a text column of many categories weighs no
more than a number, and a rare category no more than a frequent one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Literal, get_args

import numpy as np

from coterie.arrays import Floats

Scale = Literal["none", "standard", "columns", "robust", "minmax"]
"""``standard``: variance 1; ``columns``: also of each category by itself; ``robust``: median 0 and interquartile
range 1; ``minmax``: ranges become 0 to 1."""
SCALES: tuple[str, ...] = get_args(Scale)


def category_blocks(names: Sequence[str]) -> list[list[int]]:
    """The columns of each text column, by their names ``column=category``."""
    return [block for is_text, block in _blocks(names) if is_text]


def scale_for(scale: Scale, names: Sequence[str] | None) -> Scale:
    """The scale in effect: where all columns are of categories, ``standard`` and ``robust`` leave them as 0 and 1."""
    only_text = names is not None and len(names) > 0 and all(is_text for is_text, _ in _blocks(names))
    return "none" if scale in ("standard", "robust") and only_text else scale


def divisors(deviation: Floats, scale: Scale, names: Sequence[str] | None) -> Floats:
    """What each column is divided by: its deviation, or the root of the total variance of its text column; 1 where
    nothing varies. Sums are exact, and so the same on every machine."""
    root = np.array(deviation, np.float64)
    if scale == "standard" and names is not None:
        for block in category_blocks(names):
            root[block] = math.sqrt(math.fsum((root[block] * root[block]).tolist()))
    return np.where(root > 0, root, 1.0)


def _blocks(names: Sequence[str]) -> list[tuple[bool, list[int]]]:
    """Columns that belong together, and whether they are of one text column."""
    places = range(len(names))
    owners = [name.partition("=")[0] if "=" in name else i for i, name in enumerate(names)]
    order = sorted(places, key=lambda i: owners.index(owners[i]))
    groups = [(owner, list(own)) for owner, own in groupby(order, key=lambda i: owners[i])]
    return [(isinstance(owner, str), own) for owner, own in groups]
