"""A run watched while it is at work, on a terminal and without one."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.cli.conftest import FILES

SLOW = """
import sys, time
from coterie.cli import main
from coterie.runtime.run import Run
gather = Run.gather
def slowly(self, question):
    time.sleep(0.04)
    return gather(self, question)
Run.gather = slowly
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


def begin_slowly(*words):
    return subprocess.Popen(
        [sys.executable, "-c", SLOW, "cluster", *FILES, "-k", "3", "--method", "lloyd", "--set", "tol=0", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


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


def test_a_run_is_watched_live_until_it_ends(cli, three):
    run = begin_slowly("--out", "live")
    watching, terminal = on_a_terminal("live", "--wait", "60")
    shown = read_all(terminal)
    assert (run.wait(), watching.wait()) == (0, 0)
    os.close(terminal)
    rounds = sorted({int(n) for n in re.findall(r"running.*?round (\d+),", shown)})
    assert len(rounds) >= 3
    assert rounds[-1] > rounds[0]
    assert "s ago" in shown
    last = shown[shown.rindex("done") :]
    assert f"cost: {json.loads(Path('live/result.json').read_text())['cost']:.6g}" in last
    assert "Everything is in live/." in last
    assert "Traceback" not in shown


def test_ctrl_c_leaves_the_run_alone(cli, three):
    run = begin_slowly("--out", "live")
    watching, terminal = on_a_terminal("live", "--wait", "60")
    shown = read_all(terminal, rb"running.*round")
    watching.send_signal(signal.SIGINT)
    shown += read_all(terminal)
    assert watching.wait() == 130
    os.close(terminal)
    assert "Traceback" not in shown
    assert "Aborted" not in shown
    assert run.poll() is None
    assert run.wait() == 0


def test_a_run_that_is_killed_ends_its_watch(cli, three):
    run = begin_slowly("--out", "live")
    watching, terminal = on_a_terminal("live", "--wait", "60")
    read_all(terminal, rb"running.*round \d")
    run.kill()
    run.wait()
    shown = read_all(terminal)
    assert watching.wait() == 3
    os.close(terminal)
    assert "its process is gone" in shown


def test_without_a_terminal_there_is_a_line_every_ten_rounds(cli, three):
    run = begin_slowly("--out", "live")
    words = [sys.executable, "-c", WATCH, "live", "--wait", "60"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (run.wait(), done.returncode) == (0, 0)
    rounds = [int(n) for n in re.findall(r"^round (\d+): \S+, [\d,]+ bytes up so far", done.stdout, re.M)]
    assert len(rounds) >= 2
    assert len({n // 10 for n in rounds}) == len(rounds)
    assert "\x1b" not in done.stdout
    assert " done  lloyd" in done.stdout
    assert time.time() - Path("live/events.jsonl").stat().st_mtime < 30
