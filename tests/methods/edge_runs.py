"""Runs of small summaries on small data."""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_limits

from coterie.engines.inprocess import in_process
from coterie.methods.edge.pipelines import edge_kmeans
from coterie.methods.edge.questions import EdgeSettings
from coterie.methods.edge.stages import read_pipeline
from coterie.runtime.run import run
from coterie.sites.policy import Policy
from tests.federations import blobs, split_evenly

ROWS = blobs(240, 6, 4, seed=5)
SIMULATED = Policy.simulation()


def cost(rows, centers, weights=None):
    squared = ((rows[:, None] - centers) ** 2).sum(-1).min(1)
    return float(squared.sum() if weights is None else squared @ weights)


def summarised(pipeline, tables=None, *, k=4, seed=0, ledger=None, policy=None, **options):
    """A run of a pipeline, given as words or stages."""
    tables = split_evenly(ROWS, 3) if tables is None else tables
    settings = EdgeSettings(pipeline=read_pipeline(pipeline), **options)
    columns = len(next(iter(tables.values())).columns)
    with threadpool_limits(1), in_process(tables, policy=policy) as channel:
        return run(edge_kmeans(settings, k, columns, seed=seed), channel, method="edge-kmeans", ledger=ledger)


def somewhere(rows, k, seed):
    """Centers anywhere near rows."""
    rng = np.random.default_rng(seed)
    return rng.normal(rows.mean(0), 2 * rows.std(0), (k, rows.shape[1]))
