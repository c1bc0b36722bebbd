"""Clustering files that hold columns of the same rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

NAMES = ("lab", "imaging", "ward")
FILES = tuple(f"{name}.csv" for name in NAMES)


@pytest.fixture
def patients(tmp_path, monkeypatch):
    """Three clumps of patients; every department holds two columns of all, in an order of its own."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    truth = np.arange(90) % 3
    rows = rng.normal(size=(90, 6)) + 8 * rng.normal(size=(3, 6))[truth]
    for i, name in enumerate(NAMES):
        order = rng.permutation(90)
        frame = pd.DataFrame(rows[order, 2 * i : 2 * i + 2], columns=[f"{name}1", f"{name}2"])
        frame.insert(0, "patient", [f"P{j:03d}" for j in order])
        frame.to_csv(f"{name}.csv", index=False)
    return truth


@pytest.fixture
def rules(cli, patients):
    secret = cli("policy", "secret")[1].strip()
    Path("site.toml").write_text(f'single_answers = "rows"\nalignment_key = "{secret}"\n')
    return "site.toml"


WORDS = ("cluster", *FILES, "-k", 3, "--method", "vertical-kernel-pca", "--key", "patient")


def test_every_department_gets_its_patients_clusters(cli, patients, rules):
    code, out, err = cli(*WORDS, "--policy", rules, "--json", "--out", "run")
    assert code == 0, err
    result = json.loads(out)
    assert result["counts"] == [30, 30, 30]
    assert result["local_ranks"] == dict.fromkeys(NAMES, 13)
    assert result["rounds"] == 4
    for name in NAMES:
        labels = pq.read_table(f"run/labels/{name}.parquet").to_pandas()
        assert list(labels.patient) == list(pd.read_csv(f"{name}.csv").patient)
        own = patients[labels.patient.str[1:].astype(int)]
        assert all(len(set(labels.cluster[own == kind])) == 1 for kind in range(3))
    assert cli("site", "tags", "lab.csv", "--key", "patient", "--policy", rules, "--out", "tags.parquet")[0] == 0
    tags = pq.read_table("tags.parquet").to_pandas().set_index("tag").patient
    found = pq.read_table("run/components.parquet").to_pandas()
    assert sorted(tags[found.tag]) == sorted(f"P{j:03d}" for j in range(90))
    by_name = dict(zip(tags[found.tag], found.cluster, strict=True))
    assert all(by_name[row.patient] == row.cluster for row in labels.itertuples())
    page = Path("run/report.html").read_text()
    assert "component1" in page
    assert cli("ledger", "verify", "run")[0] == 0
    assert cli("ledger", "show", "run")[0] == 0


def test_a_policy_that_does_not_allow_it_ends_it_before_it_begins(cli, patients, rules):
    code, _, err = cli(*WORDS, "--out", "run")
    assert code == 2
    assert 'single_answers = "rows"' in err
    Path("open.toml").write_text('single_answers = "rows"\n')
    code, _, err = cli(*WORDS, "--out", "run", "--policy", "open.toml")
    assert code == 2
    assert "coterie policy secret" in err
    assert not Path("run").exists()


def test_rows_that_differ_are_counted_and_nothing_is_left_behind(cli, patients, rules):
    lines = Path("lab.csv").read_text().splitlines()
    Path("lab.csv").write_text("\n".join(lines[:-2]) + "\n")
    code, _, err = cli(*WORDS, "--policy", rules, "--out", "run")
    assert code == 2
    assert "2 of 90 at imaging" in err
    assert "0 of 88 at lab" in err
    assert "P0" not in err
    assert not Path("run").exists()
    Path("lab.csv").write_text("\n".join([*lines, lines[-1]]) + "\n")
    code, _, err = cli(*WORDS, "--policy", rules, "--out", "run")
    assert code == 2
    assert "1 of 91 at lab" in err


def test_without_a_key_rows_go_by_their_place(cli, patients):
    for name in NAMES:
        pd.read_csv(f"{name}.csv").sort_values("patient").drop(columns="patient").to_csv(f"{name}.csv", index=False)
    words = [word for word in WORDS if word not in ("--key", "patient")]
    code, out, err = cli(*words, "--policy", "simulation", "--json", "--out", "run")
    assert code == 0, err
    assert json.loads(out)["counts"] == [30, 30, 30]
    assert "tag" not in pq.read_table("run/components.parquet").column_names


def test_what_does_not_go_together_is_said(cli, patients, rules):
    for words, told in (
        (("cluster", *FILES, "-k", 3, "--key", "patient"), "matches no rows by key"),
        ((*WORDS, "--missing", "drop", "--policy", rules), "left out at all"),
        ((*WORDS, "--set", "n_clusters=3", "--policy", rules), "clusters"),
        (
            ("cluster", "lab.csv", "-k", 3, "--method", "vertical-kernel-pca", "--site-column", "lab1"),
            "no site column",
        ),
        (("cluster", *FILES, "-k", 3, "--method", "dpca"), "components, not clusters"),
        (
            ("site", "tags", "lab.csv", "--key", "patient", "--policy", "strict", "--out", "t.parquet"),
            "no alignment_key",
        ),
        (("site", "tags", "lab.csv", "--key", "id", "--policy", rules, "--out", "t.parquet"), "no column 'id'"),
    ):
        code, _, err = cli(*words)
        assert code == 2, words
        assert told in err


def test_methods_and_audit_say_what_it_discloses(cli):
    out = cli("methods")[1]
    assert "all distances between a site's rows" in " ".join(out.split())
    told = {line["answer"]: line for line in json.loads(cli("audit", "vertical-kernel-pca", "--json")[1])}
    assert told["Pairs"]["content"] == "rows"
    assert told["RowTags"]["holds_rows"]


def test_a_site_sees_beforehand_what_it_would_send(cli, patients):
    words = ("site", "preview", "lab.csv", "-k", 3, "--method", "vertical-kernel-pca", "--key", "patient", "--json")
    sent = {line["answer"]: line for line in json.loads(cli(*words)[1])}
    assert sent["Pairs"]["numbers"] == 13 * 91
    assert sent["RowTags"]["example"] == "720 bytes"


def test_secrets_differ(cli):
    assert cli("policy", "secret")[1] != cli("policy", "secret")[1]
