"""A run watched while it is at work, on a terminal and without one."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import FILES

STEPPED = """
import sys, time
from pathlib import Path
from coterie.cli import main
from coterie.runtime.run import Run
gather = Run.gather
def stepped(self, question):
    while self.round > int(Path("allowed").read_text()):
        time.sleep(0.01)
    return gather(self, question)
Run.gather = stepped
sys.argv = ["coterie", *sys.argv[1:]]
main()
"""
WATCH = """
import signal, sys
from coterie.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where tests run in the background of a shell
sys.argv = ["coterie", "watch", *sys.argv[1:]]
main()
"""


def allow(number):
    """Let the run go on as far as this round."""
    Path("allowed.new").write_text(str(number))
    Path("allowed.new").replace("allowed")


@pytest.fixture
def run(cli, three):
    """A run in a process of its own that waits after round 4 until it is allowed to go on."""
    allow(4)
    words = ["cluster", *FILES, "-k", "3", "--method", "lloyd", "--set", "tol=0", "--out", "live"]
    with subprocess.Popen(
        [sys.executable, "-c", STEPPED, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        yield process
        process.kill()


def on_a_terminal(*words):
    """``coterie watch`` with a terminal of its own; the process and the other end of the terminal."""
    ours, its = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    process = subprocess.Popen(
        [sys.executable, "-c", WATCH, *words], stdin=its, stdout=its, stderr=its, env=env, start_new_session=True
    )
    os.close(its)
    return process, ours


def read_all(terminal, until=None):
    shown = b""
    while until is None or not re.search(until, shown):
        try:
            shown += os.read(terminal, 65536)
        except OSError:  # nobody is at the other end any more
            break
    return shown.decode()


def test_a_run_is_watched_live_until_it_ends(run):
    watching, terminal = on_a_terminal("live", "--wait", "300")
    shown = ""
    for number in (4, 9, 14):
        allow(number)
        shown += read_all(terminal, rb"running.*?round %d," % number)
    allow(1000)
    shown += read_all(terminal)
    assert (run.wait(), watching.wait()) == (0, 0)
    os.close(terminal)
    assert {4, 9, 14} <= {int(n) for n in re.findall(r"running.*?round (\d+),", shown)}
    assert "s ago" in shown
    last = shown[shown.rindex("done") :]
    assert f"cost of what sites show: {json.loads(Path('live/result.json').read_text())['cost']:.6g}" in last
    assert "All results are in live/." in last
    assert "Traceback" not in shown


def test_ctrl_c_leaves_the_run_alone(run):
    watching, terminal = on_a_terminal("live", "--wait", "300")
    shown = read_all(terminal, rb"running.*round")
    watching.send_signal(signal.SIGINT)
    shown += read_all(terminal)
    assert watching.wait() == 130
    os.close(terminal)
    assert "Traceback" not in shown
    assert "Aborted" not in shown
    assert run.poll() is None
    allow(1000)
    assert run.wait() == 0


def test_a_run_that_is_killed_ends_its_watch(run):
    watching, terminal = on_a_terminal("live", "--wait", "300")
    read_all(terminal, rb"running.*round \d")
    run.kill()
    run.wait()
    shown = read_all(terminal)
    assert watching.wait() == 3
    os.close(terminal)
    assert "its process has ended" in shown


def test_without_a_terminal_there_is_a_line_every_ten_rounds(run):
    words = [sys.executable, "-c", WATCH, "live", "--wait", "300"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as watching:
        lines = []
        for number in (4, 14):
            allow(number)
            lines.append(watching.stdout.readline())
        allow(1000)
        rest = watching.stdout.read()
        assert (run.wait(), watching.wait()) == (0, 0)
    rounds = [
        int(n)
        for n in re.findall(
            r"^round (\d+): .+; 3 of 3 sites answered, [\d,]+ bytes sent so far", "".join(lines), re.M
        )
    ]
    assert [n // 10 for n in rounds] == [0, 1]
    assert "\x1b" not in rest
    assert " done  lloyd" in rest
