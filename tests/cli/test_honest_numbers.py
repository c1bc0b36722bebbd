"""Every number of a result is exact, or says what it is."""

from __future__ import annotations

import csv
import json
import platform
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from coterie import FederatedKMeans, load_model
from coterie.report.outputs import write_run
from tests.cli.conftest import FILES
from tests.federations import blobs

NAMES = [Path(name).stem for name in FILES]


def true_cost_and_sizes(folder, rows):
    """The cost of the final centers over the rows as they are, and the rows labelled with each."""
    prepared = load_model(folder / "model.json").prepared_rows(rows)
    centers = load_model(folder / "model.json")._prepared_centers
    labels = np.concatenate([pq.read_table(folder / f"labels/{name}.parquet")["cluster"] for name in NAMES])
    return ((prepared - centers[labels]) ** 2).sum(), np.bincount(labels, minlength=len(centers))


@pytest.mark.parametrize(("policy", "cost_is", "counts_are"), [
    ("standard", "at_most", "whole_groups"),
    ("simulation", "exact", "rows"),
])  # fmt: skip
def test_costs_and_sizes_are_what_they_are_labelled(cli, three, policy, cost_is, counts_are):
    words = ("cluster", *FILES, "-k", 5, "--scale", "standard", "--policy", policy, "--seed", 3, "--out", "run")
    code, out, err = cli(*words)
    assert code == 0, err
    result = json.loads(Path("run/result.json").read_text())
    assert (result["cost_is"], result["counts_are"]) == (cost_is, counts_are)
    rounded = np.round(three, 6)
    cost, sizes = true_cost_and_sizes(Path("run"), rounded)
    assert sum(result["counts"]) == result["rows"]["clustered"] == result["rows"]["held"] == 150
    if cost_is == "exact":
        assert result["cost"] == pytest.approx(cost, rel=1e-9)
        assert result["counts"] == sizes.tolist()
        assert "at most" not in out
        assert "rows in groups" not in out
    else:
        assert cost < result["cost"] < 1.5 * cost
        assert result["counts"] != sizes.tolist()  # so that the label is needed
        assert "k-means cost at most" in out
        assert "rows in groups" in out
        assert "rows in groups" in Path("run/report.html").read_text()


def test_the_result_says_what_was_in_force(cli, three):
    code, _, err = cli(
        "cluster", *FILES, "-k", 2, "--scale", "standard", "--missing", "mean", "--seed", 7, "--out", "a"
    )
    assert code == 0, err
    facts = json.loads(Path("a/result.json").read_text())["in_force"]
    assert {name: site["protection"] for name, site in facts["sites"].items()} == dict.fromkeys(NAMES, "groups")
    for site in facts["sites"].values():
        assert site["policy"]["min_roster"] == 3
        assert not {"alignment_key", "peers"} & site["policy"].keys()
    assert facts["sums"] == "masked"
    assert facts["seed"]["asked"] == 7
    assert isinstance(facts["seed"]["public"], int)
    assert (facts["preparation"]["scale"], facts["preparation"]["missing"]) == ("standard", "mean")
    assert facts["versions"]["python"] == platform.python_version()
    assert facts["versions"].keys() == {"coterie", "numpy", "scipy", "scikit-learn", "python"}
    page = Path("a/report.html").read_text()
    for words in ("What was in force", "protection: groups of at least 5 rows", "asked for 7", "scikit-learn"):
        assert words in page
    code, _, err = cli("cluster", *FILES, "-k", 2, "--policy", "simulation", "--out", "b")
    facts = json.loads(Path("b/result.json").read_text())["in_force"]
    assert (facts["sums"], facts["sites"]["north"]["protection"], facts["sites"]["north"]["min_group"]) == (
        "plain", "none", 0,
    )  # fmt: skip


def test_what_sites_signed_is_recorded_where_their_policies_are_their_own(cli, three):
    import coterie
    from coterie.sites.policy import Policy

    policies = {name: Policy(min_group=6 if name == "west" else 5) for name in NAMES}
    tables = dict(zip(NAMES, FILES, strict=True))
    model = coterie.fit(FederatedKMeans(2, random_state=0), tables, policy=policies)
    facts = write_run(Path("remote"), model, {}, {})["in_force"]
    assert {name: site["min_group"] for name, site in facts["sites"].items()} == {"north": 5, "south": 5, "west": 6}
    assert {site["protection"] for site in facts["sites"].values()} == {"groups"}


def test_rows_left_out_with_their_group_are_not_counted_silently(cli, three):
    lines = Path("north.csv").read_text().splitlines()
    lines[7] = ",".join(["", *lines[7].split(",")[1:]])
    Path("north.csv").write_text("\n".join(lines) + "\n")
    code, out, err = cli("cluster", *FILES, "-k", 2, "--missing", "drop", "--out", "run")
    assert code == 0, err
    rows = json.loads(Path("run/result.json").read_text())["rows"]
    assert rows["held"] == 150
    assert 140 <= rows["clustered"] < 149  # a group of at least five lacks one value
    assert f"{rows['clustered']:.0f} of 150 rows" in out
    assert json.loads(Path("run/result.json").read_text())["cost_is"] == "estimate"


def test_sizes_in_files_have_all_their_digits(tmp_path):
    model = FederatedKMeans(2, random_state=0).fit(blobs(40, 2, 2))
    model.counts_ = np.array([12_345_678.0, 3.0])
    model.feature_names_in_ = np.array(["a", "b"], object)
    write_run(tmp_path, model, {}, {})
    with (tmp_path / "centers.csv").open() as file:
        assert [line[1] for line in csv.reader(file)] == ["rows", "12345678", "3"]


def test_a_kernel_cost_over_groups_is_an_estimate(cli, three):
    words = ("cluster", *FILES, "-k", 2, "--method", "landmarks", "--set", "gamma=0.1", "--out", "run")
    code, out, err = cli(*words)
    assert code == 0, err
    assert json.loads(Path("run/result.json").read_text())["cost_is"] == "estimate"
    assert "k-means cost about" in out
