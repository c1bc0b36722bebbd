"""The analyst's own process: killed, resumed; late sites taken in; what a person sees of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coterie.engines.nvflare import processes
from coterie.messages.chain import read_chain

from .federations import Finished, Standing, dealt_rows
from .test_faults import LANCZOS

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("nvflare")]

COTERIE = str(Path(sys.executable).parent / "coterie")


def _job(standing: Standing, folder: Path) -> Path:
    columns = [name for name, _ in standing.order("dspgd", LANCZOS).read().columns]
    settings = {name: value for name, value in LANCZOS.items() if name != "n_clusters"}
    lines = [
        "clusters = 10", "method = 'dspgd'", "out = 'out'", f"columns = {columns!r}",
        "[settings]", *(f"{name} = {value!r}" for name, value in settings.items()),
    ]  # fmt: skip
    path = folder / "job.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def _events(folder: Path) -> list[dict]:
    path = folder / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("goes_on", [True, False], ids=["while the job runs", "after it has ended"])
def test_an_analyst_who_was_killed_takes_the_run_up_again(standing, tmp_path, goes_on):
    standing.hold(dealt_rows(standing.folder))
    standing.await_all()
    kit = standing.federation.analyst().folder
    words = [COTERIE, "run", str(_job(standing, tmp_path)), "--engine", "nvflare", "--kit", str(kit)]
    first = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ends = time.monotonic() + 300
    while not any(line["event"] == "exchange" for line in _events(tmp_path / "out")):
        assert time.monotonic() < ends
        time.sleep(0.1)
    first.send_signal(signal.SIGKILL)
    first.wait()
    if not goes_on:
        standing.await_all()
    done = subprocess.run([*words, "--resume"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    told = _events(tmp_path / "out")
    assert len([line for line in told if line["event"] == "begin"]) == 1
    assert len(json.loads((tmp_path / "out" / "remote.json").read_text())["jobs"]) == 1
    lines = list(read_chain(tmp_path / "out" / "ledger.jsonl"))
    rounds = [line["round"] for line in told if line["event"] == "exchange"]
    assert rounds == [line["round"] for line in lines]
    found = Finished(tmp_path / "out", {}, [])
    found.equals(standing.at_seed_of(found, standing.order("dspgd", LANCZOS)))


def test_a_site_that_comes_late_is_taken_in_where_sums_are_plain(standing):
    """The job is ended for one that has the site in it, and the run goes on from the journal."""
    standing.hold(dealt_rows(standing.folder), single="averages")
    standing.await_all()
    late = standing.federation.kit("site-5")
    processes.stop([late])
    order = standing.order("dspgd", {**LANCZOS, "n_iter": 40}, sums="plain", quorum=0.6)
    started = []

    def tell(line):
        if line.get("round", -1) >= 20 and not started:
            started.append(processes.start(late))

    try:
        found = standing.run(order, tell=tell)
    finally:
        if not started:
            processes.start(late)
    assert len(json.loads((found.folder / "remote.json").read_text())["jobs"]) == 2
    asked = [line["sites"] for line in read_chain(found.folder / "ledger.jsonl")]
    assert "site-5" not in asked[0]
    assert asked[-1]["site-5"][0].startswith("answered")
    assert sum(found.result["counts"]) == 900
