"""Every command of the tutorial and the README, run as a reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd

from tests.federations import blobs

ROOT = Path(__file__).parents[1]


def blocks(page: Path) -> list[tuple[str, str]]:
    return re.findall(r"```(sh|python|toml)\n(.*?)```", page.read_text(), re.DOTALL)


def run_block(kind: str, text: str, folder: Path) -> None:
    if kind == "toml":
        name = re.match(r"# file: (\S+)\n", text)[1]
        (folder / name).write_text(text)
        return
    bin_folder = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "COTERIE_DATA": str(folder / "no-data-here")}
    words = ["bash", "-euc", text] if kind == "sh" else [sys.executable, "-W", "error", "-c", text]
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"


def test_every_command_of_the_tutorial_works(tmp_path):
    found = blocks(ROOT / "docs" / "tutorial.md")
    assert len(found) >= 10
    for kind, text in found:
        run_block(kind, text, tmp_path)
    assert (tmp_path / "together" / "report.html").exists()
    assert (tmp_path / "study" / "README.md").exists()


def test_every_command_of_the_readme_works(tmp_path):
    """Run in a folder that holds the files the README speaks of; `make` itself is what runs this test.

    What it says of several organisations is run by ``test_several_organisations.py``.
    """
    rows = pd.DataFrame(blobs(1500, 3, 5, seed=1), columns=["a", "b", "c"])
    rows.iloc[7, 1] = None
    for name, part in zip(("north", "south", "west"), (rows[:500], rows[500:1000], rows[1000:]), strict=True):
        part.to_csv(tmp_path / f"{name}.csv", index=False)
    rows.dropna().assign(hospital=lambda frame: frame.index % 4).to_parquet(tmp_path / "patients.parquet")
    (tmp_path / "ranges.toml").write_text("".join(f"{name} = [-30, 30]\n" for name in "abc"))
    page = tmp_path / "readme.md"
    page.write_text(
        re.sub(r"^## Several organisations$.*?(?=^## )", "", (ROOT / "README.md").read_text(), flags=re.M | re.S)
    )
    found = [(kind, text) for kind, text in blocks(page) if "make " not in text]
    assert len(found) >= 3
    for kind, text in found:
        run_block(kind, text, tmp_path)
    assert (tmp_path / "together" / "report.html").exists()
    assert (tmp_path / "coterie-run" / "report.html").exists()
    assert "epsilon = 1, delta = 1e-06" in (tmp_path / "private" / "report.html").read_text()
