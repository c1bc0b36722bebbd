"""What the tests of the command line share."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from coterie.cli import main, terminal
from tests.federations import blobs

COTERIE = Path(sys.executable).parent / "coterie"
FILES = ("north.csv", "south.csv", "west.csv")


@pytest.fixture
def cli(capsys, monkeypatch, tmp_path):
    """Run a command in this process, in a folder of its own; returns its code, output and error output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(terminal.console, "_width", 200)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["coterie", *map(str, words)])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        told = capsys.readouterr()
        return code, told.out, told.err

    return call


def write_csv(path, rows, names=("a", "b", "c")):
    lines = [
        ",".join(names),
        *(",".join(f"{v:.6f}" if isinstance(v, float) else str(v) for v in row) for row in rows),
    ]
    Path(path).write_text("\n".join(lines) + "\n")


@pytest.fixture
def three(tmp_path):
    """Three sites' files."""
    rows = blobs(150, 3, 3, seed=7)
    for name, part in zip(("north", "south", "west"), np.array_split(rows, 3), strict=True):
        write_csv(tmp_path / f"{name}.csv", part.tolist())
    return rows
