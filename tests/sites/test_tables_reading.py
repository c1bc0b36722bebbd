"""How files are read: codes for missing values, transforms, rows divided by their mean, and forms of CSV files."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import InputError
from coterie.maths import exact
from coterie.sites.tables import TableProblems, open_table, read_columns, split_by_site
from coterie.sites.tables.reading import Reading, reading_for
from coterie.sites.tables.transforms import transformed

NAN = np.nan


def rows_of(table):
    return np.concatenate([block.rows for block in table.raw_blocks()])


def names_of(table):
    return [column.name for column in table.columns]


@pytest.mark.parametrize("form", ["csv", "parquet", "frame", "arrow", "array", "feather"])
def test_codes_count_as_missing_before_anything_else(tmp_path, form):
    frame = pd.DataFrame({"chol": [0.0, 233, 0], "age": [0.0, -9, 50]})
    source = {"frame": frame, "arrow": pa.table(frame), "array": frame.to_numpy()}.get(form, tmp_path / f"t.{form}")
    if form == "csv":
        frame.astype(int).to_csv(source, index=False)
    elif form == "parquet":
        pq.write_table(pa.table(frame.astype(int)), source)
    elif form == "feather":
        feather.write_feather(pa.table(frame), source)
    first, second = ("x0", "x1") if form == "array" else ("chol", "age")
    expected = [[NAN, 0], [233, NAN], [NAN, 50]]
    np.testing.assert_array_equal(rows_of(open_table(source, na={first: [0], "*": ["-9", "?"]})), expected)
    np.testing.assert_array_equal(rows_of(open_table(source, na={first: ["0.0"], second: [-9.0]})), expected)
    np.testing.assert_array_equal(rows_of(open_table(source, na=[-9]))[:, 0], [0, 233, 0])
    with pytest.raises(TableProblems, match="there is no column 'pressure'"):
        open_table(source, na={"pressure": [0]})


def test_codes_in_text_columns_and_among_numbers_of_a_csv_file(tmp_path):
    (tmp_path / "t.csv").write_text("n,sex,b\n?,f,true\n ? ,?,?\n3,m,false\n?,x,true\n")
    options = {"categories": {"sex": ["f", "m"]}, "na": {"*": ["?"], "sex": ["x"]}}
    expected = [[NAN, 1, 0, 1], [NAN, NAN, NAN, NAN], [3, 0, 1, 0], [NAN, NAN, NAN, 1]]
    np.testing.assert_array_equal(rows_of(open_table(tmp_path / "t.csv", **options)), expected)
    with pytest.raises(TableProblems) as caught:
        open_table(tmp_path / "t.csv", categories={"sex": ["f", "m"]})
    assert [problem.column for problem in caught.value.problems] == ["n", "b", "sex"]


def test_all_that_is_wrong_with_a_file_is_said_at_once(tmp_path):
    (tmp_path / "t.csv").write_text("id,a,b,sex,d\n9007199254740993,1,2,f,2024-01-01\n2,x,3,g,2024-01-02\n3,4,5,f,\n")
    with pytest.raises(TableProblems) as caught:
        open_table(tmp_path / "t.csv", categories={"sex": ["f"]}, ignore=["none"])
    told = [problem.told() for problem in caught.value.problems]
    assert [text.partition(";")[0] for text in told] == [
        "there is no column 'none'",
        "column 'd' holds dates or times (date32[day]), not numbers",
        "column 'id' holds whole numbers beyond 2**53 (9007199254740993 in row 1), which float64 would round",
        "column 'a' holds 'x' in row 2 among numbers",
        "column 'sex' holds values outside its declared categories in 1 row (first 'g' in row 2",
    ]
    assert all(text in str(caught.value) for text in told)


# ---------------------------------------------------------------- transforms


@given(st.floats(1e-300, 1e300) | st.floats(0.5, 2.0))
def test_the_exact_logarithm_is_that_of_the_library(value):
    assert exact.logarithm(np.array([value]))[0] == pytest.approx(math.log(value), rel=4e-16, abs=2e-16)


@given(st.floats(-0.999999, 1e300) | st.floats(-1e-8, 1e-8))
def test_the_logarithm_of_one_more_keeps_the_digits_of_small_values(value):
    assert transformed(np.array([value]), "log1p")[0] == pytest.approx(math.log1p(value), rel=2e-15, abs=0)


def test_transforms_name_their_columns_and_refuse_values_that_have_none(tmp_path):
    frame = pd.DataFrame({"pm": [1.0, np.e, NAN], "n": [0, 3, 8], "x": [1.0, 2, 3]})
    table = open_table(frame, transforms={"pm": "log", "n": "log1p"})
    assert names_of(table) == ["log(pm)", "log1p(n)", "x"]
    np.testing.assert_allclose(rows_of(table), [[0, 0, 1], [1, np.log(4), 2], [NAN, np.log(9), 3]], rtol=1e-15)
    told = r"column 'n' holds 1 value without a log \(first '0' in row 1\); use another transform, such as log1p, or"
    with pytest.raises(TableProblems, match=told):
        open_table(frame, transforms={"n": "log"})
    np.testing.assert_array_equal(rows_of(open_table(frame, transforms={"n": "log"}, na={"n": [0]}))[0, 1], NAN)
    np.testing.assert_array_equal(rows_of(open_table(frame, columns=["n"], transforms={"n": "sqrt"}))[1], np.sqrt(3))
    forgiven = open_table(frame, transforms={"n": "log"}, unreadable="missing")
    np.testing.assert_array_equal(rows_of(forgiven)[:, 1], [NAN, np.log(3), np.log(8)])


@pytest.mark.parametrize("norm", ["l1", "l2", "mean"])
def test_rows_are_divided_by_their_mean_or_norm(norm):
    from sklearn.preprocessing import normalize

    rows = np.random.default_rng(0).normal(size=(300, 24)) + 3
    expected = rows / rows.mean(axis=1, keepdims=True) if norm == "mean" else normalize(rows, norm)
    frame = pd.DataFrame(rows, columns=[f"h{i}" for i in range(24)]).assign(zone="a")
    table = open_table(frame, normalise_rows=norm, categories={"zone": ["a"]})
    assert names_of(table)[:2] == [f"h0/{norm}(24)", f"h1/{norm}(24)"]
    assert names_of(table)[24:] == ["zone=a"]
    np.testing.assert_allclose(rows_of(table)[:, :24], expected, rtol=1e-13)


def test_a_row_is_divided_by_what_is_present_and_by_zero_it_is_missing():
    rows = np.array([[2.0, 4.0, NAN], [0.0, 0.0, 0.0], [NAN, NAN, NAN], [-1.0, 1.0, 3.0]])
    expected = [[2 / 3, 4 / 3, NAN], [NAN] * 3, [NAN] * 3, [-1, 1, 3]]
    np.testing.assert_array_equal(rows_of(open_table(rows, normalise_rows="mean")), expected)
    np.testing.assert_array_equal(rows_of(open_table(rows.astype("f4"), normalise_rows="mean")), np.float32(expected))


def test_sites_of_one_file_are_read_alike(tmp_path):
    frame = pd.DataFrame({"site": list("abab"), "x": [1.0, 0, 4, 8], "y": [3.0, 1, 4, 0]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = {"na": {"x": [0]}, "transforms": {"y": "sqrt"}, "normalise_rows": "l1"}
    for source in (frame, tmp_path / "t.csv"):
        parts = split_by_site(source, "site", **options)
        for site, part in parts.items():
            own = open_table(frame[frame.site == site].drop(columns="site"), **options)
            assert names_of(part) == names_of(own) == ["x/l1(2)", "sqrt(y)/l1(2)"]
            np.testing.assert_array_equal(rows_of(part), rows_of(own))


def test_the_names_of_a_table_say_how_to_read_another_file():
    held = ["y", "sex", "pm", "x", "log(kept)", "id"]
    frame = pd.DataFrame([[2.0, "f", 3.0, 5.0, 7.0, 1], [1.0, "m", 1.0, 1.0, 1.0, 2]], columns=held)
    how = {"transforms": {"pm": "log1p"}, "normalise_rows": "l2", "categories": {"sex": ["f", "m"]}, "ignore": ["id"]}
    table = open_table(frame, **how)
    found = reading_for(names_of(table), held, {"x": [0]})
    assert found == Reading(
        columns=["y", "sex", "pm", "x", "log(kept)"],
        categories={"sex": ["f", "m"]},
        na={"x": [0]},
        transforms={"pm": "log1p"},
        normalise_rows="l2",
    )
    with pytest.raises(InputError, match="the l2 of 4 columns, of which 3 are left"):
        reading_for(names_of(table)[1:], held, {})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"transforms": {"a": "exp"}}, "the transform of 'a' is 'exp'; use log, log1p, sqrt"),
        ({"transforms": {"a": "log"}, "categories": {"a": [1]}}, "has categories and a transform"),
        ({"transforms": {"z": "log"}}, "there is no column 'z'"),
        ({"normalise_rows": "max"}, "normalise_rows='max'; use l1, l2, mean"),
        ({"normalise_rows": "mean", "categories": {"a": [1]}}, "there is no column of numbers"),
        ({"na": {"a": "0"}}, "na of 'a' is '0'; give a list of values"),
        ({"csv_separator": ";;"}, "csv_separator=';;' is not one character"),
        ({"csv_decimal": "'"}, 'csv_decimal="\'"; use'),
        ({"csv_encoding": "utf-99"}, "csv_encoding='utf-99' is unknown"),
    ],
)
def test_options_that_cannot_be(options, told):
    with pytest.raises(InputError) as caught:
        open_table(pd.DataFrame({"a": [1.0]}), **options)
    assert told in str(caught.value)


# ---------------------------------------------------------------- forms of CSV files

TABLE = [[1.5, -2.25, 3, "f"], [1e-3, NAN, 4, "m"], [1234.5, 0.5, 5, "f"]]


def text_of(separator, decimal):
    def cell(value):
        return "" if value != value else str(value).replace(".", decimal) if isinstance(value, float) else str(value)

    lines = [["größe", "b", "n", "sex"], *[[cell(value) for value in row] for row in TABLE]]
    return "".join(separator.join(line) + "\n" for line in lines)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252", "latin-1"])
@pytest.mark.parametrize(("separator", "decimal"), [(",", "."), (";", "."), (";", ","), ("\t", ","), ("|", ".")])
def test_the_form_of_a_csv_file_is_found_and_told(tmp_path, separator, decimal, encoding):
    path = tmp_path / "t.csv"
    path.write_bytes(text_of(separator, decimal).encode(encoding))
    options = {"categories": {"sex": ["f", "m"]}}
    expected = [[1.5, -2.25, 3, 1, 0], [1e-3, NAN, 4, 0, 1], [1234.5, 0.5, 5, 1, 0]]
    table = open_table(path, **options)
    assert names_of(table) == ["größe", "b", "n", "sex=f", "sex=m"]
    np.testing.assert_array_equal(rows_of(table), expected)
    assert ("decimal commas" in table.form) == (decimal == ",")
    assert (f"the separator {separator!r}" in table.form) == (separator != ",")
    assert ("the encoding" in table.form) == (not encoding.startswith("utf-8"))
    told = {"csv_separator": separator, "csv_decimal": decimal, "csv_encoding": encoding}
    np.testing.assert_array_equal(rows_of(open_table(path, **options, **told)), expected)


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        ("a\n1,5\n2,5\n", ["a"], [[1.5], [2.5]]),
        ("a;b\n1,5;2,3\n", ["a", "b"], [[1.5, 2.3]]),
        ("a,b\n1.5,2\n", ["a", "b"], [[1.5, 2]]),
        ('a,b\n"1,5",2\n"0,25",3\n', ["a", "b"], [[1.5, 2], [0.25, 3]]),
        ('"x;y",b\n1,2\n', ["x;y", "b"], [[1, 2]]),
        ('a;b\n"1;5";2\n', None, None),
        ("a;b\n1.000;2\n", ["a", "b"], [[1, 2]]),
        ("a;b\n0,123;2\n4,567;3\n", ["a", "b"], [[0.123, 2], [4.567, 3]]),
        ("a;b", ["a", "b"], []),
        ("a|b\n1|2\n", ["a", "b"], [[1, 2]]),
    ],
)
def test_forms_that_only_rows_show(tmp_path, text, names, rows):
    (tmp_path / "t.csv").write_text(text)
    if names is None:
        assert [column.kind for column in read_columns(tmp_path / "t.csv")] == ["text", "number"]
        return
    table = open_table(tmp_path / "t.csv")
    assert names_of(table) == names
    found = np.concatenate([np.zeros((0, len(names))), *(block.rows for block in table.blocks())])
    assert found.tolist() == rows


@pytest.mark.parametrize("cell", ["1.5", "1.234,5", "12,5,1"])
def test_with_decimal_commas_a_point_is_none(tmp_path, cell):
    (tmp_path / "t.csv").write_text("a;b\n" + "1,5;2\n" * 3 + f"{cell};2\n")
    with pytest.raises(InputError) as caught:
        open_table(tmp_path / "t.csv", csv_decimal=",")
    assert f"column 'a' holds {cell!r} in row 4 among numbers" in str(caught.value)


def test_where_no_cell_may_decide_the_header_does(tmp_path):
    path = tmp_path / "t.csv"
    rows = "".join(f"{i},5;{i}\n" for i in range(5))
    path.write_text("a;b\n" + rows)
    table = open_table(path, unreadable="missing")
    np.testing.assert_array_equal(rows_of(table), [[NAN, i] for i in range(5)])
    np.testing.assert_array_equal(
        rows_of(open_table(path, unreadable="missing", csv_decimal=","))[:, 0], np.arange(5) + 0.5
    )
    path.write_bytes(b"a,b\n1,2\n\xfc,3\n")
    with pytest.raises(InputError, match="csv_encoding"):
        open_table(path, unreadable="missing")
    given = open_table(path, unreadable="missing", csv_encoding="latin-1")
    np.testing.assert_array_equal(rows_of(given), [[1, 2], [NAN, 3]])
