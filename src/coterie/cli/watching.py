"""Watching a run from another terminal: ``watch``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live

from coterie.cli.options import app
from coterie.cli.run_state import Folder
from coterie.cli.terminal import INTERRUPTED, STOPPED, console, errors, print_json, say, tell
from coterie.cli.views import ending, line_of, view
from coterie.errors import InputError

SECONDS = 0.25
"""Between two updates."""


@app.command()
def watch(
    run: Annotated[Path, typer.Argument(help="The folder of a run (its --out).")] = Path("coterie-run"),
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the run to begin.")] = 0.0,
    once: Annotated[bool, typer.Option("--once", help="Show the current state and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the current state as JSON and exit.")] = False,
) -> None:
    """Watch a run from another terminal: its rounds, sites, bytes and cost.

    Only reads RUN/events.jsonl; Ctrl-C does not affect the run. Exits when the run ends, with code 3 if it failed or
    its process has ended. Prints a line every ten rounds if the output is not a terminal.
    """
    folder = Folder(run)
    try:
        _wait_for(folder, wait)
        folder.look(sure=True)
        if as_json:
            print_json(folder.run.plain(folder.state, folder.now))
        else:
            _show(folder, once)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    if folder.state in ("failed", "interrupted", "gone"):
        raise typer.Exit(STOPPED)


def _wait_for(folder: Folder, seconds: float) -> None:
    until = time.monotonic() + seconds
    if not folder.is_there and seconds:
        errors.print(f"waiting for a run in {folder.path} ...", highlight=False, markup=False, soft_wrap=True)
    while not folder.is_there:
        if time.monotonic() >= until:
            raise InputError(
                f"{folder.path}: there is no run to watch (no events.jsonl); give the --out folder of a run, "
                "or pass --wait 60 to wait for one."
            )
        time.sleep(SECONDS)


def _show(folder: Folder, once: bool) -> None:
    if once or folder.is_over:
        console.print(view(folder, console))
    elif console.is_terminal:
        _live(folder)
    else:
        _lines(folder)
    if folder.is_over:
        say(ending(folder))


def _live(folder: Folder) -> None:
    """Redraw the run four times a second until it ends."""
    with Live(view(folder, console, whole=False), console=console, auto_refresh=False) as live:
        while not folder.is_over:
            time.sleep(SECONDS)
            folder.look()
            live.update(view(folder, console, whole=folder.is_over), refresh=True)


def _lines(folder: Folder) -> None:
    """Print a line every ten rounds, and the whole view at the end."""
    tens = -1
    while not folder.is_over:
        now = folder.run.exchanges[-1]["round"] // 10 if folder.run.exchanges else -1
        if now != tens:
            tens = now
            tell(line_of(folder.run))
        time.sleep(SECONDS)
        folder.look()
    console.print(view(folder, console))
