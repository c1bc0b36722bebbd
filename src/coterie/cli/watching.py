"""A run on a terminal: a headline, a table of its sites and a chart of its cost; ``watch`` shows it as it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from coterie.cli.console.commands import Port, serve
from coterie.cli.options import app
from coterie.cli.run_state import Folder, Point, RunState, SiteState, State
from coterie.cli.terminal import INTERRUPTED, STOPPED, console, errors, print_json, say, tell
from coterie.errors import InputError
from coterie.runtime.outcomes import GOOD, outcome_sentence

SECONDS = 0.25
"""Between two updates."""
COLUMNS = 60
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Braille's dots by row and column of a character."""
_EMPTY = 0x2800
OF_WHAT = "of what sites show"
"""Of which rows or groups a cost is that the server sees in a sum: over groups that of the rows is less."""
HEIGHT = 8
"""Lines of the chart."""
OTHER_LINES = 11
"""Lines of the view besides sites and chart."""
_HEADS = ("site", "last outcome", "answered", "missed", "bytes sent", "bytes received", "last answer")
_STYLES: dict[State, str] = {
    "done": "bold green",
    "failed": "bold red",
    "interrupted": "bold red",
    "gone": "bold red",
}
_WORDS: dict[State, str] = {"writing": "writing files", "failed": "failed", "gone": "removed"}


def view(folder: Folder, console: Console, *, whole: bool = True) -> Group:
    """The view of a run; unless ``whole``, only as many sites as fit the terminal."""
    run = folder.run
    height = HEIGHT if whole or console.height >= OTHER_LINES + HEIGHT + 4 else HEIGHT // 2
    room = len(run.sites) if whole else max(3, console.height - OTHER_LINES - height)
    parts: list[RenderableType] = [_head(folder), _fitting(folder, console, room)]
    if len(run.sites) > room:
        parts.append(Text(f" and {len(run.sites) - room} more sites", style="dim"))
    if run.exchanges:
        parts += _drawn(curve(run), console, height)
    return Group(*parts)


class Curve(NamedTuple):
    """What a chart of a run shows."""

    title: str
    points: Sequence[Point]
    label: Callable[[float], str]
    """A value as text."""


def curve(run: RunState) -> Curve:
    """The cost over rounds, or the bytes sent as long as fewer than two costs are known."""
    number, cost = run.costs[-1] if run.costs else (0, 0.0)
    parts = f"cost {OF_WHAT}: {cost:.6g} in round {number}" if run.costs else "no cost yet"
    if len(run.costs) > 1:
        return Curve(parts, run.costs, "{:.4g}".format)
    sent = zip((e["round"] for e in run.exchanges), accumulate(e["bytes_up"] for e in run.exchanges), strict=True)
    return Curve(f"bytes sent so far ({parts})", [*sent], "{:,.0f}".format)


def _drawn(drawn: Curve, console: Console, height: int) -> list[RenderableType]:
    plain = console.options.ascii_only
    rows = chart(drawn.points, console.width - 2, height, label=drawn.label, plain=plain)
    text = Text("\n".join(" " + row for row in rows), no_wrap=True, overflow="crop")
    return [Text(f" {drawn.title}", style="bold"), text]


def state_word(folder: Folder) -> str:
    """The state of a run in a word or two."""
    return _WORDS.get(folder.state, folder.state)


def time_text(seconds: float) -> str:
    """How long a run has taken."""
    return str(timedelta(seconds=int(seconds))) if seconds >= 10 else f"{seconds:.1f} s"


def _head(folder: Folder) -> Text:
    run = folder.run
    head = Text(" ")
    head.append(state_word(folder), style=_STYLES.get(folder.state, "bold cyan"))
    if not run.about:
        return head.append("  no events yet")
    rate = run.rate()
    parts = [
        run_name(run),
        f"round {run.exchanges[-1]['round']}" if run.exchanges else "no round yet",
        time_text(run.elapsed(folder.now)),
        f"{run.total('bytes_up'):,} bytes sent",
        *([f"{rate:.3g} rounds/s"] if rate is not None else []),
    ]
    return head.append("  " + clean(", ".join(parts)))


def run_name(run: RunState) -> str:
    """The method and the beginning of the identity of a run that has begun."""
    return f"{run.about['method']}, run {run.about['run'][:8]}"


def _fitting(folder: Folder, console: Console, room: int) -> Table:
    """The table of sites with as many columns as fit the terminal."""
    roomy, heads = console.options.update(max_width=1000), site_heads(folder.run)
    for columns in range(len(heads), 2, -1):
        table = _sites(folder, room, heads[:columns])
        if console.measure(table, options=roomy).minimum <= console.width:
            break
    return table


def _sites(folder: Folder, room: int, heads: Sequence[str]) -> Table:
    """The sites in order; if not all fit, those that did not answer come first."""
    shown = list(folder.run.sites.items())
    if len(shown) > room:
        shown = sorted(shown, key=lambda item: is_well(item[1]))[:room]
    cells = [site_cells(folder, name, heads) for name, _ in shown]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column(heads[0], overflow="fold", min_width=min(16, max((len(name) for name, _ in shown), default=4)))
    table.add_column(heads[1], overflow="fold", min_width=12)
    for i, head in enumerate(heads[2:], start=2):
        widest = max(len(head), *(len(row[i]) for row in cells), 0)
        table.add_column(head, justify="right", no_wrap=True, min_width=widest)
    for (_, site), (name, outcome, *row) in zip(shown, cells, strict=True):
        table.add_row(Text(name), Text(outcome, style="" if is_well(site) else "red"), *row)
    return table


def site_heads(run: RunState) -> list[str]:
    """The columns of a table of sites; whether sites missed a round is one where some did."""
    missed = any(site.missed for site in run.sites.values())
    return [head for head in _HEADS if head != "missed" or missed]


def site_cells(folder: Folder, name: str, heads: Sequence[str]) -> list[str]:
    """A site's row: its last outcome, its counts, and when it last answered."""
    site, is_over = folder.run.sites[name], folder.is_over or folder.run.is_over
    cells = {
        "site": clean(name),
        "last outcome": clean(outcome_sentence(site.outcome, site.reason)),
        "answered": f"{site.answered:,}",
        "missed": f"{site.missed:,}" if site.missed else "",
        "bytes sent": f"{site.bytes_up:,}",
        "bytes received": f"{site.bytes_down:,}",
        "last answer": "never" if site.seen is None else _when(folder.now - site.seen, is_over),
    }
    return [cells[head] for head in heads]


def is_well(site: SiteState) -> bool:
    """Whether a site answered, or was not asked yet."""
    return site.outcome in GOOD or site.answered + site.missed == 0


def _when(seconds: float, is_over: bool) -> str:
    if is_over and seconds < 1:
        return "at the end"
    long = f"{max(0.0, seconds):.1f} s" if seconds < 60 else str(timedelta(seconds=int(seconds)))
    return f"{long} {'before' if is_over else 'ago'}"


def clean(text: str) -> str:
    """A text without letters that a terminal would act upon."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def ending(folder: Folder, place: str = "") -> str:
    """How a run ended, and what to do next; ``place`` says where its results are, instead of its path."""
    kept = (folder.path / "journal").exists()
    again = "run the same command with --resume to continue" if kept else "it cannot be resumed"
    if folder.state == "failed" and folder.run.failure is not None:
        kind, message = folder.run.failure["kind"], folder.run.failure["message"]
        return f"The run failed: {kind}{': ' if message else ''}{message.rstrip('.')}; {again}."
    if folder.state == "interrupted":
        return f"The run was interrupted: its process has ended; {again}."
    if folder.state == "gone":
        return "The run failed before its first round and its files were removed; its own command printed the error."
    return f"All results are in {place or f'{folder.path}/'}."


@app.command()
def watch(
    run: Annotated[Path, typer.Argument(help="The folder of a run (its --out).")] = Path("coterie-run"),
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the run to begin.")] = 0.0,
    once: Annotated[bool, typer.Option("--once", help="Show the current state and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the current state as JSON and exit.")] = False,
    browser: Annotated[
        bool, typer.Option("--browser", help="Serve the run as a page for a browser on this machine, until Ctrl-C.")
    ] = False,
    port: Port = 0,
) -> None:
    """Watch a run from another terminal: its rounds, sites, bytes and cost.

    Only reads RUN/events.jsonl; Ctrl-C does not affect the run. Exits when the run ends, with code 3 if it failed or
    its process has ended. Prints a line every ten rounds if the output is not a terminal. With --browser it prints a
    link to a page, and goes on until Ctrl-C.
    """
    if browser and (once or as_json):
        raise InputError("--browser shows a run as it goes on; leave out --once and --json.")
    if port and not browser:
        raise InputError(f"--port {port} is for the page of --browser; add --browser, or leave it out.")
    folder = Folder(run)
    try:
        _wait_for(folder, wait)
        folder.look(sure=True)
        if browser:
            from coterie.cli.console.run_page import RunPage

            serve(RunPage(folder), port)
        elif as_json:
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
            cost = f", cost {OF_WHAT} {folder.run.costs[-1][1]:.6g}" if folder.run.costs else ""
            tell(clean(folder.run.progress() + cost))
        time.sleep(SECONDS)
        folder.look()
    console.print(view(folder, console))


def chart(
    points: Sequence[Point],
    width: int,
    height: int,
    *,
    label: Callable[[float], str] = "{:.4g}".format,
    plain: bool = False,
) -> list[str]:
    """Values over rounds as lines of text, at most ``width`` by ``height`` characters, and an axis below.

    Every character is a grid of two by four dots in Braille; ``plain`` draws in ASCII.
    """
    low, high = min(value for _, value in points), max(value for _, value in points)
    names = {0: label(high), height - 1: label(low)} if high > low else {height - 1: label(low)}
    margin = max(map(len, names.values()))
    columns = max(8, min(COLUMNS, width - margin - 2))
    cells = [[0] * columns for _ in range(height)]  # the dots of every character
    for x, y in _dots(_placed(points, 2 * columns - 1, 4 * height - 1)):
        cells[y // 4][x // 2] |= _BITS[y % 4][x % 2]
    bar, tick, corner, line = "|+`-" if plain else "│┤└─"
    rows = []
    for i, row in enumerate(cells):
        drawn = "".join(" " if not dots else "*" if plain else chr(_EMPTY + dots) for dots in row)
        rows.append(f"{names.get(i, ''):>{margin}} {tick if i in names else bar}{drawn}".rstrip())
    first, last = f"round {points[0][0]}", f"{points[-1][0]}" if len(points) > 1 else ""
    axis = f"{first}{last:>{columns - len(first)}}"
    return [*rows, f"{'':{margin}} {corner}{line * columns}", f"{'':{margin}}  {axis}"]


def _placed(points: Sequence[Point], right: int, bottom: int) -> list[tuple[int, int]]:
    """Points on a grid of dots, the highest value in row 0."""
    low, high = min(value for _, value in points), max(value for _, value in points)
    start, stop = points[0][0], points[-1][0]
    across, up = right / max(1, stop - start), bottom / (high - low) if high > low else 0.0
    return [(round((x - start) * across), bottom - round((value - low) * up)) for x, value in points]


def _dots(placed: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The points and straight lines between them."""
    yield placed[0]
    for (x0, y0), (x1, y1) in pairwise(placed):
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for i in range(1, steps + 1):
            yield x0 + round((x1 - x0) * i / steps), y0 + round((y1 - y0) * i / steps)
