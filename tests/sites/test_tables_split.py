"""One table for each owner of the rows of one file."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import InputError
from coterie.sites.tables import open_table, split_by_site

FORMS = ("csv", "parquet", "feather", "frame", "arrow table")


def stored(folder, form, frame):
    path = folder / f"all.{form}"
    table = pa.Table.from_pandas(frame, preserve_index=False)
    if form == "csv":
        frame.to_csv(path, index=False)
    elif form == "parquet":
        pq.write_table(table, path, row_group_size=77)
    elif form == "feather":
        feather.write_feather(table, path, chunksize=77)
    else:
        return {"frame": frame, "arrow table": table}[form]
    return path


def hospitals(n=1000, seed=0):
    rng = np.random.default_rng(seed)
    who = rng.choice(["south", "north", "Ämter", "10", "9"], size=n)
    return pd.DataFrame(
        {"a": rng.normal(size=n), "where": who, "sex": rng.choice(["f", "m"], size=n), "b": rng.normal(size=n)}
    )


@pytest.mark.parametrize("form", FORMS)
def test_every_site_gets_its_rows_in_order(tmp_path, form):
    frame = hospitals()
    tables = split_by_site(stored(tmp_path, form, frame), "where", categories={"sex": ["f", "m"]}, block_bytes=1)
    assert list(tables) == ["10", "9", "north", "south", "Ämter"]
    for site, table in tables.items():
        own = frame[frame["where"] == site]
        expected = np.column_stack([own["a"], own["sex"] == "f", own["sex"] == "m", own["b"]])
        assert [c.name for c in table.columns] == ["a", "sex=f", "sex=m", "b"]
        assert table.n_rows == len(own)
        for _ in range(2):
            np.testing.assert_array_equal(np.concatenate([b.rows for b in table.blocks()]), expected)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=900), st.integers(1, 9000))
def test_files_and_frames_split_alike_and_nothing_is_lost(tmp_path_factory, sites, block_bytes):
    frame = pd.DataFrame({"x": np.arange(len(sites)) / 7, "site": sites})
    path = stored(tmp_path_factory.mktemp("split"), "parquet", frame)
    streamed, kept = (split_by_site(source, "site", block_bytes=block_bytes) for source in (path, frame))
    assert list(streamed) == list(kept) == sorted(set(sites))
    for site in streamed:
        for one, other in zip(streamed[site].blocks(), kept[site].blocks(), strict=True):
            np.testing.assert_array_equal(one.rows, other.rows)
    assert sum(table.n_rows for table in streamed.values()) == len(sites)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("values", [[1, 2, 1], [1.0, 2.0, 1.0], ["1", "2", "1"]])
def test_numbers_that_name_sites_are_written_without_a_fraction(tmp_path, form, values):
    source = stored(tmp_path, form, pd.DataFrame({"site": values, "x": [1.0, 2.0, 3.0]}))
    tables = split_by_site(source, "site")
    assert {site: next(t.blocks()).rows.ravel().tolist() for site, t in tables.items()} == {"1": [1, 3], "2": [2]}


def test_arrays_in_memory_and_mapped_are_split_too(tmp_path):
    rows = np.array([[1.0, 5.0, 7.0], [2.0, 6.0, 8.0], [1.0, 3.0, 4.0]])
    np.save(tmp_path / "t.npy", rows)
    np.savez(tmp_path / "t.npz", X=rows)
    for source in (rows, tmp_path / "t.npy", tmp_path / "t.npz"):
        tables = split_by_site(source, "x0", columns=["x2", "x0", "x1"])
        assert {s: next(t.blocks()).rows.tolist() for s, t in tables.items()} == {
            "1": [[7, 5], [4, 3]],
            "2": [[8, 6]],
        }


def test_all_sites_together_are_the_table_without_the_column():
    frame = hospitals().drop(columns="sex")
    parts = split_by_site(frame.sort_values("where", kind="stable"), "where")
    whole = open_table(frame.sort_values("where", kind="stable"), ignore=["where"])
    together = np.concatenate([b.rows for t in parts.values() for b in t.blocks()])
    np.testing.assert_array_equal(together, np.concatenate([b.rows for b in whole.blocks()]))


@pytest.mark.parametrize("form", FORMS)
def test_rows_without_a_site_are_counted(tmp_path, form):
    for sites, told in ((["a", None, "b", None], "2 rows"), (["a", "b", "b", None], "1 row")):
        source = stored(tmp_path, form, pd.DataFrame({"where": sites, "x": 1.0}))
        with pytest.raises(
            InputError, match=f"column 'where' names no site in {told}; fill it in, or remove the rows"
        ):
            split_by_site(source, "where")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("sites", "told"),
    [
        ([1.5, 2.0, 3.25], r"column 'where' holds numbers with fractions \('1.5'\), not names of sites"),
        (
            [f"s{i}" for i in range(10_001)],
            "column 'where' names more than 10000 sites; choose the column that names",
        ),
    ],
)
def test_columns_that_name_no_sites(tmp_path, form, sites, told):
    source = stored(tmp_path, form, pd.DataFrame({"where": sites, "x": 1.0}))
    with pytest.raises(InputError, match=told):
        split_by_site(source, "where")


def test_many_sites_are_split_without_delay():
    frame = pd.DataFrame({"where": np.arange(30_000) % 10_000, "x": 1.0})
    assert {t.n_rows for t in split_by_site(frame, "where").values()} == {3}


def test_a_fraction_among_names_is_a_name(tmp_path):
    assert list(split_by_site(pd.DataFrame({"s": ["1.5", "b"], "x": [1, 2]}), "s")) == ["1.5", "b"]


def test_spaces_around_a_site_do_not_make_another(tmp_path):
    (tmp_path / "t.csv").write_text("s,x\na,1\n a ,2\n")
    for source in (tmp_path / "t.csv", pd.DataFrame({"s": ["a", " a "], "x": [1, 2]})):
        assert {s: t.n_rows for s, t in split_by_site(source, "s").items()} == {"a": 2}


def test_other_refusals(tmp_path):
    (tmp_path / "t.csv").write_text("where,x\n")
    for source, column, told in (
        (tmp_path / "t.csv", "where", "t.csv: has no rows, so column 'where' names no sites"),
        (tmp_path / "t.csv", "were", "there is no column 'were'; there are 'where', 'x'"),
        (pa.table({"where": ["a"]}), "where", "no columns are left"),
        (pa.table({"where": [["a"]], "x": [1]}), "where", "which cannot name sites; use text"),
        (pa.table({"where": ["a"], "y": ["u"]}), "where", "column 'y' holds text"),
    ):
        with pytest.raises(InputError, match=told):
            split_by_site(source, column)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_large_file_is_streamed_by_every_site_with_the_same_result(tmp_path, monkeypatch, suffix):
    frame = pd.DataFrame({"site": list("babcab"), "x": np.arange(6.0), "y": np.arange(6) * 10})
    path = tmp_path / f"t.{suffix}"
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    held = split_by_site(path, "site")
    monkeypatch.setattr("coterie.sites.tables.splitting.HELD_TOGETHER", 0)
    monkeypatch.setattr("coterie.sites.tables.rows.HELD_BYTES", 0)
    streamed = split_by_site(path, "site")
    assert list(held) == list(streamed) == ["a", "b", "c"]
    for site, table in streamed.items():
        for _ in range(2):
            rows = np.concatenate([block.rows for block in table.blocks()])
            np.testing.assert_array_equal(rows, np.concatenate([block.rows for block in held[site].blocks()]))
            np.testing.assert_array_equal(rows[:, 0], frame.x[frame.site == site])


def test_a_small_file_is_read_once(tmp_path, monkeypatch):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3,4\n")
    table = open_table(tmp_path / "t.csv")
    first = [block.rows for block in table.blocks()]
    (tmp_path / "t.csv").unlink()
    np.testing.assert_array_equal(np.concatenate([block.rows for block in table.blocks()]), np.concatenate(first))
