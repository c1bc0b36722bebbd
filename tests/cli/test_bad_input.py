"""Bad input ends in one clear sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coterie.cli.jobs import Job
from coterie.cli.remote_jobs import remote_job
from coterie.errors import InputError
from tests.cli.conftest import FILES, write_csv
from tests.orders import ANALYST

# ---------------------------------------------------------------- bad input


def cut_parquet(path):
    pq.write_table(pa.table({"a": np.arange(100.0)}), path)
    path.write_bytes(path.read_bytes()[:200])


BAD = {
    "an empty file": (lambda: Path("bad.csv").write_bytes(b""), "bad.csv", "empty"),
    "a file that is not there": (lambda: None, "nowhere.csv", "no such file"),
    "a directory": (lambda: Path("bad.csv").mkdir(), "bad.csv", "folder|director"),
    "a zero-byte Parquet": (lambda: Path("bad.parquet").write_bytes(b""), "bad.parquet", "empty|not a readable"),
    "a Parquet cut short": (lambda: cut_parquet(Path("bad.parquet")), "bad.parquet", "not a readable"),
    "an unknown ending": (lambda: Path("bad.xyz").write_text("a\n1\n"), "bad.xyz", "xyz"),
    "a text column": (lambda: write_csv("bad.csv", [("x", 1.0, 2.0)]), "bad.csv", "column 'a' holds text"),
    "stray text": (lambda: write_csv("bad.csv", [(1.0, 2.0, 3.0), (1.0, "n/a?", 3.0)]), "bad.csv", "'b'"),
    "a missing value": (
        lambda: write_csv("bad.csv", [(1.0, "", 3.0)] * 4),
        "bad.csv",
        "holds 4 missing values; pass --missing",
    ),
    "an infinite value": (lambda: write_csv("bad.csv", [(1.0, "inf", 3.0)]), "bad.csv", "infinite"),
    "a doubled column": (lambda: write_csv("bad.csv", [(1.0, 2.0, 3.0)], ("a", "a", "c")), "bad.csv", "'a'"),
    "a missing column": (
        lambda: write_csv("bad.csv", [(1.0, 2.0)], ("b", "a")),
        "bad.csv",
        "north.csv: column 'c' is not in bad.csv; to use the columns that all files have: --columns a,b",
    ),
    "one column more": (
        lambda: write_csv("bad.csv", [(1.0,) * 4], ("d", "a", "b", "c")),
        "bad.csv",
        "bad.csv: column 'd' is not in north.csv; to use the columns that all files have: --columns a,b,c",
    ),
    "no column of the others": (
        lambda: write_csv("bad.csv", [(1.0,)], ("d",)),
        "bad.csv",
        "no column is in all of the files north.csv, bad.csv",
    ),
    "a huge integer": (lambda: write_csv("bad.csv", [(2**70, 1.0, 2.0)]), "bad.csv", "'a'"),
    "ragged rows": (lambda: Path("bad.csv").write_text("a,b,c\n1,2\n3,4,5\n"), "bad.csv", "bad.csv"),
    "binary rubbish": (lambda: Path("bad.csv").write_bytes(bytes(range(256)) * 20), "bad.csv", "bad.csv"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_ends_in_one_clear_sentence_and_nothing_half_written(cli, three, tmp_path, name):
    import re

    make, path, told = BAD[name]
    make()
    before = sorted(p.name for p in tmp_path.iterdir())
    code, out, err = cli("cluster", "north.csv", path, "-k", 2, "--policy", "simulation", "--out", "run")
    assert code == 2, err
    assert err.count("error:") == 1
    assert len(err.strip().splitlines()[-1]) < 400
    assert re.search(told, err), err
    assert "Traceback" not in err + out
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_all_problems_of_all_files_are_told_at_once_with_the_options_that_solve_them(cli, three, tmp_path):
    write_csv("bad.csv", [("x", 1.0, "f", ""), ("y", 2.0, "m", 3.0)], ("id", "b", "sex", "a"))
    write_csv("worse.csv", [(1.0, "f", "?", 2**60), (2.0, "f", 3.0, 1)], ("a", "sex", "b", "n"))
    words = ("cluster", "bad.csv", "worse.csv", "nowhere.csv", "-k", 1, "--policy", "simulation", "--out", "run")
    code, _, err = cli(*words)
    assert code == 2
    for told in (
        "nowhere.csv: there is no such file",
        "bad.csv: column 'id' is not in worse.csv",
        "worse.csv: column 'n' is not in bad.csv",
        "worse.csv: column 'b' holds '?' in row 1 among numbers; correct it, pass --na 'b=?' or leave",
        "bad.csv: column 'a' holds 1 missing value",
        "pass --columns b,sex,a --na '?' --missing mean (or --missing drop)",
    ):
        assert told in err, err
    assert err.count("error:") == 1
    assert not Path("run").exists()
    words = [word for word in words if word != "nowhere.csv"]
    solved = ["--columns", "b,sex,a", "--missing", "mean", "--na", "b=?"]
    assert cli(*words, *solved)[0] == 0
    Path("job.toml").write_text('data = ["bad.csv", "worse.csv"]\nclusters = 1\npolicy = "simulation"\n')
    err = cli("run", "job.toml")[2]
    assert (
        """add:
  columns = ["b", "sex", "a"]
  na = { "*" = ["?"] }
  missing = 'mean' (or missing = 'drop')"""
        in err
    )
    assert 'add na = { b = ["?"] }' in err


def test_columns_are_matched_by_name_in_any_order(cli, three, tmp_path):
    rows = np.loadtxt("south.csv", delimiter=",", skiprows=1)
    whole = json.loads(cli("cluster", *FILES, "-k", 3, "--out", "whole", "--json")[1])
    write_csv(
        "south.csv", np.c_[rows[:, 2], np.arange(50.0), rows[:, 0], rows[:, 1]].tolist(), ("c", "extra", "a", "b")
    )
    assert "--columns a,b,c" in cli("cluster", *FILES, "-k", 3, "--out", "other")[2]
    for options in (["--columns", "a,b,c"], ["--ignore", "extra"]):
        code, out, err = cli("cluster", *FILES, "-k", 3, "--out", options[0][2:], "--json", *options)
        assert code == 0, err
        np.testing.assert_allclose(json.loads(out)["centers"], whole["centers"], rtol=0, atol=1e-5)


def test_small_and_odd_tables_work_or_say_why(cli, tmp_path):
    def cluster(*words):
        return cli("cluster", *words, "--policy", "simulation")

    write_csv("one.csv", [(1.0, 2.0, 3.0)])
    write_csv("none.csv", [])
    write_csv("flat.csv", [(1.0, 5.0, float(i)) for i in range(9)])
    code, _, err = cluster("one.csv", "-k", 2, "--out", "a")
    assert code == 2
    assert "the sites hold 1 rows in all; n_clusters=2 needs at least as many" in err
    assert not (tmp_path / "a").exists()
    assert cluster("one.csv", "-k", 1, "--out", "b")[0] == 0
    assert cluster("flat.csv", "one.csv", "-k", 3, "--scale", "standard", "--out", "c")[0] == 0
    code, _, err = cluster("none.csv", "-k", 1, "--out", "d")
    assert code == 2
    assert "hold 0 rows" in err
    assert cluster("none.csv", "flat.csv", "-k", 2, "--out", "e")[0] == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-k", "2", "--method", "kmeans"], "there is no method 'kmeans'"),
        (["-k", "2", "--scale", "log"], "scale='log' is unknown; use none, standard, columns, robust or minmax"),
        (["-k", "2", "--scale", "minmax"], "needs a range for every column"),
        (["-k", "2", "--missing", "guess"], "missing='guess'"),
        (["-k", "2", "--columns", "a,z"], "'z'"),
        (["-k", "2", "--categories", "a="], "COLUMN=VALUE,VALUE"),
        (["-k", "2", "--categories", "a"], "column 'a' has no value that"),
        (["-k", "2", "--site-column", "a", "south.csv"], "a site column needs exactly one file"),
        (["-k", "2", "sub/north.csv"], "would both be site 'north'"),
        (["-k", "2", "--resume"], "holds no run to resume"),
        (["-k", "2", "--out", "south.csv"], "--out needs a folder"),
        (["-k", "2", "--out", "south.csv", "--resume"], "--out needs a folder"),
    ],
)
def test_options_that_cannot_be_are_named(cli, three, tmp_path, words, told):
    code, _, err = cli("cluster", "north.csv", *words)
    assert code == 2
    assert told in err
    assert not (tmp_path / "coterie-run").exists()


def test_a_finished_run_is_not_overwritten(cli, three):
    assert cli("cluster", *FILES, "-k", 2, "--out", "run")[0] == 0
    code, _, err = cli("cluster", *FILES, "-k", 2, "--out", "run")
    assert code == 2
    assert "already holds a finished run" in err


def test_ctrl_c_leaves_a_journal_that_resumes_to_the_same_result(cli, three, tmp_path, monkeypatch):
    from coterie.runtime.run import Run

    whole = json.loads(cli("cluster", *FILES, "-k", 3, "--out", "whole", "--json")[1])
    original = Run.gather

    def interrupted(self, question):
        if self.round == 4:
            raise KeyboardInterrupt
        return original(self, question)

    with monkeypatch.context() as patched:
        patched.setattr(Run, "gather", interrupted)
        code, _, err = cli("cluster", *FILES, "-k", 3, "--out", "cut")
    assert code == 130
    assert "--resume" in err
    code, _, err = cli("cluster", *FILES, "-k", 3, "--out", "cut")
    assert code == 2
    assert "pass --resume" in err
    code, _, err = cli("cluster", *FILES, "-k", 4, "--out", "cut", "--resume")
    assert code == 2
    assert "settings" in err
    code, out, err = cli("cluster", *FILES, "-k", 3, "--out", "cut", "--resume", "--json")
    assert code == 0, err
    assert json.loads(out)["centers"] == whole["centers"]


def test_an_order_over_a_federation_leaves_no_column_out_silently():
    """Sites agree on categories where one command reads all files; over a federation an order must list them."""
    job = Job(columns=["age", "ward"], categories={"ward": []}, clusters=3)
    with pytest.raises(InputError, match="categories of 'ward' are not listed"):
        remote_job(job, ANALYST)
    listed = remote_job(replace(job, categories={"ward": ["icu", "er"]}), ANALYST)
    assert [name for name, _ in listed.order.read().columns] == ["age", "ward=icu", "ward=er"]
