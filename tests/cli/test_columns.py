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


EXEMPT = '[method.vertical-kernel-pca]\nprotection = "none"\n'


@pytest.fixture
def rules(cli, patients):
    secret = cli("policy", "secret")[1].strip()
    Path("site.toml").write_text(f'per_site_results = "rows"\nalignment_key = "{secret}"\n{EXEMPT}')
    return "site.toml"


WORDS = ("cluster", *FILES, "-k", 3, "--method", "vertical-kernel-pca", "--key", "patient")


def test_every_department_gets_its_patients_clusters(cli, patients, rules):
    code, out, err = cli(*WORDS, "--policy", rules, "--json", "--out", "run")
    assert code == 0, err
    result = json.loads(out)
    assert result["counts"] == [30, 30, 30]
    assert result["local_ranks"] == dict.fromkeys(NAMES, 13)
    assert result["rounds"] == 4 + 2 + 2 * len(NAMES)  # components; names of columns; profiles, site by site
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
    assert "component1" not in page
    assert "imaging.imaging1" in page
    assert cli("ledger", "verify", "run")[0] == 0
    assert cli("ledger", "show", "run")[0] == 0


def test_a_policy_that_does_not_allow_it_ends_it_before_it_begins(cli, patients, rules):
    code, _, err = cli(*WORDS, "--out", "run")
    assert code == 2
    assert 'per_site_results = "rows"' in err
    Path("open.toml").write_text(f'per_site_results = "rows"\n{EXEMPT}')
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
        (("cluster", *FILES, "-k", 3, "--key", "patient"), "does not match rows by key"),
        ((*WORDS, "--missing", "drop", "--policy", rules), "dropped at all"),
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


class Stopped(BaseException):
    """A run killed in the middle."""


def _stopped(monkeypatch, cli, *words):
    """Run a command that is killed once the tags are in the journal."""
    from coterie.runtime.events import Events

    report = Events.exchange

    def killing(self, exchange):
        report(self, exchange)
        if exchange.round == 2:
            raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr(Events, "exchange", killing)
        with pytest.raises(Stopped):
            cli(*words)


def test_a_run_resumes_with_the_same_keys_and_secret_only(cli, patients, rules, monkeypatch):
    for name in NAMES:
        frame = pd.read_csv(f"{name}.csv")
        frame.insert(1, "other", frame.patient.to_numpy()[::-1])
        frame.to_csv(f"{name}.csv", index=False)
    words = (*WORDS, "--ignore", "other", "--policy", rules, "--out", "run")
    _stopped(monkeypatch, cli, *words)
    swapped = [{"patient": "other", "other": "patient"}.get(word, word) for word in words]
    code, _, err = cli(*swapped, "--resume")
    assert code == 2
    assert "have changed since the run began" in err
    secret = cli("policy", "secret")[1].strip()
    Path("other.toml").write_text(f'per_site_results = "rows"\nalignment_key = "{secret}"\n{EXEMPT}')
    code, _, err = cli(*[{rules: "other.toml"}.get(word, word) for word in words], "--resume")
    assert code == 2
    assert "have changed since the run began" in err
    code, out, err = cli(*words, "--resume", "--json")
    assert code == 0, err
    assert json.loads(out)["counts"] == [30, 30, 30]


def test_what_is_said_of_a_column_holds_where_it_is(cli, patients, rules):
    frame = pd.read_csv("lab.csv")
    frame.assign(sex=["f", "m"] * 45, note="x").to_csv("lab.csv", index=False)
    words = (*WORDS, "--policy", rules, "--ignore", "note", "--categories", "sex=f,m", "--json")
    code, _, err = cli(*words, "--out", "run")
    assert code == 0, err
    code, _, err = cli(*words, "--ignore", "nothing", "--out", "again")
    assert code == 2
    assert "no column 'nothing' in any of the files" in err


def test_a_key_may_be_called_like_anything(cli, patients, rules):
    for name in NAMES:
        pd.read_csv(f"{name}.csv").rename(columns={"patient": "cluster"}).to_csv(f"{name}.csv", index=False)
    words = [{"patient": "cluster"}.get(word, word) for word in WORDS]
    assert cli(*words, "--policy", rules, "--out", "run")[0] == 0
    assert pq.read_table("run/labels/lab.parquet").column_names == ["key", "cluster"]
    assert "several sites" in cli("assign", "run/model.json", "lab.csv")[2]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--set", "local_rank=true"), "local_rank=True must be a whole number"),
        (("--set", "gamma=auto"), "gamma='auto' must be a number"),
        (("--set", "tolerance=abc"), "tolerance='abc' must be a number"),
        (("--set", "n_components=1.7"), "n_components=1.7 must be a whole number"),
        (("--scale", "minmax"), "sites hold different columns; use 'standard'"),
        (("-k", 91), "hold 90 rows; at least 91"),
    ],
)
def test_settings_that_cannot_be_leave_nothing_behind(cli, patients, rules, words, told):
    code, _, err = cli(*WORDS, *words, "--policy", rules, "--out", "run")
    assert code == 2
    assert told in err
    assert not Path("run").exists()


def test_tags_are_written_whole_or_not_at_all(cli, patients, rules):
    words = ("site", "tags", "lab.csv", "--key", "patient", "--policy", rules, "--out")
    assert "ends in .parquet" in cli(*words, "tags.csv")[2]
    assert "no such folder" in cli(*words, "gone/tags.parquet")[2]
    assert cli(*words, "tags.parquet")[0] == 0
    assert "already exists" in cli(*words, "tags.parquet")[2]
    assert sorted(p.name for p in Path().glob("tags*")) == ["tags.parquet"]
    assert "does not match rows by key" in cli("site", "preview", "lab.csv", "-k", 2, "--key", "patient")[2]
