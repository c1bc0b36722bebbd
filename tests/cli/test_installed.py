"""The installed command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coterie.messages.chain import read_chain
from tests.cli.conftest import COTERIE

# ---------------------------------------------------------------- the installed command


def coterie(*words, **options):
    return subprocess.run([COTERIE, *map(str, words)], capture_output=True, text=True, check=False, **options)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "out"
    return coterie("demo", "--out", folder), folder


def test_the_demonstration_prints_a_table_and_leaves_a_page(shown):
    done, folder = shown
    assert done.returncode == 0, done.stderr
    assert "report.html" in done.stdout
    page = (folder / "report.html").read_text()
    assert page.count("<svg") >= 6  # sizes, columns and the map
    assert "<img" not in page
    assert "://" not in page  # the page asks nobody for anything
    result = json.loads((folder / "result.json").read_text())
    assert result["comparisons"][0]["cost_ratio"] < 1.01
    assert not list(folder.glob("*.png"))


def test_the_demonstrations_books_hold_and_add_up(shown):
    _, folder = shown
    total = json.loads((folder / "ledger.json").read_text())["total"]["bytes_up"]
    islands = [read_chain(folder / "journal/sites" / f"{name}.jsonl") for name in ("Biscoe", "Dream", "Torgersen")]
    assert sum(line["bytes"] for lines in islands for line in lines) == total


def test_the_demonstration_can_be_run_again_in_the_same_folder(shown):
    _, folder = shown
    before = json.loads((folder / "result.json").read_text())
    assert coterie("demo", "--out", folder).returncode == 0
    assert json.loads((folder / "result.json").read_text()) == before


def test_help_and_version_and_a_wrong_word():
    assert "reproduce" in coterie("--help").stdout
    assert coterie("version").stdout.strip()
    wrong = coterie("demo", "--clusters", "many")
    assert wrong.returncode == 2
    assert "--clusters" in wrong.stderr


def test_a_real_interrupt_of_a_real_process(tmp_path):
    rows = np.random.default_rng(0).normal(size=(60_000, 8))
    for name in ("a", "b"):
        pq.write_table(pa.table({f"x{i}": rows[:, i] for i in range(8)}), tmp_path / f"{name}.parquet")
    words = ["cluster", "a.parquet", "b.parquet", "-k", "40", "--out", "run", "--seed", "1", "--policy", "simulation"]
    process = subprocess.Popen([COTERIE, *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True, env={**os.environ})
    journal = tmp_path / "run" / "journal" / "records.bin"
    while process.poll() is None and not (journal.exists() and journal.stat().st_size > 20_000):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=600)
    if process.returncode == 0:
        pytest.skip("the run was over before it could be interrupted")
    assert process.returncode == 130
    assert "--resume" in told
    assert coterie(*words, "--resume", cwd=tmp_path).returncode == 0
