"""Agreement on columns, imputation and scaling, against scikit-learn on the pooled rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from coterie.engines.inprocess import Fault, Schedule, in_process
from coterie.errors import ColumnsDiffer, InputError, QuorumLost
from coterie.messages.site_api import Block, Column
from coterie.messages.verbs import total
from coterie.methods.shared.agreement import Capabilities, Visible, agree
from coterie.methods.shared.lloyd import lloyd
from coterie.methods.shared.preparation import SumColumns, prepare
from coterie.runtime.ledger import Ledger
from coterie.runtime.outcomes import OutcomeKind
from coterie.runtime.run import run
from coterie.runtime.terms import Terms
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from coterie_studies.closed_forms import standard_cost
from tests.federations import blobs, central_lloyd, split_evenly, tables_of


def holes(rows, seed=0, share=0.1):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(rows.shape) < share, np.nan, rows)


@given(st.integers(0, 10_000), st.integers(1, 5), st.sampled_from([0.0, 1e8]))
def test_standard_scaling_by_sums_is_scikit_learns(seed, n_sites, far):
    rows = blobs(70, 4, 3, seed=seed) * [1, 100, 1e-3, 0] + far  # the last column is constant
    owners = np.random.default_rng(seed).integers(0, n_sites, 70)
    with in_process(tables_of(rows, owners, n_sites)) as channel:
        made = run(prepare(4, scale="standard"), channel, method="lloyd")
    pooled = StandardScaler().fit(rows)
    np.testing.assert_allclose(made.shift, pooled.mean_, rtol=1e-12)
    np.testing.assert_allclose(made.scale, pooled.scale_, rtol=1e-7 if far else 1e-10)
    np.testing.assert_allclose(made.undo(made.apply(Block(rows)).rows), rows, rtol=1e-12)


def test_mean_imputation_before_scaling_is_the_pooled_pipeline():
    rows = holes(blobs(200, 5, 3))
    pooled = make_pipeline(SimpleImputer(strategy="mean"), StandardScaler()).fit_transform(rows)
    with in_process(split_evenly(rows, 4)) as channel:
        made = run(prepare(5, scale="standard", missing="mean"), channel, method="lloyd")
    np.testing.assert_allclose(made.apply(Block(rows)).rows, pooled, rtol=1e-10, atol=1e-12)


def test_dropping_incomplete_rows_is_dropping_them_before_pooling():
    rows = holes(blobs(200, 5, 3))
    whole = rows[~np.isnan(rows).any(axis=1)]
    with in_process(split_evenly(rows, 4)) as channel:
        made = run(prepare(5, scale="standard", missing="drop"), channel, method="lloyd")
    np.testing.assert_allclose(made.shift, whole.mean(0), rtol=1e-12)
    np.testing.assert_allclose(made.scale, whole.std(0), rtol=1e-12)


def test_min_max_from_declared_ranges_is_the_pooled_scaler_where_the_ranges_are_the_datas():
    rows = blobs(100, 3, 2)
    with in_process(split_evenly(rows, 2)) as channel:
        made = run(prepare(rows.shape[1], scale="minmax", ranges=(rows.min(0), rows.max(0))), channel, method="lloyd")
    np.testing.assert_allclose(made.apply(Block(rows)).rows, MinMaxScaler().fit_transform(rows), atol=1e-12)


def test_a_value_outside_the_declared_range_is_refused_by_the_site_that_holds_it():
    rows = np.random.default_rng(0).random((60, 2))
    rows[-1] = 7.0
    with (
        in_process(split_evenly(rows, 3)) as channel,
        pytest.raises(QuorumLost, match=r"site-2 failed: .*outside the"),
    ):
        run(prepare(2, scale="minmax", ranges=([0, 0], [1, 1])), channel, method="lloyd")


@pytest.mark.parametrize("scale", ["none", "standard", "minmax"])
@pytest.mark.parametrize("missing", ["mean", "drop"])
def test_later_questions_see_the_prepared_table(scale, missing):
    rows = holes(np.clip(blobs(200, 3, 3, seed=4), -20, 20))
    ranges = (np.full(3, -20.0), np.full(3, 20.0))

    def protocol():
        made = yield from prepare(3, scale=scale, missing=missing, ranges=ranges)
        fit = yield from lloyd(np.eye(3), tol=0.0, max_rounds=3)
        return made, fit

    with in_process(split_evenly(rows, 3)) as channel:
        made, fit = run(protocol(), channel, method="lloyd")
    centers, cost, _ = central_lloyd(made.apply(Block(rows)).rows, np.eye(3), 3, 0.0)
    np.testing.assert_allclose(fit.centers, centers, rtol=1e-9, atol=1e-12)
    assert fit.cost == pytest.approx(cost, rel=1e-9)


def test_missing_values_nobody_treats_stop_the_run_and_name_the_site():
    rows = blobs(90, 3)
    rows[80, 1] = np.nan
    with in_process(split_evenly(rows, 3)) as channel, pytest.raises(QuorumLost, match=r"site-2 .*missing values"):
        run(lloyd(rows[:2]), channel, method="lloyd")


def test_a_site_that_missed_the_preparation_is_brought_up_to_date_before_it_answers():
    rows = blobs(120, 3, 3, seed=9) * 50 + 7
    schedule = Schedule([Fault("site-1", "drop", frozenset({2}))])  # round 2 tells sites how to prepare

    def protocol():
        made = yield from prepare(3, scale="standard")
        yield from total(SumColumns(False, np.zeros(3)))  # site-1 sits this one out
        fit = yield from lloyd(np.eye(3), tol=0.0, max_rounds=4)
        return made, fit

    ledger = Ledger()
    with in_process(split_evenly(rows, 3), schedule=schedule) as channel:
        made, fit = run(protocol(), channel, method="lloyd", terms=Terms(quorum=0.5), ledger=ledger)
    centers, _, _ = central_lloyd(made.apply(Block(rows)).rows, np.eye(3), 4, 0.0)
    np.testing.assert_allclose(fit.centers, centers, rtol=1e-9, atol=1e-12)
    outcomes = [e.sites["site-1"].outcome.kind for e in ledger.exchanges if "site-1" in e.sites]
    assert outcomes[2] is OutcomeKind.UNREACHABLE
    assert outcomes[3] is OutcomeKind.RECALLED


def test_standard_scaling_costs_what_its_closed_form_says():
    ledger = Ledger()
    with in_process(split_evenly(blobs(50, 6), 3)) as channel:
        run(prepare(6, scale="standard"), channel, method="lloyd", ledger=ledger)
    cost = standard_cost(3, 6, method="lloyd")
    assert cost.floats_up == 3 * 2 * (3 * 6 + 1)
    for what in ("floats_up", "bytes_up", "bytes_down", "rounds"):
        assert ledger.total(what) == getattr(cost, what)


def test_sites_that_hold_other_columns_are_named_with_what_differs():
    rows = np.ones((4, 3))
    tables = {
        "a": ArrayTable(rows, columns=["age", "sex", "bp"]),
        "b": ArrayTable(rows, columns=["age", "bp", "sex"]),
        "c": ArrayTable(np.ones((4, 4)), columns=["age", "sex", "pressure", "note"]),
    }
    expected = [Column("age"), Column("sex"), Column("bp")]
    with in_process(tables) as channel, pytest.raises(ColumnsDiffer) as caught:
        run(agree(expected), channel, method="lloyd")
    assert caught.value.differences == {"c": ("column 'bp' is missing",)}
    assert "c: column 'bp' is missing" in str(caught.value)


def test_a_column_of_another_kind_is_named():
    table = ArrayTable(np.ones((2, 1)), columns=["age"])
    with in_process({"a": table}) as channel, pytest.raises(ColumnsDiffer, match="'age' does not hold texts"):
        run(agree([Column("age", "text")]), channel, method="lloyd")


def test_the_same_columns_agree_and_doubled_names_do_not():
    table = ArrayTable(np.ones((2, 2)), columns=["x", "y"])
    with in_process({"a": table}) as channel:
        assert run(agree([Column("x"), Column("y")]), channel, method="lloyd") == Capabilities(Visible.ROWS)
        with pytest.raises(InputError, match="'x' appears more than once"):
            run(agree([Column("x"), Column("x")]), channel, method="lloyd")


def test_sites_say_first_what_may_be_seen_of_them_and_the_least_counts():
    table = ArrayTable(np.random.default_rng(0).normal(size=(20, 2)), columns=["x", "y"])
    for least, visible in (("none", Visible.SUMS), ("averages", Visible.AVERAGES), ("rows", Visible.ROWS)):
        policies = {"a": Policy(per_site_results="rows"), "b": Policy(per_site_results=least)}
        with in_process(dict.fromkeys("ab", table), policy=policies) as channel:
            found = run(agree([Column("x"), Column("y")]), channel, method="lloyd")
        assert found == Capabilities(visible, 5, 0, False)
