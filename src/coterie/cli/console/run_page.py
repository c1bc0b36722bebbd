"""A run for its analyst: rounds, sites, bytes, cost."""

from __future__ import annotations

from threading import Lock

from coterie.cli.console.blocks import Block, Chart, Page, Section, Text, Tiles, Tone, table
from coterie.cli.console.server import nothing_there
from coterie.cli.run_state import Folder, RunState
from coterie.cli.watching import clean, curve, ending, run_name, site_cells, site_heads, state_word, time_text
from coterie.errors import QuorumLost, RosterChanged, RunError
from coterie.messages.schema import doing_of
from coterie.runtime.outcomes import GOOD

RECENT = 12
"""Rounds in the table of the last ones."""
SECONDS, SECONDS_AFTER = 1.0, 5.0
"""Between two looks at a run that goes on, and at one that is over."""
_OF_SITES = {kind.__name__ for kind in (RunError, QuorumLost, RosterChanged)}
"""Errors whose messages are made of what sites did."""
_TONES: dict[str, Tone] = {"done": "good", "failed": "bad", "interrupted": "bad", "gone": "bad"}


class RunPage:
    """What ``coterie watch`` shows, as a page; the run's files are only read."""

    def __init__(self, folder: Folder) -> None:
        self._folder, self._at_work = folder, Lock()

    def page(self) -> Page:
        """The run as it is now."""
        with self._at_work:
            self._folder.look()
            return _page(self._folder)

    def part(self, *_: str) -> list[Block]:
        """A run has all its blocks at once."""
        raise nothing_there()

    def act(self, *_: str) -> str:
        """Watching decides nothing."""
        raise nothing_there()


def _page(folder: Folder) -> Page:
    run, state = folder.run, state_word(folder)
    tone, seconds = _TONES.get(folder.state, ""), SECONDS_AFTER if folder.is_over else SECONDS
    if not run.about:
        said = ["No events yet."] if not folder.is_over else [_ending(folder)]
        return Page("A run", "", [Section("run", "Run", [Text(said, tone)])], state, tone, seconds)
    blocks: list[Block] = [Tiles(_numbers(folder))]
    if folder.is_over:
        blocks.insert(0, Text([_ending(folder)], tone))
    sections = [Section("run", "Run", blocks)]
    if run.exchanges:
        sections += [_chart(run), _sites(folder), _rounds(run)]
    return Page(clean(run_name(run)), "What the server sees of a run, as it happens.", sections, state, tone, seconds)


def _numbers(folder: Folder) -> list[list[str]]:
    """What to see first."""
    run = folder.run
    rate, is_masking = run.rate(), sum(line["phase"] == "masking" for line in run.exchanges)
    return [
        ["rounds", f"{len(run.exchanges):,}"],
        ["of them for keys and proofs", f"{is_masking:,}"],
        ["bytes sent by sites", f"{run.total('bytes_up'):,}"],
        ["bytes received by sites", f"{run.total('bytes_down'):,}"],
        ["time", time_text(run.elapsed(folder.now))],
        *([["rounds per second", f"{rate:.3g}"]] if rate is not None else []),
    ]


def _chart(run: RunState) -> Section:
    drawn = curve(run)
    values = [value for _, value in drawn.points]
    ends = f"{min(values):,.6g}", f"{max(values):,.6g}"
    is_cost = drawn.points is run.costs
    return Section("cost", "Cost" if is_cost else "Bytes", [Chart(drawn.title, list(drawn.points), *ends)])


def _sites(folder: Folder) -> Section:
    heads = site_heads(folder.run)
    rows = [site_cells(folder, name, heads) for name in folder.run.sites]
    return Section("sites", "Sites", [table("", heads, rows)])


def _rounds(run: RunState) -> Section:
    """The last rounds, the newest first."""
    from coterie.methods import registry  # noqa: F401  (declares the methods' requests)
    from coterie.secure import masked_sums  # noqa: F401

    rows = []
    for line in reversed(run.exchanges[-RECENT:]):
        answered = sum(counts["outcome"] in GOOD for counts in line["sites"].values())
        sites, sent = f"{answered} of {len(line['sites'])}", f"{line['bytes_up']:,}"
        rows.append([str(line["round"]), clean(doing_of(line["asked"])), sites, sent])
    return Section("rounds", "Last rounds", [table("", ["round", "what", "sites answered", "bytes sent"], rows)])


def _ending(folder: Folder) -> str:
    """How a run ended. Errors other than of what sites did may name files: the terminal has them."""
    failure = folder.run.failure
    if failure is not None and failure["kind"] not in _OF_SITES:
        return "The run failed; `coterie watch` in a terminal says why, and whether it can be resumed."
    return clean(ending(folder, "the run's folder, with report.html"))
