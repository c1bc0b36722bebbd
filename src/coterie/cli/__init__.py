"""The command line: commands, progress bars and tables."""

from __future__ import annotations

import warnings

from coterie.cli.options import app
from coterie.errors import NoiseWarning


def main() -> None:
    """The ``coterie`` command: every error ends as one sentence and an exit code."""
    warnings.simplefilter("ignore", NoiseWarning)  # results say it
    try:
        app()
    except Exception as problem:
        from coterie.cli.terminal import end  # takes longer to import than help takes to print

        end(problem)
