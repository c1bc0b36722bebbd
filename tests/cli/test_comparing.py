"""Runs compared on the command line: from label files, and by sums where labels are at the sites."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import adjusted_rand_score

from tests.cli.conftest import FILES, write_csv

NAMES = [Path(name).stem for name in FILES]
DATA = [word for name in FILES for word in ("--data", name)]


@pytest.fixture
def two(cli, three):
    """Two runs over the same rows."""
    for name, words in {"one": ("-k", 4), "two": ("-k", 3, "--seed", 3)}.items():
        code, _, err = cli("cluster", *FILES, *words, "--scale", "standard", "--out", name)
        assert code == 0, err


def labels(run):
    return np.concatenate([pq.read_table(f"{run}/labels/{name}.parquet")["cluster"] for name in NAMES])


def compared(cli, *words):
    code, out, err = cli("compare", *words, "--json")
    assert code == 0, err
    return json.loads(out)


def test_agreement_is_that_of_the_label_files(cli, two):
    made = compared(cli, "one", "two")
    (pair,) = made["pairs"]
    assert pair["agreement"]["ari"] == pytest.approx(adjusted_rand_score(labels("one"), labels("two")), abs=1e-12)
    assert (pair["agreement"]["counts_are"], pair["agreement"]["rows"]) == ("rows", 150)
    assert pair["costs_comparable"]
    assert pair["notes"] == []
    one, two = (json.loads(Path(name, "result.json").read_text()) for name in ("one", "two"))
    for facts, result in zip(made["runs"], (one, two), strict=True):
        for name in ("method", "cost", "cost_is", "counts_are", "rounds", "bytes_up"):
            assert facts[name] == result[name]
        assert facts["protection"] == ["groups of 5"]
    centers, theirs = np.array(one["centers"]), np.array(two["centers"])
    for (i, j), difference in zip(pair["centers"]["pairs"], pair["centers"]["differences"], strict=True):
        np.testing.assert_allclose(difference, theirs[j] - centers[i])
    assert sorted([i for i, _ in pair["centers"]["pairs"]] + pair["centers"]["unmatched"][0]) == [0, 1, 2, 3]
    assert len(pair["centers"]["unmatched"][0]) == 1


def test_people_see_it_side_by_side(cli, two):
    assert "a run is named twice" in cli("compare", "one", "two", "two/../one")[2]
    code, out, err = cli("compare", "one", "two")
    assert code == 0, err
    for words in ("at most", "groups of 5", "adjusted Rand index", "over 150 rows.", "without a counterpart", "seed"):
        assert words in out


def test_sites_label_rows_by_sums_where_their_labels_stay(cli, two):
    true = adjusted_rand_score(labels("one"), labels("two"))
    for name in ("one", "two"):
        shutil.rmtree(Path(name, "labels"))
    code, out, err = cli("compare", "one", "two")
    assert code == 0, err
    assert "those of one and two are at the sites; pass --data" in " ".join(out.split())
    (pair,) = compared(cli, "one", "two", *DATA, "--policy", "simulation")["pairs"]
    assert pair["agreement"]["ari"] == pytest.approx(true, abs=1e-12)
    assert (pair["agreement"]["counts_are"], pair["agreement"]["cost_is"]) == ("rows", "exact")
    (pair,) = compared(cli, "one", "two", *DATA)["pairs"]
    assert abs(pair["agreement"]["ari"] - true) < 0.1
    assert (pair["agreement"]["counts_are"], pair["agreement"]["cost_is"]) == ("whole_groups", "at_most")
    told = " ".join(cli("compare", "one", "two", *DATA)[1].split())
    assert "rows in whole groups, each labelled by its mean: an estimate of that of the rows." in told
    assert "Cost of these rows: at most" in told


def test_other_columns_of_the_same_rows_can_be_compared_by_their_labels(cli, two):
    assert cli("cluster", *FILES, "-k", 3, "--columns", "a,b", "--out", "ab")[0] == 0
    (pair,) = compared(cli, "one", "ab")["pairs"]
    assert pair["agreement"]["ari"] == pytest.approx(adjusted_rand_score(labels("one"), labels("ab")), abs=1e-12)
    assert pair["centers"] is None
    assert not pair["costs_comparable"]
    assert "other columns (not in both: c)" in pair["notes"][0]
    assert "in other units" in pair["notes"][1]


def test_other_rows_are_refused_as_far_as_they_are_known_to_be_others(cli, two):
    lines = Path("north.csv").read_text().splitlines()
    Path("north.csv").write_text("\n".join([lines[0], *lines[:0:-1]]) + "\n")
    assert cli("cluster", *FILES, "-k", 3, "--scale", "standard", "--out", "turned")[0] == 0
    (pair,) = compared(cli, "one", "turned")["pairs"]
    assert pair["agreement"] is None
    assert "the rows of north are other ones, or in another order" in pair["notes"][0]
    assert pair["centers"] is not None  # the columns are the same
    write_csv("north.csv", np.ones((20, 2)) * np.arange(20.0)[:, None], ("x", "y"))
    for name in ("south", "west"):
        write_csv(f"{name}.csv", np.ones((20, 2)) * np.arange(20.0)[:, None], ("x", "y"))
    assert cli("cluster", *FILES, "-k", 2, "--out", "unlike")[0] == 0
    code, _, err = cli("compare", "one", "unlike")
    assert code == 2
    assert "neither rows nor columns in common" in err
    assert "north has 50 rows in one and 20 in the other" in err
    assert "not in both: a, b, c, x, y" in err


def test_what_is_no_run_is_said_for_all_of_them_at_once(cli, two, tmp_path):
    code, _, err = cli("compare", "one", "nowhere", ".")
    assert code == 2
    assert "nowhere holds no finished run" in err
    assert ". holds no finished run" in err
    assert "name at least two" in cli("compare", "one")[2]
    assert "--policy goes with --data" in cli("compare", "one", "two", "--policy", "strict")[2]
    old = json.loads(Path("two/result.json").read_text()) | {"schema": 1}
    Path("two/result.json").write_text(json.dumps(old))
    assert (
        "the result has format 1, and this version of coterie reads 2; run it again."
        in cli("compare", "one", "two")[2]
    )


def test_kernel_clusters_agree_by_labels_and_their_centers_are_not_matched(cli, two):
    words = ("--method", "landmarks", "--set", "gamma=0.1", "--scale", "standard", "--out", "kernel")
    assert cli("cluster", *FILES, "-k", 3, *words)[0] == 0
    (pair,) = compared(cli, "two", "kernel")["pairs"]
    assert pair["agreement"]["ari"] == pytest.approx(adjusted_rand_score(labels("two"), labels("kernel")), abs=1e-12)
    assert "centers of embedded rows" in pair["notes"][0]
    (pair,) = compared(cli, "two", "kernel", *DATA)["pairs"]
    assert pair["agreement"]["costs"][1] is None
