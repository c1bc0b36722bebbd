"""Recognising rows: keyed hashes that do not depend on the order or format of a site's file."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coterie.messages.site_api import Rows, Table, keys_of

Tokens = npt.NDArray[np.uint64]
STEP = np.uint64(0x9E3779B97F4A7C15)
"""Odd, so that no two occurrences of a token become equal."""


class RowTokens(NamedTuple):
    """For every row a token of its identity and one of its values; they differ if rows have keys."""

    rows: Tokens
    values: Tokens


def row_tokens(table: Table, secret: bytes) -> RowTokens:
    """The tokens of a table's rows, in order.

    Values are compared in single precision, which every file format keeps. Rows that are equal, or share a key, are
    numbered.
    """
    parts = [np.zeros(0, np.uint64), *(_value_tokens(block.rows, secret) for block in table.raw_blocks())]
    values = np.concatenate(parts)
    keys = keys_of(table)
    named = values if keys is None else _hashed([key.encode() for key in keys], secret, b"id")
    order = np.lexsort((values, named))
    ordered = named[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(ordered) else np.zeros(0, np.int64)
    number = np.arange(len(ordered)) - np.repeat(first, np.diff(np.append(first, len(ordered))))
    rows = np.empty_like(named)
    rows[order] = ordered + number.astype(np.uint64) * STEP
    return RowTokens(rows, values)


def _value_tokens(rows: Rows, secret: bytes) -> Tokens:
    with np.errstate(over="ignore"):
        plain = np.ascontiguousarray(rows, dtype="<f4") + np.float32(0.0)  # there is one zero
    plain[np.isnan(plain)] = np.nan  # and one missing value
    data, width = plain.tobytes(), plain.shape[1] * 4
    return _hashed([data[i * width : (i + 1) * width] for i in range(len(plain))], secret, b"values")


def _hashed(items: list[bytes], secret: bytes, person: bytes) -> Tokens:
    keyed = hashlib.blake2b(key=secret[:64], digest_size=8, person=person)
    digests = bytearray()
    for item in items:
        digest = keyed.copy()
        digest.update(item)
        digests += digest.digest()
    return np.frombuffer(bytes(digests), "<u8").astype(np.uint64)
