"""What k-means from small summaries and federated PCA hold at once of tables that are made while they are read."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from coterie import EdgeKMeans, FederatedPCA
from coterie.engines.inprocess import in_process
from coterie.errors import InputError
from coterie.maths.axes import WIDE, principal_axes
from coterie.messages.site_api import Block, Column
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.sites.tables import rows_a_block
from coterie.sites.tables.rows import CheckedTable

K = 5


def held():
    """The most megabytes at once since tracing began."""
    return tracemalloc.get_traced_memory()[1] / 1e6


class Generated(CheckedTable):
    """float32 rows around K middles, the same in every pass and never there all at once.

    Reading on is an error once ``most`` megabytes were held, so that what holds too much does not go on for hours.
    """

    def __init__(self, n_rows, n_columns, most):
        rng = np.random.default_rng(0)
        self.name, self.n_rows, self.most = "generated", n_rows, most
        self.columns = tuple(Column(f"x{i}") for i in range(n_columns))
        self.middles = rng.standard_normal((K, n_columns), dtype=np.float32) + np.float32(3)
        self._step = rows_a_block(n_columns, 4)
        self._noise = 0.1 * rng.standard_normal((self._step, n_columns), dtype=np.float32)

    def raw_blocks(self):
        for start in range(0, self.n_rows, self._step):
            size = min(self._step, self.n_rows - start)
            rows = self.middles[np.random.default_rng([1, start]).integers(0, K, size)]
            rows += self._noise[:size]
            assert held() < self.most
            yield Block(rows)


def peak_of_fit(estimator, table):
    """Fit over one site: the most megabytes held at once, by the site and the server together."""
    estimator.begin()
    ledger = Ledger()
    tracemalloc.start()
    try:
        with threadpool_limits(1), in_process({"site": table}) as channel:
            result = run(
                estimator.protocol(estimator.context(len(table.columns))),
                channel,
                method=estimator.method,
                ledger=ledger,
            )
        peak = held()
    finally:
        tracemalloc.stop()
    estimator.set_result(result, None, ledger)
    return peak


def furthest(centers, middles):
    """From a middle to its nearest center: the largest root mean square over columns."""
    return np.sqrt(((middles[:, None] - centers[None]) ** 2).mean(axis=2)).min(axis=1).max()


def left_by(components, middles):
    """The share of the middles' squared distances from one another that components do not explain."""
    between = middles - middles.mean(axis=0)
    return 1 - np.sum((between @ components.T) ** 2) / np.sum(between**2)


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", ["jl:64+dispca:20+disss:500", "jl:64+pca:20+sample:500"])
def test_640_mb_of_rows_are_summarised_within_100_mb(pipeline):
    """All projected rows at once would be 102 MB."""
    table = Generated(400_000, 400, most=100)
    estimator = EdgeKMeans(K, pipeline=pipeline, refine=1, random_state=0)
    assert peak_of_fit(estimator, table) < table.most
    assert furthest(estimator.cluster_centers_, table.middles) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["local", "sums"])
def test_components_of_640_mb_of_rows_are_found_within_50_mb(solver):
    table = Generated(400_000, 400, most=50)
    estimator = FederatedPCA(K - 1, solver=solver, random_state=0)
    assert peak_of_fit(estimator, table) < table.most
    assert left_by(estimator.components_, table.middles) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", ["jl:64+dispca:20+disss:200", "dispca:20+disss:200", "pca:20+sample:200"])
def test_wide_rows_are_summarised_within_120_mb(pipeline):
    """Products of all pairs of 20,000 columns would be 3,200 MB, all rows 160."""
    table = Generated(2000, 20_000, most=120)
    estimator = EdgeKMeans(K, pipeline=pipeline, refine=1, random_state=0)
    assert peak_of_fit(estimator, table) < table.most
    assert furthest(estimator.cluster_centers_, table.middles) < 0.02


@pytest.mark.slow
def test_components_of_wide_rows_are_found_within_100_mb():
    table = Generated(2000, 20_000, most=100)
    with pytest.raises(InputError, match="all pairs of 20,000 columns, more than a message may hold; use solver="):
        FederatedPCA(K - 1).check(20_000)
    estimator = FederatedPCA(K - 1, solver="auto", random_state=0)
    assert peak_of_fit(estimator, table) < table.most
    assert estimator.solver_ == "local"
    assert left_by(estimator.components_, table.middles) < 1e-3


def test_axes_of_wide_rows_need_50_mb():
    """20,000 columns, of which products of all pairs would be 3,200 MB."""
    table = Generated(250, 20_000, most=50)
    pieces = 10  # of a block, as sites look at wide rows

    def blocks():
        for block in table.blocks():
            for rows in np.array_split(block.rows, pieces):
                yield rows - np.float32(3), np.ones(len(rows))

    assert len(table.columns) > WIDE
    tracemalloc.start()
    try:
        with threadpool_limits(1):
            found = principal_axes(blocks, len(table.columns), K, seed=0)
        assert held() < table.most
    finally:
        tracemalloc.stop()
    assert left_by(found.vectors.T, table.middles) < 1e-3
