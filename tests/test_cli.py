"""The command line as a person meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from coterie.messages.chain import read_chain

COTERIE = Path(sys.executable).parent / "coterie"


def coterie(*words, cwd=None):
    return subprocess.run([COTERIE, *map(str, words)], capture_output=True, text=True, cwd=cwd, check=False)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "out"
    return coterie("demo", "--out", folder), folder


def test_the_demonstration_prints_a_table_and_leaves_a_page(shown):
    done, folder = shown
    assert done.returncode == 0, done.stderr
    assert "report.html" in done.stdout
    page = (folder / "report.html").read_text()
    assert "data:image/png;base64" in page
    assert "http" not in page  # the page asks nobody for anything
    result = json.loads((folder / "result.json").read_text())
    assert result["schema"] == 1
    assert result["comparisons"][0]["cost_ratio"] < 1.01
    assert (folder / "clusters.png").stat().st_size > 10_000


def test_the_demonstrations_books_hold_and_add_up(shown):
    _, folder = shown
    total = json.loads((folder / "ledger.json").read_text())["total"]["bytes_up"]
    read_chain(folder / "ledger.jsonl")
    islands = [read_chain(folder / "sites" / f"{name}.jsonl") for name in ("Biscoe", "Dream", "Torgersen")]
    assert sum(line["bytes"] for lines in islands for line in lines) == total


def test_the_demonstration_can_be_run_again_in_the_same_folder(shown):
    _, folder = shown
    before = json.loads((folder / "result.json").read_text())
    assert coterie("demo", "--out", folder).returncode == 0
    assert json.loads((folder / "result.json").read_text()) == before


def test_help_and_version_and_a_wrong_word():
    assert "demo" in coterie("--help").stdout
    assert coterie("version").stdout.strip()
    wrong = coterie("demo", "--clusters", "many")
    assert wrong.returncode == 2
    assert "--clusters" in wrong.stderr
