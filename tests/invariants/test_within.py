"""Rows that stand for several: sums of squares and costs are those of the rows behind them."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.engines.inprocess import in_process
from coterie.messages.site_api import Block, Memory, within_columns, within_scatter
from coterie.messages.verbs import each, total
from coterie.methods.edge.pca import PCASettings, View, dis_pca
from coterie.methods.edge.pipelines import edge_kmeans
from coterie.methods.edge.questions import EdgeSettings
from coterie.methods.edge.sites import SendScatter, local_scatter
from coterie.methods.edge.stages import read_pipeline
from coterie.methods.kernel.clusters import find_gamma
from coterie.methods.kernel.landmarks.sites import SendLandmarks, local_landmarks
from coterie.methods.kernel.landmarks.summed import SumSquaredDistances
from coterie.methods.method import RunContext
from coterie.methods.shared.coresets import SumCost, local_cost
from coterie.methods.shared.limits import ReportMagnitude, limits_from
from coterie.methods.shared.lloyd import Assign, Close
from coterie.methods.shared.preparation import prepare, spread
from coterie.methods.shared.prepared import Preparation, PreparedTable
from coterie.runtime.layers import PlainSums
from coterie.runtime.run import run
from coterie.secure.layer import MaskedSums
from coterie.sites.tables import ArrayTable
from tests.federations import blobs

D, SIZE = 4, 5
ROWS = blobs(90, D, 3, seed=21) * [1.0, 2.0, 0.5, 3.0] + 7.0
SITES = {f"site-{m}": ROWS[30 * m : 30 * (m + 1)] for m in range(3)}


class Grouped(ArrayTable):
    """Means of groups of rows that follow each other, with what the groups hold within."""

    def __init__(self, rows, *, scatter=True):
        groups = rows.reshape(-1, SIZE, rows.shape[1])
        super().__init__(groups.mean(axis=1), weights=np.full(len(groups), float(SIZE)))
        away = (groups - groups.mean(axis=1, keepdims=True)).reshape(rows.shape)
        self._squares = (away**2).reshape(len(groups), -1).sum(axis=1)
        self.within_columns = (away**2).sum(axis=0)
        self.within_scatter = away.T @ away if scatter else None

    def raw_blocks(self):
        start = 0
        for block in super().raw_blocks():
            yield Block(block.rows, block.weights, self._squares[start : start + len(block.rows)])
            start += len(block.rows)


def both(protocol, method="lloyd", *, scatter=True, masked=False):
    """What is found from groups, and from rows."""
    found = []
    for tables in (
        {name: Grouped(rows, scatter=scatter) for name, rows in SITES.items()},
        {name: ArrayTable(rows) for name, rows in SITES.items()},
    ):
        with in_process(tables) as channel:
            layers = [MaskedSums()] if masked else [PlainSums()]
            found.append(run(protocol(), channel, method=method, layers=layers))
    return found


MEANS = np.concatenate([Grouped(rows)._rows for rows in SITES.values()])
CENTERS = ROWS[[3, 40, 77]]


def cost_of_groups(centers):
    """Every row at the center its group is nearest to."""
    labels = ((MEANS[:, None] - centers) ** 2).sum(-1).argmin(1)
    return float(((ROWS - centers[np.repeat(labels, SIZE)]) ** 2).sum())


@pytest.mark.parametrize("ask", [Assign(CENTERS), Close(CENTERS)])
def test_the_cost_is_that_of_the_rows_put_where_their_group_goes(ask):
    grouped, plain = both(lambda: total(ask))
    assert float(grouped.cost) == pytest.approx(cost_of_groups(CENTERS), rel=1e-12)
    assert float(grouped.cost) > float(plain.cost)


@pytest.mark.parametrize("masked", [False, True])
def test_the_spread_of_columns_is_that_of_the_rows(masked):
    grouped, plain = both(lambda: spread(D), masked=masked)
    assert grouped.rows == pytest.approx(plain.rows)
    np.testing.assert_allclose(grouped.mean, plain.mean, rtol=1e-9)
    np.testing.assert_allclose(grouped.deviation, plain.deviation, rtol=1e-9)


def test_groups_about_zero_fit_into_a_masked_sum():
    """Rows far from zero whose groups' means are nearly there: marks are of the rows behind the means."""
    away = np.tile(np.array([[5.0], [-5.0], [5.0], [-5.0], [1e-3]]), (6, 2))
    with in_process({name: Grouped(away) for name in "abc"}) as channel:
        marked = run(total(ReportMagnitude(1, np.zeros(0))), channel, method="lloyd", layers=[MaskedSums()])
        assert limits_from(marked)["box"] == 16.0
        found = run(total(Close(np.zeros((1, 2)))), channel, method="lloyd", layers=[MaskedSums()])
    assert float(found.cost) == pytest.approx(3 * (away**2).sum(), rel=1e-9)


def test_prepared_rows_have_prepared_squares():
    def protocol():
        yield from prepare(D, scale="standard")
        return (yield from total(Close(np.zeros((1, D)))))

    grouped, plain = both(protocol)
    assert float(grouped.cost) == pytest.approx(float(plain.cost), rel=1e-12)
    assert float(plain.cost) == pytest.approx(90 * D)


def test_a_prepared_table_offers_what_its_table_does():
    scale = np.array([1.0, 2.0, 4.0, 0.5])
    table = Grouped(SITES["site-0"])
    seen = PreparedTable(table, Preparation("refuse", np.zeros(D), np.zeros(D), scale))
    np.testing.assert_allclose(within_columns(seen), table.within_columns / scale**2)
    np.testing.assert_allclose(within_scatter(seen), table.within_scatter / np.outer(scale, scale))
    plain = PreparedTable(ArrayTable(ROWS), Preparation("refuse", np.zeros(D), np.zeros(D), scale))
    assert not within_columns(plain).any()
    assert within_scatter(plain) is None
    assert next(iter(plain.blocks())).within is None
    assert next(iter(seen.blocks())).within.shape == (6,)


def test_gamma_and_distances_from_a_point_are_those_of_the_rows():
    grouped, plain = both(lambda: find_gamma(D), "dspgd")
    assert grouped == pytest.approx(plain, rel=1e-12)
    grouped, plain = both(lambda: total(SumSquaredDistances(np.ones(D))), "landmarks")
    assert float(grouped.squares) == pytest.approx(float(plain.squares), rel=1e-12)


def test_the_scatter_of_local_landmarks_is_that_of_the_rows():
    grouped, plain = (
        local_landmarks(table, Memory(), SendLandmarks(3, D, D, 8, 100, 0))
        for table in (Grouped(ROWS), ArrayTable(ROWS))
    )
    assert float(grouped.scatter) == pytest.approx(float(plain.scatter), rel=1e-12)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("center", [False, True])
def test_principal_components_by_sums_are_those_of_the_rows(center, masked):
    def protocol():
        return PCASettings(2, solver="sums", center=center).protocol(RunContext(D, 1))

    grouped, plain = both(protocol, "federated-pca", masked=masked)
    np.testing.assert_allclose(grouped.axes.values, plain.axes.values, rtol=1e-7)
    np.testing.assert_allclose(np.abs(grouped.axes.vectors), np.abs(plain.axes.vectors), atol=1e-7)
    assert grouped.squares == pytest.approx(plain.squares, rel=1e-9)


def test_products_of_columns_are_the_same_when_asked_again():
    table, ask = Grouped(ROWS), SendScatter(*View(D, 1).fields(), 10, D, 1.0)
    one, other = (local_scatter(table, Memory(), ask).packed for _ in range(2))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("solver", ["local", "sums"])
def test_by_columns_alone_all_squares_are_those_of_the_rows(solver):
    def protocol():
        return PCASettings(2, local_rank=D, solver=solver).protocol(RunContext(D, 1))

    grouped, plain = both(protocol, "federated-pca", scatter=False)
    assert grouped.squares == pytest.approx(plain.squares, rel=1e-9)


def test_squares_of_projected_rows_follow_the_projection():
    view = View(D, 3).projected(2, "gaussian")
    (_, grouped), (_, plain) = both(lambda: dis_pca(view, 2, 2), "federated-pca")
    assert grouped == pytest.approx(plain, rel=1e-9)


def test_the_cost_of_ones_own_solution_is_that_of_the_rows():
    table = Grouped(ROWS)
    found = local_cost(table, Memory(), SumCost(18, D, 0))  # a center for every group
    assert float(found.cost) == pytest.approx(table.within_columns.sum(), rel=1e-9)


@pytest.mark.parametrize("pipeline", ["nr", "sample:18", "pca:2+sample:18", "dispca:3+sample:18"])
def test_what_a_summary_says_of_a_cost_counts_the_rows_behind_it(pipeline):
    """Every group is sent, so that nothing is left to chance; nothing is refined."""

    def protocol():
        return edge_kmeans(EdgeSettings(pipeline=read_pipeline(pipeline)), 2, D, seed=1)

    grouped, _ = both(protocol, "edge-kmeans")
    centers = grouped.centers
    if pipeline == "nr":
        assert grouped.estimate(centers) == pytest.approx(cost_of_groups(centers), rel=1e-9)
    else:
        assert grouped.estimate(ROWS.mean(0)[None]) == pytest.approx(((ROWS - ROWS.mean(0)) ** 2).sum(), rel=1e-9)


def test_rows_as_they_are_have_nothing_within():
    table = ArrayTable(ROWS)
    assert not within_columns(table).any()
    assert within_scatter(table) is None
    found = both(lambda: each(Close(CENTERS)))[1]
    assert sum(float(one.cost) for one in found.values()) == pytest.approx(
        ((ROWS[:, None] - CENTERS) ** 2).sum(-1).min(1).sum()
    )
