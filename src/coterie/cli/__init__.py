"""The command line: progress bars and tables, nothing else."""

from __future__ import annotations

import os
import sys

import typer

from coterie.cli import cluster, deployment, federation, inspection, ledgers, studies, watching
from coterie.cli.terminal import BAD_INPUT, BROKEN_LEDGER, INTERRUPTED, STOPPED, Interrupted, errors
from coterie.errors import CoterieError, LedgerBroken, RunError

app = typer.Typer(
    help="Cluster and embed data that cannot be pooled, at a known cost in bytes and a known loss of privacy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="Exit codes: 0 done, 2 bad input, 3 a run stopped (too few sites), 4 a ledger is broken, 130 interrupted.",
)
studies.add_to(app)
cluster.add_to(app)
watching.add_to(app)
deployment.add_to(app)
federation.add_to(app)
inspection.add_to(app)
ledgers.add_to(app)


def main() -> None:
    """The ``coterie`` command: one clear sentence and a meaningful code for whatever goes wrong."""
    try:
        app()
    except RunError as problem:
        _say(problem, STOPPED)
    except LedgerBroken as problem:
        _say(problem, BROKEN_LEDGER)
    except CoterieError as problem:
        _say(problem, BAD_INPUT)
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as problem:
        where = f"{problem.filename}: " if problem.filename else ""
        _say(f"{where}{problem.strerror or problem}", BAD_INPUT)
    except Interrupted as stop:
        _say(f"interrupted; {stop}", INTERRUPTED)


def _say(problem: object, code: int) -> None:
    errors.print("[red]error:[/]", end=" ")
    errors.print(str(problem), markup=False, highlight=False, soft_wrap=True)
    sys.exit(code)
