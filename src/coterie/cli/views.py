"""A run on a terminal: a headline, a table of its sites, and a chart of its cost."""

from __future__ import annotations

from datetime import timedelta
from itertools import accumulate

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from coterie.cli.charts import chart
from coterie.cli.run_state import Folder, RunState, SiteState, State
from coterie.runtime.outcomes import GOOD, outcome_sentence

HEIGHT = 8
"""Lines of the chart."""
OTHER_LINES = 11
"""Lines of the view besides sites and chart."""
_COLUMNS = ("answered", "missed", "bytes sent", "bytes received", "last answer")
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
        parts += _curve(run, console, height)
    return Group(*parts)


def _curve(run: RunState, console: Console, height: int) -> list[RenderableType]:
    """The cost over rounds, or the bytes sent as long as fewer than two costs are known."""
    is_cost = len(run.costs) > 1
    number, cost = run.costs[-1] if run.costs else (0, 0.0)
    parts = f"cost: {cost:.6g} in round {number}" if run.costs else "no cost yet"
    title = parts if is_cost else f"bytes sent so far ({parts})"
    sent = zip((e["round"] for e in run.exchanges), accumulate(e["bytes_up"] for e in run.exchanges), strict=True)
    points, label = (run.costs, "{:.4g}".format) if is_cost else ([*sent], "{:,.0f}".format)
    rows = chart(points, console.width - 2, height, label=label, plain=console.options.ascii_only)
    drawn = Text("\n".join(" " + row for row in rows), no_wrap=True, overflow="crop")
    return [Text(f" {title}", style="bold"), drawn]


def _head(folder: Folder) -> Text:
    run = folder.run
    head = Text(" ")
    head.append(_WORDS.get(folder.state, folder.state), style=_STYLES.get(folder.state, "bold cyan"))
    if not run.about:
        return head.append("  no events yet")
    seconds, rate = run.elapsed(folder.now), run.rate()
    parts = [
        f"{run.about['method']}, run {run.about['run'][:8]}",
        f"round {run.exchanges[-1]['round']}" if run.exchanges else "no round yet",
        str(timedelta(seconds=int(seconds))) if seconds >= 10 else f"{seconds:.1f} s",
        f"{run.total('bytes_up'):,} bytes sent",
        *([f"{rate:.3g} rounds/s"] if rate is not None else []),
    ]
    return head.append("  " + _clean(", ".join(parts)))


def _fitting(folder: Folder, console: Console, room: int) -> Table:
    """The table of sites with as many columns as fit the terminal."""
    roomy = console.options.update(max_width=1000)
    for columns in range(len(_COLUMNS), 0, -1):
        table = _sites(folder, room, _COLUMNS[:columns])
        if console.measure(table, options=roomy).minimum <= console.width:
            break
    return table


def _sites(folder: Folder, room: int, columns: tuple[str, ...]) -> Table:
    """The sites in order; if not all fit, those that did not answer come first."""
    shown = list(folder.run.sites.items())
    if len(shown) > room:
        shown = sorted(shown, key=lambda item: _is_well(item[1]))[:room]
    parts = [_site_cells(folder, site)[: len(columns)] for _, site in shown]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("site", overflow="fold", min_width=min(16, max((len(name) for name, _ in shown), default=4)))
    table.add_column("last outcome", overflow="fold", min_width=12)
    for i, head in enumerate(columns):
        widest = max(len(head), *(len(row[i]) for row in parts)) if parts else len(head)
        table.add_column(head, justify="right", no_wrap=True, min_width=widest)
    for (name, site), row in zip(shown, parts, strict=True):
        outcome = Text(_clean(outcome_sentence(site.outcome, site.reason)), style="" if _is_well(site) else "red")
        table.add_row(Text(_clean(name)), outcome, *row)
    return table


def _site_cells(folder: Folder, site: SiteState) -> list[str]:
    """A site's counts, and when it last answered."""
    is_over = folder.is_over or folder.run.is_over
    parts = [f"{number:,}" for number in (site.answered, site.missed, site.bytes_up, site.bytes_down)]
    return [*parts, "never" if site.seen is None else _when(folder.now - site.seen, is_over)]


def _is_well(site: SiteState) -> bool:
    return site.outcome in GOOD or site.answered + site.missed == 0


def _when(seconds: float, is_over: bool) -> str:
    if is_over and seconds < 1:
        return "at the end"
    long = f"{max(0.0, seconds):.1f} s" if seconds < 60 else str(timedelta(seconds=int(seconds)))
    return f"{long} {'before' if is_over else 'ago'}"


def _clean(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def line_of(run: RunState) -> str:
    return _clean(run.progress() + (f", cost {run.costs[-1][1]:.6g}" if run.costs else ""))


def ending(folder: Folder) -> str:
    """How a run ended, and what to do next."""
    kept = (folder.path / "journal").exists()
    again = "run the same command with --resume to continue" if kept else "it cannot be resumed"
    if folder.state == "failed" and folder.run.failure is not None:
        kind, message = folder.run.failure["kind"], folder.run.failure["message"]
        return f"The run failed: {kind}{': ' if message else ''}{message.rstrip('.')}; {again}."
    if folder.state == "interrupted":
        return f"The run was interrupted: its process has ended; {again}."
    if folder.state == "gone":
        return "The run failed before its first round and its files were removed; its own command printed the error."
    return f"All results are in {folder.path}/."
