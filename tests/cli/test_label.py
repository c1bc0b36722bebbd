"""Labels of rows by the model of a run, which reads files as the run did; hospitals' files as they are exported."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import coterie
from tests.heart import COLUMNS, EXPORTS, HOSPITALS, NUMBERS, heart_rows, write_heart

FILES = tuple(f"{name}.csv" for name in HOSPITALS)
READ = ("--ignore", "patient,ward", "--na", "?", "--na", "chol=0", "--na", "trestbps=0")
WORDS = ("cluster", *FILES, "-k", 4, *READ, "--scale", "standard", "--missing", "mean")


@pytest.fixture
def hospitals(cli, tmp_path):
    write_heart(tmp_path)
    return heart_rows()


def test_hospitals_files_are_clustered_as_they_are_and_every_patient_is_labelled_alike(cli, hospitals):
    code, out, err = cli(*WORDS, "--out", "run")
    assert code == 0, err
    assert "switzerland was read with the separator ';', decimal commas and the encoding cp1252." in out
    assert "va_long_beach was read with the separator '\\t' and the encoding utf-16." in out
    result = json.loads(Path("run/result.json").read_text())
    assert sum(result["counts"]) == sum(map(len, hospitals.values()))
    assert result["settings"]["na"] == {"*": ["?"], "chol": ["0"], "trestbps": ["0"]}
    assert [name for name in result["columns"] if "=" not in name] == list(NUMBERS)
    for name, rows in hospitals.items():
        words = ("label", "run", f"{name}.csv", "--id", "patient", "--out", f"{name}-labels.csv", "--json")
        told = json.loads(cli(*words)[1])
        assert told == {"rows": len(rows), "unlabelled": 0, "labels": f"{name}-labels.csv"}
        labels = pd.read_csv(f"{name}-labels.csv")
        assert labels.patient.tolist() == [f"{name[:2].upper()}{i:04d}" for i in range(len(rows))]
        own = pq.read_table(f"run/labels/{name}.parquet").to_pandas().cluster
        assert labels.cluster.tolist() == own.tolist()


def test_what_was_read_are_the_hospitals_values(cli, hospitals):
    assert cli(*WORDS, "--out", "run", "--policy", "simulation")[0] == 0
    model = coterie.load_model("run/model.json")
    numbers = np.concatenate([rows[:, [COLUMNS.index(name) for name in NUMBERS]] for rows in hospitals.values()])
    places = [list(model.feature_names_in_).index(name) for name in NUMBERS]
    np.testing.assert_allclose(model.preparation_.fill[places], np.nanmean(numbers, axis=0), rtol=1e-10)
    filled = np.where(np.isnan(numbers), np.nanmean(numbers, axis=0), numbers)
    np.testing.assert_allclose(model.preparation_.scale[places], filled.std(axis=0), rtol=1e-10)


def test_without_options_one_message_names_all_and_its_options_solve_it(cli, hospitals):
    code, _, err = cli("cluster", *FILES, "-k", 4, "--scale", "standard", "--out", "run")
    assert code == 2
    assert err.count("error:") == 1
    assert "switzerland.csv: column 'ward' is not in cleveland.csv, hungarian.csv, va_long_beach.csv" in err
    assert "column 'patient' has no value that enough rows of a site share" in err
    assert "column 'oldpeak' holds missing values: " in err
    last = err.strip().splitlines()[-1]
    names = "age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal"
    assert last == f"pass --columns {names} --na '?' --missing mean (or --missing drop)"
    solved = ("--columns", names, "--na", "?", "--missing", "mean")
    assert cli("cluster", *FILES, "-k", 4, "--scale", "standard", *solved, "--out", "run")[0] == 0


def test_a_site_may_be_read_in_its_own_way_in_a_job_file(cli, hospitals, tmp_path):
    Path("job.toml").write_text(
        f"data = {list(FILES)}\nclusters = 3\nignore = ['patient', 'ward']\nscale = 'robust'\nmissing = 'mean'\n"
        "out = 'run'\nna = { chol = [0], trestbps = ['0'] }\n[reading.hungarian]\nna = { '*' = ['?'] }\n"
        "[reading.switzerland]\ncsv_separator = ';'\ncsv_decimal = ','\ncsv_encoding = 'latin-1'\n"
    )
    code, _, err = cli("run", "job.toml")
    assert code == 0, err
    assert json.loads(Path("run/result.json").read_text())["settings"]["csv_forms"]
    for wrong, told in (
        ("[reading.nowhere]\nna = {}\n", "reading names the site 'nowhere', which is unknown"),
        ("[reading.hungarian]\ncsv_comma = ','\n", "reading of 'hungarian' has the key 'csv_comma'; did you mean"),
        ("[reading.switzerland]\ncsv_decimal = '.'\n", "column 'oldpeak' holds text"),
    ):
        job = f"data = {list(FILES)}\nclusters = 3\nignore = ['patient', 'ward']\nout = 'other'\n{wrong}"
        Path("job.toml").write_text(job)
        code, _, err = cli("run", "job.toml")
        assert code == 2
        assert told in err or "'0,7'" in err, err


SHAPES = ("a", "b", "c")


@pytest.fixture
def profiles(tmp_path):
    """Three sites' daily profiles and a price with a long tail."""
    rng = np.random.default_rng(0)
    for name in SHAPES:
        hours = rng.lognormal(size=(60, 3)) + 1
        frame = pd.DataFrame(hours, columns=["h0", "h1", "h2"]).assign(kind=["x", "y"] * 30, id=np.arange(60))
        frame.to_csv(tmp_path / f"{name}.csv", index=False)


def test_a_model_of_transformed_rows_reads_raw_ones(cli, profiles):
    words = ("cluster", *(f"{name}.csv" for name in SHAPES), "-k", 2, "--ignore", "id", "--policy", "simulation")
    options = ("--transform", "h0=log", "--normalise-rows", "mean", "--scale", "standard", "--out", "run")
    code, _, err = cli(*words, *options)
    assert code == 0, err
    model = coterie.load_model("run/model.json")
    assert list(model.feature_names_in_)[:3] == ["log(h0)/mean(3)", "h1/mean(3)", "h2/mean(3)"]
    frame = pd.read_csv("a.csv")
    own = pq.read_table("run/labels/a.parquet").to_pandas().cluster.tolist()
    assert cli("label", "run", "a.csv", "--out", "labels.parquet")[0] == 0
    assert pq.read_table("labels.parquet").to_pandas().cluster.tolist() == own
    assert model.predict(frame[["kind", "h2", "id", "h1", "h0"]]).tolist() == own
    frame.loc[0, "h0"] = -1
    frame.to_csv("bad.csv", index=False)
    assert "column 'h0' holds 1 value without a log (first '-1' in row 1)" in cli("label", "run", "bad.csv")[2]
    code, _, err = cli(*words, "--transform", "id=log", "--out", "other")
    assert code == 2
    assert "column 'id'" in err


def test_ranges_are_those_of_the_raw_columns(cli, profiles):
    words = ("cluster", "a.csv", "b.csv", "c.csv", "-k", 2, "--ignore", "id", "--policy", "simulation")
    ranges = [word for name in ("h0", "h1", "h2") for word in ("--ranges", f"{name}=0.5,1000")]
    options = ("--transform", "h0=log", "--scale", "minmax", "--out", "run")
    assert cli(*words, *options, *ranges)[0] == 0
    model = coterie.load_model("run/model.json")
    np.testing.assert_allclose(model.preparation_.low, [np.log(0.5), 0.5, 0.5, 0, 0])
    ranges[1] = "h0=0,1000"
    assert "an end has no log" in cli(*words, *options[:-1], "other", *ranges)[2]


def test_labels_keep_ids_and_refuse_what_they_cannot_read(cli, profiles):
    words = ("cluster", "a.csv", "b.csv", "c.csv", "-k", 2, "--ignore", "id,kind", "--policy", "simulation")
    assert cli(*words, "--out", "run", "--na", "h0=-9")[0] == 0
    frame = pd.read_csv("b.csv").assign(cluster=[f"{i:03d}" for i in range(60)])
    frame.loc[:1, "h0"] = -9
    frame.to_parquet("b.parquet")
    code, out, _ = cli("label", "run/model.json", "b.parquet", "--id", "cluster", "--out", "b.csv", "--force")
    assert code == 0
    assert "58 rows labelled" in out
    assert "2 rows with missing values got no label" in out
    lines = Path("b.csv").read_text().splitlines()
    assert lines[0] == '"id","cluster"'
    assert lines[1] == '"000",'
    assert lines[3].startswith('"002",')
    for data, options, told in (
        (frame[["h1"]], (), "there are no columns 'h0', 'h2', which the model needs; there are 'h1'"),
        (frame, ("--id", "name"), "there is no column 'name'"),
        (frame, ("--out", "x.txt"), "labels are written as Parquet or CSV; use a name that ends in .parquet or .csv"),
        (frame.assign(h1="much"), (), "column 'h1' holds text ('much' in row 1)"),
        (frame.assign(h1=np.inf), (), "column 'h1' holds infinite values"),
    ):
        data.to_parquet("new.parquet")
        code, _, err = cli("label", "run", "new.parquet", *options)
        assert code == 2
        assert told in err
    assert "holds no model.json" in cli("label", ".", "new.parquet")[2]
    assert cli("assign", "run", "a.csv", "--out", "a.labels.csv")[0] == 0


def test_a_model_without_codes_is_read_and_an_older_one_is_refused(cli, profiles):
    assert cli("cluster", "a.csv", "b.csv", "c.csv", "-k", 2, "--ignore", "id,kind", "--out", "run")[0] == 0
    model = json.loads(Path("run/model.json").read_text())
    del model["na"], model["levels"]
    Path("four.json").write_text(json.dumps({**model, "schema": 4}))
    assert cli("label", "four.json", "a.csv")[0] == 0
    Path("three.json").write_text(json.dumps({**model, "schema": 3}))
    assert "model format 3 is not known" in cli("label", "three.json", "a.csv")[2]


def test_exports_differ_as_hospitals_do():
    assert {(e.separator, e.decimal, e.encoding, e.is_reversed) for e in EXPORTS.values()} == {
        (",", ".", "utf-8", False),
        (",", ".", "utf-8", True),
        (";", ",", "cp1252", False),
        ("\t", ".", "utf-16", True),
    }
