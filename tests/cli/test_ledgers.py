"""Ledgers in plain words: what left, and what the server saw of it."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest

import coterie
from coterie.cli import terminal
from coterie.cli.site_ledgers import KEYS
from coterie.engines.inprocess import Fault, Schedule
from coterie.errors import RunError
from coterie.estimators.registry import make_estimator
from coterie.messages.chain import Chain
from coterie.messages.codec import answer_header_bytes
from coterie.messages.heads import HEAD_BYTES
from coterie.runtime.terms import Terms
from coterie.secure.handshake import HELLO_BYTES, REPORT_BYTES
from coterie.sites.ledger import SiteLedger
from coterie.sites.policy import Policy
from tests.federations import blobs

NAMES = ("a", "b", "c", "d", "e")


def fitted(folder="run", method="federated-kmeans", names=NAMES, parameters=None, **options):
    """A run's ledgers, the server's and the sites'."""
    tables = dict(zip(names, np.array_split(blobs(100 * len(names), 3, 3, seed=7), len(names)), strict=True))
    estimator = make_estimator(method, {"n_clusters": 3, "random_state": 0, **(parameters or {})})
    try:
        coterie.fit(estimator, tables, journal=folder, **options).ledger_.write(Path(folder))
    except RunError:
        assert (Path(folder) / "sites").exists()


@pytest.fixture
def show(cli, monkeypatch):
    """What `ledger show` prints on a terminal of 80 columns: its table and, as one line, the sentences below."""
    monkeypatch.setattr(terminal.console, "_width", 80)

    def read(place):
        code, out, err = cli("ledger", "show", place)
        assert (code, err) == (0, "")
        assert max(map(len, out.splitlines())) <= 80
        table, below = re.split(r"in\s+total\.", out, maxsplit=1)
        return table, " ".join(below.split())

    return read


def lines_of(place):
    """A ledger's lines as they are in the file."""
    return [json.loads(line) for line in Path(place).read_text().splitlines()]


def n_masked(site):
    """How many masked answers left, by the site's own book."""
    return sum(line.get("seen") == "masked" for line in lines_of(f"run/sites/{site}.jsonl"))


def rows_of(table):
    """The lines of a table, columns apart."""
    return [re.split(r" {2,}", line.strip()) for line in table.splitlines() if re.match(r" +\d", line)]


# ---------------------------------------------------------------- a site's own


def test_a_masked_run_shows_that_the_server_saw_sums_over_all_sites_and_nothing_else(show):
    fitted()
    table, below = show("run/sites/a.jsonl")
    assert "What left this site (a)" in table
    assert (
        f"From this site's rows, the server saw: {n_masked('a')} answers (sums), each only in a sum over 5 sites "
        "(a, b, c, d, e); no per-site results." in below
    )
    assert (
        "It also saw 1 answer (schema): public keys, heads of ledgers, what this site's policy allows, and which of "
        "the requested columns this site holds." in below
    )
    assert "Keys and proofs carry no data" in below
    assert "Everything that ever left is a function of" in below
    assert "Refused" not in below
    rows = rows_of(table)
    n_bytes = answer_header_bytes("federated-kmeans") + HELLO_BYTES + REPORT_BYTES + 3 + 4 * HEAD_BYTES
    assert ["0", "SiteHello", "schema", "the answer", "0", f"{n_bytes}"] in rows
    assert {row[1]: row[3] for row in rows if row[2] == "sums"} == dict.fromkeys(
        ("Magnitudes", "ColumnSums", "CellSums", "EachMoments", "WeightedCenters", "Sizes"), "a sum over 5 sites"
    )
    assert rows[-1][1:3] == [KEYS, "no data"]


def test_every_message_is_in_one_line_of_the_table(show):
    fitted()
    lines = lines_of("run/sites/b.jsonl")
    table, _ = show("run/sites/b.jsonl")
    rows, whole = rows_of(table), " ".join(table.split())
    for place, what in ((-2, "floats"), (-1, "bytes")):
        assert sum(int(row[place].replace(",", "")) for row in rows) == sum(line[what] for line in lines)
    left = [line for line in lines if line["event"] not in ("once", "note", "groups")]
    assert f"{len(left)} messages, {sum(x['floats'] for x in left):,} values" in whole
    assert f"{sum(x['bytes'] for x in left):,} bytes" in whole


def test_long_runs_stay_short_because_rounds_of_one_kind_are_one_line(show):
    fitted(parameters={"init": "random", "site_rate": 0.5, "max_rounds": 30, "tol": 0.0, "n_clusters": 8})
    n_lines = len(Path("run/sites/a.jsonl").read_text().splitlines())
    rows = rows_of(show("run/sites/a.jsonl")[0])
    assert n_lines > 30
    assert len(rows) <= 9


def test_an_upload_can_be_unmasked_only_in_the_sum_over_its_roster(show):
    """A site drops out in round 7; the others are asked again in round 8."""
    lost = [Fault("e", "drop", frozenset(range(7, 1000)))]
    free = Policy(protection="none")
    fitted(parameters={"init": "var-part"}, schedule=Schedule(lost), terms=Terms(quorum=0.5), policy=free)
    rosters = {x["round"]: x.get("with") for x in lines_of("run/sites/a.jsonl")}
    assert (rosters[7], rosters[8]) == (list(NAMES), list(NAMES[:4]))
    table, below = show("run/sites/a.jsonl")
    assert (
        "3 answers (sums), each only in a sum over 5 sites (a, b, c, d, e); "
        f"{n_masked('a') - 3} answers (sums), each only in a sum over 4 sites (a, b, c, d); no per-site results."
        in below
    )
    assert next(row[3] for row in rows_of(table) if row[0].startswith("8")) == "a sum over 4 sites"


def test_a_ledger_of_an_earlier_version_says_over_whom_a_sum_was_really_unmasked(show):
    """Then a sum asked of five sites could be unmasked over the four left of them."""
    fitted(parameters={"init": "var-part"}, policy=Policy(protection="none"))
    lines = lines_of("run/sites/a.jsonl")
    reveal = next(i for i, x in enumerate(lines) if x["event"] == "once" and x["what"].startswith("reveal "))
    left = base64.b64encode(msgspec.msgpack.encode(NAMES[:4])).decode()
    note = {**lines[reveal], "event": "note", "what": "roster", "data": left}
    chain = Chain(Path("older.jsonl"))
    for line in (*lines[:reveal], note, *lines[reveal:]):
        chain.append({name: value for name, value in line.items() if name != "chain"})
    _, below = show("older.jsonl")
    assert "only in a sum over 4 sites (a, b, c, d)" in below


def test_a_plain_run_shows_that_the_server_saw_every_answer(show):
    fitted(sums="plain", policy=Policy.simulation(), names=("a", "b"), parameters={"init": "one-shot"})
    table, below = show("run/sites/a.jsonl")
    assert re.search(r"the server saw: \d per-site results \(sums\), which it declared it would only sum", below)
    assert "1 per-site result (averages)" in below
    assert "no per-site results" not in below
    assert "the answer, to sum" in table
    only = [line for line in lines_of("run/sites/a.jsonl") if line.get("asked") == "secure.Conclude"]
    assert rows_of(table)[-1] == [str(only[0]["round"]), KEYS, "no data", "0", str(only[0]["bytes"])]


def test_a_masked_sum_over_one_site_is_shown_as_seen_by_itself(show):
    fitted(policy=Policy.simulation(), names=("only",), parameters={"init": "one-shot"})
    _, below = show("run/sites/only.jsonl")
    assert re.search(r"the server saw: \d+ per-site results \(sums\); 1 per-site result \(averages\)\.", below)
    assert "in a sum over" not in below


def test_an_answer_that_left_twice_is_shown_twice_and_counted_once(show):
    fitted(parameters={"init": "var-part"}, schedule=Schedule([Fault("a", "duplicate", frozenset([5, 6]))]))
    table, below = show("run/sites/a.jsonl")
    assert "ColumnSums again" in table
    assert f"{n_masked('a')} answers (sums), each only in a sum over 5 sites" in below
    assert "Sent 2 messages again, with the same bytes." in below


def test_refusals_are_counted_by_their_reasons(show):
    forbidden = Policy(methods=frozenset({"lloyd"}))
    fitted(policy={**dict.fromkeys(NAMES, Policy()), "a": forbidden}, terms=Terms(quorum=0.5))
    _, below = show("run/sites/a.jsonl")
    assert "From this site's rows, the server saw: nothing." in below
    assert "Refused 1 question: the site's policy does not allow this method." in below
    fitted("again", policy=Policy(max_questions=13))
    _, below = show("again/sites/a.jsonl")
    assert "Refused 1 question: the site's policy allows no more questions in this run, or no more runs." in below


def test_a_question_that_arrived_damaged_is_shown_apart(show):
    fitted(schedule=Schedule([Fault("a", "garble", frozenset([3]), times=1)]))
    table, below = show("run/sites/a.jsonl")
    assert "What left this site (a) in run" in table
    assert "What left this site (a) outside any run" in below
    assert "the server saw: nothing. Refused 1 question: the question arrived damaged." in below


def test_changing_rosters_are_summed_up_in_one_clause(show):
    policy = Policy(protection="none", rosters="any", min_roster=2)
    fitted(parameters={"init": "var-part", "fraction": 0.8, "max_rounds": 20}, policy=policy)
    _, below = show("run/sites/a.jsonl")
    assert re.search(r"\d+ answers \(sums\), each at most in a sum over 4-5 sites, which varied;", below)


def test_each_run_in_a_sites_ledger_has_a_table_of_its_own(show):
    fitted("one", method="lloyd")
    fitted("two", method="lloyd")
    both = SiteLedgerOfTwo("one/sites/a.jsonl", "two/sites/a.jsonl")
    table, below = show(both.path)
    assert "What left this site (both) in run" in table
    assert "What left this site (both) in run" in below
    for run in both.runs:
        assert run[:8] in table + below


class SiteLedgerOfTwo:
    """A site's ledger that holds two runs, as one that lives on does."""

    def __init__(self, *sources):
        self.path, self.runs = Path("both.jsonl"), []
        chain = Chain(self.path)
        for source in sources:
            for text in Path(source).read_text().splitlines():
                line = json.loads(text)
                line.pop("chain")
                self.runs += [line["run"]] if line["event"] == "answer" else []
                chain.append(line)
        chain.close()


def test_many_sites_are_named_up_to_a_point(show):
    fitted(method="lloyd", names=[f"s{i:02}" for i in range(12)])
    _, below = show("run/sites/s00.jsonl")
    assert "in a sum over 12 sites (s00, s01, s02, s03, s04, s05, s06, s07 and 4 more)" in below


def test_a_ledger_without_a_line_says_so(cli):
    SiteLedger(Path("new.jsonl")).close()
    Path("new.jsonl").touch()
    Path("new.jsonl.head").write_text(f"{0:020d} {'0' * 64}\n")
    code, out, _ = cli("ledger", "show", "new.jsonl")
    assert (code, "is empty so far" in out) == (0, True)


# ---------------------------------------------------------------- the server's


def test_the_servers_ledger_says_what_it_saw(show):
    fitted()
    table, below = show("run")
    assert (
        f"From the sites' rows, the server saw: {n_masked('a')} sums over 5 sites each; no per-site results." in below
    )
    assert (
        "It also saw 5 answers (schema): public keys, heads of ledgers, what a site's policy allows, and which of "
        "the requested columns a site holds." in below
    )
    assert "Round " not in below  # no question was asked to be refused
    phases = [line["phase"] for line in lines_of("run/ledger.jsonl")]
    assert f"{len(phases)} rounds, {phases.count('masking')} of them for {KEYS} (no data)" in table
    assert ["Train", "WeightedCenters", "only the sum", "5 of 5"] in [row[1:5] for row in rows_of(table)]
    assert rows_of(table)[-1][1:3] == [KEYS, "no data"]


def test_the_servers_table_adds_up(show):
    fitted(method="lloyd")
    table, _ = show("run")
    up = json.loads(Path("run/ledger.json").read_text())["total"]["bytes_up"]
    assert sum(int(row[-1].replace(",", "")) for row in rows_of(table)) == up
    assert f"{up:,} bytes sent" in table


def test_the_servers_plain_run_names_every_answer_it_saw(show):
    fitted(sums="plain", policy=Policy.simulation(), names=("a", "b"), parameters={"init": "one-shot"})
    table, below = show("run")
    assert "2 per-site results (averages)" in below
    assert "per-site results (sums), which it declared it would only sum" in below
    assert "no per-site results" not in below
    assert "each, to sum" in table
    assert ", 1 of them for keys, proofs (no data)" in " ".join(table.split())


def test_sites_that_drop_out_are_named_with_their_rounds(show):
    lost = [Fault("e", "drop", frozenset(range(7, 1000)))]
    free = Policy(protection="none")
    fitted(parameters={"init": "var-part"}, schedule=Schedule(lost), terms=Terms(quorum=0.5), policy=free)
    table, below = show("run")
    assert f"2 sums over 5 sites each; {n_masked('a') - 2} sums over 4 sites each" in below
    assert "Round 7 (e): could not be reached." in below
    assert "4 of 5" in table


def test_all_lines_are_there_in_json(cli):
    fitted(method="lloyd")
    for place in ("run/ledger.jsonl", "run/sites/a.jsonl"):
        assert json.loads(cli("ledger", "show", place, "--json")[1]) == lines_of(place)
