"""What both ends do around a job: old ones are forgotten, and a process does not outlive the one that started it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from coterie.engines.nvflare.wire import KEPT, forget_old_jobs

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
    ends = time.monotonic() + 10
    while _is_up(child):
        assert time.monotonic() < ends
        time.sleep(0.05)


def _is_up(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
