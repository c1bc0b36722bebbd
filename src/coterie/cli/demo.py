"""A demonstration: ``demo``."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.options import app
from coterie.cli.terminal import console, show_table, watching
from coterie.errors import InputError


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report and the files behind it.")] = Path("coterie-demo"),
    clusters: Annotated[int, typer.Option("--clusters", "-k", min=1, max=50, help="Number of clusters.")] = 3,
) -> None:
    """Cluster the penguins of three islands without pooling them; compare with pooled data and each island alone."""
    from coterie.examples.demo import demo as run_demo
    from coterie.examples.demo import write_demo
    from coterie.report.page import comparison_table

    _check_demo_folder(out)
    shutil.rmtree(out / "journal", ignore_errors=True)  # of an earlier demonstration
    with watching() as watch:
        results = run_demo(clusters, journal=out / "journal", events=watch)
    page = write_demo(results, out)
    heads, rows = comparison_table([asdict(comparison) for comparison in results.comparisons])
    show_table("Penguins of three islands, not pooled", heads, rows, bold_first=True)
    console.print("The cost is relative to the pooled optimum. Values and bytes are those sent by all islands.")
    console.print(
        f"The server's ledger is [bold]{out}/ledger.jsonl[/]; each island's own ledger is in {out}/journal/sites/.",
        soft_wrap=True,
    )
    console.print(f"Open [bold]{page}[/] to see the clusters.", soft_wrap=True)


def _check_demo_folder(out: Path) -> None:
    """Refuse a folder that holds anything but an earlier demonstration, which is overwritten."""
    result = out / "result.json"
    if out.is_dir() and any(out.iterdir()):
        settings = json.loads(result.read_text()).get("settings", {}) if result.exists() else {}
        if settings.get("data") != "penguins":
            raise InputError(f"{out} holds files that are not from a demonstration; choose another --out.")
