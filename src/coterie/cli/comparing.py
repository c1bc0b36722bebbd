"""Comparing finished runs: ``compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import options as opt
from coterie.cli.jobs import named_files
from coterie.cli.options import app
from coterie.cli.terminal import print_json, say, show_table
from coterie.errors import InputError

if TYPE_CHECKING:
    from coterie.report.comparison import Pair

SHOWN_COLUMNS = 3
"""Columns in which two centers differ most, in their scale."""


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="The folders of two or more finished runs.")],
    data: Annotated[
        list[Path] | None,
        typer.Option(
            help="A site's file (one option for each site), where labels are at the sites: rows are labelled under "
            "both models there, and counted by sums."
        ),
    ] = None,
    policy: Annotated[
        str, typer.Option(help="With --data, the sites' policy: a preset, a policy file, or simulation.")
    ] = "standard",
    as_json: opt.AsJson = False,
) -> None:
    """Compare finished runs: how far their clusters agree, which centers correspond, cost, bytes and privacy.

    Agreement is the adjusted Rand index of the labels in RUN/labels, matched by site and row: 1 for the same
    clusters, about 0 for unrelated ones. Runs over other columns of the same rows can be compared, too.

    Examples: coterie compare first second

    coterie compare first second --data north.csv --data south.csv --data west.csv
    """
    from coterie.report.comparison import compared_runs, read_runs, run_facts

    if policy != "standard" and data is None:
        raise InputError("--policy goes with --data.")
    folders = read_runs(runs)
    tables, options = None, {}
    if data is not None:
        tables = named_files([str(path) for path in data])
        options = {"policy": policy, "sums": "plain" if policy == "simulation" else "masked"}
    pairs = compared_runs(folders, tables, **options)
    facts = [run_facts(folder) for folder in folders]
    if as_json:
        print_json({"runs": facts, "pairs": [pair.to_json() for pair in pairs]})
        return
    _show_runs(facts)
    for pair in pairs:
        _show_pair(pair)


def _show_runs(facts: list[dict[str, Any]]) -> None:
    """A line for each run."""
    from coterie.report.labels import runs_table

    show_table("Runs", *runs_table(facts), needed=5)


def _show_pair(pair: Pair) -> None:
    """How far two runs agree, and their centers."""
    from coterie.estimators.exactness import CountsAre
    from coterie.report.labels import COST_WORDS

    if pair.ari is not None:
        in_groups = pair.counts_are is CountsAre.WHOLE_GROUPS
        over = " in whole groups, each labelled by its mean: an estimate of that of the rows" if in_groups else ""
        say(f"{pair.first} and {pair.second}: adjusted Rand index {pair.ari:.3f} over {pair.rows:,.0f} rows{over}.")
    if pair.costs is not None and pair.cost_is is not None:
        words = COST_WORDS[pair.cost_is]
        costs = ["none, among embedded rows" if cost is None else f"{words}{cost:.6g}" for cost in pair.costs]
        say(f"Cost of these rows: {costs[0]} with {pair.first}, {costs[1]} with {pair.second}.")
    if pair.centers is not None:
        _show_centers(pair)
    for note in pair.notes:
        say(note)


def _show_centers(pair: Pair) -> None:
    """Which centers correspond, and where they differ most."""
    centers = pair.centers
    assert centers is not None
    lines = []
    for (i, j), distance, differences in zip(centers.pairs, centers.distances, centers.differences, strict=True):
        shared = "" if pair.table is None else f"{pair.table[i, j]:,.0f}"
        by_size = sorted(zip(centers.columns, differences, strict=True), key=lambda item: -abs(item[1]))
        where = ", ".join(f"{name} {value:+.3g}" for name, value in by_size[:SHOWN_COLUMNS] if value)
        lines.append([str(i), str(j), f"{distance:.3g}", shared, where])
    heads = [f"cluster of {pair.first}", f"of {pair.second}", "distance", "rows in both", "largest differences"]
    show_table(
        "Corresponding centers, in the first run's scale; differences in original units", heads, lines, needed=3
    )
    for name, left in zip((pair.first, pair.second), centers.unmatched, strict=True):
        if left:
            say(f"Clusters of {name} without a counterpart: {', '.join(map(str, left))}.")
