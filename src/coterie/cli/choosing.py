"""How many clusters: ``choose-k``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from coterie.cli import options as opt
from coterie.cli.cluster import run_job
from coterie.cli.jobs import Job
from coterie.cli.options import app
from coterie.cli.shared_options import asked_of_data, asked_of_method, taking


@app.command("choose-k")
@taking(asked_of_data, asked_of_method)
def choose_k(
    asked: dict[str, Any],
    clusters: opt.ClusterRange = "2-15",
    out: Annotated[Path, typer.Option(help="Folder for the results; it must hold none yet.")] = Path("coterie-k"),
    resume: opt.Resume = False,
    as_json: opt.AsJson = False,
) -> None:
    """Show which number of clusters the rows support, if any.

    All numbers of clusters are judged in one round: by silhouette, by the gap between the cost and that of rows
    without clusters, and by the stability of clusters of two halves of the rows. The number with the largest
    silhouette is recommended only if it is stable and has a gap. The folder --out then holds choose-k.json (with the
    centers for every number), report.html, result.json and the ledger of all bytes sent.

    Examples: coterie choose-k north.csv south.csv west.csv -k 2-15 --scale standard --missing mean

    coterie choose-k north.csv south.csv west.csv -k 2-6 --method landmarks --set gamma=4
    """
    opt.range_of(clusters)
    run_job(Job(**asked, clusters=clusters, out=str(out)), resume, as_json)
