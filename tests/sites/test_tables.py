"""A site's rows, a block at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import InputError, MissingValues
from coterie.sites.tables import ArrayTable, open_table


def write(path, **columns):
    pq.write_table(pa.table(columns), path, row_group_size=70)
    return path


@given(st.integers(0, 700), st.integers(1, 5), st.integers(1, 40_000))
def test_blocks_are_the_rows_in_order(n, d, block_bytes):
    rows = np.arange(n * d, dtype=float).reshape(n, d)
    blocks = list(ArrayTable(rows, block_bytes=block_bytes).blocks())
    np.testing.assert_array_equal(np.concatenate([b.rows for b in blocks] or [rows]), rows)
    assert all(b.rows.flags.c_contiguous for b in blocks)


def test_column_ordered_and_integer_arrays_are_read_too():
    rows = np.arange(12).reshape(3, 4)
    for made in (np.asfortranarray(rows.astype(np.float32)), rows, rows.astype(bool)):
        (block,) = ArrayTable(made).blocks()
        np.testing.assert_array_equal(block.rows, made.astype(float))


def test_a_parquet_file_is_streamed_in_blocks_of_one_size(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1000, 3))
    path = write(tmp_path / "t.parquet", a=rows[:, 0], b=rows[:, 1], c=rows[:, 2])
    table = open_table(path, block_bytes=300 * 3 * 8)
    blocks = [b.rows for b in table.blocks()]
    np.testing.assert_array_equal(np.concatenate(blocks), rows)
    assert [len(b) for b in blocks] == [300, 300, 300, 100]
    assert table.n_rows == 1000
    assert [c.name for c in table.columns] == ["a", "b", "c"]
    chosen = open_table(path, columns=["c", "a"])
    np.testing.assert_array_equal(next(chosen.blocks()).rows, rows[:, [2, 0]])


def test_single_precision_stays_single_and_nulls_are_missing(tmp_path):
    path = write(
        tmp_path / "t.parquet", a=np.ones(5, np.float32), b=pa.array([1.0, None, 3.0, 4.0, 5.0], pa.float32())
    )
    table = open_table(path)
    assert next(table.raw_blocks()).rows.dtype == np.float32
    assert np.isnan(next(table.raw_blocks()).rows[1, 1])
    with pytest.raises(MissingValues, match=r"t.parquet: column 'b' holds missing"):
        list(table.blocks())


def test_a_value_that_is_missing_or_infinite_is_named_by_its_column_and_not_quoted():
    for bad in (np.nan, np.inf, -np.inf):
        rows = np.ones((4, 2))
        rows[2, 1] = bad
        with pytest.raises(MissingValues, match="column 'bp'"):
            list(ArrayTable(rows, columns=["age", "bp"], name="a.csv").blocks())


def test_bad_files_end_in_one_clear_sentence(tmp_path):
    (tmp_path / "empty.parquet").write_bytes(b"")
    (tmp_path / "not.parquet").write_text("a,b\n1,2\n")
    text = write(tmp_path / "text.parquet", a=["x", "y"])
    for path, told in (
        (tmp_path / "nowhere.parquet", "no such file"),
        (tmp_path / "empty.parquet", r"is empty \(0 bytes\)"),
        (tmp_path / "not.parquet", "not a readable Parquet file"),
        (tmp_path, "is a directory"),
        (text, r"column 'a' holds text \('x' in row 1\)"),
    ):
        with pytest.raises(InputError, match=told):
            open_table(path)
    with pytest.raises(InputError, match="no column 'z'"):
        open_table(write(tmp_path / "t.parquet", a=[1.0]), columns=["z"])


@pytest.mark.parametrize(
    ("rows", "options", "told"),
    [
        (np.zeros(3), {}, "needs two"),
        (np.zeros((2, 2, 2)), {}, "needs two"),
        (np.array([["a", "b"]]), {}, "other than numbers"),
        (np.zeros((2, 2)), {"columns": ["a"]}, "1 names for 2 columns"),
        (np.zeros((2, 2)), {"weights": [1.0]}, "weights for 2 rows"),
    ],
)
def test_what_is_no_table_is_refused(rows, options, told):
    with pytest.raises(InputError, match=told):
        ArrayTable(rows, **options)
