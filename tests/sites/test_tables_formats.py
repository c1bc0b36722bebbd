"""The same rows in any format are the same blocks."""

from __future__ import annotations

import decimal
import gzip
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from coterie.errors import InputError
from coterie.messages.site_api import Column
from coterie.sites.tables import ArrayTable, open_table, read_columns, rows_a_block

FILES = ("csv", "tsv", "csv.gz", "tsv.gz", "parquet", "pq", "feather", "arrow", "ipc", "npy", "npz", "f.npz")
OBJECTS = ("array", "frame", "arrow table", "record batch")


def stored(folder, form, rows, names, layout=97):
    """The rows in a file or object of this form, in batches of ``layout`` rows where it has any."""
    path = Path(folder) / f"t.{form}"
    table = pa.table([pa.array(c, from_pandas=True) for c in rows.T], names=names)
    if form in ("csv", "tsv", "csv.gz", "tsv.gz"):
        sep = "\t" if "tsv" in form else ","
        pd.DataFrame(rows, columns=names).to_csv(path, index=False, sep=sep, na_rep="NA")
    elif form in ("parquet", "pq"):
        pq.write_table(table, path, row_group_size=layout)
    elif form == "feather":
        feather.write_feather(table, path, chunksize=layout)
    elif form in ("arrow", "ipc"):
        with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, table.schema) as file:
            file.write_table(table, max_chunksize=layout)
    elif form == "npy":
        np.save(path, rows)
    elif form.endswith("npz"):
        np.savez(path, **({"X": rows, "columns": names} if form == "npz" else {"a": rows, "feature_names": names}))
    else:
        return {
            "array": rows,
            "frame": pd.DataFrame(rows, columns=names),
            "arrow table": pa.Table.from_batches(table.to_batches(max_chunksize=layout), table.schema),
            "record batch": table.combine_chunks().to_batches()[0] if len(rows) else table,
        }[form]
    return path


def same_blocks(got, expected):
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert one.rows.dtype == other.rows.dtype
        assert one.rows.flags.c_contiguous
        np.testing.assert_array_equal(one.rows, other.rows)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_every_format_gives_the_same_blocks(data):
    n, d = data.draw(st.sampled_from([0, 1, 7, 256, 300, 700])), data.draw(st.integers(1, 4))
    numbers = st.floats(-1e300, 1e300) | st.just(np.nan) | st.integers(-(2**53) + 1, 2**53 - 1).map(float)
    rows = data.draw(hnp.arrays(float, (n, d), elements=numbers, fill=st.sampled_from([0.1, 3.0, np.nan])))
    layout, block_bytes = data.draw(st.integers(1, 400)), data.draw(st.integers(1, 40_000))
    names = [f"x{i}" for i in range(d)]
    expected = list(ArrayTable(rows, block_bytes=block_bytes).raw_blocks())
    with tempfile.TemporaryDirectory() as folder:
        for form in FILES + OBJECTS:
            table = open_table(stored(folder, form, rows, names, layout), block_bytes=block_bytes)
            assert table.n_rows == n, form
            assert table.columns == tuple(Column(name) for name in names), form
            same_blocks(list(table.raw_blocks()), expected)


@pytest.mark.parametrize("form", FILES + OBJECTS)
def test_columns_are_chosen_and_ordered_by_name(tmp_path, form):
    rows = np.random.default_rng(0).normal(size=(600, 4))
    names = ["x0", "x1", "x2", "x3"]
    source = stored(tmp_path, form, rows, names)
    assert read_columns(source) == tuple(Column(name) for name in names)
    for options, places in (({"columns": ["x2", "x0"]}, [2, 0]), ({"ignore": ["x1"]}, [0, 2, 3])):
        table = open_table(source, **options)
        assert [c.name for c in table.columns] == [names[i] for i in places]
        for _ in range(2):
            (block,) = table.blocks()
            np.testing.assert_array_equal(block.rows, rows[:, places])


@pytest.mark.parametrize("form", FILES + OBJECTS)
@pytest.mark.parametrize("layout", [3, 1000])
def test_every_block_but_the_last_has_one_size(tmp_path, form, layout):
    rows = np.arange(2 * 1500, dtype=float).reshape(1500, 2)
    table = open_table(stored(tmp_path, form, rows, ["x0", "x1"], layout), block_bytes=400 * 2 * 8)
    assert rows_a_block(2, 8, 400 * 2 * 8) == 400
    assert [len(b.rows) for b in table.raw_blocks()] == [400, 400, 400, 300]


MIXED = {
    "age": pa.array([30, None, 51], pa.int32()),
    "sex": pa.array(["m", "f", None]),
    "smokes": pa.array([True, None, False]),
    "ward": pa.array(["a", "b", "a"]).dictionary_encode(),
}
ENCODED = [[30, 0, 1, 1, 1, 0], [np.nan, 1, 0, np.nan, 0, 1], [51, np.nan, np.nan, 0, 1, 0]]


def mixed(folder, form):
    table = pa.table(MIXED)
    if form == "frame":
        return pd.DataFrame({name: column.to_pandas() for name, column in zip(MIXED, table.columns, strict=True)})
    if form == "arrow table":
        return table
    path = Path(folder) / f"mixed.{form}"
    if form == "parquet":
        pq.write_table(table, path)
    elif form == "feather":
        feather.write_feather(table, path)
    else:
        text = "age,sex,smokes,ward\n30,m,True,a\n ,f,,b\n51,null,false,a\n"
        path.write_bytes(gzip.compress(text.encode()) if form.endswith("gz") else text.encode())
    return path


@pytest.mark.parametrize("form", ["frame", "arrow table", "parquet", "feather", "csv", "csv.gz"])
def test_declared_categories_and_booleans_become_zeros_and_ones(tmp_path, form):
    source = mixed(tmp_path, form)
    table = open_table(source, categories={"sex": ["f", "m"], "ward": ["a", "b"]})
    assert [c.name for c in table.columns] == ["age", "sex=f", "sex=m", "smokes", "ward=a", "ward=b"]
    assert all(c.kind == "number" for c in table.columns)
    (block,) = table.raw_blocks()
    np.testing.assert_array_equal(block.rows, ENCODED)
    kinds = {c.name: c.kind for c in read_columns(source)}
    assert kinds == {"age": "number", "sex": "text", "smokes": "number", "ward": "text"}


@pytest.mark.parametrize("values", [[1.0, np.nan, 2.0], [1, None, 2], ["1", None, "2"], pd.Categorical([1, None, 2])])
def test_numbers_may_be_categories_and_are_written_without_a_fraction(values, tmp_path):
    frame = pd.DataFrame({"grade": values, "x": [0.5, 1.5, 2.5]})
    frame.to_csv(tmp_path / "g.csv", index=False)
    for source in (frame, tmp_path / "g.csv"):
        (block,) = open_table(source, categories={"grade": [1, 2]}).raw_blocks()
        np.testing.assert_array_equal(block.rows, [[1, 0, 0.5], [np.nan, np.nan, 1.5], [0, 1, 2.5]])


def test_nan_in_an_array_is_a_missing_category():
    (block,) = open_table(np.array([[1.0], [np.nan]]), categories={"x0": [1]}).raw_blocks()
    np.testing.assert_array_equal(block.rows, [[1], [np.nan]])


def test_a_declared_category_may_look_like_a_missing_value(tmp_path):
    (tmp_path / "t.csv").write_text("area,x\nNA,1\nEU,2\n,3\n")
    (block,) = open_table(tmp_path / "t.csv", categories={"area": ["EU", "NA"]}, columns=["area"]).raw_blocks()
    np.testing.assert_array_equal(block.rows, [[0, 1], [1, 0], [np.nan, np.nan]])


def test_cells_of_a_csv_file_are_read_as_people_write_them(tmp_path):
    text = '\ufeffa,"b, c",d\r\n 1.5 ,+2,1e3\r\nNaN,nan,NA\r\n\r\n"",null,-.5\r\n"3",inf,9007199254740992\r\n'
    (tmp_path / "t.csv").write_text(text)
    table = open_table(tmp_path / "t.csv")
    assert [c.name for c in table.columns] == ["a", "b, c", "d"]
    (block,) = table.raw_blocks()
    nan = np.nan
    np.testing.assert_array_equal(block.rows, [[1.5, 2, 1e3], [nan, nan, nan], [nan, nan, -0.5], [3, np.inf, 2**53]])


def test_an_only_column_has_missing_values_in_empty_lines(tmp_path):
    (tmp_path / "t.csv").write_text("a\n1\n\n3\n")
    (block,) = open_table(tmp_path / "t.csv").raw_blocks()
    np.testing.assert_array_equal(block.rows, [[1], [np.nan], [3]])


@pytest.mark.parametrize("text", ["a,b\n", "a,b", "\n a,b\n\n", "a,b\r\n"])
def test_a_header_alone_is_a_table_without_rows(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    table = open_table(tmp_path / "t.csv")
    assert (table.n_rows, [c.name.strip() for c in table.columns], list(table.blocks())) == (0, ["a", "b"], [])


def test_a_csv_column_is_what_most_of_its_first_cells_are(tmp_path):
    (tmp_path / "t.csv").write_text("n,t,d,e\n?,x,2024-01-05,\n1,2,2024-01-06 10:00,\n2,y,2024-02-01T10:00Z,\n")
    assert [c.kind for c in read_columns(tmp_path / "t.csv")] == ["number", "text", "text", "number"]


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([pa.float32(), pa.float16()], np.float32),
        ([pa.float32(), pa.float64()], np.float64),
        ([pa.float32(), pa.int8()], np.float64),
        ([pa.float32(), pa.null()], np.float64),
        ([pa.bool_()], np.float64),
        ([pa.uint64(), pa.decimal128(5, 2), pa.int64()], np.float64),
    ],
)
def test_blocks_are_single_where_all_columns_are(tmp_path, types, expected):
    values = [pa.nulls(2) if t == pa.null() else pa.array([1, None], pa.float64()).cast(t) for t in types]
    table = pa.table(values, names=[f"c{i}" for i in range(len(types))])
    pq.write_table(table, tmp_path / "t.parquet")
    feather.write_feather(table, tmp_path / "t.feather")
    for source in (table, tmp_path / "t.parquet", tmp_path / "t.feather"):
        (block,) = open_table(source).raw_blocks()
        assert block.rows.dtype == expected
        assert np.isnan(block.rows[1]).all()
        np.testing.assert_array_equal(block.rows[0][[t != pa.null() for t in types]], 1)


@pytest.mark.parametrize("dtype", [">f8", "<f4", "f2", "i8", "u1", "?", "g"])
def test_arrays_of_any_numbers_are_read(tmp_path, dtype):
    rows = np.arange(6).reshape(3, 2).astype(dtype)
    np.save(tmp_path / "t.npy", rows)
    for source in (rows, np.asfortranarray(rows), tmp_path / "t.npy"):
        for options, places in (({}, [0, 1]), ({"columns": ["x1"]}, [1])):
            (block,) = open_table(source, **options).blocks()
            np.testing.assert_array_equal(block.rows, rows[:, places].astype(float))


def test_frames_with_decimals_nullable_numbers_and_an_index_are_read(tmp_path):
    frame = pd.DataFrame(
        {
            7: [decimal.Decimal("1.5"), None],
            "b": pd.array([1, None], "Int64"),
            "c": pd.array([True, None], "boolean"),
        },
        index=["p", "q"],
    )
    frame.columns = frame.columns.map(str)
    frame.to_parquet(tmp_path / "t.parquet")
    for source in (frame, tmp_path / "t.parquet"):
        table = open_table(source)
        assert [c.name for c in table.columns] == ["7", "b", "c"]
        (block,) = table.raw_blocks()
        np.testing.assert_array_equal(block.rows, [[1.5, 1, 1], [np.nan] * 3])


def test_arrays_of_text_may_hold_categories():
    (block,) = open_table(np.array([["f", "a"], ["m", "a"]]), categories={"x0": ["f", "m"], "x1": ["a"]}).blocks()
    np.testing.assert_array_equal(block.rows, [[1, 0, 1], [0, 1, 1]])


def test_a_whole_array_is_not_copied(tmp_path):
    rows = np.ones((10, 2))
    assert np.shares_memory(next(open_table(rows).blocks()).rows, rows)


def test_long_csv_files_are_read_in_several_chunks(tmp_path):
    rows = np.random.default_rng(1).normal(size=(120_000, 3))
    path = tmp_path / "t.csv"
    arrow_csv.write_csv(pa.table(list(rows.T), names=["a", "b", "c"]), path)
    table = open_table(path)
    assert table.n_rows == len(rows)
    np.testing.assert_array_equal(np.concatenate([b.rows for b in table.blocks()]), rows)
    path.write_text(path.read_text() + "1,2,x\n")
    with pytest.raises(InputError, match=r"t.csv: column 'c' holds 'x' in row 120001 among numbers"):
        open_table(path)


def test_rows_of_more_than_a_chunk_are_read_where_the_header_is_long_too(tmp_path):
    names = [f"column_{i:06}" for i in range(6000)]
    line = ",".join(["1." + "5" * 350] * len(names)) + "\n"
    (tmp_path / "t.csv").write_text(",".join(names) + "\n" + line * 3)
    table = open_table(tmp_path / "t.csv", columns=[names[-1], names[1]])
    np.testing.assert_array_equal(next(table.blocks()).rows, np.full((3, 2), 14 / 9))


def test_pandas_is_not_imported_for_arrays():
    code = "import sys, numpy; from coterie.sites.tables import open_table; open_table(numpy.ones((1, 1)))\n"
    subprocess.run([sys.executable, "-c", code + "assert 'pandas' not in sys.modules"], check=True)
