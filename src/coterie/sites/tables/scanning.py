"""One pass over a table before anything is sent."""

from __future__ import annotations

import hashlib

import numpy as np

from coterie.arrays import Integers
from coterie.errors import InputError
from coterie.messages.site_api import Table, keys_of

LARGEST = 1e150
"""Squares of larger values do not fit a float64."""


def scan_table(table: Table) -> tuple[Integers, str]:
    """Missing values by column, and a fingerprint of the rows and their keys; infinite or huge values are refused."""
    missing, seen = np.zeros(len(table.columns), np.int64), hashlib.blake2b(digest_size=16)
    name = str(getattr(table, "name", "table"))
    for block in table.raw_blocks():
        missing = missing + np.isnan(block.rows).sum(axis=0)
        large = np.abs(block.rows) > LARGEST
        if large.any():
            column = table.columns[int(np.argmax(large.any(axis=0)))].name
            kind = "infinite values" if np.isinf(block.rows).any() else f"values beyond {LARGEST:g}"
            raise InputError(f"{name}: column {column!r} holds {kind}; remove, replace or rescale them.")
        seen.update(np.ascontiguousarray(block.rows).tobytes())
    keys = keys_of(table)
    suffix = "" if keys is None else f"-{hashlib.blake2b(repr(keys).encode(), digest_size=8).hexdigest()}"
    return missing, seen.hexdigest() + suffix


def fingerprint(table: Table) -> str:
    """A digest of the rows, and of their keys if they have any."""
    return scan_table(table)[1]
