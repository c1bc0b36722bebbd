"""Values that cannot be read count as missing where a refusal would tell of a row."""

from __future__ import annotations

import csv

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import InputError
from coterie.sites.installed import Holdings
from coterie.sites.tables import open_table
from coterie.sites.tables.rows import scan_table

CELLS = ["1", " 2.5 ", "+3", "-.5", "1e400", "9007199254740993", "", "NA", "nan", "inf", "x", "12,5", "1_0", "True",
         "false", "2024-01-01", "0x1p3", "a\nb", "é"]  # fmt: skip
SEXES = ["f", "m", "F", "f ", "", "NA", "1", "1.0", "other"]
CATEGORIES = {"sex": ["f", "m", "1"]}
POLICY = 'protection = "noise"\n[privacy]\nepsilon = 1.0\n'


def write_csv(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "age", "sex", "b"], *rows])
    return path


def rows_of(table):
    blocks = [block.rows for block in table.raw_blocks()]
    return np.concatenate(blocks) if blocks else np.zeros((0, len(table.columns)))


def forgiving(path):
    return open_table(path, key="id", categories=CATEGORIES, unreadable="missing")


CELL = st.one_of(st.sampled_from(CELLS), st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["", "p", "q"]), CELL, st.sampled_from(SEXES), CELL), max_size=8))
def test_any_cells_make_a_table_and_a_row_depends_on_no_other(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("cells")
    table = forgiving(write_csv(folder / "all.csv", rows))
    scan_table(table, refuses=False)
    alone = [rows_of(forgiving(write_csv(folder / "one.csv", [row]))) for row in rows]
    assert [c.name for c in table.columns] == ["age", "sex=f", "sex=m", "sex=1", "b"]
    np.testing.assert_array_equal(rows_of(table), np.concatenate([*alone, np.zeros((0, 5))]))


def test_what_becomes_of_a_cell(tmp_path):
    rows = [[str(i), cell, "f", "1"] for i, cell in enumerate(CELLS)]
    age = rows_of(forgiving(write_csv(tmp_path / "t.csv", rows)))[:, 0]
    nan = np.nan
    expected = [1, 2.5, 3, -0.5, np.inf, 2.0**53, nan, nan, nan, np.inf, nan, nan, 10, 1, 0, nan, nan, nan, nan]
    np.testing.assert_array_equal(age, expected)


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()])
def test_typed_files(tmp_path, kind):
    table = pa.table({"age": pa.array([1, 2**60, None], kind), "sex": ["f", "x", None]})
    pq.write_table(table, tmp_path / "t.parquet")
    rows = rows_of(open_table(tmp_path / "t.parquet", categories={"sex": ["f", "m"]}, unreadable="missing"))
    nan = np.nan
    np.testing.assert_array_equal(rows, [[1, 1, 0], [2.0**60, nan, nan], [nan, nan, nan]])


def test_an_installed_site_opens_such_a_table_under_noise_only(tmp_path):
    (tmp_path / "noise.toml").write_text(POLICY)
    data = write_csv(tmp_path / "t.csv", [["", "x", "?", "9007199254740993"], ["1", "50", "f", "1"]])
    options = {"key": "id", "categories": CATEGORIES}
    held = Holdings(str(data), str(tmp_path / "noise.toml"), **options)
    assert held.table().n_rows == 2
    assert "'x' in row 1" in held.unreadable()
    with pytest.raises(InputError):
        Holdings(str(data), "standard", **options).table()
