"""A run as someone sees it from another terminal."""

from __future__ import annotations

import fcntl
import json
import os
import re
import threading
from pathlib import Path

import pytest
from rich.console import Console

from coterie.cli.run_state import Claimed, Folder, RunState, is_at_work
from coterie.cli.watching import view
from coterie.runtime.events import EventFile, whole_lines
from tests.cli.conftest import FILES, write_csv
from tests.cli.test_habits import interrupt_at


def lines_of(run):
    return [line for line, _ in whole_lines((Path(run) / "events.jsonl").read_bytes())]


@pytest.fixture
def finished(cli, three):
    """The folder of a run whose cost came down over some rounds."""
    words = ("cluster", *FILES, "-k", 3, "--method", "lloyd", "--set", "tol=0", "--out", "run", "--json")
    assert cli(*words)[0] == 0
    return Path("run")


def begun(finished, name, n_lines):
    """The first events of a run in a folder of their own."""
    other = Path(name)
    other.mkdir()
    (other / "journal").mkdir()
    with EventFile(other / "events.jsonl") as write:
        for line in lines_of(finished)[:n_lines]:
            write(line)
    return other


# ---------------------------------------------------------------- what a run leaves


def test_the_events_in_the_folder_agree_with_its_ledger(finished):
    lines = lines_of(finished)
    totals = json.loads((finished / "ledger.json").read_text())["total"]
    end = lines[-1]
    assert {name: end[name] for name in totals} == totals
    exchanges = [line for line in lines if line["event"] == "exchange"]
    ledger = [json.loads(line) for line in (finished / "ledger.jsonl").read_text().splitlines()]
    assert [line["round"] for line in exchanges] == [line["round"] for line in ledger]
    for name in ("bytes_up", "bytes_down", "floats_up"):
        assert sum(line[name] for line in exchanges) == totals[name]
    costs = [line["value"] for line in lines if line["event"] == "cost"]
    assert costs[-1] == json.loads((finished / "result.json").read_text())["cost"]


def test_every_site_keeps_a_log_with_run_and_round(finished):
    run = lines_of(finished)[0]["run"]
    for name in ("north", "south", "west"):
        log = [json.loads(line) for line in (finished / "journal" / "sites" / f"{name}.log").read_text().splitlines()]
        rounds = [line["round"] for line in lines_of(finished) if line["event"] == "exchange"]
        assert [line["round"] for line in log] == rounds
        assert {line["run"] for line in log} == {run}


def test_on_bad_input_no_events_stay_behind(cli, tmp_path):
    write_csv("hole.csv", [(1.0, "", 3.0), (2.0, "", 1.0)] * 4)
    words = ("cluster", "hole.csv", "-k", 2, "--missing", "mean", "--policy", "simulation")
    assert cli(*words, "--out", "run")[0] == 2
    assert not (tmp_path / "run").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("kept")
    assert cli(*words, "--out", "mine")[0] == 2
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


# ---------------------------------------------------------------- the view


def test_a_finished_run_is_shown_once(cli, finished):
    code, out, err = cli("watch", "run")
    assert (code, err) == (0, "")
    totals = json.loads((finished / "ledger.json").read_text())
    assert out.startswith(" done  lloyd, run ")
    last = [line["round"] for line in lines_of(finished) if line["event"] == "exchange"][-1]
    assert f"round {last}, " in out
    assert f"{totals['total']['bytes_up']:,} bytes sent" in out
    for name, site in totals["sites"].items():
        asked = site["rounds"] + site["rounds_masking"]
        row = rf"{name} +answered +{asked} +{site['bytes_up']:,} +{site['bytes_down']:,} +at the end"
        assert re.search(row, out)
    assert "missed" not in out  # nobody did
    cost = json.loads((finished / "result.json").read_text())["cost"]
    assert f"cost of what sites show: {cost:.6g} in round" in out
    assert "┤" in out
    assert "All results are in run/." in out


def test_json_is_the_state_and_agrees_with_the_ledger(cli, finished):
    code, out, _ = cli("watch", "run", "--json")
    assert code == 0
    state, ledger = json.loads(out), json.loads((finished / "ledger.json").read_text())
    assert state["state"] == "done"
    assert {name: state[name] for name in ledger["total"]} == ledger["total"]
    for name, site in ledger["sites"].items():
        assert (state["sites"][name]["bytes_up"], state["sites"][name]["missed"]) == (site["bytes_up"], 0)
    assert [value for _, value in state["costs"]] == [
        line["value"] for line in lines_of(finished) if line["event"] == "cost"
    ]


def test_a_run_that_is_at_work_is_running(cli, finished):
    other = begun(finished, "other", 12)
    with Claimed(other):
        code, out, _ = cli("watch", "other", "--once")
        assert code == 0
        assert out.startswith(" running  lloyd, run ")
        assert "s ago" in out
        assert "bytes sent so far (no cost yet)" in out
        assert "All results" not in out
        assert json.loads(cli("watch", "other", "--json")[1])["state"] == "running"


def test_a_run_whose_files_are_being_written_is_not_done(cli, finished):
    other = begun(finished, "other", 1000)
    with Claimed(other):
        assert cli("watch", "other", "--once")[1].startswith(" writing files  ")
    code, out, _ = cli("watch", "other")  # killed while it wrote
    assert (code, "run the same command with --resume" in out) == (3, True)


def test_a_run_whose_process_is_gone_was_interrupted(cli, finished):
    other = begun(finished, "other", 12)
    (other / ".running").write_text("")  # a kill leaves it, and nobody holds it
    assert not is_at_work(other)
    code, out, _ = cli("watch", "other")
    assert code == 3
    assert out.startswith(" interrupted  ")
    assert "its process has ended; run the same command with --resume to continue" in out


def test_asking_who_is_at_work_does_not_keep_anyone_from_it(tmp_path):
    asking = os.open(tmp_path / ".running", os.O_RDWR | os.O_CREAT)
    fcntl.flock(asking, fcntl.LOCK_SH)  # as one who asks does, for a moment
    threading.Timer(0.03, os.close, [asking]).start()
    with Claimed(tmp_path):
        assert is_at_work(tmp_path)
    assert not is_at_work(tmp_path)


def test_an_interrupted_run_and_what_became_of_it(cli, three, monkeypatch):
    words = ("cluster", *FILES, "-k", 3, "--method", "lloyd", "--out", "run")
    with monkeypatch.context() as patched:
        interrupt_at(patched, 9)
        assert cli(*words)[0] == 130
    code, out, _ = cli("watch", "run")
    assert (code, out.startswith(" interrupted  ")) == (3, True)
    path = Path("run/events.jsonl")
    path.write_bytes(path.read_bytes() + b'{"time":1794880998.817,"run":"22ab')  # torn by a crash
    assert cli("watch", "run")[1] == out
    assert cli(*words, "--resume")[0] == 0
    state = json.loads(cli("watch", "run", "--json")[1])
    ledger = json.loads(Path("run/ledger.json").read_text())
    assert state["state"] == "done"
    assert {name: state[name] for name in ledger["total"]} == ledger["total"]


def test_a_run_that_stopped_says_so_and_quotes_no_row(cli, tmp_path):
    rows = [(31415.926535, float(i), 1.0) for i in range(30)]
    for name in FILES:
        write_csv(name, rows)
    Path("job.toml").write_text(
        'data = ["north.csv", "south.csv", "west.csv"]\nclusters = 2\nscale = "minmax"\n'
        "ranges = { a = [0, 1], b = [-99, 99], c = [-99, 99] }\nout = 'run'\n"
    )
    assert cli("run", "job.toml")[0] == 3
    code, out, _ = cli("watch", "run")
    assert code == 3
    assert out.startswith(" failed  ")
    assert "The run failed: QuorumLost: round" in out
    text = Path("run/events.jsonl").read_text()
    assert "31415" not in text
    assert "column 'a'" not in text  # that is what the site's own log says
    assert "column 'a'" in Path("run/journal/sites/north.log").read_text()


def test_a_run_that_gave_its_folder_back(finished):
    other = begun(finished, "other", 12)
    folder = Folder(other)
    with Claimed(other) as claim:
        folder.look()
        assert folder.state == "running"
        (other / "events.jsonl").unlink()
        folder.look()
        assert folder.state == "gone"
        claim.give_back()


def test_no_run_is_a_clear_error_and_can_be_waited_for(cli, finished, tmp_path):
    code, out, err = cli("watch", "nowhere")
    assert (code, out) == (2, "")
    assert "there is no run to watch" in err
    assert "--wait 60" in err
    assert cli("watch", "nowhere", "--wait", 0.3)[0] == 2
    later = threading.Timer(0.6, lambda: finished.rename(tmp_path / "later"))
    later.start()
    code, out, err = cli("watch", "later", "--wait", 20)
    assert (code, "waiting for a run in later" in err, " done  " in out) == (0, True, True)


def test_another_file_of_that_name_is_refused(cli):
    Path("run").mkdir()
    Path("run/events.jsonl").write_text('{"event": "exchange"}\n')
    code, _, err = cli("watch", "run")
    assert code == 2
    assert "this is not an event of a run" in err


def test_many_sites_do_not_push_the_curve_off_the_terminal(finished):
    folder = Folder(finished)
    folder.look()
    begin, *rest = lines_of(finished)
    folder.run = RunState()
    folder.run.take({**begin, "sites": [f"site-{i}" for i in range(200)]})
    for line in rest:
        folder.run.take(
            {**line, "sites": {f"site-{i}": told for i, told in enumerate([*line.get("sites", {}).values()] * 60)}}
        )
    folder.run.sites["site-117"].outcome = "was not there"
    for width, height in ((100, 30), (80, 24), (60, 20)):
        console = Console(width=width, height=height, force_terminal=True)
        with console.capture() as captured:
            console.print(view(folder, console, whole=False))
        shown = captured.get()
        assert len(shown.splitlines()) <= height
        assert "site-117" in shown
        assert "more sites" in shown


def test_costs_of_other_numbers_of_clusters_are_not_one_curve(cli, three):
    words = ("cluster", *FILES, "-k", 3, "--method", "jl+bklw", "--policy", "simulation", "--out", "run")
    assert cli(*words)[0] == 0
    told = [(line["clusters"], line["value"]) for line in lines_of("run") if line["event"] == "cost"]
    assert {clusters for clusters, _ in told} == {1, 3}  # the sums for the mean are of one center, at 0
    shown = [value for _, value in json.loads(cli("watch", "run", "--json")[1])["costs"]]
    assert shown == [value for clusters, value in told if clusters == 3]


def test_a_name_cannot_move_the_cursor(finished):
    folder = Folder(finished)
    begin, *rest = lines_of(finished)
    folder.run.take({**begin, "sites": ["a\x1b[2J[red]b"]})
    console = Console(width=100)
    with console.capture() as captured:
        console.print(view(folder, console))
    assert "\x1b[2J" not in captured.get()
    assert "a?[2J[red]b" in captured.get()
