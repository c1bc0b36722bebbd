"""What a run tells of itself: the ledger's numbers as they happen, once, and nothing a site did not send."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from coterie import FederatedKMeans, fit
from coterie.engines.inprocess import Fault, Schedule, in_process
from coterie.errors import QuorumLost
from coterie.messages.schema import Floats, Reply, Request, array
from coterie.messages.site_api import answers
from coterie.messages.verbs import each, total
from coterie.methods.method import Method
from coterie.methods.registry import METHODS
from coterie.methods.shared.lloyd import Assign, lloyd
from coterie.runtime.events import EventFile, whole_lines
from coterie.runtime.journal import Journal
from coterie.runtime.layers import PlainSums
from coterie.runtime.ledger import Ledger
from coterie.runtime.run import run
from coterie.runtime.terms import Terms
from coterie.secure.layer import MaskedSums
from tests.declared import Declared
from tests.federations import blobs, federation, split_evenly
from tests.runtime.test_journal import Killed, Killing, everything

ROWS = blobs(150, 3, 4, seed=11)
CENTERS = ROWS[:4]
LIMITS = Declared({"rows": 1000, "box": 1e3})
SECRET = 31415.9265358979


def told_by(protocol, *, sites=3, masked=False, faults=(), ledger=None, rows=ROWS, **terms):
    """Every event of a run."""
    found: list[dict] = []
    layers = [LIMITS, MaskedSums() if masked else PlainSums()]
    with federation(rows, sites, schedule=Schedule(faults)) as channel:
        run(
            protocol,
            channel,
            method="lloyd",
            layers=layers,
            ledger=ledger,
            terms=Terms(**terms),
            events=found.append,
            settings={"seed": 4},
        )
    return found


def of_kind(lines, event):
    return [line for line in lines if line["event"] == event]


def agrees(exchange_lines, ledger):
    """Line by line: rounds, bytes, numbers and what became of every site."""
    assert [line["round"] for line in exchange_lines] == [exchange.round for exchange in ledger.exchanges]
    for line, exchange in zip(exchange_lines, ledger.exchanges, strict=True):
        for name in ("attempt", "phase", "asked", "answer", "seen"):
            assert line[name] == getattr(exchange, name)
        for name in ("bytes_up", "bytes_down", "floats_up"):
            assert line[name] == sum(getattr(count, name) for count in exchange.sites.values())
        assert line["sites"] == {
            name: {
                "outcome": count.outcome.kind,
                "bytes_up": count.bytes_up,
                "bytes_down": count.bytes_down,
                **({"reason": count.outcome.reason} if count.outcome.reason else {}),
            }
            for name, count in exchange.sites.items()
        }
        assert line["seconds"] >= 0


@pytest.mark.parametrize("masked", [False, True])
def test_events_agree_with_the_ledger_exactly(masked):
    faults = [
        Fault("site-1", "drop", frozenset({3})),
        Fault("site-2", "corrupt", frozenset({2, 6}), times=1),
        Fault("site-0", "garble", frozenset({4}), times=1),
    ]
    ledger, began = Ledger(), time.time()
    lines = told_by(
        lloyd(CENTERS, max_rounds=8, tol=0.0), sites=4, masked=masked, faults=faults, ledger=ledger, quorum=0.5
    )
    agrees(of_kind(lines, "exchange"), ledger)
    outcomes = {site["outcome"] for line in of_kind(lines, "exchange") for site in line["sites"].values()}
    assert len(outcomes) > 1
    (end,) = of_kind(lines, "end")
    assert {name: end[name] for name in ledger.summary()["total"]} == ledger.summary()["total"]
    assert {line["run"] for line in lines} == {ledger.run}
    times = [line["time"] for line in lines]
    assert times == sorted(times)
    assert began - 0.001 <= times[0] <= times[-1] <= time.time() + 0.001  # they are rounded


def test_a_run_says_what_it_is_about_first():
    begin, *rest = told_by(lloyd(CENTERS, max_rounds=2))
    assert begin["event"] == "begin"
    assert (begin["method"], begin["sites"]) == ("lloyd", ["site-0", "site-1", "site-2"])
    assert begin["settings"] == {"seed": 4}
    assert begin["coterie"]
    assert "begin" not in {line["event"] for line in rest}


@pytest.mark.parametrize("masked", [False, True])
def test_the_cost_is_told_with_the_round_it_was_sent_in(masked):
    seen = []

    def watched():
        for centers in (CENTERS, CENTERS + 1.0, ROWS[10:14]):
            m = yield from total(Assign(centers))
            seen.append(float(m.cost))

    ledger = Ledger()
    lines = told_by(watched(), masked=masked, ledger=ledger)
    costs = of_kind(lines, "cost")
    assert [line["value"] for line in costs] == seen
    rounds = [e.round for e in ledger.exchanges if e.asked == "shared.Assign"]
    assert [line["round"] for line in costs] == rounds


def test_a_single_sites_cost_is_not_told():
    """What ``each`` shows is of one site's own solution, or of one site; a curve is over all rows."""

    def single():
        yield from each(Assign(CENTERS))

    assert of_kind(told_by(single()), "cost") == []


def test_lines_are_plain_json_and_come_back_as_they_were(tmp_path):
    lines = told_by(lloyd(CENTERS, max_rounds=3), masked=True)
    with EventFile(tmp_path / "events.jsonl") as write:
        for line in lines:
            write(line)
    text = (tmp_path / "events.jsonl").read_text()
    assert [json.loads(line) for line in text.splitlines()] == lines
    assert [line for line, _ in whole_lines(text.encode())] == lines
    assert (tmp_path / "events.jsonl").stat().st_mode & 0o077 == 0


def test_half_a_line_is_not_read_and_is_cut_off_before_the_next(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"event":"begin"}\n{"event":"exch')
    assert [line for line, _ in whole_lines(path.read_bytes())] == [{"event": "begin"}]
    with EventFile(path) as write:
        write({"event": "resumed"})
    assert path.read_bytes() == b'{"event":"begin"}\n{"event":"resumed"}\n'


# ---------------------------------------------------------------- resuming


def live(folder: Path, *, resume: bool, kill=None, masked=False):
    """One process' life with a journal and a file of events."""
    ledger = Ledger()
    with (
        in_process(split_evenly(ROWS, 3), folder=folder / "sites") as channel,
        EventFile(folder / "events.jsonl") as write,
    ):
        run(
            everything(),
            channel if kill is None else Killing(channel, *kill),
            method="lloyd",
            layers=[LIMITS, MaskedSums() if masked else PlainSums()],
            ledger=ledger,
            journal=Journal(folder / "journal", resume=resume),
            settings={"seed": 4},
            events=write,
        )
    return ledger


def read(folder):
    return [line for line, _ in whole_lines((folder / "events.jsonl").read_bytes())]


def holding(lines, event):
    """What still holds: a resumed run asks again from the round it names."""
    found = []
    for line in lines:
        if line["event"] == "resumed":
            found = [one for one in found if one["round"] < line["round"]]
        elif line["event"] == event:
            found.append(line)
    return found


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", [0, 1, 4, 9])
def test_a_resumed_run_repeats_no_line_and_adds_up_to_its_ledger(tmp_path, step, after, masked):
    (tmp_path / "whole").mkdir()
    (tmp_path / "halves").mkdir()
    live(tmp_path / "whole", resume=False, masked=masked)
    with pytest.raises(Killed):
        live(tmp_path / "halves", resume=False, kill=(step, after), masked=masked)
    first = read(tmp_path / "halves")
    assert "end" not in {line["event"] for line in first}
    ledger = live(tmp_path / "halves", resume=True, masked=masked)
    lines = read(tmp_path / "halves")
    assert lines[: len(first)] == first
    assert [line["event"] for line in lines].count("begin") == 1
    (resumed,) = of_kind(lines, "resumed")
    assert lines[len(first)] == resumed
    assert min(line["round"] for line in of_kind(lines[len(first) :], "exchange")) >= resumed["round"]
    agrees(holding(lines, "exchange"), ledger)
    costs = [line["value"] for line in holding(lines, "cost")]
    assert costs == [line["value"] for line in of_kind(read(tmp_path / "whole"), "cost")]
    assert lines[-1]["event"] == "end"


def test_a_run_resumed_after_its_last_answer_only_ends(tmp_path):
    live(tmp_path, resume=False)
    first = read(tmp_path)
    live(tmp_path, resume=True)
    assert [line["event"] for line in read(tmp_path)[len(first) :]] == ["resumed", "end"]


def test_a_run_that_was_killed_leaves_events_to_read(tmp_path):
    script = f"""
        import signal
        from pathlib import Path
        import tests.runtime.test_events as here

        class Stuck(here.MaskedSums):
            n_questions = 0

            def lower(self, question):
                self.n_questions += 1
                if self.n_questions > 4:
                    signal.pause()
                return super().lower(question)

        here.MaskedSums = Stuck
        here.live(Path({str(tmp_path)!r}), resume=False, masked=True)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], cwd=Path(__file__).parents[2])
    path = tmp_path / "events.jsonl"
    while not (path.exists() and path.read_bytes().count(b"\n") >= 6):
        assert process.poll() is None
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    lines = read(tmp_path)
    assert len(lines) >= 6
    assert lines[0]["event"] == "begin"
    assert "end" not in {line["event"] for line in lines}
    ledger = live(tmp_path, resume=True, masked=True)
    agrees(holding(read(tmp_path), "exchange"), ledger)


# ---------------------------------------------------------------- failing


class Spoken(Reply, content="sums"):
    value: Floats = array(bound="box")


class Speak(Request[Spoken]):
    n: int


@answers(Speak)
def local_spoken(table, memory, ask):
    rows = next(iter(table.blocks())).rows
    if SECRET in rows:
        raise ValueError(f"the row {rows[0]} of /data/patients.csv cannot be used")
    return Spoken(np.asarray(1.0))


@pytest.fixture
def _speaking(monkeypatch):
    monkeypatch.setitem(METHODS, "lloyd", Method("lloyd", "a trial", (Speak, Assign), "n", "nothing"))


@pytest.mark.usefixtures("_speaking")
@pytest.mark.parametrize("masked", [False, True])
def test_neither_rows_nor_the_texts_of_sites_get_into_events(masked):
    rows = np.array(ROWS)
    rows[0, 0] = SECRET
    found: list[dict] = []

    def protocol():
        yield from total(Assign(CENTERS))
        yield from total(Speak(1))

    with federation(rows, 3) as channel, pytest.raises(QuorumLost):
        run(
            protocol(),
            channel,
            method="lloyd",
            layers=[Declared({"rows": 1000, "box": 1e5}), MaskedSums() if masked else PlainSums()],
            events=found.append,
        )
    text = json.dumps(found)
    assert "31415" not in text
    assert "patients" not in text
    assert "ValueError" not in text
    failed = found[-1]
    assert (failed["event"], failed["kind"]) == ("failed", "QuorumLost")
    assert "site-0" in failed["message"]
    assert of_kind(found, "cost")


def test_the_text_of_an_error_that_is_none_of_ours_is_not_told():
    found: list[dict] = []

    def protocol():
        yield from total(Assign(CENTERS))
        raise ZeroDivisionError(f"dividing {SECRET} by nothing")

    with federation(ROWS) as channel, pytest.raises(ZeroDivisionError):
        run(protocol(), channel, method="lloyd", layers=[LIMITS, PlainSums()], events=found.append)
    assert found[-1]["event"] == "failed"
    assert (found[-1]["kind"], found[-1]["message"]) == ("ZeroDivisionError", "")


def test_fitting_tells_its_events_to_any_callable():
    found: list[dict] = []
    fitted = fit(FederatedKMeans(3, random_state=0), split_evenly(ROWS, 3), events=found.append)
    agrees(of_kind(found, "exchange"), fitted.ledger_)
    assert found[0]["settings"]["parameters"]["n_clusters"] == 3
    assert of_kind(found, "cost")[-1]["value"] == fitted.inertia_
