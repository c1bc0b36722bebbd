"""Run the benchmarks named on the command line, or all of them."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from benchmarks import (
    columns,
    edge,
    federation,
    groups,
    halves,
    integer_attack,
    kernel,
    landmarks,
    lloyd,
    masking,
    plan,
    privacy,
    quality,
    verified,
)
from benchmarks.measure import Grid, Line, Result

BENCHMARKS: dict[str, Callable[[], Result]] = {
    **lloyd.BENCHMARKS,
    **groups.BENCHMARKS,
    **quality.BENCHMARKS,
    **halves.BENCHMARKS,
    **integer_attack.BENCHMARKS,
    **masking.BENCHMARKS,
    **verified.BENCHMARKS,
    **privacy.BENCHMARKS,
    **kernel.BENCHMARKS,
    **landmarks.BENCHMARKS,
    **edge.BENCHMARKS,
    **columns.BENCHMARKS,
    **federation.BENCHMARKS,
    **plan.BENCHMARKS,
}


def main(names: list[str]) -> int:
    """Print every benchmark's lines; 1 where a limit does not hold."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark is called {unknown[0]}; there are {', '.join(BENCHMARKS)}")
        return 2
    console, all_hold = Console(), True
    for name in names or BENCHMARKS:
        with console.status(f"{name} ..."):
            result = BENCHMARKS[name]()
        for grid in result.grids:
            console.print(_shown(grid))
        if not result.lines:
            console.print(f"{result.title}: {result.remark}")
            continue
        table = Table(title=result.title, title_justify="left", caption=result.remark, min_width=70)
        for heading in ("what", "measured", "limit", ""):
            table.add_column(heading)
        for line in result.lines:
            table.add_row(line.what, f"{line.value:.4g} {line.unit}", _limit(line), _verdict(line))
            all_hold &= line.holds
        console.print(table)
    return 0 if all_hold else 1


def _shown(grid: Grid) -> Table:
    table = Table(title=grid.title, title_justify="left", caption=grid.remark, min_width=70)
    for heading in grid.headings:
        table.add_column(heading, justify="right")
    for row in grid.rows:
        table.add_row(*row)
    return table


def _limit(line: Line) -> str:
    if line.limit is None:
        return ""
    return f"{'aim: ' if line.is_aim else 'at most '}{line.limit:g} {line.unit}"


def _verdict(line: Line) -> str:
    if line.limit is None:
        return ""
    return "ok" if line.value <= line.limit else ("above the aim" if line.is_aim else "TOO HIGH")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
