"""Output of commands: tables, JSON, and progress (a bar on a terminal, plain lines elsewhere)."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from coterie.errors import CoterieError, LedgerBroken, RunError

if TYPE_CHECKING:
    from coterie.cli.run_state import RunState
    from coterie.runtime.events import Line, Write

BAD_INPUT, STOPPED, BROKEN_LEDGER, INTERRUPTED = 2, 3, 4, 130
_NARROW, _LONG = 4, 16
"""The least width of a column of numbers, with its padding; the most letters of its name in a line."""


class Interrupted(Exception):
    """Ctrl-C; the message says whether and how to resume."""


console = Console()
errors = Console(stderr=True)
_EXIT_CODES = {
    RunError: STOPPED,
    LedgerBroken: BROKEN_LEDGER,
    CoterieError: BAD_INPUT,
    OSError: BAD_INPUT,
    Interrupted: INTERRUPTED,
}
"""Of kinds of errors, the first that fits."""
_TEXT = TextColumn("{task.description}")


def end(problem: Exception) -> None:
    """End the process after an error: one sentence and an exit code. What is not for the user is raised again."""
    if isinstance(problem, BrokenPipeError):  # the reader of our output, such as head, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    codes = [code for kind, code in _EXIT_CODES.items() if isinstance(problem, kind)]
    if not codes:
        raise problem
    errors.print("[red]error:[/]", end=" ")
    errors.print(_sentence(problem), markup=False, highlight=False, soft_wrap=True)
    sys.exit(codes[0])


def _sentence(problem: Exception) -> str:
    if isinstance(problem, Interrupted):
        return f"interrupted; {problem}"
    if isinstance(problem, OSError) and not isinstance(problem, CoterieError):
        where = f"{problem.filename}: " if problem.filename else ""
        return f"{where}{problem.strerror or problem}"
    return str(problem)


def print_json(value: Any) -> None:
    """Print a JSON document."""
    print(json.dumps(value, indent=2))


def show_table(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], *, bold_first: bool = False, needed: int = 0
) -> None:
    """Print a table; numbers are right-aligned and never wrapped.

    With ``needed``, further columns are shown only as far as the terminal is wide enough.
    """
    kept = min(len(heads), max(needed, console.width // _NARROW)) if needed else len(heads)
    table = _table(title, *_cut(heads, rows, kept), bold_first)
    roomy = console.options.update(max_width=10_000)
    while kept > needed > 0 and console.measure(table, options=roomy).maximum > console.width:
        kept -= 1
        table = _table(title, *_cut(heads, rows, kept), bold_first)
    console.print(table)


def _cut(heads: Sequence[str], rows: Sequence[Sequence[str]], kept: int) -> tuple[list[str], list[list[str]]]:
    """The first ``kept`` columns, and dots if there are more."""
    more = ["..."] if kept < len(heads) else []
    return [*heads[:kept], *more], [[*row[:kept], *more] for row in rows]


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], bold_first: bool) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1))
    for i, head in enumerate(heads):
        numeric = bool(rows) and all(is_number(row[i]) for row in rows)
        name = "\n".join(textwrap.wrap(head, _LONG)) if numeric else head
        table.add_column(
            name,
            justify="right" if numeric and i > 0 else "left",
            overflow="ellipsis" if numeric else "fold",
            no_wrap=numeric,
        )
    for i, row in enumerate(rows):
        table.add_row(*row, style="bold" if bold_first and i == 0 else None)
    return table


def tell(line: str) -> None:
    """Print a line that may be copied: neither wrapped nor coloured, brackets are not markup."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def say(sentence: str, start: str = "") -> None:
    """Print a sentence, wrapped at spaces."""
    for line in textwrap.wrap(
        sentence, console.width, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False
    ):
        tell(line)


def is_number(text: str) -> bool:
    """Whether a text of a table is a number."""
    try:
        float(text.replace(",", ""))
    except ValueError:
        return False
    return True


def show_result(out: str, result: dict[str, Any], as_json: bool) -> None:
    """Print the result of a job whose files are in ``out``."""
    if as_json:
        print_json(result)
        return
    if "choice" in result:
        _show_choice(out, result)
        return
    from coterie.report.labels import rows_head, size_text

    privacy = result.get("privacy")
    rows = [
        [str(i), size_text(result, count), *(f"{value:.4g}" for value in center)]
        for i, (center, count) in enumerate(zip(result["centers"], result["counts"], strict=True))
    ]
    show_table(result["title"], ["cluster", rows_head(result), *result["columns"]], rows, needed=3)
    console.print(result["summary"], highlight=False)
    if result.get("profiles"):
        from coterie.report.profiles import distinguishing_table, exactness_sentence

        show_table("What distinguishes the clusters", *distinguishing_table(result["profiles"]))
        say(exactness_sentence(result["profiles"]))
    if result.get("composition"):
        from coterie.report.profiles import composition_table

        show_table("Whose rows are in them", *composition_table(result["composition"]))
    _show_privacy(privacy)
    empty = sum(count == 0 for count in result["counts"])
    if empty and not privacy:
        tell(f"{empty} of the clusters are empty: the data may have fewer clusters than you asked for.")
    _show_place(out)


def _show_place(out: str) -> None:
    console.print(f"All results are in [bold]{out}/[/]; open [bold]{out}/report.html[/].", soft_wrap=True)


def _show_privacy(privacy: dict[str, Any] | None) -> None:
    """Print what a private run promised and released."""
    if privacy:
        from coterie.report.privacy import privacy_sentences, releases_table

        for sentence in privacy_sentences(privacy):
            say(sentence)
        show_table("What was released", *releases_table(privacy))


def _shown(value: float | None, form: str) -> str:
    """A number; a dash where it was not asked for."""
    return "-" if value is None else format(value, form)


def _show_choice(out: str, result: dict[str, Any]) -> None:
    """Print what is known of each number of clusters, and what is recommended."""
    from coterie.report.labels import cost_head

    choice = result["choice"]
    heads = ["k", "silhouette", "gap", "its error", "stability", cost_head(result)]
    names = ("silhouette", "gap", "gap_error", "stability")
    rows = [
        [str(of["k"]), *(_shown(of[name], ".3f") for name in names), _shown(of["cost"], ".6g")]
        for of in choice["numbers"]
    ]
    show_table(result["title"], heads, rows)
    say(choice["verdict"])
    say(result["summary"])
    _show_privacy(result.get("privacy"))
    _show_place(out)


@contextlib.contextmanager
def watching(run: RunState | None = None, *, quiet: bool = False) -> Iterator[Write]:
    """Show the events of a run: one updated line on a terminal, a line every ten rounds elsewhere.

    ``run`` is the state of a run that is resumed.
    """
    if quiet:
        yield lambda _: None
        return
    from coterie.cli.run_state import RunState

    run_state, is_drawn = run or RunState(), errors.is_terminal
    bar = Progress(SpinnerColumn(), _TEXT, TimeElapsedColumn(), console=errors, transient=True)
    task = bar.add_task("starting", total=None)

    def take(line: Line) -> None:
        run_state.take(line)
        if line["event"] == "exchange":
            bar.update(task, description=run_state.progress())
            if not is_drawn and line["round"] % 10 == 0:
                errors.print(run_state.progress(), highlight=False, soft_wrap=True)

    with bar if is_drawn else contextlib.nullcontext():
        yield take


@contextlib.contextmanager
def steps(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """Show how many steps of a task are done."""
    if not errors.is_terminal:
        yield lambda done, total, what: errors.print(f"{done}/{total} {what}", highlight=False)
        return
    columns = (_TEXT, BarColumn(), TextColumn("{task.completed}/{task.total}"), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total, what: bar.update(task, completed=done, total=total, description=f"{title}: {what}")


@contextlib.contextmanager
def grouping_bar() -> Iterator[Callable[[int, int], None] | None]:
    """Show how many of a site's rows are grouped, on a terminal only."""
    if not errors.is_terminal:
        yield None
        return
    with steps("forming groups") as show:
        yield lambda done, total: show(done, total, f"{done:,} of {total:,} rows")
