"""What people really do: interrupt, resume, overwrite, mistype."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import COTERIE, FILES, write_csv

# ---------------------------------------------------------------- what people really do


def interrupt_at(monkeypatch, round_):
    from coterie.runtime.roster import Roster

    original = Roster.judge

    def stop(self, name, one, number):
        if number == round_:
            raise KeyboardInterrupt
        return original(self, name, one, number)

    monkeypatch.setattr(Roster, "judge", stop)


def test_the_books_of_a_run_that_was_interrupted_and_resumed_hold(cli, three, monkeypatch):
    with monkeypatch.context() as patched:
        interrupt_at(patched, 3)  # the sites have answered, the server never wrote it down
        assert cli("cluster", *FILES, "-k", 3, "--out", "run")[0] == 130
    assert cli("cluster", *FILES, "-k", 3, "--out", "run", "--resume")[0] == 0
    code, out, err = cli("ledger", "verify", "run")
    assert code == 0, err
    assert "bytes did not arrive and were sent again" in out


def test_a_resumed_run_must_find_the_rows_it_began_with(cli, three, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        interrupt_at(patched, 3)
        cli("cluster", *FILES, "-k", 3, "--out", "run")
    whole = (tmp_path / "south.csv").read_text()
    (tmp_path / "south.csv").write_text(whole.replace("1", "2", 1))
    code, _, err = cli("cluster", *FILES, "-k", 3, "--out", "run", "--resume")
    assert code == 2
    assert "the rows of site south have changed since the run began" in err
    (tmp_path / "south.csv").write_text(whole)
    assert cli("cluster", *FILES, "-k", 3, "--out", "run", "--resume")[0] == 0


def test_a_difference_in_settings_is_named_with_both_values(cli, three, monkeypatch):
    with monkeypatch.context() as patched:
        interrupt_at(patched, 3)
        cli("cluster", *FILES, "-k", 3, "--out", "run")
    err = cli("cluster", *FILES, "-k", 4, "--out", "run", "--resume")[2]
    assert "settings.parameters.n_clusters: it was 3 and is now 4" in err


def test_labels_never_overwrite_anything_unasked(cli, three, tmp_path):
    cli("cluster", *FILES, "-k", 2, "--out", "run")
    before = (tmp_path / "north.csv").read_bytes()
    code, _, err = cli("assign", "run/model.json", "north.csv", "--out", "north.csv")
    assert code == 2
    assert (tmp_path / "north.csv").read_bytes() == before
    assert cli("assign", "run/model.json", "north.csv", "--out", "new.parquet")[0] == 0
    assert "already exists" in cli("assign", "run/model.json", "north.csv", "--out", "new.parquet")[2]
    assert cli("assign", "run/model.json", "north.csv", "--out", "new.parquet", "--force")[0] == 0
    write_csv("inf.csv", [(1.0, "inf", 2.0)])
    assert "infinite" in cli("assign", "run/model.json", "inf.csv")[2]
    write_csv("hole.csv", [(1.0, "", 2.0), (1.0, 2.0, 3.0)])
    assert "1 row with missing values got no label" in cli("assign", "run/model.json", "hole.csv")[1]


def test_two_commands_do_not_share_a_folder(cli, three, tmp_path):
    from coterie.cli.run_state import Claimed

    with Claimed(tmp_path / "run"):
        code, _, err = cli("cluster", *FILES, "-k", 2, "--out", "run")
    assert code == 2
    assert "another coterie process is writing to" in err
    assert not (tmp_path / "run").exists()
    assert cli("cluster", *FILES, "-k", 2, "--out", "run")[0] == 0


def test_the_demonstration_does_not_overwrite_a_run(cli, three, tmp_path):
    cli("cluster", *FILES, "-k", 2, "--out", "run")
    before = (tmp_path / "run" / "result.json").read_bytes()
    code, _, err = cli("demo", "--out", "run")
    assert code == 2
    assert "holds files that are not from a demonstration" in err
    assert (tmp_path / "run" / "result.json").read_bytes() == before


def test_books_that_are_missing_are_missed(cli, three, tmp_path):
    import shutil

    cli("cluster", *FILES, "-k", 2, "--out", "run")
    (tmp_path / "run/journal/sites/north.jsonl").unlink()
    code, _, err = cli("ledger", "verify", "run")
    assert code == 4
    assert "the ledger of site north is missing" in err
    shutil.rmtree(tmp_path / "run/journal")
    code, out, _ = cli("ledger", "verify", "run")
    assert code == 0
    assert "nothing was reconciled" in out
    assert cli("ledger", "show", "north.csv")[0] == 2


def test_what_the_ledger_shows_adds_up(cli, three):
    import re

    cli("cluster", *FILES, "-k", 3, "--out", "run")
    for place in ("run", "run/journal/sites/north.jsonl"):
        shown = cli("ledger", "show", place)[1]
        rows = [int(n.replace(",", "")) for n in re.findall(r"^ +\d+(?:-\d+)? .* ([\d,]+) *$", shown, re.M)]
        total = int(re.search(r"([\d,]+) bytes", shown)[1].replace(",", ""))
        assert len(rows) >= 5
        assert sum(rows) == total


def test_many_clusters_get_their_rows_by_default(cli, three):
    alone = ("--policy", "simulation")
    result = json.loads(cli("cluster", *FILES, "-k", 60, "--out", "many", "--json", *alone)[1])
    assert min(result["counts"]) > 0
    code, _, err = cli("cluster", *FILES, "-k", 60, "--method", "one-shot", "--out", "few", "--policy", "research")
    assert code == 2
    assert "local centers for 60 clusters" in err


def test_fewer_distinct_rows_than_clusters_is_said(cli):
    write_csv("same.csv", [(1.0, 1.0, 1.0)] * 20)
    code, out, _ = cli("cluster", "same.csv", "-k", 3, "--policy", "simulation")
    assert code == 0
    assert "2 of the clusters are empty" in out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("data = [1, 2]\nclusters = 2", "data = [1, 2]: Expected `str`, got `int`"),
        ("data = { a = 1 }\nclusters = 2", "data = {'a': 1}: Expected `str`, got `int`"),
        ('data = ["north.csv"]', "clusters is missing"),
        ('data = ["north.csv"]\nclusters = 2\nseed = -4', "seed=-4"),
        ('data = ["north.csv"]\nclusters = 2\n[settings]\nn_clusters = 4', "set 'clusters' outside of settings"),
        (
            'data = ["north.csv"]\nclusters = 2\npolicy = "simulation"\n[settings]\nepochs = "two"',
            "epochs='two' must be a whole number",
        ),
        (
            'data = ["north.csv"]\nclusters = 2\npolicy = "simulation"\n[settings]\nepochs = true',
            "epochs=True must be a whole number",
        ),
        (
            'data = ["north.csv"]\nclusters = 2\nscale = "minmax"\nranges = { a = [1, -1], b = "x" }',
            "the range of 'a'",
        ),
    ],
)
def test_job_files_that_cannot_be_are_named(cli, three, tmp_path, text, told):
    Path("job.toml").write_text(text)
    before = sorted(p.name for p in tmp_path.iterdir())
    code, _, err = cli("run", "job.toml")
    assert code == 2, err
    assert told in err
    assert "Traceback" not in err
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_values_outside_declared_ranges_are_named_by_site_and_column(cli, three):
    Path("job.toml").write_text(
        'data = ["north.csv", "south.csv", "west.csv"]\nclusters = 2\nscale = "minmax"\n'
        "ranges = { a = [0, 1], b = [-99, 99], c = [-99, 99] }\nout = 'run'\n"
    )
    code, _, err = cli("run", "job.toml")
    assert code == 3
    assert "column 'a' holds values outside its declared range" in err
    assert "Traceback" not in err


def test_a_column_without_any_value_and_huge_values_are_named(cli):
    write_csv("hole.csv", [(1.0, "", 3.0), (2.0, "", 1.0)] * 4)
    code, _, err = cli("cluster", "hole.csv", "-k", 2, "--missing", "mean", "--policy", "simulation")
    assert code == 2
    assert "column 'b' has no value at any site" in err
    write_csv("huge.csv", [("1e300", 1.0, 3.0)] * 4)
    assert "values beyond 1e+150" in cli("cluster", "huge.csv", "-k", 2)[2]
    pq.write_table(pa.table({"a": pa.array([2**63 + 1, 5], pa.uint64())}), "large.parquet")
    code, _, err = cli("cluster", "large.parquet", "-k", 1)
    assert code == 2
    assert "'a'" in err


def test_folders_that_cannot_be_written_end_in_a_sentence(cli, three, tmp_path):
    Path("afile").write_text("x")
    for out in ("afile/x", "/proc/nowhere/x", "n" * 300):
        code, _, err = cli("cluster", *FILES, "-k", 2, "--out", out)
        assert code == 2, err
        assert err.count("error:") == 1
        assert "Traceback" not in err
    assert cli("demo", "--out", "afile")[0] == 2


def test_output_into_a_closed_pipe_is_no_error(tmp_path):
    done = subprocess.run(f"{COTERIE} methods | head -1", shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == ""
