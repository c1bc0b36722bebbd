"""The page of a finished run: ``report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.options import app
from coterie.cli.terminal import tell


@app.command()
def report(
    runs: Annotated[
        list[Path], typer.Argument(help="The folder of a finished run; then those of runs to show beside it.")
    ],
) -> None:
    """Write the report.html of a finished run anew, from its files alone; with several runs, beside these.

    The page is in the first run's folder. It is made of released numbers and shows no row.

    Examples: coterie report coterie-run

    coterie report second first
    """
    from coterie.report.comparison import compared_runs, read_run, read_runs, run_facts
    from coterie.report.page import write_page

    if len(runs) == 1:
        read_run(runs[0])
        tell(f"{write_page(runs[0])} is written.")
        return
    folders = read_runs(runs)
    pairs = [pair.to_json() for pair in compared_runs(folders)]
    tell(f"{write_page(runs[0], compared=([run_facts(one) for one in folders], pairs))} is written.")
