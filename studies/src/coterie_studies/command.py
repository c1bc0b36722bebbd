"""``coterie reproduce``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.terminal import Interrupted, console, steps
from coterie.errors import InputError
from coterie.text import nearest_name

app = typer.Typer(add_completion=False)


@app.command()
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="A study: federated-kmeans, federated-kernel-kmeans, edge-kmeans, vertical-kernel-pca, landmarks, "
            "natural-sites, privacy."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="The run's folder; runs/NAME if not given.")] = None,
    quick: Annotated[bool, typer.Option(help="Fewer settings and seeds, about a minute.")] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds.")] = None,
    resume: Annotated[bool, typer.Option(help="Go on with a study that was interrupted.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Trials run at the same time.")] = len(os.sched_getaffinity(0)),
) -> None:
    """Run a paper's experiments again: tables with 95 % intervals and figures, beside what we recommend."""
    from coterie_studies.registry import STUDIES
    from coterie_studies.study import run_study

    if name not in STUDIES:
        raise InputError(f"there is no study {name!r}{nearest_name(name, STUDIES)}")
    folder = out or Path("runs") / name
    try:
        with steps(name) as watch:
            scope = None if resume and not quick else quick  # resumed, a study keeps the scope it was begun with
            run_study(STUDIES[name], folder, quick=scope, seeds=seeds, resume=resume, watch=watch, workers=workers)
    except KeyboardInterrupt:
        raise Interrupted(f"{folder} is kept: the same command with --resume goes on") from None
    console.print(f"Tables and figures are in [bold]{folder}/[/]; begin with {folder}/README.md.", soft_wrap=True)
