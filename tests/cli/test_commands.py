"""The commands as a person meets them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import FILES, write_csv


def test_cluster_leaves_everything_a_person_or_a_program_needs(cli, three, tmp_path):
    code, out, err = cli("cluster", *FILES, "-k", 3, "--out", "run")
    assert code == 0, err
    assert "3 clusters over 3 sites" in out
    assert "report.html" in out
    run = tmp_path / "run"
    names = {p.name for p in run.iterdir()}
    assert names >= {"result.json", "centers.csv", "labels", "ledger.jsonl", "ledger.json", "journal", "report.html"}
    result = json.loads((run / "result.json").read_text())
    assert result["schema"] == 2
    assert result["bytes_up"] == json.loads((run / "ledger.json").read_text())["total"]["bytes_up"]
    labels = [
        pq.read_table(run / "labels" / f"{n}.parquet")["cluster"].to_numpy() for n in ("north", "south", "west")
    ]
    assert [len(x) for x in labels] == [50, 50, 50]
    assert sum(result["counts"]) == 150
    assert (result["cost_is"], result["counts_are"], result["min_group"]) == ("at_most", "whole_groups", 5)
    assert "k-means cost at most" in result["summary"]
    own = np.bincount(np.concatenate(labels), minlength=3)
    assert np.abs(own - result["counts"]).max() <= 10  # rows at the border are in another group's cluster
    assert "://" not in (run / "report.html").read_text()


def test_json_is_all_that_is_printed(cli, three):
    code, out, err = cli("cluster", *FILES, "-k", 2, "--json", "--method", "lloyd")
    assert code == 0
    assert err == ""
    assert json.loads(out)["method"] == "lloyd"


@pytest.mark.parametrize("method", ["federated-kmeans", "lloyd", "one-shot"])
def test_every_method_clusters_files(cli, three, method):
    words = ("cluster", *FILES, "-k", 3, "--method", method, "--scale", "standard", "--json")
    if method == "one-shot":
        code, _, err = cli(*words)
        assert code == 3
        assert "does not allow this per-site result" in err
    code, out, _ = cli(*words, "--policy", "research", "--out", "allowed")
    assert code == 0
    result = json.loads(out)
    assert result["counts"] == sorted(result["counts"], key=result["counts"].index)
    assert sum(result["counts"]) == 150


def test_one_file_with_a_site_column_is_the_same_as_one_file_a_site(cli, three, tmp_path):
    parts = [
        (name, np.loadtxt(tmp_path / f"{name}.csv", delimiter=",", skiprows=1)) for name in ("north", "south", "west")
    ]
    rows = [(*row, name) for name, part in parts for row in part.tolist()]
    write_csv("all.csv", rows, ("a", "b", "c", "place"))
    one = json.loads(cli("cluster", "all.csv", "--site-column", "place", "-k", 3, "--out", "one", "--json")[1])
    words = ("cluster", *FILES, "-k", 3, "--policy", "simulation", "--out", "many", "--json")
    many = json.loads(cli(*words)[1])
    assert one["centers"] == many["centers"]
    assert one["bytes_up"] == many["bytes_up"]


def test_run_reads_a_file_and_names_the_nearest_key(cli, three, tmp_path):
    job = tmp_path / "job.toml"
    job.write_text('data = ["north.csv", "south.csv", "west.csv"]\nclusters = 3\nscale = "standard"\nout = "there"\n')
    code, _, err = cli("run", job)
    assert code == 0, err
    assert (tmp_path / "there" / "result.json").exists()
    job.write_text('data = ["north.csv"]\nclutsers = 3\n')
    code, _, err = cli("run", job)
    assert code == 2
    assert "there is no key 'clutsers'; did you mean 'clusters'?" in err
    job.write_text('data = ["north.csv"]\nclusters = "three"\n')
    assert "clusters='three'; it is a whole number of at least 1" in cli("run", job)[2]
    job.write_text('data = ["north.csv"]\nclusters = 3\n[settings]\nepoch = 2\n')
    assert "has no parameter 'epoch'; did you mean 'epochs'?" in cli("run", job)[2]
    job.write_text("clusters = 3\n")
    assert "data is missing" in cli("run", job)[2]
    job.write_text("clusters = = 3\n")
    assert "not a TOML file" in cli("run", job)[2]


def test_assign_labels_new_rows_as_the_run_did(cli, three, tmp_path):
    cli("cluster", *FILES, "-k", 3, "--scale", "standard", "--out", "run")
    code, out, err = cli("assign", "run/model.json", "south.csv", "--out", "new.parquet")
    assert code == 0, err
    new = pq.read_table("new.parquet")["cluster"]
    assert new.equals(pq.read_table("run/labels/south.parquet")["cluster"])
    write_csv("short.csv", [(1.0, 2.0)], ("a", "b"))
    code, _, err = cli("assign", "run/model.json", "short.csv")
    assert code == 2
    assert "'c'" in err
    assert not list(tmp_path.glob("short.csv.*"))


def test_models_of_other_formats_are_refused_clearly(cli, three, tmp_path):
    cli("cluster", *FILES, "-k", 2, "--out", "run")
    model = tmp_path / "run" / "model.json"
    whole = json.loads(model.read_text())
    for change, told in (
        ({"schema": 9}, "model format 9 is not known"),
        ({"kind": "recipe"}, "not a model file of coterie"),
        ({"result": {**whole["result"], "centers": [[1.0]]}}, "the model file is damaged"),
        ({"result": None}, "the model file is damaged"),
        ({"kind": "FederatedKernelKMeans"}, "the model file is damaged"),
    ):
        model.write_text(json.dumps({**whole, **change}))
        code, _, err = cli("assign", model, "north.csv")
        assert code == 2
        assert told in err
    model.write_text("not JSON")
    assert "not a model file" in cli("assign", model, "north.csv")[2]
    assert "no such file" in cli("assign", "nowhere.json", "north.csv")[2]


def test_preview_shows_what_would_be_sent_and_sends_nothing(cli, three, tmp_path):
    before = set(tmp_path.iterdir())
    code, out, _ = cli("site", "preview", "north.csv", "-k", 3)
    assert code == 0
    assert "WeightedCenters" in out  # the standard policy allows no per-site results, so a start by sums
    assert "a sum over" in out
    assert "refused" not in out
    assert "Nothing was sent" in out
    assert (
        "LocalCenters"
        in cli("site", "preview", "north.csv", "-k", 3, "--method", "one-shot", "--policy", "research")[1]
    )
    told = cli("site", "preview", "north.csv", "-k", 3, "--method", "one-shot")[1]
    assert "Where it says refused: the site's policy does not allow this per-site result." in " ".join(told.split())
    assert set(tmp_path.iterdir()) == before
    answers = json.loads(cli("site", "preview", "north.csv", "-k", 3, "--method", "lloyd", "--json")[1])
    start, profile = ["ColumnSums", "CellSums", "EachMoments"], ["ClusterSums", "BinCounts"]
    assert [a["answer"] for a in answers] == ["SiteHello", *start, "Moments", "Sizes", *profile, "Concluded"]


def test_ledgers_are_shown_and_verified(cli, three, tmp_path):
    cli("cluster", *FILES, "-k", 3, "--out", "run")
    code, out, _ = cli("ledger", "verify", "run")
    assert code == 0
    assert "Reconciled the ledgers of 3 sites" in out
    assert "WeightedCenters" in cli("ledger", "show", "run")[1]
    shown = cli("ledger", "show", "run/journal/sites/west.jsonl")[1]
    assert "What left this site" in shown
    path = tmp_path / "run" / "ledger.jsonl"
    path.write_text(path.read_text().replace('"round":2,', '"round":9,'))
    code, _, err = cli("ledger", "verify", "run")
    assert code == 4
    assert "line 3 was changed" in err
    assert cli("ledger", "show", "nowhere")[0] == 2


def test_a_site_that_wrote_down_less_than_the_server_received_is_named(cli, three, tmp_path):
    cli("cluster", *FILES, "-k", 3, "--out", "run")
    other = cli("cluster", *FILES, "-k", 2, "--out", "other")
    assert other[0] == 0
    for end, told in (
        (".jsonl", "according to its head file"),
        (".jsonl.head", "is signed by another key than this site's"),
        (".jsonl.sign", "site north has 0 bytes sent"),
    ):
        (tmp_path / "other/journal/sites" / f"north{end}").replace(tmp_path / "run/journal/sites" / f"north{end}")
        code, _, err = cli("ledger", "verify", "run")
        assert (code, told in err) == (4, True), err


def test_policies_are_written_checked_and_explained(cli, tmp_path):
    assert cli("policy", "init", "site.toml")[0] == 0
    assert cli("policy", "check", "site.toml")[0] == 0
    assert "sums, counts and averages" in cli("policy", "explain", "site.toml")[1]
    code, _, err = cli("policy", "init", "site.toml")
    assert (code, "already exists" in err) == (2, True)
    for text, told in (
        ("min_row = 3", "did you mean 'min_rows'?"),
        ('per_site_results = "all"', "per_site_results is none, averages or rows"),
        ('methods = ["kmeans"]', "there is no method 'kmeans'"),
        ("min_rows = -1", "min_rows is a whole number, at least 0"),
        ("min_rows = true", "min_rows is a whole number"),
        ("= 3", "not a TOML file"),
    ):
        Path("bad.toml").write_text(text)
        code, _, err = cli("policy", "check", "bad.toml")
        assert code == 2
        assert told in err


def test_methods_and_audits(cli):
    code, out, _ = cli("methods")
    assert code == 0
    assert "federated-kmeans" in out
    assert {m["name"] for m in json.loads(cli("methods", "--json")[1])} == {
        "lloyd",
        "federated-kmeans",
        "one-shot",
        "landmarks",
        "dspgd",
        "dspgd-dense",
        "rfk",
        "ck",
        "sk",
        "ce-pca",
        "choose-k",
        "compare",
        "describe",
        "nr",
        "fss",
        "jl+fss",
        "fss+jl",
        "jl+fss+jl",
        "bklw",
        "jl+bklw",
        "edge-kmeans",
        "federated-pca",
        "vertical-kernel-pca",
        "dpca",
    }
    heads = ["Recommended", "Other methods", "Baselines, to compare with"]
    assert [line for line in out.splitlines() if line in heads] == heads
    places = [out.index(f"\n{name}  ") for name in ("federated-kmeans", "landmarks", "lloyd", "dspgd", "nr", "ck")]
    assert places == sorted(places)
    assert "LocalCenters.centers" in cli("audit", "one-shot")[1]
    code, _, err = cli("audit", "one-shots")
    assert code == 2
    assert "did you mean 'one-shot'?" in err


def test_parameters_of_the_method_can_be_set(cli, three, tmp_path):
    words = ("cluster", *FILES, "-k", 3, "--method", "landmarks", "--json", "--policy", "research")
    code, out, err = cli(*words, "--set", "gamma=0.01", "--set", "landmarks=local", "--out", "run")
    assert code == 0, err
    result = json.loads(out)
    assert result["settings"]["settings"] == {"gamma": 0.01, "landmarks": "local"}
    assert json.loads((tmp_path / "run" / "model.json").read_text())["result"]["kernel"]["gamma"] == 0.01
    assert cli("assign", "run/model.json", "north.csv", "--out", "again.parquet")[0] == 0
    again = pq.read_table(tmp_path / "again.parquet")["cluster"].to_numpy()
    np.testing.assert_array_equal(
        again, pq.read_table(tmp_path / "run" / "labels" / "north.parquet")["cluster"].to_numpy()
    )
    for wrong, told in (
        ("gama=1", "did you mean 'gamma'"),
        ("gamma", "NAME=VALUE"),
        ("landmarks=x", "landmarks='x'"),
    ):
        code, _, err = cli(*words, "--set", wrong, "--out", "other")
        assert code != 0
        assert told in err
        assert not (tmp_path / "other").exists()


def test_dropping_missing_values_leaves_whole_groups_and_a_run(cli, tmp_path):
    """Sites of about 300 rows that show fewer than 256 complete ones: limits are those of what the run sees."""
    rows = np.random.default_rng(0).normal(size=(900, 3))
    rows[::6, 1] = np.nan
    for name, part in zip(("north", "south", "west"), np.array_split(rows, 3), strict=True):
        write_csv(tmp_path / f"{name}.csv", [["" if v != v else float(v) for v in row] for row in part.tolist()])
    code, out, err = cli("cluster", *FILES, "-k", 2, "--missing", "drop", "--json", "--out", "run")
    assert code == 0, err
    assert 0 < sum(json.loads(out)["counts"]) <= 750
