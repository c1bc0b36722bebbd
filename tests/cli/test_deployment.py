"""The commands of a deployment: clear errors before anything is started, nothing left behind."""

from __future__ import annotations

import json

import numpy as np
import pytest

from coterie.engines.nvflare import processes

pytest.importorskip("nvflare")

JOB = "clusters = 3\nout = 'out'\ncolumns = ['a', 'b']\n"


@pytest.fixture
def here(tmp_path, cli):
    rng = np.random.default_rng(0)
    for name in ("north", "south", "west"):
        np.savetxt(f"{name}.csv", rng.normal(size=(40, 2)), delimiter=",", header="a,b", comments="")
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path


def test_kits_are_made_and_listed(here, cli):
    done = cli("provision", "--sites", "north,south", "--server", "center.example.org", "--out", "kits")
    assert done[0] == 0, done[2]
    assert "sites/north" in done[1]
    assert sorted(path.name for path in (here / "kits").iterdir()) == ["analysts", "authority", "server", "sites"]


def test_a_site_looks_at_everything_before_it_starts(here, cli):
    assert cli("provision", "--sites", "north,south", "--out", "kits")[0] == 0
    done = cli("site", "start", "--kit", "kits/sites/north", "--data", "north.csv", "--check")
    assert done[0] == 0, done[2]
    assert "40 rows of 2 columns" in done[1]
    assert "function of 8 groups of at least 5 rows (40 of 40 rows are in a group)" in " ".join(done[1].split())
    told = json.loads((here / "kits" / "sites" / "north" / "local" / "coterie.json").read_text())
    assert told["data"] == str(here / "north.csv")
    again = cli("site", "start", "--kit", "kits/sites/north", "--check")
    assert "40 rows" in again[1]
    status = cli("site", "status", "--kit", "kits/sites/north", "--json")
    assert json.loads(status[1]) | {"data": "", "certificate_until": ""} == {
        "certificate_until": "",
        "site": "north", "server": "localhost:8002", "process": None, "in_a_job": False, "data": "",
        "policy": "standard", "runs": 0, "answers": 0, "refusals": 0, "bytes_up": 0, "last_answer": None,
        "last_method": None, "acknowledged_breaks": 0, "is_contradicted": False,
        "max_runs": 100, "runs_by_analyst": {}, "waiting": 0,
        "groups": ["Everything that ever left is a function of 8 groups of at least 5 rows."], "budget": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "job.toml", "--engine", "nvflare"], "needs --kit"),
        (["run", "job.toml", "--engine", "flower"], "inprocess or nvflare"),
        (["run", "job.toml", "--kit", "kits"], "--engine nvflare"),
        (["run", "job.toml", "--engine", "nvflare", "--kit", "nowhere"], "no start-up kit"),
        (["site", "start", "--kit", "nowhere", "--data", "north.csv"], "no start-up kit"),
        (["server", "start", "--kit", "."], "no start-up kit"),
        (["federation", "run", "job.toml"], "holds no federation"),
        (["federation", "down"], "holds no federation"),
        (["federation", "up"], "holds no federation"),
        (["federation", "up", "--data", "nowhere.csv", "--sites", "3"], "no such file"),
        (["federation", "up", "--data", "north.csv", "--data", "south.csv", "--sites", "3"], "one file per site"),
        (["federation", "up", "--data", "north.csv", "--sites", "50"], "cannot be dealt out"),
        (["provision", "--sites", "a b", "--out", "kits"], "letters, digits"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_stays(here, cli, words, told):
    before = sorted(path.name for path in here.iterdir())
    done = cli(*words)
    assert done[0] == 2
    assert told in done[2]
    assert sorted(path.name for path in here.iterdir()) == before


def test_a_job_over_a_federation_names_its_columns(here, cli):
    assert cli("provision", "--sites", "north,south,west", "--out", "kits")[0] == 0
    (here / "job.toml").write_text("clusters = 3\nout = 'out'\n")
    done = cli("run", "job.toml", "--engine", "nvflare", "--kit", "kits/analysts/analyst@coterie.local")
    assert done[0] == 2
    assert "columns = ['age', ...]" in done[2]


def test_a_server_that_is_not_there_is_said_to_be_away(here, cli):
    assert cli("provision", "--sites", "north,south,west", "--port", "1", "--out", "kits")[0] == 0
    done = cli("run", "job.toml", "--engine", "nvflare", "--kit", "kits/analysts/analyst@coterie.local")
    assert done[0] == 2
    assert "localhost:1" in done[2]
    assert not (here / "out").exists()


def test_a_site_with_too_few_rows_for_its_policy_is_told_so_before_it_starts(here, cli):
    assert cli("provision", "--sites", "north", "--out", "kits")[0] == 0
    (here / "one.csv").write_text("a,b\n1,2\n")
    told = cli("site", "start", "--kit", "kits/sites/north", "--data", "one.csv", "--check")
    assert told[0] == 0
    assert "fewer than 20 rows" in told[1]
    assert "fewer than" not in cli("site", "start", "--kit", "kits/sites/north", "--data", "north.csv", "--check")[1]


def test_stopping_what_is_not_running_is_no_error(here, cli):
    from coterie.engines.nvflare.kits import provision

    kits = provision(here / "kits", ["a"])
    assert processes.stop([kits["server"], kits["a"]]) == 0


def test_what_is_said_without_data_is_added_to_what_was_said_before(here, cli):
    """A policy that is changed counts, and nothing else changes with it."""
    assert cli("provision", "--sites", "north,south", "--out", "kits")[0] == 0
    start = ("site", "start", "--kit", "kits/sites/north", "--check")
    assert cli(*start, "--data", "north.csv", "--ignore", "b")[0] == 0
    done = cli(*start, "--policy", "strict")
    assert done[0] == 0, done[2]
    told = json.loads((here / "kits" / "sites" / "north" / "local" / "coterie.json").read_text())
    assert told["policy"] == "strict"
    assert told["ignore"] == ["b"]
    assert cli(*start, "--data", "north.csv")[0] == 0
    told = json.loads((here / "kits" / "sites" / "north" / "local" / "coterie.json").read_text())
    assert told["policy"] == "standard"
    assert told["ignore"] == []


def test_kits_that_were_there_are_said_to_be(here, cli):
    assert cli("provision", "--sites", "north", "--out", "kits")[0] == 0
    done = cli("provision", "--sites", "south", "--out", "kits")
    kept = [line.split()[0:2] for line in done[1].splitlines() if "kept" in line]
    assert kept == [["server", "localhost"], ["site", "north"], ["analyst", "analyst@coterie.local"]]
