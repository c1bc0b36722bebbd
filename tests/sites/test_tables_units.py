"""Whose each row is: a column that comes with a table and is not among its columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coterie.errors import InputError
from coterie.messages.site_api import units_of
from coterie.sites.tables import ArrayTable, fingerprint, open_table, split_by_site
from coterie.sites.views.units import BoundedTable

CSV = "a,patient,b,site\n1,p1,2,x\n3, p1 ,4,y\n5,,6,x\n7,p2,8,y\n9,p1,10,x\n11,,12,y\n"


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text(CSV)
    return file


def codes(table):
    """Units as small numbers, in order of appearance."""
    units = units_of(table)
    assert units is not None
    first = list(dict.fromkeys(units.codes.tolist()))
    return [first.index(code) for code in units.codes]


def rows(table):
    return np.concatenate([np.zeros((0, len(table.columns))), *(block.rows for block in table.raw_blocks())]).tolist()


def test_the_units_column_comes_with_the_table_and_is_not_among_its_columns(path, tmp_path):
    table = open_table(path, ignore=["site"], unit="patient")
    assert [column.name for column in table.columns] == ["a", "b"]
    assert units_of(table).column == "patient"
    assert codes(table) == [0, 0, 1, 2, 0, 3]  # a missing value is a unit of its own
    assert units_of(open_table(path, ignore=["site", "patient"])) is None
    numbers = pa.table({"a": [1.0, 2.0, 3.0], "patient": [7, 7, None], "b": [0.0, 0.0, 0.0]})
    pq.write_table(numbers, tmp_path / "rows.parquet")
    for source in (tmp_path / "rows.parquet", numbers, numbers.to_pandas()):
        table = open_table(source, unit="patient")
        assert ([column.name for column in table.columns], codes(table)) == (["a", "b"], [0, 0, 1])
    chosen = open_table(path, columns=["b", "a"], unit="patient")
    assert [column.name for column in chosen.columns] == ["b", "a"]
    np.save(tmp_path / "rows.npy", np.array([[1.0, 5.0], [2.0, 5.0], [3.0, np.nan], [4.0, np.nan]]))
    named = open_table(tmp_path / "rows.npy")
    assert codes(open_table(tmp_path / "rows.npy", unit=named.columns[1].name)) == [0, 0, 1, 2]


def test_each_site_of_a_split_table_has_the_units_of_its_rows(path):
    tables = split_by_site(path, "site", unit="patient")
    assert {name: (rows(table), codes(table)) for name, table in tables.items()} == {
        "x": ([[1, 2], [5, 6], [9, 10]], [0, 1, 0]),
        "y": ([[3, 4], [7, 8], [11, 12]], [0, 1, 2]),
    }


def test_the_first_rows_of_each_unit_count(path):
    table = open_table(path, ignore=["site"], unit="patient")
    assert rows(BoundedTable(table, 1)) == [[1, 2], [5, 6], [7, 8], [11, 12]]
    assert rows(BoundedTable(table, 2)) == [[1, 2], [3, 4], [5, 6], [7, 8], [11, 12]]
    assert BoundedTable(table, 2).n_rows == 5
    assert rows(BoundedTable(table, 9)) == rows(table)


def test_other_units_are_other_rows(path):
    by = [open_table(path, ignore=["site", "patient"]), open_table(path, ignore=["site"], unit="patient")]
    by.append(open_table(path, ignore=["patient"], unit="site"))
    assert len({fingerprint(table) for table in by}) == 3


def test_a_column_that_is_not_there_or_cannot_name_anything(path):
    with pytest.raises(InputError, match="there is no column 'person'"):
        open_table(path, unit="person")
    nested = pa.table({"a": [1.0], "patient": [[1]]})
    with pytest.raises(InputError, match="cannot say whose row it is"):
        open_table(nested, unit="patient")
    table = ArrayTable(np.zeros((3, 2)))
    table.units = units_of(open_table(path, ignore=["site"], unit="patient"))
    with pytest.raises(InputError, match="6 units for 3 rows"):
        BoundedTable(table, 1)
