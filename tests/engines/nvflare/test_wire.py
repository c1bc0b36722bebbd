"""What both ends do around a job: old ones are forgotten, and a process does not outlive the one that started it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

from nvflare.fuel.f3.comm_config import VarName

from coterie.engines.nvflare.kits import provision
from coterie.engines.nvflare.wire import KEPT, LATE_ERRORS, forget_old_jobs

PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", '''
import time
from coterie.engines.nvflare.wire import end_with_parent
end_with_parent(0.05)
print("up", flush=True)
time.sleep(60)
'''], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""

JOB = """
from types import SimpleNamespace
from nvflare.fuel.f3.streaming.byte_streamer import ByteStreamer
from coterie.engines.nvflare.wire import begin_job
begin_job()
for sid in range(3000):
    task = SimpleNamespace(cell=None, target="north", channel="c", topic="t", headers={}, sid=sid)
    ByteStreamer._retain_error_context(task)
print(len(ByteStreamer.error_context_map), next(iter(ByteStreamer.error_context_map)))
"""


def test_of_messages_sent_the_engine_keeps_the_last_thousand_in_mind():
    done = subprocess.run([sys.executable, "-c", JOB], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(LATE_ERRORS), str(3000 - LATE_ERRORS)]


def test_the_engine_knows_every_setting_of_its_own_that_a_kit_holds(tmp_path):
    known = {value for name, value in vars(VarName).items() if name.isupper()}
    for kit in provision(tmp_path, ["north"], server="localhost", port=9000).values():
        path = kit.folder / "comm_config.json"
        settings = json.loads(path.read_text()) if path.exists() else {}
        assert settings.keys() - {"internal"} <= known
        assert kit.kind == "analyst" or settings["streaming_chunk_size"] <= settings["streaming_window_size"] // 4


def test_folders_of_old_jobs_go_and_everything_else_stays(tmp_path):
    old, new = "0b6f2e0e-7a51-4f0e-9d5c-0123456789ab", "1b6f2e0e-7a51-4f0e-9d5c-0123456789ab"
    for name in (old, new, "local", "startup", "coterie", "0b6f2e0e"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
    before = time.time() - KEPT - 60
    for name in (old, "local", "startup", "coterie", "0b6f2e0e"):
        os.utime(tmp_path / name, (before, before))
    forget_old_jobs(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0b6f2e0e", new, "coterie", "local", "startup"]


def test_a_process_ends_when_the_one_that_started_it_is_killed():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    ends = time.monotonic() + 120
    while _is_up(child):
        assert time.monotonic() < ends
        time.sleep(0.05)


def _is_up(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
