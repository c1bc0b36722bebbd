"""Options that limit a site that lies: ranges, the largest share, and the comparison of two halves."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.federations import blobs


@pytest.fixture
def six(tmp_path):
    rows = blobs(180, 2, 3, seed=3)
    rows[5] = 1e6
    for i in range(6):
        np.savetxt(tmp_path / f"s{i}.csv", rows[i::6], delimiter=",", header="a,b", comments="")
    return [str(tmp_path / f"s{i}.csv") for i in range(6)]


RANGES = ("--ranges", "a=-30,30", "--ranges", "b=-30,30")


def test_ranges_clip_and_halves_are_compared_where_policies_allow_it(cli, six, tmp_path):
    (tmp_path / "site.toml").write_text("halves = true\n")
    out = tmp_path / "run"
    options = (*RANGES, "--max-share", "0.5", "--halves", "--policy", str(tmp_path / "site.toml"), "--out", str(out))
    code, _, wrong = cli("cluster", *six, "-k", "3", *options)
    assert code == 0, wrong
    result = json.loads((out / "result.json").read_text())
    assert np.abs(result["centers"]).max() <= 30
    assert result["halves"]["compared"]
    assert {s for part in result["halves"]["parts"] for s in part["sites"]} == {f"s{i}" for i in range(6)}
    total = np.sum([part["counts"] for part in result["halves"]["parts"]], axis=0)
    np.testing.assert_allclose(total, result["counts"], atol=1e-6)
    assert "Two halves of the sites" in result["summary"]
    assert "Two halves of the sites" in (out / "report.html").read_text()


def test_by_default_policies_allow_no_halves_and_the_result_says_so(cli, six, tmp_path):
    code, _, wrong = cli("cluster", *six, "-k", "3", "--halves", "--out", str(tmp_path / "run"))
    assert code == 0, wrong
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["halves"]["why_not"] == "a site's policy does not allow it"
    assert "were not compared: a site's policy does not allow it." in result["summary"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--ranges", "a=1"), "is not of the form COLUMN=LOW,HIGH"),
        (("--ranges", "a=x,1"), "is not of the form COLUMN=LOW,HIGH"),
        (("--ranges", "a=0,1"), "a run with ranges needs a range for every column, and 'b' has none"),
        (("--ranges", "a=2,1", "--ranges", "b=0,1"), "give [low, high] with low <= high"),
        ((*RANGES, "--ranges", "c=0,1"), "the column 'c', which is none of a, b"),
        (("--max-share", "2"), "above 0 and at most 1"),
        (("--max-share", "0.1"), "cannot hold for 6 sites"),
        (("--method", "landmarks", "--ranges", "a=0,1"), "'b' has none"),
    ],
)
def test_what_cannot_be_used_is_said(cli, six, tmp_path, options, says):
    code, told, wrong = cli("cluster", *six, "-k", "3", *options, "--out", str(tmp_path / "run"))
    assert code != 0
    assert says in " ".join((told + wrong).split())
