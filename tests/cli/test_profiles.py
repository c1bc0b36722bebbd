"""Clusters are described without asking for it: profiles.csv, the terminal, the report."""

from __future__ import annotations

import csv
import json

import numpy as np
import pandas as pd
import pytest

PRIVATE = ("--epsilon", 4, "--ranges", "pressure=0,300", "--ranges", "weight=0,200")
CLUSTER = ("cluster", "north.csv", "south.csv", "west.csv", "-k", 3, "--scale", "standard")


@pytest.fixture
def patients(tmp_path):
    """Three sites' files with a column of text, two that identify, and one with missing values."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 240)
    frame = pd.DataFrame(
        {
            "number": np.arange(240) + 1000,
            "code": [f"P{i}" for i in range(240)],
            "pressure": np.round(rng.normal(100 + kind * 30, 5)),
            "weight": rng.normal(60 + kind * 20, 5).round(1),
            "sex": np.where(rng.random(240) < 0.2 + 0.3 * kind, "f", "m"),
            "age": np.where(rng.random(240) < 0.1, np.nan, rng.integers(20, 90, 240)),
        }
    )
    for name, part in zip(("north", "south", "west"), np.array_split(np.arange(240), 3), strict=True):
        frame.iloc[part].to_csv(tmp_path / f"{name}.csv", index=False)
    return frame


def lines(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_run_describes_its_clusters(cli, patients, tmp_path):
    more = ("--ignore", "number,code,age", "--categories", "sex=f,m", "--policy", "simulation", "--out", "out")
    code, out, _ = cli(*CLUSTER, *more)
    assert code == 0
    assert "What distinguishes the clusters" in out
    assert "profiles.csv" in {path.name for path in (tmp_path / "out").iterdir()}
    labels = np.concatenate(
        [pd.read_parquet(tmp_path / f"out/labels/{name}.parquet")["cluster"] for name in ("north", "south", "west")]
    )
    by_place = {(line["cluster"], line["column"]): line for line in lines(tmp_path / "out" / "profiles.csv")}
    for cluster, part in patients.groupby(labels):
        for column in ("pressure", "weight"):
            line = by_place[str(cluster), column]
            assert float(line["mean"]) == pytest.approx(part[column].mean(), rel=1e-9)
            assert float(line["sd"]) == pytest.approx(part[column].std(ddof=0), rel=1e-9)
            middle = float(line["median_about"]) - part[column].median()
            assert abs(middle) <= 0.1 * part[column].std(ddof=0)
            assert line["share"] == ""
        line = by_place[str(cluster), "sex=f"]
        assert float(line["share"]) == pytest.approx((part["sex"] == "f").mean(), rel=1e-9)
        assert line["median_about"] == ""
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["profiles"]["deviations_are"] == "exact"
    distinguishing = {column for columns in result["profiles"]["distinguishing"] for column in columns}
    assert distinguishing <= {"pressure", "weight", "sex=f", "sex=m"}
    assert "What distinguishes the clusters" in (tmp_path / "out" / "report.html").read_text()


def test_columns_that_clusters_are_not_made_of(cli, patients, tmp_path):
    """Their missing values stop nothing, and are counted."""
    more = ("--ignore", "number,code", "--categories", "sex=f,m", "--profile", "sex,age", "--out", "out")
    code, out, _ = cli(*CLUSTER, *more)
    assert code == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["columns"] == ["pressure", "weight"]
    assert set(result["profiles"]["columns"]) == {"pressure", "weight", "sex=f", "sex=m", "age"}
    assert result["profiles"]["deviations_are"] == "estimates"
    (line,) = (x for x in lines(tmp_path / "out" / "profiles.csv") if (x["cluster"], x["column"]) == ("all", "age"))
    assert float(line["missing"]) == pytest.approx(patients["age"].isna().sum())
    assert "sd_about" in line
    assert "estimate" in (tmp_path / "out" / "report.html").read_text()


def test_the_same_in_a_job_file(cli, patients, tmp_path):
    job = 'data = ["north.csv", "south.csv", "west.csv"]\nclusters = 3\ncolumns = ["pressure", "weight"]\n'
    (tmp_path / "job.toml").write_text(job + 'profile = ["age"]\n')
    assert cli("run", "job.toml", "--json")[0] == 0
    described = {line["column"] for line in lines(tmp_path / "coterie-run" / "profiles.csv")}
    assert described == {"pressure", "weight", "age"}
    (tmp_path / "no.toml").write_text(job + 'profile = false\nout = "no"\n')
    assert cli("run", "no.toml", "--json")[0] == 0
    assert not (tmp_path / "no" / "profiles.csv").exists()


def test_whose_rows_are_in_the_clusters(cli, patients, tmp_path):
    more = ("--columns", "pressure,weight", "--policy", "research", "--out", "out")
    code, out, _ = cli(*CLUSTER, *more)
    assert code == 0
    assert "Whose rows are in them" in out
    result = json.loads((tmp_path / "out" / "result.json").read_text())["composition"]
    assert (result["sites"], result["counts_are"]) == (["north", "south", "west"], "whole_groups")
    assert np.sum(result["counts"], axis=0).tolist() == [80, 80, 80]
    table = lines(tmp_path / "out" / "composition.csv")
    assert len(table) == 9
    assert sum(float(line["rows_of_whole_groups"]) for line in table) == 240
    assert "Whose rows are in them" in (tmp_path / "out" / "report.html").read_text()
    assert cli(*CLUSTER, "--columns", "pressure,weight", "--out", "other")[0] == 0
    assert json.loads((tmp_path / "other" / "result.json").read_text())["composition"] is None
    assert not (tmp_path / "other" / "composition.csv").exists()


def test_without_profiles_nothing_is_asked(cli, patients, tmp_path):
    more = ("--columns", "pressure,weight", "--no-profile", "--out", "out")
    code, out, _ = cli(*CLUSTER, *more)
    assert code == 0
    assert "What distinguishes" not in out
    assert not (tmp_path / "out" / "profiles.csv").exists()
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["profiles"] is None
    assert "SumByCluster" not in {line["asked"] for line in result["asked"]}


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        (("--profile", "number"), "every row has a whole number of its own"),
        (("--profile", "code"), "column 'code' has no value that enough rows of a site share to be a category"),
        (("--profile", "height"), "height"),
        (("--profile", "age", "--no-profile"), "--profile age and --no-profile; use one of them."),
        (("--profile", "age", *PRIVATE), "'age' has none; pass --ranges age=LOW,HIGH"),
    ],
)
def test_what_cannot_be_described_is_refused(cli, patients, tmp_path, more, wrong):
    code, _, err = cli(*CLUSTER, "--columns", "pressure,weight", "--out", "out", *more)
    assert code == 2
    assert wrong in " ".join(err.split())
    assert not (tmp_path / "out" / "result.json").exists()


def test_private_runs_describe_nothing_unless_asked(cli, patients, tmp_path):
    code, _, err = cli(*CLUSTER, "--columns", "pressure,weight", *PRIVATE, "--out", "out")
    assert code == 0, err
    assert not (tmp_path / "out" / "profiles.csv").exists()


def private(tmp_path, n=3000):
    rng = np.random.default_rng(1)
    kind = rng.integers(0, 3, n)
    frame = pd.DataFrame(
        {
            "pressure": rng.normal(100 + kind * 40, 5).round(),
            "weight": rng.normal(60 + kind * 30, 5).round(1),
            "sex": np.where(rng.random(n) < 0.2 + 0.3 * kind, "f", "m"),
            "age": np.where(rng.random(n) < 0.1, np.nan, rng.integers(20, 90, n)),
        }
    )
    for name, part in zip(("north", "south", "west"), np.array_split(np.arange(n), 3), strict=True):
        frame.iloc[part].to_csv(tmp_path / f"{name}.csv", index=False)
    return frame


def test_a_private_run_describes_its_clusters_where_that_is_asked_for(cli, tmp_path):
    private(tmp_path)
    more = ("--columns", "pressure,weight", "--categories", "sex=f,m", *PRIVATE, "--ranges", "age=0,120")
    code, out, err = cli(*CLUSTER, *more, "--profile", "sex,age", "--out", "out")
    assert code == 0, err
    assert "all its numbers are estimates" in " ".join(out.split())
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert set(result["profiles"]["columns"]) == {"pressure", "weight", "sex=f", "sex=m", "age"}
    assert result["profiles"]["counts_and_means_are"] == "estimates"
    of_profiles = [release["share"] for release in result["privacy"]["releases"][-3:]]
    assert sum(of_profiles) == pytest.approx(0.15)
    table = lines(tmp_path / "out" / "profiles.csv")
    assert {"rows_about", "mean_about", "sd_about", "share_about", "noise_of_mean"} <= table[0].keys()
    assert all(float(line["noise_of_mean"]) > 0 for line in table)
    assert "estimates" in (tmp_path / "out" / "report.html").read_text()


def test_by_the_columns_of_a_private_run_alone(cli, tmp_path):
    private(tmp_path)
    more = ("--columns", "pressure,weight", *PRIVATE, "--profile", "all", "--out", "out")
    assert cli(*CLUSTER, *more)[0] == 0
    assert {line["column"] for line in lines(tmp_path / "out" / "profiles.csv")} == {"pressure", "weight"}
