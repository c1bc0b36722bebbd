"""What tests of faults share: a row of the table for each, and the table at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.lives import Computed
from tests.faults.rows import Row


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Computed:
    """Counts what sites compute."""
    return Computed(monkeypatch)


@pytest.fixture
def row(tmp_path: Path, computed: Computed, record_property: Any) -> Row:
    """A row of the table."""
    return Row(tmp_path, computed, record_property)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table: what was tried, survived, and stopped clearly."""
    reports = [r for kind in ("passed", "failed") for r in terminalreporter.stats.get(kind, [])]
    told = [value for report in reports for name, value in getattr(report, "user_properties", ()) if name == "fault"]
    if not told:
        return
    rows: dict[tuple[str, str], list[int]] = {}
    for fault, method, *counts in told:
        key = fault, f"{method.split()[0]}, {method.split(', ')[-1]}"  # landmarks or dspgd, and how sums are taken
        rows[key] = [a + b for a, b in zip(rows.get(key, (0, 0, 0)), counts, strict=True)]
    wide = [max(len(key[i]) for key in rows) for i in (0, 1)]
    terminalreporter.section("faults, in-process")
    line = f"{{:<{wide[0]}}} | {{:<{wide[1]}}} | {{:>5}} | {{:>8}} | {{:>15}}"
    terminalreporter.write_line(line.format("fault", "method", "tried", "survived", "stopped clearly"))
    for key, counts in sorted(rows.items()):
        terminalreporter.write_line(line.format(*key, *counts))
    totals = [sum(counts[i] for counts in rows.values()) for i in (0, 1, 2)]
    terminalreporter.write_line(line.format("all", f"{len(rows)} rows", *totals))
