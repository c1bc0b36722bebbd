"""``coterie choose-k``, and ``-k auto``."""

from __future__ import annotations

import json

import numpy as np
import pytest

from coterie.estimators.models import load_model
from tests.federations import blobs

SITES = ("north", "south", "west")


@pytest.fixture
def clustered(tmp_path, monkeypatch):
    """Four clusters at three sites, and one Gaussian at three others."""
    monkeypatch.chdir(tmp_path)
    one = np.random.default_rng(0).normal(size=(300, 4))
    for i, name in enumerate(SITES):
        for start, rows in (("", blobs(300, 4, 4, seed=3)), ("one-", one)):
            np.savetxt(f"{start}{name}.csv", rows[i::3], delimiter=",", header="a,b,c,d", comments="")
    return [f"{name}.csv" for name in SITES], [f"one-{name}.csv" for name in SITES]


def test_it_shows_every_number_and_recommends_one(cli, clustered, tmp_path):
    code, out, err = cli("choose-k", *clustered[0], "-k", "2-6", "--scale", "standard", "--out", "chosen")
    assert code == 0, err
    words = " ".join(out.split())
    assert "4 clusters are supported" in words
    assert "Rows stand in groups of at least 5" in words
    assert "cost, at most" in words
    facts = json.loads((tmp_path / "chosen" / "choose-k.json").read_text())
    assert (facts["recommended"], [of["k"] for of in facts["numbers"]]) == (4, [2, 3, 4, 5, 6])
    means = np.array(facts["numbers"][2]["centers"])  # in the units of the files
    rows = blobs(300, 4, 4, seed=3)
    assert ((rows[:, None] - means) ** 2).sum(axis=2).min(axis=1).mean() < 1.1 * 4
    page = (tmp_path / "chosen" / "report.html").read_text()
    assert "gap over one cluster by number of clusters: 2: " in page
    assert "already holds a finished run" in cli("choose-k", *clustered[0], "--out", "chosen")[2]


def test_json_is_all_that_is_printed(cli, clustered):
    code, out, _ = cli("choose-k", *clustered[1], "-k", "2-4", "--policy", "simulation", "--json")
    assert code == 0
    result = json.loads(out)
    assert result["choice"]["recommended"] is None
    assert result["choice"]["support"] == "unstable"
    assert result["cost_is"] == "exact"
    assert [of["k"] for of in result["choice"]["numbers"]] == [2, 3, 4]


def test_auto_goes_on_from_the_recommended_number(cli, clustered, tmp_path):
    code, out, err = cli("cluster", *clustered[0], "-k", "auto", "--policy", "simulation", "--out", "run")
    assert code == 0, err
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert len(result["centers"]) == 4
    assert json.loads((tmp_path / "run" / "choose-k.json").read_text())["recommended"] == 4
    assert len(load_model(tmp_path / "run" / "model.json").cluster_centers_) == 4
    asked = [line["asked"] for line in result["asked"]]
    assert asked.index("RateCandidates") < asked.index("Train")


def test_auto_stops_where_no_number_is_supported(cli, clustered, tmp_path):
    code, _, err = cli("cluster", *clustered[1], "-k", "auto", "--policy", "simulation", "--out", "run")
    assert code == 2
    assert "No number of clusters is supported" in err
    assert "-k K" in err
    assert "n_clusters" not in err
    assert not (tmp_path / "run").exists()
    code, out, err = cli("site", "preview", clustered[1][0], "-k", "auto")
    assert code == 0, err
    assert "RateCandidates" in " ".join(out.split()) or "judging" in out or "Ratings" in out


def test_kernel_clusters_are_shown_without_a_recommendation(cli, clustered):
    code, out, err = cli("choose-k", *clustered[0], "-k", "2-4", "--method", "landmarks", "--policy", "simulation")
    assert code == 0, err
    assert "No number is recommended for clusters of a kernel's features" in " ".join(out.split())


def test_a_job_file_may_ask_for_it(cli, clustered, tmp_path):
    (tmp_path / "job.toml").write_text(
        f'data = {json.dumps(clustered[0])}\nclusters = "2-5"\npolicy = "simulation"\nout = "there"\n'
    )
    code, out, err = cli("run", "job.toml")
    assert code == 0, err
    assert "4 clusters are supported" in " ".join(out.split())


def test_a_private_run_shows_estimates_and_what_was_released(cli, tmp_path):
    rows = blobs(6000, 2, 3, seed=1)
    for i, name in enumerate(SITES):
        np.savetxt(f"{name}.csv", rows[i::3], delimiter=",", header="a,b", comments="")
    ranges = ["--ranges", "a=-30,30", "--ranges", "b=-30,30"]
    files = [f"{name}.csv" for name in SITES]
    code, out, err = cli("choose-k", *files, "-k", "2-5", "--epsilon", "2", *ranges, "--out", "privately")
    assert code == 0, err
    words = " ".join(out.split())
    assert "cost, about" in words
    assert "What was released" in words
    assert "about 6,0" in words or "about 5,9" in words
    facts = json.loads((tmp_path / "privately" / "choose-k.json").read_text())
    assert [of["k"] for of in facts["numbers"] if of["gap"] is not None] == [facts["recommended"]]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("cluster", "-k", "2-5"), "`coterie choose-k` judges them"),
        (("cluster", "-k", "many"), "clusters='many'; it is a whole number of at least 1, auto, or numbers to judge"),
        (("cluster", "-k", "0"), "clusters=0; use a whole number of at least 1"),
        (("cluster", "-k", "auto", "--method", "lloyd"), "n_clusters='auto' must be a whole number, at least 1"),
        (("cluster", "-k", "auto", "--set", "init=random"), "n_clusters='auto' does not go with init"),
        (("cluster", "-k", "auto", "--set", "n_init=3"), "n_clusters='auto' does not go with n_init"),
        (("choose-k", "-k", "5"), "clusters='5'"),
        (("choose-k", "-k", "5-3"), "the smallest number comes first: 3-5"),
        (("choose-k", "-k", "1-3"), "min_clusters=1 must be a whole number, at least 2"),
        (("choose-k", "--method", "dspgd"), "numbers of clusters are not judged for dspgd"),
        (("choose-k", "--set", "gamma=2"), "federated-kmeans has no parameter 'gamma'"),
        (
            ("choose-k", "-k", "2-4", "--epsilon", "1", "--method", "landmarks"),
            "numbers of clusters of landmarks cannot be judged privately",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_asked_for_is_said_in_one_sentence(cli, clustered, tmp_path, command, words):
    before = set(tmp_path.iterdir())
    code, _, err = cli(command[0], *clustered[0], *command[1:])
    assert code == 2
    assert words in err
    assert set(tmp_path.iterdir()) == before
