"""``coterie plan``: what the ledger of ``coterie cluster`` says afterwards, before anything is sent."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import FILES


def within(amount, value):
    return amount["least"] <= value <= amount["most"]


@pytest.mark.parametrize("options", [["--scale", "standard"], ["--policy", "simulation", "--missing", "mean"]])
def test_a_run_takes_what_was_planned(cli, three, tmp_path, options):
    words = [*FILES, "-k", "3", *options]
    code, out, err = cli("plan", *words, "--json")
    assert code == 0, err
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)  # nothing was written
    (planned,) = json.loads(out)["methods"]
    assert cli("cluster", *words, "--out", "run")[0] == 0
    ledger = json.loads((tmp_path / "run" / "ledger.json").read_text())
    for name in ("bytes_up", "bytes_down", "rounds", "rounds_masking"):
        assert within(planned[name], ledger["total"][name]), name
    for site, totals in ledger["sites"].items():
        assert within(planned["sites"][site]["bytes_up"], totals["bytes_up"])
        assert within(planned["sites"][site]["bytes_down"], totals["bytes_down"])


def test_it_is_told_in_tables_and_sentences(cli, three):
    code, out, err = cli("plan", *FILES, "-k", "3")
    assert code == 0, err
    words = " ".join(out.split())
    assert "Plan for 3 sites, 150 rows, 3 columns. Nothing was sent." in words
    assert "Sending the rows would take 3,600 bytes (8 a value)." in words
    assert "Equal numbers are exact" in words
    assert "training centers at the sites sums only the sum over sites" in words
    assert "Sites check every question against the order" in words
    assert "Every site: 1 of the 100 runs that its policy allows an analyst." in words
    assert "Memory, inprocess: about" in words


def test_several_methods_are_compared(cli, three):
    words = "federated-kmeans,landmarks,ck,describe"
    code, out, err = cli("plan", *FILES, "-k", "3", "--methods", words)
    assert code == 0, err
    told = " ".join(out.split())
    assert all(method in told for method in words.split(","))
    assert "ck cannot be run so: ck sends rows" in told
    assert "Recommended: " in told


def test_without_files_sizes_are_typed(cli):
    code, out, err = cli("plan", "--sites", "4", "--rows", "4000,300,500,9000", "--columns", "24", "--json")
    assert code == 0, err
    assert json.loads(out)["sites"] == {
        f"site{i}": {"rows": rows, "columns": 24} for i, rows in enumerate((4000, 300, 500, 9000), 1)
    }
    code, out, _ = cli("plan", "--sites", "3", "--rows", "80", "--columns", "age,bmi", "-k", "2-5", "--json")
    assert (code, json.loads(out)["methods"][0]["method"]) == (0, "choose-k")


def test_a_job_of_a_federation_is_planned_by_its_columns(cli, tmp_path):
    job = """clusters = 4
columns = ["age", "sex", "bmi"]
categories = {sex = ["f", "m"]}
transforms = {bmi = "log"}
sites = ["north", "south", "west"]
"""
    (tmp_path / "job.toml").write_text(job)
    code, out, err = cli("plan", "job.toml", "--rows", "900,300,500", "--json")
    assert code == 0, err
    assert json.loads(out)["sites"]["north"] == {"rows": 900, "columns": 4}
    assert "--clusters: a job file says this itself" in cli("plan", "job.toml", "--rows", "900", "-k", "3")[2]
    assert "there is no data" in cli("plan", "job.toml", "--sites", "3")[2]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "there is no data; give one file per site, or --sites 5 --rows 4000 --columns 24"),
        (["--sites", "3", "--rows", "many", "--columns", "4"], "--rows many; give the rows of each site"),
        (["--sites", "3", "--rows", "4,5", "--columns", "4"], "--rows has 2 numbers for 3 sites"),
        (["--sites", "3", "--rows", "40"], "give --columns"),
        (["--sites", "3", "--rows", "40", "--columns", "4", "--methods", "kmeens"], "there is no method 'kmeens'"),
        (["--sites", "3", "--rows", "0", "--columns", "4"], "has rows=0"),
        (["--sites", "2", "--rows", "40", "--columns", "4"], "cannot form a masked sum"),
    ],
)
def test_what_is_wrong_is_said(cli, words, problem):
    code, out, err = cli("plan", *words)
    assert (code, out) == (2, "")
    assert problem in " ".join(err.split())


def test_files_and_typed_sizes_do_not_mix(cli, three):
    assert "--sites and --rows are for a plan without files" in cli("plan", *FILES, "--rows", "4")[2]
