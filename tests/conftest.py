"""What every test may use."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.browser import browser  # noqa: F401

settings.register_profile("default", deadline=None, max_examples=60, derandomize=True)
settings.register_profile("many", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("COTERIE_HYPOTHESIS", "default"))


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of shared data sets; tests that need it say so when it is not there."""
    folder = Path(os.environ.get("COTERIE_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no data folder at {folder} (set COTERIE_DATA)")
    return folder


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what faults were tried, survived, and stopped a run clearly. Here, since workers tell no one else."""
    reports = [r for kind in ("passed", "failed") for r in terminalreporter.stats.get(kind, [])]
    told = [pair for report in reports for pair in getattr(report, "user_properties", ())]
    rows: dict[tuple[str, str], list[int]] = {}
    for fault, method, *counts in (value for name, value in told if name == "fault"):
        key = fault, f"{method.split()[0]}, {method.split(', ')[-1]}"  # landmarks or dspgd, and how sums are taken
        rows[key] = [a + b for a, b in zip(rows.get(key, (0, 0, 0)), counts, strict=True)]
    if rows:
        terminalreporter.section("faults, in one process")
        totals = [sum(counts[i] for counts in rows.values()) for i in (0, 1, 2)]
        lines = [[*key, *counts] for key, counts in sorted(rows.items())]
        _write(terminalreporter, [["fault", "method", "tried", "survived", "stopped clearly"], *lines])
        _write(terminalreporter, [["all", f"{len(rows)} rows", *totals]])
    cases = [value for name, value in told if name == "federation"]
    if cases:
        terminalreporter.section("faults, five sites as separate processes")
        survived = sum(came == "survived" for _, came, _ in cases)
        _write(terminalreporter, [["fault", "came to", "jobs"], *cases])
        _write(
            terminalreporter,
            [[f"{len(cases)} tried", f"{survived} survived, {len(cases) - survived} stopped clearly", ""]],
        )


def _write(terminalreporter: Any, lines: Iterable[Iterable[Any]]) -> None:
    texts = [[str(cell) for cell in line] for line in lines]
    wide = [max(len(line[i]) for line in texts) for i in range(len(texts[0]))]
    for line in texts:
        terminalreporter.write_line(" | ".join(cell.ljust(width) for cell, width in zip(line, wide, strict=True)))
