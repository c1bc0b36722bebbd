"""What the README says of several organisations, command by command: three hospitals as three folders."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.test_operations import check_parses
from tests.test_tutorial import blocks, run_block

ROOT = Path(__file__).parents[1]
KITS = ("server", "north", "south", "west")
WAITS, FAILED = "--patience", 3
"""The command that ends while the order waits, and how."""


def section(folder: Path) -> list[tuple[str, str]]:
    """The blocks of the README's part on organisations."""
    (text,) = re.findall(
        r"^## Several organisations$(.*?)^## ", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    page = folder / "section.md"
    page.write_text(text)
    return blocks(page)


def commands(folder: Path) -> list[str]:
    """The lines of its blocks of shell commands, continued ones as one."""
    text = "".join(text for kind, text in section(folder) if kind == "sh")
    return text.replace("\\\n", "").splitlines()


def of_coterie(line: str) -> str:
    """What a line gives to coterie, once: without a loop around it, the files it writes, and comments."""
    inner = line.partition("; do ")[2].rpartition("done")[0].rstrip(" ;") if line.startswith("for ") else line
    words = shlex.split(inner.partition(" > ")[0], comments=True)
    assert words[0] == "coterie", line
    return shlex.join(words[1:])


def test_there_are_ten_commands_and_coterie_knows_them(tmp_path):
    found = [of_coterie(line) for line in commands(tmp_path)]
    for text in found:
        check_parses(text)
    names = {re.match(r"(site|server) \w+|certificate verify|\w+", text)[0] for text in found}
    assert names == {
        "enroll", "provision", "install", "server start", "site start", "run", "site show", "site approve",
        "certificate", "certificate verify",
    }  # fmt: skip


def run_line(line: str, folder: Path) -> str:
    """Run a command as a reader would, and return what it prints."""
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120"}
    done = subprocess.run(
        ["bash", "-euc", line], cwd=folder, env=env, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=600,
    )  # fmt: skip
    logs = {path.name: path.read_text()[-2000:] for path in folder.glob("*.log")}
    assert done.returncode == (FAILED if WAITS in line else 0), f"{line}\n{done.stdout}\n{logs}"
    return done.stdout


def await_sites(session: Any) -> None:
    """Wait until all three are connected."""
    from coterie.engines.nvflare.session import Unreachable

    ends = time.monotonic() + 300
    while time.monotonic() < ends:
        with contextlib.suppress(Unreachable):
            if set(session.sites()) >= set(KITS[1:]):
                return
        time.sleep(0.3)
    pytest.fail("the sites did not connect")


@pytest.mark.slow
@pytest.mark.xdist_group("nvflare")
def test_three_hospitals_get_a_verified_certificate(tmp_path):
    """As it is written, but for the port, which is a free one, and the ID, which is the one that is shown."""
    pytest.importorskip("nvflare")
    from coterie.deployment.federation import _free_port
    from coterie.engines.nvflare import processes
    from coterie.engines.nvflare.kits import read_kit
    from coterie.engines.nvflare.session import Session

    for kind, text in section(tmp_path):
        if kind != "sh":
            run_block(kind, text, tmp_path)
    lines, port, order, said = commands(tmp_path), _free_port(), "", {}
    try:
        for line in lines:
            if WAITS in line:  # a reader is slower than three processes that start
                with Session(read_kit(tmp_path / "ana")) as session:
                    await_sites(session)
            said[line] = run_line(line.replace("8002", str(port)).replace("3f2a", order[:4]), tmp_path)
            order = order or (re.findall(r"^Order (\w{8})", said[line]) or [""])[0]
    finally:
        processes.stop([read_kit(tmp_path / name) for name in KITS if (tmp_path / name / "startup").is_dir()])
    (waiting,) = (text for line, text in said.items() if WAITS in line)
    assert "The order is waiting for the approval of a site." in waiting
    assert "the statements of 3 of 3 sites" in said[lines[-1]]
    result = json.loads((tmp_path / "federated" / "result.json").read_text())
    assert sum(result["counts"]) == 600
    ages = sorted(center[0] for center in result["centers"])
    assert ages == pytest.approx([35, 55, 75], abs=2)
