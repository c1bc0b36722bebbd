"""The command line: commands, progress bars and tables."""

from __future__ import annotations

import os
import sys
import warnings

# isort: off
from coterie.cli import cluster, planning, labels, choosing, describing, comparing, previews, watching, deployment  # noqa: F401
from coterie.cli import approvals, enrollment, federation  # noqa: F401
from coterie.cli import budgets, inspection, ledgers, certificates  # noqa: F401

# isort: on  (a module adds its commands when it is imported, and help lists them in this order)
from coterie.cli.options import app
from coterie.cli.terminal import BAD_INPUT, BROKEN_LEDGER, INTERRUPTED, STOPPED, Interrupted, errors
from coterie.errors import CoterieError, LedgerBroken, NoiseWarning, RunError


def main() -> None:
    """The ``coterie`` command: every error ends as one sentence and an exit code."""
    warnings.simplefilter("ignore", NoiseWarning)  # results say it
    try:
        app()
    except RunError as problem:
        _exit(problem, STOPPED)
    except LedgerBroken as problem:
        _exit(problem, BROKEN_LEDGER)
    except CoterieError as problem:
        _exit(problem, BAD_INPUT)
    except BrokenPipeError:  # the reader of our output, such as head, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as problem:
        where = f"{problem.filename}: " if problem.filename else ""
        _exit(f"{where}{problem.strerror or problem}", BAD_INPUT)
    except Interrupted as stop:
        _exit(f"interrupted; {stop}", INTERRUPTED)


def _exit(problem: object, code: int) -> None:
    errors.print("[red]error:[/]", end=" ")
    errors.print(str(problem), markup=False, highlight=False, soft_wrap=True)
    sys.exit(code)
