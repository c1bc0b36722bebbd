"""From rows to groups: the site's own scale, chunks of a large table, categories, weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from coterie.messages.site_api import Table
from coterie.sites.ledger import SiteLedger
from coterie.sites.tables import ArrayTable, open_table, split_by_site
from coterie.sites.views import forming, grouped_view
from coterie.sites.views.forming import form_groups, own_scale


def test_the_own_scale_is_mean_and_deviation_of_what_is_there_block_by_block() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3000, 4)) * [1, 10, 0.1, 0] + [0, 1e6, 5, 7]
    rows[rng.random(3000) < 0.3, 1] = np.nan
    found = own_scale(ArrayTable(rows, block_bytes=1 << 12))
    np.testing.assert_allclose(found.center, np.nanmean(rows, axis=0), rtol=1e-7)
    np.testing.assert_allclose(found.scale[:3], np.nanstd(rows, axis=0)[:3], rtol=1e-7)
    again = own_scale(ArrayTable(rows[::-1], block_bytes=1 << 13))  # another order, other blocks
    np.testing.assert_array_equal(again.center, found.center)
    np.testing.assert_array_equal(again.scale, found.scale)
    assert found.scale[3] == 1.0  # constant columns are not scaled


@pytest.mark.parametrize(
    ("widths", "is_one_unit"),
    [((3, 1, 1, 1, 1), True), ((5, 1, 1, 1, 1), False), ((1, 1, 1, 1, 0.1), True), ((1, 1, 1, 0.1, 0.1), False)],
)
def test_columns_of_one_unit_keep_their_proportions(widths: tuple[float, ...], is_one_unit: bool) -> None:
    rows = np.linspace(0, 1, 50)[:, None] * widths
    assert (own_scale(ArrayTable(rows)).scale == 1).all() == is_one_unit


@pytest.mark.parametrize("n", [5, 9, 10, 101, 500])
def test_chunks_are_grouped_each_on_its_own_and_lose_no_row(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forming, "CHUNK_ROWS", 40)
    rows = np.random.default_rng(n).normal(size=(n, 3))
    table = ArrayTable(rows, block_bytes=1 << 12)
    done: list[tuple[int, int]] = []
    chosen = np.ones(n, bool)
    made = form_groups(table, chosen, own_scale(table), 5, progress=lambda *at: done.append(at))
    assert made.cells.sizes.sum() == n
    assert ((made.cells.sizes >= 5) & (made.cells.sizes <= 9)).all()
    assert done[-1] == (n, n)
    means = np.array([rows[made.labels == g].mean(axis=0) for g in range(len(made.cells))])
    np.testing.assert_allclose(made.cells.means, means)
    if made.scatter is not None:
        away = rows - means[made.labels]
        np.testing.assert_allclose(made.scatter, away.T @ away, atol=1e-9)


def _frame(n_rare: int, n: int = 100) -> pd.DataFrame:
    kinds = ["a"] * 50 + ["b"] * (50 - n_rare) + ["rare"] * n_rare
    return pd.DataFrame({"x": np.random.default_rng(1).normal(size=n), "kind": kinds})


def _totals(frame: pd.DataFrame, categories: list[str]) -> dict[str, float]:
    return _shown(open_table(frame, categories={"kind": categories}))


def _shown(table: Table) -> dict[str, float]:
    view = grouped_view(table, 5, SiteLedger())
    (block,) = view.blocks()
    sums = block.weights @ block.rows
    return {column.name: float(total) for column, total in zip(view.columns, sums, strict=True)}


def test_a_category_held_by_few_rows_joins_other_or_none() -> None:
    with_other = _totals(_frame(4), ["a", "b", "rare", "other"])
    assert with_other["kind=rare"] == 0
    assert with_other["kind=other"] == pytest.approx(4)
    without = _totals(_frame(4), ["a", "b", "rare"])
    assert without["kind=rare"] == 0
    assert without["kind=a"] + without["kind=b"] == pytest.approx(96)
    assert _totals(_frame(5), ["a", "b", "rare"])["kind=rare"] == pytest.approx(5)


def test_a_category_held_by_few_rows_of_a_part_of_a_file_joins_other(tmp_path: Path) -> None:
    frame = pd.concat([_frame(4).assign(site=site) for site in "ab"])
    frame.to_csv(tmp_path / "all.csv", index=False)
    parts = split_by_site(tmp_path / "all.csv", "site", categories={"kind": ["a", "b", "rare", "other"]})
    assert [_shown(part)["kind=rare"] for part in parts.values()] == [0, 0]


def test_weights_multiply_and_sizes_count_rows() -> None:
    rng = np.random.default_rng(2)
    rows, weights = rng.normal(size=(60, 2)), rng.uniform(0.5, 3, 60)
    view = grouped_view(ArrayTable(rows, weights=weights), 5, SiteLedger())
    (block,) = view.blocks()
    assert view.n_grouped == 60
    np.testing.assert_allclose(block.weights.sum(), weights.sum())
    np.testing.assert_allclose(block.weights @ block.rows, weights @ rows)
    squares = view.within_columns + block.weights @ block.rows**2
    np.testing.assert_allclose(squares, weights @ rows**2)


def test_rows_that_count_nothing_stand_in_no_group() -> None:
    rows = np.random.default_rng(3).normal(size=(30, 2))
    weights = np.where(np.arange(30) < 8, 0.0, 1.0)
    view = grouped_view(ArrayTable(rows, weights=weights), 5, SiteLedger())
    assert view.n_grouped == 22


def test_too_few_rows_make_no_group() -> None:
    view = grouped_view(ArrayTable(np.zeros((4, 2))), 5, SiteLedger())
    assert (view.n_rows, view.n_grouped) == (0, 0)
    assert list(view.blocks()) == []


def test_missing_values_are_filled_as_if_every_row_had_been() -> None:
    from coterie.methods.shared.prepared import Preparation, PreparedTable

    rng = np.random.default_rng(4)
    rows = rng.normal(size=(200, 3)) + np.array([0, 5, -2])
    rows[rng.random(200) < 0.4, 1] = np.nan
    view = grouped_view(ArrayTable(rows), 5, SiteLedger())
    fill, scale = np.array([0.0, 4.5, 0.0]), np.array([1.0, 2.0, 3.0])
    table = PreparedTable(view, Preparation("mean", fill, np.ones(3), scale))
    blocks = list(table.blocks())
    ready = (np.where(np.isnan(rows), fill, rows) - 1) / scale
    sums = sum(block.counts @ block.rows for block in blocks)
    np.testing.assert_allclose(sums, ready.sum(axis=0), atol=1e-9)
    squares = sum(block.counts @ block.rows**2 for block in blocks) + table.within_columns
    np.testing.assert_allclose(squares, (ready**2).sum(axis=0), rtol=1e-9)


def test_dropping_missing_values_keeps_whole_groups() -> None:
    from coterie.methods.shared.prepared import Preparation, PreparedTable

    rows = np.random.default_rng(5).normal(size=(300, 2))
    rows[:20, 1] = np.nan
    view = grouped_view(ArrayTable(rows), 5, SiteLedger())
    table = PreparedTable(view, Preparation("drop", np.zeros(2), np.zeros(2), np.ones(2)))
    blocks = list(table.blocks())
    assert 200 < sum(block.counts.sum() for block in blocks) <= 280
    for block in blocks:
        assert np.isfinite(block.rows).all()
    means = {tuple(row) for block in view.raw_blocks() for row in block.rows}
    assert all(tuple(row) in means for block in blocks for row in block.rows)
    assert (table.within_columns <= view.within_columns + 1e-12).all()
