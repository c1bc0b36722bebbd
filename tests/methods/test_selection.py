"""Columns selected by name at the sites: their order there, and others they hold, change nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import coterie
from coterie import FederatedKMeans
from coterie.errors import ColumnsDiffer, MissingValues
from coterie.estimators.given import opened_tables
from coterie.estimators.kmeans import LloydKMeans
from coterie.methods.shared.selection import complete, selected
from coterie.report.outputs import write_run
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import Policy
from coterie.sites.tables import ArrayTable
from coterie.sites.views import grouped_view
from tests.federations import blobs

ROWS = blobs(240, 3, 3, seed=6) * [1, 10, 100] + 5
NAMES = ["a", "b", "c"]
PLAIN = {"sums": "plain", "policy": Policy.simulation()}


def frames(rows=ROWS):
    """Four sites with the same columns in the same order."""
    return {f"site-{i}": pd.DataFrame(part, columns=NAMES) for i, part in enumerate(np.array_split(rows, 4))}


def shuffled(tables):
    """The same rows; every site has its own order of columns, and two have others besides."""
    orders = [["a", "b", "c"], ["c", "a", "b"], ["b", "a", "extra", "c"], ["other", "c", "b", "a"]]
    rng = np.random.default_rng(0)
    return {
        site: frame.assign(extra=rng.normal(size=len(frame)), other=1.0)[order]
        for (site, frame), order in zip(tables.items(), orders, strict=True)
    }


@pytest.mark.parametrize("missing", ["refuse", "mean", "drop"])
@pytest.mark.parametrize("options", [PLAIN, {"policy": Policy(protection="none")}], ids=["plain", "verified"])
def test_neither_the_order_of_columns_nor_others_besides_change_the_result(missing, options):
    rows = ROWS if missing == "refuse" else np.where(np.random.default_rng(1).random(ROWS.shape) < 0.05, np.nan, ROWS)
    asked = {"scale": "standard", "missing": missing, **options}
    same, other = (
        coterie.fit(LloydKMeans(3, random_state=0), tables, columns=NAMES, **asked)
        for tables in (frames(rows), shuffled(frames(rows)))
    )
    np.testing.assert_array_equal(same.cluster_centers_, other.cluster_centers_)
    assert list(other.feature_names_in_) == NAMES
    assert other.ledger_.total("floats_up") == same.ledger_.total("floats_up")


def test_columns_are_used_in_the_order_in_which_they_are_named():
    one, other = (
        coterie.fit(LloydKMeans(3, tol=0, random_state=0), frames(), columns=names, **PLAIN)
        for names in (["a", "c"], ["c", "a"])
    )
    np.testing.assert_allclose(
        np.sort(one.cluster_centers_, axis=0), np.sort(other.cluster_centers_[:, ::-1], axis=0), rtol=1e-9
    )
    assert one.n_features_in_ == 2


def test_without_names_every_site_must_hold_the_columns_of_the_first_in_any_order():
    orders = zip(frames().items(), ("abc", "cab", "bca", "cba"), strict=True)
    tables = {site: frame[list(order)] for (site, frame), order in orders}
    fitted, plain = (coterie.fit(LloydKMeans(3, random_state=0), t, **PLAIN) for t in (tables, frames()))
    np.testing.assert_array_equal(fitted.cluster_centers_, plain.cluster_centers_)
    tables["site-0"] = tables["site-0"].assign(d=0.0)
    tables["site-2"] = tables["site-2"].assign(extra=0.0)
    expected = r"site-1: column 'd' is missing; site-2: .*'extra' is held here.*use columns=\['a', 'b', 'c'\]"
    with pytest.raises(ColumnsDiffer, match=expected):
        coterie.fit(LloydKMeans(3), tables, **PLAIN)


def test_over_groups_a_selection_shows_what_the_groups_do():
    """Groups are those of the whole table; their means, weights and squares are cut to the selection."""
    table = ArrayTable(blobs(400, 4, 3, seed=3), columns=["a", "b", "c", "d"])
    whole = grouped_view(table, 5, SiteLedger())
    part = selected(whole, ["d", "b"])
    of_whole, of_part = next(whole.blocks()), next(part.blocks())
    np.testing.assert_array_equal(of_part.rows, of_whole.rows[:, [3, 1]])
    np.testing.assert_array_equal(of_part.weights, of_whole.weights)
    np.testing.assert_array_equal(part.within_columns, whole.within_columns[[3, 1]])
    np.testing.assert_array_equal(part.within_scatter, whole.within_scatter[np.ix_([3, 1], [3, 1])])
    assert of_part.within.sum() == pytest.approx(part.within_columns.sum(), rel=2**-6)
    assert (part.n_rows, part.n_grouped) == (whole.n_rows, whole.n_grouped)
    assert selected(whole, ["a", "b", "c", "d"]) is whole


def test_complete_rows_are_those_complete_in_the_selected_columns():
    rows = blobs(400, 4, 3, seed=3)
    rows[:100, 0] = np.nan
    rows[350:, 2] = np.nan
    table = ArrayTable(rows, columns=["a", "b", "c", "d"])
    part = selected(table, ["d", "b", "c"])
    np.testing.assert_array_equal(next(complete(part).blocks()).rows, rows[:350][:, [3, 1, 2]])
    with pytest.raises(MissingValues, match="'c'"):
        next(part.blocks())
    whole = grouped_view(table, 5, SiteLedger())
    grouped = complete(selected(whole, ["d", "b", "c"]))
    assert grouped.n_grouped == sum(b.counts.sum() for b in grouped.raw_blocks()) <= 350
    share = grouped.within_columns / selected(whole, ["d", "b", "c"]).within_columns
    assert 0.5 < share[0] < 1
    np.testing.assert_allclose(share, share[0])
    turned = complete(selected(whole, ["d", "c", "b", "a"]))
    np.testing.assert_array_equal(turned.within_columns, whole.complete.within_columns[::-1])


def test_labels_of_tables_in_any_order_are_those_of_the_model(tmp_path):

    tables = shuffled(frames())
    model = coterie.fit(FederatedKMeans(3, random_state=0), tables, columns=NAMES, **PLAIN)
    write_run(tmp_path / "run", model, opened_tables(tables, None), {})
    for site, frame in tables.items():
        labels = pq.read_table(tmp_path / "run" / "labels" / f"{site}.parquet")["cluster"].to_numpy()
        np.testing.assert_array_equal(labels, model.predict(frame[NAMES]))


def wards(n=60, seed=0):
    """Three sites; nobody in the ward ``icu`` at the second, whose table was opened without that category."""
    rng, tables = np.random.default_rng(seed), {}
    for place, levels in enumerate((["icu", "maternity"], ["maternity"], ["icu", "maternity"])):
        ward = rng.choice(levels, n).astype(object)
        ward[::9] = None
        tables[f"site-{place}"] = pd.DataFrame({"age": rng.normal(50, 9, n), "ward": ward})
    return tables


def test_a_category_that_no_row_of_a_site_has_is_0_there_and_missing_where_the_column_is():
    tables = wards()
    own = {name: ["icu", "maternity"] if name != "site-1" else ["maternity"] for name in tables}
    opened = {name: coterie.open_table(t, categories={"ward": own[name]}) for name, t in tables.items()}
    same = {name: coterie.open_table(t, categories={"ward": ["icu", "maternity"]}) for name, t in tables.items()}
    names = ["age", "ward=icu", "ward=maternity"]
    for policy in (Policy.simulation(), Policy(per_site_results="averages")):
        asked = {"columns": names, "sums": "plain", "policy": policy, "scale": "standard", "missing": "mean"}
        one, other = (coterie.fit(LloydKMeans(2, random_state=0), t, **asked) for t in (opened, same))
        np.testing.assert_allclose(one.cluster_centers_, other.cluster_centers_, rtol=1e-9)
    view = grouped_view(opened["site-1"], 5, SiteLedger())
    shown = selected(view, names)
    (block,), (whole,) = shown.raw_blocks(), view.raw_blocks()
    there = ~np.isnan(whole.rows[:, 1])
    assert (block.rows[there, 1] == 0).all()
    np.testing.assert_array_equal(block.values[:, 1], whole.values[:, 1])
    assert shown.within_columns[1] == 0
    assert whole.rows[there, 1].any()  # the view itself was not changed
    with pytest.raises(ColumnsDiffer, match="column 'floor=2' is missing"):
        coterie.fit(LloydKMeans(2), opened, columns=["age", "floor=2"], **PLAIN)
