"""A site's privacy budget on the command line: shown, taken from by runs, begun anew by the data officer."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from coterie import FederatedKMeans, Privacy
from coterie.errors import QuorumLost
from coterie.maths.accounting import epsilon_of
from coterie.messages.chain import read_chain
from coterie.messages.refusals import Refusal
from coterie.sites.budget import Account
from tests.cli.hospitals import ANALYST, NAMES, POLICY, Hospitals

pytest.importorskip("nvflare")
KIT = ("--kit", "kits/sites/north")


@pytest.fixture
def hospitals(tmp_path, cli):
    return Hospitals(tmp_path, cli)


def told(cli, *words):
    code, out, err = cli(*words)
    assert code == 0, err
    return " ".join(out.split())


def test_a_budget_shows_what_runs_took_and_what_is_left(hospitals, cli):
    assert (hospitals.budget()["spent"], hospitals.budget()["runs"]) == (0.0, [])
    assert hospitals.budget()["left"] == pytest.approx(4.0, abs=1e-6)
    for epsilon in (1.0, 2.0):
        hospitals.run(epsilon)
    budget = hospitals.budget()
    assert [run["epsilon"] for run in budget["runs"]] == pytest.approx([1.0, 2.0], rel=0.05)
    assert {run["analyst"] for run in budget["runs"]} == {ANALYST}
    both = Privacy(1.0).mu_squared + Privacy(2.0).mu_squared
    assert budget["spent"] == pytest.approx(epsilon_of(both**0.5, 1e-6), rel=0.05)
    assert budget["spent"] < 3.0  # less than the sum
    rest = Privacy(4.0).mu_squared - both
    assert budget["left"] == pytest.approx(epsilon_of(rest**0.5, 1e-6), rel=0.05)
    shown = told(cli, "site", "budget", *KIT)
    assert "The budget is epsilon = 4 at delta = 1e-06 for one row, over all runs and analysts. Spent: " in shown
    assert f"Spent: {budget['spent']:.3g}. The largest run that is left: {budget['left']:.3g}." in shown
    assert "Epsilons do not add up one by one" in shown
    assert shown.count(ANALYST) == 2
    assert f"epsilon {budget['spent']:.3g} of 4 spent" in told(cli, "site", "status", *KIT)
    assert json.loads(cli("site", "status", *KIT, "--json")[1])["budget"] == budget


def test_what_is_left_is_a_run_that_is_answered_and_no_larger_one_is(hospitals):
    hospitals.run(3.0)
    left = hospitals.budget()["left"]
    with pytest.raises(QuorumLost, match="less is left of the site's privacy budget than the order takes") as stop:
        hospitals.run(left * 1.01)
    assert {outcome.refusal for outcome in stop.value.outcomes.values()} == {Refusal.BUDGET_SPENT}
    assert "north, south, west failed: less is left" in str(stop.value)  # said once
    hospitals.run(left * 0.999)
    assert hospitals.budget()["left"] < 0.3


def test_a_run_that_is_not_private_is_refused_in_words_that_say_what_to_do(hospitals):
    with pytest.raises(QuorumLost, match="order with an epsilon and the ranges of all columns"):
        hospitals.run(None, max_rounds=2)
    hospitals.hold("min_rows = 3")
    with pytest.raises(QuorumLost, match="has no budget for differentially private orders: ask its data officer"):
        hospitals.run(1.0)


def test_a_budget_begins_anew_by_the_data_officers_word_and_certificates_count_it(hospitals, cli):
    hospitals.run(3.5)
    with pytest.raises(QuorumLost):
        hospitals.run(3.5)
    code, _, err = cli("site", "budget", "reset", *KIT, "--why", " ", "--yes")
    assert (code, "--why is empty" in err) == (2, True)
    assert cli("site", "budget", "reset", *KIT, "--yes")[0] == 2  # --why is needed
    assert hospitals.budget()["resets"] == []
    for name in NAMES:
        words = ("--kit", f"kits/sites/{name}", "--why", "other patients since May", "--yes")
        assert "Epsilon = 4 is left." in told(cli, "site", "budget", "reset", *words)
    budget = hospitals.budget()
    assert (budget["spent"], budget["runs"]) == (0.0, [])
    (reset,) = budget["resets"]
    assert (reset["why"], reset["spent"]) == ("other patients since May", pytest.approx(3.5, rel=0.05))
    assert f"began the budget anew, of which {reset['spent']:.3g} was spent: other patients since May" in told(
        cli, "site", "budget", *KIT
    )
    fitted = hospitals.run(3.5)
    for signed in fitted.certificate_.statements.values():
        assert signed.statement.resets == 1
        assert signed.statement.epsilon == pytest.approx(3.5, rel=0.05)
    assert cli("ledger", "verify", "kits/sites/north/coterie/ledger.jsonl")[0] == 0


def test_a_reset_asks_first(hospitals, cli, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert cli("site", "budget", "reset", *KIT, "--why", "a trial")[0] != 0
    assert hospitals.budget()["resets"] == []


def test_a_site_without_a_budget_says_so(hospitals, cli):
    hospitals.hold("min_rows = 3")
    for words in (("site", "budget"), ("site", "budget", "reset", "--why", "x", "--yes")):
        code, _, err = cli(*words, *KIT)
        assert (code, "has no privacy budget; a section [privacy]" in err) == (2, True)


def test_what_waits_says_what_it_takes_of_the_budget(hospitals, cli):
    hospitals.run(1.0)
    hospitals.hold(POLICY.format(approval="always"))
    for epsilon in (2.0, 3.9):
        run = hospitals.wait(FederatedKMeans(2, privacy=Privacy(epsilon)))
        facts = json.loads(cli("site", "show", run, *KIT, "--json")[1])
        assert facts["privacy"] == {
            "epsilon": epsilon,
            "delta": 1e-6,
            "unit": "row",
            "tolerated": 0,
            "rows_per_unit": 1,
        }
        assert "privacy" not in facts["parameters"]
        assert facts["problem"] == ""
        assert {"SumRows", "SumByCell"} <= {answer["asked"].rpartition(".")[2] for answer in facts["answers"]}
        assert facts["budget"]["takes"] == pytest.approx(epsilon)
        shown = told(cli, "site", "show", run, *KIT)
        if epsilon == 2.0:
            rest = Privacy(4.0).mu_squared - Privacy(1.0).mu_squared - Privacy(2.0).mu_squared
            assert facts["budget"]["left_after"] == pytest.approx(epsilon_of(rest**0.5, 1e-6), rel=2e-3)
            assert "It would take epsilon = 2 of a budget of 4 (delta = 1e-06), of which 3.82 is left; after" in shown
        else:
            assert facts["budget"]["left_after"] is None
            assert "of which 3.82 is left: it would be refused." in shown
    listed = told(cli, "site", "pending", *KIT)
    assert "takes of the budget left after it" in listed
    assert "epsilon 2 epsilon 3.1" in listed
    assert "epsilon 3.9 too little is left" in listed
    waiting = json.loads(cli("site", "pending", *KIT, "--json")[1])
    assert [order["budget"]["takes"] for order in waiting] == pytest.approx([2.0, 3.9])


def test_a_changed_protection_waits_for_the_data_officer(hospitals, cli):
    hospitals.hold("min_rows = 3")  # nothing has left yet: groups are as good
    hospitals.run(None, max_rounds=2)
    for code, _, err in hospitals.hold(POLICY.format(approval="automatic")):
        assert code == 2
        assert "the policy now protects the table by noise, and earlier answers were computed under groups" in err
        assert "coterie site acknowledge --protection --kit" in err
    with pytest.raises(Exception, match="now protects the table by noise"):
        hospitals.run(1.0)
    for name in NAMES:
        words = ("--protection", "--kit", f"kits/sites/{name}", "--yes")
        assert "From now on the table is protected by noise" in told(cli, "site", "acknowledge", *words)
    assert [code for code, *_ in hospitals.hold(POLICY.format(approval="automatic"))] == [0, 0, 0]
    hospitals.run(1.0)
    assert json.loads(cli("site", "status", *KIT, "--json")[1])["acknowledged_breaks"] == 0
    noted = [line for line in read_chain(hospitals.kits["north"].ledger_path) if line.get("what") == "protection"]
    assert len(noted) == 3  # noise before anything left, groups, noise
    exempt = POLICY.format(approval="automatic") + '[method.lloyd]\nprotection = "groups"\n'
    for code, _, err in hospitals.hold(exempt):
        assert (code, "now protects the table by noise, lloyd: groups" in err) == (2, True)


def test_an_account_is_read_from_a_ledger_by_table_and_since_the_last_reset():
    def charge(run, table, mu_squared, at):
        line = {"event": "charge", "run": run, "table": table, "analyst": "ana", "time": at}
        return {**line, "mu_squared": mu_squared}

    reset = {"event": "budget", "run": "00", "table": "t", "why": "w", "spent": 3.0, "time": 5.0}
    lines = [charge("a", "t", 3.0, 1.0), reset, charge("b", "t", 1.0, 6.0), charge("b", "t", 2.0, 7.0)]
    account = Account.of([*lines, charge("c", "other", 9.0, 8.0), {"event": "answer", "run": "b"}], "t")
    assert account.mu_squared == 3.0
    assert [(run.run, run.mu_squared, run.at) for run in account.runs.values()] == [("b", 3.0, 6.0)]
    assert [(one.at, one.why, one.mu_squared) for one in account.resets] == [(5.0, "w", 3.0)]


def test_values_that_cannot_be_read_stop_no_site(hospitals):
    rows = Path("west.csv").read_text().splitlines()
    Path("west.csv").write_text("\n".join([*rows, "unknown,90071992547409931"]) + "\n")
    said = hospitals.hold(POLICY.format(approval="automatic"))
    assert [code for code, *_ in said] == [0, 0, 0]
    warned = [" ".join(out.split()) for _, out, _ in said]
    found = ["count as missing. west.csv: (1) column 'a' holds 'unknown' in row" in words for words in warned]
    assert found == [name == "west" for name in NAMES]
    assert len(hospitals.run().certificate_.statements) == 3
