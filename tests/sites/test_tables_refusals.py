"""What cannot be read ends in one sentence that says what is wrong and how to go on."""

from __future__ import annotations

import contextlib
import datetime
import re
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from coterie.errors import InputError, MissingValues
from coterie.sites.tables import open_table, read_columns


def refused(source, told, **options):
    """One short sentence that begins with the table's name and holds ``told``."""
    with pytest.raises(InputError, match=re.escape(told)) as caught:
        open_table(source, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 400
    assert caught.value.__cause__ is None
    return text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sex,x\nf,1\nm,2\n", "t.csv: column 'sex' holds text ('f' in row 1); declare its "
         "values in 'categories', or add the column to 'ignore'"),
        ("a b\n\nf\n", "column 'a b' holds text ('f' in row 2); declare its "
         "values in 'categories', or add the column to 'ignore'"),
        ("x,y\n" + "1,2\n" * 2000 + '"12,5",3\n', "t.csv: column 'x' holds '12,5' in row 2001 among numbers; correct "
         "it, write decimals with a point or say csv_decimal=',', name it in 'na' or leave the cell empty if the "
         "value is missing, or add the column to 'ignore'"),
        ("x,y\n1,2\n2,3\nn/a?,3\n", "t.csv: column 'x' holds 'n/a?' in row 3 among numbers; correct it, name it in "
         "'na' or leave the cell empty"),
        ('x,y\n1,2.5\n"12,5",3\n', "t.csv: the decimal sign may be a comma or a point ('12,5' in column 'x' and "
         "'2.5' in column 'y'); say which, such as csv_decimal=','"),
        ("x;y\n1,234;2\n", "the decimal sign may be a comma or a point ('1,234' in column 'x')"),
        ("a,b;c,d\n1,2;3,4\n", "t.csv: the separator may be ',' (3 columns) or ';' (2 columns); say which, "
         "such as csv_separator=';'"),
        ("x\n" + "1\n" * 2000 + "2024-01-01\n", "column 'x' holds '2024-01-01' in row 2001 among numbers"),
        ("x\ntrue\nFALSE\n" + "true\n" * 2000 + "1\n", "column 'x' holds '1' in row 2003 among true and false"),
        ("id,x\n1,2\n9007199254740993,3\n", "column 'id' holds whole numbers beyond 2**53 "
         "(9007199254740993 in row 2)"),
        ("id\n-123456789012345678901234567890\n", "beyond 2**53 (-123456789012345678901234567890 in row 1)"),
        ("seen,x\n2024-01-05,1\n", "column 'seen' holds dates or times (date32[day]), not numbers"),
        ("seen,x\n05/01/2024,1\n", "column 'seen' holds dates or times"),
        ("a,b,a\n1,2,3\n", "t.csv: 2 columns are named 'a'; give every column its own name"),
        ("a,b,a", "t.csv: 2 columns are named 'a'"),
        (",a\n0,1\n", "column 1 has no name (pandas writes its index so; use index=False)"),
        ("\n\n \n", "t.csv: is empty; add a first line with the names of the columns"),
        ("a,b\n1,2\n3\n", "t.csv: row 2 has 1 cell where the header has 2 ('3'); correct it"),
        ("a,b\n1,2\n3,4\n5,6,7\n", "t.csv: row 3 has 3 cells where the header has 2 ('5,6,7'); correct it"),
        ("a,b\n1,2\n3," + "4" * 10_000_000 + "\n5,6\n", "a row is longer than 1 MB, or a quotation mark is not "
         "closed"),
        ("a,b\n" + "x" * 100 + ",2\n", "holds text ('" + "x" * 37 + "...' in row 1)"),
    ],
)  # fmt: skip
def test_csv_files_that_cannot_be_used(tmp_path, text, told):
    (tmp_path / "t.csv").write_text(text)
    refused(tmp_path / "t.csv", told)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\x7fELF\x02\x01\x01\0\0\0", "t.csv: holds bytes that are not text in UTF-8, UTF-16 or Windows-1252; if it "
         "is text, say in which encoding, such as csv_encoding='latin-1'"),
        ("a,b\n1,2\n".encode("utf-16-le"), "say in which encoding, such as csv_encoding="),
        (b"a\x81,b\n1,2\n", "not text in UTF-8, UTF-16 or Windows-1252"),
        (b"a,b\n" + b"1,2\n" * 500_000 + b"\xff,2\n", "t.csv: holds text that is not in the encoding utf-8; say "
         "csv_encoding='latin-1', for example, or save it in UTF-8"),
    ],
)  # fmt: skip
def test_binary_files_are_no_csv(tmp_path, content, told):
    (tmp_path / "t.csv").write_bytes(content)
    refused(tmp_path / "t.csv", told)


def test_row_numbers_count_rows_of_data_in_long_files(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n" + "1.25,2.25\n" * 900_000 + "1\n")
    refused(tmp_path / "t.csv", "t.csv: row 900001 has 1 cell where the header has 2")


@pytest.mark.parametrize("suffix", ["csv.gz", "parquet", "feather", "npy", "npz"])
def test_files_that_are_not_what_they_are_called(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    path.write_text("a,b\n1,2\n" * 100)
    text = refused(path, f"t.{suffix}: not a readable ")
    assert text.endswith("write it again, or use the suffix of its format")
    with pytest.raises(InputError, match="not a readable"):
        read_columns(path)


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet", "feather", "npy", "npz"])
def test_files_of_no_bytes(tmp_path, suffix):
    (tmp_path / f"t.{suffix}").touch()
    refused(tmp_path / f"t.{suffix}", f"t.{suffix}: is empty (0 bytes); write it again")


@pytest.mark.parametrize("suffix", ["csv.gz", "parquet", "feather", "npy", "npz"])
def test_files_cut_short_or_damaged_never_end_in_another_error(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 9, size=(2000, 3)).astype(float)
    frame = pd.DataFrame(rows, columns=["x0", "x1", "x2"])
    {
        "csv.gz": lambda: frame.to_csv(path, index=False),
        "parquet": lambda: pq.write_table(pa.table(frame), path, row_group_size=500),
        "feather": lambda: feather.write_feather(pa.table(frame), path, chunksize=500),
        "npy": lambda: np.save(path, rows),
        "npz": lambda: np.savez_compressed(path, X=rows),
    }[suffix]()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    refused(path, f"t.{suffix}: not a readable ")
    for _ in range(60):
        broken = bytearray(whole)
        for place in rng.integers(0, len(whole), 4):
            broken[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(broken)
        with contextlib.suppress(InputError):
            list(open_table(path).blocks())


def test_paths_that_lead_nowhere(tmp_path):
    (tmp_path / "t.xlsx").write_text("x")
    (tmp_path / "noend").write_text("x")
    (tmp_path / "d.csv").mkdir()
    refused(tmp_path / "no.csv", f"{tmp_path}/no.csv: there is no such file")
    refused(str(tmp_path / "no.csv"), "there is no such file")
    refused(tmp_path, "is a directory; give a file")
    refused(tmp_path / "d.csv", "is a directory")
    refused(tmp_path / "t.xlsx", "the suffix '.xlsx' is unknown; use one of .parquet, .pq, .csv, ")
    refused(tmp_path / "noend", "the suffix '' is unknown")
    refused("a\0b.csv", "there is no such file")


def test_columns_that_are_not_there_are_met_with_the_nearest_names(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({n: [1.0] for n in ["bmi", "weight", "age", "a1", "a2", "a3", "a4", "a5"]}), path)
    for options in ({"columns": ["agee"]}, {"ignore": ["agee"]}, {"categories": {"agee": ["x"]}}):
        text = refused(path, "t.parquet: there is no column 'agee'; there are 'age', ", **options)
        assert text.endswith(" and 2 more")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"columns": []}, "'columns' is empty; name at least one column"),
        ({"columns": ["a", "b", "a"]}, "column 'a' is named 2 times; name it once"),
        ({"columns": ["a"], "ignore": ["a"]}, "column 'a' is in both 'columns' and 'ignore'; remove it from one"),
        ({"columns": "a"}, "columns='a' is text; give a list of names"),
        ({"ignore": "a"}, "ignore='a' is text; give a list of names"),
        ({"ignore": ["a", "b"]}, "no columns are left of its 2; ignore fewer"),
        ({"categories": {"b": []}}, "column 'b' holds text ('x' in row 1); declare its values in 'categories'"),
        ({"categories": {"b": "xy"}}, "categories of 'b' are 'xy'; give a list"),
        ({"categories": {"b": ["x", "x"]}}, "give a list of distinct values"),
    ],
)
def test_choices_that_make_no_table(options, told):
    refused(pa.table({"a": [1.0], "b": ["x"]}), told, **options)


def test_encoded_columns_need_their_own_names():
    table = pa.table({"sex=f": [1.0], "sex": ["f"]})
    refused(table, "2 columns are named 'sex=f'", categories={"sex": ["f", "m"]})


def test_values_outside_the_declared_categories_are_counted(tmp_path):
    values = ["f", "m", None] * 6000 + ["x"] + ["f"] * 17_000 + ["y", "x"]
    frame = pd.DataFrame({"sex": values, "n": 1.0})
    frame.to_csv(tmp_path / "t.csv", index=False)
    pq.write_table(pa.table(frame), tmp_path / "t.parquet", row_group_size=999)
    for source in (tmp_path / "t.csv", tmp_path / "t.parquet", frame, frame.astype({"sex": "category"})):
        told = (
            "column 'sex' holds values outside its declared categories in 3 rows (first 'x' in row 18001; "
            "declared: 'f', 'm'); declare every category, correct the rows, or add the column to 'ignore'"
        )
        refused(source, told, categories={"sex": ["f", "m"]})
    refused(frame, "in 1 row (first 'y' in row 35002", categories={"sex": ["f", "m", "x"]})


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 2**63 - 1])
def test_whole_numbers_that_float64_cannot_hold(tmp_path, value):
    table = pa.table({"id": [1, None, value], "x": [1.0, 2.0, 3.0]})
    pq.write_table(table, tmp_path / "t.parquet")
    array = np.array([[1, 2], [3, value]])
    for source in (table, tmp_path / "t.parquet", table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)):
        refused(source, f"column 'id' holds whole numbers beyond 2**53 ({value} in row 3)")
        assert open_table(source, ignore=["id"]).n_rows == 3
    refused(array, f"column 'x1' holds whole numbers beyond 2**53 ({value} in row 2)")
    refused(array.astype(object), f"column 'x1' holds whole numbers beyond 2**53 ({value} in row 2)")


@pytest.mark.parametrize("kind", [pa.uint64(), pa.decimal128(20, 0), pa.decimal256(40, 0)])
def test_wide_kinds_are_looked_at_too(kind):
    fits = pa.array([2**53, None], pa.int64()).cast(kind if pa.types.is_integer(kind) else pa.decimal128(20, 0))
    (block,) = open_table(pa.table({"id": fits.cast(kind)})).raw_blocks()
    assert block.rows[0, 0] == 2**53
    large = pa.array([2**53 + 1], pa.int64()).cast(fits.type).cast(kind)
    refused(pa.table({"id": large}), "column 'id' holds whole numbers beyond 2**53 (9007199254740993 in row 1)")


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (pa.array([datetime.date(2024, 1, 5)]), "dates or times (date32[day]), not numbers"),
        (pa.array([0], pa.timestamp("us", "UTC")), "dates or times (timestamp[us, tz=UTC]), not numbers"),
        (pa.array([0], pa.duration("s")), "dates or times (duration[s]), not numbers"),
        (pa.array([[1.0]]), "list<"),
        (pa.array([b"x"]), "binary, neither numbers nor text"),
        (pa.array([{"a": 1}]), "struct<a: int64>, neither numbers nor text"),
        (pa.nulls(1, pa.string()), "text; declare its values in 'categories'"),
        (pa.array(["1.5"]), "text; declare its values in 'categories'"),
        (pa.array(["f"]).dictionary_encode(), "text ('f' in row 1); declare its values in 'categories'"),
    ],
)
def test_columns_of_other_kinds(tmp_path, values, told):
    table = pa.table({"seen": values, "x": [1.0]})
    pq.write_table(table, tmp_path / "t.parquet")
    feather.write_feather(table, tmp_path / "t.feather")
    for source in (table, tmp_path / "t.parquet", tmp_path / "t.feather"):
        refused(source, f"column 'seen' holds {told}")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ([[1.0]], "table: a table cannot be read from list; give a path, a 2-d numpy array, a pandas DataFrame"),
        (None, "a table cannot be read from NoneType"),
        (np.ones(3), "the array has 1 axes; a table needs two, rows and columns"),
        (np.ma.masked_invalid(np.ones((2, 2))), "is a masked array; fill the masked values with NaN first"),
        (np.array([["f"]]), "column 'x0' holds text ('f' in row 1)"),
        (np.array([[1, "f"]], dtype=object), "column 'x1' holds text ('f' in row 1)"),
        (np.array([["2024-01-05"]], "M8[D]"), "column 'x0' holds dates or times (date32[day])"),
        (np.array([[1j]]), "column 'x0' (complex128) mixes types or holds neither numbers nor text"),
        (pd.DataFrame({"a": [1, "f"]}), "column 'a' (object) mixes types"),
        (pd.DataFrame({"a": [2**70, 1]}), "column 'a' (object) mixes types"),
        (pd.DataFrame({"a": pd.to_datetime(["2024-01-05"])}), "column 'a' holds dates or times (timestamp["),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "2 columns are named 'a'"),
        (pd.DataFrame([[1, 2]], columns=[1, "1"]), "2 columns are named '1'"),
        (pa.table([[1], [2]], names=["a", "a"]), "2 columns are named 'a'"),
        (np.ones((2, 0)), "no columns are left"),
    ],
)
def test_objects_that_are_no_tables(source, told):
    refused(source, told)


def test_duplicate_names_in_files(tmp_path):
    table = pa.table([[1], [2]], names=["a", "a"])
    pq.write_table(table, tmp_path / "t.parquet")
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as out, pa.ipc.new_file(out, table.schema) as file:
        file.write_table(table)
    for path in (tmp_path / "t.parquet", tmp_path / "t.arrow"):
        refused(path, "2 columns are named 'a'; give every column its own name")


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"X": np.ones(3)}, "t.npz: holds 0 2-d arrays (none), none of which is named 'X'; save the rows as a "
         "2-d array 'X'"),
        ({"a": np.ones((1, 1)), "b": np.ones((1, 1))}, "t.npz: holds 2 2-d arrays ('a', 'b'), none of which "
         "is named 'X'"),
        ({"X": np.ones((1, 2)), "columns": ["a"]}, "t.npz: 'columns' holds 1 names for 2 columns; give one "
         "per column"),
        ({"X": np.ones((1, 2)), "columns": ["a", "a"]}, "2 columns are named 'a'"),
        ({"X": np.array([[1, "f"]], dtype=object)}, "t.npz: holds Python objects, which are not read; "
         "save numbers or text"),
        ({"X": np.ones((1, 1)), "columns": np.array(["a"], object)}, "t.npz: holds Python objects"),
    ],
)  # fmt: skip
def test_archives_without_a_table(tmp_path, arrays, told):
    np.savez(tmp_path / "t.npz", **arrays)
    refused(tmp_path / "t.npz", told)


def test_archives_that_are_no_numpy(tmp_path):
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("X.npy", "hello, this is no array")
    refused(tmp_path / "t.npz", "t.npz: not a readable archive")
    np.save(tmp_path / "o.npy", np.array([[None]]))
    refused(tmp_path / "o.npy", "o.npy: holds Python objects, which are not read; save numbers or text")


def test_a_given_name_is_the_one_in_messages(tmp_path):
    (tmp_path / "t.csv").write_text("a\nx\n")
    assert refused(tmp_path / "t.csv", "column 'a'", name="berlin").startswith("berlin: ")
    with pytest.raises(MissingValues, match="berlin: column 'x0' holds missing"):
        list(open_table(np.full((1, 1), np.nan), name="berlin").blocks())


def test_missing_values_are_refused_by_blocks_only(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n,3\n")
    table = open_table(tmp_path / "t.csv")
    assert len(list(table.raw_blocks())) == 1
    with pytest.raises(MissingValues, match=r"t.csv: column 'a' holds missing"):
        list(table.blocks())


@pytest.mark.parametrize("more", ["1\n", "1\n2\n3\n", "1\n" * 3000])
def test_a_file_that_changes_is_noticed(tmp_path, more):
    (tmp_path / "t.csv").write_text("a\n1\n2\n")
    table = open_table(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("a\n" + more)
    with pytest.raises(InputError, match="no longer has its 2 rows; open the file again"):
        list(table.blocks())
