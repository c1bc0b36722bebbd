"""Differential privacy on the command line: ordered, refused in words, and told in every result of a run."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from coterie.cli import remote_jobs
from coterie.cli.jobs import read_job
from coterie.deployment.job import read_job as read_remote
from coterie.estimators.models import load_model
from coterie.methods.registry import METHODS
from coterie.methods.shared.privacy import PrivacySpent, Release
from tests.cli.conftest import FILES, write_csv
from tests.federations import blobs
from tests.orders import ANALYST

CLUSTER = ("cluster", *FILES, "-k", 3)
RANGES = "a = [-30, 30]\nb = [-30, 30.5]\nc = [-30, 30]\n"
PRIVATE = (*CLUSTER, "--epsilon", 2, "--ranges", "ranges.toml")


@pytest.fixture
def here(cli, tmp_path):
    """Three sites' files, with rows enough for the noise, and ranges."""
    rows = blobs(3000, 3, 3, seed=7)
    for name, part in zip(FILES, np.array_split(rows, 3), strict=True):
        write_csv(tmp_path / name, part.tolist())
    (tmp_path / "ranges.toml").write_text(RANGES)
    return tmp_path


def one_line(text):
    return " ".join(text.split())


def test_the_column_of_the_unit_is_no_part_of_the_data(three, tmp_path, cli):
    for name in FILES:
        lines = (tmp_path / name).read_text().splitlines()
        named = [f"{line},p{number // 2}" for number, line in enumerate(lines[1:])]
        (tmp_path / name).write_text("\n".join([f"{lines[0]},patient", *named, ""]))
    (tmp_path / "ranges.toml").write_text(RANGES)
    (tmp_path / "site.toml").write_text(
        'protection = "noise"\n[privacy]\nepsilon = 100\nunit = "patient"\nrows_per_unit = 2\n'
    )
    given = (*CLUSTER, "--epsilon", 20, "--ranges", "ranges.toml", "--policy", "site.toml")
    for words in (("--unit", "patient", "--out", "run"), ("--out", "rows")):
        code, _, err = cli(*given, *words)
        assert code == 0, err
        assert Path(words[-1], "centers.csv").read_text().splitlines()[0].count("patient") == 0
    assert json.loads(Path("run/result.json").read_text())["privacy"]["unit"] == "patient"
    code, _, err = cli(*CLUSTER, "--epsilon", 1, "--unit", "person", "--ranges", "ranges.toml", "--out", "other")
    assert code != 0
    assert "there is no column 'person'" in one_line(err)


# ---------------------------------------------------------------- results


def test_a_private_run_says_what_it_promised_in_every_file(here, cli):
    code, out, err = cli(*PRIVATE, "--out", "run")
    assert code == 0, err
    told = one_line(out)
    for words in (
        "Differentially private: epsilon = 2, delta = 1e-06. Adding or removing one row changes the probability",
        "by a factor of at most exp(2) = 7.39, up to a probability of 1e-06.",
        "Each of 3 sites added its share of the noise, and all of them are needed (tolerated = 0)",
        "Epsilon bounds what the releases of this run tell, not what is known of the tables",
        "Centers, sizes and costs are estimates",
        "share of the privacy",
        "are estimates with noise",
    ):
        assert words in told
    result = json.loads(Path("run/result.json").read_text())
    privacy = result["privacy"]
    assert (privacy["epsilon"], privacy["delta"], privacy["unit"]) == (2.0, 1e-6, "row")
    assert (privacy["tolerated"], privacy["sites"], privacy["bounds"]) == (0, 3, "releases")
    assert sum(release["share"] for release in privacy["releases"]) == pytest.approx(1.0)
    assert (result["cost_is"], result["counts_are"], result["min_group"]) == ("estimate", "noisy", 0)
    page = Path("run/report.html").read_text()
    for words in ("epsilon = 2, delta = 1e-06", "about ", "it shows no row", privacy["releases"][0]["what"]):
        assert words in page
    assert "<img" not in page
    with Path("run/centers.csv").open() as file:
        assert next(csv.reader(file))[:2] == ["cluster", "rows_about"]
    assert len(list(Path("run/labels").iterdir())) == 3


@pytest.mark.parametrize("how", ["terminal", "report.html", "result.json"])
def test_no_exact_number_is_claimed(here, cli, how):
    shown = cli(*PRIVATE, "--out", "run")[1]
    text = shown if how == "terminal" else Path("run", how).read_text()
    rows = json.loads(Path("run/result.json").read_text())["counts"]
    if how == "result.json":
        assert json.loads(text)["summary"].startswith("about ")
        return
    for count in rows:
        assert re.search(rf"about {count:,.0f}\b", text)
    before = re.findall(r"(\S+) [\d,]+ rows", one_line(re.sub("<[^>]*>", " ", text)))
    assert before
    assert set(before) <= {"about", "of"}  # "a standard deviation of"


def test_a_model_keeps_the_promise_and_gives_it_back(here, cli):
    assert cli(*PRIVATE, "--tolerated", 2, "--delta", "1e-7", "--out", "run")[0] == 0
    model = load_model("run/model.json")
    spent = model.privacy_
    assert isinstance(spent, PrivacySpent)
    assert (spent.epsilon, spent.delta, spent.tolerated, spent.sites) == (2.0, 1e-7, 2, 3)
    assert spent.releases[0] == Release("number of rows, mean, spread", 0.06)
    assert model.privacy.epsilon == 2.0
    assert cli("assign", "run/model.json", "west.csv")[0] == 0
    report = one_line(Path("run/report.html").read_text())
    assert "the shares of 1 are enough: 2 sites may drop out, or collude with the server" in report


def test_the_certificate_says_noise_and_what_was_taken(here, cli):
    assert cli(*PRIVATE, "--out", "run")[0] == 0
    shown = one_line(cli("certificate", "run")[1])
    assert shown.count(" noise ") == 3
    assert re.search(r"the run took from the sites' budgets epsilon = (1\.9|2)\d* at delta = 1e-06", shown)
    assert "(north, south, west)" in shown
    assert "not what is known of the table" not in shown
    assert "Differentially private" in one_line(cli("certificate", "verify", "run/certificate.json")[1])
    site = json.loads(cli("certificate", "run", "--json")[1])["sites"]["west"]
    assert site["epsilon"] == pytest.approx(2.0, rel=0.05)
    assert (site["delta"], site["resets"], site["bounds_table"]) == (1e-6, 0, True)


def test_under_groups_epsilon_bounds_the_run_and_not_the_table(here, cli):
    Path("groups.toml").write_text("[privacy]\nepsilon = 3\n")
    told = one_line(cli("policy", "explain", "groups.toml")[1])
    assert "Epsilon then bounds what the releases of these runs tell, not what is known of the table" in told
    code, out, err = cli(*PRIVATE, "--policy", "groups.toml", "--out", "run")
    assert code == 0, err
    sentence = "Epsilon bounds what the releases of this run tell, not what is known of the tables"
    assert sentence in one_line(out)
    assert sentence in one_line(Path("run/report.html").read_text())
    assert json.loads(Path("run/result.json").read_text())["privacy"]["bounds"] == "releases"
    shown = one_line(cli("certificate", "run")[1])
    assert "about a row of north, south, west, and not what is known of the table" in shown
    assert shown.count(" noise ") == 3


def test_one_owners_runs_make_the_same_noise(here, cli):
    code, out, _ = cli(*PRIVATE, "--policy", "simulation", "--out", "run")
    assert code == 0
    assert "Differentially private: epsilon = 2" in out
    assert json.loads(Path("run/result.json").read_text())["privacy"]["bounds"] == "releases"
    asked = {one["content"] for one in json.loads(Path("run/result.json").read_text())["asked"]}
    assert "noisy" in asked
    assert not asked & {"sums", "grams", "averages", "rows"}


def test_ledgers_show_noisy_sums_by_that_word(here, cli):
    assert cli(*PRIVATE, "--out", "run")[0] == 0
    told = one_line(cli("ledger", "show", "run/journal/sites/north.jsonl")[1])
    assert "answers (noisy sums), each only in a sum over 3 sites" in told
    assert " NoisyCells noisy " in told
    assert "a receipt" not in told  # charges are no messages
    assert cli("ledger", "verify", "run")[0] == 0
    assert one_line(cli("ledger", "show", "run")[1]).count("NoisyMoments") == 1


# ---------------------------------------------------------------- what cannot be


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--epsilon", 1), "differential privacy needs a range for every column, and 'a', 'b', 'c' have none; pass"),
        (("--epsilon", 1), "a TOML file with lines such as a = [LOW, HIGH] (--ranges ranges.toml)"),
        (("--epsilon", 1, "--ranges", "a=0,1", "--ranges", "b=0,1"), "and 'c' has none; pass --ranges c=LOW,HIGH"),
        (("--epsilon", 0, "--ranges", "ranges.toml"), "epsilon=0.0 must be a number at least 0.001 and at most 100"),
        (("--epsilon", 1, "--delta", 0, "--ranges", "ranges.toml"), "delta=0.0 must be a number at least 1e-15"),
        (("--delta", 1e-6), "--delta goes with --epsilon; add --epsilon 1, or leave it out"),
        (("--tolerated", 1), "--tolerated goes with --epsilon"),
        (("--epsilon", 1, "--ranges", "range.toml"), "ranges 'range.toml': there is no such file; give COLUMN=LOW,"),
        (("--epsilon", 1, "--ranges", "north.csv"), "north.csv: this is not a TOML file of ranges"),
        (("--epsilon", 1, "--ranges", "two.toml"), "the range of 'a' is [1, 2, 3]; give [low, high]"),
        (
            ("--epsilon", 5, "--ranges", "ranges.toml"),
            "takes epsilon=5 of the budget of north, which is epsilon=4 at delta=1e-06",
        ),
        (("--epsilon", 1, "--tolerated", 3, "--ranges", "ranges.toml"), "tolerated=3 of 3 sites; at least one must"),
        (("--epsilon", 1, "--ranges", "ranges.toml", "--set", "max_rounds=9"), "privacy does not go with max_rounds"),
        (("--epsilon", 1, "--ranges", "ranges.toml", "--max-share", 0.9), "privacy cannot check max_share"),
        (("--set", "privacy=1"), "settings has 'privacy'; pass --epsilon"),
        (("--policy", "private"), "north, south, west answers only differentially private orders; give the run"),
        (("--policy", "private", "--method", "lloyd"), "lloyd cannot be run privately; use federated-kmeans"),
        (("--epsilon", 1, "--ranges", "ranges.toml", "--policy", "standard"), "has no budget for differentially"),
    ],
)
def test_what_cannot_be_is_one_sentence_before_anything_is_asked(here, cli, words, told):
    Path("two.toml").write_text("a = [1, 2, 3]\nb = [0, 1]\nc = [0, 1]\n")
    code, _, err = cli(*CLUSTER, *words, "--out", "run")
    assert code == 2
    assert told in err
    assert "round 0" not in err
    assert not Path("run").exists()


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if not method.can_be_private])
def test_methods_that_cannot_be_private_name_one_that_can(here, cli, method):
    code, _, err = cli(*PRIVATE, "--method", method, "--out", "run")
    assert code == 2
    assert re.search(
        rf"{re.escape(method)} (cannot be run privately; use .*federated-kmeans|finds components|finds no clusters)",
        err,
    )


def test_missing_values_are_no_reason_to_refuse(here, cli):
    lines = Path("north.csv").read_text().splitlines()
    lines[3] = "," + lines[3].partition(",")[2]
    Path("north.csv").write_text("\n".join(lines) + "\n")
    assert "holds 1 missing value" in cli(*CLUSTER, "--out", "run")[2]
    code, _, err = cli(*PRIVATE, "--out", "run")
    assert code == 0, err


# ---------------------------------------------------------------- previews, job files


def test_a_preview_says_what_a_run_would_take(here, cli):
    words = ("site", "preview", "north.csv", "-k", 3, "--policy", "private", "--ranges", "ranges.toml")
    told = one_line(cli(*words, "--epsilon", 1, "--tolerated", 1)[1])
    assert "It would take epsilon = 1 of a budget of 4 (delta = 1e-06), of which nothing is taken yet" in told
    assert "after it, 3.82 would be left." in told
    facts = json.loads(cli(*words, "--epsilon", 1, "--json")[1])
    seen = {answer["answer"]: (answer["content"], answer["seen"]) for answer in facts["answers"]}
    assert seen["NoisyCells"] == ("noisy", "a sum over 3 sites or more")
    assert facts["budget"]["left_after"] == pytest.approx(3.82, abs=0.01)
    code, _, err = cli(*words)
    assert (code, "answers only differentially private orders" in err) == (2, True)


JOB = """clusters = 3
columns = ["a", "b", "c"]
ranges = "ranges.toml"
out = "run"
data = ["north.csv", "south.csv", "west.csv"]

[privacy]
epsilon = 2
tolerated = 2
"""


def test_a_job_file_orders_privacy_over_any_engine(here, cli):
    Path("job.toml").write_text(JOB)
    assert cli("run", "job.toml")[0] == 0
    assert json.loads(Path("run/result.json").read_text())["privacy"]["tolerated"] == 2
    job = read_job(Path("job.toml"), needs_data=False)
    remote = remote_jobs.remote_job(job, ANALYST)
    order = read_remote(json.loads(json.dumps(_plain(remote)))).read()
    assert (order.privacy.epsilon, order.privacy.tolerated) == (2.0, 2)
    assert order.ranges == ([-30.0] * 3, [30.0, 30.5, 30.0])
    assert order.chosen() == {"ranges": "ranges"}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("epsilon = 2\n", "", "[privacy] needs epsilon; add epsilon = 1, for example"),
        ("epsilon = 2", "epsilon = 'much'", "epsilon='much' must be a number"),
        ("tolerated", "tolerate", "privacy has no 'tolerate'; it has delta, epsilon, rows_per_unit, tolerated, unit"),
        ("[privacy]\nepsilon = 2\ntolerated = 2", "privacy = 2", "privacy = 2"),
        ("clusters = 3", "clusters = 3\nmethod = 'lloyd'", "lloyd cannot be run privately"),
        ('ranges = "ranges.toml"\n', "", "needs a range for every column"),
        ('ranges = "ranges.toml"', 'ranges = "gone.toml"', "there is no such file"),
    ],
)
def test_a_job_file_that_cannot_be_is_one_sentence(here, cli, old, new, told):
    Path("job.toml").write_text(JOB.replace(old, new))
    code, _, err = cli("run", "job.toml")
    assert (code, told in err) == (2, True), err


def _plain(remote):
    import msgspec

    return msgspec.to_builtins(remote)


# ---------------------------------------------------------------- persons


def test_persons_are_protected_where_a_column_says_whose_row_it_is(here, cli):
    for name in FILES:
        head, *lines = Path(name).read_text().splitlines()
        rows = [f"{line},{name}{i // 3}" for i, line in enumerate(lines)]
        Path(name).write_text("\n".join([f"{head},patient", *rows]) + "\n")
    words = ("--unit", "patient", "--rows-per-unit", 2)
    code, out, err = cli(*PRIVATE, *words, "--out", "run")
    assert code == 0, err
    sentence = "Adding or removing all rows with one value in 'patient' (of which at most 2 count) changes"
    assert sentence in one_line(out)
    assert sentence in one_line(Path("run/report.html").read_text().replace("&#x27;", "'"))
    assert load_model("run/model.json").privacy_.rows_per_unit == 2
    Path("persons.toml").write_text('[privacy]\nepsilon = 2.5\nunit = "patient"\nrows_per_unit = 2\n')
    told = one_line(cli("policy", "explain", "persons.toml")[1])
    assert "for all rows with one value in 'patient' (of which at most 2 count)" in told
    code, _, err = cli(*PRIVATE, "--policy", "persons.toml", "--out", "other")  # the order's unit is a row
    assert code == 2
    assert "of the budget of north, which is epsilon=2.5 at delta=1e-06 for all rows with one value in" in err
    assert cli(*PRIVATE, *words, "--policy", "persons.toml", "--out", "third")[0] == 0
    preview = ("site", "preview", "north.csv", "-k", 3, "--policy", "persons.toml", "--ranges", "ranges.toml")
    assert "It would take epsilon = 2 of a budget of 2.5" in one_line(cli(*preview, "--epsilon", 2, *words)[1])
    code, _, err = cli(*CLUSTER, "--rows-per-unit", 2, "--out", "fourth")
    assert (code, "--rows-per-unit goes with --epsilon" in err) == (2, True)
