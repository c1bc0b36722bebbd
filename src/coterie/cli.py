"""The command line: progress bars and tables, nothing else."""

from __future__ import annotations

import dataclasses
import json
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress as Bar
from rich.table import Table

import coterie
from coterie.errors import CoterieError

__all__ = ["main"]

app = typer.Typer(
    help="Cluster and embed data that cannot be pooled, at a known cost in bytes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()
SCHEMA = 1


@app.callback()
def _root() -> None:
    """Cluster and embed data that cannot be pooled, at a known cost in bytes."""


@app.command()
def version() -> None:
    """Print the installed version."""
    console.print(coterie.__version__)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report and the files behind it.")] = Path("coterie-demo"),
    clusters: Annotated[int, typer.Option(min=1, max=50, help="How many clusters to look for.")] = 3,
) -> None:
    """Three islands cluster their penguins without pooling them: together, pooled, and each alone."""
    from coterie.report.page import write_page
    from coterie.report.pictures import draw_clusters_by_site
    from coterie.studies.demo import demo as run_demo

    out.mkdir(parents=True, exist_ok=True)
    for old in (out / "sites").glob("*.jsonl*"):
        old.unlink()  # a demonstration starts anew; its islands' books with it
    with Bar(console=console, transient=True) as bar:
        task = bar.add_task("asking three islands", total=None)
        found = run_demo(
            clusters,
            folder=out / "sites",
            watch=lambda p: bar.update(task, description=f"round {p.exchange.round}: {p.exchange.asked}"),
        )
    found.ledger.write(out)
    (out / "result.json").write_text(json.dumps(_result(found), indent=2) + "\n")
    by_site = {name: found.labels[found.data.site == name] for name in found.alone}
    draw_clusters_by_site(
        out / "clusters.png",
        found.data.rows[:, :2],
        found.data.site,
        {"together": by_site, "each island alone": found.alone},
        found.preparation.undo(found.fit.centers)[:, :2],
        [name.replace("_", " ") for name in found.data.columns[:2]],
    )
    page = write_page(out)
    _print_demo(found)
    console.print(f"\nEvery byte is in [bold]{out / 'ledger.jsonl'}[/], each island's own book in {out / 'sites'}/.")
    console.print(f"Open [bold]{page}[/] to see the clusters.", soft_wrap=True)


def _print_demo(found: Any) -> None:
    table = Table(title="Penguins of three islands, not pooled", title_justify="left")
    for heading, side in (("", "left"), ("ARI", "right"), ("NMI", "right"), ("cost / pooled", "right")):
        table.add_column(heading, justify=side)  # type: ignore[arg-type]
    for heading in ("numbers sent", "bytes sent", "rounds"):
        table.add_column(heading, justify="right")
    for i, c in enumerate(found.comparisons):
        cells = (c.way, f"{c.ari:.3f}", f"{c.nmi:.3f}", f"{c.cost_ratio:.4f}")
        table.add_row(*cells, f"{c.floats_up:,}", f"{c.bytes_up:,}", str(c.rounds), style="bold" if i == 0 else None)
    console.print(table)


def _result(found: Any) -> dict[str, Any]:
    """What a run leaves behind for people and programs."""
    together = found.comparisons[0]
    return {
        "schema": SCHEMA,
        "coterie": coterie.__version__,
        "method": "lloyd",
        "title": "Penguins of three islands, clustered without pooling",
        "summary": (
            f"{len(found.data.rows)} birds, {len(found.alone)} islands, {found.n_clusters} clusters: "
            f"{together.rounds} rounds, {together.bytes_up:,} bytes up in all, k-means cost "
            f"{together.cost_ratio:.4f} times that of the pooled rows."
        ),
        "caption": (
            "Top: the islands' common clusters, crosses are the centers. Bottom: what each island finds by itself; "
            "one with a single species splits it up. Grey: the birds of the other islands."
        ),
        "columns": list(found.data.columns),
        "centers": found.preparation.undo(found.fit.centers).tolist(),
        "counts": found.fit.counts.tolist(),
        "cost": found.fit.cost,
        "rounds": found.ledger.total("rounds"),
        "comparisons": [dataclasses.asdict(c) for c in found.comparisons],
        "asked": _asked(found.ledger),
    }


def _asked(ledger: Any) -> list[dict[str, Any]]:
    """Every kind of question with how often it was asked and how many numbers one site answered at most."""

    def key(e: Any) -> tuple[str, str, str, str]:
        return e.asked, e.answer, e.content, e.seen

    found = []
    for (asked, answer, content, seen), group in groupby(ledger.exchanges, key):
        exchanges = list(group)
        numbers = int(np.max([count.floats_up for e in exchanges for count in e.sites.values()]))
        found.append(
            {
                "asked": asked,
                "answer": answer,
                "content": content,
                "seen": seen,
                "times": len(exchanges),
                "numbers": numbers,
            }
        )
    return found


def main() -> None:
    """The ``coterie`` command."""
    try:
        app()
    except CoterieError as problem:
        console.print(f"[red]error:[/] {problem}", soft_wrap=True, highlight=False)
        raise SystemExit(2) from None
