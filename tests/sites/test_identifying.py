"""Columns whose values are different whole numbers identify rows; others do not."""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from coterie.engines.inprocess import in_process
from coterie.errors import InputError, QuorumLost
from coterie.estimators.fitting import fit_over
from coterie.messages.site_api import Column
from coterie.methods.shared.preparation import PreparationOptions
from coterie.sites.policy import Policy, PrivacyRules
from coterie.sites.tables import ArrayTable, identifying_columns
from coterie.sites.tables.identifying import FEWEST

N = 90
RNG = np.random.default_rng(0)
COLUMNS = {
    "number": np.arange(N) + 7000.0,
    "age": RNG.integers(20, 80, N).astype(float),
    "measured": RNG.normal(size=N),
    "some missing": np.where(np.arange(N) % 3 == 0, np.nan, RNG.permutation(N)),
    "few": np.where(np.arange(N) < FEWEST - 1, np.arange(N), np.nan),
    "twice, far apart": np.append(np.arange(N - 1), 0.0),
}


def table(n_rows: int = N, **options) -> ArrayTable:
    return ArrayTable(np.column_stack(list(COLUMNS.values()))[:n_rows], columns=list(COLUMNS), **options)


@pytest.mark.parametrize("block_bytes", [1 << 22, 256])
def test_numbers_of_rows_are_known_from_others(block_bytes):
    assert identifying_columns(table(block_bytes=block_bytes), COLUMNS) == {"number", "some missing"}


def test_of_a_few_rows_nothing_is_said():
    assert identifying_columns(table(FEWEST - 1), COLUMNS) == frozenset()


def test_clusters_are_not_described_by_numbers_of_rows():
    tables = {f"site-{i}": table() for i in range(3)}
    with pytest.raises(InputError, match="profile names 'number': at site-0 every row has a whole number of its own"):
        coterie.fit(coterie.FederatedKMeans(2), tables, columns=["age"], profile=["number", "measured"])


@pytest.mark.parametrize("protection", ["groups", "none"])
def test_sites_refuse_such_an_order_themselves(protection):
    """An analyst of a federation sees no table, and may name any column."""
    tables = {f"site-{i}": table() for i in range(3)}
    with in_process(tables, policy=Policy(protection=protection)) as channel:
        for besides, refused in (("measured", False), ("number", True)):
            options = PreparationOptions(besides=(Column(besides),), profile=True)
            fitted = coterie.FederatedKMeans(2, random_state=0)
            columns = {"": (Column("age"),)}
            if not refused:
                fit_over(channel, fitted, columns, options, order=channel.analyst)
                continue
            with pytest.raises(QuorumLost, match="a column in which every row has a number of its own"):
                fit_over(channel, fitted, columns, options, order=channel.analyst)


def test_no_refusal_of_a_private_order_depends_on_rows():
    """A site that shows groups, too, answers private orders from a budget."""
    tables = {f"site-{i}": table() for i in range(3)}
    policy = Policy(protection="groups", privacy=PrivacyRules(epsilon=2.0, delta=1e-5))
    fitted = coterie.fit(
        coterie.FederatedKMeans(2, random_state=0, privacy=coterie.Privacy(epsilon=1.0)),
        tables,
        policy=policy,
        columns=["age"],
        profile=["number"],
        ranges=([0, 0], [100, 10_000]),
    )
    assert fitted.profiles_.columns == ("age", "number")
