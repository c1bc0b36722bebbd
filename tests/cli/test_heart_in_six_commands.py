"""From four hospitals' raw files to a described, chosen, profiled and compared result, in six commands."""

from __future__ import annotations

import csv
import json

import pytest

from tests.heart import heart_rows, write_heart

FILES = [f"{name}.csv" for name in ("cleveland", "hungarian", "switzerland", "va_long_beach")]
READING = ["--na", "?", "--na", "chol=0", "--na", "trestbps=0", "--ignore", "patient,ward"]
PREPARED = [*READING, "--scale", "standard", "--missing", "mean"]


@pytest.fixture
def hospitals(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_heart(tmp_path)
    return tmp_path


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_first_message_names_the_options_that_solve_every_problem(cli, hospitals):
    code, _, err = cli("describe", *FILES)
    assert code == 2
    for told in ("'ward' is not in", "--na 'ca=?'", "--na 'thalach=?'", "--ignore ca"):
        assert told in err


def test_a_day_of_an_analyst_takes_six_commands(cli, hospitals, recwarn):
    n_rows = sum(map(len, heart_rows().values()))

    code, out, _ = cli("describe", *FILES, *READING, "--json")
    assert code == 0
    about = json.loads(out)
    assert about["rows"] == n_rows
    assert about["scale"] == "standard"

    code, out, _ = cli("choose-k", *FILES, *PREPARED, "-k", "2-5", "--out", "chosen", "--json")
    assert code == 0
    chosen = json.loads(out)["choice"]
    assert [of["k"] for of in chosen["numbers"]] == [2, 3, 4, 5]
    assert chosen["verdict"]

    for k, folder in ((3, "together"), (4, "other")):
        code, out, _ = cli("cluster", *FILES, *PREPARED, "-k", k, "--out", folder)
        assert code == 0
        assert "What distinguishes the clusters" in out
        assert "sizes count whole groups of at least 5 rows" in " ".join(out.split())

    code, out, _ = cli("compare", "together", "other", "--json")
    assert code == 0
    (pair,) = json.loads(out)["pairs"]
    assert 0.2 < pair["agreement"]["ari"] <= 1
    assert pair["agreement"]["rows"] == n_rows

    code, _, _ = cli("label", "together", "va_long_beach.csv", "--id", "patient", "--out", "labels.csv")
    assert code == 0
    labels = read_csv(hospitals / "labels.csv")
    assert [row["patient"] for row in labels[:2]] == ["VA0000", "VA0001"]
    assert {row["cluster"] for row in labels} <= {"0", "1", "2"}

    profiles = read_csv(hospitals / "together" / "profiles.csv")
    assert sum(float(row["rows"]) for row in profiles if row["column"] == "age" and row["cluster"] != "all") == n_rows
    assert not [str(one.message) for one in recwarn]
