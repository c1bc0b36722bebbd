"""Showing what there is: ``demo``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.options import app
from coterie.cli.terminal import console, show_table, watching
from coterie.errors import InputError


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report and the files behind it.")] = Path("coterie-demo"),
    clusters: Annotated[int, typer.Option("--clusters", "-k", min=1, max=50, help="How many clusters.")] = 3,
) -> None:
    """Three islands cluster their penguins without pooling them: together, pooled, and each alone."""
    from coterie.examples.demo import demo as run_demo
    from coterie.examples.demo import write_demo

    _check_demo_folder(out)
    shutil.rmtree(out / "journal", ignore_errors=True)  # a demonstration starts anew, its islands' ledgers with it
    with watching() as watch:
        results = run_demo(clusters, journal=out / "journal", events=watch)
    page = write_demo(results, out)
    heads = ["", "ARI", "NMI", "cost ratio", "numbers", "bytes", "rounds"]
    rows = []
    for c in results.comparisons:
        quality = [c.way, f"{c.ari:.3f}", f"{c.nmi:.3f}", f"{c.cost_ratio:.4f}"]
        rows.append([*quality, f"{c.floats_up:,}", f"{c.bytes_up:,}", str(c.rounds)])
    show_table("Penguins of three islands, not pooled", heads, rows, bold_first=True)
    console.print("Cost as a ratio to the pooled optimum; numbers and bytes are those that left the islands, in all.")
    console.print(
        f"Every byte is in [bold]{out}/ledger.jsonl[/], each island's own book in {out}/journal/sites/.",
        soft_wrap=True,
    )
    console.print(f"Open [bold]{page}[/] to see the clusters.", soft_wrap=True)


def _check_demo_folder(out: Path) -> None:
    """Refuse a folder that holds something else: a demonstration overwrites only an earlier one."""
    result = out / "result.json"
    if out.is_dir() and any(out.iterdir()):
        settings = json.loads(result.read_text()).get("settings", {}) if result.exists() else {}
        if settings.get("data") != "penguins":
            raise InputError(f"{out} holds something else than a demonstration; choose another folder with --out.")
