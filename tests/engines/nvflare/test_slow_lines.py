"""A site behind a slow line: long answers arrive whole, and once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from .federations import SITES

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("nvflare")]

SLOW = 250e3
"""Bytes a second: 2 Mbit/s."""


def test_a_long_answer_over_a_slow_line_arrives_and_is_sent_once(standing, relay):
    rng, tables = np.random.default_rng(0), {}
    for name in SITES:
        tables[name] = standing.folder / f"long-{name}.parquet"
        pq.write_table(pa.table({f"x{j}": rng.normal(size=4000) for j in range(64)}), tables[name])
    standing.hold(tables, single="rows", exempt="nr")
    standing.await_all()
    relay.rate, before = SLOW, relay.passed_up
    try:
        found = standing.check(standing.order("nr", {"n_clusters": 3}, deadline=60.0))
    finally:
        relay.rate = None
    left = found.totals["site-5"]["bytes_up"]
    assert left > 8 * SLOW / 4
    assert relay.passed_up - before < 1.1 * left + 100_000  # TLS, headers, signs of life
