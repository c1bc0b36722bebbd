"""The command line: progress bars and tables, nothing else."""

from __future__ import annotations

import os
import sys

# isort: off
from coterie.cli import demo, cluster, watching, deployment, federation, inspection, ledgers  # noqa: F401

# isort: on  (a module adds its commands when it is imported, and help lists them in this order)
from coterie.cli.options import app
from coterie.cli.terminal import BAD_INPUT, BROKEN_LEDGER, INTERRUPTED, STOPPED, Interrupted, errors
from coterie.errors import CoterieError, LedgerBroken, RunError


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
